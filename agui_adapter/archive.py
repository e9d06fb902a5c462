"""Archive: a thread's past, from Hermes's sessions and the store, with the ids that clients know.

The adapter asks it on the loop; the blocking work runs on one worker thread, in order, so what a turn left is read
before the next request asks for it. Knows neither HTTP nor a wire beyond AG-UI's message form.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .events import AguiStream
from .hermes_history import Sessions
from .history import Message, Row, Told, messages_of, pair, visible, without_reasoning
from .session import Thread, Turn
from .store import Store, ThreadRecord
from .stream import Outcome

logger = logging.getLogger("hermes_agui")

T = TypeVar("T")


def kept_messages(turn: Turn, until: int | None = None) -> list[Message]:
    """What a turn streamed so far, as a client holds it."""
    stream = AguiStream(turn.thread.thread_id, turn.id, prefix=turn.id)
    for event in turn.log.events(until=until):
        stream.feed_past_parks(event)
    messages = stream.messages()
    for message in messages:
        if message["role"] == "tool":
            message["id"] = turn.answered_by.get(message["toolCallId"], message["id"])
    return messages


class Archive:
    """The past of all threads of one adapter."""

    def __init__(self, store: Store, sessions: Sessions, key_of: Callable[[Thread], str]) -> None:
        self.store = store
        self.sessions = sessions
        self._key_of = key_of
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agui-archive")

    def close(self) -> None:
        """Finish what was handed over, then close the store."""
        self._worker.shutdown(wait=True)
        self.store.close()

    async def run(self, work: Callable[[], T]) -> T:
        """Run blocking work behind all that was handed over before."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    # -- one thread ---------------------------------------------------------------------------------------------

    async def load(self, thread: Thread) -> None:
        """Before the first use of a thread in this process: what was accepted, told and recorded before."""
        if not thread.loaded:
            await self.run(lambda: self._load(thread))

    def _load(self, thread: Thread) -> None:
        if thread.loaded:
            return
        record = self.store.thread(thread.chat_id)
        session = self.sessions.session_id(self._key_of(thread))
        thread.accept(self.store.accepted_ids(thread.chat_id))
        thread.context = self.store.context(thread.chat_id)
        rows = self.sessions.rows(session) if session else []
        thread.seen = record is not None or bool(rows)
        thread.last_row = max((row.id for row in rows), default=0)
        thread.call_ids.update(call["id"] for row in rows for call in row.calls)
        history = self._messages(thread, session, rows)
        thread.last_id = history[-1]["id"] if history else ""
        thread.loaded = True

    async def messages(self, thread: Thread) -> list[Message]:
        """The whole conversation, with the turn that runs now as far as it is."""
        turn = thread.current
        past = await self.run(lambda: self._past(thread))
        if turn is None:
            return past
        return [*past, *turn.inputs, *await self.run(lambda: kept_messages(turn))]

    def _past(self, thread: Thread) -> list[Message]:
        session = self.sessions.session_id(self._key_of(thread))
        until = thread.last_row if thread.current is not None else None
        rows = [row for row in self.sessions.rows(session) if until is None or row.id <= until]
        return self._messages(thread, session, rows)

    def _messages(self, thread: Thread, session: str, rows: Sequence[Row]) -> list[Message]:
        ids: dict[int, str] = {}
        inputs: dict[int, list[Message]] = {}
        outcomes: dict[int, str] = {}
        turns: set[str] = set()
        lineage = self.sessions.lineage(session) if session else []
        users = {row.id for row in rows if row.role == "user"}
        for row_id, wire, turn_id, outcome, given in self.store.remembered(lineage) if lineage else []:
            if wire:
                ids[row_id] = wire
            outcomes[row_id] = outcome
            if turn_id not in turns and row_id in users:
                turns.add(turn_id)
                messages = json.loads(given)
                if messages:
                    inputs[row_id] = messages
        made = messages_of(visible(rows), Told(ids, inputs, outcomes))
        late = self.store.late(thread.chat_id)
        return _with_late(made, rows, ids, late) if late else made

    def record(self, turn: Turn, outcome: Outcome) -> None:
        """A turn ended: remember which rows of Hermes's it left, under which ids. Returns at once."""
        self._worker.submit(self._record, turn, outcome)

    def _record(self, turn: Turn, outcome: Outcome) -> None:
        try:
            thread = turn.thread
            kept = kept_messages(turn)
            session = self.sessions.session_id(self._key_of(thread))
            rows = self.sessions.rows(session, after=thread.last_row)
            if any(row.summary for row in rows) or sum(row.role == "user" for row in rows) > 1:
                every = visible(self.sessions.rows(session))
                newest = thread.last_row
                rows = [row for row in every if row.id > newest]
            own = [row for row in rows if not row.summary]
            ids = pair(own, kept, [message["id"] for message in turn.inputs])
            self.store.end_turn(turn.id, session, outcome, ids, [row.id for row in own])
            thread.last_row = max(thread.last_row, self.sessions.last_row(session))
            last = kept[-1:] or turn.inputs[-1:]
            if last:
                thread.last_id = last[0]["id"]
        except Exception:
            logger.exception("agui: a turn's ids were not recorded; its messages get new ids at the next reload")

    # -- lists --------------------------------------------------------------------------------------------------

    async def find(self, principal: str, query: str, *, archived: bool) -> list[dict[str, Any]]:
        """A principal's threads, newest first, those with the words in title or messages if ``query`` is given."""
        return await self.run(lambda: self._find(principal, query, archived))

    def _find(self, principal: str, query: str, archived: bool) -> list[dict[str, Any]]:
        known = {record.chat_id: record for record in self.store.threads(principal, archived=archived)}
        hits = self.sessions.search(query) if query else set()
        found = []
        for chat_id, record in known.items():
            session = self.sessions.session_of_chat(chat_id)
            told = self._told(record, session)
            if query and session not in hits and query.lower() not in told["title"].lower():
                continue
            found.append(told)
        return sorted(found, key=lambda one: float(one["updated"]), reverse=True)

    async def info(self, thread: Thread) -> dict[str, Any]:
        """Title, times, counts and usage of one thread."""

        def work() -> dict[str, Any]:
            record = self.store.thread(thread.chat_id) or ThreadRecord(
                thread.chat_id, thread.principal.id, thread.thread_id
            )
            return self._told(record, self.sessions.session_id(self._key_of(thread)))

        return await self.run(work)

    def _told(self, record: ThreadRecord, session: str) -> dict[str, Any]:
        info = self.sessions.info(session)
        return {
            "chat_id": record.chat_id,
            "thread_id": record.thread_id,
            "title": record.title or str(info.get("title") or ""),
            "created": record.created or info.get("started_at") or 0.0,
            "updated": record.updated or info.get("started_at") or 0.0,
            "archived": record.archived,
            "messages": int(info.get("message_count") or 0),
            "usage": {
                "model": str(info.get("model") or ""),
                "inputTokens": int(info.get("input_tokens") or 0) + int(info.get("cache_read_tokens") or 0),
                "outputTokens": int(info.get("output_tokens") or 0),
            },
        }

    async def known(self, thread: Thread) -> bool:
        """Whether the thread has ever been used, in this process or before."""
        await self.load(thread)
        return thread.seen

    async def past(self, thread: Thread) -> list[Message]:
        """The conversation without the turn that runs now, but with what that turn was given."""
        turn = thread.current
        past = await self.run(lambda: self._past(thread))
        return [*past, *turn.inputs] if turn is not None else past

    # -- changes ------------------------------------------------------------------------------------------------

    def later(self, work: Callable[[], None]) -> None:
        """Do blocking work after what was handed over before; returns at once."""
        self._worker.submit(_quietly, work)

    def begin(self, turn: Turn, run_id: str) -> None:
        """A turn was accepted: remember what it was given. Returns at once."""
        thread = turn.thread

        def work() -> None:
            self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            self.store.begin_turn(turn.id, thread.chat_id, turn.inputs, run_id)
            if turn.context:
                self.store.set_context(thread.chat_id, turn.context)

        self.later(work)

    async def change(self, thread: Thread, *, title: str | None, archived: bool | None) -> None:
        """Rename or put aside, in the index and in Hermes."""

        def work() -> None:
            self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            self.store.set_thread(thread.chat_id, title=title, archived=archived)
            session = self.sessions.session_id(self._key_of(thread))
            if session:
                self.sessions.change(session, title=title, archived=archived)

        await self.run(work)

    async def delete(self, thread: Thread) -> None:
        """Delete the thread here and its session in Hermes."""

        def work() -> None:
            self.sessions.delete(self._key_of(thread))
            self.store.delete_thread(thread.chat_id)

        await self.run(work)

    # -- rewind and seed ------------------------------------------------------------------------------------

    async def rewind(self, thread: Thread, message_id: str) -> int:
        """Take back everything from this user message on. Returns how many of its turns were undone.

        Raises LookupError when the message is not in the session (any more).
        """
        return await self.run(lambda: self._rewind(thread, message_id))

    def _rewind(self, thread: Thread, message_id: str) -> int:
        key = self._key_of(thread)
        session = self.sessions.session_id(key)
        rows = visible(self.sessions.rows(session))
        row = self._row_of(thread, session, rows, message_id)
        if row is None or row.archived:
            raise LookupError(message_id)
        undone = sum(one.role == "user" and one.id >= row.id for one in rows)
        self.sessions.rewind(key, row.session_id, row.id)
        left = [one for one in rows if one.id < row.id]
        thread.last_row = max((one.id for one in self.sessions.rows(session)), default=0)
        history = self._messages(thread, session, left)
        thread.last_id = history[-1]["id"] if history else ""
        return undone

    def _row_of(self, thread: Thread, session: str, rows: Sequence[Row], message_id: str) -> Row | None:
        by_id = {row.id: row for row in rows}
        for row_id, wire, _, _, given in self.store.remembered(self.sessions.lineage(session)):
            row = by_id.get(row_id)
            if row is None or row.role != "user":
                continue
            if wire == message_id or any(message["id"] == message_id for message in json.loads(given)):
                return row
        name, _, number = message_id.partition("row-")
        return by_id.get(int(number)) if not name and number.isdigit() else None

    async def seed(self, thread: Thread, source: object, rows: Sequence[dict[str, object]]) -> None:
        """Give a thread that Hermes has never seen the conversation that its client brought."""
        await self.run(lambda: self._seed(thread, source, list(rows)))

    def _seed(self, thread: Thread, source: object, rows: list[dict[str, object]]) -> None:
        session = self.sessions.seed(self._key_of(thread), source, rows)
        written = self.sessions.rows(session)
        ids = {row.id: str(given["wire_id"]) for row, given in zip(written, rows, strict=False)}
        self.store.end_turn(f"seed-{thread.chat_id}", session, "success", ids, list(ids))
        thread.last_row = max(ids, default=0)
        thread.seen = True

    async def deliver(self, thread: Thread, turn: Turn, text: str) -> None:
        """Keep a message that Hermes's history does not have (a cron result), for the next snapshot."""

        def work() -> None:
            self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            kept = kept_messages(turn)
            self.store.add_late(thread.chat_id, kept[0]["id"] if kept else turn.id, thread.last_row, text)

        await self.run(work)

    def snapshot_of(self, history: Sequence[Message], new: Sequence[Message]) -> list[Message]:
        """What a client should hold when it sent ``new``: the history's messages and its own new ones."""
        have = {message["id"] for message in history}
        return [*without_reasoning(history), *(message for message in new if message["id"] not in have)]


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        logger.exception("agui: the archive failed")


def _with_late(
    made: list[Message], rows: Sequence[Row], ids: dict[int, str], late: Sequence[tuple[str, int, str]]
) -> list[Message]:
    """Late messages behind the row that they came after."""
    order = {ids.get(row.id, f"row-{row.id}"): row.id for row in rows}
    merged: list[Message] = []
    waiting = list(late)
    position = 0
    for message in made:
        position = max(position, order.get(message["id"], position))
        while waiting and waiting[0][1] < position:
            merged.append({"id": waiting[0][0], "role": "assistant", "content": waiting.pop(0)[2]})
        merged.append(message)
    merged += [{"id": message_id, "role": "assistant", "content": text} for message_id, _, text in waiting]
    return merged
