"""How a turn becomes the bytes of a streamed answer, whatever shape that has. On the gateway's loop."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from ..door import Reader
from ..errors import INTERNAL, AguiError
from ..stream import StreamEvent

logger = logging.getLogger("hermes_agui")


class Wire(Protocol):
    """A translator: ``start`` once, ``feed`` for each event, ``fail`` where we cannot go on; ``done`` at its end."""

    done: bool

    def start(self) -> list[bytes]: ...

    def feed(self, event: StreamEvent) -> list[bytes]: ...

    def fail(self, error: AguiError) -> list[bytes]: ...


async def frames(reader: Reader, wire: Wire) -> AsyncGenerator[bytes, None]:
    """To where the turn waits or ends. The headers are out, so what fails here is told in the stream."""
    try:
        yield b"".join(wire.start())
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                made = [frame for _, event in batch for frame in wire.feed(event)]
                if made:
                    yield b"".join(made)
        if not wire.done:
            yield b"".join(wire.feed(reader.turn.end))
    except Exception:
        logger.exception("agui: a stream failed")
        if made := wire.fail(AguiError(500, "internal", INTERNAL)):
            yield b"".join(made)
