"""A request that was interrupted and made again by its own thread does not speak in the next turn (Hermes 0.19)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gateway", reason="needs hermes-agent==0.19.0")

from agui_adapter.hermes.hooks import _Attachment
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread
from agui_adapter.stream import MessageChunk, ReasoningChunk
from agui_adapter.tap import Tap


class _Agent:
    """The callbacks that Hermes's agent offers."""

    def __init__(self) -> None:
        self.stream_delta_callback: Callable[[str | None], Any] | None = None
        self.reasoning_callback: Callable[[str], Any] | None = None
        for name in ("tool_complete", "tool_progress", "step", "interim_assistant", "clarify"):
            setattr(self, f"{name}_callback", None)

    def say(self, text: str) -> None:
        """What a request's thread does."""
        assert self.reasoning_callback is not None and self.stream_delta_callback is not None
        self.reasoning_callback(f"thinking of {text}")
        self.stream_delta_callback(text)


def test_a_thread_of_an_earlier_request_is_not_heard() -> None:
    thread = Thread(Principal("local"), "t", "local.t")
    tap = Tap(thread.begin(EventLog(asyncio.new_event_loop(), 65536)), max_result_chars=1000)
    agent, go = _Agent(), threading.Event()
    earlier = threading.Thread(target=lambda: (go.wait(10), agent.say("stale")), daemon=True)
    pool = threading.Thread(target=lambda: (go.wait(10), agent.say("pooled")), name="hermes-gateway_0", daemon=True)
    for one in (earlier, pool):
        one.start()
    tap.begin()
    attachment = _Attachment(SimpleNamespace(), tap, agent, "turn")  # type: ignore[arg-type]
    attachment.attach()
    own = threading.Thread(target=lambda: agent.say("own"), daemon=True)
    own.start()
    go.set()
    for one in (own, earlier, pool):
        one.join(10)
        assert not one.is_alive()
    said = {event.text for event in tap.turn.log.events() if isinstance(event, MessageChunk)}
    thought = {event.text for event in tap.turn.log.events() if isinstance(event, ReasoningChunk)}
    # Where requests share the threads of a pool, nobody can be told from the others, and all are heard.
    assert said == {"own", "pooled"}
    assert thought == {"thinking of own", "thinking of pooled"}
    attachment.detach()
