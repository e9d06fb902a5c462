"""Crew: the subagents that run now, of all threads, and where what they do is told. Our state only, no Hermes.

A subagent mostly outlives the turn that made it. What it does is told in the turn of its thread that runs; its end is
told in any case: in a turn that runs, when a waiting turn goes on, or in a short turn of its own on the thread's feed.
Reported by the seam on the subagents' own threads; a lock orders them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .session import Thread, Turn
from .stream import (
    StreamEvent,
    Subagent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
)

_MOST_STEPS = 100  # of one subagent; then the older half is left out
_STEP_CHARS = 500
_SUMMARY_CHARS = 20_000
_TEXT_AT = 240  # characters of text that make a step, at the next end of a line or word
_LINE_AT = 80


@dataclass(eq=False)
class _Member:
    """One subagent. ``said``: its text since its newest tool, in pieces; ``unsaid``: what of it is no step yet."""

    subagent: Subagent
    thread: Thread
    steps: list[Mapping[str, str]] = field(default_factory=list)
    left_out: int = 0
    said: list[str] = field(default_factory=list)
    said_chars: int = 0
    unsaid: str = ""
    error: str = ""  # of its newest request to the model, if that failed


class Crew:
    """``append`` adds to a turn's log, unless the turn waits or is over (0 then). ``beside`` tells events in a short
    turn of their own, on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        append: Callable[[Turn, StreamEvent], int],
        beside: Callable[[Thread, list[StreamEvent]], None],
    ) -> None:
        self._loop = loop
        self._append = append
        self._beside = beside
        self._lock = threading.RLock()
        self._members: dict[str, _Member] = {}  # by the subagent's session
        self._ends: dict[Thread, list[StreamEvent]] = {}  # not told yet
        self._open = True

    def close(self) -> None:
        """The process ends: nothing more is told."""
        self._open = False

    # -- what the seam reports (any thread) -----------------------------------------------------------------

    def started(self, thread: Thread, session: str, subagent_id: str, name: str, goal: str, call_id: str = "") -> None:
        """A subagent was made by the agent of a thread; ``call_id`` as on the wire."""
        self._join(thread, session, Subagent(subagent_id or session, name, goal, None, call_id))

    def started_by(self, parent: str, session: str, subagent_id: str, name: str, goal: str) -> None:
        """A subagent was made by another one, of the session ``parent``."""
        with self._lock:
            member = self._members.get(parent)
        if member is not None:
            self._join(member.thread, session, Subagent(subagent_id or session, name, goal, member.subagent, ""))

    def used(self, session: str, tool: str, about: str) -> None:
        """A subagent begins a tool."""
        with self._lock:
            member = self._members.get(session)
            if member is not None:
                self._say(member)
                member.said, member.said_chars = [], 0
                self._step(member, {"kind": "tool", "tool": tool, "text": about[:_STEP_CHARS]})

    def spoke(self, session: str, delta: str) -> None:
        """A delta of a subagent's text."""
        with self._lock:
            member = self._members.get(session)
            # Text of a subagent's own subagents comes under its name (delegate_tool.py): it is silent while they work.
            if member is None or self._has_children(member):
                return
            if member.said_chars < _SUMMARY_CHARS:
                member.said.append(delta)
                member.said_chars += len(delta)
            member.unsaid += delta
            if len(member.unsaid) >= _TEXT_AT or ("\n" in delta and len(member.unsaid) >= _LINE_AT):
                self._say(member, whole=False)

    def refused(self, session: str, command: str) -> None:
        """A subagent's command was refused, since nobody can be asked."""
        with self._lock:
            member = self._members.get(session)
            if member is not None:
                self._say(member)
                self._step(member, {"kind": "refused", "text": command[:_STEP_CHARS]})

    def requested(self, session: str, error: str = "") -> None:
        """A subagent's request to the model was answered, or failed with this error and may be made again."""
        with self._lock:
            member = self._members.get(session)
            if member is not None:
                member.error = error

    def ended(self, session: str, status: str, text: str, seconds: float) -> None:
        """A subagent is through, told once. ``text``: its summary, perhaps cut, or what went wrong."""
        with self._lock:
            member = self._members.pop(session, None)
            if member is None:
                return
            self._say(member)
            event: StreamEvent
            if status == "completed" and member.error:
                # Hermes takes the text of a provider's error for its answer (delegate_tool.py, _run_single_child).
                event = SubagentFailed(member.subagent, (text or member.error)[:2000], "error", seconds)
            elif status == "completed":
                said = "".join(member.said).strip()
                summary = said if text and said.startswith(text.strip()) else text
                event = SubagentFinished(member.subagent, summary[:_SUMMARY_CHARS], seconds)
            else:
                event = SubagentFailed(member.subagent, text[:2000], status or "failed", seconds)
            if not self._tell(member.thread, event):
                steps = SubagentProgress(member.subagent, tuple(member.steps), member.left_out)
                self._ends.setdefault(member.thread, []).extend([steps, event] if member.steps else [event])
                with contextlib.suppress(RuntimeError):  # the loop is gone, and every reader
                    self._loop.call_soon_threadsafe(self.flush, member.thread)

    # -- on the loop ----------------------------------------------------------------------------------------

    def flush(self, thread: Thread) -> None:
        """Tell what could not be told: a turn has begun, goes on, or is over."""
        with self._lock:
            waiting = self._ends.get(thread)
            if not waiting or not self._open:
                return
            if thread.current is not None:
                while waiting and self._tell(thread, waiting[0]):
                    del waiting[0]
                if waiting:
                    return
            del self._ends[thread]
        if waiting and not thread.gone:
            self._beside(thread, waiting)

    # -- inside (under the lock) ----------------------------------------------------------------------------

    def _join(self, thread: Thread, session: str, subagent: Subagent) -> None:
        with self._lock:
            self._members[session] = _Member(subagent, thread)
            self._tell(thread, SubagentStarted(subagent))

    def _has_children(self, member: _Member) -> bool:
        return any(other.subagent.parent is member.subagent for other in self._members.values())

    def _say(self, member: _Member, *, whole: bool = True) -> None:
        text, member.unsaid = member.unsaid, ""
        if not whole:
            cut = max(text.rfind("\n"), text.rfind(" ")) + 1
            text, member.unsaid = (text[:cut], text[cut:]) if cut else (text, "")
        if text.strip():
            self._step(member, {"kind": "text", "text": text.strip()[:_STEP_CHARS]})

    def _step(self, member: _Member, step: Mapping[str, str]) -> None:
        member.steps.append(step)
        if len(member.steps) > _MOST_STEPS:
            del member.steps[: _MOST_STEPS // 2]
            member.left_out += _MOST_STEPS // 2
        self._tell(member.thread, SubagentProgress(member.subagent, tuple(member.steps), member.left_out))

    def _tell(self, thread: Thread, event: StreamEvent) -> bool:
        turn = thread.current
        return turn is not None and bool(self._append(turn, event))
