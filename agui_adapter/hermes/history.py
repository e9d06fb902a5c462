"""The seam, third part: Hermes's sessions and their rows. Every function blocks: call it from a worker thread.

Reads go through ``SessionDB`` and the runner's ``SessionStore``; changes (rewind, seed, switch) through the functions
that Hermes's own commands use, followed by the eviction of the cached agent, as they do. Written for 0.19.0.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from gateway.session import SessionSource

from ..history import Row
from .redaction import hide, redact_lines
from .versions import is_before_lineages, session_id_of

logger = logging.getLogger("hermes_agui")

_COUNTS_KEPT = 2000


def home() -> Path:
    """The directory of Hermes's database."""
    from hermes_constants import get_hermes_home

    return Path(get_hermes_home())


class Sessions:
    """The gateway's sessions, by session key."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._counts: dict[str, tuple[tuple[Any, ...], int]] = {}  # session → what its rows looked like, and the count
        self.shown: Callable[[str], str] = lambda text: text  # an answer as a person sees it

    @property
    def _store(self) -> Any:
        return self._runner.session_store

    @property
    def _db(self) -> Any:
        return self._store._db

    def session_id(self, session_key: str) -> str:
        """The session that the key stands for now; empty if there is none. Follows rotating compaction."""
        self._store._ensure_loaded()
        found = session_id_of(self._store, session_key)
        if not found:
            return ""
        return str(self._db.get_compression_tip(found) or found) if self._db is not None else str(found)

    def lineage(self, session_id: str) -> list[str]:
        """The session and those that compaction rotated it out of, oldest first; nothing for no session."""
        if not session_id:
            return []
        try:
            if is_before_lineages():
                return self._ancestors(session_id)
            return list(self._db.get_compression_lineage(session_id)) or [session_id]
        except Exception:
            logger.debug("lineage unreadable", exc_info=True)
            return [session_id]

    def _ancestors(self, session_id: str) -> list[str]:
        """As ``lineage``; a session goes on in one that began after its end (hermes_state.py, get_compression_tip)."""
        found, session = [session_id], self.info(session_id)
        while parent := self.info(str(session.get("parent_session_id") or "")):
            rotated = parent.get("end_reason") == "compression" and session["started_at"] >= parent["ended_at"]
            if not rotated or parent["id"] in found:
                break
            found.insert(0, parent["id"])
            session = parent
        return found

    def rows(self, session_id: str, after: int = 0, *, whole: bool = False) -> list[Row]:
        """The rows of a session and its lineage, behind row ``after``, with those that a rewind has taken back.

        ``whole``: as Hermes keeps them, with tags and secrets; to look for those is what takes the time.
        """
        if not session_id or self._db is None:
            return []
        found: list[Row] = []
        for one in self.lineage(session_id):
            for row in self._db.get_messages(one, include_inactive=True):
                if row["id"] > after and row["role"] in ("user", "assistant", "tool"):
                    found.append(_row(row, None if whole else self.shown))
        return found

    def mark(self) -> object:
        """Equal to an earlier one only if nothing in Hermes's database was written since, by any process."""
        try:
            with self._db._lock:
                connection = self._db._conn
                (version,) = connection.execute("PRAGMA data_version").fetchone()  # of what other connections wrote
                return connection, version, connection.total_changes
        except Exception:  # closed, or another Hermes's database: then nobody knows
            logger.debug("Hermes's database tells no version", exc_info=True)
            return object()

    def retried(self, session_key: str) -> str:
        """What ``/retry`` would send again: the newest user message of the model's memory (slash_commands.py)."""
        session_id = self.session_id(session_key)
        for message in reversed(self._store.load_transcript(session_id) if session_id else []):
            if message.get("role") == "user":
                content = message.get("content")
                return content if isinstance(content, str) else ""
        return ""

    def last_row(self, session_id: str) -> int:
        """The newest row's id of a session, 0 without one."""
        if not session_id or self._db is None:
            return 0
        with self._db._lock:
            row = self._db._conn.execute("SELECT MAX(id) FROM messages WHERE session_id = ?", (session_id,)).fetchone()
        return int(row[0] or 0)

    def rewind(self, session_key: str, session_id: str, row_id: int) -> None:
        """Take back everything from this user row on: soft, the rows stay and can be restored."""
        forget = getattr(self._store, "_clear_dirty_transcript", None)
        if forget is not None:  # from 0.19 on the store knows of rows that were not written
            forget(session_id)
        self._db.rewind_to_message(session_id, row_id)
        self.evict(session_key)

    def seed(self, session_key: str, source: SessionSource, rows: Sequence[dict[str, Any]]) -> str:
        """Write a conversation that Hermes has never seen into the thread's new session; returns the session's id."""
        entry = self._store.get_or_create_session(source)
        # Each with a time of its own, in order: Hermes would give all of them the same.
        begin = time.time() - len(rows) * 0.001
        messages: list[dict[str, Any]] = []
        for index, row in enumerate(rows):
            kept = {key: value for key, value in row.items() if key != "wire_id"}
            messages.append(kept | {"timestamp": begin + index * 0.001})
        taken = self._store.rewrite_transcript(entry.session_id, messages)
        if taken is None:  # before 0.18 it does not say
            taken = self.last_row(str(entry.session_id)) > 0
        if not taken:
            raise RuntimeError("Hermes did not take the conversation")
        self.evict(session_key)
        return str(entry.session_id)

    def evict(self, session_key: str) -> None:
        """Drop the cached agent, whose memory of the conversation is no longer true."""
        self._runner._evict_cached_agent(session_key)

    def info(self, session_id: str) -> dict[str, Any]:
        """Title, counts and times of a session, as Hermes keeps them."""
        return dict(self._db.get_session(session_id) or {}) if session_id and self._db is not None else {}

    def of_keys(self, keys: Iterable[str]) -> dict[str, str]:
        """Session key → session, for those of these keys that have one."""
        return {key: session for key in keys if (session := self.session_id(key))}

    def count(self, session_id: str, shown: Callable[[Sequence[Row]], int]) -> int:
        """How many messages a person sees of a session; it is read for that once for each change.

        ``shown``: how many these rows are, with secrets in them: it may count them and nothing else.
        """
        looks = self.looks(session_id)
        if not looks:
            return shown(())
        before, count = self._counts.get(session_id, ((), 0))
        if before != looks:
            count = shown(self.rows(session_id, whole=True))
            self.counted(session_id, looks, count)
        return count

    def looks(self, session_id: str) -> tuple[Any, ...]:
        """What tells whether a session was changed since it was counted; nothing for no session."""
        if not session_id or self._db is None:
            return ()
        sql = "SELECT COUNT(*), MAX(id), SUM(active) FROM messages WHERE session_id = ?"
        lineage = self.lineage(session_id)
        with self._db._lock:
            return tuple(tuple(self._db._conn.execute(sql, (one,)).fetchone()) for one in lineage)

    def counted(self, session_id: str, looks: tuple[Any, ...], count: int) -> None:
        """A session that looked so before it was read shows so many messages."""
        if not looks:
            return
        self._counts[session_id] = looks, count
        if len(self._counts) > _COUNTS_KEPT:
            self._counts.pop(next(iter(self._counts)), None)

    def count_again(self, session_id: str) -> None:
        """More is known of a session, or said beside it, than when it was counted."""
        self._counts.pop(session_id, None)

    def shared(self, session_key: str, session_id: str) -> bool:
        """Whether another chat's key stands on this session too."""
        lineage = set(self.lineage(session_id))
        return any(
            entry.session_id in lineage and entry.session_key != session_key for entry in self._store.list_sessions()
        )

    def change(self, session_id: str, *, title: str | None, archived: bool | None) -> None:
        """Title and archive mark of a session, by Hermes's own functions; a title that is taken stays ours alone."""
        if title is not None:
            try:
                self._db.set_session_title(session_id, title)
            except ValueError as error:
                logger.info("agui: Hermes did not take a title: %s", error)
        if archived is not None:
            self._db.set_session_archived(session_id, archived)

    def put_away(self, session_keys: Collection[str], *, keep: bool) -> None:
        """The keys are used no more: forget them, and delete their sessions; ``keep``: end these, in no list from now
        on. As Hermes itself drops keys (gateway/session.py, prune_old_entries): it lists all keys at each save.
        """
        gone = [one for key in session_keys if self._db is not None for one in self.lineage(self.session_id(key))]
        for key in session_keys:
            self.evict(key)
        with self._store._lock:
            if [key for key in session_keys if self._store._entries.pop(key, None) is not None]:
                self._store._save()
        for one in gone:
            if keep:
                self._db.end_session(one, "agui_stateless")
                self._db.set_session_archived(one, True)
            else:
                self._db.delete_session(one)

    def search(self, query: str, limit: int = 200) -> set[str]:
        """Ids of our sessions in which a message matches."""
        found = self._db.search_messages(query, source_filter=["agui"], limit=limit)
        return {str(hit["session_id"]) for hit in found}


def _row(row: dict[str, Any], shown: Callable[[str], str] | None = None) -> Row:
    """A row as Hermes has it, or as clients see it: an answer as it is ``shown``, without secrets that tools read."""
    role, content = str(row["role"]), row.get("content")
    text, summary = _without_summary(content if isinstance(content, str) else _parts(content))
    text = _without_steered(text) if role == "tool" and is_before_lineages() else text
    calls = []
    for call in row.get("tool_calls") or []:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        name, arguments = reached(
            str(function.get("name") or ""),
            arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False),
        )
        arguments = hide(arguments) if shown is not None else arguments
        made = {"id": str(call.get("id") or ""), "type": "function", "function": {"name": name, "arguments": arguments}}
        calls.append(made)
    compacted, active = bool(row.get("compacted")), bool(row.get("active", 1))
    archived, reasoning = compacted and not active, str(row.get("reasoning") or "")
    aside = role == "user" and (is_aside(text) or beside(row))
    if shown is not None and role == "assistant":
        text, reasoning = shown(text), redact_lines(reasoning) if reasoning else ""
    elif shown is not None and role == "tool":
        text = hide(text)
    number, session = int(row["id"]), str(row["session_id"])
    return Row(
        number,
        session,
        role,
        text,
        tuple(calls),
        str(row.get("tool_call_id") or ""),
        reasoning,
        float(row.get("timestamp") or 0),
        archived,
        summary,
        not compacted and not active,
        aside,
        ("", 0) if archived else (session, number),
    )


def beside(message: dict[str, Any]) -> bool:
    """Whether Hermes marks a user message as none of the conversation: from 0.22 on a steered text has a row of its
    own (prompt_builder.py, steer_user_row), where it was a part of a tool's result before."""
    return message.get("display_kind") in ("steer", "hidden")


# What Hermes 0.19 writes to the model in a user's place (conversation_loop.py, conversation_compression.py, run.py,
# process_registry.py).
_ASIDE = (
    "[System: ",
    "[System note: ",
    "You just executed tool calls but returned an",
    "[Your active task list was preserved across context compression]",
    "[IMPORTANT: Background process ",
    "[ASYNC DELEGATION ",
)


def is_aside(text: str) -> bool:
    """Is this what Hermes itself says to the model where a user's message stands?"""
    return text.startswith(_ASIDE)


def reached(name: str, arguments: str) -> tuple[str, str]:
    """A call through Hermes's ``tool_call`` bridge as the tool that it reaches (tools/tool_search.py)."""
    try:
        from tools import tool_search

        if name == tool_search.TOOL_CALL_NAME:
            real, args, error = tool_search.resolve_underlying_call(json.loads(arguments))
            if real and not error:
                return real, json.dumps(args, ensure_ascii=False, default=str)
    except Exception:
        logger.debug("tool_call bridge not unwrapped", exc_info=True)
    return name, arguments


def _parts(content: Any) -> str:
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    return "\n".join(str(part.get("text")) for part in content if isinstance(part, dict) and part.get("text"))


@functools.cache
def _summary_marks() -> tuple[tuple[str, ...], str, str] | None:
    """What a summary begins with; what stands before and behind the text that one is merged into. Before 0.18 nothing
    stands before it: the summary does."""
    try:
        from agent import context_compressor as compressor

        headers = (compressor.SUMMARY_PREFIX, compressor.LEGACY_SUMMARY_PREFIX)
        begins = (*(header[:40] for header in headers), *compressor._HISTORICAL_SUMMARY_PREFIXES)
        if not hasattr(compressor, "_MERGED_PRIOR_CONTEXT_HEADER"):
            return begins, "", compressor._SUMMARY_END_MARKER
        return begins, compressor._MERGED_PRIOR_CONTEXT_HEADER, compressor._MERGED_SUMMARY_DELIMITER
    except (ImportError, AttributeError):
        logger.debug("summaries of this Hermes cannot be told", exc_info=True)
        return None


def _without_steered(text: str) -> str:
    """A tool's result without a text that was steered behind it: before 0.18 Hermes keeps it as the model gets it
    (prompt_builder.py, format_steer_marker). Later nothing is cut, or a tool could hide from a person what it says."""
    from agent import prompt_builder

    end, begin = getattr(prompt_builder, "STEER_MARKER_CLOSE", ""), getattr(prompt_builder, "STEER_MARKER_OPEN", "")
    if not end or not text.endswith(end):
        return text
    before, found, _ = text.rpartition(f"\n\n{begin}\n")
    return before if found else text


def _without_summary(text: str) -> tuple[str, bool]:
    """A content without what compaction wrote into it, and whether it did (agent/context_compressor.py)."""
    marks = _summary_marks()
    if marks is None:
        return text, False
    begins, header, delimiter = marks
    if text.lstrip().startswith(begins):
        return "" if header else text.rpartition(delimiter)[2].strip("\n"), True
    if header and text.startswith(header):  # merged into a message that is kept
        before, found, _ = text.partition(delimiter)
        while before.startswith(header):  # once for each compaction since
            before = before.removeprefix(header).lstrip("\n")
        if found:
            return before.strip("\n"), True
    return text, False
