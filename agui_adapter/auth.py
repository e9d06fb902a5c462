"""Who may come in: the bearer key, the loopback caller, the Host and Origin of a request.

Whether a principal may use the agent is decided by the gateway's own rules (allowlists, pairing); only the operator's
key is allowed by itself. Pure functions of a request's headers and the settings.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from urllib.parse import urlsplit

from .config import Settings, is_loopback
from .errors import AguiError
from .principal import SCOPES, Principal

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?\Z")

OWNER = Principal("owner", trusted=True, scopes=SCOPES)
LOCAL = "local"
"""The principal of callers on this machine without a token."""


def principal_of(authorization: str | None, settings: Settings) -> Principal:
    """The principal of a request's ``Authorization`` header. Raises AguiError 401."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    if token and scheme.lower() == "bearer":
        key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
        if key and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), key.encode()):
            return OWNER
        raise AguiError(401, "invalid_token", "The bearer token is not valid here.")
    if authorization:
        raise AguiError(401, "invalid_token", "Only bearer tokens are taken: Authorization: Bearer ….")
    if is_loopback(settings.host) and not settings.require_token:
        return user(LOCAL, settings)
    raise AguiError(401, "token_needed", "This server needs a bearer token: Authorization: Bearer ….")


def user(principal_id: str, settings: Settings) -> Principal:
    """A principal whose token names no scopes: those of ``agui.user_scopes``, and admin if Hermes knows it for one."""
    admin = SCOPES if principal_id in settings.admins else frozenset()
    return Principal(principal_id, scopes=admin.union(settings.user_scopes))


def check_host(host: str | None, settings: Settings) -> None:
    """Refuse a foreign ``Host`` (a page that rebinds its name to this machine). Raises AguiError 421."""
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
