"""The vocabulary: what happens in a turn, told once for every door.

Hermes's own stream events (``gateway.stream_events``) plus frozen dataclasses for the facts that set lacks:
message ids, reasoning, tool results, usage, corrections and the end. Events say what happened, never how a
wire shows it. Nothing here does I/O or knows a protocol; the log that keeps them is ``log.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gateway.stream_events import (
    Commentary,
    GatewayNotice,
    LongToolHint,
    MessageChunk,
    MessageStop,
    ToolCallChunk,
    ToolCallFinished,
)

Outcome: TypeAlias = Literal["success", "cancelled", "failed"]
CallStatus: TypeAlias = Literal["ok", "error", "blocked", "skipped", "cancelled"]
AttachmentKind: TypeAlias = Literal["image", "audio", "video", "document"]
RequestKind: TypeAlias = Literal["approval", "clarify", "confirm", "client_tool"]
Closed: TypeAlias = Literal["answered", "expired", "cancelled"]


@dataclass(frozen=True)
class MessageStart:
    """The next ``MessageChunk`` belongs to this message. Doors open it lazily: it may stay without text."""

    message_id: str


@dataclass(frozen=True)
class ReasoningStart:
    """The model began to reason; ``message_id`` names this stretch of reasoning."""

    message_id: str


@dataclass(frozen=True)
class ReasoningChunk:
    """A delta of reasoning text."""

    text: str


@dataclass(frozen=True)
class ReasoningStop:
    """The stretch of reasoning is complete."""


@dataclass(frozen=True)
class ToolCall(ToolCallChunk):
    """A call that the model committed to: it is in the history now and will get exactly one result.

    ``call_id`` is the model's own id, ``arguments`` the raw JSON text, ``message_id`` the assistant message that
    holds every call of the step. ``client``: the client executes it, and its answer is the result.
    """

    call_id: str = ""
    arguments: str = "{}"
    message_id: str = ""
    client: bool = False


@dataclass(frozen=True)
class ToolResult(ToolCallFinished):
    """The result of a ``ToolCall`` as the model gets it.

    ``content`` may be cut to the configured length: ``cut`` is the number of characters left out. ``duration`` is
    in seconds.
    """

    call_id: str = ""
    content: str = ""
    message_id: str = ""
    status: CallStatus = "ok"
    cut: int = 0
    client: bool = False


@dataclass(frozen=True)
class InnerToolCall:
    """A tool that running code called (Hermes's ``execute_code``): shown, but not part of the history."""

    parent_call_id: str
    call_id: str
    tool_name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class InnerToolResult:
    """The end of an ``InnerToolCall``; ``duration`` in seconds."""

    parent_call_id: str
    call_id: str
    content: str = ""
    ok: bool = True
    duration: float = 0.0
    cut: int = 0


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call; absent counts are None. Totals include their parts (AG-UI TokenUsage)."""

    provider: str = ""
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


@dataclass(frozen=True)
class MessageRevised:
    """What the history keeps of a message differs from what was streamed; ``text`` is what it keeps.

    An empty ``text`` means that the history keeps nothing of it (an attempt that Hermes made again).
    """

    message_id: str
    text: str = ""


@dataclass(frozen=True)
class Attachment:
    """The agent sends a file. ``url`` is where its reader gets it; ``size`` in bytes, 0 when it is not known.

    ``message_id`` names the message that shows it.
    """

    message_id: str
    file_id: str
    url: str
    name: str
    mime: str = "application/octet-stream"
    size: int = 0
    kind: AttachmentKind = "document"
    caption: str = ""


@dataclass(frozen=True)
class Request:
    """Something a turn waits for that somebody outside must give. ``id`` is stable and answered at most once.

    ``choices`` are what may be answered; with ``free_text`` any text is an answer too. ``expires_at`` in seconds
    since the epoch, 0 for never. ``call_id`` is the tool call that waits, as on the wire; ``detail`` holds facts a
    client may show (the redacted command, a title).
    """

    id: str
    kind: RequestKind
    message: str = ""
    call_id: str = ""
    choices: tuple[str, ...] = ()
    free_text: bool = False
    expires_at: float = 0.0
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestOpened:
    """Somebody is asked. ``parks`` says whether the turn's worker waits for it."""

    request: Request
    parks: bool = True


@dataclass(frozen=True)
class RequestClosed:
    """The request is no longer open: answered (by whom, what was chosen), expired or cancelled."""

    request_id: str
    how: Closed
    choice: str = ""


@dataclass(frozen=True)
class TurnParked:
    """The worker waits now; these requests are open. Nothing follows until one is answered, expires or is cancelled."""

    requests: tuple[Request, ...] = ()


@dataclass(frozen=True)
class StateChanged:
    """The thread's shared state is ``state`` now. ``patch`` (RFC 6902) makes it of ``before``, where it can.

    Documents are shared, never changed in place, so that a reader may tell by identity which one it has. ``size``: of
    the patch, in bytes. ``dropped``: a long log gave the document up; a later event holds it.
    """

    state: Any
    patch: tuple[Mapping[str, Any], ...] = ()
    before: Any = None
    size: int = 0
    dropped: bool = False


@dataclass(frozen=True)
class PlanChanged:
    """The agent's list of things to do, whole: each with ``id``, ``content`` and ``status`` (pending, in_progress,
    completed, cancelled). ``message_id`` names the plan of this turn."""

    message_id: str
    items: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True)
class ReasoningSealed:
    """The provider's own form of a stretch of reasoning, which only it can read. ``value`` is never parsed."""

    message_id: str
    value: str


@dataclass(frozen=True)
class StepStarted:
    """The agent's loop begins another round, counted from 1: a request to the model and the tools that it asks for."""

    number: int


@dataclass(frozen=True)
class LongTool(LongToolHint):
    """A call that runs longer than the operator finds short; ``duration`` in seconds so far."""

    call_id: str = ""


@dataclass(frozen=True)
class Subagent:
    """One invocation of a subagent. ``call_id``: the tool call that made it, as on the wire; ``parent``: the subagent
    that made it, where one did. Its events name it whole, since they may come in a later turn than its first one."""

    id: str
    name: str
    goal: str = ""
    parent: Subagent | None = None
    call_id: str = ""


@dataclass(frozen=True)
class SubagentStarted:
    """A subagent was made. It may outlive its turn."""

    subagent: Subagent


@dataclass(frozen=True)
class SubagentProgress:
    """What a subagent has done: all its steps that are kept, oldest first; ``left_out`` older ones are not.

    A step has ``kind`` (``tool``, ``text``, ``refused``), ``text`` (what the tool is about, what was said, the refused
    command) and for a tool ``tool``, its name. Steps are shared between events, never changed.
    """

    subagent: Subagent
    steps: tuple[Mapping[str, str], ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class SubagentFinished:
    """It is through. ``summary`` is its answer, ``duration`` in seconds."""

    subagent: Subagent
    summary: str = ""
    duration: float = 0.0


@dataclass(frozen=True)
class SubagentFailed:
    """It ended without what it was asked for. ``code``: ``failed``, ``error``, ``timeout`` or ``interrupted``."""

    subagent: Subagent
    message: str = ""
    code: str = "failed"
    duration: float = 0.0


@dataclass(frozen=True)
class TurnFinished:
    """The last event of every log, exactly once. ``code`` and ``message`` are set when the turn failed."""

    outcome: Outcome = "success"
    code: str = ""
    message: str = ""


StreamEvent: TypeAlias = (
    MessageStart
    | MessageChunk
    | MessageStop
    | Commentary
    | ReasoningStart
    | ReasoningChunk
    | ReasoningStop
    | ToolCallChunk
    | ToolCallFinished
    | InnerToolCall
    | InnerToolResult
    | LongToolHint
    | GatewayNotice
    | Usage
    | MessageRevised
    | Attachment
    | RequestOpened
    | RequestClosed
    | TurnParked
    | StateChanged
    | PlanChanged
    | ReasoningSealed
    | StepStarted
    | SubagentStarted
    | SubagentProgress
    | SubagentFinished
    | SubagentFailed
    | TurnFinished
)

__all__ = [
    "Attachment",
    "AttachmentKind",
    "CallStatus",
    "Closed",
    "Commentary",
    "GatewayNotice",
    "InnerToolCall",
    "InnerToolResult",
    "LongTool",
    "LongToolHint",
    "MessageChunk",
    "MessageRevised",
    "MessageStart",
    "MessageStop",
    "Outcome",
    "PlanChanged",
    "ReasoningChunk",
    "ReasoningSealed",
    "ReasoningStart",
    "ReasoningStop",
    "Request",
    "RequestClosed",
    "RequestKind",
    "RequestOpened",
    "StateChanged",
    "StepStarted",
    "StreamEvent",
    "Subagent",
    "SubagentFailed",
    "SubagentFinished",
    "SubagentProgress",
    "SubagentStarted",
    "ToolCall",
    "ToolCallChunk",
    "ToolCallFinished",
    "ToolResult",
    "TurnFinished",
    "TurnParked",
    "Usage",
]
