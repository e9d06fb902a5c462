"""What of a turn's events the operator lets clients see (``agui.reasoning``, ``agui.tool_output``). Pure.

For doors that tell StreamEvents as they are or nearly so; AG-UI's translator has the same rules with its own state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .events import HIDDEN, View
from .reasoning import Glimpse
from .stream import (
    InnerToolCall,
    InnerToolResult,
    LongToolHint,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
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
)


class Shown:
    """One reader of a turn's events, in their order."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._glimpse = Glimpse()

    def of(self, event: StreamEvent) -> list[StreamEvent]:
        """The event as it may be told: itself, less of it, or nothing."""
        if isinstance(event, ReasoningStart | ReasoningChunk | ReasoningStop | ReasoningSealed):
            return self._reasoning(event)
        if isinstance(event, StepStarted):
            return [event] if self._view.steps else []
        if self._view.tool_output == "full":
            return [event]
        if isinstance(event, ToolCall | ToolResult) and event.client:
            return [event]  # what the client itself runs is its own
        return self._tool(event, names=self._view.tool_output == "names")

    def _reasoning(self, event: StreamEvent) -> list[StreamEvent]:
        if self._view.reasoning != "summary" or isinstance(event, ReasoningSealed):
            return [event] if self._view.reasoning == "full" else []
        if isinstance(event, ReasoningChunk):
            text = self._glimpse.feed(event.text)
            return [ReasoningChunk(text)] if text else []
        rest, self._glimpse = self._glimpse.rest(), Glimpse()
        return [ReasoningChunk(rest), event] if rest else [event]

    def _tool(self, event: StreamEvent, *, names: bool) -> list[StreamEvent]:
        made: StreamEvent
        match event:
            case ToolCall():
                made = _less(event, arguments="{}", preview=None, args=None)
            case ToolCallChunk():
                made = _less(event, preview=None, args=None)
            case ToolResult():
                made = replace(event, content=HIDDEN, cut=0)
            case ToolCallFinished() | LongToolHint():
                made = event
            case InnerToolCall():
                made = replace(event, arguments="{}")
            case InnerToolResult():
                made = replace(event, content=HIDDEN, cut=0)
            case SubagentProgress():
                steps = tuple({**step, "text": ""} for step in event.steps if step.get("kind") == "tool")
                made = replace(event, subagent=_aimless(event.subagent), steps=steps)
            case SubagentStarted():
                made = replace(event, subagent=_aimless(event.subagent))
            case SubagentFinished():
                made = replace(event, subagent=_aimless(event.subagent), summary="")
            case SubagentFailed():
                made = replace(event, subagent=_aimless(event.subagent), message="")
            case _:
                return [event]
        return [made] if names else []


def _aimless(subagent: Subagent) -> Subagent:
    """Without what it was asked for."""
    parent = _aimless(subagent.parent) if subagent.parent is not None else None
    return replace(subagent, goal="", parent=parent)


def _less(event: Any, **changes: Any) -> StreamEvent:
    """``replace`` where a part of the members is Hermes's, which is untyped here."""
    made: StreamEvent = replace(event, **changes)
    return made
