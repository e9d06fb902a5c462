"""The line that says what the agent is doing, redrawn in place. Only on a terminal that can do that."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TextIO

from .text import one_line

_FRAMES, _PLAIN_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
_QUIET_SECONDS = 0.4  # what is done sooner needs no word


def capable(stream: TextIO) -> bool:
    """Whether lines can be redrawn there."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Progress:
    """What runs now, by key, and since when. Draws only between `draw` and `clear`."""

    def __init__(self, stream: TextIO, *, style: Callable[[str], str], clock: Callable[[], float] = time.monotonic):
        self._stream, self._style, self._clock = stream, style, clock
        self._running: dict[str, tuple[str, float]] = {}
        self._drawn = False
        self._step = 0
        self._on = capable(stream)
        utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        self._frames = _FRAMES if utf8 else _PLAIN_FRAMES

    def begin(self, key: str, name: str) -> None:
        """Something runs from now on."""
        self._running[key] = (name, self._clock())

    def end(self, key: str) -> None:
        """It is over; so is everything without a key."""
        if key:
            self._running.pop(key, None)
        else:
            self._running.clear()

    def draw(self) -> None:
        """Show the line, or how it has changed."""
        if not self._on:
            return
        now = self._clock()
        shown = [f"{name} {int(now - since)} s" for name, since in self._running.values()]
        if not shown or all(now - since < _QUIET_SECONDS for _, since in self._running.values()):
            self.clear()
            return
        self._step += 1
        width = max(20, shutil.get_terminal_size().columns) - 1
        line = one_line(f"{self._frames[self._step % len(self._frames)]} {', '.join(shown)}", width)
        self._stream.write(f"\r\x1b[2K{self._style(line)}")
        self._stream.flush()
        self._drawn = True

    def clear(self) -> None:
        """Take the line away, for whatever is printed next."""
        if self._drawn:
            self._drawn = False
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
