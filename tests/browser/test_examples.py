"""The examples, as their readers start them: a page and a script with `@ag-ui/client`, httpx, a CopilotKit app."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway, free_port
from tests.browser.conftest import Watch
from tests.e2e.asking import deletes, victim
from tests.e2e.helpers import GatedModel, call, script, unique, wait_until

pytestmark = pytest.mark.slow  # `make test` drives the chat and a device; `make test-all` these too

EXAMPLES = Path(__file__).parents[2] / "examples"


def installed(name: str) -> Path:
    folder = EXAMPLES / name
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    if not (folder / "node_modules" / "vite").is_dir():
        pytest.skip(f"needs npm ci in examples/{name}")
    return folder


def answered(command: list[str], gateway: Gateway, folder: Path, typed: str = "") -> str:
    environment = os.environ | {"HERMES_URL": gateway.url}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=typed, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Start a page with a command that takes a port; gives its URL. Ended by its process group."""
    running: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, gateway: Gateway, *command: str) -> str:
        port = free_port()
        environment = os.environ | {"HERMES_URL": gateway.url, "PORT": str(port)}
        words = [word.replace("PORT", str(port)) for word in command]
        running.append(subprocess.Popen(words, cwd=folder, env=environment, start_new_session=True))
        url = f"http://127.0.0.1:{port}"

        def there() -> bool:
            assert running[-1].poll() is None, "the page's server ended"
            try:
                return httpx.get(url, trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(there, "the page is served", 90)
        return url

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def test_python(gateway: Gateway) -> None:
    folder = victim(gateway)
    text = answered(
        [sys.executable, "chat.py", deletes(folder, then="Gone.")], gateway, EXAMPLES / "python", typed="once\n"
    )
    assert "Gone." in text
    assert not folder.exists()


def test_node(gateway: Gateway) -> None:
    here, folder = installed("minimal"), victim(gateway)
    text = answered(["node", "chat.mjs", deletes(folder, then="Gone.")], gateway, here, typed="once\n")
    assert "Gone." in text
    assert not folder.exists()


def test_the_minimal_page(context: Any, gateway: Gateway, serve: Callable[..., str], watch: Watch) -> None:
    watch.allow += ["404"]  # a new thread is not there yet, and the page has no icon
    url = serve(installed("minimal"), gateway, "npx", "vite", "--port", "PORT", "--host", "127.0.0.1")
    page = context.new_page()
    watch.on(page, url)
    page.goto(url)
    page.get_by_label("Message").fill(script({"text": "The least."}))
    page.get_by_label("Message").press("Enter")
    page.locator("li", has_text="assistant: The least.").wait_for()
    page.reload()
    page.locator("li", has_text="assistant: The least.").wait_for()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["", "?direct"])
def test_copilotkit(context: Any, gateway: Gateway, model: GatedModel, serve: Callable[..., str], way: str) -> None:
    """A front-end tool, an approval and shared state, through CopilotKit's runtime and without it."""
    url = serve(installed("copilotkit"), gateway, "node", "start.mjs")
    page = context.new_page()
    page.goto(f"{url}/{way}", wait_until="commit")
    box = page.locator("textarea")
    box.wait_for(timeout=240_000)  # the development server bundles CopilotKit first

    def say(text: str) -> None:
        box.fill(text)
        box.press("Enter")

    city = unique("city")
    page.get_by_label("City").fill(city)
    say(script({"tools": [call("set_background", {"color": "rgb(1, 2, 3)"})]}, {"text": "Painted."}))
    page.get_by_text("Painted.", exact=True).wait_for(timeout=60_000)
    assert page.locator("main").evaluate("one => one.style.background") == "rgb(1, 2, 3)"
    assert any(city in str(request["messages"]) for request in model.requests)

    folder = victim(gateway)
    say(deletes(folder, then="Removed."))
    page.get_by_label("The agent asks").get_by_role("button", name="once").click(timeout=60_000)
    page.get_by_text("Removed.", exact=True).wait_for(timeout=60_000)
    assert not folder.exists()

    todos = [{"id": "1", "content": "Say it", "status": "completed"}]
    say(script({"tools": [call("todo", {"todos": todos})]}, {"text": "Planned."}))
    page.get_by_text("Say it: completed").wait_for(timeout=60_000)
