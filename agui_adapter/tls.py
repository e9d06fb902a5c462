"""TLS for those without a reverse proxy: the port's own certificate, from files."""

from __future__ import annotations

import ssl
from pathlib import Path

from .config import ConfigError, Settings


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The context of ``tls_cert`` and ``tls_key``, TLS 1.2 and later; None without them. Raises ConfigError."""
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    cert, key = (Path(one).expanduser() for one in (settings.tls_cert, settings.tls_key))
    for name, path in (("tls_cert", cert), ("tls_key", key)):
        if not path.is_file():
            raise ConfigError(f"agui.{name}: there is no file at {path}")
    try:
        # The password: one that is asked for on a terminal would hold up the gateway's start.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"agui.tls_cert, agui.tls_key: not a PEM certificate with its key, without a pass phrase ({error})"
        ) from None
    return context
