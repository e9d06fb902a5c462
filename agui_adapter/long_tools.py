"""Tools that run long: each is told of while it runs, by one timer on the loop for all of them. No Hermes, no wire.

A call is watched from its beginning to its end, on its own thread; the timer runs only while there are any.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class _Watched:
    tell: Callable[[float], bool]
    due: float  # seconds from its beginning until it is told of (again)
    began: float = field(default_factory=time.monotonic)


class LongTools:
    """``seconds`` until a call is long; 0 watches none. ``tell(seconds so far)`` is called then, and whenever the call
    has run twice as long as it had the last time; it answers False to be asked again soon."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._lock = threading.Lock()
        self._calls: dict[_Watched, None] = {}
        self._armed = False

    def begin(self, tell: Callable[[float], bool]) -> object:
        """A call begins; what it returns ends it. Any thread."""
        watched = _Watched(tell, self._seconds)
        if not self._seconds:
            return watched
        with self._lock:
            self._calls[watched] = None
            arm, self._armed = not self._armed, True
        if arm:
            with contextlib.suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self._loop.call_later, self._seconds, self._look)
        return watched

    def end(self, watched: object) -> None:
        """The call is over. Any thread."""
        with self._lock:
            self._calls.pop(watched, None)  # type: ignore[call-overload]

    def _look(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [one for one in self._calls if now - one.began >= one.due]
        for one in due:
            if one.tell(now - one.began):
                one.due = 2 * (now - one.began)
        with self._lock:
            self._armed = bool(self._calls)
            waits = [max(one.due - (now - one.began), self._seconds / 4) for one in self._calls]
        if waits:
            self._loop.call_later(min(waits), self._look)
