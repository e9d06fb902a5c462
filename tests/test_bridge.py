"""The seam's bridge to the gateway, where it is pure: its end gives back everything that was lent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gateway", reason="needs hermes-agent==0.19.0")

from agui_adapter.hermes.bridge import Bridge
from agui_adapter.hermes.hooks import on_hook
from agui_adapter.hermes.observe import Watcher
from agui_adapter.observe import Observer
from agui_adapter.requests import Requests

KEY = "agent:main:telegram:dm:4711"


async def test_the_end_of_a_bridge_ends_its_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that is watched then has its own callbacks, and hooks of its turn are nobody's."""
    told: list[str | None] = []
    agent = SimpleNamespace(_current_turn_id="turn-1", stream_delta_callback=told.append, reasoning_callback=None)
    theirs = agent.stream_delta_callback
    runner = SimpleNamespace(_agent_cache={KEY: (agent, "signature")}, _running_agents={KEY: agent})
    adapter: Any = SimpleNamespace(gateway_runner=runner, thread_of=lambda key: None)
    loop = asyncio.get_running_loop()
    observer = Observer(loop, log_bytes=1 << 20, max_result_chars=1000, keep_seconds=10, record=lambda *_: None)
    sessions: Any = SimpleNamespace(last_row=lambda session_id: 0)
    bridge = Bridge(adapter)
    bridge.open(Requests(loop, 8), client_tool_seconds=1, approval_seconds=1)
    watcher = bridge.watcher = Watcher(bridge, observer, sessions)
    monkeypatch.setattr("agui_adapter.hermes.hooks.session_key_here", lambda: KEY)
    on_hook("pre_llm_call", {"turn_id": "turn-1", "session_id": "s1", "user_message": "Hello"})
    watched = watcher.of("turn-1")
    assert watched is not None and agent.stream_delta_callback is not theirs
    agent.stream_delta_callback("Hi")
    bridge.close()
    assert agent.stream_delta_callback is theirs and agent.reasoning_callback is None
    assert bridge.watcher is None and watcher.of("turn-1") is None
    agent.stream_delta_callback(" there")
    on_hook("post_llm_call", {"turn_id": "turn-1", "assistant_response": "Hi there"})
    assert told == ["Hi", " there"]
    texts = [event.text for event in watched.tap.turn.log.events() if hasattr(event, "text")]
    assert texts == ["Hi"]
    observer.close()
