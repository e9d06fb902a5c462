"""What the JSON routes share: a response, a time on the wire. Pure but for aiohttp's types."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from .encode import dumps


def reply(body: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(status=status, body=dumps(body), content_type="application/json")


def millis(seconds: float | None) -> int:
    """Seconds since the epoch as milliseconds; now, where there are none."""
    return int((seconds or time.time()) * 1000)
