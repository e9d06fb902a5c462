"""Who may come in by a request's headers: the operator's key, the loopback caller, Host and Origin.

Whether a principal may use the agent is decided by the gateway's own rules (allowlists, pairing); only the operator's
key is allowed by itself. Pure functions of headers and settings; `identity.py` knows the other kinds of callers.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from .config import Settings, is_loopback
from .errors import AguiError
from .principal import SCOPES, Principal

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?\Z")
_PLAIN = re.compile(r"[A-Za-z0-9-]{1,40}\Z")
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
_IN_ADDRESSES = frozenset(("access_token", "api_key", "apikey", "auth", "authorization", "bearer", "key", "token"))

OWNER = Principal("owner", trusted=True, scopes=SCOPES)
LOCAL = "local"
"""The principal of callers on this machine without a token."""


def bearer_of(headers: Sequence[str]) -> str:
    """The bearer token of the ``Authorization`` headers, empty without one. Raises AguiError 401 for another kind."""
    if not [one for one in headers if one]:
        return ""
    scheme, _, token = headers[0].strip().partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise invalid_token("Only one bearer token is taken: Authorization: Bearer ….")
    return token.strip()


def is_key(token: str, settings: Settings) -> bool:
    """Whether it is the operator's key; takes as long for every wrong one."""
    key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
    return bool(key) and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), key.encode())


def local(settings: Settings, *, direct: bool) -> Principal:
    """The caller without a token, where that is enough. Raises AguiError 401.

    ``direct``: nothing says that the request came through a proxy, which others than this machine's users can reach.
    """
    if is_loopback(settings.host) and not settings.require_token:
        if direct:
            return user(LOCAL, settings)
        raise AguiError(401, "token_needed", "A request through a proxy needs a bearer token: Authorization: Bearer ….")
    raise AguiError(401, "token_needed", "This server needs a bearer token: Authorization: Bearer ….")


def is_direct(host: str | None, peer: str | None, headers: Collection[str], *, old: bool) -> bool:
    """Whether a request comes from a program of this machine itself, as far as one can see.

    ``old``: by HTTP/1.0, which programs no longer speak, but nginx does when it is told nothing else.
    """
    near = is_loopback(peer or "") and is_loopback(host_name(host or ""))
    return near and not old and not any(name in headers for name in _FORWARDED)


def user(principal_id: str, settings: Settings) -> Principal:
    """A principal whose token names no scopes: those of ``agui.user_scopes``, and admin if Hermes knows it for one."""
    admin = SCOPES if principal_id in settings.admins else frozenset()
    return Principal(principal_id, scopes=admin.union(settings.user_scopes))


def principal_id(kind: str, name: str) -> str:
    """The id of a principal of this kind: different names give different ids, and no kind's is another's.

    It is an entry of Hermes's allowlists, which are split at commas and of which ``x@y`` matches ``x`` too
    (gateway/authz_mixin.py): so a name that is not plain becomes what is plain of it and a digest.
    """
    if _PLAIN.match(name):
        return f"{kind}-{name}"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{kind}-{re.sub(r'[^A-Za-z0-9]+', '-', name)[:24].strip('-')}_{digest}"


def invalid_token(message: str) -> AguiError:
    """The error for a token that is good for nothing."""
    return AguiError(401, "invalid_token", message)


def check_address(names: Collection[str]) -> None:
    """Refuse a key in the address, by the names of its query: addresses end up in logs. Raises AguiError 400."""
    if any(name.lower() in _IN_ADDRESSES for name in names):
        message = "No token in the address: it ends up in logs. Send it as Authorization: Bearer …."
        raise AguiError(400, "token_in_address", message)


def is_json(content_type: str) -> bool:
    """Whether a body is said to be JSON, in a way that a page cannot say across origins unasked.

    What stands before the first ``;`` counts: ``text/plain; x=application/json`` is plain text for a browser, which
    sends it without a preflight. Today's client gives ``text/plain, application/json``, which is none for it.
    """
    return "application/json" in [one.strip().lower() for one in content_type.partition(";")[0].split(",")]


def check_host(host: str | None, settings: Settings) -> None:
    """Refuse a foreign ``Host`` (a page that rebinds its name to this machine). Raises AguiError 421.

    Bound to all addresses, any IP address will do where ``allowed_hosts`` names none: which one a client uses is not
    known, and a page can rebind a name but not an address.
    """
    name = host_name(host or "")
    allowed = {host_name(entry) for entry in settings.allowed_hosts}
    if name and (is_loopback(name) or name == host_name(settings.host) or name in allowed):
        return
    if name and settings.host in ("0.0.0.0", "::") and not allowed and _is_address(name):
        return
    raise AguiError(
        421, "unknown_host", "This host name is not served here; the operator can add it to agui.allowed_hosts."
    )


def check_origin(origin: str | None, host: str | None, settings: Settings) -> None:
    """Refuse a page of another origin that is not listed. Raises AguiError 403."""
    if not origin or origin.lower() in settings.cors_origins:
        return
    try:
        authority = urlsplit(origin).netloc.lower()
    except ValueError:
        authority = ""
    if authority and authority == (host or "").lower():
        return
    raise AguiError(403, "unknown_origin", "This origin is not allowed; the operator can add it to agui.cors_origins.")


@lru_cache(256)  # each request asks twice for the same few
def host_name(host: str) -> str:
    """The name or address in a ``Host`` header, lower case, without port, brackets and the root's dot; empty if none.

    Not ``urlsplit`` alone: it would find 127.0.0.1 in ``evil@127.0.0.1`` and in ``127.0.0.1?.evil.test``.
    """
    if _is_address(host):  # an IPv6 address without brackets, as settings have it
        return ipaddress.ip_address(host).compressed
    if not _HOST.match(host):
        return ""
    name, _, _ = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    if host.startswith("["):
        return ipaddress.ip_address(name).compressed if _is_address(name) else ""
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
