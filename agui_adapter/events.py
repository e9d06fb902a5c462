"""StreamEvents → AG-UI: the translator of the main door.

Pure: events in, frames out, no I/O and no Hermes, so that any log can be replayed through it and any sequence
tested. It owns what is open on the wire, closes it on every path, and ends the stream exactly once
(AG-UI 1.0, ordering rules).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import orjson
from ag_ui.core import TokenUsage, aggregate_token_usage

from . import attachments
from .encode import Deltas, agui_deltas, clean, dumps, frame, numbered
from .interrupts import in_words, interrupt, interrupts
from .peers import MODERN, PROTOCOL_VERSION, Peer, readable
from .reasoning import Glimpse
from .state import MAX_OPERATIONS, diff, wire
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
from .subagents import SubagentEvent, Subagents

Message = dict[str, Any]
HIDDEN = "[hidden by the operator]"
NO_RESULT = "[no result]"
INNER_TOOLS = "hermes.inner_tools"  # the activity that shows what running code calls
PLAN = "hermes.plan"  # the activity that shows what the agent has to do


@dataclass(frozen=True)
class View:
    """What the operator lets clients see."""

    reasoning: Literal["full", "summary", "off"] = "full"
    tool_output: Literal["full", "names", "off"] = "full"
    steps: bool = False


@dataclass
class _Kept:
    """A message as the client holds it after this run; text as the list of its deltas."""

    id: str
    role: Literal["assistant", "tool", "user"] = "assistant"
    text: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    call_id: str = ""

    def message(self, held: str = "") -> Message | None:
        """As on the wire, where ``held`` at its end is not yet; None while there is nothing in it."""
        text = clean("".join(self.text).removesuffix(held))
        if self.role == "tool":
            return {"id": self.id, "role": "tool", "toolCallId": self.call_id, "content": text}
        if not text and not self.calls:
            return None
        message: Message = {"id": self.id, "role": self.role}
        if text:
            message["content"] = text
        if self.calls:
            message["toolCalls"] = self.calls
        return message


@dataclass
class _Inner:
    """What the client holds of the calls that one call made while it ran (an activity)."""

    id: str
    content: dict[str, Any]
    places: dict[str, int] = field(default_factory=dict)  # inner call id → index


class AguiStream:
    """One run's stream. ``start()`` once, ``feed(event)`` for each event; ``done`` after the terminal event.

    ``base`` are the client's own messages, restated in a snapshot when the history keeps something else than was
    streamed. ``prefix`` makes the ids that events do not bring; it must be unique within the thread. They have a dot
    where the tap's own ids have a dash, so the two never meet.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        prefix: str = "",
        peer: Peer = MODERN,
        view: View = View(),
        base: Sequence[Message] = (),
        open_calls: Iterable[str] = (),
        state: Any = None,
    ) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        self.done = False
        self._prefix = prefix or run_id
        self._peer = peer
        self._view = view
        self.base = base
        self._open_calls = tuple(open_calls)
        self._minted: Counter[str] = Counter()
        self._next_id = ""  # the id that MessageStart announced and no text has opened yet
        self._text: _Kept | None = None  # the open text message
        self._text_deltas = Deltas(b"", b"")
        self._reasoning = ""  # the open reasoning message
        self._reasoned: dict[str, str] = {}  # a stretch's id → its reasoning message, of which the client has something
        self._stretch = ""  # the id of the stretch that is told now
        self._glimpse = Glimpse()
        self._step = ""  # the open step
        self._reasoning_deltas = Deltas(b"", b"")
        self._kept: dict[str, _Kept] = {}
        self._used: set[str] = {str(message.get("id")) for message in base}
        self._calls: dict[str, bool] = dict.fromkeys(self._open_calls, False)  # call id on the wire → it has a result
        self._wire: dict[str, str] = {}  # an event's call id → the id on the wire: the same, unless it was taken
        self._old_calls = {call.get("id") for message in base for call in message.get("toolCalls") or ()}
        # A step's later calls may come in a later run (behind a client's call): they hang on the message that has it.
        self._old_steps = {str(message.get("id")) for message in base if message.get("toolCalls")}
        self._answered = {m.get("toolCallId") for m in base if m.get("role") == "tool"}
        self._requests: dict[str, Request] = {}  # open, though the worker does not wait for them
        self._plain: dict[int, str] = {}  # index → minted id, for calls that bring none
        self._step_message = ""
        self._inner: dict[str, _Inner] = {}
        self._files: dict[str, dict[str, Any]] = {}  # activity id → what it shows of a file
        self._old_plans = {str(message.get("id")) for message in base if message.get("activityType") == PLAN}
        self._plans: dict[str, tuple[str, dict[str, Any]]] = {}  # what the client holds of a plan, with its id there
        self._first_state = self.state = state  # the document as the client has it; None while it has none
        self._told_state = peer.bare_deltas  # a delta may come: this run has told the whole document, or need not
        self._usage: list[TokenUsage] = []
        self._revised = False
        self._activities = {str(message.get("id")) for message in base if message.get("role") == "activity"}
        self._subagents = Subagents(
            announced=peer.subagents,
            shows=view.tool_output,
            call_of=self._known_call,
            activity_id=lambda wish: wish if wish in self._activities else self._fresh(wish, "a"),
        )
        self._out: list[bytes] = []

    # -- in --------------------------------------------------------------------------------------------------

    def start(self) -> list[bytes]:
        """The first frame. ``RUN_STARTED`` echoes the ids that the client sent and names our own version."""
        return [
            frame(
                {
                    "type": "RUN_STARTED",
                    "threadId": self.thread_id,
                    "runId": self.run_id,
                    "protocolVersion": PROTOCOL_VERSION,
                }
            )
        ]

    def feed(self, event: StreamEvent) -> list[bytes]:
        """The frames of one event; none after the end."""
        if self.done:
            return []
        handler = _HANDLERS.get(type(event))
        if handler is None:
            return []
        self._out = []
        handler(self, event)
        return self._out

    def number(
        self,
        into: list[bytes],
        events: Sequence[StreamEvent | str],
        positions: Sequence[int],
        turn: bytes,
        before: int,
    ) -> int:
        """Add the frames of these events, each with its id (``encode.numbered``), those of deltas in a row as one.

        They end at these positions of a turn's log (``log.Batch``), and the reader stood at ``before``. Where it stands
        now: not behind this run's end.
        """
        at = 0
        while at < len(events):
            texts = [] if self._text is None else _texts(events, at)
            to = at + max(1, len(texts))
            made = self._text_deltas.numbered(turn, positions[at:to], texts)
            if made and self._text is not None:  # the hot path: nearly always all of them can be told at once
                self._text.text += texts
                into.append(made)
                before = positions[to - 1]
            else:
                for position, event in zip(positions[at:to], events[at:to], strict=True):
                    whole = MessageChunk(event) if isinstance(event, str) else event
                    into += numbered(self.feed(whole), turn, before, position)
                    before = position
                    if self.done:
                        return before
            at = to
        return before

    def feed_past_parks(self, event: StreamEvent) -> None:
        """For a reader of a whole turn: its runs end where it parks, the messages go on."""
        if not isinstance(event, TurnParked):
            self.feed(event)

    def fail(self, code: str, message: str) -> list[bytes]:
        """End the stream with an error of our own, if it has not ended."""
        return self.feed(TurnFinished("failed", code, message))

    def messages(self) -> list[Message]:
        """The client's messages and what this run added to them, in the client's order: results behind their call.

        Without reasoning and activities: a snapshot that holds none of them leaves the client's own as they are.
        """
        messages = [message for message in self.base if message.get("role") not in ("reasoning", "activity")]
        for kept in self._kept.values():
            message = kept.message(self._text_deltas.held if kept is self._text else "")
            if message is None:
                continue
            if kept.id in self._old_steps:
                messages = [_with_calls(m, kept.calls) if m["id"] == kept.id else m for m in messages]
                continue
            place = len(messages)
            if kept.role == "tool":
                place = next((i + 1 for i, m in enumerate(messages) if _calls(m, kept.call_id)), place)
                while place < len(messages) and messages[place]["role"] == "tool":
                    place += 1
            messages.insert(place, message)
        return messages

    def resync(self, events: Iterable[StreamEvent]) -> list[bytes]:
        """Start over from the whole log: close what is open and send what the client would have, as a snapshot.

        For a reader that fell behind so far that the log has merged what it missed.
        """
        if self.done:
            return []
        fresh = AguiStream(
            self.thread_id,
            self.run_id,
            prefix=self._prefix,
            peer=self._peer,
            view=self._view,
            base=self.base,
            open_calls=self._open_calls,
            state=self._first_state,
        )
        tail: list[bytes] = []
        for event in events:
            tail = fresh.feed(event)
            if fresh.done:
                break
        self._out = []
        self._stop_text()
        self._stop_reasoning()
        frames = self._out
        held, step, reasoned = self._subagents, self._step, self._reasoned
        self.__dict__.update(vars(fresh))
        frames += self.snapshot()
        self._out = []
        now, self._step = self._step, step
        self._begin_step(now)
        self._out += map(frame, self._subagents.catch_up(held))
        for inner in self._inner.values():
            self._emit("ACTIVITY_SNAPSHOT", messageId=inner.id, activityType=INNER_TOOLS, content=inner.content)
        for message_id, content in self._plans.values():
            self._emit("ACTIVITY_SNAPSHOT", messageId=message_id, activityType=PLAN, content=content)
        for message_id, content in self._files.items():
            self._emit("ACTIVITY_SNAPSHOT", messageId=message_id, activityType=attachments.ACTIVITY, content=content)
        if self.state is not self._first_state:
            self._out += self.state_snapshot(self.state)
        frames += self._out
        if self.done:
            frames.append(tail[-1])
        elif self._text is not None:
            # Opening a closed message again appends to it (client 1.0.0 and 0.0.59, measured).
            frames.append(frame({"type": "TEXT_MESSAGE_START", "messageId": self._text.id, "role": "assistant"}))
        # Reasoning is not in the snapshot: what comes of it now is a stretch of its own.
        self._out, self._reasoning, self._reasoned = [], "", reasoned
        return frames

    # -- text ------------------------------------------------------------------------------------------------

    def _on_start(self, event: MessageStart) -> None:
        self._stop_text()
        self._next_id = clean(event.message_id)

    def _on_chunk(self, event: MessageChunk) -> None:
        if event.text:
            self._open_text()
            assert self._text is not None
            self._text.text.append(event.text)
            self._send(self._text_deltas.frame(event.text))

    def _on_stop(self, event: MessageStop) -> None:
        self._stop_text()
        self._stop_reasoning()

    def _on_commentary(self, event: Commentary) -> None:
        self._stop_text()
        if event.text:
            self._on_chunk(MessageChunk(event.text))
            self._stop_text()

    def _open_text(self) -> None:
        if self._text is not None:
            return
        self._stop_reasoning()
        message_id = self._fresh(self._next_id, "m")
        self._next_id = ""
        self._text = self._kept.setdefault(message_id, _Kept(message_id))
        self._step_message = message_id
        self._text_deltas = agui_deltas("TEXT_MESSAGE_CONTENT", message_id)
        self._emit("TEXT_MESSAGE_START", messageId=message_id, role="assistant")

    def _stop_text(self) -> None:
        if self._text is not None:
            self._send(self._text_deltas.rest())
            self._emit("TEXT_MESSAGE_END", messageId=self._text.id)
            self._text = None

    def _whole(self, message_id: str, text: str, role: Literal["assistant", "user"] = "assistant") -> None:
        """A message that comes in one piece; id and text are clean."""
        self._kept[message_id] = _Kept(message_id, role, [text])
        self._emit("TEXT_MESSAGE_START", messageId=message_id, role=role)
        self._emit("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=text)
        self._emit("TEXT_MESSAGE_END", messageId=message_id)

    # -- reasoning -------------------------------------------------------------------------------------------

    def _on_reasoning_start(self, event: ReasoningStart) -> None:
        self._stop_reasoning()
        self._stretch = clean(event.message_id)
        if self._view.reasoning == "full":
            self._open_reasoning()

    def _on_reasoning(self, event: ReasoningChunk) -> None:
        shows = self._view.reasoning
        text = event.text if shows == "full" else self._glimpse.feed(event.text) if shows == "summary" else ""
        if text:
            self._open_reasoning()
            self._send(self._reasoning_deltas.frame(text))

    def _on_reasoning_stop(self, event: ReasoningStop) -> None:
        self._stop_reasoning()

    def _on_sealed(self, event: ReasoningSealed) -> None:
        """The provider's own form goes with the message that shows the stretch; Hermes has it in any case."""
        message_id = self._reasoned.get(clean(event.message_id))
        if message_id is not None and self._view.reasoning == "full":
            value = clean(event.value)
            self._emit("REASONING_ENCRYPTED_VALUE", subtype="message", entityId=message_id, encryptedValue=value)

    def _open_reasoning(self) -> None:
        if self._reasoning:
            return
        self._stop_text()
        self._reasoning = self._fresh(self._stretch, "r")
        if self._stretch:
            self._reasoned.setdefault(self._stretch, self._reasoning)
        self._reasoning_deltas = agui_deltas("REASONING_MESSAGE_CONTENT", self._reasoning)
        self._emit("REASONING_START", messageId=self._reasoning + "-span")
        self._emit("REASONING_MESSAGE_START", messageId=self._reasoning, role="reasoning")

    def _stop_reasoning(self) -> None:
        beginning, self._glimpse = self._glimpse.rest(), Glimpse()
        if beginning:
            self._open_reasoning()
            self._send(self._reasoning_deltas.frame(beginning))
        self._stretch = ""
        if self._reasoning:
            self._send(self._reasoning_deltas.rest())
            self._emit("REASONING_MESSAGE_END", messageId=self._reasoning)
            self._emit("REASONING_END", messageId=self._reasoning + "-span")
            self._reasoning = ""

    # -- tools -----------------------------------------------------------------------------------------------

    def _on_call(self, event: ToolCallChunk) -> None:
        self._stop_text()
        self._stop_reasoning()
        given = clean(event.call_id) if isinstance(event, ToolCall) else ""
        if given in self._wire or given in self._calls:
            return
        call_id = given if given and given not in self._old_calls else self._mint("c")
        if given:
            self._wire[given] = call_id
        else:
            self._plain[event.index] = call_id
        client = isinstance(event, ToolCall) and event.client
        if self._view.tool_output == "off" and not client:
            return
        if isinstance(event, ToolCall):
            arguments, parent = clean(event.arguments) or "{}", clean(event.message_id)
        else:
            arguments, parent = dumps(event.args or {}).decode(), ""
        if self._view.tool_output == "names" and not client:
            arguments = "{}"
        name = clean(event.tool_name)
        self._calls[call_id] = False
        parent = self._parent(parent)
        kept = self._kept.setdefault(parent, _Kept(parent))
        kept.calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
        self._emit("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, parentMessageId=parent)
        self._emit("TOOL_CALL_ARGS", toolCallId=call_id, delta=arguments)
        self._emit("TOOL_CALL_END", toolCallId=call_id)

    def _on_result(self, event: ToolCallFinished) -> None:
        content, message_id, given = "" if event.ok else "failed", "", ""
        if isinstance(event, ToolResult):
            content, message_id, given = _cut(event.content, event.cut), clean(event.message_id), clean(event.call_id)
        call_id = self._wire.get(given, given) if given else self._plain.pop(event.index, "")
        if self._calls.get(call_id, True):  # unknown, or it has its result
            return
        client = isinstance(event, ToolResult) and event.client
        if client and call_id in self._answered:  # the client's own message is the result
            self._calls[call_id] = True
            self._step_message = ""
            return
        self._stop_text()
        self._stop_reasoning()
        hidden = self._view.tool_output == "names" and not client
        self._result(call_id, HIDDEN if hidden else content, message_id)

    def _result(self, call_id: str, content: str, message_id: str) -> None:
        self._calls[call_id] = True
        self._step_message = ""
        message_id = self._fresh(message_id, "t")
        self._kept[message_id] = _Kept(message_id, "tool", [content], call_id=call_id)
        self._emit("TOOL_CALL_RESULT", messageId=message_id, toolCallId=call_id, content=content, role="tool")

    def _parent(self, wish: str) -> str:
        """The assistant message that a call hangs on: the step's text, else one of its own."""
        kept = self._kept.get(wish)
        mine = wish in self._old_steps or (kept is not None and kept.role == "assistant")
        if wish and (wish not in self._used or mine):
            self._used.add(wish)
            self._step_message = wish
        elif not self._step_message:
            self._step_message = self._mint("m")
        return self._step_message

    def _on_inner_call(self, event: InnerToolCall) -> None:
        if self._view.tool_output == "off":
            return
        call = {
            "id": clean(event.call_id),
            "name": clean(event.tool_name),
            "arguments": clean(event.arguments) if self._view.tool_output == "full" else "{}",
            "status": "running",
        }
        parent = clean(event.parent_call_id)
        inner = self._inner.get(parent)
        if inner is None:
            content = {"toolCallId": self._wire.get(parent, parent), "calls": [call]}
            inner = self._inner[parent] = _Inner(self._fresh(f"{parent}-inner", "a"), content)
            self._emit("ACTIVITY_SNAPSHOT", messageId=inner.id, activityType=INNER_TOOLS, content=content)
        else:
            inner.content["calls"].append(call)
            patch = [{"op": "add", "path": "/calls/-", "value": call}]
            self._emit("ACTIVITY_DELTA", messageId=inner.id, activityType=INNER_TOOLS, patch=patch)
        inner.places[call["id"]] = len(inner.content["calls"]) - 1

    def _on_inner_result(self, event: InnerToolResult) -> None:
        inner = self._inner.get(clean(event.parent_call_id))
        index = inner.places.get(clean(event.call_id)) if inner is not None else None
        if inner is None or index is None:
            return
        news: dict[str, Any] = {"status": "ok" if event.ok else "error", "seconds": clean(round(event.duration, 3))}
        if self._view.tool_output == "full":
            news["result"] = clean(_cut(event.content, event.cut))
        inner.content["calls"][index].update(news)
        # "add" replaces a member that is there (RFC 6902, 4.1).
        patch = [{"op": "add", "path": f"/calls/{index}/{name}", "value": value} for name, value in news.items()]
        self._emit("ACTIVITY_DELTA", messageId=inner.id, activityType=INNER_TOOLS, patch=patch)

    # -- state -----------------------------------------------------------------------------------------------

    def _on_state(self, event: StateChanged) -> None:
        """A delta where it applies to what the client has, else the whole document."""
        if event.dropped or event.state is self.state:
            return
        known = self.state is not None and self.state is event.before
        small = 0 < len(event.patch) <= MAX_OPERATIONS and all(operation["path"] for operation in event.patch)
        self.state = event.state
        if known and small and self._told_state:
            self._emit("STATE_DELTA", delta=orjson.Fragment(wire(list(event.patch))))
        else:
            self._out += self.state_snapshot(event.state)

    def state_snapshot(self, state: Any) -> list[bytes]:
        """The whole document."""
        self._told_state = True
        return [frame({"type": "STATE_SNAPSHOT", "snapshot": orjson.Fragment(wire(state))})]

    def _on_plan(self, event: PlanChanged) -> None:
        content = {"todos": clean([dict(item) for item in event.items])}
        known = self._plans.get(event.message_id)
        # A turn that goes on in another run has one plan: that of the run before, if its client sent it along.
        wish = clean(event.message_id)
        message_id = known[0] if known is not None else wish if wish in self._old_plans else self._fresh(wish, "a")
        self._plans[event.message_id] = message_id, content
        patch = diff(known[1], content) if known is not None else []
        if known is None or len(patch) > MAX_OPERATIONS:
            self._emit("ACTIVITY_SNAPSHOT", messageId=message_id, activityType=PLAN, content=content)
        elif patch:
            self._emit("ACTIVITY_DELTA", messageId=message_id, activityType=PLAN, patch=patch)

    # -- steps and subagents ---------------------------------------------------------------------------------

    def _on_step(self, event: StepStarted) -> None:
        if self._view.steps:
            self._begin_step(f"request {event.number}")

    def _begin_step(self, name: str) -> None:
        """The step that was open ends; "" begins none."""
        if name == self._step:
            return
        if self._step:
            self._emit("STEP_FINISHED", stepName=self._step)
        self._step = name
        if name:
            self._emit("STEP_STARTED", stepName=name)

    def _on_subagent(self, event: SubagentEvent) -> None:
        self._out += map(frame, self._subagents.feed(event))

    def _known_call(self, call_id: str) -> str:
        """A call's id on the wire, if the client has it."""
        call_id = self._wire.get(clean(call_id), clean(call_id))
        return call_id if call_id in self._calls or call_id in self._old_calls else ""

    def _close_beside(self) -> None:
        """What goes on beside the messages ends with the run."""
        self._out += map(frame, self._subagents.close())
        self._begin_step("")

    # -- the rest --------------------------------------------------------------------------------------------

    def _on_notice(self, event: GatewayNotice) -> None:
        value: dict[str, Any] = {"kind": event.kind, "text": event.text}
        if event.extra:
            value["extra"] = event.extra
        self._emit("CUSTOM", name="hermes.notice", value=value)
        if event.kind == "further_turn" and event.extra.get("messageId") and event.extra.get("text"):
            self._user(str(event.extra["messageId"]), str(event.extra["text"]))

    def _user(self, message_id: str, text: str) -> None:
        """What a user said while the turn ran, where it stands in the history."""
        self._stop_text()
        self._stop_reasoning()
        message_id, text = clean(message_id), clean(text)
        if message_id in self._used:
            return  # the client has it: it sent it itself
        self._used.add(message_id)
        self._whole(message_id, text, "user")

    def _on_long_tool(self, event: LongToolHint) -> None:
        value: dict[str, Any] = {"tool": event.tool_name, "seconds": clean(event.duration)}
        if isinstance(event, LongTool):
            call_id = self._known_call(event.call_id)
            if not call_id:
                return
            value["toolCallId"] = call_id
        self._emit("CUSTOM", name="hermes.long_tool", value=value)

    # -- waiting ---------------------------------------------------------------------------------------------

    def _on_request(self, event: RequestOpened) -> None:
        request = event.request
        if not event.parks:
            # Asked beside the turn (/background): shown at once, and an interrupt when this run ends.
            self._requests[request.id] = request
            self._emit("CUSTOM", name="hermes.request", value=self._shown(interrupt(request)))

    def _on_request_closed(self, event: RequestClosed) -> None:
        self._requests.pop(event.request_id, None)
        if event.how != "answered":
            self._emit("CUSTOM", name="hermes.request_closed", value={"id": event.request_id, "how": event.how})

    def _on_parked(self, event: TurnParked) -> None:
        """The run ends, the turn does not: an interrupt if a person is asked, else success with pending calls."""
        if not event.requests:
            return
        self._stop_text()
        self._stop_reasoning()
        self._snapshot()
        asked = self._interrupts(event.requests)
        self._ask_in_words(event.requests, asked)
        self._close_beside()
        outcome: dict[str, Any]
        if asked:
            outcome = {"type": "interrupt", "interrupts": asked}
        else:
            outcome = {"type": "success"}
            if self._peer.pending_tool_calls:
                # Exactly the calls that have no result yet, in order (AG-UI 1.0, frontend tools).
                outcome["pendingToolCallIds"] = [
                    call for call, answered in self._calls.items() if not answered and call not in self._answered
                ]
        self.done = True
        self._finished(outcome)

    def interrupted(self, asked: list[dict[str, Any]]) -> list[bytes]:
        """End the run with these interrupts and nothing else."""
        self._out = []
        self.done = True
        self._finished({"type": "interrupt", "interrupts": asked})
        return self._out

    def _ask_in_words(self, waiting: Iterable[Request], asked: Sequence[dict[str, Any]]) -> None:
        """For a peer that takes the outcome for a success: the question as a message, which the next one may answer.

        `on_interrupt` is what such a client's own code may hear (CopilotKit for LangGraph), and answer by
        `forwardedProps.command.resume`.
        """
        if self._peer.interrupts or not asked:
            return
        known = {clean(request.id): request for request in (*waiting, *self._requests.values())}
        for made in asked:
            self._step_message = ""
            self._whole(self._mint("m"), clean(in_words(known[clean(made["id"])])))
            self._emit("CUSTOM", name="on_interrupt", value=made)

    def _interrupts(self, waiting: Iterable[Request] = ()) -> list[dict[str, Any]]:
        """One for each open request, whether the worker waits for it or not."""
        # Ids as on the wire: what waits is often in both lists.
        asked = {clean(request.id): request for request in (*waiting, *self._requests.values())}
        return [self._shown(made) for made in interrupts(asked.values())]

    def _shown(self, made: dict[str, Any]) -> dict[str, Any]:
        """An interrupt that names a call only if the client has it: calls may be hidden."""
        call_id = clean(made.get("toolCallId", ""))
        call_id = self._wire.get(call_id, call_id)
        if call_id in self._calls:
            return {**made, "toolCallId": call_id}
        return {key: value for key, value in made.items() if key != "toolCallId"}

    def notice(self, name: str, value: Any) -> list[bytes]:
        """A ``CUSTOM hermes.*`` of the door's own."""
        return [frame({"type": "CUSTOM", "name": f"hermes.{name}", "value": value})]

    def _on_attachment(self, event: Attachment) -> None:
        """A message of its own with a link, behind an activity for clients that draw files themselves."""
        self._stop_text()
        self._stop_reasoning()
        self._step_message = ""
        message_id = self._fresh(clean(event.message_id), "m")
        content = clean(attachments.activity(event, message_id))
        activity_id = self._fresh(attachments.activity_id(message_id), "a")
        self._files[activity_id] = content
        self._emit("ACTIVITY_SNAPSHOT", messageId=activity_id, activityType=attachments.ACTIVITY, content=content)
        self._whole(message_id, clean(attachments.shown(event)))

    def _on_usage(self, event: Usage) -> None:
        self._usage.append(
            TokenUsage(
                provider=clean(event.provider) or None,
                model=clean(event.model) or None,
                input_tokens=_count(event.input_tokens),
                output_tokens=_count(event.output_tokens),
                reasoning_tokens=_count(event.reasoning_tokens),
                cached_input_tokens=_count(event.cached_input_tokens),
                cache_write_input_tokens=_count(event.cache_write_input_tokens),
            )
        )

    def _on_revised(self, event: MessageRevised) -> None:
        kept = self._kept.get(clean(event.message_id))
        if kept is not None and kept.role == "assistant":
            if self._text is kept:
                self._stop_text()
            kept.text = [event.text] if event.text else []
            self._revised = True

    def _on_end(self, event: TurnFinished) -> None:
        self._close()
        self._snapshot()
        self.done = True
        asked = self._interrupts() if event.outcome == "success" else []
        self._ask_in_words((), asked)
        if event.outcome == "failed":
            message = event.message if event.message.strip() else "The turn failed."
            self._emit("RUN_ERROR", message=message, code=event.code or "failed", **self._used_tokens())
        elif event.outcome == "success":
            self._finished({"type": "interrupt", "interrupts": asked} if asked else {"type": "success"})
        else:
            self._finished({"type": "cancelled"} if self._peer.cancelled_outcome else None)

    def _finished(self, outcome: dict[str, Any] | None) -> None:
        ended: dict[str, Any] = {"outcome": outcome} if outcome is not None else {}
        self._emit("RUN_FINISHED", threadId=self.thread_id, runId=self.run_id, **ended, **self._used_tokens())

    def _used_tokens(self) -> dict[str, Any]:
        if not self._usage:
            return {}
        return {"usage": [_totals(entry) for entry in aggregate_token_usage(self._usage)]}

    def snapshot(self) -> list[bytes]:
        """The client's messages, restated."""
        return [frame({"type": "MESSAGES_SNAPSHOT", "messages": readable(self.messages(), self._peer)})]

    def _snapshot(self) -> None:
        if self._revised:
            self._out += self.snapshot()

    def _close(self) -> None:
        self._stop_text()
        self._stop_reasoning()
        for call_id, answered in list(self._calls.items()):
            if not answered:
                self._result(call_id, NO_RESULT, "")
        self._close_beside()

    def _emit(self, kind: str, **members: Any) -> None:
        self._out.append(frame({"type": kind, **members}))

    def _send(self, made: bytes) -> None:
        if made:
            self._out.append(made)

    def _mint(self, letter: str) -> str:
        while True:
            self._minted[letter] += 1
            made = f"{self._prefix}.{letter}{self._minted[letter]}"
            if made not in self._used and made not in self._calls and made not in self._old_calls:
                self._used.add(made)
                return made

    def _fresh(self, wish: str, letter: str) -> str:
        """The wished id if nothing else has it, else a minted one: ids are unique within the thread.

        None of the form of those that are minted is given away: after a resync other ones are minted than without it.
        """
        mine = wish.startswith(f"{self._prefix}.") and wish[len(self._prefix) + 2 :].isdecimal()
        if wish and wish not in self._used and not mine:
            self._used.add(wish)
            return wish
        return self._mint(letter)


def _with_calls(message: Message, calls: Sequence[Message]) -> Message:
    return {**message, "toolCalls": [*message["toolCalls"], *calls]}


def _calls(message: Message, call_id: str) -> bool:
    return any(call.get("id") == call_id for call in message.get("toolCalls") or ())


def _texts(events: Sequence[StreamEvent | str], at: int) -> list[str]:
    """The deltas of text that follow each other from there on."""
    texts: list[str] = []
    for event in islice(events, at, None):
        if not isinstance(event, str):
            break
        texts.append(event)
    return texts


def _cut(content: str, cut: int) -> str:
    return f"{content}\n[cut: {cut} more characters]" if cut else content


def _count(tokens: int | None) -> int | None:
    """A count that the protocol takes, or none: some providers report nonsense."""
    return tokens if tokens is not None and 0 <= tokens < 2**40 else None


def _totals(entry: TokenUsage) -> dict[str, Any]:
    """One entry of the sum. Parts that exceed their total (a call told one and not the other) are left out."""
    usage: dict[str, Any] = entry.model_dump(by_alias=True, exclude_none=True)
    for part, whole in (("cachedInput", "input"), ("cacheWriteInput", "input"), ("reasoning", "output")):
        if usage.get(f"{part}Tokens", 0) > usage.get(f"{whole}Tokens", 2**53):
            del usage[f"{part}Tokens"]
    if "inputTokens" in usage and "outputTokens" in usage:
        usage["totalTokens"] = usage["inputTokens"] + usage["outputTokens"]
    return usage


_HANDLERS: dict[type, Callable[[AguiStream, Any], None]] = {
    MessageStart: AguiStream._on_start,
    MessageChunk: AguiStream._on_chunk,
    MessageStop: AguiStream._on_stop,
    Commentary: AguiStream._on_commentary,
    ReasoningStart: AguiStream._on_reasoning_start,
    ReasoningChunk: AguiStream._on_reasoning,
    ReasoningStop: AguiStream._on_reasoning_stop,
    ToolCall: AguiStream._on_call,
    ToolCallChunk: AguiStream._on_call,
    ToolResult: AguiStream._on_result,
    ToolCallFinished: AguiStream._on_result,
    InnerToolCall: AguiStream._on_inner_call,
    InnerToolResult: AguiStream._on_inner_result,
    GatewayNotice: AguiStream._on_notice,
    LongToolHint: AguiStream._on_long_tool,
    LongTool: AguiStream._on_long_tool,
    ReasoningSealed: AguiStream._on_sealed,
    StepStarted: AguiStream._on_step,
    SubagentStarted: AguiStream._on_subagent,
    SubagentProgress: AguiStream._on_subagent,
    SubagentFinished: AguiStream._on_subagent,
    SubagentFailed: AguiStream._on_subagent,
    Usage: AguiStream._on_usage,
    MessageRevised: AguiStream._on_revised,
    Attachment: AguiStream._on_attachment,
    RequestOpened: AguiStream._on_request,
    RequestClosed: AguiStream._on_request_closed,
    StateChanged: AguiStream._on_state,
    PlanChanged: AguiStream._on_plan,
    TurnParked: AguiStream._on_parked,
    TurnFinished: AguiStream._on_end,
}
