"""Who may come in: the bearer key, the loopback caller, the Host and Origin of a request.

Whether a principal may use the agent is decided by the gateway's own rules (allowlists, pairing); only the operator's
key is allowed by itself. Pure functions of a request's headers and the settings.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from .config import Settings, is_loopback
from .errors import AguiError
from .session import Principal

OWNER = Principal("owner", trusted=True)
LOCAL = Principal("local")


def principal_of(authorization: str | None, settings: Settings) -> Principal:
    """The principal of a request's ``Authorization`` header. Raises AguiError 401."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    if token and scheme.lower() == "bearer":
        key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
        if key and hmac.compare_digest(token.encode(), key.encode()):
            return OWNER
        raise AguiError(401, "invalid_token", "The bearer token is not valid here.")
    if authorization:
        raise AguiError(401, "invalid_token", "Only bearer tokens are taken: Authorization: Bearer ….")
    if is_loopback(settings.host) and not settings.require_token:
        return LOCAL
    raise AguiError(401, "token_needed", "This server needs a bearer token: Authorization: Bearer ….")


def check_host(host: str | None, settings: Settings) -> None:
    """Refuse a foreign ``Host`` (a page that rebinds its name to this machine). Raises AguiError 421."""
    try:
        name = (urlsplit(f"//{host or ''}").hostname or "").lower().rstrip(".")
    except ValueError:
        name = ""
    allowed = {entry.rsplit(":", 1)[0] if entry.count(":") == 1 else entry for entry in settings.allowed_hosts}
    if name and (is_loopback(name) or name == settings.host.lower() or name in allowed):
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
    if urlsplit(origin).netloc.lower() == (host or "").lower():
        return
    raise AguiError(403, "unknown_origin", "This origin is not allowed; the operator can add it to agui.cors_origins.")


def _is_address(name: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
