"""The seam: everything that touches Hermes's runner, agents, hook arguments and stores. Written for 0.19.0.

One ``Bridge`` an adapter. Hooks and middleware arrive here from the plugin entry for *every* agent of the process;
what is not a turn of ours is left alone (accepted by the agent's own turn id, see ``_pre_llm_call``). Nothing is
patched: callbacks are attributes that Hermes offers, set for a turn and cleared after it.
"""

from __future__ import annotations

import contextvars
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import files
from ..requests import Pending
from ..state import StateError
from ..state_text import READ, STATE_TOOL_NAMES, STATE_TOOLS, answer_error, answer_read, answer_set, changes_of
from ..tap import Call, Tap
from . import ask, crew, media, memory
from .facts import TODO, Facts
from .history import is_aside
from .objects import (
    as_json,
    calls_of,
    cut_answer,
    failure_of,
    is_error,
    is_kept,
    maybe_text,
    sealed_of,
    session_key_here,
    shown_call,
    text_of,
    tool_names,
    tool_results,
    unknown_calls,
    usage_of,
)
from .overrides import override
from .redaction import redact

if TYPE_CHECKING:
    from .bridge import Bridge
    from .observe import Watched, Watcher

logger = logging.getLogger("hermes_agui")

_bridges: list[Bridge] = []
_attached: dict[str, _Attachment] = {}  # Hermes's turn id → attachment
_inside: contextvars.ContextVar[_Inside | None] = contextvars.ContextVar("agui_inside_tool", default=None)
_children: dict[str, _Child] = {}  # a subagent's session id, and its turn's → the subagent


@dataclass(frozen=True)
class _Child:
    """A subagent that runs. ``session``: the id that it began with; a compaction that rotates (``compression.in_place``
    off) gives its session another one in mid-turn, while its turn keeps its id."""

    parent: _Attachment
    session: str


@dataclass(frozen=True)
class _Inside:
    """The tool call that this thread runs in."""

    attachment: _Attachment | Watched
    call_id: str
    name: str


_given: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()  # agent → tools of ours that it holds


@dataclass(eq=False)
class _Attachment:
    """One agent turn that is tapped: Hermes's agent and our tap."""

    bridge: Bridge
    tap: Tap
    agent: Any
    turn_id: str
    message: Any = None  # the assistant message of the newest answer: its calls are final when it is committed
    offered: list[Call] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)  # tool.completed facts, for the callback that follows
    replaced: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # callback → ours, and what was there
    client_names: list[str] = field(default_factory=list)  # client tools that the agent has been given
    client_calls: dict[str, list[Pending]] = field(default_factory=dict)  # the model's call id → announced, not run
    stale: frozenset[threading.Thread] = frozenset()  # threads of earlier requests: what they still bring is not ours
    asking: int = 0  # the number of a thread that is none of them: looking is dear, for each delta
    state_names: list[str] = field(default_factory=list)  # the state tools that the agent has been given
    facts: Facts | None = None  # what is told in the shared state, if the operator lets it
    text_alone: bool = False  # its answer is there, and the gateway will send no file with it
    take_back: Callable[[], None] | None = None  # undoes what the client asked of this turn's agent

    # -- callbacks on the agent (per-request thread: delta, reason; worker thread: the rest) ----------------

    def delta(self, text: str | None) -> None:
        if text is None:
            try:
                self.commit()
            except Exception:
                logger.exception("agui: a step was not told")  # Hermes swallows what its callbacks raise
                raise
        elif threading.get_ident() == self.asking or self.is_ours():
            self.tap.text(text)

    def reason(self, text: str) -> None:
        if threading.get_ident() == self.asking or self.is_ours():
            self.tap.reason(text)

    def is_ours(self) -> bool:
        """Whether this thread brings what this turn has asked for. No stale thread can have its number later: they
        were all there before it."""
        if threading.current_thread() in self.stale:
            return False
        self.asking = threading.get_ident()
        return True

    def commit(self) -> None:
        message, self.message = self.message, None
        calls = calls_of(message)
        errors = unknown_calls(self.offered, calls, tool_names(self.agent))
        self.offered = []
        shown = [replace(shown_call(call), client=call.name in self.client_names) for call in calls]
        self.tap.committed(shown, errors)
        self.announce([call for call in shown if call.client])

    def announce(self, calls: list[Call]) -> None:
        """Client calls can be answered from their announcement on, in any order."""
        self.client_calls = {}
        seconds = self.bridge.client_tool_seconds
        for call in calls:
            if call.id not in self.client_calls:
                self.client_calls[call.id] = [
                    ask.open_client_call(self.bridge.requests, self.tap.turn, wire, call.name, seconds)
                    for wire in self.tap.wire_ids(call.id)
                ]
                self.write_state(call)

    def write_state(self, call: Call) -> None:
        """A client tool that declares what it writes changes the state with its arguments, before it has run."""
        turn = self.tap.turn
        pairs = next((tool.writes for tool in turn.client_tools if tool.name == call.name), ())
        if not pairs:
            return
        try:
            turn.thread.document.write(turn, pairs, json.loads(call.arguments or "{}"))
            self.bridge.keep_state(turn)
        except ValueError as error:  # StateError too
            self.tap.notice("state_not_written", f"The state was not changed by {call.name}: {error}")

    def starts(self, call_id: str) -> None:
        self.tap.starts(call_id)

    def clarify(self, question: Any, choices: Any = None) -> Any:
        """Hermes 0.22 gives a list of questions and takes their answers (tools/clarify_tool.py); before, one text."""
        inside = _inside.get()
        wires = self.tap.wire_ids(inside.call_id) if inside is not None else []
        requests, turn, call_id = self.bridge.requests, self.tap.turn, wires[0] if wires else ""
        if isinstance(question, list):
            return ask.ask_questions(requests, turn, call_id, question)
        return ask.ask_clarify(requests, turn, call_id, str(question), choices)

    def offer(self) -> None:
        """Give the agent this turn's client tools and the state tools, and take back those of an earlier turn."""
        turn, before = self.tap.turn, _given.get(self.agent, [])
        tools = (*(STATE_TOOLS if turn.thread.document.offered else ()), *turn.client_tools)
        if before or tools:
            given = _given[self.agent] = ask.offer(self.agent, tools, before)
            self.state_names = [name for name in given if name in STATE_TOOL_NAMES]
            self.client_names = [name for name in given if name not in STATE_TOOL_NAMES]

    def interim(self, text: str, *, already_streamed: bool = False) -> None:
        self.tap.interim(text, already_streamed)

    def complete(self, call_id: str, name: str, args: Any, result: Any) -> None:
        told, self.told = self.told, {}
        self.tap.result(
            call_id or "",
            name,
            text_of(result),
            status="error" if told.get("is_error") else "ok",
            duration=float(told.get("duration") or 0.0),
        )
        if name in TODO and self.facts is not None:
            self.facts.todos(text_of(result))

    def progress(self, kind: str, name: Any = None, preview: Any = None, args: Any = None, **facts: Any) -> None:
        if kind == "tool.completed":
            self.told = facts
        elif kind.startswith(crew.PREFIX):
            if self.bridge.crew is not None:
                crew.progress(self.bridge.crew, kind, name, preview, facts)
            if kind == crew.COMPLETE:  # the hook of its end may name another session (``_Child``)
                _subagent_ended(str(facts.get("child_session_id") or ""), str(facts.get("status") or ""))

    def step(self, count: int, results: Any) -> None:
        newest = [
            (str(item.get("name")), str(item.get("arguments")), maybe_text(item.get("result")))
            for item in results or []
            if isinstance(item, dict)
        ]
        cut = cut_answer(self.agent)
        if cut is not None:
            self.tap.text_kept(cut)
        self.offer()  # an MCP refresh between two requests rebuilds the agent's list
        self.tap.next_request(newest, tool_names(self.agent))
        self.tap.begin_request()
        self.message, self.offered = None, []

    # -- attach and detach ----------------------------------------------------------------------------------

    def attach(self) -> None:
        agent = self.agent
        # A request that was interrupted may be made again by its own thread (chat_completion_helpers.py, _call: the
        # mark it looks for is cleared with the turn's end) and would stream into this turn. Each request has an
        # unnamed thread of its own, and this turn has made none yet.
        alive = {thread for thread in threading.enumerate() if thread.name.startswith("Thread-")}
        self.stale = frozenset(alive - {threading.current_thread()})
        ours = {
            "stream_delta_callback": _chain(agent.stream_delta_callback, self.delta),
            "reasoning_callback": self.reason,
            "tool_complete_callback": self.complete,
            "tool_progress_callback": _chain(agent.tool_progress_callback, self.progress),
            "step_callback": _chain(agent.step_callback, self.step),
            "interim_assistant_callback": self.interim,
            "clarify_callback": self.clarify,
        }
        for name, callback in ours.items():
            self.replaced[name] = (callback, getattr(agent, name, None))
            setattr(agent, name, callback)
        self.offer()
        if self.tap.turn.overrides:
            self.take_back, refused = override(agent, self.tap.turn.overrides)
            if refused:
                text = f"The model's API does not take {' and '.join(refused)} from Hermes; it was left out."
                self.tap.notice("override_ignored", text, names=list(refused))

    def detach(self) -> None:
        """Give back what was replaced: no other turn is watched, and an idle agent keeps no turn's log alive."""
        _attached.pop(self.turn_id, None)
        for name, (callback, before) in self.replaced.items():
            if getattr(self.agent, name, None) is callback:
                setattr(self.agent, name, before)
        self.replaced.clear()
        given = _given.pop(self.agent, None)
        if given:
            ask.offer(self.agent, (), given)
        take_back, self.take_back = self.take_back, None
        if take_back is not None:
            take_back()


def _chain(theirs: Callable[..., Any] | None, ours: Callable[..., None]) -> Callable[..., Any]:
    """Theirs first, then ours; an earlier one of ours is replaced, not wrapped again."""
    theirs = getattr(theirs, "_agui_inner", theirs)
    if theirs is None or isinstance(getattr(theirs, "__self__", None), _Attachment):
        return ours
    inner = theirs

    def both(*args: Any, **kwargs: Any) -> Any:
        value = inner(*args, **kwargs)
        ours(*args, **kwargs)
        return value

    both._agui_inner = inner  # type: ignore[attr-defined]
    return both


# -- hooks -------------------------------------------------------------------------------------------------------


def on_hook(name: str, kwargs: dict[str, Any]) -> Any:
    """Entry of every plugin hook, on whatever thread Hermes fires it. Returns the hook's value, mostly None."""
    if name == "pre_llm_call":
        return _pre_llm_call(kwargs)
    if name in ("pre_approval_request", "post_approval_response"):
        return _approval(name, kwargs)
    if name == "subagent_start":
        _subagent_started(kwargs)
        return None
    if name == "subagent_stop":
        session = str(kwargs.get("child_session_id") or "")
        child = _children.get(session)
        if child is not None and child.parent.bridge.crew is not None:
            crew.stopped(child.parent.bridge.crew, kwargs)
        _subagent_ended(session, str(kwargs.get("child_status") or ""))
        return None
    attachment = _attached.get(str(kwargs.get("turn_id") or ""))
    if attachment is None:
        if name == "post_tool_call":
            _refused_in_subagent(kwargs)
        elif name in ("api_request_error", "post_api_request"):
            _subagent_requested(name, kwargs)
        watcher = _watcher()
        if watcher is not None:
            watcher.heard(name, kwargs)
        return None
    handler = _HOOKS.get(name)
    if handler is not None:
        handler(attachment, kwargs)
    return None


def _pre_llm_call(kwargs: dict[str, Any]) -> dict[str, str] | None:
    """An agent turn starts, with the session's context bound; is it one of ours?

    Background reviews, ``/background``, delegation and cron fire the same hook, some with the user's own session key:
    only the session's cached agent, in this very turn, counts.
    """
    key = session_key_here()
    turn_id = str(kwargs.get("turn_id") or "")
    child = _children.get(str(kwargs.get("session_id") or ""))
    if child is not None:
        _children[turn_id] = child
        return None
    for bridge in tuple(_bridges):
        tap = bridge.taps.get(key)
        if tap is None:
            continue
        agent = bridge.cached_agent(key)
        if agent is None or getattr(agent, "_current_turn_id", None) != turn_id:
            return None
        attachment = _Attachment(bridge, tap, agent, turn_id, facts=bridge.facts_of(tap.turn, agent))
        _attached[turn_id] = attachment
        bridge.attachments.setdefault(key, []).append(attachment)
        said = text_of(kwargs.get("user_message"))
        tap.begin(said, aside=is_aside(said))
        if tap.turn.media:
            for kind, text in media.trouble(said):
                tap.notice(kind, text)
        memory.scope(agent, tap.turn.memory or key)
        attachment.attach()
        if tap.turn.stopping:  # it was asked to end before there was an agent, or between two of its agent turns
            agent.interrupt()
        if tap.turn.thread.shared:  # the other chat of its session may have had a turn while this one waited
            tap.turn.thread.last_row = bridge.last_row(str(kwargs.get("session_id") or ""))
        if attachment.facts is not None:
            attachment.facts.begin()
        context = tap.turn.hand_over()
        if context and _has_images(kwargs):
            # Hermes drops what a hook says beside native image parts, and keeps the gateway's own notes
            # (turn_context.py, append_notes_to_multimodal_content).
            notes = getattr(agent, "_gateway_turn_context_notes", "") or ""
            agent._gateway_turn_context_notes = f"{notes}\n\n{context}" if notes else context
            return None
        return {"context": context} if context else None
    watcher = _watcher()
    if watcher is not None:
        watcher.begins(key, kwargs)
    return None


def _watcher() -> Watcher | None:
    """What watches the other sessions of this process, if the operator lets it."""
    return next((bridge.watcher for bridge in tuple(_bridges) if bridge.watcher is not None), None)


def _owner(session_key: str) -> Bridge | None:
    """The adapter that this session is of, if it is one of ours."""
    return next((bridge for bridge in tuple(_bridges) if bridge.owns(session_key)), None)


def _approval(name: str, kwargs: dict[str, Any]) -> None:
    """A dangerous command of a session of ours waits for a yes (the waiting thread), or its wait is over."""
    if kwargs.get("surface") != "gateway":
        return
    key = str(kwargs.get("session_key") or "")
    bridge = _owner(key)
    if bridge is None:
        return
    if name == "post_approval_response":
        ask.approval_settled(bridge.requests, kwargs)
        return
    inside = _inside.get()
    if inside is not None:
        wires = inside.attachment.tap.wire_ids(inside.call_id)
        turn, call_id = inside.attachment.tap.turn, wires[0] if wires else inside.call_id
    else:
        turn, call_id = bridge.turn_beside(key), ""
    if ask.approval_asked(bridge.requests, turn, kwargs, call_id, bridge.approval_seconds):
        bridge.note_asked(key)


def _child(turn_id: Any, session_id: Any) -> _Child | None:
    """The subagent of this turn, or of this session."""
    return _children.get(str(turn_id or "")) or _children.get(str(session_id or ""))


def _subagent_started(kwargs: dict[str, Any]) -> None:
    maker = _child(kwargs.get("parent_turn_id"), kwargs.get("parent_session_id"))  # one that a subagent makes
    parent = _attached.get(str(kwargs.get("parent_turn_id") or "")) or (maker.parent if maker is not None else None)
    if parent is None:
        return
    session = str(kwargs.get("child_session_id") or "")
    _children[session] = _Child(parent, session)
    if parent.bridge.crew is not None:
        inside = _inside.get()  # the delegating call: its thread makes the subagents
        wires = parent.tap.wire_ids(inside.call_id) if inside is not None else []
        told = kwargs if maker is None else {**kwargs, "parent_session_id": maker.session}
        crew.started(parent.bridge.crew, parent.tap.turn.thread, wires[0] if wires else "", told)
    if parent.facts is not None:
        parent.facts.subagent_started(session, redact(str(kwargs.get("child_goal") or "")))


def _subagent_ended(session: str, status: str) -> None:
    child = _children.get(session)
    if child is None:
        return
    for name in [name for name, one in tuple(_children.items()) if one is child]:
        _children.pop(name, None)
    if child.parent.facts is not None:
        child.parent.facts.subagent_stopped(child.session, status)


def _subagent_requested(name: str, kwargs: dict[str, Any]) -> None:
    child = _child(kwargs.get("turn_id"), kwargs.get("session_id"))
    if child is not None and child.parent.bridge.crew is not None:
        error = failure_of(kwargs).message or "The model could not be asked." if name == "api_request_error" else ""
        child.parent.bridge.crew.requested(child.session, error)


def _refused_in_subagent(kwargs: dict[str, Any]) -> None:
    """A subagent's dangerous command is refused by Hermes itself, and nobody is asked: say so."""
    child = _child(kwargs.get("turn_id"), kwargs.get("session_id"))
    result = kwargs.get("result")
    if child is None or not isinstance(result, str) or "pending_approval" not in result:
        return
    args = kwargs.get("args")
    command = redact(str(args.get("command") or "")) if isinstance(args, dict) else ""
    child.parent.tap.notice("subagent_refused", f"A subagent's command was refused, nobody can be asked: {command}")
    if child.parent.bridge.crew is not None:
        child.parent.bridge.crew.refused(child.session, command)


def _post_api_request(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    message = kwargs.get("assistant_message")
    attachment.message = message
    attachment.offered = [shown_call(call) for call in calls_of(message)]
    attachment.tap.failure = None
    content = text_of(getattr(message, "content", "") or "")
    attachment.tap.answered(content, attachment.offered, usage_of(kwargs), sealed_of(message))
    if attachment.facts is not None:
        attachment.facts.answered()


def _api_request_error(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    attachment.tap.failure = failure_of(kwargs)


def _post_tool_call(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    if kwargs.get("status") == "blocked" and kwargs.get("tool_call_id"):
        attachment.tap.result(
            str(kwargs["tool_call_id"]),
            str(kwargs.get("tool_name") or ""),
            text_of(kwargs.get("result")),
            status="blocked",
            duration=float(kwargs.get("duration_ms") or 0) / 1000,
        )


def _post_llm_call(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    text = text_of(kwargs.get("assistant_response"))
    attachment.tap.final(text)
    attachment.text_alone = attachment.tap.turn.thread.passing and not media.sends_files(text)
    for path in media.tagged_files(text):
        attachment.tap.notice("attachment_failed", files.refusal(path, "it is not there, or may not be sent"))


def _on_session_end(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    attachment.tap.results(tool_results(attachment.agent))
    attachment.bridge.was_kept(attachment.tap, is_kept(attachment.agent))
    attachment.tap.end(completed=bool(kwargs.get("completed")), interrupted=bool(kwargs.get("interrupted")))
    if attachment.facts is not None:
        attachment.facts.end()
    attachment.detach()
    if attachment.text_alone:
        attachment.tap.tell_end()


_HOOKS: dict[str, Callable[[_Attachment, dict[str, Any]], None]] = {
    "post_api_request": _post_api_request,
    "api_request_error": _api_request_error,
    "post_tool_call": _post_tool_call,
    "post_llm_call": _post_llm_call,
    "on_session_end": _on_session_end,
}


def around_tool(next_call: Callable[[Any], Any], **kwargs: Any) -> Any:
    """The ``tool_execution`` middleware, around every tool of every agent of the process.

    A client tool is answered here, by waiting for the client; it never reaches ``next_call``. Everything else goes on
    as it is: the call is remembered for its thread (approvals and questions name it), and calls that ``execute_code``
    makes, which come without ids, are told to the tap.
    """
    args, name = kwargs.get("args"), str(kwargs.get("tool_name") or "")
    turn_id, call_id = str(kwargs.get("turn_id") or ""), str(kwargs.get("tool_call_id") or "")
    attachment = _attached.get(turn_id) if turn_id else None
    if attachment is not None and name in attachment.client_names:
        return _answer_of_client(attachment, call_id, name)
    if attachment is not None and name in attachment.state_names:
        return _answer_of_state(attachment, call_id, name, args)
    watcher = _watcher() if turn_id and attachment is None else None
    seen = watcher.of(turn_id) if watcher is not None else attachment
    if seen is not None:
        seen.starts(call_id)
        token = _inside.set(_Inside(seen, call_id, name))
        watched = _watch_call(attachment, call_id, name)
        try:
            return ask.with_reason(next_call(args))
        finally:
            _inside.reset(token)
            if attachment is not None and attachment.bridge.long_tools is not None:
                attachment.bridge.long_tools.end(watched)
    outer = _inside.get()
    if outer is None:
        return _tool_beside(next_call, args)
    if turn_id or call_id or outer.name != "execute_code":
        return next_call(args)
    tap, parent = outer.attachment.tap, outer.call_id
    inner = tap.inner_call(parent, name, as_json(args))
    began = time.monotonic()
    try:
        result = next_call(args)
    except BaseException as error:
        tap.inner_result(parent, inner, redact(str(error)), False, time.monotonic() - began)
        raise
    content = text_of(result)
    tap.inner_result(parent, inner, content, not is_error(content), time.monotonic() - began)
    return result


def _watch_call(attachment: _Attachment | None, call_id: str, name: str) -> object:
    """Say so once if the call runs long; not while the turn waits for somebody, when nothing may be said."""
    if attachment is None or attachment.bridge.long_tools is None:
        return None
    tap, requests = attachment.tap, attachment.bridge.requests
    wires = tap.wire_ids(call_id)

    def tell(seconds: float) -> bool:
        if not wires or requests.parked(tap.turn):
            return False
        tap.runs_long(wires[0], name, round(seconds, 1))
        return True

    return attachment.bridge.long_tools.begin(tell)


def _tool_beside(next_call: Callable[[Any], Any], args: Any) -> Any:
    """A tool of another agent of one of our sessions (``/background``; a subagent's context names no session)."""
    if not _bridges:  # another process of Hermes's, which may well name its session in its environment
        return next_call(args)
    key = ask.session_key_here()
    bridge = _owner(key) if key else None
    with ask.of_no_other() if bridge is None else ask.ears.open(key, bridge.listener(key)):
        return ask.with_reason(next_call(args))


def _answer_of_client(attachment: _Attachment, call_id: str, name: str) -> Any:
    """Never raises: Hermes would run the next layer instead, and tell the model of an unknown tool."""
    try:
        waiting = attachment.client_calls.get(call_id)
        if not waiting:
            return as_json({"error": f"The call of {name} was never announced to the client."})
        return ask.wait_client(attachment.bridge.requests, waiting.pop(0), name)
    except Exception as error:
        logger.exception("agui: waiting for a client tool failed")
        return as_json({"error": f"Waiting for the client failed: {type(error).__name__}"})


def _answer_of_state(attachment: _Attachment, call_id: str, name: str, args: Any) -> str:
    """Never raises, as ``_answer_of_client``."""
    try:
        attachment.starts(call_id)
        turn = attachment.tap.turn
        if name == READ.name:
            return answer_read(turn.thread.document.value, args)
        changes = changes_of(args)
        turn.thread.document.edit(turn, changes)
        attachment.bridge.keep_state(turn)
        return answer_set(changes)
    except StateError as error:
        return answer_error(error)
    except Exception as error:
        logger.exception("agui: a state tool failed")
        return as_json({"error": f"{name} failed: {type(error).__name__}"})


def _has_images(kwargs: dict[str, Any]) -> bool:
    """Whether the user message of this turn is a list of parts, as the model gets it."""
    history = kwargs.get("conversation_history") or []
    users = (message for message in reversed(history) if isinstance(message, dict) and message.get("role") == "user")
    return isinstance(next(users, {}).get("content"), list)
