"""The seam: what Hermes tells of itself in the shared state (`/hermes`), and the agent's plan. On worker threads.

Model, usage, title, context fill, running subagents and the list of things to do, read where a turn begins, after each
answer of the model and where it ends: never for a text delta. Written for 0.19.0, part of the seam.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from ..encode import clean
from ..session import Turn
from ..stream import PlanChanged

logger = logging.getLogger("hermes_agui")

TODO = ("todo", "todo_list")  # the plan tool, before 0.22 and since
_RUNNING = "running"


class Facts:
    """Of one agent turn. ``shows``: what tools say may be seen (`agui.tool_output`), so the plan and goals too.

    ``always``: also on a thread whose client uses no state; else only the plan begins one.
    """

    def __init__(self, turn: Turn, agent: Any, *, always: bool, shows: bool, waits: Callable[[Turn], bool]) -> None:
        self._turn = turn
        self._agent = agent
        self._always = always
        self._shows = shows
        self._waits = waits  # whether a turn is parked: nothing may follow in its log
        self._facts: dict[str, Any] = {}
        self._plan: list[dict[str, str]] = []

    # -- when ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The agent turn begins. Subagents of earlier turns that are through are forgotten."""
        store = getattr(self._agent, "_todo_store", None)
        self._plan = _items(store.read()) if store is not None and self._shows else []
        if self._on:
            self._read()
            self._put({"todos": self._plan or None}, subagents=_only_running)

    def answered(self) -> None:
        """The model has answered; Hermes has counted its tokens by now (conversation_loop.py)."""
        if self._on:
            self._read()
            self._put({})

    end = answered  # the title may be there by now

    def todos(self, result: str) -> None:
        """The ``todo`` tool's result: the whole list, whatever was changed (tools/todo_tool.py)."""
        if not self._shows:
            return
        try:
            told = json.loads(result)
        except ValueError:
            return
        if not isinstance(told, dict) or not isinstance(told.get("todos"), list):
            return
        items = _items(told["todos"])
        if items == self._plan:
            return
        self._plan = items
        if not self._facts:  # it is the plan that begins the thread's state
            self._read()
        self._put({"todos": items}, force=True)
        self._turn.append(PlanChanged(f"{self._turn.id}-plan", tuple(items)))

    def subagent_started(self, session_id: str, goal: str) -> None:
        """A subagent was made."""
        fact = {"goal": clean(goal)[:2000] if self._shows else "", "status": _RUNNING}
        self._put({}, subagents=lambda known: {**known, session_id: fact})

    def subagent_stopped(self, session_id: str, status: str) -> None:
        """It is through; this turn may be over long since."""

        def stopped(known: dict[str, Any]) -> dict[str, Any]:
            fact = known.get(session_id)
            return {**known, session_id: {**fact, "status": status or "completed"}} if fact is not None else known

        self._put({}, subagents=stopped)

    # -- what ---------------------------------------------------------------------------------------------------

    @property
    def _on(self) -> bool:
        return self._always or isinstance(self._turn.thread.document.value, dict)

    def _read(self) -> None:
        agent = self._agent
        facts: dict[str, Any] = {
            "model": str(getattr(agent, "model", "") or ""),
            "provider": str(getattr(agent, "provider", "") or ""),
        }
        info = self._session()
        facts["title"] = str(info.get("title") or "")
        inputs = sum(int(info.get(name) or 0) for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens"))
        outputs = int(info.get("output_tokens") or 0)
        facts["usage"] = {
            "inputTokens": inputs,
            "outputTokens": outputs,
            "totalTokens": inputs + outputs,
            "cachedInputTokens": int(info.get("cache_read_tokens") or 0),
            "reasoningTokens": int(info.get("reasoning_tokens") or 0),
        }
        window = getattr(agent, "context_compressor", None)
        facts["context"] = {
            "usedTokens": max(0, int(getattr(window, "last_prompt_tokens", 0) or 0)),
            "windowTokens": int(getattr(window, "context_length", 0) or 0),
        }
        self._facts = clean(facts)

    def _session(self) -> dict[str, Any]:
        database, session_id = getattr(self._agent, "_session_db", None), getattr(self._agent, "session_id", None)
        if database is None or not session_id:
            return {}
        try:
            return dict(database.get_session(session_id) or {})
        except Exception:
            logger.debug("session unreadable", exc_info=True)
            return {}

    def _put(
        self,
        more: dict[str, Any],
        *,
        subagents: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        force: bool = False,
    ) -> None:
        """Write what is known into the document; members that are None are taken out."""

        def change(mine: dict[str, Any]) -> dict[str, Any]:
            mine.update(self._facts)
            mine.update(more)
            if subagents is not None:
                mine["subagents"] = subagents(mine.get("subagents") or {})
            mine.setdefault("subagents", {})
            return {name: value for name, value in mine.items() if value is not None}

        thread = self._turn.thread
        running = thread.current
        if running is not None and running is not self._turn and self._waits(running):
            running = None
        thread.document.own(running, change, force=force or self._always)


def _items(todos: list[Any]) -> list[dict[str, str]]:
    return [
        {name: clean(str(item.get(name) or "")) for name in ("id", "content", "status")}
        for item in todos
        if isinstance(item, dict)
    ]


def _only_running(known: dict[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in known.items() if fact.get("status") == _RUNNING}
