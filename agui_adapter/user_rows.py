"""The user's turns of a thread by the rows that the agent's memory has them in, and rewinding to one of them.

What REST clients name: the zero-based place of a turn, or the row's id (Hermes's ``messages.id``). A rewind is soft, as
everywhere here: rows that survive it keep their ids, unlike those of Hermes's own TUI, which writes them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .archive import Archive
from .errors import AguiError
from .history import sent_rows, visible
from .session import Thread

# The codes of Hermes's JSON-RPC (`prompt.submit`), told beside our own.
_WRONG, _STALE, _UNCONFIRMED, _DISAGREE = 4004, 4018, 4029, 4030


@dataclass(frozen=True)
class UserRow:
    """A turn of the user's: its row, None where the agent's memory has none any more (summed up), and its message."""

    row_id: int | None
    message_id: str
    text: str


@dataclass(frozen=True)
class Cut:
    """What is to be taken back: the turn at ``ordinal`` and all behind it."""

    ordinal: int
    row: UserRow


async def user_rows(archive: Archive, thread: Thread) -> list[UserRow]:
    """The user's turns that people see, oldest first; not what Hermes said to the model in a user's place."""
    return await archive.run(lambda: _user_rows(archive, thread))


def _user_rows(archive: Archive, thread: Thread) -> list[UserRow]:
    session = archive.sessions.session_id(archive.key_of(thread))
    lineage, rows = archive.sessions.lineage(session), archive.sessions.rows(session)
    remembered = archive.store.remembered(lineage)
    wires = {row_id: wire for row_id, wire, *_ in remembered}
    hidden = archive.store.unsolicited(lineage)
    return [
        UserRow(row.live[1] if row.live[0] == session else None, wires.get(row.id) or f"row-{row.id}", row.content)
        for row in visible(rows, sent_rows(rows, remembered))
        if row.role == "user" and row.id not in hidden
    ]


def cut_at(
    rows: list[UserRow], *, ordinal: int | None, row_id: int | None, confirmed: bool, confirmed_empty: bool
) -> Cut | None:
    """What a request asks to take back; None where it asks for nothing. Pure.

    Raises AguiError, nothing being done: 422 for a confirmation without a target (4004) and a target without one
    (4029), 409 where the target is not there (4018) or the two names are of different turns (4030).
    """
    if ordinal is None and row_id is None:
        if confirmed or confirmed_empty:
            raise nothing_named()
        return None
    if not confirmed:
        message = "This takes back a part of the conversation. Send confirm_truncate: true if that is meant."
        raise _refused(422, "truncate_unconfirmed", message, _UNCONFIRMED)
    place = ordinal
    if row_id is not None:
        place = next((index for index, row in enumerate(rows) if row.row_id == row_id), None)
        if place is not None and ordinal is not None and ordinal != place:
            message = f"Row {row_id} is the user's turn {place}, not {ordinal}."
            raise _refused(409, "truncate_mismatch", message, _DISAGREE)
    if place is None or not 0 <= place < len(rows) or rows[place].row_id is None:
        message = "That user message is not in the agent's memory (any more); read the messages again."
        raise _refused(409, "truncate_target_unknown", message, _STALE)
    if place == 0 and not confirmed_empty:
        message = "This takes back the whole conversation. Send confirm_empty_truncate: true too if that is meant."
        raise _refused(422, "truncate_empty_unconfirmed", message, _UNCONFIRMED)
    return Cut(place, rows[place])


def nothing_named() -> AguiError:
    """A request to take back, without what."""
    return _refused(422, "truncate_target_missing", "Nothing says what to take back: name a row.", _WRONG)


def _refused(status: int, code: str, message: str, hermes_code: int) -> AguiError:
    members: dict[str, Any] = {"hermes_code": hermes_code}
    return AguiError(status, code, message, members=members)


async def rewind(archive: Archive, thread: Thread, cut: Cut) -> tuple[int, list[int | None]]:
    """Take it back. How many turns were undone, and the rows of those that are left, in order.

    The caller holds the thread's lock, and no turn of it runs.
    """
    try:
        undone, _ = await archive.rewind(thread, cut.row.message_id)
    except LookupError:
        message = "That user message is not in the agent's memory any more; read the messages again."
        raise _refused(409, "truncate_target_unknown", message, _STALE) from None
    thread.context = ""  # what the model was told of context and state may be gone with it
    thread.document.model_forgot()
    return undone, [row.row_id for row in await user_rows(archive, thread)]
