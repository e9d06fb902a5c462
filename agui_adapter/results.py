"""What a stretch of a turn came to, for doors that answer with a whole instead of a stream. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from .attachments import shown
from .stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageRevised,
    MessageStart,
    ReasoningChunk,
    ReasoningStart,
    Request,
    StreamEvent,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)

End = Literal["running", "parked", "success", "cancelled", "failed"]


@dataclass
class Said:
    """One message of the agent's, as far as it is; ``calls``: ids of the calls that it holds."""

    id: str
    text: str = ""
    calls: list[str] = field(default_factory=list)


@dataclass
class Called:
    """One call. ``result`` is None while it has none, ``status`` as ``ToolResult``'s then; ``client``: the client
    executes it. ``cut``: characters left out of the result."""

    id: str
    name: str
    arguments: str
    client: bool = False
    result: str | None = None
    status: str = ""
    cut: int = 0


@dataclass
class Tokens:
    """Tokens of all model calls together. ``input`` and ``output`` include their parts."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cached: int = 0
    calls: int = 0
    model: str = ""

    @property
    def total(self) -> int:
        """Both."""
        return self.input + self.output

    def add(self, usage: Usage) -> None:
        """One more model call."""
        self.input += usage.input_tokens or 0
        self.output += usage.output_tokens or 0
        self.reasoning += usage.reasoning_tokens or 0
        self.cached += usage.cached_input_tokens or 0
        self.calls += 1
        self.model = usage.model or self.model


@dataclass
class Result:
    """``outcome``: ``parked`` with ``requests`` that are open, ``failed`` with code and message, ``running`` if the
    stretch ends before the turn waits or ends. ``text`` is the answer, ``messages`` all that was said, in order;
    ``notices`` what was told beside it, with attachments that are shown in ``messages`` too."""

    thread_id: str = ""
    turn_id: str = ""
    outcome: End = "running"
    code: str = ""
    message: str = ""
    messages: list[Said] = field(default_factory=list)
    reasoning: str = ""
    tokens: Tokens = field(default_factory=Tokens)
    calls: list[Called] = field(default_factory=list)
    requests: tuple[Request, ...] = ()
    notices: list[GatewayNotice] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The answer: what was said behind the newest step with calls of the server's own, or all if nothing was."""
        said = [one for one in self.messages if one.text.strip()]
        own = {call.id for call in self.calls if not call.client}
        last = max((n for n, one in enumerate(said) if not own.isdisjoint(one.calls)), default=-1)
        return joined(one.text for one in said[last + 1 :] or said)

    @property
    def open_calls(self) -> list[Called]:
        """Calls that the client must execute, in order."""
        waiting = {request.call_id for request in self.requests if request.kind == "client_tool"}
        return [call for call in self.calls if call.id in waiting]


def joined(texts: Iterable[str]) -> str:
    """Messages as one text."""
    return "\n\n".join(text.strip("\n") for text in texts if text.strip())


def collect(events: Iterable[StreamEvent]) -> Result:
    """Fold events; of a stretch behind a wait, only what that stretch brought."""
    result = Result()
    messages: dict[str, Said] = {}
    calls: dict[str, Called] = {}
    current = ""

    def said(message_id: str) -> Said:
        if message_id not in messages:
            messages[message_id] = Said(message_id)
            result.messages.append(messages[message_id])
        return messages[message_id]

    pieces: dict[str, list[str]] = {}
    for event in events:
        kind = type(event)
        if kind is MessageChunk:
            pieces.setdefault(said(current).id, []).append(event.text)  # type: ignore[union-attr]
        elif isinstance(event, MessageStart):
            current = event.message_id
        elif isinstance(event, ReasoningChunk):
            result.reasoning += event.text
        elif isinstance(event, ReasoningStart):
            result.reasoning += "\n\n" if result.reasoning else ""
        elif isinstance(event, Commentary):
            pieces.setdefault(said(current).id, []).append(event.text)
        elif isinstance(event, MessageRevised):
            pieces[said(event.message_id).id] = [event.text]
        elif isinstance(event, ToolCall):
            said(event.message_id).calls.append(event.call_id)
            call = calls[event.call_id] = Called(event.call_id, event.tool_name, event.arguments, event.client)
            result.calls.append(call)
        elif isinstance(event, ToolResult):
            if event.call_id not in calls:  # announced in an earlier stretch
                calls[event.call_id] = Called(event.call_id, event.tool_name, "", event.client)
                result.calls.append(calls[event.call_id])
            call = calls[event.call_id]
            call.result, call.status, call.cut = event.content, event.status, event.cut
        elif isinstance(event, Usage):
            result.tokens.add(event)
        elif isinstance(event, Attachment):
            result.attachments.append(event)
            pieces[said(event.message_id).id] = [shown(event)]
        elif isinstance(event, GatewayNotice):
            result.notices.append(event)
        elif isinstance(event, TurnParked):
            result.outcome, result.requests = "parked", event.requests
        elif isinstance(event, TurnFinished):
            result.outcome, result.code, result.message = event.outcome, event.code, event.message
            result.requests = ()
        elif result.outcome == "parked":
            result.outcome, result.requests = "running", ()
    for message_id, texts in pieces.items():
        messages[message_id].text = "".join(texts)
    return result
