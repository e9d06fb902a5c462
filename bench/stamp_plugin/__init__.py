"""A Hermes plugin for the bench: notes the moment of every `stream_delta_callback`, on any platform.

It wraps the callback on the agent for one turn and keeps (monotonic ns, characters) in memory; the file is written
when the answer is complete, so that nothing but a list append stands in the stream's way. It does nothing unless the
directory `stamps` stands beside it. Hermes 0.19: hooks run on the agent's own thread, inside a function that holds it.
"""

import json
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

_HERE = Path(__file__).parent / "stamps"
_turns: dict[str, tuple[str, list[tuple[int, int]]]] = {}


def register(ctx: Any) -> None:
    ctx.register_hook("pre_llm_call", _begin)
    ctx.register_hook("post_llm_call", _end)


def _agent_here() -> Any:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        agent = frame.f_locals.get("agent")
        if hasattr(agent, "stream_delta_callback"):
            return agent
        frame = frame.f_back
    return None


def _begin(**kwargs: Any) -> None:
    agent = _agent_here() if _HERE.is_dir() else None
    if agent is None:
        return
    stamps: list[tuple[int, int]] = []
    inner = agent.stream_delta_callback

    def stamped(text: str | None) -> None:
        if text:
            stamps.append((time.monotonic_ns(), len(text)))
        if inner is not None:
            inner(text)

    agent.stream_delta_callback = stamped
    _turns[str(kwargs.get("turn_id"))] = (str(kwargs.get("platform")), stamps)


def _end(**kwargs: Any) -> None:
    platform, stamps = _turns.pop(str(kwargs.get("turn_id")), ("", []))
    if stamps:
        # The client is told of the end after this hook, so the whole file is there when its stream has ended.
        (_HERE / f"{time.monotonic_ns()}-{platform}.json").write_text(json.dumps(stamps))
