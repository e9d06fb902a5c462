"""Responses that were stored: bounded in number and time, in the project's one file. Every method blocks."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..store import Store

_MOST_LINKS = 1000  # of a chain that is followed


@dataclass(frozen=True)
class ResponseRecord:
    """A stored response. Times in seconds since the epoch.

    ``hidden``: its thread is there for it and its followers alone. ``previous``: the response that it goes on from.
    ``body``: the response as it is told; ``input``: the items that it was given.
    """

    response_id: str
    principal: str
    chat_id: str
    thread_id: str
    session_key: str
    hidden: bool
    turn_id: str
    position: int
    previous: str
    created: float
    expires: float
    body: dict[str, Any]
    input: list[dict[str, Any]]


class ResponseStore:
    """What outlives the process of ``/v1/responses``."""

    def __init__(self, store: Store, *, most: int) -> None:
        self._store = store
        self._most = most

    def add(self, record: ResponseRecord) -> None:
        """Keep a response that begins."""
        body, given = _dumps(record.body), _dumps(record.input)
        values: list[Any] = [record.response_id, record.principal, record.chat_id, record.thread_id, record.session_key]
        values += [int(record.hidden), record.turn_id, record.position, record.previous]
        values += [record.created, record.expires, body, given]
        self._store.execute(f"INSERT OR REPLACE INTO responses VALUES ({', '.join('?' * len(values))})", values)

    def save(self, response_id: str, body: dict[str, Any]) -> None:
        """A response as it is now, if it was not deleted meanwhile."""
        self._store.execute("UPDATE responses SET body = ? WHERE response_id = ?", (_dumps(body), response_id))

    def get(self, principal: str, response_id: str) -> ResponseRecord | None:
        """A caller's response; another's is as unknown as a made-up one."""
        sql = "SELECT * FROM responses WHERE response_id = ? AND principal = ? AND expires > ?"
        rows = self._store.execute(sql, (response_id, principal, time.time()))
        return _record(rows[0]) if rows else None

    def chain(self, record: ResponseRecord) -> list[ResponseRecord]:
        """The response and those before it, oldest first."""
        found = [record]
        while found[-1].previous and len(found) < _MOST_LINKS:
            before = self.get(record.principal, found[-1].previous)
            if before is None:
                break
            found.append(before)
        return found[::-1]

    def newest(self, chat_id: str) -> str:
        """The id of the newest response of a thread."""
        sql = "SELECT response_id FROM responses WHERE chat_id = ? ORDER BY created DESC, rowid DESC LIMIT 1"
        rows = self._store.execute(sql, (chat_id,))
        return str(rows[0]["response_id"]) if rows else ""

    def delete(self, record: ResponseRecord) -> list[tuple[str, str]]:
        """Forget a response. Returns the threads that nothing names any more, as chat id and session key."""
        self._store.execute("DELETE FROM responses WHERE response_id = ?", (record.response_id,))
        return self._unnamed([(record.chat_id, record.session_key)] if record.hidden else [])

    def prune(self) -> list[tuple[str, str]]:
        """Forget those whose time is over, and of too many the oldest of those who have most. Returns as ``delete``."""
        gone: dict[tuple[str, str], None] = {}
        # Everybody's newest stay before anybody's second newest, and so on: who has most loses the oldest of it.
        shares = "ROW_NUMBER() OVER (PARTITION BY principal ORDER BY created DESC, rowid DESC) AS place"
        ranked = f"SELECT rowid AS id, created, {shares} FROM responses"
        oldest = f"rowid IN (SELECT id FROM ({ranked}) ORDER BY place, created DESC, id DESC LIMIT -1 OFFSET ?)"
        for which, value in (("expires <= ?", time.time()), (oldest, self._most)):
            rows = self._store.execute(f"SELECT chat_id, session_key, hidden FROM responses WHERE {which}", (value,))
            gone |= {(row["chat_id"], row["session_key"]): None for row in rows if row["hidden"]}
            if rows:
                self._store.execute(f"DELETE FROM responses WHERE {which}", (value,))
        return self._unnamed(list(gone))

    def _unnamed(self, threads: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return [one for one in threads if not self.newest(one[0])]


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _record(row: sqlite3.Row) -> ResponseRecord:
    return ResponseRecord(
        row["response_id"],
        row["principal"],
        row["chat_id"],
        row["thread_id"],
        row["session_key"],
        bool(row["hidden"]),
        row["turn_id"],
        row["position"],
        row["previous"],
        row["created"],
        row["expires"],
        json.loads(row["body"]),
        json.loads(row["input"]),
    )
