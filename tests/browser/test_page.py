"""The page around the conversation: threads, commands, inspector, themes, keyboard, pairing, tokens, watching."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext

from agui_adapter.demo.gateway import Gateway
from tests.browser.conftest import Console, Watch
from tests.browser.proxy import Proxy
from tests.e2e import wire_platform
from tests.e2e.helpers import Chat, GatedModel, call, hermes, script, unique, wait_until
from tests.e2e.media import wav

pytestmark = pytest.mark.slow  # `make test` drives the chat and a device; `make test-all` these too

Open = Callable[..., Console]
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
KEY = "an-operators-key-of-thirty-two-ch"


def talked(open_page: Open, text: str = "Hello there.", **more: Any) -> Console:
    console = open_page(**more)
    console.say(script({"text": text}))
    console.sees(text)
    console.idle()
    return console


def entry(console: Console, title: str) -> Any:
    return console.page.locator(".threads li", has_text=title)


def test_threads_are_renamed_found_branched_and_deleted(open_page: Open, gateway: Gateway) -> None:
    console, title = talked(open_page), unique("title")
    page, thread = console.page, console.thread
    page.locator(".threads li.current .menu summary").click()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill(title)
    page.get_by_label("Title").press("Enter")
    entry(console, title).wait_for()
    page.locator(".header .title", has_text=title).wait_for()

    page.get_by_label("Search threads").fill(unique("nothing"))
    page.get_by_text("Nothing found.").wait_for()
    page.get_by_label("Search threads").fill(title)
    entry(console, title).wait_for()
    assert page.locator(".threads li").count() == 1

    entry(console, title).locator(".menu summary").click()
    page.get_by_role("button", name="Branch").click()
    wait_until(lambda: console.thread != thread, "the branch is open")
    console.sees("Hello there.")
    branched = console.thread

    entry(console, title).first.wait_for()
    page.locator(".threads li.current .menu summary").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("What can I do for you?").wait_for()
    assert httpx.get(f"{gateway.url}/agui/threads/{branched}").status_code == 404
    assert httpx.get(f"{gateway.url}/agui/threads/{thread}").status_code == 200


def test_an_archived_thread_is_put_aside(open_page: Open) -> None:
    console, title = talked(open_page), unique("title")
    httpx.patch(f"{console.url}/agui/threads/{console.thread}", json={"title": title}).raise_for_status()
    page = console.page
    page.get_by_label("Search threads").fill(title)
    entry(console, title).locator(".menu summary").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    page.get_by_text("Nothing found.").wait_for()
    page.get_by_label("Archived").check()
    entry(console, title).wait_for()


def test_a_slash_command_is_completed_by_the_keyboard(open_page: Open) -> None:
    console = open_page()
    box = console.box
    box.press_sequentially("/sta")
    page = console.page
    page.get_by_role("option").first.wait_for()
    assert box.get_attribute("aria-expanded") == "true"
    named = page.locator("[role=option][aria-selected=true] code").inner_text()
    assert named.startswith("/sta")
    box.press("Enter")
    assert box.input_value() == f"{named} "
    box.fill("/help")
    box.press("Escape")
    assert page.get_by_role("option").count() == 0


def test_the_inspector_copies_json_lines(open_page: Open, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    console = open_page()
    page = console.page
    page.get_by_role("button", name="Event inspector").click()
    console.say(script({"text": "Inspected."}))
    console.sees("Inspected.")
    console.idle()
    page.locator(".events summary", has_text="RUN_FINISHED").wait_for()
    page.get_by_role("button", name="Copy as JSON lines").click()
    page.get_by_role("button", name="Copied").wait_for()
    lines = [json.loads(line) for line in page.evaluate("() => navigator.clipboard.readText()").splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "RUN_STARTED" and kinds[-1] == "RUN_FINISHED" and "TEXT_MESSAGE_CONTENT" in kinds
    page.get_by_label("Filter events").fill("Inspected")
    wait_until(lambda: 0 < page.locator(".events > li").count() < len(lines), "the filter holds")


def test_the_theme_is_kept(open_page: Open) -> None:
    console = open_page()
    page = console.page
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.get_by_role("button", name="Dark theme").click()
    page.reload()
    page.get_by_role("button", name="Light theme").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_everything_is_reached_by_the_keyboard(open_page: Open) -> None:
    console = talked(open_page)
    page = console.page
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.ariaLabel || document.activeElement.textContent.trim()"))
    for name in ("New", "Search threads", "Event inspector", "Attach a file", "Message", "Regenerate", "Conversation"):
        assert any(name in one for one in seen), (name, seen)


def test_on_a_phone_the_list_is_a_drawer_and_nothing_overflows(
    open_page: Open, browser: Browser, gateway: Gateway
) -> None:
    phone = browser.new_context(viewport={"width": 360, "height": 640}, has_touch=True, reduced_motion="reduce")
    phone.set_default_timeout(30_000)
    word = "w" * 300
    console = open_page(into=phone)
    console.say(script({"text": f"{word} `{word}`"}))
    console.sees(word)
    console.idle()
    page = console.page
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(
        "() => { const v = document.querySelector('.viewport'); return v.scrollWidth <= v.clientWidth }"
    )
    assert not page.get_by_label("Search threads").is_visible()
    page.get_by_role("button", name="Threads", exact=True).click()
    page.get_by_label("Search threads").wait_for()
    page.locator(".threads a").first.click()
    page.get_by_label("Search threads").wait_for(state="hidden")
    phone.close()


# -- who calls -----------------------------------------------------------------------------------------------------


def test_an_unknown_caller_is_paired(open_page: Open, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_ALLOWED_USERS": None})
    console = open_page(url=gateway.url)
    page = console.page
    page.get_by_text("not known yet").wait_for()
    page.get_by_role("button", name="Ask for a code").click()
    page.locator(".pairing").wait_for()
    code = re.search(r"pairing approve agui (\S+)", page.locator(".pairing").inner_text())
    assert code, page.locator(".pairing").inner_text()
    hermes(gateway, "pairing", "approve", "agui", code[1])
    page.get_by_text("What can I do for you?").wait_for()
    console.say(script({"text": "Welcome."}))
    console.sees("Welcome.")


@pytest.fixture(scope="module")
def watched(model: GatedModel) -> Any:
    """A gateway that asks for its key, with other platforms that may be observed."""
    agui = {"observe": True, "require_token": True}
    gateway = Gateway(model, **wire_platform.options(env={"AGUI_API_KEY": KEY}, agui=agui))
    wires = wire_platform.install(gateway)
    with gateway:
        yield gateway, wires["wirelive"]


def signed_in(open_page: Open, gateway: Gateway, watch: Watch) -> Console:
    watch.allow.append("401")  # the browser's own word for it
    console = open_page(url=gateway.url)
    console.page.get_by_label("Token").fill(KEY)
    console.page.get_by_role("button", name="Sign in").click()
    console.box.wait_for()
    return console


def test_a_token_is_asked_for_and_can_be_wrong(open_page: Open, watched: Any, watch: Watch) -> None:
    watch.allow.append("401")
    console = open_page(url=watched[0].url)
    page = console.page
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Token").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    console.box.wait_for()
    page.reload()
    console.box.wait_for()  # kept for this tab
    assert page.evaluate("() => localStorage.length") == 0


def test_another_platforms_session_is_watched_and_branched(
    open_page: Open, watched: Any, watch: Watch, model: GatedModel
) -> None:
    gateway, wire = watched
    chat, gate = unique("c"), unique("g")
    wire.say(chat, script({"text": f"On the other {{gate:{gate}}} platform."}), name="Other chat")
    wait_until(lambda: model.reached(gate), "the other platform's turn runs")
    console = signed_in(open_page, gateway, watch)
    page = console.page
    page.locator(".watched summary").click()
    page.locator(".watched a", has_text="wirelive").first.click()
    console.sees("On the other")
    page.get_by_text("Watching").wait_for()
    assert page.get_by_role("combobox", name="Message").count() == 0
    model.open_gate(gate)
    console.sees("platform.")
    wire.wait(chat, "platform.")
    page.get_by_role("button", name="Branch", exact=True).click()
    assert console.thread
    console.sees("platform.")
    console.say(script({"text": "Here now."}))
    console.sees("Here now.")


def test_another_platforms_session_goes_on_here(open_page: Open, watched: Any, watch: Watch, model: GatedModel) -> None:
    gateway, wire = watched
    chat, name = unique("c"), unique("chat")
    wire.say(chat, script({"text": "Said over there."}), name=name)
    wire.wait(chat, "Said over there.")
    console = signed_in(open_page, gateway, watch)
    page = console.page
    page.locator(".watched summary").click()
    page.locator(".watched a", has_text=name).click()
    console.sees("Said over there.")
    page.get_by_role("button", name="Go on here").click()
    assert console.thread
    page.get_by_role("note").get_by_text("waits").wait_for()  # what both chats should know
    console.sees("Said over there.")
    console.say(script({"text": "Said here."}))
    console.sees("Said here.")
    assert "Said over there." in str(model.requests[-1]["messages"])
    console.idle()
    wire.say(chat, script({"text": "And there again."}), "in-2", name=name)
    wire.wait(chat, "And there again.")
    assert "Said here." in str(model.requests[-1]["messages"])


def test_an_address_that_a_stranger_opens_leads_to_the_door(open_page: Open, watched: Any, watch: Watch) -> None:
    """A thread's address, opened by somebody whom nobody knows: no thread, only the door; then the thread."""
    watch.allow += ["401", "404"]
    console = open_page("#/t/nowhere", url=watched[0].url)
    page = console.page
    page.get_by_label("Token").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".failure code", has_text="no_such_thread").wait_for()


def test_what_is_said_offline_is_not_lost(open_page: Open, gateway: Gateway, watch: Watch) -> None:
    watch.allow.append("net::ERR_")
    with Proxy(gateway) as proxy:
        console = talked(open_page, url=proxy.url)
        proxy.cut()
        console.page.get_by_text("Offline, reconnecting").wait_for()
        said = script({"text": "Heard after all."})
        console.say(said)
        console.page.locator(".failure code", has_text="offline").wait_for()
        assert console.box.input_value() == said
        proxy.mend()
        console.page.get_by_text("Offline, reconnecting").wait_for(state="detached")
        console.box.press("Enter")
        console.sees("Heard after all.")
        console.idle()
        assert console.page.locator(".message.user").count() == 2
        assert console.page.locator(".failure").count() == 0


def test_the_page_says_when_there_is_no_server(open_page: Open, gateway: Gateway, watch: Watch) -> None:
    watch.allow.append("net::ERR_")
    with Proxy(gateway) as proxy:
        console = open_page(url=proxy.url)
        console.box.wait_for()
        console.page.route("**/agui/**", lambda route: route.abort())
        console.page.reload()
        console.page.get_by_text("The server cannot be reached").wait_for()
        console.page.unroute("**/agui/**")
        console.page.get_by_role("button", name="Try again").click()
        console.box.wait_for()


# -- accessibility -------------------------------------------------------------------------------------------------


def serious(page: Any) -> list[str]:
    """What axe calls serious or worse."""
    # Not a script element: the page's policy is in force.
    page.evaluate(AXE.read_text("utf-8") + "; window.axe = axe;")
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: make web")


@pytest.fixture
def themed(
    browser: Browser, make_gateway: Callable[..., Gateway], request: pytest.FixtureRequest
) -> Iterator[BrowserContext]:
    made = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme=request.param, reduced_motion="reduce"
    )
    made.set_default_timeout(30_000)
    yield made
    made.close()


both_themes = pytest.mark.parametrize("themed", ["light", "dark"], indirect=True)


@needs_axe
@both_themes
def test_axe_finds_nothing_serious(open_page: Open, themed: BrowserContext, gateway: Gateway) -> None:
    from tests.browser.test_chat import RICH

    console = open_page(into=themed)
    page = console.page
    console.box.wait_for()
    assert not serious(page)
    step = {"reasoning": "Hm.", "text": RICH, "tools": [{"name": "terminal", "arguments": {"command": "false"}}]}
    question = {"name": "clarify", "arguments": {"question": "Which?", "choices": ["a", "b"]}}
    console.say(script(step, {"tools": [question]}, {"text": "Done."}))
    page.locator("[data-request=clarify]").wait_for()
    page.locator(".reasoning summary").first.click()
    page.locator(".tool summary").first.click()
    page.get_by_role("button", name="Event inspector").click()
    page.locator(".code .hljs-keyword").first.wait_for()
    assert not serious(page)
    page.get_by_role("button", name="Stop", exact=True).click()


@needs_axe
@both_themes
def test_axe_finds_nothing_serious_in_cards_and_dialogs(
    open_page: Open, themed: BrowserContext, gateway: Gateway, model: GatedModel
) -> None:
    from tests.e2e.asking import deletes, victim

    console = open_page(into=themed)
    page = console.page

    def shows(what: Any) -> None:
        what.first.wait_for()
        assert not serious(page), what

    bars = [{"label": "spring", "value": 3}]
    todos = [{"id": "1", "content": "Look", "status": "completed"}, {"id": "2", "content": "Do", "status": "pending"}]
    path = gateway.work_dir / f"{unique('sound')}.wav"
    path.write_bytes(wav())
    tools = [
        call("todo", {"todos": todos}),
        call("terminal", {"command": "sleep 300", "background": True}),
        call("show_chart", {"title": "Rain", "bars": bars}),
    ]
    console.say(script({"tools": tools}, {"text": f"Look.\nMEDIA:{path}"}))
    page.locator(".attachment audio").wait_for()
    console.idle()
    page.locator(".plan summary").click()
    shows(page.locator("[data-tool=show_chart]"))
    page.get_by_role("button", name="Processes (1)").click()
    shows(page.get_by_role("dialog").locator(".process"))
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.locator(".threads li.current .menu summary").click()
    shows(page.get_by_role("button", name="Rename"))
    page.get_by_role("button", name="Delete").click()
    shows(page.get_by_role("dialog"))
    page.get_by_role("button", name="Keep").click()
    console.box.fill("/")
    shows(page.get_by_role("option"))
    page.locator(".message.user").first.hover()
    page.get_by_role("button", name="Edit").click()
    shows(page.get_by_label("Edit your message"))
    page.get_by_role("button", name="Cancel").click()
    console.say(script({"tools": [call("pick_color", {"question": "Which?"})]}, {"text": "Fine."}))
    shows(page.get_by_role("button", name="Use this colour"))
    page.get_by_role("button", name="Decline").click()
    console.sees("Fine.")
    console.idle()
    console.say(deletes(victim(gateway), then="Not."))
    shows(page.locator("[data-request=approval]"))
    page.get_by_role("button", name="Deny").click()
    console.sees("Not.")
    console.idle()
    console.say("/reload-mcp")
    shows(page.locator("[data-request=confirm]"))
    page.get_by_role("button", name="Cancel").click()
    console.idle()
    gate = unique("g")
    goal = script({"text": f"I work {{gate:{gate}}}"})
    console.say(script({"tools": [call("delegate_task", {"goal": goal})]}, {"text": "Sent."}))
    page.locator(".subagent summary").click()
    shows(page.get_by_role("button", name="Stop subagent"))
    model.open_gate(gate)
    page.locator(".message.assistant > .markdown", has_text="I work").wait_for()  # it came back, in a further turn
    console.idle()
    console.say(script({"status": 401, "message": "no such key"}))
    shows(page.locator(".failure"))


@needs_axe
@both_themes
def test_axe_finds_nothing_serious_at_the_door(
    open_page: Open, themed: BrowserContext, make_gateway: Callable[..., Gateway]
) -> None:
    gateway = make_gateway(env={"AGUI_ALLOWED_USERS": None})
    page = open_page(url=gateway.url, into=themed).page
    page.get_by_role("button", name="Ask for a code").wait_for()
    assert not serious(page)
    page.get_by_role("button", name="Ask for a code").click()
    page.locator(".pairing").wait_for()
    assert not serious(page)
    page.get_by_role("button", name="Use a token instead").click()
    page.get_by_label("Token").wait_for()
    assert not serious(page)


@needs_axe
def test_axe_finds_nothing_serious_on_a_phone(open_page: Open, browser: Browser) -> None:
    phone = browser.new_context(viewport={"width": 360, "height": 640}, has_touch=True, reduced_motion="reduce")
    phone.set_default_timeout(30_000)
    console = open_page(into=phone)
    console.say(script({"text": "Small."}))
    console.sees("Small.")
    console.idle()
    assert not serious(console.page)
    console.page.get_by_role("button", name="Threads", exact=True).click()
    console.page.get_by_label("Search threads").wait_for()
    assert not serious(console.page)
    phone.close()


def test_a_thread_of_somebody_else_is_not_there(open_page: Open, gateway: Gateway, watch: Watch) -> None:
    watch.allow.append("404")
    chat = Chat(gateway)
    console = open_page(f"#/t/{chat.thread}")
    console.page.locator(".failure code", has_text="no_such_thread").wait_for()
