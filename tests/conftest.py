"""What holds for every test: nothing leaves this machine."""

from __future__ import annotations

import sys
from typing import Any

_LOCAL = ("127.", "::1", "localhost", "0.0.0.0", "::")


def _only_loopback(event: str, args: tuple[Any, ...]) -> None:
    # An audit hook also sees what asyncio, aiohttp and http.client do; a subprocess (a real gateway) has none.
    if event == "socket.connect":
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if isinstance(host, str) and host and not host.startswith(_LOCAL):
        raise RuntimeError(f"a test tried to reach {host!r}: tests use loopback only")


sys.addaudithook(_only_loopback)
