"""What must outlive the process, in one small SQLite file beside Hermes's database.

The thread index with the clients' own ids, which row of Hermes's is which message on the wire, what each turn was
given, and keys of runs that must not run twice. Safe to delete: messages then get ids made of their rows. Every method
blocks; callers off the loop's thread use it directly, the adapter through one worker.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger("hermes_agui")

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS threads (
    chat_id TEXT PRIMARY KEY, principal TEXT NOT NULL, thread_id TEXT NOT NULL, title TEXT NOT NULL DEFAULT '',
    created REAL NOT NULL, updated REAL NOT NULL, archived INTEGER NOT NULL DEFAULT 0, context TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS threads_by_principal ON threads (principal, archived, updated);
CREATE TABLE IF NOT EXISTS turns (
    turn_id TEXT PRIMARY KEY, chat_id TEXT NOT NULL, started REAL NOT NULL, outcome TEXT NOT NULL DEFAULT '',
    inputs TEXT NOT NULL DEFAULT '[]', run_id TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS turns_by_chat ON turns (chat_id, started);
CREATE TABLE IF NOT EXISTS ids (
    session_id TEXT NOT NULL, row_id INTEGER NOT NULL, wire_id TEXT NOT NULL DEFAULT '', turn_id TEXT NOT NULL,
    PRIMARY KEY (session_id, row_id)
);
CREATE INDEX IF NOT EXISTS ids_by_turn ON ids (turn_id);
CREATE TABLE IF NOT EXISTS late (
    chat_id TEXT NOT NULL, message_id TEXT PRIMARY KEY, after_row INTEGER NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS runs (
    principal TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, chat_id TEXT NOT NULL, turn_id TEXT NOT NULL,
    position INTEGER NOT NULL, run_id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (principal, key)
);
"""


@dataclass(frozen=True)
class ThreadRecord:
    """A thread as the index has it; times in seconds since the epoch."""

    chat_id: str
    principal: str
    thread_id: str
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    archived: bool = False


@dataclass(frozen=True)
class RunRecord:
    """A run that was accepted under a key."""

    digest: str
    chat_id: str
    turn_id: str
    position: int
    run_id: str


class Store:
    """Thread-safe. A file that is damaged is put aside and begun anew: nothing in it is the truth."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open or make the file. Falls back to memory when the disk does not take it."""
        with self._lock:
            try:
                self._db = self._connect(str(self._path))
            except sqlite3.DatabaseError as error:
                logger.warning("agui: %s cannot be used (%s): it is put aside and begun anew", self._path.name, error)
                try:
                    self._path.rename(self._path.with_suffix(f".damaged-{int(time.time())}"))
                    self._db = self._connect(str(self._path))
                except (OSError, sqlite3.DatabaseError):
                    logger.exception("agui: no store on disk: ids will not survive a restart")
                    self._db = self._connect(":memory:")

    def close(self) -> None:
        """Close the file; later calls do nothing."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _connect(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=5, check_same_thread=False, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_SCHEMA)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('version', ?)", (str(VERSION),))
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def _run(self, sql: str, values: Sequence[Any] = (), *, many: bool = False) -> list[sqlite3.Row]:
        """One statement. An error of the disk is logged and answered with nothing: a turn never fails by it."""
        with self._lock:
            if self._db is None:
                return []
            try:
                if many:
                    self._db.execute("BEGIN")
                    try:
                        self._db.executemany(sql, values)
                    finally:
                        self._db.execute("COMMIT")
                    return []
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error:
                logger.exception("agui: the store failed")
                return []

    # -- threads ------------------------------------------------------------------------------------------------

    def touch_thread(self, chat_id: str, principal: str, thread_id: str) -> None:
        """The thread was used now; its record is made when it is new."""
        now = time.time()
        self._run(
            "INSERT INTO threads (chat_id, principal, thread_id, created, updated) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (chat_id) DO UPDATE SET updated = excluded.updated, thread_id = excluded.thread_id",
            (chat_id, principal, thread_id, now, now),
        )

    def thread(self, chat_id: str) -> ThreadRecord | None:
        """One thread's record."""
        rows = self._run("SELECT * FROM threads WHERE chat_id = ?", (chat_id,))
        return _thread(rows[0]) if rows else None

    def threads(self, principal: str | None, *, archived: bool = False) -> list[ThreadRecord]:
        """A principal's threads (None: everybody's), newest first."""
        rows = self._run(
            "SELECT * FROM threads WHERE (? IS NULL OR principal = ?) AND archived = ? ORDER BY updated DESC",
            (principal, principal, int(archived)),
        )
        return [_thread(row) for row in rows]

    def set_thread(self, chat_id: str, *, title: str | None = None, archived: bool | None = None) -> None:
        """Change a thread's title or put it aside."""
        if title is not None:
            self._run("UPDATE threads SET title = ? WHERE chat_id = ?", (title, chat_id))
        if archived is not None:
            self._run("UPDATE threads SET archived = ? WHERE chat_id = ?", (int(archived), chat_id))

    def context(self, chat_id: str) -> str:
        """The client's context and state that the model was told last."""
        rows = self._run("SELECT context FROM threads WHERE chat_id = ?", (chat_id,))
        return str(rows[0]["context"]) if rows else ""

    def set_context(self, chat_id: str, context: str) -> None:
        """Remember what the model was told."""
        self._run("UPDATE threads SET context = ? WHERE chat_id = ?", (context, chat_id))

    def delete_thread(self, chat_id: str) -> None:
        """Forget everything about a thread."""
        self._run("DELETE FROM ids WHERE turn_id IN (SELECT turn_id FROM turns WHERE chat_id = ?)", (chat_id,))
        for table in ("threads", "turns", "late", "runs"):
            self._run(f"DELETE FROM {table} WHERE chat_id = ?", (chat_id,))

    # -- turns and ids ------------------------------------------------------------------------------------------

    def begin_turn(self, turn_id: str, chat_id: str, inputs: Sequence[Mapping[str, Any]], run_id: str) -> None:
        """A turn was accepted with these client messages."""
        self._run(
            "INSERT OR REPLACE INTO turns (turn_id, chat_id, started, inputs, run_id) VALUES (?, ?, ?, ?, ?)",
            (turn_id, chat_id, time.time(), json.dumps(list(inputs), ensure_ascii=False), run_id),
        )

    def end_turn(
        self, turn_id: str, session_id: str, outcome: str, ids: Mapping[int, str], rows: Sequence[int]
    ) -> None:
        """A turn ended: ``rows`` are Hermes's rows of it, ``ids`` the wire ids of those that were streamed."""
        self._run("UPDATE turns SET outcome = ? WHERE turn_id = ?", (outcome, turn_id))
        values = [(session_id, row, ids.get(row, ""), turn_id) for row in rows]
        if values:
            self._run("INSERT OR REPLACE INTO ids VALUES (?, ?, ?, ?)", values, many=True)

    def remembered(self, session_ids: Sequence[str]) -> list[tuple[int, str, str, str, str]]:
        """(row id, wire id, turn id, outcome, inputs as JSON) of all rows of these sessions, in order."""
        marks = ",".join("?" * len(session_ids))
        rows = self._run(
            f"SELECT ids.row_id, ids.wire_id, ids.turn_id, turns.outcome, turns.inputs FROM ids "
            f"LEFT JOIN turns USING (turn_id) WHERE ids.session_id IN ({marks}) ORDER BY ids.row_id",
            list(session_ids),
        )
        return [(r["row_id"], r["wire_id"], r["turn_id"], r["outcome"] or "", r["inputs"] or "[]") for r in rows]

    def accepted_ids(self, chat_id: str) -> list[str]:
        """Ids of the client messages that this thread has taken, oldest first."""
        rows = self._run("SELECT inputs FROM turns WHERE chat_id = ? ORDER BY started", (chat_id,))
        return [str(message["id"]) for row in rows for message in json.loads(row["inputs"])]

    # -- late messages --------------------------------------------------------------------------------------------

    def add_late(self, chat_id: str, message_id: str, after_row: int, text: str) -> None:
        """A message for the thread that Hermes's history does not keep (a cron result)."""
        self._run(
            "INSERT OR REPLACE INTO late VALUES (?, ?, ?, ?, ?)", (chat_id, message_id, after_row, text, time.time())
        )

    def late(self, chat_id: str) -> list[tuple[str, int, str]]:
        """(message id, the row it came after, text), oldest first."""
        rows = self._run("SELECT * FROM late WHERE chat_id = ? ORDER BY at", (chat_id,))
        return [(row["message_id"], row["after_row"], row["text"]) for row in rows]

    # -- runs -----------------------------------------------------------------------------------------------------

    def run(self, principal: str, key: str) -> RunRecord | None:
        """The run that this principal started under this key."""
        rows = self._run("SELECT * FROM runs WHERE principal = ? AND key = ?", (principal, key))
        if not rows:
            return None
        row = rows[0]
        return RunRecord(row["digest"], row["chat_id"], row["turn_id"], row["position"], row["run_id"])

    def keep_run(self, principal: str, key: str, record: RunRecord) -> None:
        """Remember a run; the newest under a key counts."""
        self._run(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                principal,
                key,
                record.digest,
                record.chat_id,
                record.turn_id,
                record.position,
                record.run_id,
                time.time(),
            ),
        )

    def prune(self, run_days: float = 7) -> None:
        """Forget keys of runs after a week."""
        self._run("DELETE FROM runs WHERE at < ?", (time.time() - run_days * 86400,))


def _thread(row: sqlite3.Row) -> ThreadRecord:
    return ThreadRecord(
        row["chat_id"],
        row["principal"],
        row["thread_id"],
        row["title"],
        row["created"],
        row["updated"],
        bool(row["archived"]),
    )
