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

logger = logging.getLogger("hermes_agui.access")


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
