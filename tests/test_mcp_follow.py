"""What a call's client is told of the progress: all of it, whatever happens just then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from agui_adapter.mcp_door.follow import Teller
from agui_adapter.stream import MessageChunk

PATIENCE = 30.0  # seconds until a test gives up on something that should come


async def test_what_is_being_told_as_the_turn_ends_is_told() -> None:
    """The end comes while the progress is on its way to the client."""
    heard: list[str] = []
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def progress(count: int, text: str) -> None:
        if "first" in text:
            begun.set()
            await goes_on.wait()
        heard.append(text)

    call: Any = SimpleNamespace(progress=progress, caller=SimpleNamespace(session=SimpleNamespace(level="notice")))
    turn: Any = SimpleNamespace(thread=SimpleNamespace(thread_id="t"))
    async with asyncio.timeout(PATIENCE):
        async with Teller(SimpleNamespace(), call, turn) as teller:  # type: ignore[arg-type]
            teller.feed(MessageChunk("first "))
            await begun.wait()
            teller.feed(MessageChunk("last"))
            asyncio.get_running_loop().call_later(0.01, goes_on.set)
    assert "".join(heard) == "[thread t]\nfirst last"
