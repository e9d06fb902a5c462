"""Limits: how much one principal, and all together, may have at once or in a minute, and how deep JSON may be nested.

Only live work counts: a turn that ended, or that waits for its client, and a stream that was closed give their place
back at once, since nothing here is kept for them but a number. Knows neither HTTP nor Hermes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .errors import AguiError, bad_request

if TYPE_CHECKING:
    from .config import Settings
    from .session import Thread, Turn

_KNOWN = 4096  # principals and addresses whose pace is remembered; one that is forgotten begins anew
_TRUSTED = 1024  # tokens that were good
_SOON = 5  # seconds after which a turn or a stream may have ended


class Places:
    """Places for things that are there at once: ``most`` in all, ``each`` for one name. Thread-safe."""

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> bool:
        """Take one; False when there is none, for this name or for all."""
        with self._lock:
            if self._taken.total() >= self._most or self._taken[name] >= self._each:
                return False
            self._taken[name] += 1
            return True

    def give(self, name: str) -> None:
        """Give it back."""
        with self._lock:
            self._taken[name] -= 1
            if self._taken[name] <= 0:
                del self._taken[name]

    @property
    def taken(self) -> int:
        """How many are taken."""
        with self._lock:
            return self._taken.total()


class Pace:
    """Token buckets by name: ``per_minute`` in a minute on average, and as many at once. 0: no limit. On the loop."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name → tokens, and when they were counted

    def wait(self, name: str) -> float:
        """Seconds until there is a token; 0 when there is one now."""
        return max(0.0, (1 - self._now(name)) * 60 / self._size) if self._size else 0.0

    def spend(self, name: str) -> None:
        """Take a token, if there is one."""
        if not self._size:
            return
        self._left[name] = (max(0.0, self._now(name) - 1), self._clock())
        self._left.move_to_end(name)
        if len(self._left) > _KNOWN:
            self._left.popitem(last=False)

    def _now(self, name: str) -> float:
        tokens, at = self._left.get(name, (float(self._size), 0.0))
        return min(float(self._size), tokens + max(0.0, self._clock() - at) * self._size / 60)


class Limits:
    """All limits that count. ``live`` gives the turns that are not over and do not wait for their client."""

    def __init__(
        self,
        settings: Settings,
        live: Callable[[], Iterable[Turn]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._live = live
        self._opening: Counter[Thread] = Counter()
        self._requests = Pace(settings.requests_per_minute, clock)
        self._failures = Pace(settings.failures_per_minute, clock)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self.streams = Places(settings.max_streams, settings.max_streams_per_principal)

    # -- requests -------------------------------------------------------------------------------------------------

    def request(self, principal: str) -> None:
        """A request of this principal. Raises AguiError 429 when there were too many."""
        wait = self._requests.wait(principal)
        if wait:
            raise _too_many(
                "too_many_requests",
                f"Only {self._settings.requests_per_minute} requests a minute are taken from one caller "
                "(agui.requests_per_minute).",
                wait,
            )
        self._requests.spend(principal)

    def wary(self, peer: str, token: str) -> AguiError | None:
        """What a caller with an unknown token is answered while too many failures came from its address; else None.

        None for a token that was good too, as long as it is: behind one address (a proxy) others must not shut it out.
        """
        wait = self._failures.wait(_address(peer)) if token else 0
        if not wait or _digest(token) in self._good:
            return None
        return _too_many("too_many_failures", "Too many wrong tokens came from here.", wait)

    def refused(self, peer: str, token: str) -> None:
        """A caller whose token is not valid."""
        self._good.pop(_digest(token), None)
        self._failures.spend(_address(peer))

    def welcomed(self, token: str) -> None:
        """A token that is good."""
        if token:
            self._good[_digest(token)] = None
            self._good.move_to_end(_digest(token))
            if len(self._good) > _TRUSTED:
                self._good.popitem(last=False)

    # -- streams --------------------------------------------------------------------------------------------------

    def open_stream(self, principal: str) -> None:
        """A stream begins; ``streams.give`` ends it. Raises AguiError 429."""
        if not self.streams.take(principal):
            message = "Too many streams are open (agui.max_streams, agui.max_streams_per_principal); close one."
            raise _too_many("too_many_streams", message, _SOON)

    # -- turns ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, thread: Thread) -> AsyncIterator[None]:
        """A place for a turn that is about to begin, until it is there itself. Raises AguiError 429.

        A thread is counted once: a turn that takes the place of another needs no further one.
        """
        busy = {turn.thread for turn in self._live()} | self._opening.keys()
        owner, settings = thread.principal.id, self._settings
        self.check_queue(sum(n for one, n in self._opening.items() if one.principal.id == owner))
        if thread not in busy:
            if len(busy) >= settings.max_turns:
                raise _too_many("too_many_turns", "Too many turns are running (agui.max_turns); try again soon.", _SOON)
            if sum(one.principal.id == owner for one in busy) >= settings.max_turns_per_principal:
                message = "You have too many turns running (agui.max_turns_per_principal); wait for one to end."
                raise _too_many("too_many_turns", message, _SOON)
        self._opening[thread] += 1
        try:
            yield
        finally:
            self._opening[thread] -= 1
            if not self._opening[thread]:
                del self._opening[thread]

    def check_queue(self, waiting: int) -> None:
        """One more behind ``waiting`` messages of one principal that wait for a busy thread. Raises AguiError 429."""
        if waiting >= self._settings.max_queued_per_principal:
            message = "Too many of your messages wait for busy threads (agui.max_queued_per_principal)."
            raise _too_many("too_many_queued", message, _SOON)

    def room_in_logs(self, threads: Iterable[Thread]) -> list[Turn]:
        """Room for another turn's events: finished turns that nobody reads are given up, oldest first, and returned.

        Raises AguiError 429 when turns that run, or are read, leave no room.
        """
        turns = [turn for thread in threads for turn in thread.turns.values()]
        over = sum(turn.log.size for turn in turns) - self._settings.log_bytes_total
        gone: list[Turn] = []
        finished = (turn for turn in turns if turn.done.is_set() and not turn.readers)
        for turn in sorted(finished, key=lambda turn: turn.finished_at) if over > 0 else ():
            if over <= 0:
                break
            over -= turn.log.size
            turn.thread.turns.pop(turn.id, None)
            gone.append(turn)
        if over > 0:
            message = "The turns that run hold too many events (agui.log_bytes_total); try again when one has ended."
            raise _too_many("logs_full", message, _SOON)
        return gone


def check_depth(value: Any, most: int) -> None:
    """Raises AguiError 400 for JSON nested deeper than ``most``: what reads it later calls itself at each level."""
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level:
        depth += 1
        if depth > most:
            raise bad_request(f"The body is nested more than {most} levels deep (agui.max_json_depth).", "too_deep")
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += [each for each in one.values() if isinstance(each, (dict, list))]
            elif isinstance(one, list):
                below += [each for each in one if isinstance(each, (dict, list))]
        level = below


def _too_many(code: str, message: str, seconds: float) -> AguiError:
    return AguiError(429, code, message, retry_after=max(1, math.ceil(seconds)))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _address(peer: str) -> str:
    """What one caller can be told by: an IPv6 host has a whole network of 64 bits to call from."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)
