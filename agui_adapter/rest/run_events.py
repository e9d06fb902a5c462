"""StreamEvents → the events of `GET /v1/runs/{id}/events` and of a session's `chat/stream`. Pure.

Names and members are those of Hermes's own api_server where it has the same fact, so that its clients read them; what
it does not tell has names of the same make. Text of every event: ``stream.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..encode import clean
from ..events import View
from ..results import Tokens, collect
from ..shown import Shown
from ..stream import (
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
    PlanChanged,
    ReasoningChunk,
    ReasoningStart,
    ReasoningStop,
    RequestClosed,
    RequestOpened,
    StreamEvent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)
from .models import request_info

Told = tuple[str, dict[str, Any]]
RAN, LOST = "ran_as_further_turn", "not_run"


class Steered:
    """What of the steered text came too late for the model: the seed's ``pending_steer``, and what became of it."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, str]] = []

    def feed(self, event: StreamEvent) -> None:
        """The gateway says so itself."""
        if isinstance(event, GatewayNotice) and event.extra.get("text"):
            action = {"further_turn": RAN, "steer_not_taken": LOST}.get(event.kind)
            if action:
                self._texts.append((str(event.extra["text"]), action))

    def told(self) -> dict[str, Any]:
        """For a status or a last event; nothing when all was read."""
        if not self._texts:
            return {}
        return {
            "pending_steer": "\n".join(text for text, _ in self._texts),
            # One text that nobody has run is one that the caller may send again.
            "pending_steer_action": LOST if any(action == LOST for _, action in self._texts) else RAN,
        }


def usage_of(tokens: Tokens) -> dict[str, int]:
    """Tokens under api_server's names."""
    return {"input_tokens": tokens.input, "output_tokens": tokens.output, "total_tokens": tokens.total}


class RunEvents:
    """One reader of a run. ``answer`` gives what the run has come to, for its last event."""

    def __init__(self, view: View, answer: Callable[[], str]) -> None:
        self._shown = Shown(view)
        self._answer = answer
        self._message = ""
        self._reasoning: list[str] = []
        self._kinds: dict[str, str] = {}  # request id → kind
        self._tokens = Tokens()
        self._steered = Steered()

    def feed(self, event: StreamEvent) -> list[Told]:
        """The wire events of one event: name and members."""
        self._steered.feed(event)
        return [told for seen in self._shown.of(event) for told in self._feed(seen)]

    def revised(self, events: Iterable[StreamEvent]) -> Told:
        """The newest message as a whole, for a reader that has a part of a text which its log has merged since."""
        said = (one.text for one in collect(events).messages if clean(one.id) == self._message)
        return "message.revised", {"message_id": self._message, "text": clean(next(said, ""))}

    def _feed(self, event: StreamEvent) -> list[Told]:
        match event:
            case MessageChunk() | Commentary():
                return [("message.delta", {"message_id": self._message, "delta": clean(event.text)})]
            case MessageStart():
                self._message = clean(event.message_id)
            case MessageRevised():
                told = {"message_id": clean(event.message_id), "text": clean(event.text)}
                return [("message.revised", told)]
            case ReasoningStart():
                self._reasoning = []
            case ReasoningChunk():
                self._reasoning.append(event.text)
            case ReasoningStop():
                text, self._reasoning = "".join(self._reasoning), []
                return [("reasoning.available", {"text": clean(text)})] if text.strip() else []
            case ToolCall() | InnerToolCall():
                return [_called(event)]
            case ToolResult() | InnerToolResult():
                return [_result(event)]
            case LongToolHint():
                call_id = clean(event.call_id) if isinstance(event, LongTool) else ""
                told = {"tool": clean(event.tool_name), "call_id": call_id, "seconds": event.duration}
                return [("tool.progress", told)]
            case Attachment():
                return [("attachment", _attached(event))]
            case PlanChanged():
                return [("plan.updated", {"items": clean([dict(item) for item in event.items])})]
            case SubagentStarted() | SubagentProgress() | SubagentFinished() | SubagentFailed():
                return [_subagent(event)]
            case GatewayNotice():
                return [_notice(event)]
            case Usage():
                self._tokens.add(event)
            case RequestOpened():
                self._kinds[event.request.id] = event.request.kind
                asked = clean(request_info(event.request))
                return [(f"{_word(event.request.kind)}.request", _flat(asked))]
            case RequestClosed():
                return [self._closed(event)]
            case TurnParked():
                waiting = [clean(request_info(one)) for one in event.requests]
                return [("run.waiting", {"requests": waiting})] if waiting else []
            case TurnFinished():
                return [self._end(event)]
        return []

    def _closed(self, event: RequestClosed) -> Told:
        word = _word(self._kinds.get(event.request_id, "request"))
        how = {"answered": "responded"}.get(event.how, event.how)
        return f"{word}.{how}", {"request_id": event.request_id, "choice": clean(event.choice)}

    def _end(self, event: TurnFinished) -> Told:
        told = {"output": clean(self._answer()), "usage": usage_of(self._tokens), **clean(self._steered.told())}
        if event.outcome == "success":
            return "run.completed", told
        if event.outcome == "cancelled":
            return "run.cancelled", told
        error = clean(event.message) or "The agent could not answer."
        return "run.failed", {**told, "error": error, "code": event.code or "failed"}


def _word(kind: str) -> str:
    return {"client_tool": "tool"}.get(kind, kind)


def _flat(asked: dict[str, Any]) -> dict[str, Any]:
    """A request with its id under its own name, and the command of an approval where api_server has it."""
    told = {("request_id" if name == "id" else name): value for name, value in asked.items()}
    command = asked["detail"].get("command")
    return {**told, "command": command} if isinstance(command, str) else told


def _called(event: ToolCall | InnerToolCall) -> Told:
    told: dict[str, Any] = {"tool": clean(event.tool_name), "call_id": clean(event.call_id)}
    told["arguments"] = clean(event.arguments) or "{}"
    if isinstance(event, InnerToolCall):
        return "tool.started", {**told, "parent_call_id": clean(event.parent_call_id)}
    return "tool.started", {**told, "preview": clean(event.preview or ""), "client": event.client}


def _result(event: ToolResult | InnerToolResult) -> Told:
    told: dict[str, Any] = {"call_id": clean(event.call_id), "duration": round(float(event.duration), 3)}
    told |= {"error": not event.ok, "output": clean(event.content), "cut": event.cut}
    if isinstance(event, InnerToolResult):
        return "tool.completed", {**told, "parent_call_id": clean(event.parent_call_id)}
    return "tool.completed", {**told, "tool": clean(event.tool_name), "status": event.status}


def _attached(event: Attachment) -> dict[str, Any]:
    names = ("message_id", "file_id", "url", "name", "mime", "size", "kind", "caption")
    return {name: clean(getattr(event, name)) for name in names}


def _notice(event: GatewayNotice) -> Told:
    told = {
        "kind": clean(event.kind),
        "text": clean(event.text),
        **({"extra": clean(event.extra)} if event.extra else {}),
    }
    return ("run.steered", {"text": clean(event.text)}) if event.kind == STEERED else ("notice", told)


STEERED = "steered"
"""The kind of the notice that a text was queued for the model."""


def _subagent(event: SubagentStarted | SubagentProgress | SubagentFinished | SubagentFailed) -> Told:
    who = event.subagent
    told: dict[str, Any] = {"subagent_id": clean(who.id), "name": clean(who.name), "goal": clean(who.goal)}
    if who.parent is not None:
        told["parent_id"] = clean(who.parent.id)
    match event:
        case SubagentProgress():
            return "subagent.progress", {**told, "step": clean(dict(event.steps[-1])) if event.steps else None}
        case SubagentFinished():
            return "subagent.completed", {**told, "summary": clean(event.summary), "duration": event.duration}
        case SubagentFailed():
            failed = {"error": clean(event.message), "code": event.code, "duration": event.duration}
            return "subagent.failed", {**told, **failed}
    return "subagent.started", told
