"""`hermes-agent-api-client`, a client made for Hermes's own api_server, against ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agui_adapter.stream import MessageChunk, MessageStart, ToolCall, ToolResult, TurnFinished
from tests.foreign import HERE, interpreter
from tests.scripted import PATIENCE, serving

pytestmark = pytest.mark.slow
KEY = "the-owners-key-0123456789abcdef"


@pytest.mark.parametrize("tools", ["opaque", "progress"])
async def test_it_finds_out_and_talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: str) -> None:
    python = await asyncio.to_thread(interpreter, "hermes-api", "hermes-agent-api-client==0.3.3", least=(3, 13))
    async with serving({"rest_tools": tools}, tmp_path, monkeypatch, key=KEY) as (adapter, url):
        adapter.script = [
            MessageStart("m1"),
            MessageChunk("Looking."),
            ToolCall("terminal", call_id="c1", message_id="m1"),
            ToolResult("terminal", call_id="c1", content="x"),
            MessageStart("m2"),
            MessageChunk("Hello"),
            TurnFinished(),
        ]
        client = await asyncio.create_subprocess_exec(
            str(python), str(HERE / "hermes_api_client.py"), url, KEY, "Hi", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(client.communicate(), PATIENCE)
        assert client.returncode == 0
        (turn,) = adapter.submitted
        assert (turn.thread.thread_id, turn.memory, turn.text) == ("mine", "scope", "Hi")
    made = json.loads(out)
    assert made["capabilities"]["chat_completions_streaming"] is True
    text = "".join(event["text"] for kind, event in made["events"] if kind == "AssistantDeltaEvent")
    assert text == "Looking.\n\nHello"
    statuses = [event["status"] for kind, event in made["events"] if kind == "ToolProgressEvent"]
    assert statuses == (["running", "completed"] if tools == "progress" else [])
    assert made["events"][-1] == [
        "TerminalEvent",
        {"outcome": "success", "partial": False, "failure_reason": None},
    ]
