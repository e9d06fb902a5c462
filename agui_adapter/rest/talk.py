"""What the routes share that answer one message and know a session: `/chat` and a session's `chat`.

A turn begins on a thread of the caller's and is read to where it waits or ends. Text is never a command here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel

from ..door import Reader
from ..encode import dumps
from ..errors import INTERNAL
from ..events import View
from ..results import Result
from ..shown import Shown
from ..stream import StreamEvent
from ..vocabulary import told
from .chunks import failure
from .models import RequestInfo, request_info
from .run_events import usage_of
from .run_models import Status, Usage

SESSION_ID, RUN_ID = "X-Hermes-Session-Id", "X-Hermes-Run-Id"
FAILURES = (
    *("provider_auth", "provider_billing", "provider_rate_limit", "provider_timeout", "provider_context"),
    *("provider_error", "provider_refused", "incomplete", "refused", "not_accepted", "not_authorized"),
    *("gateway_stopped", "failed"),
)
"""Codes of a turn that failed."""


class Talked(BaseModel):
    """``status: waiting``: the turn waits for ``requests``; answer them, and it goes on under the same ``run_id``."""

    run_id: str
    status: Status
    requests: list[RequestInfo]
    usage: Usage


def talked(result: Result) -> dict[str, Any]:
    """What a turn came to. Raises AguiError for one that failed."""
    if result.outcome == "failed":
        raise failure(result.code, result.message)
    status = {"success": "completed", "parked": "waiting", "running": "running"}.get(result.outcome, "cancelled")
    return {
        "run_id": result.turn_id,
        "status": status,
        "requests": [request_info(one) for one in result.requests],
        "usage": usage_of(result.tokens),
    }


def headers(session_id: str, reader: Reader) -> dict[str, str]:
    """Where the conversation and its turn are found again."""
    made = {SESSION_ID: session_id, RUN_ID: reader.turn.id}
    return {name: value for name, value in made.items() if value.isascii() and value.isprintable()}


async def events(reader: Reader, view: View, failed: Callable[[], None]) -> AsyncGenerator[bytes, None]:
    """The turn in the core's own vocabulary, an event a line, to where it waits or ends."""
    shown = Shown(view)
    prefix = reader.turn.id.encode() + b"."

    def frames(batch: list[tuple[int, StreamEvent]]) -> bytes:
        made = []
        for position, event in batch:
            made += [b"id: %b%d\ndata: %b\n\n" % (prefix, position, dumps(told(one))) for one in shown.of(event)]
        return b"".join(made)

    try:
        async with aclosing(reader.batches()) as batches:
            async for batch in batches:
                if chunk := frames(batch):
                    yield chunk
    except Exception:  # the headers are out
        failed()
        yield b"data: %b\n\n" % dumps(
            {"event": "TurnFinished", "outcome": "failed", "code": "internal", "message": INTERNAL}
        )
