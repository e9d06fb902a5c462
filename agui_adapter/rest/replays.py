"""The same request sent twice runs once: `Idempotency-Key`, as OpenAI's SDKs and careful clients send it.

In memory, for as long as the turn can still be read. On the loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aiohttp import web

from ..errors import AguiError

Kept = TypeVar("Kept")
_MOST = 2000  # keys that are remembered
_MAX_KEY = 200


@dataclass
class _Claim(Generic[Kept]):
    digest: str
    done: asyncio.Future[Kept | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Slot(Generic[Kept]):
    """``known``: what the first request of this key began; else the one to ``keep``."""

    def __init__(self, known: Kept | None, claim: _Claim[Kept] | None) -> None:
        self.known = known
        self._claim = claim

    def keep(self, kept: Kept) -> None:
        """Later requests of the key get this."""
        if self._claim is not None and not self._claim.done.done():
            self._claim.done.set_result(kept)


class Replays(Generic[Kept]):
    """Keys of one kind of request."""

    def __init__(self, over: Callable[[Kept], bool] = lambda kept: False) -> None:
        """``over``: what was kept can no longer be read, and its key is forgotten; it must not keep a log alive."""
        self._over = over
        self._claims: OrderedDict[tuple[str, str], _Claim[Kept]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, request: web.Request, scope: str) -> AsyncIterator[Slot[Kept]]:
        """Around the beginning of a request; ``scope``: what else a key belongs to (the caller, its session). Raises
        AguiError 409 for another body under the same key."""
        key = request.headers.get("Idempotency-Key", "").strip()[:_MAX_KEY]
        if not key:
            yield Slot(None, None)
            return
        self._sweep()
        place = (scope, key)
        digest = hashlib.sha256(await request.read()).hexdigest()
        while (claim := self._claims.get(place)) is not None:
            if claim.digest != digest:
                message = "This Idempotency-Key was used for another request; take a new one."
                raise AguiError(409, "idempotency_conflict", message)
            known = await asyncio.shield(claim.done)
            if known is not None:
                yield Slot(known, None)
                return
        claim = self._claims[place] = _Claim(digest)
        while len(self._claims) > _MOST:
            self._claims.popitem(last=False)
        try:
            yield Slot(None, claim)
        finally:
            if not claim.done.done():  # nothing was begun: the next one may try
                claim.done.set_result(None)
                if self._claims.get(place) is claim:
                    del self._claims[place]

    def _sweep(self) -> None:
        for place, claim in list(self._claims.items()):
            kept = claim.done.result() if claim.done.done() else None
            if kept is not None and self._over(kept):
                del self._claims[place]

    def forget(self, request: web.Request, scope: str) -> None:
        """What was kept can no longer be read."""
        self._claims.pop((scope, request.headers.get("Idempotency-Key", "").strip()[:_MAX_KEY]), None)
