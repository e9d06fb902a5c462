"""The access log: a JSON line for each request, on the logger `hermes_agui.access`. Never content, a key, a thread id.

The address is told as its route (`/agui/threads/{thread_id}`), the caller as its principal. A stream's line comes when
it has ended, with the time that it was open.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

logger = logging.getLogger("hermes_agui.access")


class _NoWords(logging.Filter):
    """aiohttp tells of a request that is no HTTP with the line that it could not read, which may be a token's."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
            record.msg = f"agui: a request that cannot be read ({type(error).__name__}); {record.msg}"
        return True


def wire_logger() -> logging.Logger:
    """aiohttp's logger for this port: its own tells what a broken request says, and other servers' requests too."""
    found = logging.getLogger("hermes_agui.http")
    if not found.filters:
        found.addFilter(_NoWords())
    return found


def log_request(request: web.Request, status: int, *, principal: str, code: str, began: float) -> None:
    """Write a request's line. ``began`` on the monotonic clock; ``status`` 499: the client left first."""
    resource = request.match_info.route.resource
    line: dict[str, Any] = {
        "method": request.method,
        "route": resource.canonical if resource is not None else "",
        "status": status,
        "ms": round((time.monotonic() - began) * 1000),
        "principal": principal,
        "peer": request.remote or "",
    }
    if code:
        line["code"] = code
    logger.info("%s", json.dumps(line, ensure_ascii=True))
