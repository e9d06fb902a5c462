"""What the seam reports of one turn → StreamEvents in the turn's log. Our state only: no Hermes object is kept.

The seam calls these methods from the agent's threads: text and reasoning on a per-request thread, the rest on the
worker thread, results of concurrent tools on pool threads; a lock orders them. The rules (what commits a step, what
makes streamed text void, how an end is judged) come from Hermes 0.19's conversation loop, as noted at each.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from .piece import Piece
from .secrets_hold import SecretsHold
from .session import Turn
from .stream import (
    Attachment,
    CallStatus,
    Commentary,
    GatewayNotice,
    InnerToolCall,
    InnerToolResult,
    LongTool,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
    StepStarted,
    ToolCall,
    ToolCallChunk,
    ToolResult,
    TurnFinished,
    Usage,
)

_FURTHER = "This message came too late for the answer above. It is answered next: do not send it again."
_NO_RESULT = "[no result: the turn ended before this tool did]"
_THINK = re.compile(r"<(think|thinking|reasoning|REASONING_SCRATCHPAD)>.*?(</\1>|\Z)", re.DOTALL)


def squash(text: str) -> str:
    """Text without white space: a recovered stream joins two pieces without any, and the final text is stripped."""
    return "".join(text.split())


def _same(one: str, other: str) -> bool:
    return one == other or squash(one) == squash(other)


def without_thinking(text: str) -> str:
    """An assistant content without inline reasoning blocks."""
    return _THINK.sub("", text)


@dataclass(frozen=True)
class Call:
    """A tool call as the model's answer carries it: the model's id, the name to show, the raw JSON arguments."""

    id: str
    name: str
    arguments: str
    client: bool = False


@dataclass(frozen=True)
class Secrets:
    """How secrets are kept out: of a text, and of a call's arguments or its result."""

    redact: Callable[[str], str]
    hide: Callable[[str], str]


@dataclass
class _Step:
    """What the model has sent since the last committed step."""

    pieces: list[Piece] = field(default_factory=list)
    kept: int = 0  # this many pieces are in the history already (a cut answer that is being continued)
    content: str | None = None  # what the history keeps of this step's text
    answered: bool = False  # post_api_request came
    calls: list[Call] = field(default_factory=list)
    stretch: str = ""  # the newest stretch of reasoning
    sealed: str = ""  # the provider's own form of it, until it is known whether the step is kept


@dataclass(frozen=True)
class Failure:
    """The last error of the provider: code for the wire, sentence for a person."""

    code: str
    message: str


class Tap:
    """Feeds one turn's log. Everything after ``stop()`` is ignored (a cancelled worker may still write)."""

    def __init__(
        self,
        turn: Turn,
        *,
        max_result_chars: int,
        shown: Callable[[str], str] = lambda text: text,
        secrets: Secrets | None = None,
    ) -> None:
        self.turn = turn
        self._log = turn.log
        self._log.bring = self._bring
        self._noted: deque[str] = deque()  # deltas of text that are not in the log yet
        self._secrets = secrets  # `shown` leaves them out too
        self._thoughts: SecretsHold | None = None
        self._shown = shown  # a text as a person sees it: what only tells Hermes to send a file is not for them
        self._max = max_result_chars
        self._lock = threading.RLock()
        self._live = True
        self._count = 0
        self._requests = 0
        self._open: Piece | None = None
        self._reasoning = False
        self._step = _Step()
        self._pending: dict[str, Call] = {}  # by wire id, calls without a result
        self._held: dict[str, ToolCall] = {}  # by wire id, calls that are not announced yet
        self._wire_ids: dict[str, list[str]] = {}  # the model's id → the ids on the wire, this step
        self._last_calls: list[tuple[Call, str]] = []  # the newest step's, each with its id on the wire
        self._finals: list[str] = []
        self.late_inputs: list[str] = []  # ids of user messages that further turns of the cycle answer
        self.agent_turns = 0
        self.open_turns = 0
        self.interrupted = False
        self.completed = False
        self.failure: Failure | None = None
        self._spoke = False
        self.attached = False  # a file was sent

    @property
    def spoke(self) -> bool:
        """Text or calls are in the log, not only notices."""
        self._bring()
        return self._spoke

    # -- agent turns -----------------------------------------------------------------------------------------

    def begin(self, text: str = "", *, aside: bool = False) -> None:
        """An agent turn starts (``pre_llm_call``) with this user text. A cycle may hold several.

        ``aside``: nobody said it; Hermes itself reports, of a subagent's end for one.
        """
        with self:
            self.agent_turns += 1
            self.open_turns = 1
            self.interrupted = self.completed = False
            self.failure = None
            # What an agent turn that ended without a word left open.
            self._stop_text()
            self._stop_reasoning()
            self._close_calls(_NO_RESULT)
            self._step = _Step()
            if self._live and self.agent_turns > 1 and not aside:
                message_id = self._late_id(text)
                self.late_inputs.append(message_id)
                extra = {"messageId": message_id, "text": text, "resend": False}
                self._append(GatewayNotice("further_turn", _FURTHER, extra))

    def _late_id(self, text: str) -> str:
        """The message that the user's text of a further turn is: the client's own, where it has told its id."""
        # What was steered in several pieces comes as one text; the first piece names it.
        given = next((mine for piece, mine in self.turn.steered_ids.items() if text.startswith(piece)), "")
        return given or self._mint("u")

    def end(self, *, completed: bool, interrupted: bool) -> None:
        """The agent turn ended in order (``on_session_end``)."""
        with self:
            self.open_turns = 0
            self.completed, self.interrupted = completed, interrupted

    def tell_end(self) -> None:
        """A plain answer to a stateless request is whole: its log ends here (``on_session_end``), before Hermes has
        done its own bookkeeping of a session that goes with the answer.

        For one agent turn that ended in order with a text and called nothing: nothing can follow that its caller reads.
        """
        with self:
            turn, said = self.turn, self._finals[-1:]
            plain = self.agent_turns == 1 and not turn.thread.call_ids and not turn.media and any(map(str.strip, said))
            ended = self.completed and not self.interrupted and self.failure is None and not turn.stopping
            if self._live and turn.thread.passing and plain and ended:
                self._append(TurnFinished("success"))
                self._live = False

    def stop(self) -> None:
        """Nothing more will be written; every call that was announced gets its result first."""
        with self:
            self._close_calls(_NO_RESULT)
            self._live = False

    # -- text ------------------------------------------------------------------------------------------------

    def text(self, delta: str) -> None:
        """A delta of the answer. Per-request thread. The hot path: Hermes parses its stream on this thread, and every
        line that runs between two of its deltas makes that slower. So it is only noted here, unless it is waited for.
        """
        self._noted.append(delta)
        if len(self._noted) > self._log.patience:
            self._bring()

    def reason(self, delta: str) -> None:
        """A delta of reasoning. Per-request thread."""
        with self:
            if not self._live or not delta:
                return
            if not self._reasoning:
                self._stop_text()
                self._reasoning = True
                self._step.stretch = self._mint("r")
                self._append(ReasoningStart(self._step.stretch))
                self._thoughts = self._new_hold()
            if self._thoughts is not None:
                delta = self._thoughts.feed(delta)
            if delta:
                self._log.add(ReasoningChunk(delta))

    def interim(self, text: str, already_streamed: bool) -> None:
        """The visible text of a step that goes on with tools, before it is committed."""
        with self:
            if not self._live:
                return
            self._step.content = text
            if not already_streamed and not self._streamed():
                self._stop_reasoning()
                piece = self._start()
                piece.text.append(text)
                self._append(Commentary(self._shown(text)))
                self._open = None

    def commentary(self, text: str) -> None:
        """Complete text from Hermes's own events: a message of its own unless it was streamed."""
        with self:
            if self._live and text.strip() and not _same(text, self._streamed()):
                self._stop_text()
                self._stop_reasoning()
                self._spoke = True
                self._append(MessageStart(self._mint("m")))
                self._append(Commentary(self._redact(text)))

    def reply(self, text: str) -> None:
        """Complete text that is the answer of a cycle without an agent turn (a command's reply, a pairing code)."""
        with self:
            if self._live and text.strip():
                self._stop_text()
                self._stop_reasoning()
                self._spoke = True
                self._append(MessageStart(self._mint("m")))
                self._append(MessageChunk(self._redact(text)))
                self._append(MessageStop(final=False))

    def plain_call(self, event: ToolCallChunk) -> None:
        """A tool start from Hermes's own events, which bring no id: it is minted, and the call shown."""
        with self:
            if self._live:
                self.committed([Call(self._mint("c"), event.tool_name, json.dumps(event.args or {}, default=str))])

    def new_id(self, letter: str) -> str:
        """An id of this turn's own."""
        with self:
            return self._mint(letter)

    def attach(self, file: Attachment) -> None:
        """The agent sends a file."""
        with self:
            if self._live:
                self._stop_text()
                self._stop_reasoning()
                self.attached = True
                self._append(file)

    def said(self, part: str) -> bool:
        """Whether an answer of this turn holds this text."""
        with self:
            return any(part in text for text in self._finals)

    def notice(self, kind: str, text: str, /, **extra: object) -> None:
        """Something to tell beside the answer."""
        with self:
            if self._live and text.strip():
                self._append(GatewayNotice(kind, self._redact(text), extra))

    # -- steps -----------------------------------------------------------------------------------------------

    def begin_request(self) -> None:
        """The agent's loop begins another round (``step_callback``)."""
        with self:
            if self._live:
                self._requests += 1
                self._append(StepStarted(self._requests))

    def answered(self, content: str, calls: Sequence[Call], usage: Usage | None, sealed: str = "") -> None:
        """The model's answer of this request is whole (``post_api_request``); its calls are not final yet.

        ``sealed``: its reasoning as only the provider can read it.
        """
        with self:
            if not self._live:
                return
            self._stop_reasoning()
            step = self._step
            step.answered = True
            step.calls = list(calls)
            step.content = without_thinking(content)
            step.sealed = sealed
            if usage is not None:
                self._append(usage)

    def committed(self, calls: Sequence[Call], errors: Sequence[tuple[Call, str]] = ()) -> None:
        """The step is in the history and its tools run next (``stream_delta_callback(None)``).

        ``errors``: calls of the step that will not run, with the result that the model gets. Client calls are
        announced at once; a server call behind one runs after its answer and is announced when it does.
        """
        with self:
            if not self._live:
                return
            step = self._step
            if not calls and not errors:
                self._stop_text()  # a stop without tools: the final text settles the step
                return
            self._settle(self._shown(step.content if step.content is not None else self._streamed()))
            self._stop_reasoning()
            self._seal()
            self._spoke = True
            ordered = _in_order(step.calls, [*calls, *(call for call, _ in errors)])
            parent = step.pieces[-1].message_id if step.pieces else self._mint("m")
            self._last_calls = []
            self._wire_ids = {}
            behind = False
            for index, call in enumerate(ordered):
                wire = self._wire_id(call)
                self._last_calls.append((call, wire))
                self._pending[wire] = call
                behind = behind or call.client
                self._held[wire] = ToolCall(
                    tool_name=call.name,
                    index=index,
                    call_id=wire,
                    arguments=(call.arguments if call.client else self._hide(call.arguments)) or "{}",
                    message_id=parent,
                    client=call.client,
                )
                if call.client or not behind:
                    self._announce(wire)
            for refused, message in errors:
                wire = next(wire for call, wire in self._last_calls if call is refused)
                self._finish(wire, refused.name, message, "error")
            self._step = _Step()

    def next_request(self, results: Sequence[tuple[str, str, str | None]], names: frozenset[str]) -> None:
        """A loop iteration opens (``step_callback``).

        ``results``: (name, arguments, result) of the newest step in the history; ``names``: the tools that exist.
        A step that names an unknown tool enters the history without being committed (conversation_loop.py, invalid
        tool calls): it is announced here with the errors the model gets. Calls that ended nowhere (skipped,
        malformed) get their result. Any other uncommitted step was dropped and is made again.
        """
        with self:
            if not self._live:
                return
            if self._pending and len(results) == len(self._last_calls):
                for (call, wire), (_, _, content) in zip(self._last_calls, results, strict=True):
                    if content is not None:
                        self._finish(wire, call.name, content, "error")
            step = self._step
            if step.calls and step.answered:
                shown = [(name, arguments) for name, arguments, _ in results]
                mine = [(call.name, call.arguments) for call in step.calls]
                broken = any(call.name not in names for call in step.calls)
                known = [(call.name, call.arguments) for call, _ in self._last_calls]
                if shown == mine and (broken or mine != known):
                    pairs = zip(step.calls, results, strict=True)
                    self.committed([], [(call, content or "error") for call, (_, _, content) in pairs])
                    return
            step.answered, step.calls, step.content, step.sealed = False, [], None, ""

    def text_kept(self, content: str) -> None:
        """The answer was cut, ``content`` of it is in the history, and Hermes asks for the rest.

        The rest goes on in the same message, unless what was streamed had to be corrected.
        """
        with self:
            step, going = self._step, self._open
            if not self._live or not any(piece.text for piece in step.pieces[step.kept :]):
                return
            self._settle(self._shown(content), goes_on=True)
            step.kept = len(step.pieces)
            if going is not None and self._open is going:
                before = going.before + going.joined()
                self._open = Piece(going.message_id, before=before, begun=True, secrets=self._new_hold())
                step.pieces.append(self._open)

    def result(
        self, call_id: str, name: str, content: str, *, status: CallStatus = "ok", duration: float = 0.0
    ) -> None:
        """A call's result as the model gets it; the first one counts."""
        with self:
            waiting = [one for one in self._wire_ids.get(call_id, ()) if one in self._pending]
            # One id may stand for several calls: the tool's name tells them apart as far as it can.
            waiting.sort(key=lambda one: self._pending[one].name != name)
            if waiting:
                self._finish(waiting[0], name, content, status, duration)

    def starts(self, call_id: str) -> None:
        """A call runs now, by the model's id."""
        with self:
            for wire in self._wire_ids.get(call_id, ()):
                if self._live and wire in self._pending:
                    self._announce(wire)
                    return

    def wire_ids(self, call_id: str) -> list[str]:
        """The ids on the wire of a call of the newest step, by the model's id (which may stand for several)."""
        with self:
            return list(self._wire_ids.get(call_id, ()))

    def runs_long(self, call_id: str, name: str, seconds: float) -> None:
        """A call, by its id on the wire, has been running for so long. On the loop."""
        with self:
            if self._live and call_id in self._pending:
                self._append(LongTool(name, seconds, call_id))

    def results(self, found: dict[str, str]) -> None:
        """Results of calls that an interrupt skipped, by the model's id, as the history has them."""
        with self:
            for call, wire in self._last_calls:
                content = found.get(call.id)
                if content is not None:
                    self._finish(wire, call.name, content, "skipped")

    def inner_call(self, parent: str, name: str, arguments: str) -> str:
        """Running code called a tool; returns the id for ``inner_result``."""
        with self:
            call_id = self._mint("i")
            if self._live:
                self._append(InnerToolCall(self._parent(parent), call_id, name, self._hide(arguments)))
            return call_id

    def inner_result(self, parent: str, call_id: str, content: str, ok: bool, duration: float) -> None:
        """The end of an inner call; ``duration`` in seconds."""
        with self:
            if self._live:
                content = self._hide(content)
                short = content[: self._max]
                self._append(
                    InnerToolResult(self._parent(parent), call_id, short, ok, duration, len(content) - len(short))
                )

    # -- the end ---------------------------------------------------------------------------------------------

    def final(self, text: str) -> None:
        """The answer after all transforms (``post_llm_call``)."""
        with self:
            if not self._live:
                return
            self._stop_reasoning()
            self._seal()
            text = self._shown(text)
            self._finals.append(text)
            self._settle(text, final=True)
            self._stop_text()
            self._step = _Step()

    def answer(self, text: str) -> None:
        """The answer as the gateway delivers it: nothing new after ``final``, unless the gateway added to it."""
        with self:
            if not self._live:
                return
            text = self._shown(text)
            for known in self._finals:
                if _same(text, known):
                    return
                if known.strip() and known.strip() in text:
                    before, _, after = text.partition(known.strip())
                    self.notice("footer", "\n".join(part for part in (before.strip(), after.strip()) if part))
                    return
            if not self._finals:
                self.final(text)

    def has_said(self, text: str) -> bool:
        """Whether this is a final answer that the client has."""
        with self:
            return any(_same(text, known) for known in self._finals)

    def drop_uncommitted(self, kept: Sequence[str]) -> None:
        """The turn failed: text that is not in the history is void. ``kept``: what the history has of this turn."""
        with self:
            self._stop_text()
            known = {squash(text) for one in kept for text in (one, self._shown(one))}
            for piece in self._step.pieces[self._step.kept :]:
                if self._live and piece.text and squash(piece.joined()) not in known:
                    self._append(MessageRevised(piece.message_id, piece.before))

    # -- inside ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Nobody else is at the tap, and what was noted is in the log. Any thread; within itself too."""
        self._lock.acquire()
        try:
            if self._noted:
                self._take_in()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _bring(self) -> None:
        if self._noted:
            with self:
                pass

    def _take_in(self) -> None:
        """Put into the log what was noted, as it may be shown."""
        deltas = [delta for _ in range(len(self._noted)) if (delta := self._noted.popleft())]
        if not self._live or not deltas:
            return
        piece = self._open
        if piece is None:
            # Hermes puts an empty line before text that follows a tool; here that is a message of its own.
            while deltas and not (first := deltas[0].lstrip("\n")):
                del deltas[0]
            if not deltas:
                return
            deltas[0] = first
            piece = self._start()
        told = piece.feed(deltas)
        if told:
            self._log.add_texts(told)

    def _start(self) -> Piece:
        self._stop_reasoning()
        piece = self._open = Piece(self._mint("m"), secrets=self._new_hold())
        self._step.pieces.append(piece)
        self._spoke = True
        self._append(MessageStart(piece.message_id))
        return piece

    def _new_hold(self) -> SecretsHold | None:
        return None if self._secrets is None else SecretsHold(self._secrets.redact)

    def _redact(self, text: str) -> str:
        return text if self._secrets is None else self._secrets.redact(text)

    def _hide(self, text: str) -> str:
        return text if self._secrets is None else self._secrets.hide(text)

    def _streamed(self) -> str:
        return "".join(piece.joined() for piece in self._step.pieces)

    def _settle(self, content: str, *, final: bool = False, goes_on: bool = False) -> None:
        """Make what the client holds of this step equal to what the history keeps of it.

        ``final``: the content repeats what was kept of a cut answer. ``goes_on``: leave right text open.
        """
        step = self._step
        for piece in step.pieces:
            piece.drop()
        fresh = [piece for piece in step.pieces[step.kept :] if piece.text]
        kept = squash("".join(piece.joined() for piece in step.pieces[: step.kept]))
        if final and kept:
            rest = _behind(content, kept)
            if rest is None:  # another plugin has changed all of it
                fresh = [replace(piece, before="") for piece in step.pieces if piece.text]
            else:
                content = rest
        have = "".join(piece.joined() for piece in fresh)
        if _same(content, have):
            if not goes_on:
                self._stop_text()
            return
        if not fresh or (len(fresh) == 1 and self._open is fresh[0] and content.startswith(have)):
            more = content[len(have) :]
            if squash(more):
                piece = self._open or self._start()
                piece.text.append(more)
                self._append(MessageChunk(more))
            self._stop_text()
            return
        self._stop_text()
        for piece in fresh[:-1]:
            self._append(MessageRevised(piece.message_id, piece.before))
        self._append(MessageRevised(fresh[-1].message_id, fresh[-1].before + content.strip("\n")))

    def _stop_text(self) -> None:
        piece, self._open = self._open, None
        if piece is not None:
            rest = piece.rest()
            if rest:
                self._append(MessageChunk(rest))
            self._append(MessageStop(final=False))

    def _stop_reasoning(self) -> None:
        if self._reasoning:
            self._reasoning = False
            rest = self._thoughts.rest() if self._thoughts is not None else ""
            if rest:
                self._log.add(ReasoningChunk(rest))
            self._append(ReasoningStop())

    def _seal(self) -> None:
        """Reasoning may be told only behind the answer that it led to (chat_completion_helpers.py), so not before."""
        sealed, self._step.sealed = self._step.sealed, ""
        if sealed and self._step.stretch:
            self._append(ReasoningSealed(self._step.stretch, sealed))

    def _close_calls(self, content: str) -> None:
        for wire, call in list(self._pending.items()):
            self._finish(wire, call.name, content, "cancelled")

    def _finish(self, wire: str, name: str, content: str, status: CallStatus, duration: float = 0.0) -> None:
        """The result of a call by its id on the wire, if it has none yet."""
        if not self._live or wire not in self._pending:
            return
        self._announce(wire)
        call = self._pending.pop(wire)
        content = content if call.client else self._hide(content)
        self._append(
            ToolResult(
                tool_name=name,
                duration=duration,
                ok=status == "ok",
                call_id=wire,
                content=content[: self._max],
                message_id=self._mint("t"),
                status=status,
                cut=max(0, len(content) - self._max),
                client=call.client,
            )
        )

    def _announce(self, wire: str) -> None:
        held = self._held.pop(wire, None)
        if held is not None:
            self._append(held)

    def _wire_id(self, call: Call) -> str:
        """The model's own id, unless it is missing or the thread has it already (some providers repeat ids)."""
        thread = self.turn.thread
        wire = call.id
        if not wire or wire in thread.call_ids or (call.client and wire in thread.client_call_ids):
            wire = self._mint("c")
        thread.call_ids.add(wire)
        if call.client:
            thread.client_call_ids.add(wire)
        self._wire_ids.setdefault(call.id, []).append(wire)
        return wire

    def _parent(self, call_id: str) -> str:
        return (self._wire_ids.get(call_id) or [call_id])[0]

    def _mint(self, letter: str) -> str:
        self._count += 1
        return f"{self.turn.id}-{letter}{self._count}"

    def _append(self, event: object) -> None:
        self._log.add(event)


def _behind(content: str, squashed: str) -> str | None:
    """What follows in ``content`` behind a beginning that is ``squashed`` but for white space; None without it."""
    if not squash(content).startswith(squashed):
        return None
    left = len(squashed)
    for index, char in enumerate(content):
        if left == 0:
            return content[index:]
        left -= not char.isspace()
    return ""


def _in_order(offered: Sequence[Call], chosen: Sequence[Call]) -> list[Call]:
    """The chosen calls in the order that the model gave them. Names may be repaired, ids missing or repeated."""
    left = list(chosen)
    ordered: list[Call] = []
    for match in (
        next((call for call in left if call == one), None) or next((call for call in left if call.id == one.id), None)
        for one in offered
    ):
        if match is not None:
            left.remove(match)
            ordered.append(match)
    return ordered + left
