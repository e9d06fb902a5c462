"""Feed: everything that happens on a thread, one run after another, for readers that attach, observe or come back.

A turn is seen by clients as one or several runs (it parks between them); the feed tells them with the same ids and the
same frames as the clients that asked for them, so a reader that comes back in mid-run misses nothing and gets nothing
twice. On the gateway's loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from .encode import with_id
from .events import AguiStream, View
from .session import Segment, Thread, Turn
from .stream import TurnFinished


class Feed:
    """One reader of a thread. ``chunks()`` gives bytes to write; it goes on for ever unless ``once``.

    ``after``: the position to go on from, as (turn, n); None starts with the turn that runs now, or waits for one.
    ``history``: the conversation before a turn, for a reader that knows nothing.
    """

    def __init__(
        self,
        thread: Thread,
        view: View,
        *,
        after: tuple[Turn, int] | None = None,
        history: list[dict[str, Any]] | None = None,
        once: bool = False,
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        self._thread = thread
        self._view = view
        self._after = after
        self._history = history
        self._once = once
        self._still = still

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Frames; between turns nothing, and the caller's heartbeat keeps the connection."""
        seen: Turn | None = None
        if self._after is not None:
            seen, position = self._after
            async for chunk in self._turn(seen, position):
                yield chunk
            if self._once:
                return
        while self._still():
            turn = self._next(seen)
            if turn is None:
                if self._once:
                    return
                await self._thread.changed.wait()
                continue
            seen = turn
            async for chunk in self._turn(turn, 0):
                yield chunk
            if self._once:
                return

    def _next(self, seen: Turn | None) -> Turn | None:
        """The turn behind the one that was seen last; for a new reader the one that runs now."""
        if seen is None:
            return self._thread.current
        turns = list(self._thread.turns.values())
        if seen in turns:
            later = turns[turns.index(seen) + 1 :]
            return later[0] if later else None
        return self._thread.current if self._thread.current is not seen else None

    async def _turn(self, turn: Turn, after: int) -> AsyncGenerator[bytes, None]:
        """The turn's runs, from position ``after`` on."""
        prefix = turn.id.encode() + b"."
        position = after
        turn.readers += 1
        try:
            segment = turn.segment_at(position)
            while True:
                stream = self._stream(turn, segment)
                if position > segment.start:
                    for event in turn.log.events(segment.start, position):
                        stream.feed(event)
                else:
                    yield b"".join(stream.start()) + self._introduction(stream)
                while not stream.done:
                    batch = await turn.log.read(position)
                    frames: list[bytes] = []
                    for number, event in batch.events:
                        frames += with_id(stream.feed(event), prefix + b"%d" % number)
                        position = number
                        if stream.done:
                            break
                    if batch.closed and not stream.done:
                        frames += stream.feed(TurnFinished())
                    if frames:
                        yield b"".join(frames)
                if turn.log.closed and position >= turn.log.last:
                    return
                await turn.log.read(position)  # parked: what comes next begins another run
                segment = turn.segment_from(position)
        finally:
            turn.readers -= 1

    def _introduction(self, stream: AguiStream) -> bytes:
        """The conversation so far, once, for a reader that knows nothing."""
        if self._history is None:
            return b""
        frames = stream.snapshot()
        self._history = None
        return b"".join(frames)

    def _stream(self, turn: Turn, segment: Segment) -> AguiStream:
        base = self._history if self._history is not None else segment.base
        return AguiStream(
            self._thread.thread_id,
            segment.run_id,
            prefix=segment.prefix,
            peer=segment.peer,
            view=self._view,
            base=base,
            open_calls=turn.open_calls(segment.start),
        )
