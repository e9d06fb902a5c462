"""Talking in the console: streaming, Markdown, tools, reload in mid-answer, stop, steer, regenerate, two windows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import BrowserContext

from agui_adapter.demo.gateway import Gateway
from tests.browser.conftest import Console, Watch
from tests.browser.proxy import Proxy
from tests.e2e.helpers import GatedModel, call, script, unique, wait_until

Open = Callable[..., Console]

# What the page asks, and when, in milliseconds since its begin; and how many messages the first that are drawn are.
SPY = """(() => {
  const ask = window.fetch, mark = performance.mark.bind(performance);
  window.asked = [];
  window.fetch = (address, init) => {
    window.asked.push([String(address), performance.now()]);
    return ask(address, init);
  };
  performance.mark = (name, options) => {
    if (name === "thread shown") window.drawn = document.querySelectorAll(".message").length;
    return mark(name, options);
  };
})()"""
BELOW = "view => view.scrollHeight - view.scrollTop - view.clientHeight"

RICH = """# Title

Some *text* with `code`, a [link](https://example.com) and a picture ![of elsewhere](https://example.com/x.png).

```python
def answer() -> int:
    return 42
```

| name | value |
|---|---|
| one | 1 |

- a
- b
"""


def test_an_answer_streams_and_the_thread_has_an_address(open_page: Open, model: GatedModel) -> None:
    console, gate = open_page(), unique("g")
    console.say(script({"text": f"The beginning {{gate:{gate}}} and the end."}))
    wait_until(lambda: model.reached(gate), "the model waits")
    console.sees("The beginning")
    console.page.locator(".working").wait_for()
    assert "the end" not in console.answers()[-1]
    model.open_gate(gate)
    console.sees("and the end.")
    console.idle()
    assert console.thread
    entry = console.page.locator(".threads li.current")
    entry.wait_for()
    assert "running" not in entry.inner_text()  # as soon as it is over, not with the list's next turn


def test_markdown_with_code_a_table_and_nothing_from_elsewhere(open_page: Open) -> None:
    console = open_page()
    console.say(script({"text": RICH}))
    page = console.page
    page.locator(".message.assistant h1", has_text="Title").wait_for()
    page.locator(".code .hljs-keyword", has_text="def").wait_for()
    assert page.locator(".message.assistant td").all_inner_texts() == ["one", "1"]
    assert page.locator(".message.assistant img").count() == 0  # the watch would see a request, too
    assert page.get_by_role("link", name="of elsewhere").get_attribute("rel") == "noreferrer noopener"


def test_a_line_of_the_answer_is_a_line_on_the_page(open_page: Open) -> None:
    """Hermes's own answers to commands are lines; a hard break is one break too."""
    console = open_page()
    console.say(script({"text": "one\ntwo  \nthree\n\n- four\n- five"}))
    console.sees("five")
    console.idle()
    paragraph = console.page.locator(".message.assistant p")
    assert paragraph.inner_text().split("\n") == ["one", "two", "three"]
    assert console.page.locator(".message.assistant li").all_inner_texts() == ["four", "five"]


def test_reasoning_is_folded_and_a_tool_card_has_arguments_result_and_time(open_page: Open, tmp_path: Path) -> None:
    console, flag = open_page(), tmp_path / "go"
    command = call("terminal", {"command": f"until [ -e {flag} ]; do sleep 0.05; done; echo from-the-tool"})
    console.say(script({"reasoning": "I think so.", "text": "Let me look.", "tools": [command]}, {"text": "Done."}))
    page = console.page
    card = page.locator(".tool[data-tool=terminal]")
    counts = card.locator(".tool-status", has_text=re.compile(r"^[0-9.]+ s · running$"))
    counts.wait_for()  # while it runs, and so it has run long enough for a time to be shown
    flag.touch()
    console.sees("Done.")
    console.idle()
    thought = page.get_by_text("I think so.", exact=True)
    assert not thought.is_visible()
    page.locator(".reasoning summary").click()
    thought.wait_for()
    assert re.fullmatch(r"[0-9.]+ s · done", card.locator(".tool-status").inner_text())
    card.locator("summary").click()
    assert "echo from-the-tool" in card.locator(".code").first.inner_text()
    assert "from-the-tool" in card.locator(".code").last.inner_text()


def test_a_failed_tool_is_shown_as_failed(open_page: Open) -> None:
    console = open_page()
    console.say(script({"tools": [call("terminal", {"command": "exit 3"})]}, {"text": "It failed."}))
    console.sees("It failed.")
    card = console.page.locator(".tool.failed")
    card.locator("summary").click()
    card.get_by_text("Exit code 3").wait_for()


def test_a_reload_in_mid_answer_continues_the_same_answer(open_page: Open, model: GatedModel) -> None:
    console, gate = open_page(), unique("g")
    console.say(script({"text": f"Before the reload {{gate:{gate}}} and after it."}))
    console.sees("Before the reload")
    thread = console.thread
    console.page.reload()
    console.sees("Before the reload")
    console.page.get_by_role("button", name="Stop", exact=True).wait_for()
    model.open_gate(gate)
    console.sees("and after it.")
    console.idle()
    assert console.thread == thread
    assert len(console.answers()) == 1
    assert console.page.locator(".message.user").count() == 1


def test_stop_acts_at_once(open_page: Open, model: GatedModel) -> None:
    console, gate = open_page(), unique("g")
    console.say(script({"text": f"Never {{gate:{gate}}} finished"}))
    console.sees("Never")
    console.page.get_by_role("button", name="Stop", exact=True).click()
    console.idle()
    model.open_gate(gate)
    console.say(script({"text": "Something else."}))
    console.sees("Something else.")
    assert not any("finished" in text for text in console.answers())


def test_a_word_while_it_works_reaches_the_model(open_page: Open, model: GatedModel) -> None:
    console, gate = open_page(), unique("g")
    steps = (
        {"text": f"I start {{gate:{gate}}}.", "tools": [call("terminal", {"command": "echo 1"})]},
        {"text": "Heard."},
    )
    console.say(script(*steps))
    wait_until(lambda: model.reached(gate), "the model waits")
    word = unique("hurry")
    console.page.get_by_placeholder("Tell it something while it works").wait_for()
    console.say(word)
    console.page.get_by_text("told while it works").wait_for()
    model.open_gate(gate)
    console.sees("Heard.")
    console.idle()
    assert any(word in str(request["messages"][-1]) for request in model.requests)


def test_regenerate_takes_the_answer_back(open_page: Open, gateway: Gateway, model: GatedModel) -> None:
    console = open_page()
    question = script({"text": "An answer."}, say=unique())
    console.say(question)
    console.sees("An answer.")
    console.idle()
    before = len(model.requests)
    console.page.get_by_role("button", name="Regenerate").click()
    wait_until(lambda: len(model.requests) > before, "the model is asked again")
    console.idle()
    assert len(console.answers()) == 1
    assert console.page.locator(".message.user").count() == 1
    assert sum(message["role"] == "user" for message in model.requests[-1]["messages"]) == 1


def test_an_edited_message_is_answered_anew(open_page: Open, model: GatedModel) -> None:
    console = open_page()
    console.say(script({"text": "First answer."}))
    console.sees("First answer.")
    console.idle()
    console.page.locator(".message.user").hover()
    console.page.get_by_role("button", name="Edit").click()
    box = console.page.get_by_label("Edit your message")
    box.fill(script({"text": "Second answer."}))
    console.page.get_by_role("button", name="Send again").click()
    console.sees("Second answer.")
    console.idle()
    assert console.answers() == ["Second answer."]
    console.page.reload()
    console.sees("Second answer.")
    assert console.answers() == ["Second answer."]


def test_two_windows_see_the_same(open_page: Open, model: GatedModel) -> None:
    first = open_page()
    first.say(script({"text": "Said in the first."}))
    first.sees("Said in the first.")
    first.idle()
    second = open_page(f"#/t/{first.thread}")
    second.sees("Said in the first.")
    gate = unique("g")
    second.say(script({"text": f"Said in {{gate:{gate}}} the second."}))
    first.sees("Said in")
    first.page.get_by_role("button", name="Stop", exact=True).wait_for()
    model.open_gate(gate)
    first.sees("the second.")
    second.sees("the second.")
    second.idle()
    first.idle()
    first.say(script({"text": "And back."}))
    second.sees("And back.")
    first.idle()
    second.idle()
    assert len(first.answers()) == len(second.answers()) == 3


def test_an_error_is_shown_and_the_next_message_goes(open_page: Open) -> None:
    console = open_page()
    console.say(script({"status": 401, "message": "no such key"}))
    console.page.locator(".failure").wait_for(timeout=60_000)
    assert console.page.locator(".failure code").inner_text() == "provider_auth"
    console.idle()
    console.say(script({"text": "Better."}))
    console.sees("Better.")
    assert console.page.locator(".failure").count() == 0


def test_offline_and_back_continues_the_answer(
    open_page: Open, gateway: Gateway, model: GatedModel, watch: Watch
) -> None:
    """The connection breaks in the middle of an answer; what was said meanwhile is there afterwards."""
    watch.allow.append("net::ERR_")  # the browser's own word for a connection that is cut
    gate = unique("g")
    with Proxy(gateway) as proxy:
        console = open_page(url=proxy.url)
        console.say(script({"text": f"Heard this {{gate:{gate}}} and that."}))
        console.sees("Heard this")
        proxy.cut()
        console.page.get_by_text("Offline, reconnecting").wait_for()
        model.open_gate(gate)
        proxy.mend()
        console.sees("and that.")
        console.idle()
        assert len(console.answers()) == 1


def test_a_long_thread_shows_its_end_first(open_page: Open, context: BrowserContext, gateway: Gateway) -> None:
    """It is asked for before the page is evaluated, and once; what fills the window is drawn before the rest."""
    thread = unique("long")
    history = [
        {"id": f"{thread}-{index}", "role": ("user", "assistant")[index % 2], "content": f"Message {index}. " * 12}
        for index in range(98)
    ]
    asked = {"id": f"{thread}-q", "role": "user", "content": script({"text": "The end."})}
    body = {"threadId": thread, "runId": unique("run"), "messages": [*history, asked]}
    httpx.post(f"{gateway.url}/agui", json=body, timeout=60, trust_env=False).raise_for_status()
    context.add_init_script(SPY)
    page = open_page(f"#/t/{thread}").page
    page.locator(".message.assistant", has_text="The end.").wait_for()
    wait_until(lambda: page.locator(".message").count() == 40, "the rest is drawn")
    assert 0 < page.evaluate("window.drawn") < 40
    page.get_by_role("button", name="Show earlier messages (60)").wait_for()
    view = page.locator(".viewport")
    wait_until(lambda: view.evaluate(BELOW) < 2, "it stands at its end")

    begun = page.evaluate("performance.getEntriesByName('page begun')[0].startTime")
    times = page.evaluate("window.asked")
    for path in ("/agui/capabilities", f"/agui/threads/{thread}/events", f"/agui/threads/{thread}"):
        assert [address for address, _ in times].count(path) == 1, path
    assert all(at < begun for address, at in times if address.endswith(("capabilities", "events")))

    page.get_by_role("button", name="Show earlier messages (60)").click()
    wait_until(lambda: page.locator(".message").count() == 100, "all of it is there")


def test_another_address_before_the_page_has_begun(open_page: Open, context: BrowserContext) -> None:
    """What was asked early for the first address is given up; the page shows where it is now."""
    threads = []
    for text in ("Where it was.", "Where it is now."):
        console = open_page()
        console.say(script({"text": text}))
        console.idle()
        threads.append(console.thread)
    leaves = f"if (name === 'page begun') location.hash = '/t/{threads[1]}';"
    context.add_init_script(SPY.replace("return mark", f"{leaves} return mark"))
    other = open_page(f"#/t/{threads[0]}")
    other.sees("Where it is now.")
    asked = other.page.evaluate("window.asked.map(([address]) => address)")
    assert f"/agui/threads/{threads[0]}/events" in asked
    assert f"/agui/threads/{threads[1]}/events" in asked
    other.say(script({"text": "And on."}))
    other.sees("And on.")
    assert other.thread == threads[1]
