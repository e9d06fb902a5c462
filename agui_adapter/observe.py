"""Observer: what other sessions of the gateway do, as threads that can be followed like one's own. Our state only.

The seam (``hermes/observe.py``) reports their turns from the agents' threads; each becomes a turn with a log, so that
a feed, a snapshot and the archive work for it as for any other. Nothing here can reach the session that is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable

from .auth import OWNER
from .log import EventLog
from .session import Thread, Turn
from .stream import Outcome
from .tap import Secrets, Tap

logger = logging.getLogger("hermes_agui")

_LOOK_SECONDS = 0.5  # between looks whether a turn still runs: many ways to fail tell no hook of their end


def session_id(session_key: str) -> str:
    """The id of a gateway's session on the wire: a digest, for the key names people and chats."""
    return hashlib.sha256(session_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Observer:
    """The turns of sessions that are not this adapter's own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        log_bytes: int,
        max_result_chars: int,
        keep_seconds: float,
        record: Callable[[Turn, Outcome], None],
        shown: Callable[[str], str] = lambda text: text,
        secrets: Secrets | None = None,
    ) -> None:
        self._loop = loop
        self._shown, self._secrets = shown, secrets
        self._log_bytes = log_bytes
        self._max = max_result_chars
        self._keep = keep_seconds
        self._record = record
        self._lock = threading.Lock()
        self._threads: dict[str, Thread] = {}  # session key → its thread
        self._keys: dict[Thread, str] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def thread(self, session_key: str) -> Thread:
        """The thread that stands for this session. Any thread."""
        with self._lock:
            thread = self._threads.get(session_key)
            if thread is None:
                name = session_id(session_key)
                thread = self._threads[session_key] = Thread(OWNER, name, f"session:{name}", loaded=True, seen=True)
                self._keys[thread] = session_key
            return thread

    def key_of(self, thread: Thread) -> str | None:
        """The session key of a thread of ours; None for any other thread. Any thread."""
        with self._lock:
            return self._keys.get(thread)

    # -- turns ----------------------------------------------------------------------------------------------

    def begin(self, session_key: str, text: str, last_row: int, runs: Callable[[], bool]) -> Tap:
        """An agent turn starts; ``last_row``: the newest row of its session before it. Worker thread.

        ``runs`` says whether the turn still runs (called on the loop): some failures tell nobody of the end.
        """
        thread = self.thread(session_key)
        turn = Turn(thread, EventLog(self._loop, self._log_bytes), text=text, unsolicited=True)
        turn.inputs = [{"id": f"{turn.id}-u", "role": "user", "content": text}]
        turn.begin_run(0, turn.id, base=turn.inputs)
        tap = Tap(turn, max_result_chars=self._max, shown=self._shown, secrets=self._secrets)
        self._loop.call_soon_threadsafe(self._begun, thread, turn, tap, last_row, runs)
        return tap

    def _begun(self, thread: Thread, turn: Turn, tap: Tap, last_row: int, runs: Callable[[], bool]) -> None:
        before = thread.current
        if before is not None:  # it ended without a word
            self._close(before, "failed", "incomplete", "")
        thread.last_row = last_row
        thread.current = turn
        thread.turns[turn.id] = turn
        thread.used_at = time.monotonic()
        thread.changed.notify()
        watch = asyncio.ensure_future(self._watch(turn, tap, runs))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, turn: Turn, tap: Tap, runs: Callable[[], bool]) -> None:
        while not turn.done.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(turn.done.wait(), _LOOK_SECONDS)
            if not turn.done.is_set() and not runs():
                failure = tap.failure
                code, message = (failure.code, failure.message) if failure is not None else ("incomplete", "")
                tap.drop_uncommitted(())
                tap.stop()
                self._close(turn, "failed", code, message)

    def end(self, tap: Tap, outcome: Outcome, code: str = "", message: str = "") -> None:
        """The agent turn has ended. Any thread."""
        tap.stop()
        self._loop.call_soon_threadsafe(self._close, tap.turn, outcome, code, message)

    def _close(self, turn: Turn, outcome: Outcome, code: str, message: str) -> None:
        if turn.done.is_set():
            return
        thread = turn.thread
        thread.end(turn, outcome, code, message)
        self._record(turn, outcome)

    # -- life -----------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Forget finished turns after their time, and threads that nobody follows."""
        with self._lock:
            for key, thread in list(self._threads.items()):
                for turn_id, turn in list(thread.turns.items()):
                    if turn.done.is_set() and not turn.readers and now - turn.finished_at > self._keep:
                        del thread.turns[turn_id]
                if not thread.turns and thread.current is None and not thread.watchers:
                    del self._threads[key]
                    del self._keys[thread]

    def close(self) -> None:
        """The server stops: every open log gets its end."""
        for watch in list(self._watches):
            watch.cancel()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            if thread.current is not None:
                message = "The gateway is shutting down; look again when it is back."
                self._close(thread.current, "failed", "gateway_stopped", message)
            thread.changed.notify()  # readers of feeds wait for what no longer comes
