"""The web console in Chromium: frames per second while an answer streams, and the time to open a long thread."""

from __future__ import annotations

import itertools
import json
import shutil
import uuid
from importlib.util import find_spec
from typing import Any

import httpx

from agui_adapter.web_routes import BUILT

from .report import Bound, Table, median, percentile
from .rig import Rig, script, words

_FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]

# The times of all frames from the first token to the end of the run, in milliseconds since the page's begin.
_FRAMES = """() => new Promise((done) => {
  const times = [];
  const tick = (now) => {
    const works = document.querySelector(".working") !== null;
    if (works || !times.length) times.push(now); else return done(times);
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})"""


def missing() -> str:
    """Why it cannot be measured here; empty when it can."""
    if not (BUILT / "index.html").is_file():
        return "the web console is not built: make web"
    if find_spec("playwright") is None or shutil.which("chromium") is None:
        return "playwright or chromium is not there"
    return ""


def measure(rig: Rig, tokens: int, delta_ms: float, messages: int, rounds: int) -> Table:
    """``tokens`` streamed at one each ``delta_ms``; a thread with ``messages`` messages opened ``rounds`` times."""
    from playwright.sync_api import sync_playwright

    url = f"http://127.0.0.1:{rig.gateway.port}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), headless=True, args=_FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(300_000)
        frames = _streamed(page, url, tokens, delta_ms)
        opened = [_opened(browser, url, _long(url, messages)) for _ in range(rounds)]
        browser.close()
    gaps = [after - before for before, after in itertools.pairwise(frames)]
    seconds = (frames[-1] - frames[0]) / 1000
    rate = len(gaps) / seconds
    rows: list[tuple[str | float, ...]] = [
        (f"frames per second while {tokens} tokens stream", rate),
        ("longest time between two frames, ms", max(gaps)),
        ("95th percentile of it, ms", percentile(gaps, 95)),
        (f"opening a thread with {messages} messages, ms (median)", median(opened)),
    ]
    return Table(
        "The web console",
        ("", "measured"),
        rows,
        f"Headless Chromium, one token each {delta_ms:g} ms. Opening: from the address until the messages are drawn.",
        bounds=[
            Bound("console: frames per second while it streams", rate, 50, "frames/s", least=True),
            Bound("console: opening a long thread", median(opened), 1000, "ms"),
        ],
        samples={"gaps": gaps, "opening": opened},
    )


def _streamed(page: Any, url: str, tokens: int, delta_ms: float) -> list[float]:
    page.goto(url)
    box = page.get_by_role("combobox", name="Message")
    text = script(words(tokens), say=uuid.uuid4().hex)
    steps = json.loads(text)
    steps["script"][0]["delta_ms"] = delta_ms
    box.fill(json.dumps(steps))
    box.press("Enter")
    page.locator(".message.assistant .markdown").first.wait_for()
    times: list[float] = page.evaluate(_FRAMES)
    return times


def _long(url: str, messages: int) -> str:
    """A thread that came with this many messages, half of them the agent's."""
    thread = f"bench-{uuid.uuid4().hex}"
    history = [
        {"id": f"{thread}-{index}", "role": ("user", "assistant")[index % 2], "content": f"Message {index}. " * 12}
        for index in range(messages - 2)
    ]
    asked = {"id": f"{thread}-q", "role": "user", "content": script(words(5), say=uuid.uuid4().hex)}
    body = {"threadId": thread, "runId": uuid.uuid4().hex, "messages": [*history, asked]}
    httpx.post(f"{url}/agui", json=body, timeout=300, trust_env=False).raise_for_status()
    return thread


def _opened(browser: Any, url: str, thread: str) -> float:
    """Milliseconds from the address to the newest message, with nothing kept from before but the files."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{url}/#/t/{thread}")
    page.locator(".message.assistant").last.wait_for()
    taken: float = page.evaluate("() => performance.getEntriesByName('thread shown').at(-1).startTime")
    page.close()
    return taken
