"""The web console in Chromium, against a real gateway with the scripted model.

Every page is watched: a request to another origin, an error in its console or a broken content security policy fails
the test at its end. Tests skip with a reason where the console is not built or there is no browser.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.web_routes import BUILT
from tests.e2e.conftest import make_gateway, model
from tests.e2e.helpers import GatedModel, unique

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

HERE = Path(__file__).parent
TOOLSETS = ("terminal", "file", "todo", "clarify", "code_execution", "delegation")
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
]


def chromium() -> str | None:
    """Debian's Chromium, or the one that is named in the environment."""
    named = os.environ.get("CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


def _missing() -> str:
    if find_spec("hermes_cli") is None:
        return "needs hermes-agent==0.19.0"
    if not (BUILT / "index.html").is_file():
        return "the web console is not built: make web (needs Node)"
    if find_spec("playwright") is None:
        return "needs the playwright package"
    if chromium() is None:
        return "needs Chromium: apt install chromium, or CHROMIUM=/path"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = _missing()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.e2e)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def gateway(model: GatedModel) -> Iterator[Gateway]:
    """One gateway for the tests here: they use threads of their own."""
    with Gateway(model, toolsets=TOOLSETS) as running:
        yield running


# Not longer than a file: Playwright's loop counts as running in this thread until it is closed, and no asyncio test can
# run in the same worker meanwhile.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        yield running
        running.close()


class Watch:
    """What no page of ours may do. ``allow`` is a piece of text of a console message that a test provokes itself."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.allow: list[str] = []

    def on(self, page: Page, origin: str) -> None:
        page.on("console", lambda m: self._say(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self._say(str(error)))
        page.on("request", lambda request: self._request(request.url, origin))

    def _say(self, text: str) -> None:
        self.faults.append(text)

    def _request(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "blob:", "data:")):
            self.faults.append(f"a request to another origin: {url}")

    def check(self) -> None:
        left = [fault for fault in self.faults if not any(piece in fault for piece in self.allow)]
        assert not left, left


@pytest.fixture
def watch() -> Iterator[Watch]:
    watched = Watch()
    yield watched
    watched.check()


@pytest.fixture
def context(browser: Browser, make_gateway: Callable[..., Gateway]) -> Iterator[BrowserContext]:
    """After `make_gateway`, so that its pages are closed before a gateway that they would miss."""
    made = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", color_scheme="light")
    made.set_default_timeout(30_000)
    yield made
    made.close()


@pytest.fixture
def open_page(context: BrowserContext, gateway: Gateway, watch: Watch) -> Callable[..., Console]:
    """Open the console at a thread of its own, or at `address`."""

    def make(address: str | None = None, *, url: str = "", into: BrowserContext | None = None) -> Console:
        page = (into or context).new_page()
        base = url or gateway.url
        watch.on(page, base)
        page.goto(f"{base}/{'' if address is None else address}")
        return Console(page, base)

    return make


class Console:
    """A window of the console, and what a user does there."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    @property
    def box(self) -> Any:
        return self.page.get_by_role("combobox", name="Message")

    def say(self, text: str) -> None:
        """Type a message and send it."""
        self.box.fill(text)
        self.box.press("Enter")

    def sees(self, text: str, *, timeout: float = 30_000) -> None:
        """Wait until an answer shows this text."""
        self.page.locator(".message.assistant", has_text=text).last.wait_for(timeout=timeout)

    def idle(self) -> None:
        """Wait until nothing runs."""
        self.page.locator(".working").wait_for(state="detached")
        self.page.get_by_role("button", name="Stop", exact=True).wait_for(state="detached")

    @property
    def thread(self) -> str:
        """The id of the open thread, once it exists."""
        self.page.wait_for_url("**/#/t/*")
        return str(self.page.url.partition("#/t/")[2])

    def answers(self) -> list[str]:
        """The texts of the assistant's messages, as Markdown shows them."""
        return [text.strip() for text in self.page.locator(".message.assistant .markdown").all_inner_texts()]


__all__ = ["Console", "Watch", "make_gateway", "model", "unique"]
