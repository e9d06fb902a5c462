"""Requests → AG-UI interrupts. Pure.

Reasons: ``confirmation`` for approvals and slash confirmations (CopilotKit makes up a tool result for reason
``tool_call``, which would stand in for the real one), ``input_required`` for questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from .stream import Request


def is_human(request: Request) -> bool:
    """Whether a person answers it: an interrupt. A client tool's call is none (AG-UI 1.0, frontend tools)."""
    return request.kind != "client_tool"


def interrupt(request: Request) -> dict[str, Any]:
    """One interrupt, with the choices that Hermes allows as its response schema."""
    made: dict[str, Any] = {
        "id": request.id,
        "reason": "input_required" if request.kind == "clarify" else "confirmation",
        "message": request.message,
        "responseSchema": response_schema(request),
        "metadata": {"hermes": {"kind": request.kind, "choices": list(request.choices), **request.detail}},
    }
    if request.call_id:
        made["toolCallId"] = request.call_id
    if expires := iso(request.expires_at):
        made["expiresAt"] = expires
    return made


def interrupts(requests: Iterable[Request]) -> list[dict[str, Any]]:
    """Those that a person answers."""
    return [interrupt(request) for request in requests if is_human(request)]


def describe(request: Request) -> dict[str, Any]:
    """A request of any kind, for doors that list what is open."""
    made = interrupt(request)
    made["kind"] = request.kind
    if request.kind == "client_tool":
        made["responseSchema"] = {
            "type": "object",
            "properties": {"content": {"type": ["string", "array"]}, "error": {"type": "string"}},
        }
    return made


def response_schema(request: Request) -> dict[str, Any]:
    """JSON Schema of the payload that answers a request."""
    if request.kind == "clarify":
        answer: dict[str, Any] = {"type": "string", "minLength": 1}
        if request.choices:
            answer["examples" if request.free_text else "enum"] = list(request.choices)
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return {
        "type": "object",
        "properties": {
            "choice": {"type": "string", "enum": list(request.choices)},
            "reason": {"type": "string", "description": "Why, for the agent; optional."},
        },
        "required": ["choice"],
    }


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC; empty for 0 and for a time beyond all calendars: never."""
    if not 0 < seconds < 253_370_764_800:  # the year 9999
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_words(request: Request) -> str:
    """A question for a client that knows no interrupts, with what may be typed (``answers.typed_answer``)."""
    lines = [request.message]
    command = request.detail.get("command") or request.detail.get("text")
    if request.kind != "clarify" and isinstance(command, str) and command.strip():
        lines.append(f"```\n{command}\n```")
    if request.kind == "approval":
        words = [_TYPED[choice] for choice in request.choices if choice in _TYPED]
        lines.append(f"Answer with {', '.join(words)}.")
    elif request.kind == "confirm":
        lines.append("Answer with /approve, /always or /cancel.")
    else:
        lines += [f"- {choice}" for choice in request.choices]
        lines.append("Answer with your next message.")
    return "\n\n".join(line for line in lines if line.strip())


_TYPED = {"once": "/approve", "session": "/approve session", "always": "/approve always", "deny": "/deny"}
