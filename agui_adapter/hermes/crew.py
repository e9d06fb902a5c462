"""The seam: what Hermes tells of subagents (tools/delegate_tool.py), for `crew.Crew`. Written for 0.19.0.

Hooks tell of their beginning and end on the parent's thread; what they do comes through the progress callback of the
turn that made them, on their own threads and long after that turn. Both name the subagent's session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..crew import Crew
from ..session import Thread
from .redaction import redact

PREFIX = "subagent."
COMPLETE = "subagent.complete"


def started(crew: Crew, thread: Thread, call_id: str, kwargs: Mapping[str, Any]) -> None:
    """Hook ``subagent_start``. ``call_id``: of the delegating call on the wire, where the session's agent made it."""
    session, subagent_id = _text(kwargs, "child_session_id"), _text(kwargs, "child_subagent_id")
    role = _text(kwargs, "child_role")
    name = role if role and role != "leaf" else "subagent"
    goal = redact(_text(kwargs, "child_goal"))[:2000]
    if _text(kwargs, "parent_subagent_id"):
        crew.started_by(_text(kwargs, "parent_session_id"), session, subagent_id, name, goal)
    else:
        crew.started(thread, session, subagent_id, name, goal, call_id)


def stopped(crew: Crew, kwargs: Mapping[str, Any]) -> None:
    """Hook ``subagent_stop``, which comes when all of a batch are through: mostly their end was told before."""
    seconds = float(kwargs.get("duration_ms") or 0) / 1000
    status = _text(kwargs, "child_status")
    crew.ended(_text(kwargs, "child_session_id"), status, redact(_text(kwargs, "child_summary")), seconds)


def progress(crew: Crew, kind: str, tool: Any, preview: Any, facts: Mapping[str, Any]) -> None:
    """A subagent's progress callback. Its text comes as deltas, unredacted as the agent's own."""
    session, text = _text(facts, "child_session_id"), str(preview or "")
    if kind == "subagent.tool":
        crew.used(session, str(tool or ""), redact(text))
    elif kind == "subagent.text":
        crew.spoke(session, text)
    elif kind == COMPLETE:
        said = _text(facts, "summary") or text
        crew.ended(session, _text(facts, "status"), redact(said), float(facts.get("duration_seconds") or 0))


def _text(facts: Mapping[str, Any], name: str) -> str:
    return str(facts.get(name) or "")
