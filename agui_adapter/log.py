"""EventLog: a turn's append-only list of StreamEvents.

Appended from any thread, read from any position by any number of readers on the event loop. It never blocks the
appender on a reader, and it is bounded in bytes: old text deltas are merged, then results shortened, and a
reader that stood inside what was merged is told so (``Batch.gap``). It knows nothing of wires or of Hermes.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Self

from .stream import (
    Commentary,
    InnerToolResult,
    MessageChunk,
    ReasoningChunk,
    StateChanged,
    StreamEvent,
    SubagentProgress,
    ToolResult,
    TurnFinished,
)

_OVERHEAD = 96  # bytes that an event costs beside its text, about
_FRESH = 1024  # the newest events are never merged: live readers stand there
_WHOLE = 8  # the newest events are never shortened: live readers have not read them yet
# Between two looks of a reader: of a stream whose events are less than `_SOON` apart it takes what has gathered, so
# that the writer's thread does not hand the interpreter over for every delta. Slower ones (below 250 a second) never
# notice; such a fast one still comes 30 times a second, and one beyond 1,000 a second 15 times: each look costs that
# thread two hand-overs, about 0.7 ms in all, where it has none to lose.
_SOON = 0.004  # seconds
_BREATH = 0.033
_VERY_SOON = 0.001
_LONG_BREATH = 0.066
_PAIR = 2  # events
_MOST = 512  # events that it does not wait beyond: to be woken costs a third hand-over, so the time should end it
_GATHERED = 128  # deltas that the writer may keep back
_SHORT = (2_000, 200)  # characters that a result keeps once the log has to shrink, and once that is not enough


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in order; ``positions[i]`` is where ``found[i]`` ends; ``closed`` says that nothing follows them.

    A delta of text is kept, and found, as that text alone: there are thousands.

    ``gap``: the reader's position lay inside events that were merged since, so the first event repeats text it
    has: it must start over from a snapshot.
    """

    positions: list[int]
    found: list[StreamEvent | str]
    closed: bool
    gap: bool

    @property
    def events(self) -> list[tuple[int, StreamEvent]]:
        """The same as events, each with its position."""
        return list(zip(self.positions, map(_whole, self.found), strict=True))


def _is_text(kept: StreamEvent | str) -> bool:
    return isinstance(kept, str)


def _whole(kept: StreamEvent | str) -> StreamEvent:
    return MessageChunk(kept) if isinstance(kept, str) else kept


def _size(event: StreamEvent | str) -> int:
    if isinstance(event, str):
        return len(event) + _OVERHEAD
    if isinstance(event, ReasoningChunk):
        return len(event.text) + _OVERHEAD
    size = _OVERHEAD + (event.size if isinstance(event, StateChanged) else 0)
    if isinstance(event, SubagentProgress):  # steps are shared with the event before it, but for the newest
        return size + 8 * len(event.steps) + sum(len(text) for step in event.steps[-1:] for text in step.values())
    for name in ("text", "content", "arguments", "message", "value"):
        value = getattr(event, name, None)
        if isinstance(value, str):
            size += len(value)
    return size


class _Waiter(asyncio.Future[None]):
    """A future whose one task goes on within ``end``, not an iteration of the loop later: each iteration gives up the
    interpreter, and Hermes's thread, busy with the next delta, has to give it back.

    ``end`` is for a callback of the loop, where no task runs.
    """

    _goes_on: Callable[[Any], object]
    _context: Context

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        self._goes_on, self._context = fn, context or copy_context()

    def end(self) -> None:
        """It is over, unless it is already."""
        if not self.done():
            self.set_result(None)
            self._context.run(self._goes_on, self)

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.get_loop().call_soon(self._goes_on, self, context=self._context)
        return cancelled


class EventLog:
    """Positions count from 1; a reader that has seen nothing stands at 0.

    The writer may keep back deltas of text for as long as nobody waits for them: ``patience`` many, and it says in
    ``bring`` how they are fetched, which is done before anything is read or added. So a delta that nobody waits for
    costs the thread that brings it next to nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int = 8 << 20) -> None:
        self._loop = loop
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._events: list[StreamEvent | str] = []
        self._ends: list[int] = []  # _ends[i]: the position that event i ends at
        self._last = 0
        self._bytes = 0
        self._closed = False
        self.first_text_at = 0.0  # on the monotonic clock; 0 while there is none
        self._wake_from = math.inf  # the position that wakes the readers who wait
        self._waiters: dict[_Waiter, None] = {}
        self._read_at = -math.inf  # on the loop's clock: when a reader last found something new
        self._seen = 0  # the position that it went to
        self._soon = False  # whether it had come with less than `_SOON` for each event
        self._breath = 0.0  # seconds between two looks; none unless that was not by chance
        self.patience = 0  # deltas; none before the first text, whose moment is noted
        self.bring: Callable[[], None] = _nothing  # any thread; it takes the writer's lock, and then this log's

    @property
    def last(self) -> int:
        """The newest position."""
        self.bring()
        return self._last

    @property
    def closed(self) -> bool:
        """True once ``TurnFinished`` is in."""
        return self._closed

    @property
    def whole(self) -> bool:
        """False once events were merged: who counted them before counts others now."""
        return len(self._ends) == self._last

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return self._bytes

    def append(self, event: StreamEvent) -> int:
        """Add an event; any thread. Its position, or 0, and nothing added, once the log is closed (late writers)."""
        self.bring()
        return self.add(event)

    def add(self, event: StreamEvent) -> int:
        """As ``append``, for the writer itself, which knows what it keeps back."""
        if isinstance(event, MessageChunk):
            return self.add_texts((event.text,))
        with self._lock:
            if self._closed:
                return 0
            if isinstance(event, Commentary):
                self.first_text_at = self.first_text_at or time.monotonic()
            elif isinstance(event, TurnFinished):
                self._closed = True
                self.bring = _nothing  # nor does the log keep its writer alive
            if self._wake_from < math.inf and not isinstance(event, ReasoningChunk):  # only deltas wait for more
                self._wake_from = self._last + 1
            position = self._last = self._last + 1
            self._events.append(event)
            self._ends.append(position)
            wakes = self._added(_size(event))
        if wakes:
            self._tell()
        return position

    def add_texts(self, texts: Sequence[str]) -> int:
        """Add a ``MessageChunk`` of each of these texts, as ``add`` does; the last one's position. The hot path."""
        self._lock.acquire()  # `with` costs three times as much, for each delta
        try:
            if self._closed:
                return 0
            first = self._last + 1
            position = self._last = self._last + len(texts)
            self._events += texts
            self._ends += range(first, position + 1)
            wakes = self._added(sum(map(len, texts)) + _OVERHEAD * len(texts))
            if not self.first_text_at:
                self.first_text_at = time.monotonic()
            if self._wake_from == math.inf:
                self.patience = _GATHERED
        finally:
            self._lock.release()
        if wakes:
            self._tell()
        return position

    def _added(self, size: int) -> bool:
        """Under the lock, behind the new event: whether readers wait for it."""
        self._bytes += size
        if self._bytes > self._limit:
            self._shrink()
        if self._last < self._wake_from:
            return False
        self._wake_from = math.inf
        return True

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is gone: so are the readers
            self._loop.call_soon_threadsafe(self._wake)

    def take(self, after: int = 0, limit: int = 4096) -> Batch:
        """What stands behind position ``after``, at most ``limit`` events; any thread, never waits."""
        self.bring()
        with self._lock:
            first = bisect_right(self._ends, after)
            gap = 0 < after < self._last and first < len(self._ends) and self._starts(first) < after
            last = first + limit
            return Batch(
                self._ends[first:last], self._events[first:last], self._closed and last >= len(self._events), gap
            )

    def events(self, after: int = 0, until: int | None = None) -> list[StreamEvent]:
        """The events that end behind ``after`` and not behind ``until``, all by default, for who wants to know what
        they come to: deltas of text that follow each other are one."""
        self.bring()
        with self._lock:
            first = bisect_right(self._ends, after)
            last = len(self._ends) if until is None else bisect_right(self._ends, until)
            kept = self._events[first:last]
        found: list[StreamEvent] = []
        for is_text, some in groupby(kept, _is_text):
            those = list(some)
            found += [MessageChunk("".join(map(str, those)))] if is_text else map(_whole, those)
        return found

    async def read(self, after: int = 0, limit: int = 4096) -> Batch:
        """As ``take``, but waits for at least one event or the end. On the log's loop.

        Of a fast stream, who reads on at once waits a breath for more than one event, even if one is there: writing
        hands the interpreter over, so some always are. What is no delta is told at once.
        """
        breath = self._read_at + self._breath - self._loop.time() if self._breath else 0.0
        breathed = False
        while self.last - after < (wanted := _MOST if breath > 0 else 1) and not self._closed:
            await self._news(after + wanted, breath)
            breathed, breath = breath > 0, 0.0
        self._looks(breathed)
        return self.take(after, limit)

    def _looks(self, breathed: bool) -> None:
        """A reader goes on to the newest event, perhaps at a time at which none came: it has ``breathed``.

        By how many came since the time before: how often the loop's thread has its turn says nothing.
        """
        fresh = self._last - self._seen
        if fresh > 0:
            now = self._loop.time()
            since = now - self._read_at
            before, self._soon = self._soon, fresh * _SOON > since
            fast = self._soon and (before or fresh > _PAIR)  # two deltas of a slow one may come together
            self._breath = 0.0 if not fast else _LONG_BREATH if fresh * _VERY_SOON > since else _BREATH
            self._read_at = now if fast or not breathed else -math.inf
            self._seen = self._last

    async def _news(self, position: int, breath: float) -> None:
        """Wait for the event at ``position``; or for ``breath`` seconds where that is more than none."""
        with self._lock:
            if self._last >= position or self._closed:
                return
            waiter = _Waiter()
            self._waiters[waiter] = None
            self._wake_from = min(self._wake_from, position)
            if breath <= 0:
                self.patience = 0
        timer: asyncio.TimerHandle | None = None
        try:
            if breath > 0:
                timer = self._loop.call_later(breath, waiter.end)
            else:
                self.bring()  # what came before the writer knew
            await waiter
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()
                with self._lock:
                    if not self._waiters:  # nobody else is to be woken where this one would have been
                        self._wake_from = math.inf

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.end()

    def _starts(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def _shrink(self) -> None:
        """Under the lock. Merge old deltas, then shorten results; text and arguments stay, so the limit may grow."""
        keep = max(0, len(self._events) - _FRESH)
        events: list[StreamEvent | str] = []
        ends: list[int] = []
        texts: list[str] = []
        for event, end in zip(self._events[:keep], self._ends[:keep], strict=True):
            if events and type(event) is type(events[-1]) and isinstance(event, str | ReasoningChunk):
                texts.append(event if isinstance(event, str) else event.text)
                ends[-1] = end
                continue
            if texts:
                events[-1] = _joined(events[-1], texts)
                texts = []
            events.append(event)
            ends.append(end)
        if texts:
            events[-1] = _joined(events[-1], texts)
        self._events[:keep] = events
        self._ends[:keep] = ends
        self._bytes = sum(_size(event) for event in self._events)
        newest = max((i for i, event in enumerate(self._events) if isinstance(event, StateChanged)), default=-1)
        for keep_chars in _SHORT:
            for index in range(len(self._events) - _WHOLE):
                if self._bytes <= self._limit * 3 // 4:
                    return
                if index == newest:
                    continue  # it says what holds
                short = _shortened(self._events[index], keep_chars)
                self._bytes -= _size(self._events[index]) - _size(short)
                self._events[index] = short
        if self._bytes > self._limit * 3 // 4:
            # Nothing is left to give: shrink again only when another quarter has come.
            self._limit = max(self._limit, self._bytes * 5 // 4)


def _nothing() -> None:
    """Nothing is kept back."""


def _joined(first: StreamEvent | str, texts: list[str]) -> StreamEvent | str:
    if isinstance(first, str):
        return "".join([first, *texts])
    assert isinstance(first, ReasoningChunk)
    return ReasoningChunk("".join([first.text, *texts]))


def _shortened(event: StreamEvent | str, keep: int) -> StreamEvent | str:
    if isinstance(event, (ToolResult, InnerToolResult)) and len(event.content) > keep:
        return replace(event, content=event.content[:keep], cut=event.cut + len(event.content) - keep)
    if isinstance(event, StateChanged) and event.size > keep:
        return StateChanged(None, dropped=True)
    return event
