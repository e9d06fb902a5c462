"""The seam, fifth part: other sessions of the gateway. Watched, listed and taken over. Written for 0.19.0.

Watching must not change what is watched: hooks alone are used, and a delta callback is wrapped only where the gateway
has set one itself (a delta callback where there was none marks text as streamed, and a platform without streaming then
loses its interim messages: run_agent.py, _has_stream_consumers; gateway/run.py, _interim_assistant_cb). Nothing that
fails here reaches Hermes. What ``Others.resume`` does, ``/resume`` does (slash_commands.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..observe import Observer, session_id
from ..tap import Call, Tap
from . import objects
from .history import Sessions

if TYPE_CHECKING:
    from .bridge import Bridge

logger = logging.getLogger("hermes_agui")


@dataclass(eq=False)
class Watched:
    """One agent turn of another session that is being watched."""

    observer: Observer
    tap: Tap
    agent: Any
    turn_id: str
    streams: bool = False  # the gateway has set a delta callback: text comes piece by piece
    message: Any = None  # the newest answer of the model: its calls are final when the first of them runs
    offered: list[Call] = field(default_factory=list)

    # -- on the agent, where the platform streams (per-request thread) --------------------------------------

    def delta(self, text: str | None) -> None:
        try:
            if text is None:
                self.commit()
            else:
                self.tap.text(text)
        except Exception:  # Hermes would take the platform's own delta for undelivered
            logger.exception("agui: watching failed")

    def reason(self, text: str) -> None:
        try:
            self.tap.reason(text)
        except Exception:
            logger.exception("agui: watching failed")

    # -- hooks ----------------------------------------------------------------------------------------------

    def answered(self, kwargs: dict[str, Any]) -> None:
        """``post_api_request``: the model's answer is whole."""
        message = kwargs.get("assistant_message")
        # An answer of which no tool ran since was dropped and made again; a step that ran is committed already.
        self.tap.next_request([], objects.tool_names(self.agent))
        self.message = message
        self.offered = [objects.shown_call(call) for call in objects.calls_of(message)]
        self.tap.failure = None
        if not self.streams:
            reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
            if isinstance(reasoning, str):
                self.tap.reason(reasoning)
        self.tap.answered(
            objects.text_of(getattr(message, "content", "") or ""), self.offered, objects.usage_of(kwargs)
        )

    def commit(self) -> None:
        """The step is in the history: its calls run next."""
        message, self.message = self.message, None
        if message is None:
            return
        calls = objects.calls_of(message)
        errors = objects.unknown_calls(self.offered, calls, objects.tool_names(self.agent))
        self.tap.committed([objects.shown_call(call) for call in calls], errors)
        self.offered = []

    def starts(self, call_id: str) -> None:
        """A tool runs now (``tool_execution``)."""
        try:
            self.commit()
            self.tap.starts(call_id)
        except Exception:  # the tool must run all the same, once
            logger.exception("agui: watching failed")

    def tool_done(self, kwargs: dict[str, Any]) -> None:
        """``post_tool_call``: the result before the transforms of other plugins."""
        self.commit()  # a refused call has not run
        status = str(kwargs.get("status") or "ok")
        self.tap.result(
            str(kwargs.get("tool_call_id") or ""),
            str(kwargs.get("tool_name") or ""),
            objects.text_of(kwargs.get("result")),
            status="blocked" if status == "blocked" else "ok" if status in ("ok", "success") else "error",
            duration=float(kwargs.get("duration_ms") or 0) / 1000,
        )

    def failed(self, kwargs: dict[str, Any]) -> None:
        """``api_request_error``."""
        self.tap.failure = objects.failure_of(kwargs)

    def final(self, kwargs: dict[str, Any]) -> None:
        """``post_llm_call``: the text of the answer."""
        self.tap.final(objects.text_of(kwargs.get("assistant_response")))

    def ended(self, kwargs: dict[str, Any]) -> None:
        """``on_session_end``: the turn ended in order."""
        self.tap.results(objects.tool_results(self.agent))
        self.detach()
        failure = self.tap.failure
        if kwargs.get("interrupted"):
            self.observer.end(self.tap, "cancelled")
        elif failure is not None and not kwargs.get("completed"):
            self.observer.end(self.tap, "failed", failure.code, failure.message)
        else:
            self.observer.end(self.tap, "success")

    # -- attach and detach ----------------------------------------------------------------------------------

    def attach(self) -> None:
        """Where the platform streams, hear what it hears; nothing where it does not."""
        agent = self.agent
        theirs = agent.stream_delta_callback
        if theirs is None:
            return
        self.streams = True
        agent.stream_delta_callback = _behind(theirs, self.delta)
        # Beside a delta callback it changes nothing (chat_completion_helpers.py); the gateway never sets it.
        if agent.reasoning_callback is None:
            agent.reasoning_callback = self.reason

    def detach(self) -> None:
        """Leave the agent as it was."""
        agent = self.agent
        theirs = getattr(agent.stream_delta_callback, "_agui_watched", None)
        if theirs is not None:
            agent.stream_delta_callback = theirs
        if getattr(agent.reasoning_callback, "__self__", None) is self:
            agent.reasoning_callback = None


def _behind(theirs: Callable[..., Any], ours: Callable[[str | None], None]) -> Callable[..., Any]:
    """Theirs as ever, then ours."""
    theirs = getattr(theirs, "_agui_watched", theirs)

    def both(text: str | None) -> Any:
        value = theirs(text)
        ours(text)
        return value

    both._agui_watched = theirs  # type: ignore[attr-defined]
    return both


_HOOKS: dict[str, Callable[[Watched, dict[str, Any]], None]] = {
    "post_api_request": Watched.answered,
    "api_request_error": Watched.failed,
    "post_tool_call": Watched.tool_done,
    "post_llm_call": Watched.final,
    "on_session_end": Watched.ended,
}


class Watcher:
    """Finds other sessions' turns among the hooks of the process."""

    def __init__(self, bridge: Bridge, observer: Observer, sessions: Sessions) -> None:
        self._bridge = bridge
        self._observer = observer
        self._sessions = sessions
        self._watched: dict[str, Watched] = {}  # Hermes's turn id → what watches it

    def begins(self, key: str, kwargs: dict[str, Any]) -> None:
        """``pre_llm_call`` of a session that is not ours; only its cached agent's own turn counts. Worker thread."""
        turn_id = str(kwargs.get("turn_id") or "")
        agent = self._bridge.cached_agent(key) if key else None
        if agent is None or getattr(agent, "_current_turn_id", None) != turn_id or self._bridge.owns(key):
            return
        for old_id, old in list(self._watched.items()):
            if old.agent is agent or old.tap.turn.done.is_set():
                del self._watched[old_id]
        last_row = self._sessions.last_row(str(kwargs.get("session_id") or ""))
        text = objects.text_of(kwargs.get("user_message"))
        tap = self._observer.begin(key, text, last_row, lambda: self._runs(key, agent, turn_id))
        watched = self._watched[turn_id] = Watched(self._observer, tap, agent, turn_id)
        tap.begin(text)
        watched.attach()

    def _runs(self, key: str, agent: Any, turn_id: str) -> bool:
        running = getattr(self._bridge.runner, "_running_agents", None) or {}
        return key in running and getattr(agent, "_current_turn_id", None) == turn_id

    def of(self, turn_id: str) -> Watched | None:
        """What watches this turn of Hermes's. Any thread."""
        return self._watched.get(turn_id)

    def heard(self, name: str, kwargs: dict[str, Any]) -> None:
        """Any other hook, on whatever thread Hermes fires it."""
        watched = self._watched.get(str(kwargs.get("turn_id") or ""))
        handler = _HOOKS.get(name)
        if watched is not None and handler is not None:
            handler(watched, kwargs)
            if name == "on_session_end":
                self._watched.pop(watched.turn_id, None)

    def close(self) -> None:
        """Nothing is watched any more."""
        for watched in list(self._watched.values()):
            watched.detach()
        self._watched.clear()


# -- the gateway's sessions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """A conversation of the gateway, on any platform. Times in seconds since the epoch.

    ``shared``: keys of other chats that stand on the same Hermes session.
    """

    id: str
    key: str
    session_id: str
    platform: str
    chat_type: str = ""
    chat_id: str = ""
    chat_name: str = ""
    user_name: str = ""
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    messages: int = 0
    running: bool = False
    shared: tuple[str, ...] = ()


class Others:
    """The gateway's sessions, by the routing table. Every function blocks: call it from a worker thread."""

    def __init__(self, runner: Any, sessions: Sessions) -> None:
        self._runner = runner
        self._sessions = sessions

    def list(self) -> list[Session]:
        """All sessions of the gateway, newest first, without title and count (see ``told``)."""
        running = dict(getattr(self._runner, "_running_agents", None) or {})
        entries = self._runner.session_store.list_sessions()
        by_session: dict[str, list[str]] = {}
        for entry in entries:
            by_session.setdefault(entry.session_id, []).append(entry.session_key)
        found = []
        for entry in entries:
            origin = entry.origin
            platform = origin.platform if origin is not None else entry.platform
            found.append(
                Session(
                    session_id(entry.session_key),
                    entry.session_key,
                    str(entry.session_id),
                    str(getattr(platform, "value", platform) or ""),
                    str(entry.chat_type or ""),
                    str(getattr(origin, "chat_id", "") or ""),
                    str(getattr(origin, "chat_name", "") or entry.display_name or ""),
                    str(getattr(origin, "user_name", "") or ""),
                    created=_seconds(entry.created_at),
                    updated=_seconds(entry.updated_at),
                    running=entry.session_key in running,
                    shared=tuple(key for key in by_session[entry.session_id] if key != entry.session_key),
                )
            )
        return found

    def told(self, session: Session) -> Session:
        """With title and message count, from Hermes's database."""
        info = self._sessions.info(self._sessions.session_id(session.key))
        return replace(session, title=str(info.get("title") or ""), messages=int(info.get("message_count") or 0))

    def find(self, wire_id: str) -> Session | None:
        """A session by its id on the wire."""
        return next((self.told(session) for session in self.list() if session.id == wire_id), None)

    def resume(self, session: Session, session_key: str, source: Any) -> bool:
        """Let the thread's key stand on this session, as ``/resume`` does; False if it does already.

        The caller has made sure that no turn of the thread runs. Raises LookupError when Hermes refuses.
        """
        store, database = self._runner.session_store, self._sessions._db
        target = self._sessions.session_id(session.key)
        if not target:
            raise LookupError(session.id)
        target = str(database.resolve_resume_session_id(target) or target)
        if store.get_or_create_session(source).session_id == target:
            return False
        if not store.switch_session(session_key, target):
            raise LookupError(session.id)
        clear = getattr(self._runner, "_clear_conversation_scope", None)
        if clear is not None:
            clear(session_key, reason="resume")
        else:  # before 0.19
            self._runner._clear_session_boundary_security_state(session_key)
        self._sessions.evict(session_key)
        return True

    def shared(self, session_key: str) -> tuple[Session, ...]:
        """Other chats that stand on the same session as this key now."""
        sessions = self.list()
        mine = next((session for session in sessions if session.key == session_key), None)
        if mine is None or not mine.shared:
            return ()
        return tuple(session for session in sessions if session.key in mine.shared)


def _seconds(moment: Any) -> float:
    return moment.timestamp() if isinstance(moment, datetime) else 0.0
