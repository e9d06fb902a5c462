"""Histories that were just read, for who asks for one again at once: a console opens a feed and then the thread.

Only on the archive's worker. Never what is old: a reader gives the mark of all that a history is made of (``mark`` of
Hermes's database and of the store, which change with whatever is written by whomever), taken before it was read.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from .history import Message

_MOST = 4  # histories
_MOST_CHARS = 2_000_000  # of one that is kept
_SECONDS = 10.0


class Kept:
    """By chat, each with its mark. The messages are shared with those who got them: nobody changes one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: OrderedDict[str, tuple[float, object, list[Message]]] = OrderedDict()

    def get(self, chat_id: str, mark: object) -> list[Message] | None:
        """The chat's history if it was read with this mark; a list of its own."""
        self.sweep()
        found = self._found.get(chat_id)
        if found is None:
            return None
        if found[1] != mark:
            del self._found[chat_id]
            return None
        return list(found[2])

    def put(self, chat_id: str, mark: object, messages: list[Message]) -> None:
        """Keep what was read after this mark was taken."""
        self._found.pop(chat_id, None)
        if sum(len(str(message.get("content", ""))) for message in messages) > _MOST_CHARS:
            return
        self._found[chat_id] = self._clock() + _SECONDS, mark, list(messages)
        if len(self._found) > _MOST:
            self._found.popitem(last=False)

    def drop(self, chat_id: str) -> None:
        """The chat is deleted."""
        self._found.pop(chat_id, None)

    def sweep(self) -> None:
        """Let go what is over its time."""
        now = self._clock()
        while self._found and next(iter(self._found.values()))[0] <= now:
            self._found.popitem(last=False)
