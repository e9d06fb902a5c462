"""Pictures of the main views, for the README and to be looked at. `SCREENS=docs/screens` says where they go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext

from agui_adapter.demo import wire
from agui_adapter.demo.gateway import Gateway
from tests.browser.conftest import TOOLSETS, Console, Watch
from tests.e2e.helpers import GatedModel, call, script, unique, wait_until
from tests.e2e.media import png, wav

pytestmark = pytest.mark.slow  # `make test` drives the chat and a device; `make test-all` these too

TODOS = [
    {"id": "1", "content": "Read the failing test", "status": "completed"},
    {"id": "2", "content": "Find what changed", "status": "completed"},
    {"id": "3", "content": "Clear the stale build and run it again", "status": "in_progress"},
    {"id": "4", "content": "Write down what it was", "status": "pending"},
]
LONG = "averyveryverylongwordwithoutanyplacetobreak" * 8
SAID = {
    "Why does the build fail since Friday?": [
        {
            "reasoning": "The log should say. First the plan, then the log.",
            "text": "I look at the log of the last build first.",
            "tools": [call("todo", {"todos": TODOS}), call("terminal", {"command": "tail -n 3 /etc/hostname"})],
        },
        {
            "text": "The cache holds an object file of the **old** header, so `parse()` is linked twice:\n\n"
            "```python\ndef parse(text: str) -> Tree:\n    # no flags now\n    return Tree.read(text)\n```\n\n"
            "| file | built | header |\n|---|---|---|\n| `parse.o` | Thursday | old |\n| `main.o` | Friday | new |\n\n"
            "To be sure I remove the cache and build again.",
            "tools": [call("terminal", {"command": "rm -rf build/cache && make all"})],
        },
        {"text": "It builds again."},
    ],
    "Show me how the builds went": [
        {
            "tools": [
                call(
                    "show_chart",
                    {
                        "title": "Minutes for a build",
                        "bars": [
                            {"label": "Wednesday", "value": 4.1},
                            {"label": "Thursday", "value": 4.3},
                            {"label": "Friday", "value": 9.8},
                        ],
                    },
                )
            ]
        },
        {"text": f"Friday took more than twice as long.\n\n{LONG}\n\n> It is the cache."},
    ],
}


class ShownModel(GatedModel):
    """Answers a few plain questions with scripts, so that a picture shows no script."""

    def _answer(self, body: dict[str, Any], size: int) -> wire.Answer:
        def asked(message: dict[str, Any]) -> dict[str, Any]:
            if message.get("role") != "user":
                return message
            said = str(message.get("content"))  # Hermes adds a note to a home's first message
            steps = next((steps for question, steps in SAID.items() if question in said), None)
            return message | {"content": script(*steps)} if steps else message

        return super()._answer(body | {"messages": [asked(one) for one in body["messages"]]}, size)


@pytest.fixture(scope="module")
def shown() -> Iterator[Gateway]:
    with ShownModel() as model, Gateway(model, toolsets=TOOLSETS) as gateway:
        yield gateway


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Path(os.environ.get("SCREENS") or tmp_path)
    made.mkdir(parents=True, exist_ok=True)
    return made


def put(context: BrowserContext, gateway: Gateway, title: str, text: str) -> Console:
    page = context.new_page()
    console = Console(page, gateway.url)
    page.goto(gateway.url)
    console.say(text)
    httpx.patch(f"{gateway.url}/agui/threads/{console.thread}", json={"title": title}, trust_env=False)
    return console


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_main_views(browser: Browser, shown: Gateway, folder: Path, theme: Any, watch: Watch) -> None:
    context = browser.new_context(viewport={"width": 1120, "height": 760}, color_scheme=theme, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    console = put(context, shown, "The build since Friday", "Why does the build fail since Friday?")
    page = console.page
    watch.on(page, shown.url)
    page.locator("[data-request=approval]").wait_for()
    page.reload()
    page.locator(".header .title", has_text="The build since Friday").wait_for()
    page.locator("[data-request=approval]").wait_for()
    page.locator(".hljs-keyword").first.wait_for()
    page.locator(".viewport").evaluate("one => one.scrollTo(0, one.scrollHeight)")
    page.screenshot(path=folder / f"approval-{theme}.png")
    page.locator(".plan summary").click()
    page.locator(".tool[data-tool=terminal] summary").first.click()
    page.locator(".reasoning summary").first.click()
    page.screenshot(path=folder / f"open-{theme}.png")
    page.get_by_role("button", name="Deny").click()
    console.sees("It builds again.")
    console.idle()

    console = put(context, shown, "How the builds went", "Show me how the builds went")
    console.sees("Friday took")
    console.idle()
    console.page.get_by_role("button", name="Event inspector").click()
    console.page.screenshot(path=folder / f"chart-{theme}.png")
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_other_views(browser: Browser, gateway: Gateway, model: GatedModel, folder: Path, theme: Any) -> None:
    """What is seen less often: the empty page, commands, files, subagents, dialogs, a confirmation, an error."""
    context = browser.new_context(viewport={"width": 1120, "height": 760}, color_scheme=theme, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    page = context.new_page()
    console = Console(page, gateway.url)
    page.goto(gateway.url)
    console.box.fill("/s")
    page.get_by_role("option").first.wait_for()
    page.screenshot(path=folder / f"empty-{theme}.png")

    gate = unique("g")
    paths = [gateway.work_dir / f"{unique('file')}.{kind}" for kind in ("png", "wav", "csv")]
    for path, data in zip(paths, (png(size=160), wav(2), b"a,b"), strict=True):
        path.write_bytes(data)
    tags = "\n".join(f"MEDIA:{path}" for path in paths)
    goal = script({"text": f"I look {{gate:{gate}}}"})
    steps = {"tools": [call("delegate_task", {"goal": goal})]}, {"text": f"Here is what I have so far.\n{tags}"}
    console.say(script(*steps, say="A question with a longwordwithoutanyplacetobreak" + "k" * 200))
    page.locator(".attachment").nth(2).wait_for()
    wait_until(lambda: model.reached(gate), "the subagent works")
    page.locator(".subagent summary").click()
    console.idle()
    page.locator(".viewport").evaluate("one => one.scrollTo(0, one.scrollHeight)")
    page.screenshot(path=folder / f"files-{theme}.png")
    model.open_gate(gate)
    page.locator(".message.assistant > .markdown", has_text="I look").wait_for()  # it came back, in a further turn
    console.idle()

    start = {"command": f"echo {'word ' * 60}; sleep 300", "background": True}
    console.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."}))
    console.sees("It runs.")
    console.idle()
    page.get_by_role("button", name="Processes (1)").click()
    page.get_by_role("dialog").locator(".code").wait_for()
    page.screenshot(path=folder / f"processes-{theme}.png")
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    console.say("/reload-mcp")
    page.locator("[data-request=confirm]").wait_for()
    page.locator(".threads li.current .menu summary").click()
    page.screenshot(path=folder / f"confirm-{theme}.png")
    page.locator("[data-request=confirm]").get_by_role("button", name="Cancel").click()
    console.idle()
    console.say(script({"status": 401, "message": "no such key"}))
    page.locator(".failure").wait_for()
    page.screenshot(path=folder / f"failure-{theme}.png")
    context.close()


def test_on_a_phone(browser: Browser, shown: Gateway, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 780}, has_touch=True, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    console = put(context, shown, "On a phone", "Show me how the builds went")
    console.sees("Friday took")
    console.idle()
    page = console.page
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=folder / "phone.png")
    page.get_by_role("button", name="Threads", exact=True).click()
    page.get_by_label("Search threads").wait_for()
    page.screenshot(path=folder / "phone-threads.png")
    context.close()


def test_the_door(browser: Browser, make_gateway: Callable[..., Gateway], folder: Path) -> None:
    gateway = make_gateway(env={"AGUI_ALLOWED_USERS": None})
    page = browser.new_page(viewport={"width": 900, "height": 560})
    page.goto(gateway.url)
    page.get_by_role("button", name="Ask for a code").click()
    page.locator(".pairing").wait_for()
    page.screenshot(path=folder / "pairing.png")
    page.get_by_role("button", name="Use a token instead").click()
    page.get_by_label("Token").wait_for()
    page.screenshot(path=folder / "token.png")
    page.close()
