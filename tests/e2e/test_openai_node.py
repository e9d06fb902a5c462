"""OpenAI's SDK for Node and the Vercel AI SDK against a real gateway, by the scripts of `tests/rest_js`."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.clients import ensure_node_modules, node
from tests.e2e.helpers import DEADLINE, call, script, unique
from tests.e2e.media import png

pytestmark = [pytest.mark.slow, pytest.mark.node, pytest.mark.skipif(node() is None, reason="Node is not installed")]

FOLDER = Path(__file__).parents[1] / "rest_js"
DRAWN = (
    {"tools": [call("draw_chart", {"title": "A"}), call("draw_chart", {"title": "B"})]},
    {"text": "Both are drawn."},
)


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    ensure_node_modules(FOLDER)


def run(gateway: Gateway, scenario: str, prompt: str, **more: Any) -> dict[str, Any]:
    asked = json.dumps({"prompt": prompt, **more})
    done = subprocess.run(
        [str(node()), "run.mjs", scenario, f"{gateway.url}/v1", asked],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_chat(gateway: Gateway) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
    made = run(gateway, "chat", script({"text": "Hello.", "usage": usage}))
    assert (made["text"], made["finish"], made["usage"]["total_tokens"]) == ("Hello.", "stop", 57)


def test_streamed(gateway: Gateway) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
    made = run(gateway, "stream", script({"text": "One two three.", "usage": usage}))
    assert made["text"] == "One two three." and made["deltas"] > 1 and made["usage"]["total_tokens"] == 57


def test_parallel_tools(gateway: Gateway) -> None:
    made = run(gateway, "tools", script(*DRAWN, say=unique()))
    assert made == {"text": "Both are drawn.", "calls": ["A", "B"]}


def test_a_picture(gateway: Gateway) -> None:
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    assert run(gateway, "image", script({"text": "I see."}), image=url) == {"text": "I see."}


def test_a_failure(gateway: Gateway) -> None:
    made = run(gateway, "failure", script({"status": 401, "message": "no such key"}))
    assert made["code"] == "provider_auth"


def test_models(gateway: Gateway) -> None:
    assert run(gateway, "models", "") == {"ids": ["hermes-agent"], "one": "hermes-agent"}


def test_responses(gateway: Gateway) -> None:
    made = run(gateway, "responses", script({"text": "First."}))
    assert made["first"] == "First." and made["second"] == made["kept"] != ""
    assert made["kinds"][0] == "response.created" and made["kinds"][-1] == "response.completed"


def test_tools_of_responses(gateway: Gateway) -> None:
    made = run(gateway, "response_tools", script(*DRAWN, say=unique()))
    assert made == {"text": "Both are drawn.", "calls": ["A", "B"]}


def test_the_vercel_ai_sdk(gateway: Gateway) -> None:
    made = run(gateway, "vercel", script(*DRAWN, say=unique()))
    assert (made["text"], made["steps"], made["streamed"]) == ("Both are drawn.", 2, "Both are drawn.")
    assert made["titles"] == ["A", "B", "A", "B"]
    assert {"tool-call", "tool-result", "text-delta", "finish"} <= set(made["kinds"])
