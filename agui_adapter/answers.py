"""A run that answers: which open requests its `resume` entries and tool messages mean, and what becomes of them.

Everything is checked before anything is done: one wrong answer leaves all of them open. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from .errors import AguiError
from .events import AguiStream
from .inputs import RunInput
from .interrupts import interrupts, is_human
from .principal import Principal
from .requests import DENY, Answer, Pending, Requests, read_answer
from .rights import check_answer
from .session import Segment, Thread, Turn
from .state import same
from .stream import Request, ToolCall, ToolResult
from .tools import content_of

if TYPE_CHECKING:
    from .adapter import AguiAdapter

_GONE = (
    "This question is no longer open: it was answered, or the gateway has restarted since. Nothing was run for it. "
    "Send a message to go on."
)


@dataclass
class Answers:
    """What a request answers. ``message_ids``: the tool messages among it; ``unknown``: ids that name no request."""

    pairs: list[tuple[Pending, Answer]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    uncovered: tuple[Request, ...] = ()  # all that are open, when the answers leave one of them out

    @property
    def fresh(self) -> list[tuple[Pending, Answer]]:
        """Those whose request is still open."""
        return [(pending, answer) for pending, answer in self.pairs if pending.closed is None]


@dataclass
class Follow:
    """The turn to read, from where, and what the door says first."""

    turn: Turn
    position: int
    segment: Segment
    notices: list[tuple[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] | None = None  # a snapshot to begin with
    state: Any = None  # the thread's document, and whether the client must be told it
    tells_state: bool = False


def collect(requests: Requests, thread: Thread, asked: RunInput, by: Principal) -> Answers:
    """Match a request's answers with what the thread has asked. Raises AguiError 422 for a wrong payload, and 403 for
    an answer that the principal may not give."""
    turns = list(thread.turns.values())
    found = Answers()
    covered: set[str] = set()
    for entry in asked.resume:
        pending = requests.find(turns, entry["interruptId"])
        if pending is None or not is_human(pending.request):
            found.unknown.append(entry["interruptId"])
            continue
        covered.add(pending.request.id)
        answer = read_answer(pending.request, entry.get("payload"), cancelled=entry.get("status") == "cancelled")
        found.pairs.append((pending, answer))
    legacy = None if asked.resume else _legacy_answer(requests, turns, asked)
    if legacy is not None:
        covered.add(legacy[0].request.id)
        found.pairs.append(legacy)
    elif asked.forwarded.asks_resume and not asked.resume:
        found.unknown.append("command.resume")
    tools, _ = asked.tail()
    for message in tools:  # a message for another call is none: CopilotKit makes up a result for an interrupt's call
        pending = requests.find_call(turns, message["toolCallId"])
        if pending is not None:
            found.pairs.append((pending, tool_answer(message)))
            found.message_ids.append(message["id"])
    for pending, answer in found.fresh:
        check_answer(pending.request, answer, by)
    if covered:
        told = {p.request.id: p.request for fresh, _ in found.fresh for p in _told(requests, fresh.turn)}
        if not told.keys() <= covered:
            found.uncovered = tuple(told.values())
    return found


def _legacy_answer(requests: Requests, turns: list[Turn], asked: RunInput) -> tuple[Pending, Answer] | None:
    """What ``forwardedProps.command.resume`` answers, which names no question: the only one that is open.

    Raises AguiError 409 when there are several.
    """
    if not asked.forwarded.asks_resume:
        return None
    waiting = [p for turn in turns for p in requests.of_turn(turn, only_open=True) if is_human(p.request)]
    if len(waiting) > 1:
        names = ", ".join(pending.request.id for pending in waiting)
        message = f"command.resume does not say which question it answers. Open are {names}: answer by resume."
        raise AguiError(409, "several_open", message)
    if not waiting:
        return None
    (pending,) = waiting
    payload = asked.forwarded.resume
    if isinstance(payload, str):
        try:  # such clients send JSON as text
            known = orjson.loads(payload)
        except orjson.JSONDecodeError:
            known = None
        if isinstance(known, dict | bool):
            payload = known
        elif (typed := typed_answer(pending.request, payload)) is not None:
            return pending, typed
    return pending, read_answer(pending.request, payload)


def _told(requests: Requests, turn: Turn) -> list[Pending]:
    """What a person is asked and was told when the last run ended: of what came beside it since, no client knows."""
    return [
        pending
        for pending in requests.of_turn(turn, only_open=True)
        if is_human(pending.request) and not (pending.beside and pending.opened > turn.parked_at)
    ]


def _more_than_text(message: dict[str, Any]) -> dict[str, Any]:
    """What a tool message says beside a plain text, which is all that Hermes keeps; not with data of its own in it."""
    content = message["content"]
    if not isinstance(content, str) and any((part.get("source") or {}).get("type") == "data" for part in content):
        return {}
    error = {"error": message["error"]} if message.get("error") else {}
    return {"content": content, **error} if error or not isinstance(content, str) else {}


def tool_answer(message: dict[str, Any]) -> Answer:
    """A tool message of the client as an answer."""
    content = message["content"]
    if isinstance(content, str):
        return Answer(text=content, error=message.get("error") or "")
    return Answer(parts=tuple(content), error=message.get("error") or "")


def apply(adapter: AguiAdapter, thread: Thread, asked: RunInput, found: Answers, by: Principal) -> Follow:
    """Give the answers and say what to read then. Raises AguiError 409 for a request that another answer closed."""
    requests = adapter.requests
    if not found.fresh:
        return _again(requests, asked, found, by)
    turn = found.fresh[0][0].turn
    position = turn.parked_at if requests.parked(turn) else turn.log.last
    # Begun before the answers, whose events another reader sees as part of this run.
    follow = Follow(turn, position, turn.begin_run(position, asked.run_id, asked.peer, asked.messages))
    # Before the answers, which let the worker go on: the model gets it with the result of what it waited for.
    follow.state, follow.tells_state = tell_agent(adapter, turn, asked)
    for message in asked.tail()[0]:
        turn.answered_by[message["toolCallId"]] = message["id"]
        if more := _more_than_text(message):
            turn.answered_with[message["toolCallId"]] = more
    with requests.together():
        for pending, answer in found.pairs:
            try:
                requests.answer(pending, answer, by)
            except AguiError as error:
                if pending.closed == "expired":  # before this request, or just now: the caller is told which won
                    _tell_expired(follow, asked, pending)
                else:
                    value = {"id": pending.request.id, "code": error.code, "message": error.message}
                    follow.notices.append(("request_closed", value))
        requests.still_parked(turn)
    return follow


def tell_agent(adapter: AguiAdapter, turn: Turn, asked: RunInput) -> tuple[Any, bool]:
    """The client's context and state as a run brings them to a turn that goes on; what changed is told to the model.

    Returns the thread's document, and whether the client must be told it.
    """
    thread = turn.thread
    state, tells = thread.document.adopt(asked.state, turn=turn)
    text = thread.document.news(asked.context if asked.context != thread.context else "")
    if text and adapter.steer(turn, text):
        turn.steered_text = text
        thread.context = asked.context or thread.context
        thread.document.model_knows()
    return state, tells


def _again(requests: Requests, asked: RunInput, found: Answers, by: Principal) -> Follow:
    """All of them are closed: the same answer again reads what followed it; a late one is told so."""
    newest = max((pending for pending, _ in found.pairs), key=lambda pending: pending.position)
    turn, position = newest.turn, newest.position
    follow = Follow(turn, position, turn.begin_run(position, asked.run_id, asked.peer, asked.messages))
    follow.state = turn.state_at(position)
    follow.tells_state = follow.state is not None and not same(asked.state, follow.state)
    for pending, answer in found.pairs:
        if pending.closed == "expired":
            _tell_expired(follow, asked, pending)
        else:
            requests.answer(pending, answer, by)
    _take_back(follow, asked)
    return follow


def _take_back(follow: Follow, asked: RunInput) -> None:
    """A client that has a part of what is told again holds it no more when it comes: a snapshot without it is first."""
    told = {
        name
        for event in follow.turn.log.events(after=follow.position)
        for name in (getattr(event, "message_id", ""), getattr(event, "call_id", "") if type(event) is ToolCall else "")
        if name
    }
    messages = follow.messages or asked.messages
    kept = []
    for message in messages:
        calls = [call for call in message.get("toolCalls") or () if call["id"] not in told]
        if message["id"] not in told or calls:
            kept.append({**message, "toolCalls": calls} if message.get("toolCalls") else message)
    if kept != messages:
        follow.messages = kept


def _tell_expired(follow: Follow, asked: RunInput, pending: Pending) -> None:
    """The run says so first; the history has Hermes's own result for a call, not what the client sent too late."""
    request = pending.request
    follow.notices.append(("request_expired", {"id": request.id, "kind": request.kind, "toolCallId": request.call_id}))
    if request.kind == "client_tool":
        results = {event.call_id: event.content for event in pending.turn.log.events() if isinstance(event, ToolResult)}
        follow.messages = [
            {**message, "content": results.get(request.call_id, message["content"])}
            if message["role"] == "tool" and message["toolCallId"] == request.call_id
            else message
            for message in follow.messages or asked.messages
        ]


def typed_answer(request: Request, text: str, *, commands_only: bool = False) -> Answer | None:
    """What a typed message answers, as on every platform of the gateway: any text a question, its commands the rest.

    For clients that know no interrupts: ``/approve [session|always]``, ``/deny [reason]``, ``/always``, ``/cancel``.
    """
    if request.kind == "clarify":
        return None if commands_only else Answer(text=text)
    word, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if request.kind == "approval":
        choice = {"/approve": rest.lower() or "once", "/deny": DENY}.get(word.lower(), "")
        return Answer(choice=choice, text=rest if choice == DENY else "") if choice in request.choices else None
    if request.kind == "confirm":
        choice = {"/approve": "once", "/always": "always", "/cancel": "cancel"}.get(word.lower(), "")
        return Answer(choice=choice) if choice in request.choices else None
    return None


async def late_results(adapter: AguiAdapter, thread: Thread, asked: RunInput) -> list[dict[str, Any]]:
    """Tool messages for client calls that nobody waits for any more, with content that the history does not have.

    After a restart, that is: Hermes has ended such a call with a result of its own then. Mostly there are none, and
    nothing is looked up.
    """
    turns = list(thread.turns.values())
    late = [
        message
        for message in asked.tail()[0]
        if adapter.requests.find_call(turns, message["toolCallId"]) is None and late_id(message) not in thread.accepted
    ]
    if late:
        names, taken = _call_names(asked), await asyncio.to_thread(adapter.server_tools)
        late = [message for message in late if names.get(message["toolCallId"]) not in taken]
    if late:
        history = await adapter.archive.messages(thread)
        known = {m["toolCallId"]: m["content"] for m in history if m["role"] == "tool"}
        late = [message for message in late if known.get(message["toolCallId"]) != _text(message)]
    return list({late_id(message): message for message in late}.values())


def late_id(message: dict[str, Any]) -> str:
    """The id of the user message that a late result became: the same one however often, and under whatever id of its
    own, a client sends it."""
    digest = hashlib.sha256(_text(message).encode("utf-8", "replace")).hexdigest()
    return f"{message['toolCallId']}-late-{digest[:8]}"


def _text(message: dict[str, Any]) -> str:
    answer = tool_answer(message)
    return content_of(answer.text, answer.error, answer.parts)[0]


def _call_names(asked: RunInput) -> dict[str, str]:
    calls = [call for message in asked.messages for call in message.get("toolCalls") or []]
    return {call["id"]: call["function"]["name"] for call in calls}


def late_text(asked: RunInput, message: dict[str, Any]) -> str:
    """What the model is told of a result that came when nobody waited for it."""
    name = _call_names(asked).get(message["toolCallId"], "unknown")
    return f"[Late result of the client tool {name}, call {message['toolCallId']}]\n{_text(message)}"


def nothing_open() -> AguiError:
    """The error for answers to questions that nobody knows."""
    return AguiError(409, "request_unknown", _GONE)


def reinterrupt(stream: AguiStream, requests: tuple[Request, ...]) -> list[bytes]:
    """An answer that leaves an open question out does nothing: the run ends with all of them again (AG-UI 1.0)."""
    return [*stream.start(), *stream.interrupted(interrupts(requests))]
