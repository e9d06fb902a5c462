"""A thread copied into a new one: the session by Hermes's own means, and in the store what makes ids and inputs stay.

The copy has the message ids of the original, so a client that takes its messages along has nothing to learn. Blocking:
the archive's worker runs it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.session import SessionSource

from .archive import Archive
from .hermes.actions import Actions, Copy
from .history import sent_rows, visible
from .session import Thread
from .store import UNSOLICITED, Remembered
from .titles import following, in_hermes


@dataclass
class _Past:
    """A turn of the original: how it ended, what it was given (JSON), its rows with their ids on the wire."""

    outcome: str
    given: str
    rows: list[tuple[int, str]] = field(default_factory=list)


def branch(archive: Archive, actions: Actions, thread: Thread, new: Thread, source: SessionSource, title: str) -> str:
    """Copy ``thread`` into ``new``, which nobody has used; returns the new title.

    ``source`` is the new thread's. Raises LookupError when there is nothing to copy.
    """
    key, new_key = archive.key_of(thread), archive.key_of(new)
    session = archive.sessions.session_id(key)
    if not session:
        raise LookupError(thread.thread_id)
    lineage = archive.sessions.lineage(session)
    rows, remembered = archive.sessions.rows(session), archive.store.remembered(lineage)
    turns, shown = _turns(remembered), {row.id for row in visible(rows, sent_rows(rows, remembered))}
    if not title and not new.principal.may("admin"):
        title = _next_title(archive, thread, session)
    copy = actions.branch(session, shown, key, source, new_key, in_hermes(new, title) if title else "")
    title = title or copy.title
    _remember(archive, thread, new, lineage, turns, copy, title)
    return title


def _next_title(archive: Archive, thread: Thread, session: str) -> str:
    """As Hermes numbers copies, but among the principal's own threads."""
    store = archive.store
    known = store.thread(thread.chat_id)
    title = (known.title if known else "") or str(archive.sessions.info(session).get("title") or "")
    own = [one.title for archived in (False, True) for one in store.threads(thread.principal.id, archived=archived)]
    return following(title or "branch", [*own, title])


def _turns(remembered: Sequence[Remembered]) -> dict[str, _Past]:
    turns: dict[str, _Past] = {}
    for row_id, wire, turn_id, outcome, given in remembered:
        turns.setdefault(turn_id, _Past(outcome, given)).rows.append((row_id, wire))
    return turns


def _remember(
    archive: Archive,
    thread: Thread,
    new: Thread,
    lineage: Sequence[str],
    turns: dict[str, _Past],
    copy: Copy,
    title: str,
) -> None:
    store = archive.store
    store.touch_thread(new.chat_id, new.principal.id, new.thread_id)
    store.set_thread(new.chat_id, title=title)
    store.set_context(new.chat_id, store.context(thread.chat_id))
    archive.copy_state(thread, new)
    unsolicited, times, facts = store.unsolicited(lineage), store.times(lineage), store.facts(lineage)
    for past in turns.values():
        kept = [(copy.rows[row_id], row_id, wire) for row_id, wire in past.rows if row_id in copy.rows]
        if not kept:
            continue
        turn_id = _turn_id()
        by_gateway = any(row_id in unsolicited for row_id, _ in past.rows)
        store.begin_turn(turn_id, new.chat_id, json.loads(past.given), UNSOLICITED if by_gateway else "")
        store.end_turn(
            turn_id,
            copy.session_id,
            past.outcome or "success",
            {row: wire for row, _, wire in kept if wire},
            [row for row, _, _ in kept],
            times={row: times.get(old, 0.0) for row, old, _ in kept},
            facts={row: facts[old] for row, old, _ in kept if old in facts},
        )

    def behind(row_id: int) -> int:
        return max((made for old, made in copy.rows.items() if old <= row_id), default=0)

    for after, messages in store.beside(thread.chat_id, lineage):
        turn_id = _turn_id()
        store.begin_turn(turn_id, new.chat_id, [], "")
        store.end_turn(turn_id, copy.session_id, "success", {}, [])
        store.add_beside(turn_id, new.chat_id, copy.session_id, behind(after), messages)
    for message_id, after, text in store.late(thread.chat_id):
        store.add_late(new.chat_id, f"{message_id}-{uuid.uuid4().hex[:8]}", behind(after), text)


def _turn_id() -> str:
    return f"turn-{uuid.uuid4().hex}"
