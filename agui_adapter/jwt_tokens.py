"""JSON Web Tokens of an identity provider: whose they are, checked against its keys (a file, or its JWKS address).

Needs the extra `jwt` (PyJWT with cryptography), imported when it is configured. Only asymmetric signatures: with a key
that everybody knows, anybody could sign. On the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from .auth import invalid_token, principal_id, user
from .config import ConfigError, Settings
from .errors import AguiError
from .principal import SCOPES, Principal

logger = logging.getLogger("hermes_agui")

_ALGORITHMS = {
    "RSA": frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    "EC": frozenset(("ES256", "ES384", "ES512")),
    "OKP": frozenset(("EdDSA",)),
}
_MOST_CHARS = 16_384
_MOST_KEY_BYTES = 262_144
_FETCH_SECONDS = 5.0
_AGAIN_SECONDS = 60.0  # between looks for a key that is not known, whoever names it
_FRESH_SECONDS = 900.0  # after which keys are looked at anew: the provider may have taken one back
_CLAIM = "agui:"


class Keys:
    """The provider's public keys by id, from a file or an address; looked up anew when they rotate, but not often."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._keys: dict[str, Mapping[str, Any]] = {}
        self._tried = self._read = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str) -> Mapping[str, Any] | None:
        """The key of this id, or the only one where the token names none. Raises AguiError 503 without any keys."""
        if self._find(kid) is None or self._clock() - self._read > _FRESH_SECONDS:
            async with self._lock:  # whoever comes while another looks waits for what it finds
                if self._clock() - self._tried >= _AGAIN_SECONDS:
                    await self._look()
        if not self._keys:
            message = "The identity provider's keys cannot be read at the moment; try again soon."
            raise AguiError(503, "keys_unavailable", message, retry_after=round(_AGAIN_SECONDS))
        return self._find(kid)

    def _find(self, kid: str) -> Mapping[str, Any] | None:
        if kid:
            return self._keys.get(kid)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    async def _look(self) -> None:
        self._tried = self._clock()
        try:
            raw = await self._fetch() if "://" in self._source else await asyncio.to_thread(self._from_file)
            found = orjson.loads(raw)["keys"]
            keys = {str(key.get("kid") or ""): key for key in found if key.get("kty") in _ALGORITHMS}
            self._keys = {kid: key for kid, key in keys.items() if key.get("use", "sig") == "sig"}
            self._read = self._tried
        except (OSError, ValueError, KeyError, TypeError, AttributeError, aiohttp.ClientError, TimeoutError) as error:
            logger.warning("agui: the keys of agui.jwt_keys cannot be read: %s", type(error).__name__)

    def _from_file(self) -> bytes:
        with Path(self._source).expanduser().open("rb") as file:
            return file.read(_MOST_KEY_BYTES)

    async def _fetch(self) -> bytes:
        timeout = aiohttp.ClientTimeout(total=_FETCH_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(self._source, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(response.status)
            raw = b""
            async for chunk in response.content.iter_chunked(65_536):
                raw += chunk
                if len(raw) > _MOST_KEY_BYTES:
                    raise ValueError("too large")
            return raw


class JwtTokens:
    """Tokens of one issuer for one audience."""

    def __init__(self, settings: Settings, keys: Keys | None = None) -> None:
        try:
            import jwt
            import jwt.algorithms

            if not jwt.algorithms.has_crypto:
                raise ImportError("cryptography")
        except ImportError:
            raise ConfigError("agui.jwt_keys needs PyJWT with cryptography: pip install 'hermes-agui[jwt]'") from None
        self._jwt = jwt
        self._settings = settings
        self._keys = keys or Keys(settings.jwt_keys)

    async def principal(self, token: str) -> Principal:
        """Whose token it is. Raises AguiError 401, and 503 while the provider's keys cannot be read."""
        jwt, settings = self._jwt, self._settings
        try:
            header = jwt.get_unverified_header(token if token.isascii() and len(token) <= _MOST_CHARS else "")
            kid, algorithm = str(header.get("kid") or ""), header.get("alg")
            if not isinstance(algorithm, str) or algorithm not in frozenset().union(*_ALGORITHMS.values()):
                raise invalid_token("The token is not signed in a way that is taken here.")
            key = await self._keys.find(kid)
            if key is None:
                raise invalid_token("The token is signed with a key that the identity provider does not list.")
            allowed = _ALGORITHMS[key["kty"]] & ({key["alg"]} if key.get("alg") else {algorithm})
            claims = jwt.decode(
                token,
                key=jwt.PyJWK(dict(key), algorithm=algorithm).key,
                algorithms=sorted(allowed),
                audience=settings.jwt_audience,
                issuer=settings.jwt_issuer,
                leeway=settings.jwt_leeway_seconds,
                options={"require": ["exp", "iss", "aud", settings.jwt_user_claim]},
            )
        except (jwt.PyJWTError, RecursionError) as error:  # PyJWT reads a header that is nested without end
            raise invalid_token(self._sentence(error)) from None
        name = claims[settings.jwt_user_claim]
        if not isinstance(name, str) or not name.strip():
            raise invalid_token("The token does not say who it is for.")
        return self._principal(principal_id("jwt", name), claims)

    def _principal(self, name: str, claims: Mapping[str, Any]) -> Principal:
        """With the scopes that the token names as ``agui:read`` and so on; those of every user where it names none."""
        given = claims.get("scope", claims.get("scp", ()))
        listed = given.split() if isinstance(given, str) else given if isinstance(given, list) else ()
        named = {str(one).removeprefix(_CLAIM) for one in listed if str(one).startswith(_CLAIM)}
        if not named:
            return user(name, self._settings)
        return Principal(name, scopes=frozenset(scope for scope in SCOPES if scope in named))

    def _sentence(self, error: Exception) -> str:
        jwt = self._jwt
        for kind, sentence in (
            (jwt.ExpiredSignatureError, "The token has expired."),
            (jwt.ImmatureSignatureError, "The token is not valid yet."),
            (jwt.InvalidAudienceError, "The token is for another audience."),
            (jwt.InvalidIssuerError, "The token is of another issuer."),
            (jwt.MissingRequiredClaimError, "The token lacks a claim that is needed here."),
            (jwt.InvalidSignatureError, "The token's signature is not the identity provider's."),
        ):
            if isinstance(error, kind):
                return sentence
        return "The token is no JSON Web Token that is taken here."
