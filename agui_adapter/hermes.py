"""The seam: everything that touches Hermes's runner, agents, hook arguments and stores. Written for 0.19.0.

One ``Bridge`` an adapter. Hooks and middleware arrive here from the plugin entry for *every* agent of the process;
what is not a turn of ours is left alone (accepted by the agent's own turn id, see ``_pre_llm_call``). Nothing is
patched: callbacks are attributes that Hermes offers, set for a turn and cleared after it.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.redact import redact_sensitive_text
from gateway.session import SessionSource, build_session_key
from gateway.session_context import get_session_env

from . import hermes_ask, hermes_crew, hermes_media
from .crew import Crew
from .files import refusal
from .hermes_facts import TODO, Facts
from .hermes_history import Sessions
from .hermes_overrides import override
from .long_tools import LongTools
from .requests import Pending, Requests
from .session import Turn
from .state import StateError
from .state_text import READ, STATE_TOOL_NAMES, STATE_TOOLS, answer_error, answer_read, answer_set, changes_of
from .stream import Usage
from .tap import Call, Failure, Tap, without_thinking
from .warm import warm_up

if TYPE_CHECKING:
    from .hermes_observe import Watched, Watcher

logger = logging.getLogger("hermes_agui")

_bridges: list[Bridge] = []
_attached: dict[str, _Attachment] = {}  # Hermes's turn id → attachment
_inside: contextvars.ContextVar[_Inside | None] = contextvars.ContextVar("agui_inside_tool", default=None)
_children: dict[str, _Attachment] = {}  # a subagent's session id → the turn that made it


def redact(text: str) -> str:
    """The text without secrets, by Hermes's own redactor."""
    try:
        return str(redact_sensitive_text(text))
    except Exception:  # a redactor that fails must not let the text through
        logger.exception("redaction failed")
        return "[not shown: redaction failed]"


def session_key_here() -> str:
    """The session key of the turn whose thread (or task) this runs in; empty outside a turn."""
    return str(get_session_env("HERMES_SESSION_KEY", "") or "")


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
    state_names: list[str] = field(default_factory=list)  # the state tools that the agent has been given
    facts: Facts | None = None  # what is told in the shared state, if the operator lets it
    take_back: Callable[[], None] | None = None  # undoes what the client asked of this turn's agent

    # -- callbacks on the agent (per-request thread: delta, reason; worker thread: the rest) ----------------

    def delta(self, text: str | None) -> None:
        if text is None:
            self.commit()
        elif threading.current_thread() not in self.stale:
            self.tap.text(text)

    def reason(self, text: str) -> None:
        if threading.current_thread() not in self.stale:
            self.tap.reason(text)

    def commit(self) -> None:
        message, self.message = self.message, None
        calls = _calls(message)
        left = {call.id for call in calls}
        names = _tool_names(self.agent)
        # Hermes drops repeated calls of a step (_deduplicate_tool_calls), those of unknown names too.
        unknown = {
            (call.name, call.arguments): call
            for call in reversed(self.offered)
            if call.id not in left and call.name not in names
        }
        errors = [(call, _unknown_tool(call.name, names)) for call in reversed(unknown.values())]
        self.offered = []
        shown = [replace(_shown(call), client=call.name in self.client_names) for call in calls]
        self.tap.committed(shown, errors)
        self.announce([call for call in shown if call.client])

    def announce(self, calls: list[Call]) -> None:
        """Client calls can be answered from their announcement on, in any order."""
        self.client_calls = {}
        seconds = self.bridge.client_tool_seconds
        for call in calls:
            if call.id not in self.client_calls:
                self.client_calls[call.id] = [
                    hermes_ask.open_client_call(self.bridge.requests, self.tap.turn, wire, call.name, seconds)
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

    def clarify(self, question: str, choices: Any = None) -> str:
        inside = _inside.get()
        wires = self.tap.wire_ids(inside.call_id) if inside is not None else []
        return hermes_ask.ask_clarify(
            self.bridge.requests, self.tap.turn, wires[0] if wires else "", str(question), choices
        )

    def offer(self) -> None:
        """Give the agent this turn's client tools and the state tools, and take back those of an earlier turn."""
        turn, before = self.tap.turn, _given.get(self.agent, [])
        tools = (*(STATE_TOOLS if turn.thread.document.offered else ()), *turn.client_tools)
        if before or tools:
            given = _given[self.agent] = hermes_ask.offer(self.agent, tools, before)
            self.state_names = [name for name in given if name in STATE_TOOL_NAMES]
            self.client_names = [name for name in given if name not in STATE_TOOL_NAMES]

    def interim(self, text: str, *, already_streamed: bool = False) -> None:
        self.tap.interim(text, already_streamed)

    def complete(self, call_id: str, name: str, args: Any, result: Any) -> None:
        told, self.told = self.told, {}
        self.tap.result(
            call_id or "",
            name,
            _text(result),
            status="error" if told.get("is_error") else "ok",
            duration=float(told.get("duration") or 0.0),
        )
        if name == TODO and self.facts is not None:
            self.facts.todos(_text(result))

    def progress(self, kind: str, name: Any = None, preview: Any = None, args: Any = None, **facts: Any) -> None:
        if kind == "tool.completed":
            self.told = facts
        elif kind.startswith(hermes_crew.PREFIX) and self.bridge.crew is not None:
            hermes_crew.progress(self.bridge.crew, kind, name, preview, facts, redact)

    def step(self, count: int, results: Any) -> None:
        newest = [
            (str(item.get("name")), str(item.get("arguments")), _maybe_text(item.get("result")))
            for item in results or []
            if isinstance(item, dict)
        ]
        cut = _cut_answer(self.agent)
        if cut is not None:
            self.tap.text_kept(cut)
        self.offer()  # an MCP refresh between two requests rebuilds the agent's list
        self.tap.next_request(newest, _tool_names(self.agent))
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
            hermes_ask.offer(self.agent, (), given)
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
        parent = _attached.get(str(kwargs.get("parent_turn_id") or ""))
        if parent is None:  # one that a subagent makes
            parent = _children.get(str(kwargs.get("parent_session_id") or ""))
        if parent is not None:
            _children[str(kwargs.get("child_session_id") or "")] = parent
            _subagent_started(parent, kwargs)
            if parent.facts is not None:
                parent.facts.subagent_started(
                    str(kwargs.get("child_session_id") or ""), redact(str(kwargs.get("child_goal") or ""))
                )
        return None
    if name == "subagent_stop":
        child = str(kwargs.get("child_session_id") or "")
        parent = _children.pop(child, None)
        if parent is not None and parent.bridge.crew is not None:
            hermes_crew.stopped(parent.bridge.crew, kwargs, redact)
        if parent is not None and parent.facts is not None:
            parent.facts.subagent_stopped(child, str(kwargs.get("child_status") or ""))
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
        tap.begin(_text(kwargs.get("user_message")))
        if tap.turn.media:
            for kind, text in hermes_media.trouble(_text(kwargs.get("user_message"))):
                tap.notice(kind, text)
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


def _approval(name: str, kwargs: dict[str, Any]) -> None:
    """A dangerous command of a session of ours waits for a yes (the waiting thread), or its wait is over."""
    if kwargs.get("surface") != "gateway":
        return
    key = str(kwargs.get("session_key") or "")
    bridge = next((bridge for bridge in tuple(_bridges) if bridge.owns(key)), None)
    if bridge is None:
        return
    if name == "post_approval_response":
        hermes_ask.approval_settled(bridge.requests, kwargs)
        return
    inside = _inside.get()
    if inside is not None:
        wires = inside.attachment.tap.wire_ids(inside.call_id)
        turn, call_id = inside.attachment.tap.turn, wires[0] if wires else inside.call_id
    else:
        turn, call_id = bridge.turn_beside(key), ""
    if hermes_ask.approval_asked(bridge.requests, turn, kwargs, call_id, bridge.approval_seconds):
        bridge.note_asked(key)


def _subagent_started(parent: _Attachment, kwargs: dict[str, Any]) -> None:
    if parent.bridge.crew is not None:
        inside = _inside.get()  # the delegating call: its thread makes the subagents
        wires = parent.tap.wire_ids(inside.call_id) if inside is not None else []
        thread = parent.tap.turn.thread
        hermes_crew.started(parent.bridge.crew, thread, wires[0] if wires else "", kwargs, redact)


def _subagent_requested(name: str, kwargs: dict[str, Any]) -> None:
    session = str(kwargs.get("session_id") or "")
    parent = _children.get(session)
    if parent is not None and parent.bridge.crew is not None:
        error = _failure(kwargs).message or "The model could not be asked." if name == "api_request_error" else ""
        parent.bridge.crew.requested(session, error)


def _refused_in_subagent(kwargs: dict[str, Any]) -> None:
    """A subagent's dangerous command is refused by Hermes itself, and nobody is asked: say so."""
    parent = _children.get(str(kwargs.get("session_id") or ""))
    result = kwargs.get("result")
    if parent is None or not isinstance(result, str) or "pending_approval" not in result:
        return
    args = kwargs.get("args")
    command = redact(str(args.get("command") or "")) if isinstance(args, dict) else ""
    parent.tap.notice("subagent_refused", f"A subagent's command was refused, nobody can be asked: {command}")
    if parent.bridge.crew is not None:
        parent.bridge.crew.refused(str(kwargs.get("session_id") or ""), command)


def _post_api_request(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    message = kwargs.get("assistant_message")
    attachment.message = message
    attachment.offered = [_shown(call) for call in _calls(message)]
    attachment.tap.failure = None
    content = _text(getattr(message, "content", "") or "")
    attachment.tap.answered(content, attachment.offered, _usage(kwargs), _sealed(message))
    if attachment.facts is not None:
        attachment.facts.answered()


def _api_request_error(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    attachment.tap.failure = _failure(kwargs)


def _failure(kwargs: dict[str, Any]) -> Failure:
    error = kwargs.get("error") or {}
    message = redact(str(error.get("message") or "")) if isinstance(error, dict) else ""
    return Failure(_error_code(kwargs.get("status_code"), str(kwargs.get("reason") or "")), message[:2000])


def _post_tool_call(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    if kwargs.get("status") == "blocked" and kwargs.get("tool_call_id"):
        attachment.tap.result(
            str(kwargs["tool_call_id"]),
            str(kwargs.get("tool_name") or ""),
            _text(kwargs.get("result")),
            status="blocked",
            duration=float(kwargs.get("duration_ms") or 0) / 1000,
        )


def _post_llm_call(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    text = _text(kwargs.get("assistant_response"))
    attachment.tap.final(text)
    for path in hermes_media.tagged_files(text):
        attachment.tap.notice("attachment_failed", refusal(path, "it is not there, or may not be sent"))


def _on_session_end(attachment: _Attachment, kwargs: dict[str, Any]) -> None:
    attachment.tap.results(_tool_results(attachment.agent))
    attachment.tap.end(completed=bool(kwargs.get("completed")), interrupted=bool(kwargs.get("interrupted")))
    if attachment.facts is not None:
        attachment.facts.end()
    attachment.detach()


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
            return next_call(args)
        finally:
            _inside.reset(token)
            if attachment is not None and attachment.bridge.long_tools is not None:
                attachment.bridge.long_tools.end(watched)
    outer = _inside.get()
    if outer is None and turn_id:
        return _tool_beside(next_call, args)
    if outer is None or turn_id or call_id or outer.name != "execute_code":
        return next_call(args)
    tap, parent = outer.attachment.tap, outer.call_id
    inner = tap.inner_call(parent, name, _json(args))
    began = time.monotonic()
    try:
        result = next_call(args)
    except BaseException as error:
        tap.inner_result(parent, inner, redact(str(error)), False, time.monotonic() - began)
        raise
    content = _text(result)
    tap.inner_result(parent, inner, content, not _is_error(content), time.monotonic() - began)
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
    key = hermes_ask.session_key_here()
    bridge = next((bridge for bridge in tuple(_bridges) if bridge.owns(key)), None) if key else None
    if bridge is None:
        return next_call(args)
    with hermes_ask.ears.open(key, bridge.listener(key)):
        return next_call(args)


def _answer_of_client(attachment: _Attachment, call_id: str, name: str) -> Any:
    """Never raises: Hermes would run the next layer instead, and tell the model of an unknown tool."""
    try:
        waiting = attachment.client_calls.get(call_id)
        if not waiting:
            return _json({"error": f"The call of {name} was never announced to the client."})
        return hermes_ask.wait_client(attachment.bridge.requests, waiting.pop(0), name)
    except Exception as error:
        logger.exception("agui: waiting for a client tool failed")
        return _json({"error": f"Waiting for the client failed: {type(error).__name__}"})


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
        return _json({"error": f"{name} failed: {type(error).__name__}"})


def _has_images(kwargs: dict[str, Any]) -> bool:
    """Whether the user message of this turn is a list of parts, as the model gets it."""
    history = kwargs.get("conversation_history") or []
    users = (message for message in reversed(history) if isinstance(message, dict) and message.get("role") == "user")
    return isinstance(next(users, {}).get("content"), list)


# -- what Hermes's objects say -----------------------------------------------------------------------------------


def _calls(message: Any) -> list[Call]:
    calls = []
    for item in getattr(message, "tool_calls", None) or []:
        function = getattr(item, "function", None)
        arguments = getattr(function, "arguments", "")
        if not isinstance(arguments, str):
            arguments = _json(arguments)
        calls.append(Call(str(getattr(item, "id", "") or ""), str(getattr(function, "name", "") or ""), arguments))
    return calls


def _sealed(message: Any) -> str:
    """What of an answer's reasoning only its provider can read, word for word; Hermes keeps and replays it by itself
    (chat_completion_helpers.py, build_assistant_message)."""
    details = (getattr(message, name, None) for name in ("reasoning_details", "codex_reasoning_items"))
    items = [item if isinstance(item, dict) else vars(item) for some in details for item in some or []]
    sealed = [item for item in items if any(item.get(name) for name in ("data", "signature", "encrypted_content"))]
    return _json(sealed) if sealed else ""


def _shown(call: Call) -> Call:
    """A call through Hermes's ``tool_call`` bridge shows the tool that it reaches (tools/tool_search.py)."""
    try:
        from tools import tool_search

        if call.name == tool_search.TOOL_CALL_NAME:
            name, args, error = tool_search.resolve_underlying_call(json.loads(call.arguments))
            if name and not error:
                return Call(call.id, name, _json(args))
    except Exception:
        logger.debug("tool_call bridge not unwrapped", exc_info=True)
    return call


def _tool_names(agent: Any) -> frozenset[str]:
    return frozenset(getattr(agent, "valid_tool_names", None) or ())


def _unknown_tool(name: str, names: frozenset[str]) -> str:
    try:
        from agent.conversation_loop import _invalid_tool_name_error_content

        return str(_invalid_tool_name_error_content(name, names))
    except Exception:  # private to 0.19: the wording is all that depends on it
        return f"Tool '{name}' does not exist."


def _cut_answer(agent: Any) -> str | None:
    """The text of an answer that the newest history keeps although Hermes asks the model to go on.

    It was cut (by the length limit or a lost connection), or has to be verified first.
    """
    messages = getattr(agent, "_session_messages", None) or []
    if len(messages) < 2:
        return None
    before, last = messages[-2], messages[-1]
    if (
        isinstance(last, dict)
        and last.get("role") == "user"
        and isinstance(before, dict)
        and before.get("role") == "assistant"
        and before.get("finish_reason") in ("length", "incomplete", "verification_required")
    ):
        return without_thinking(_text(before.get("content")))
    return None


def _tool_results(agent: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for message in reversed(getattr(agent, "_session_messages", None) or []):
        if not isinstance(message, dict) or message.get("role") == "user":
            break
        if message.get("role") == "tool":
            found[str(message.get("tool_call_id") or "")] = _text(message.get("content"))
    return found


def _usage(kwargs: dict[str, Any]) -> Usage | None:
    usage = kwargs.get("usage")
    if not isinstance(usage, dict):
        return None

    def part(name: str) -> int | None:
        value = usage.get(name)
        return int(value) if value else None

    # Hermes writes 0 for a part that the provider does not tell; the totals are told whenever there is usage.
    return Usage(
        provider=str(kwargs.get("provider") or ""),
        model=str(kwargs.get("response_model") or kwargs.get("model") or ""),
        input_tokens=part("prompt_tokens") or 0,
        output_tokens=part("output_tokens") or 0,
        reasoning_tokens=part("reasoning_tokens"),
        cached_input_tokens=part("cache_read_tokens"),
        cache_write_input_tokens=part("cache_write_tokens"),
    )


def _error_code(status: Any, reason: str) -> str:
    by_status = {401: "provider_auth", 402: "provider_billing", 403: "provider_auth", 404: "provider_model"}
    by_status |= {408: "provider_timeout", 413: "provider_context", 429: "provider_rate_limit"}
    if isinstance(status, int):
        if status in by_status:
            return by_status[status]
        return "provider_error" if status >= 500 else "provider_refused"
    if "timeout" in reason:
        return "provider_timeout"
    return "provider_error"


def _is_error(content: str) -> bool:
    try:
        value = json.loads(content)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _maybe_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    """A content as text: lists of parts give their text parts, other values their JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.get("_multimodal"):
        return str(value.get("text_summary") or "")
    if isinstance(value, list):
        return "\n".join(str(part.get("text")) for part in value if isinstance(part, dict) and part.get("text"))
    return _json(value)


# -- the gateway -------------------------------------------------------------------------------------------------


class Bridge:
    """What an adapter may ask of the gateway that runs it. On the gateway's loop unless said otherwise."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.taps: dict[str, Tap] = {}  # session key → the tap of its running turn; read from worker threads
        self.attachments: dict[str, list[_Attachment]] = {}
        self.client_tool_seconds = 600.0
        self.approval_seconds = 0.0
        self._requests: Requests | None = None
        self._asked: dict[str, int] = {}
        self._asked_lock = threading.Lock()
        self.watcher: Watcher | None = None  # of other sessions (agui.observe)
        self.hermes_state = "off"
        self.tool_output = "full"
        self.crew: Crew | None = None  # the subagents of this adapter's threads
        self.long_tools: LongTools | None = None

    @property
    def runner(self) -> Any:
        """The ``GatewayRunner``, or None outside a gateway."""
        return getattr(self._adapter, "gateway_runner", None)

    @property
    def requests(self) -> Requests:
        """The adapter's requests; there from ``open`` on."""
        assert self._requests is not None
        return self._requests

    def open(self, requests: Requests, *, client_tool_seconds: float, approval_seconds: float) -> None:
        """Let hooks find this bridge. Times in seconds, as the settings of these names."""
        self._requests = requests
        self.client_tool_seconds, self.approval_seconds = client_tool_seconds, approval_seconds
        _bridges.append(self)

    def close(self) -> None:
        """The opposite of ``open``; every tap is stopped."""
        if self in _bridges:
            _bridges.remove(self)
        for key in list(self.taps):
            self.release(key)

    # -- sessions -------------------------------------------------------------------------------------------

    def session_key(self, source: SessionSource) -> str:
        """The key that the gateway gives this source's session."""
        runner = self.runner
        if runner is not None:
            return str(runner._session_key_for_source(source))
        return str(build_session_key(source))

    def owns(self, session_key: str) -> bool:
        """Whether the session is one of this adapter's. Any thread."""
        return session_key in self.taps or self._adapter.thread_of(session_key) is not None

    def note_asked(self, session_key: str) -> None:
        """A hook has asked; the gateway's prompt for the same question follows. Worker thread."""
        with self._asked_lock:
            self._asked[session_key] = self._asked.get(session_key, 0) + 1

    def asked_by_hook(self, session_key: str) -> bool:
        """Whether this prompt of the gateway's repeats a question that a hook asked; counts it off."""
        with self._asked_lock:
            count = self._asked.pop(session_key, 0)
            if count > 1:
                self._asked[session_key] = count - 1
            return count > 0

    def listener(self, session_key: str) -> Callable[[dict[str, Any]], None]:
        """What hears a dangerous command of ``/background``, as the gateway's own listener does for a turn's."""

        def heard(data: dict[str, Any]) -> None:
            asking = self._adapter.send_exec_approval(
                self._adapter.thread_of(session_key).chat_id,
                str(data.get("command") or ""),
                session_key,
                str(data.get("description") or ""),
                allow_permanent=bool(data.get("allow_permanent", True)),
                smart_denied=bool(data.get("smart_denied")),
            )
            asyncio.run_coroutine_threadsafe(asking, self._adapter.loop).result(15)

        return heard

    def keep_state(self, turn: Turn) -> None:
        """The turn's thread has another document. Any thread."""
        self._adapter.archive.keep_state(turn.thread)

    def facts_of(self, turn: Turn, agent: Any) -> Facts | None:
        """What tells of this agent turn in the shared state; None when the operator withholds it."""
        if self.hermes_state == "off":
            return None
        always, shows = self.hermes_state == "always", self.tool_output == "full"
        return Facts(turn, agent, always=always, shows=shows, waits=self.requests.parked)

    def turn_beside(self, session_key: str) -> Turn:
        """The turn that a question beside any turn of the session belongs to (``/background``). Worker thread."""
        loop = self._adapter.loop
        turn: Turn = asyncio.run_coroutine_threadsafe(self._adapter.turn_beside(session_key), loop).result(10)
        return turn

    def watch(self, session_key: str, tap: Tap) -> None:
        """Turns of this session go to the tap from now on."""
        self.taps[session_key] = tap

    def release(self, session_key: str, tap: Tap | None = None) -> None:
        """The cycle is over: stop its tap and clear our callbacks from the agent."""
        current = self.taps.get(session_key)
        if current is None or (tap is not None and current is not tap):
            return
        del self.taps[session_key]
        current.stop()
        for attachment in self.attachments.pop(session_key, []):
            attachment.detach()

    def cached_agent(self, session_key: str) -> Any:
        """The session's agent, or None. Any thread."""
        entry = (getattr(self.runner, "_agent_cache", None) or {}).get(session_key)
        return entry[0] if isinstance(entry, tuple) and entry else entry

    def taken_elsewhere(self, session_key: str) -> bool:
        """Whether another key's turn holds the session that this key stands on. On the loop."""
        registry = getattr(self.runner, "_turn_leases", None)
        session_id = self.runner.session_store.peek_session_id(session_key) if registry is not None else None
        lease = registry._leases.get(session_id) if session_id and registry is not None else None
        holder = getattr(lease, "holder", None)
        return holder is not None and holder.owner_key != session_key

    def last_row(self, session_id: str) -> int:
        """The newest row of a session, 0 without one. Blocks for a look-up."""
        return Sessions(self.runner).last_row(session_id)

    def kept_texts(self, session_key: str) -> list[str]:
        """What the assistant has said in the session's newest turn, as the history keeps it."""
        found: list[str] = []
        for message in reversed(getattr(self.cached_agent(session_key), "_session_messages", None) or []):
            if isinstance(message, dict) and message.get("role") == "assistant":
                found.append(without_thinking(_text(message.get("content"))))
            elif isinstance(message, dict) and message.get("role") == "user":
                own = _text(message.get("content")).startswith("[System:")  # Hermes's own request to go on
                if not own:
                    break
        return found

    def running_agent(self, session_key: str) -> Any:
        """The agent that runs this session's turn now; None while there is none yet."""
        agent = (getattr(self.runner, "_running_agents", None) or {}).get(session_key)
        return agent if hasattr(agent, "interrupt") else None

    def interrupt(self, session_key: str) -> bool:
        """Ask the running turn to end; it ends in order, within about 25 ms in mid-stream. False if none runs yet."""
        agent = self.running_agent(session_key)
        if agent is None:
            return False
        agent.interrupt()
        return True

    def clear_interrupt(self, session_key: str) -> None:
        """The turn that was interrupted is over: an interrupt that came too late for it must not end the next one.

        Hermes clears it when a turn ends in order, and would answer the session's next message with "interrupted
        before processing started".
        """
        agent = self.cached_agent(session_key)
        if getattr(agent, "_interrupt_requested", False):
            agent.clear_interrupt()

    async def give_up(self, session_key: str, source: SessionSource) -> None:
        """The turn's worker does not end: nothing that it still does may reach the history or a later turn.

        As ``/stop`` does with a hung agent (slash_commands.py), and its agent writes no more rows: Hermes keeps what a
        worker brings late, behind whatever the session has by then.
        """
        agents = [attachment.agent for attachment in self.attachments.get(session_key, [])]
        for agent in (*agents, self.running_agent(session_key)):
            if hasattr(agent, "_persist_disabled"):
                agent._persist_disabled = True
        clear = getattr(self.runner, "_interrupt_and_clear_session", None)
        if clear is not None:
            reason = "Stop requested"  # one that Hermes knows for a control message, not for a user's text
            await clear(session_key, source, interrupt_reason=reason, invalidation_reason="agui_abandoned")

    def steer(self, session_key: str, text: str) -> bool:
        """Give the running turn a text that the model sees with its next tool result."""
        agent = self.running_agent(session_key)
        return bool(agent is not None and agent.steer(text))

    def unsteer(self, session_key: str) -> str:
        """Take back a steered text that the model has not seen; it would come up in a later turn of the session."""
        agent = self.running_agent(session_key) or self.cached_agent(session_key)
        drain = getattr(agent, "_drain_pending_steer", None)
        return str(drain() or "") if drain is not None else ""

    def authorized(self, source: SessionSource) -> bool:
        """The gateway's own rules: allowlists, pairing, allow-all."""
        runner = self.runner
        return bool(runner is not None and runner._is_user_authorized(source))

    # -- start ----------------------------------------------------------------------------------------------

    def starting(self) -> bool:
        """True in the gateway's start-up window, in which messages are queued and answered by nothing."""
        runner = self.runner
        return bool(runner is None or getattr(runner, "_startup_restore_in_progress", False))

    def stopping(self) -> bool:
        """True once the gateway refuses new work."""
        runner = self.runner
        shutdown = getattr(runner, "_shutdown_event", None)
        return bool(getattr(runner, "_draining", False) or (shutdown is not None and shutdown.is_set()))

    def enlarge_executor(self, workers: int) -> None:
        """Give the gateway's agent threads a pool of this size: 0.19 has 10, and a waiting turn holds one.

        Done before the first turn, when the pool has no work yet. Later Hermes has no bound here.
        """
        runner = self.runner
        get, lock = getattr(runner, "_get_executor", None), getattr(runner, "_executor_lock", None)
        if get is None or lock is None:
            return
        pool = get()
        if not isinstance(pool, ThreadPoolExecutor) or pool._max_workers >= workers:
            return
        with lock:
            runner._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="hermes-gateway")
        pool.shutdown(wait=False)  # work that it has already goes on

    def untappable(self) -> str:
        """Why turns of this gateway cannot be streamed live, in a sentence; empty when they can."""
        runner = self.runner
        try:
            if runner is not None and runner._get_proxy_url():
                return "gateway.proxy_url is set: another Hermes answers, and only its final text can be shown."
        except Exception:
            logger.debug("proxy setting unreadable", exc_info=True)
        try:
            from hermes_cli.config import load_config

            model = load_config().get("model")
            runtime = model.get("openai_runtime") if isinstance(model, dict) else None
            if runtime == "codex_app_server":
                return "The codex_app_server runtime runs its own tools: only final texts can be shown."
        except Exception:
            logger.debug("runtime setting unreadable", exc_info=True)
        return ""

    def warm(self, user_id: str) -> threading.Thread:
        """Pay now, on a thread of its own, what the first turn of a process costs (``warm.py``)."""
        thread = threading.Thread(target=self._warm, args=(user_id,), name="agui-warm", daemon=True)
        thread.start()
        return thread

    def _warm(self, user_id: str) -> None:
        try:
            source = self._adapter.build_source("agui-warm", user_id=user_id)
            if self.runner is not None:
                warm_up(self.runner, source, self.session_key(source))
        except Exception:
            logger.warning("agui: warm-up failed; the first turn will be slower", exc_info=True)
