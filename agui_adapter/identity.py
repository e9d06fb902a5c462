"""Who sends a request: the operator, a named token, an identity provider's or a proxy's user, a device, this machine.

What a token is not good for is never tried as something weaker: a named token that was revoked is no device, a JSON
Web Token that has expired neither. On the loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable

from aiohttp import HttpVersion11, web

from . import devices, tokens
from .auth import OWNER, bearer_of, invalid_token, is_direct, is_key, local, principal_id, user
from .config import Settings, is_loopback
from .errors import AguiError
from .jwt_tokens import JwtTokens
from .principal import Principal
from .store import Store

_UNGUESSABLE = 32  # characters of an operator's key from which no number of guesses helps
_FRESH_SECONDS = 1.0  # of what was read of the named tokens, while nobody is looked up


class Identity:
    """Answers who is calling. ``store`` gives the plugin's store once it is open."""

    def __init__(self, settings: Settings, store: Callable[[], Store | None]) -> None:
        self._settings = settings
        self._store = store
        self._proxies = [ipaddress.ip_network(one) for one in settings.proxy_addresses]
        self._jwt = JwtTokens(settings) if settings.jwt_keys else None
        self._digests: frozenset[str] = frozenset()  # of the named tokens, read at ...
        self._read = float("-inf")
        self._reading = asyncio.Lock()

    async def of(self, request: web.Request, wary: AguiError | None = None) -> Principal:
        """The principal of a request. Raises AguiError 401, and 503 where it cannot be told at the moment.

        ``wary``: too many failures came from its address, so no token is looked up for whoever it may be: raised where
        what is in memory does not know it. What nobody can guess passes: others behind one address (a proxy) must not
        shut it out.
        """
        proxied = self._proxied(request)
        headers = request.headers.getall("Authorization", [])
        if proxied is not None:
            try:
                return await self._of_operator(bearer_of(headers), wary) or proxied
            except AguiError:  # what the proxy passes on for others
                return proxied
        token, direct = bearer_of(headers), self._direct(request)
        if not token:
            return local(self._settings, direct=direct)
        known = await self._of_operator(token, wary)
        if known is not None:
            return known
        if token.startswith(tokens.MARK):
            raise invalid_token("This token was revoked, or never given out here.")
        if token.count(".") == 2 and self._jwt is not None:
            return await self._jwt.principal(token)
        device = devices.principal_of(token) if self._pairs(direct) else None
        if device is None:
            raise wary or invalid_token("The bearer token is not valid here.")
        return user(device, self._settings)

    async def _of_operator(self, token: str, wary: AguiError | None) -> Principal | None:
        """The holder of the operator's key, or of a token that the operator has made."""
        key = self._settings.api_key
        guessable = key is not None and len(key.get_secret_value()) < _UNGUESSABLE
        if not (wary and guessable) and is_key(token, self._settings):
            return OWNER
        store = self._store()
        if store is None or not token.startswith(tokens.MARK):
            return None
        if wary is not None and tokens.digest(token) not in await self._named(store):
            raise wary
        return await asyncio.to_thread(tokens.find, store, token)

    async def _named(self, store: Store) -> frozenset[str]:
        """Digests of all named tokens, as they were a second ago at most."""
        async with self._reading:
            if time.monotonic() - self._read > _FRESH_SECONDS:
                self._digests = await asyncio.to_thread(store.token_digests)
                self._read = time.monotonic()
        return self._digests

    def _direct(self, request: web.Request) -> bool:
        old = request.version < HttpVersion11
        if self._from_proxy(request.remote or ""):
            return False
        return is_direct(request.headers.get("Host"), request.remote, request.headers, old=old)

    def _pairs(self, direct: bool) -> bool:
        """Whether an unknown token may be a device's: by default only where this machine's users alone come in."""
        if self._settings.device_pairing == "auto":
            return is_loopback(self._settings.host) and direct
        return self._settings.device_pairing == "on"

    def _proxied(self, request: web.Request) -> Principal | None:
        """Whom a trusted proxy names. A header of this name from anywhere else is nothing."""
        name = self._settings.proxy_user_header
        if not name or not self._from_proxy(request.remote or ""):
            return None
        values = request.headers.getall(name, [])
        if not values:
            return None
        value = values[0].strip()
        if len(values) > 1 or not value or len(value) > 256 or not value.isprintable():
            raise AguiError(401, "invalid_user", "The proxy's header does not name one user.")
        return user(principal_id("user", value), self._settings)

    def _from_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._proxies)
