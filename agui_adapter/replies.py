"""What the JSON routes share: a response, a number of the query, a time on the wire. Pure but for aiohttp's types."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from .encode import dumps
from .errors import AguiError


def reply(body: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(status=status, body=dumps(body), content_type="application/json")


def number(text: str | None, default: int, most: int, name: str) -> int:
    """A whole number of the query. Raises AguiError 422."""
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()) or not 0 <= int(text) <= most:
        raise AguiError(422, "invalid_input", f"{name} must be a whole number from 0 to {most}.")
    return int(text)


def millis(seconds: float | None) -> int:
    """Seconds since the epoch as milliseconds; now, where there are none."""
    return int((seconds or time.time()) * 1000)
