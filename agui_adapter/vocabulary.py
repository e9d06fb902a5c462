"""StreamEvents as JSON: the core's own vocabulary on a wire, for clients that want to see what happens as it happens.

``{"event": KIND, …}`` with the members of the event's dataclass under their own names (``stream.py`` says what each
means). Kinds are fixed here, whatever a class may be called one day. It is this project's own wire: AG-UI is the
standard one. Pure.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .encode import clean
from .state import for_clients
from .stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    InnerToolCall,
    InnerToolResult,
    LongTool,
    LongToolHint,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    PlanChanged,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
    Request,
    RequestClosed,
    RequestOpened,
    StateChanged,
    StepStarted,
    StreamEvent,
    Subagent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
    ToolCall,
    ToolCallChunk,
    ToolCallFinished,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)

KINDS: dict[type, str] = {
    MessageStart: "MessageStart",
    MessageChunk: "MessageChunk",
    MessageStop: "MessageStop",
    MessageRevised: "MessageRevised",
    Commentary: "Commentary",
    ReasoningStart: "ReasoningStart",
    ReasoningChunk: "ReasoningChunk",
    ReasoningStop: "ReasoningStop",
    ReasoningSealed: "ReasoningSealed",
    ToolCall: "ToolCall",
    ToolCallChunk: "ToolCallChunk",
    ToolResult: "ToolResult",
    ToolCallFinished: "ToolCallFinished",
    InnerToolCall: "InnerToolCall",
    InnerToolResult: "InnerToolResult",
    LongTool: "LongTool",
    LongToolHint: "LongToolHint",
    GatewayNotice: "GatewayNotice",
    Usage: "Usage",
    Attachment: "Attachment",
    RequestOpened: "RequestOpened",
    RequestClosed: "RequestClosed",
    TurnParked: "TurnParked",
    StateChanged: "StateChanged",
    PlanChanged: "PlanChanged",
    StepStarted: "StepStarted",
    SubagentStarted: "SubagentStarted",
    SubagentProgress: "SubagentProgress",
    SubagentFinished: "SubagentFinished",
    SubagentFailed: "SubagentFailed",
    TurnFinished: "TurnFinished",
}
# What only a reader in this process can use.
_LEFT_OUT: dict[type, frozenset[str]] = {StateChanged: frozenset(("before", "size", "dropped"))}


def told(event: StreamEvent) -> dict[str, Any]:
    """One event as a JSON object. Raises KeyError for what is no StreamEvent."""
    kind = type(event)
    made: dict[str, Any] = {"event": KINDS[kind]}
    left_out = _LEFT_OUT.get(kind, frozenset())
    for field in fields(event):
        if field.name not in left_out:
            value = getattr(event, field.name)
            made[field.name] = for_clients(value) if isinstance(event, StateChanged) else _plain(value)
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, Request | Subagent):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    return clean(value)
