"""Feed: everything that happens on a thread, one run after another, for readers that attach, observe or come back.

A turn is seen by clients as one or several runs (it parks between them); the feed tells them with the same ids and the
same frames as the clients that asked for them, so a reader that comes back in mid-run misses nothing and gets nothing
twice. On the gateway's loop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .encode import frame, start_id, with_id
from .errors import INTERNAL
from .events import AguiStream, View
from .history import Message
from .peers import readable
from .run import resync
from .session import Segment, Thread, Turn

if TYPE_CHECKING:
    from .archive import Archive

logger = logging.getLogger("hermes_agui")


async def past(archive: Archive, thread: Thread) -> list[Message]:
    """The conversation for a reader that comes now: no turn begins or ends between it and a feed made at once."""
    while True:
        before = (thread.current, next(reversed(thread.turns), ""))
        history = await archive.past(thread)
        if before == (thread.current, next(reversed(thread.turns), "")):
            thread.show(history)
            return history


@dataclass(frozen=True)
class Position:
    """Where a reader stands in a turn's log. ``begun``: it has the first frames of the run that begins there;
    ``frames``: and so many of those that the event behind it becomes."""

    turn: Turn
    number: int
    begun: bool = False
    frames: int = 0


_PLACE = re.compile(r"([0-9]{1,12})(s|-([0-9]{1,4}))?")


def position(thread: Thread, event_id: str) -> Position | None:
    """The position that an SSE id names; None for one that is gone or made up: the reader starts over."""
    turn_id, _, place = event_id.rpartition(".")
    turn, found = thread.turns.get(turn_id), _PLACE.fullmatch(place)
    if turn is None or found is None or int(found[1]) > turn.log.last:
        return None
    return Position(turn, int(found[1]), bool(found[2]), int(found[3] or 0))


class Feed:
    """One reader of a thread. ``chunks()`` gives bytes to write; it goes on for ever unless ``once``.

    ``after``: the position to go on from (``position``); None starts with the turn that runs now, or waits for one.
    ``history``: the conversation before a turn, for a reader that knows nothing. ``counts``: the turn is not unread
    while this reader is there (one that watches another's session changes nothing).
    """

    def __init__(
        self,
        thread: Thread,
        view: View,
        *,
        after: Position | None = None,
        history: list[Message] | None = None,
        once: bool = False,
        counts: bool = True,
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        self._thread = thread
        self._view = view
        self._after = after
        self._holds: Sequence[Message] | None = history  # what the reader holds; None for one that has not told
        self._new = history is not None  # it has been told nothing yet
        self._state: Any = None  # the thread's document as the reader has it; None: not known to have any
        self._once = once
        self._counts = counts
        self._still = still
        # Turns that are over when the reader comes are its past; each later one is told, however short it was.
        self._past = {turn.id for turn in thread.turns.values() if turn is not thread.current}

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Frames; between turns nothing, and the caller's heartbeat keeps the connection."""
        self._thread.watchers += 1
        try:
            if self._after is not None:
                turn = self._after.turn
                ids = list(self._thread.turns)
                self._past = set(ids[: ids.index(turn.id)]) if turn.id in ids else set()
                async for chunk in self._turn(
                    turn, self._after.number, begun=self._after.begun, had=self._after.frames
                ):
                    yield chunk
                if self._once:
                    return
            while self._still() and not self._thread.gone:
                following = next((turn for turn in self._thread.turns.values() if turn.id not in self._past), None)
                if following is None:
                    if self._once:
                        return
                    await self._thread.changed.wait()
                    continue
                async for chunk in self._turn(following, 0):
                    yield chunk
                if self._once:
                    return
        finally:
            self._thread.watchers -= 1

    async def _turn(self, turn: Turn, after: int, *, begun: bool = False, had: int = 0) -> AsyncGenerator[bytes, None]:
        """The turn's runs, from position ``after`` on; ``begun``: its run's first frames are known, as are ``had`` of
        the event behind."""
        turn_id = turn.id.encode()
        position = after
        self._past.add(turn.id)
        if self._counts:
            turn.enter()
        stream: AguiStream | None = None
        frames: list[bytes] = []
        try:
            segment = turn.segment_at(position)
            if self._holds is None and position == segment.start and not begun:
                self._holds = self._held_before(turn, segment)
            while True:
                stream = self._stream(turn, segment)
                if position > segment.start or begun:
                    for event in turn.log.events(segment.start, position):
                        stream.feed(event)
                else:
                    first = [*stream.start(), *self._introduction(stream, segment)]
                    yield b"".join(with_id(first, start_id(turn.id, segment.start)))
                begun = False
                while not stream.done:
                    batch = await turn.log.read(position)
                    if batch.gap:  # the log has merged what the reader missed
                        (frames, position), had = resync(turn, stream, segment.start), 0
                    else:
                        position = stream.number(frames, batch.found, batch.positions, turn_id, position)
                        del frames[:had]  # all of the first event, which has more than these
                        had = 0
                        if batch.closed and not stream.done:
                            frames += stream.feed(turn.end)
                    if frames:
                        chunk, frames = b"".join(frames), []
                        yield chunk
                self._holds = stream.messages()
                self._state = stream.state
                if turn.log.closed and position >= turn.log.last:
                    return
                await turn.log.read(position)  # parked: what comes next begins another run
                segment = turn.segment_from(position)
        except Exception:  # as in ``Run``: it can only be told in the stream
            logger.exception("agui: a feed failed")
            if stream is None:
                raise
            if told := [*frames, *stream.fail("internal", INTERNAL)]:
                yield b"".join(told)
        finally:
            if self._counts:
                turn.leave()

    def _held_before(self, turn: Turn, segment: Segment) -> Sequence[Message]:
        """What a reader holds that stands where a run begins and says no more: the run before it."""
        if not segment.start:
            return segment.base
        earlier = turn.segment_at(segment.start - 1)
        stream = self._stream(turn, earlier)
        for event in turn.log.events(earlier.start, segment.start):
            stream.feed(event)
        self._state = stream.state
        return stream.messages()

    def _introduction(self, stream: AguiStream, segment: Segment) -> list[bytes]:
        """What the reader must know before a run's events: what the run's own client was told, and its messages."""
        state = stream.state_snapshot(stream.state) if stream.state is not self._state else []
        if self._new:
            self._new = False
            return [*state, frame({"type": "MESSAGES_SNAPSHOT", "messages": readable(stream.base, segment.peer)})]
        told = [*([] if segment.tells_state else state), *segment.first]
        have = [message["id"] for message in self._holds or () if message["role"] not in _UNTOLD]
        if not segment.tells and [m["id"] for m in stream.base if m["role"] not in _UNTOLD] != have:
            told += stream.snapshot()
        return told

    def _stream(self, turn: Turn, segment: Segment) -> AguiStream:
        return AguiStream(
            self._thread.thread_id,
            segment.run_id,
            prefix=segment.prefix,
            peer=segment.peer,
            view=self._view,
            base=self._base(segment),
            open_calls=turn.open_calls(segment.start),
            state=turn.state_at(segment.start) if segment.state is None else segment.state,
        )

    def _base(self, segment: Segment) -> Sequence[Message]:
        """The conversation before a run, for this reader: that of the run's client may be only the end of it."""
        if self._holds is None:
            return segment.base
        if segment.complete:
            return _with_untold(segment.base, self._holds)
        have = {message["id"] for message in self._holds}
        return [*self._holds, *(message for message in segment.base if message["id"] not in have)]


_UNTOLD = ("reasoning", "activity")  # of these a snapshot leaves a client what it has


def _with_untold(base: Sequence[Message], held: Sequence[Message]) -> list[Message]:
    """The base with the reasoning and activities that a reader holds, each before the message that it stood before."""
    there = {message["id"] for message in base}
    before: dict[str, list[Message]] = {}
    waiting: list[Message] = []
    for message in held:
        if message["role"] in _UNTOLD and message["id"] not in there:
            waiting.append(message)
        elif message["role"] not in _UNTOLD:
            before[message["id"]], waiting = waiting, []
    return [one for message in base for one in (*before.get(message["id"], ()), message)]
