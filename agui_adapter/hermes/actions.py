"""The seam, fourth part: what a user does with a session beside talking, each through Hermes's own function.

Branch, compress, usage, running subagents, background processes, slash commands. Written for 0.19.0: functions block
and belong on a worker thread, unless they are coroutines. It knows neither HTTP nor the store.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.platforms.base import MessageEvent
from gateway.session import SessionSource
from gateway.slash_access import policy_for_source

from .history import Sessions
from .redaction import redact

logger = logging.getLogger("hermes_agui")

# What `/branch` copies of a message (slash_commands.py), and its time.
_COPIED = (
    *("role", "content", "tool_name", "tool_calls", "tool_call_id", "finish_reason", "reasoning", "reasoning_content"),
    *("reasoning_details", "codex_reasoning_items", "codex_message_items", "api_content", "timestamp"),
)
_JSON = ("reasoning_details", "codex_reasoning_items", "codex_message_items")


@dataclass(frozen=True)
class Copy:
    """A session that was copied: its id and title, and row id of the original → row id of the copy."""

    session_id: str
    title: str
    rows: dict[int, int] = field(default_factory=dict)


def is_command(text: str) -> bool:
    """Whether Hermes takes this text for a slash command: one of the gateway's, or any other that it would not let
    through as a message (run.py, "Discarding command")."""
    from hermes_cli.commands import is_gateway_known_command, resolve_command

    word = text.split(None, 1)[0] if text.strip() else ""
    name = word[1:].lower()
    return word.startswith("/") and "/" not in name and (is_gateway_known_command(name) or bool(resolve_command(name)))


class Actions:
    """What can be done with sessions of one gateway."""

    def __init__(self, runner: Any, sessions: Sessions) -> None:
        self._runner = runner
        self._sessions = sessions

    def may(self, source: SessionSource, command: str) -> bool:
        """Whether this sender may use a slash command, by the gateway's rules: allowlists, then slash_access.py."""
        if not self._runner._is_user_authorized(source):
            return False
        return bool(policy_for_source(self._runner.config, source).can_run(source.user_id, command))

    # -- branch -------------------------------------------------------------------------------------------------

    def branch(
        self,
        session_id: str,
        shown: Collection[int],
        session_key: str,
        target: SessionSource,
        target_key: str,
        title: str,
    ) -> Copy:
        """Copy a session into the one of another key, as ``/branch`` does; the original stays where it is.

        ``shown``: ids of the rows that people see. What compaction has archived of them is copied too (``/branch``
        leaves it behind), so that they see the whole conversation there as well. Raises LookupError when there is
        nothing to copy.
        """
        store, database = self._sessions._store, self._sessions._db
        before, now = self._parts(session_id, shown)
        if not now:
            raise LookupError(session_id)
        if not hasattr(database, "archive_and_compact"):  # before 0.18: as `/branch`
            before = []
        made = f"{datetime.now():%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:6]}"
        base = database.get_session_title(session_id) or "branch"
        title = title or str(database.get_next_title_in_lineage(base))
        database.create_session(
            session_id=made,
            source=target.platform.value,
            model=(database.get_session(session_id) or {}).get("model"),
            model_config={"_branched_from": session_id},
            parent_session_id=session_id,
        )
        try:
            rows = {old["id"]: database.append_message(session_id=made, **_copied(old)) for old in before}
            if before:
                database.archive_and_compact(made, [_copied(old) for old in now])
                active = database.get_messages(made)
                rows |= {old["id"]: new["id"] for old, new in zip(now, active, strict=True)}
            else:
                rows = {old["id"]: database.append_message(session_id=made, **_copied(old)) for old in now}
            self._switch(target, target_key, made)
        except BaseException:
            database.delete_session(made)
            raise
        self._sessions.change(made, title=title, archived=None)
        if hasattr(store, "set_model_override"):  # before 0.18 the copy begins with the model of the configuration
            store.set_model_override(target_key, store.get_model_override(session_key))
        return Copy(made, title, rows)

    def _parts(self, session_id: str, shown: Collection[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The session's rows: those that only people see (compaction put them away), and the model's."""
        every = [
            row
            for one in self._sessions.lineage(session_id)
            for row in self._sessions._db.get_messages(one, include_inactive=True)
        ]
        now = [row for row in every if row["session_id"] == session_id and row.get("active", 1)]
        now = [row for row in now if row["role"] in ("user", "assistant", "tool", "system")]
        mine = {row["id"] for row in now}
        return [row for row in every if row["id"] in shown and row["id"] not in mine], now

    def _switch(self, source: SessionSource, key: str, session_id: str) -> None:
        store = self._sessions._store
        empty = store.get_or_create_session(source).session_id
        if not store.switch_session(key, session_id):
            raise LookupError(session_id)
        # Approvals "for this session" that an earlier thread of this id was given are not the new one's.
        self._runner._clear_session_boundary_security_state(key)
        self._sessions.evict(key)
        self._sessions._db.delete_session_if_empty(empty)

    # -- compress -----------------------------------------------------------------------------------------------

    async def compress(self, source: SessionSource, focus: str = "") -> str:
        """``/compress [focus]``: what Hermes says of it. On the gateway's loop; takes as long as a model call."""
        event = MessageEvent(text=f"/compress {' '.join(focus.split())}".strip(), source=source)
        return str(await self._runner._handle_compress_command(event) or "")

    # -- usage --------------------------------------------------------------------------------------------------

    def usage(self, session_id: str, agent: Any = None) -> dict[str, Any]:
        """What the session has used, in AG-UI's names: tokens, calls, the context's fill, the cost if it is known.

        ``agent``: the session's, if it is in memory; it knows the size of the context.
        """
        info = self._sessions.info(session_id)

        def count(name: str) -> int:
            return int(info.get(name) or 0)

        cached, written = count("cache_read_tokens"), count("cache_write_tokens")
        total_in = count("input_tokens") + cached + written  # CanonicalUsage.prompt_tokens (usage_pricing.py)
        usage: dict[str, Any] = {
            "model": str(getattr(agent, "model", "") or info.get("model") or ""),
            "inputTokens": total_in,
            "outputTokens": count("output_tokens"),
            "totalTokens": total_in + count("output_tokens"),
            "cachedInputTokens": cached,
            "cacheWriteInputTokens": written,
            "reasoningTokens": count("reasoning_tokens"),
            "modelCalls": count("api_call_count"),
        }
        context = self._context(session_id, agent)
        if context:
            usage["context"] = context
        status = str(info.get("cost_status") or "")
        known = [info[name] for name in ("actual_cost_usd", "estimated_cost_usd") if info.get(name) is not None]
        if status not in ("", "unknown", "none") and known:
            usage["cost"] = {"amount": float(known[0]), "currency": "USD", "status": status}
        return usage

    def _context(self, session_id: str, agent: Any) -> dict[str, Any]:
        compressor = getattr(agent, "context_compressor", None)
        used = max(int(getattr(compressor, "last_prompt_tokens", 0) or 0), 0)
        size = int(getattr(compressor, "context_length", 0) or 0)
        if not used:
            entry = self._sessions._store.lookup_by_session_id(session_id)
            used = max(int(getattr(entry, "last_prompt_tokens", 0) or 0), 0)
        context: dict[str, Any] = {"usedTokens": used} if used else {}
        if used and size:
            context |= {"maxTokens": size, "fill": round(min(1.0, used / size), 4)}
        return context

    # -- subagents ----------------------------------------------------------------------------------------------

    def subagents(self, session_ids: Collection[str]) -> list[dict[str, Any]]:
        """The running children of these sessions, and theirs, oldest first."""
        found = sorted(_children(session_ids), key=lambda record: float(record.get("started_at") or 0))
        return [_told_child(record) for record in found]

    def stop_subagent(self, session_ids: Collection[str], subagent_id: str) -> bool:
        """Ask a running child to end at its next step; False if these sessions have no such child."""
        from tools.delegate_tool import interrupt_subagent

        return _child(session_ids, subagent_id) is not None and interrupt_subagent(subagent_id)

    def steer_subagent(self, session_ids: Collection[str], subagent_id: str, text: str) -> bool:
        """Give a running child a text that its model sees with its next tool result; False if there is none."""
        record = _child(session_ids, subagent_id)
        agent = record.get("agent") if record is not None else None
        return agent is not None and bool(agent.steer(text))

    def delegation(self) -> dict[str, Any]:
        """Hermes's rules for delegation now (the TUI's ``delegation.status``): paused, how deep, how many at once."""
        from tools import delegate_tool

        return {
            "paused": bool(delegate_tool.is_spawn_paused()),
            "max_spawn_depth": int(delegate_tool._get_max_spawn_depth()),
            "max_concurrent_children": int(delegate_tool._get_max_concurrent_children()),
        }

    # -- background processes -----------------------------------------------------------------------------------

    def processes(self, session_key: str) -> list[dict[str, Any]]:
        """The session's background processes, running and lately ended; secrets redacted, as for the model."""
        from tools.process_registry import process_registry

        if not session_key:
            return []
        found = []
        for entry in process_registry.list_sessions():  # before 0.18 it knows of no sessions
            process = process_registry.get(entry["session_id"])
            if getattr(process, "session_key", "") != session_key:
                continue
            shown = _redacted(entry)
            told = {
                "id": str(shown["session_id"]),
                "status": str(shown.get("status") or ""),
                "startedAt": int(float(getattr(process, "started_at", 0.0)) * 1000),
                "command": str(shown.get("command") or ""),
                "cwd": str(shown.get("cwd") or ""),
                "output": str(shown.get("output_preview") or ""),
            }
            if shown.get("exit_code") is not None:
                told["exitCode"] = int(shown["exit_code"])
            found.append(told)
        return found

    def stop_process(self, session_key: str, process_id: str) -> dict[str, Any] | None:
        """End a background process of the session; None if it has no such process.

        ``status`` is ``killed``, ``already_exited`` or ``error`` (with ``error``); ``output`` its last words.
        """
        from tools.process_registry import process_registry

        if not any(one["id"] == process_id for one in self.processes(session_key)):
            return None
        result: dict[str, Any] = _redacted(process_registry.kill_process(process_id))
        return None if result.get("status") == "not_found" else result

    # -- commands -----------------------------------------------------------------------------------------------

    def commands(self, source: SessionSource) -> list[dict[str, Any]]:
        """The slash commands that this sender may use: Hermes's, plugins', the operator's own, skills."""
        if not self._runner._is_user_authorized(source):
            return []
        policy = policy_for_source(self._runner.config, source)
        told: dict[str, dict[str, Any]] = {}
        for command in (*_built_in(), *_of_plugins(), *_quick(self._runner.config)):
            if policy.can_run(source.user_id, command["name"]):
                told.setdefault(command["name"], command)
        for command in _skills(source.platform.value):  # Hermes does not gate them (run.py, skill slash commands)
            told.setdefault(command["name"], command)
        return list(told.values())


def _redacted(told: dict[str, Any]) -> dict[str, Any]:
    """What the process registry tells, without secrets, as the model gets it; 0.17 redacts nothing by itself."""
    from tools import process_registry

    theirs = getattr(process_registry, "_redact_process_result", None)
    if theirs is not None:
        return dict(theirs(told))
    return {name: redact(value) if isinstance(value, str) else value for name, value in told.items()}


def _copied(row: dict[str, Any]) -> dict[str, Any]:
    copied = {name: row.get(name) for name in _COPIED if row.get(name) is not None}
    for name in _JSON:
        stored = copied.get(name)
        if isinstance(stored, str):
            try:
                copied[name] = json.loads(stored)
            except ValueError:
                del copied[name]
    return copied


def _records() -> list[dict[str, Any]]:
    # list_active_subagents() leaves the agents out, and only they know their session.
    from tools import delegate_tool

    with delegate_tool._active_subagents_lock:
        return [dict(record) for record in delegate_tool._active_subagents.values()]


def _children(session_ids: Collection[str]) -> Iterator[dict[str, Any]]:
    """By the ids of subagents up to the one that a session made: a compaction may give a subagent's session another id
    while its own subagents run."""
    records = {str(record.get("subagent_id") or ""): record for record in _records()}
    for record in records.values():
        top, seen = record, {""}
        while (above := str(top.get("parent_id") or "")) in records and above not in seen:
            seen.add(above)
            top = records[above]
        if _parent(top) and _parent(top) in session_ids:
            yield record


def _parent(record: dict[str, Any]) -> str:
    return str(getattr(record.get("agent"), "_parent_session_id", "") or "")


def _child(session_ids: Collection[str], subagent_id: str) -> dict[str, Any] | None:
    return next((one for one in _children(session_ids) if one.get("subagent_id") == subagent_id), None)


def _told_child(record: dict[str, Any]) -> dict[str, Any]:
    told = {
        "id": str(record.get("subagent_id") or ""),
        "status": str(record.get("status") or "running"),
        "startedAt": int(float(record.get("started_at") or 0) * 1000),
        "goal": str(record.get("goal") or ""),
        "model": str(record.get("model") or ""),
        "depth": int(record.get("depth") or 0),
        "toolCount": int(record.get("tool_count") or 0),
    }
    optional = {"parentId": record.get("parent_id"), "lastTool": record.get("last_tool")}
    return told | {name: str(value) for name, value in optional.items() if value}


def _command(
    name: str, description: str, kind: str, arguments: str = "", aliases: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "name": name,
        "aliases": list(aliases),
        "description": description,
        "arguments": arguments,
        "kind": kind,
    }


def _built_in() -> Iterator[dict[str, Any]]:
    from hermes_cli import commands

    overrides = commands._resolve_config_gates()
    for one in commands.COMMAND_REGISTRY:
        if commands._is_gateway_available(one, overrides):
            plain = one.name.replace("-", "_")
            aliases = [alias for alias in one.aliases if alias.replace("-", "_") != plain]
            yield _command(one.name, one.description, "hermes", one.args_hint, aliases)


def _of_plugins() -> Iterator[dict[str, Any]]:
    from hermes_cli import commands

    for name, description, arguments in commands._iter_plugin_command_entries():
        yield _command(name, description, "plugin", arguments)


def _quick(config: Any) -> Iterator[dict[str, Any]]:
    """The operator's own (``quick_commands``); what they run is nobody else's to read."""
    quick = config.get("quick_commands") if isinstance(config, dict) else getattr(config, "quick_commands", None)
    for name, one in (quick or {}).items() if isinstance(quick, dict) else ():
        description = one.get("description") if isinstance(one, dict) else ""
        yield _command(str(name), str(description or "A command of the operator's own."), "quick")


def _skills(platform: str) -> Iterator[dict[str, Any]]:
    from agent.skill_commands import get_skill_commands
    from agent.skill_utils import get_disabled_skill_names

    disabled = get_disabled_skill_names(platform=platform)
    for key, skill in sorted(get_skill_commands().items()):
        if skill.get("name") not in disabled:
            description = str(skill.get("description") or "").strip()
            yield _command(key.lstrip("/"), description, "skill", "[instruction]")
