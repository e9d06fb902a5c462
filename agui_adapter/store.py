"""What must outlive the process, in one small SQLite file beside Hermes's database.

The thread index with the clients' own ids, which row of Hermes's is which message on the wire, what each turn was
given, and keys of runs that must not run twice. Safe to delete: messages then get ids made of their rows. Every method
blocks; callers off the loop's thread use it directly, the adapter through one worker.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .encode import clean
from .principal import SCOPES, Scope

logger = logging.getLogger("hermes_agui")

VERSION = 2
Remembered = tuple[int, str, str, str, str]
"""Of a row of Hermes's: its id, its id on the wire, the turn it is of, how that ended, what that was given (JSON)."""
UNSOLICITED = "*"
"""In the place of a run's id: the gateway began the turn by itself."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS threads (
    chat_id TEXT PRIMARY KEY, principal TEXT NOT NULL, thread_id TEXT NOT NULL, title TEXT NOT NULL DEFAULT '',
    created REAL NOT NULL, updated REAL NOT NULL, archived INTEGER NOT NULL DEFAULT 0, context TEXT NOT NULL DEFAULT '',
    system TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS threads_by_principal ON threads (principal, archived, updated);
CREATE TABLE IF NOT EXISTS turns (
    turn_id TEXT PRIMARY KEY, chat_id TEXT NOT NULL, started REAL NOT NULL, outcome TEXT NOT NULL DEFAULT '',
    inputs TEXT NOT NULL DEFAULT '[]', run_id TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS turns_by_chat ON turns (chat_id, started);
CREATE TABLE IF NOT EXISTS ids (
    session_id TEXT NOT NULL, row_id INTEGER NOT NULL, wire_id TEXT NOT NULL DEFAULT '', turn_id TEXT NOT NULL,
    at REAL NOT NULL DEFAULT 0, facts TEXT NOT NULL DEFAULT '', PRIMARY KEY (session_id, row_id)
);
CREATE INDEX IF NOT EXISTS ids_by_turn ON ids (turn_id);
CREATE TABLE IF NOT EXISTS late (
    chat_id TEXT NOT NULL, message_id TEXT PRIMARY KEY, after_row INTEGER NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS beside (
    turn_id TEXT PRIMARY KEY, chat_id TEXT NOT NULL, session_id TEXT NOT NULL, after_row INTEGER NOT NULL,
    messages TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS beside_by_chat ON beside (chat_id);
CREATE TABLE IF NOT EXISTS arrivals (
    message_id TEXT PRIMARY KEY, chat_id TEXT NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS runs (
    principal TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, chat_id TEXT NOT NULL, turn_id TEXT NOT NULL,
    position INTEGER NOT NULL, run_id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (principal, key)
);
CREATE TABLE IF NOT EXISTS tokens (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, scopes TEXT NOT NULL, created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS responses (
    response_id TEXT PRIMARY KEY, principal TEXT NOT NULL, chat_id TEXT NOT NULL, thread_id TEXT NOT NULL,
    session_key TEXT NOT NULL, hidden INTEGER NOT NULL, turn_id TEXT NOT NULL, position INTEGER NOT NULL,
    previous TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body TEXT NOT NULL, input TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS responses_by_chat ON responses (chat_id, created);
CREATE INDEX IF NOT EXISTS responses_by_expiry ON responses (expires);
CREATE TABLE IF NOT EXISTS passing (chat_id TEXT PRIMARY KEY, session_key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS states (
    chat_id TEXT PRIMARY KEY, state TEXT NOT NULL, model TEXT NOT NULL, offered INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS files (
    file_id TEXT PRIMARY KEY, principal TEXT NOT NULL, chat_id TEXT NOT NULL, turn_id TEXT NOT NULL,
    message_id TEXT NOT NULL, name TEXT NOT NULL, mime TEXT NOT NULL, size INTEGER NOT NULL, kind TEXT NOT NULL,
    caption TEXT NOT NULL, source TEXT NOT NULL, url TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,
    after_row INTEGER NOT NULL DEFAULT -1, gone INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS files_by_chat ON files (chat_id);
CREATE INDEX IF NOT EXISTS files_by_source ON files (source);
"""


def store_path(home: Path) -> Path:
    """Where the file lies, by HERMES_HOME."""
    return home / "agui.db"


_MIGRATIONS = {  # from this version to the next; new tables need none
    1: (
        "ALTER TABLE ids ADD COLUMN at REAL NOT NULL DEFAULT 0",
        "ALTER TABLE ids ADD COLUMN facts TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE threads ADD COLUMN system TEXT NOT NULL DEFAULT ''",
    ),
}


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


@dataclass(frozen=True)
class TokenRecord:
    """A named token (``tokens.py``); the token itself is not kept."""

    name: str
    scopes: tuple[Scope, ...]
    created: float


@dataclass(frozen=True)
class TurnRecord:
    """When a turn began, in seconds since the epoch, and how it ended: empty while it runs, or if the process died."""

    chat_id: str
    started: float
    outcome: str


@dataclass(frozen=True)
class FileRecord:
    """A file that clients can fetch, or could until it expired (``files.py``). Times in seconds, size in bytes.

    ``message_id``: the message that shows it, empty for what a user sent. ``source``: the path that the agent sent.
    ``url``: an address elsewhere, of which there is no copy. ``after_row``: the row of Hermes's that it came after, -1
    until its turn has ended.
    """

    file_id: str
    principal: str
    chat_id: str
    turn_id: str = ""
    message_id: str = ""
    name: str = ""
    mime: str = ""
    size: int = 0
    kind: str = "document"
    caption: str = ""
    source: str = ""
    url: str = ""
    created: int = 0
    expires: int = 0
    after_row: int = -1


class Store:
    """Thread-safe. A file that is damaged is put aside and begun anew: nothing in it is the truth."""

    def __init__(self, path: Path, *, wait_seconds: float = 5.0) -> None:
        self._path = path
        self._wait = wait_seconds  # for another process that holds the file
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._inode = 0  # of its file; 0 while it is in memory

    def open(self) -> None:
        """Open or make the file, and forget what is too old. Falls back to memory when the disk does not take it."""
        with self._lock:
            try:
                self._db = self._connect(str(self._path))
            except OSError as error:
                logger.error("agui: %s cannot be made (%s): ids will not survive a restart", self._path.name, error)
                self._db = self._connect(":memory:")
            except sqlite3.OperationalError as error:  # not damaged: locked, or not ours to write
                logger.error("agui: %s cannot be written (%s): ids will not survive a restart", self._path.name, error)
                self._db = self._connect(":memory:")
            except sqlite3.DatabaseError as error:
                self._begin_anew(error)
        self.prune()

    @property
    def on_disk(self) -> bool:
        """Whether what is kept survives the process."""
        with self._lock:
            return self._db is not None and bool(self._db.execute("PRAGMA database_list").fetchone()["file"])

    def _put_aside(self) -> None:
        """The damaged file, and with it what SQLite keeps beside it: that must not be read into a new one."""
        mark = f".damaged-{time.time_ns()}"
        for suffix in ("", "-wal", "-shm"):
            beside = Path(f"{self._path}{suffix}")
            if beside.exists():
                beside.rename(f"{self._path}{mark}{suffix}")

    def close(self) -> None:
        """Close the file; later calls do nothing."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _connect(self, path: str) -> sqlite3.Connection:
        if path == str(self._path):
            self._path.touch(mode=0o600)  # it holds what users wrote, and SQLite gives its companions the same mode
        db = sqlite3.connect(path, timeout=self._wait, check_same_thread=False, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA secure_delete=ON")  # what is erased is gone from the file too
            self._migrate(db)
        except sqlite3.DatabaseError:
            db.close()
            raise
        self._inode = _inode(self._path) if path != ":memory:" else 0
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        """To this version, in one transaction. A file of a later version keeps what this one does not know."""
        db.execute("BEGIN IMMEDIATE")
        try:
            known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
            row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() if known else None
            version = int(row["value"]) if row is not None else VERSION
            for old in range(version, VERSION):
                for statement in _MIGRATIONS[old]:
                    db.execute(statement)
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (str(max(version, VERSION)),))
            db.execute("COMMIT")
        except (ValueError, KeyError):
            _roll_back(db)
            raise sqlite3.DatabaseError("its version cannot be read") from None
        except sqlite3.Error:
            _roll_back(db)
            raise

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """One statement on a table of this file, for modules that keep tables of their own in it (``rest``)."""
        return self._run(sql, values)

    def mark(self) -> object:
        """Equal to an earlier one only if nothing in the file was written since, by any process."""
        version = self._run("PRAGMA data_version")  # of what other connections wrote
        with self._lock:
            db = self._db
            return (db, version[0][0], db.total_changes) if version and db is not None else object()

    def _run(self, sql: str, values: Sequence[Any] = (), *, many: bool = False) -> list[sqlite3.Row]:
        """One statement. An error of the disk is logged and answered with nothing: a turn never fails by it.

        A file that was deleted or damaged meanwhile is begun anew.
        """
        with self._lock:
            for again in (False, True):
                try:
                    if self._db is None:
                        return []
                    if self._inode and self._inode != _inode(self._path):
                        raise sqlite3.DatabaseError("its file is gone")
                    return self._execute(self._db, sql, values, many=many)
                except UnicodeEncodeError:  # half a surrogate pair, from a terminal or a model
                    values = clean(values)
                except sqlite3.Error as error:
                    if again or not _lost(error):
                        logger.exception("agui: the store failed")
                        return []
                    self._begin_anew(error)
        return []

    def _execute(self, db: sqlite3.Connection, sql: str, values: Sequence[Any], *, many: bool) -> list[sqlite3.Row]:
        if not many:
            return db.execute(sql, values).fetchall()
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany(sql, values)
            db.execute("COMMIT")
        except sqlite3.Error:
            _roll_back(db)
            raise
        return []

    def _begin_anew(self, why: object) -> None:
        """Under the lock. The file cannot be used, so another takes its place; without a disk, memory."""
        logger.warning("agui: %s cannot be used (%s): it is begun anew", self._path.name, why)
        if self._db is not None and "no such table" in str(why):  # an empty file, or not all of one
            with suppress(sqlite3.Error):
                self._migrate(self._db)
                return
        if self._db is not None:
            self._db.close()
        try:
            self._put_aside()
            self._db = self._connect(str(self._path))
        except (OSError, sqlite3.DatabaseError):
            logger.exception("agui: no store on disk: ids will not survive a restart")
            self._db = self._connect(":memory:")

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
        """The client's context that the model was told last."""
        rows = self._run("SELECT context FROM threads WHERE chat_id = ?", (chat_id,))
        return str(rows[0]["context"]) if rows else ""

    def set_context(self, chat_id: str, context: str) -> None:
        """Remember what the model was told."""
        self._run("UPDATE threads SET context = ? WHERE chat_id = ?", (context, chat_id))

    def system(self, chat_id: str) -> str:
        """The client's own instructions to the agent."""
        rows = self._run("SELECT system FROM threads WHERE chat_id = ?", (chat_id,))
        return str(rows[0]["system"]) if rows else ""

    def set_system(self, chat_id: str, system: str) -> None:
        """Remember the client's instructions."""
        self._run("UPDATE threads SET system = ? WHERE chat_id = ? AND system != ?", (system, chat_id, system))

    def state(self, chat_id: str) -> tuple[Any, str, bool]:
        """A thread's document (None: none), what the model knows of it, and whether it has the state tools."""
        rows = self._run("SELECT * FROM states WHERE chat_id = ?", (chat_id,))
        if not rows:
            return None, "", False
        return json.loads(rows[0]["state"]), rows[0]["model"], bool(rows[0]["offered"])

    def set_state(self, chat_id: str, state: Any, model: str, offered: bool) -> None:
        """Keep a thread's document."""
        text = json.dumps(state, ensure_ascii=False)
        self._run("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", (chat_id, text, model, int(offered)))

    def delete_thread(self, chat_id: str) -> None:
        """Forget everything about a thread."""
        self._run("DELETE FROM ids WHERE turn_id IN (SELECT turn_id FROM turns WHERE chat_id = ?)", (chat_id,))
        for table in ("threads", "turns", "late", "beside", "arrivals", "runs", "states", "passing", "responses"):
            self._run(f"DELETE FROM {table} WHERE chat_id = ?", (chat_id,))

    def add_passing(self, chat_id: str, session_key: str) -> None:
        """A thread of one stateless request begins, which goes with it (``delete_thread``)."""
        self._run("INSERT OR REPLACE INTO passing VALUES (?, ?)", (chat_id, session_key))

    def passing(self) -> list[tuple[str, str]]:
        """Such threads that are still there, each with its session key."""
        return [(row["chat_id"], row["session_key"]) for row in self._run("SELECT * FROM passing")]

    def threads_of(self, principal: str) -> list[str]:
        """The client's ids of all threads of a principal, those put aside too."""
        rows = self._run("SELECT thread_id FROM threads WHERE principal = ?", (principal,))
        return [str(row["thread_id"]) for row in rows]

    def chats_of(self, principal: str) -> list[str]:
        """Every chat of which anything is kept for a principal."""
        tables = ("threads", "runs", "files", "responses")
        sql = " UNION ".join(f"SELECT chat_id FROM {table} WHERE principal = ?" for table in tables)
        return [str(row["chat_id"]) for row in self._run(sql, (principal,) * len(tables))]

    def hidden_of(self, principal: str) -> list[str]:
        """The session keys of a principal's threads that are there for stored responses alone."""
        sql = "SELECT DISTINCT session_key FROM responses WHERE principal = ? AND hidden"
        return [str(row["session_key"]) for row in self._run(sql, (principal,))]

    def unused(self, days: float) -> list[str]:
        """Chats of threads that were not used for so many days."""
        rows = self._run("SELECT chat_id FROM threads WHERE updated < ?", (time.time() - days * 86400,))
        return [str(row["chat_id"]) for row in rows]

    def wipe(self) -> None:
        """What was deleted is gone from the disk: SQLite's journal beside the file holds it until then."""
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- turns and ids ------------------------------------------------------------------------------------------

    def begin_turn(self, turn_id: str, chat_id: str, inputs: Sequence[Mapping[str, Any]], run_id: str) -> None:
        """A turn was accepted with these client messages."""
        self._run(
            "INSERT OR REPLACE INTO turns (turn_id, chat_id, started, inputs, run_id) VALUES (?, ?, ?, ?, ?)",
            (turn_id, chat_id, time.time(), json.dumps(list(inputs), ensure_ascii=False), run_id),
        )

    def end_turn(
        self,
        turn_id: str,
        session_id: str,
        outcome: str,
        ids: Mapping[int, str],
        rows: Sequence[int],
        *,
        times: Mapping[int, float] | None = None,
        facts: Mapping[int, str] | None = None,
    ) -> None:
        """A turn ended: ``rows`` are Hermes's rows of it, ``ids`` the wire ids of those that were streamed.

        ``times`` are the rows' own, ``facts`` what else is to be remembered of them.
        """
        self._run("UPDATE turns SET outcome = ? WHERE turn_id = ?", (outcome, turn_id))
        times, facts = times or {}, facts or {}
        values = [(session_id, row, ids.get(row, ""), turn_id, times.get(row, 0.0), facts.get(row, "")) for row in rows]
        if values:
            self._run("INSERT OR REPLACE INTO ids VALUES (?, ?, ?, ?, ?, ?)", values, many=True)

    def forget_turn(self, turn_id: str) -> None:
        """A turn that never was, with the run that began it."""
        for table in ("turns", "beside", "runs"):
            self._run(f"DELETE FROM {table} WHERE turn_id = ?", (turn_id,))

    def outcome(self, turn_id: str) -> str:
        """How a turn ended; empty while it runs, or if the process died in it."""
        rows = self._run("SELECT outcome FROM turns WHERE turn_id = ?", (turn_id,))
        return str(rows[0]["outcome"]) if rows else ""

    def turn(self, turn_id: str) -> TurnRecord | None:
        """A turn that was begun; None for one that was not, or is no longer known."""
        rows = self._run("SELECT chat_id, started, outcome FROM turns WHERE turn_id = ?", (turn_id,))
        return TurnRecord(rows[0]["chat_id"], rows[0]["started"], rows[0]["outcome"]) if rows else None

    def facts(self, session_ids: Sequence[str]) -> dict[int, str]:
        """Row id → what else is remembered of it, where there is anything."""
        marks = ",".join("?" * len(session_ids))
        sql = f"SELECT row_id, facts FROM ids WHERE session_id IN ({marks}) AND facts != ''"
        return {row["row_id"]: row["facts"] for row in self._run(sql, list(session_ids))}

    def times(self, session_ids: Sequence[str]) -> dict[int, float]:
        """Every remembered row's time, 0 where it is not known."""
        marks = ",".join("?" * len(session_ids))
        rows = self._run(f"SELECT row_id, at FROM ids WHERE session_id IN ({marks})", list(session_ids))
        return {row["row_id"]: row["at"] for row in rows}

    def move_rows(self, chat_id: str, moved: Mapping[int, int]) -> None:
        """Rows of a chat's session that Hermes wrote anew: old id → new id."""
        values = [(new, old) for old, new in moved.items()]
        self._run("UPDATE OR REPLACE ids SET row_id = ? WHERE row_id = ?", values, many=True)
        for table, key in (("beside", "turn_id"), ("late", "message_id")):
            for row in self._run(f"SELECT {key}, after_row FROM {table} WHERE chat_id = ?", (chat_id,)):
                after = max((new for old, new in moved.items() if old <= row["after_row"]), default=0)
                self._run(f"UPDATE {table} SET after_row = ? WHERE {key} = ?", (after, row[key]))

    # -- what Hermes's history has not ------------------------------------------------------------------------------

    def add_beside(
        self, turn_id: str, chat_id: str, session_id: str, after_row: int, messages: Sequence[Mapping[str, Any]]
    ) -> None:
        """A turn that left nothing in the history of ``session_id`` (a command): what it said, behind this row."""
        self._run(
            "INSERT OR REPLACE INTO beside VALUES (?, ?, ?, ?, ?)",
            (turn_id, chat_id, session_id, after_row, json.dumps(list(messages), ensure_ascii=False)),
        )

    def beside(self, chat_id: str, session_ids: Sequence[str]) -> list[tuple[int, list[dict[str, Any]]]]:
        """(the row it came after, what it was given and what it said) of each such turn, oldest first."""
        return [(after, messages) for _, after, messages in self.turns_beside(chat_id, session_ids)]

    def turns_beside(self, chat_id: str, session_ids: Sequence[str]) -> list[tuple[str, int, list[dict[str, Any]]]]:
        """The same with the turns' ids in front."""
        rows = self._run(
            "SELECT turn_id, after_row, session_id, inputs, messages FROM beside LEFT JOIN turns USING (turn_id) "
            "WHERE beside.chat_id = ? ORDER BY beside.rowid",
            (chat_id,),
        )
        return [
            (row["turn_id"], row["after_row"], [*json.loads(row["inputs"] or "[]"), *json.loads(row["messages"])])
            for row in rows
            if row["session_id"] in session_ids or not row["session_id"]
        ]

    def forget_turns_beside(self, turn_ids: Sequence[str]) -> None:
        """These turns were taken back."""
        self._run("DELETE FROM beside WHERE turn_id = ?", [(turn_id,) for turn_id in turn_ids], many=True)

    def forget_beside(self, chat_id: str, row_id: int) -> None:
        """A rewind took back this row and all behind it."""
        self._run("DELETE FROM beside WHERE chat_id = ? AND after_row >= ?", (chat_id, row_id))

    def remembered(self, session_ids: Sequence[str]) -> list[Remembered]:
        """All rows of these sessions that are known, in order."""
        marks = ",".join("?" * len(session_ids))
        rows = self._run(
            f"SELECT ids.row_id, ids.wire_id, ids.turn_id, turns.outcome, turns.inputs FROM ids "
            f"LEFT JOIN turns USING (turn_id) WHERE ids.session_id IN ({marks}) ORDER BY ids.row_id",
            list(session_ids),
        )
        return [(r["row_id"], r["wire_id"], r["turn_id"], r["outcome"] or "", r["inputs"] or "[]") for r in rows]

    def unsolicited(self, session_ids: Sequence[str]) -> set[int]:
        """Rows of turns that nobody submitted: what "the user" says in them is Hermes's own word to the model."""
        marks = ",".join("?" * len(session_ids))
        rows = self._run(
            f"SELECT ids.row_id FROM ids JOIN turns USING (turn_id) WHERE ids.session_id IN ({marks}) "
            "AND turns.run_id = ?",
            [*session_ids, UNSOLICITED],
        )
        return {row["row_id"] for row in rows}

    def unfinished(self, chat_id: str) -> tuple[str, list[dict[str, Any]]] | None:
        """The chat's newest turn and the client's messages of it, if its end was never recorded: the process died."""
        rows = self._run(
            "SELECT turn_id, inputs, outcome FROM turns WHERE chat_id = ? ORDER BY started DESC LIMIT 1", (chat_id,)
        )
        if not rows or rows[0]["outcome"]:
            return None
        return rows[0]["turn_id"], json.loads(rows[0]["inputs"])

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

    # -- messages that another process left -----------------------------------------------------------------------

    def add_arrival(self, message_id: str, chat_id: str, text: str) -> bool:
        """Leave a message for a thread, for the gateway that has the file. False if the disk did not take it."""
        self._run("INSERT OR IGNORE INTO arrivals VALUES (?, ?, ?, ?)", (message_id, chat_id, text, time.time()))
        return bool(self._run("SELECT 1 FROM arrivals WHERE message_id = ?", (message_id,)))

    def arrivals(self) -> list[tuple[str, str, str, float]]:
        """(message id, chat id, text, time) of what other processes left, oldest first."""
        rows = self._run("SELECT * FROM arrivals ORDER BY at")
        return [(row["message_id"], row["chat_id"], row["text"], row["at"]) for row in rows]

    def arrived(self, message_id: str) -> None:
        """It is delivered, or cannot be."""
        self._run("DELETE FROM arrivals WHERE message_id = ?", (message_id,))

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

    # -- tokens -----------------------------------------------------------------------------------------------------

    def add_token(self, name: str, digest: str, scopes: Sequence[str]) -> bool:
        """Remember a token by its digest. False where the name is taken, or nothing could be written."""
        values = (name, digest, " ".join(scopes), time.time())
        return bool(self._run("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?) RETURNING name", values))

    def token(self, digest: str) -> TokenRecord | None:
        """The token of this digest, unless it was revoked."""
        rows = self._run("SELECT * FROM tokens WHERE digest = ?", (digest,))
        return _token(rows[0]) if rows else None

    def tokens(self) -> list[TokenRecord]:
        """All of them, by name."""
        return [_token(row) for row in self._run("SELECT * FROM tokens ORDER BY name")]

    def token_digests(self) -> frozenset[str]:
        """The digests of all of them."""
        return frozenset(str(row["digest"]) for row in self._run("SELECT digest FROM tokens"))

    def remove_token(self, name: str) -> bool:
        """Forget a token. False where there is none."""
        return bool(self._run("DELETE FROM tokens WHERE name = ? RETURNING name", (name,)))

    # -- files ----------------------------------------------------------------------------------------------------

    def secret(self, name: str) -> str:
        """A secret of this store's own, made when it is first asked for."""
        key = f"secret:{name}"
        self._run("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, secrets.token_hex(32)))
        rows = self._run("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0]["value"]) if rows else secrets.token_hex(32)

    def add_file(self, record: FileRecord) -> None:
        """Remember a file."""
        values = asdict(record)
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self._run(f"INSERT OR REPLACE INTO files ({names}) VALUES ({marks})", list(values.values()))

    def file(self, file_id: str) -> FileRecord | None:
        """One file's record, whether its bytes are still there or not."""
        rows = self._run("SELECT * FROM files WHERE file_id = ?", (file_id,))
        return _file(rows[0]) if rows else None

    def files_of(self, chat_id: str) -> list[FileRecord]:
        """All files of a thread, oldest first."""
        return [
            _file(row) for row in self._run("SELECT * FROM files WHERE chat_id = ? ORDER BY created, rowid", (chat_id,))
        ]

    def files_alive(self) -> list[FileRecord]:
        """Those whose bytes were not removed yet."""
        return [_file(row) for row in self._run("SELECT * FROM files WHERE gone = 0")]

    def file_sent(self, source: str) -> bool:
        """Whether the file at this path was sent once."""
        return bool(self._run("SELECT 1 FROM files WHERE source = ? LIMIT 1", (source,)))

    def file_gone(self, file_id: str) -> None:
        """Its bytes are removed; what was said of it stays."""
        self._run("UPDATE files SET gone = 1 WHERE file_id = ?", (file_id,))

    def place_files(self, turn_id: str, after_row: int) -> None:
        """The turn has ended: what it sent stands behind this row."""
        self._run("UPDATE files SET after_row = ? WHERE turn_id = ? AND message_id != ''", (after_row, turn_id))

    def hide_files(self, chat_id: str, row_id: int) -> None:
        """A rewind took back this row and all behind it: what was sent there is no longer shown."""
        self._run("UPDATE files SET message_id = '' WHERE chat_id = ? AND after_row >= ?", (chat_id, row_id))

    def delete_files(self, chat_id: str) -> None:
        """Forget a thread's files."""
        self._run("DELETE FROM files WHERE chat_id = ?", (chat_id,))

    def prune(self, run_days: float = 7) -> None:
        """Forget keys of runs after a week."""
        self._run("DELETE FROM runs WHERE at < ?", (time.time() - run_days * 86400,))


def _inode(path: Path) -> int:
    """Which file is there now; -1 for none, or an empty one. By its directory only: to open and close a database's file
    beside SQLite would take SQLite's locks away."""
    try:
        found = path.stat()
    except OSError:
        return -1
    return found.st_ino if found.st_size else -1


def _lost(error: sqlite3.Error) -> bool:
    """Whether the file is damaged or gone, and not only locked or without room."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_READONLY_DBMOVED", "SQLITE_IOERR_SHORT_READ")):
        return True
    return type(error) is sqlite3.DatabaseError or "no such table" in str(error)


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:  # some errors have ended it already
        db.execute("ROLLBACK")


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


def _token(row: sqlite3.Row) -> TokenRecord:
    scopes = set(row["scopes"].split())
    return TokenRecord(row["name"], tuple(scope for scope in sorted(SCOPES) if scope in scopes), row["created"])


def _file(row: sqlite3.Row) -> FileRecord:
    return FileRecord(**{field.name: row[field.name] for field in fields(FileRecord)})
