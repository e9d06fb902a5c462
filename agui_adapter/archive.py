"""Archive: a thread's past, from Hermes's sessions and the store, with the ids that clients know.

The adapter asks it on the loop; the blocking work runs on one worker thread, in order, so what a turn left is read
before the next request asks for it. Knows neither HTTP nor a wire beyond AG-UI's message form.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from . import attachments
from .beside import as_messages, mirrored, mirrors, with_beside
from .events import View
from .files import Files
from .hermes.history import Sessions
from .history import (
    Message,
    Row,
    Sight,
    Told,
    as_json,
    from_json,
    messages_of,
    seen_by,
    sent_rows,
    visible,
    without_reasoning,
)
from .kept import Kept
from .pairing import Streamed, pair
from .session import Principal, Thread, Turn
from .store import Store, ThreadRecord
from .stream import Attachment, Outcome
from .titles import in_hermes
from .turn_messages import anchor_at, kept_messages, streamed_by, turn_messages, with_heard

logger = logging.getLogger("hermes_agui")

T = TypeVar("T")

_ALL = View()
_LATE_ROW_SECONDS = 0.5
_TOGETHER = 1.0  # seconds that threads of stateless requests wait for others, to go with them


class Archive:
    """The past of all threads of one adapter."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        key_of: Callable[[Thread], str],
        view: View = _ALL,
        max_result_chars: int = 10**9,
    ) -> None:
        self.store = store
        self.sessions = sessions
        self.key_of = key_of
        self._view = view
        self._sight = Sight(view.reasoning, view.tool_output, max_result_chars)
        self.files: Files | None = None  # what the agent sent, and what users sent inline
        self.keeps_stateless = False  # sessions of stateless requests are put aside, not deleted
        self.reserved = True  # the member `hermes` of the shared state is the server's
        self._going: list[Thread] = []  # of stateless requests that are over
        self._kept = Kept()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agui-archive")

    def close(self) -> None:
        """Finish what was handed over, then close the store. Blocks."""
        self._put_away_gone()
        self._worker.shutdown(wait=True)
        self.store.close()

    async def run(self, work: Callable[[], T]) -> T:
        """Run blocking work behind all that was handed over before."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    # -- one thread ---------------------------------------------------------------------------------------------

    async def load(self, thread: Thread) -> None:
        """Before the first use of a thread in this process: what was accepted, told and recorded before."""
        if thread.passing and not thread.loaded:  # it is new, and nobody comes back to it
            thread.document.reserved = self.reserved
            thread.loaded = True
        if not thread.loaded:
            await self.run(lambda: self._load(thread))

    def _load(self, thread: Thread) -> None:
        if thread.loaded:
            return
        record = self.store.thread(thread.chat_id)
        session = self.sessions.session_id(self.key_of(thread))
        mark, looks = self._mark(thread, session, None), self.sessions.looks(session)
        thread.accept(self.store.accepted_ids(thread.chat_id))
        thread.context = self.store.context(thread.chat_id)
        thread.document.reserved = self.reserved
        thread.document.load(*self.store.state(thread.chat_id))
        thread.system = self.store.system(thread.chat_id)
        rows = self.sessions.rows(session) if session else []
        self._recover(thread, session, rows)
        thread.seen = record is not None or bool(rows)
        thread.last_row = max((row.id for row in rows), default=0)
        for row in rows:
            thread.call_ids.update(call["id"] for call in row.calls)
        history = self._messages(thread, session, rows)
        self._kept.put(thread.chat_id, mark, history)
        thread.accept([message["id"] for message in history if message["role"] == "user"])
        held = without_reasoning(history)
        thread.last_id, thread.size = (held[-1]["id"] if held else ""), len(held)
        self.sessions.counted(session, looks, len(held))
        thread.shared = bool(session) and self.sessions.shared(self.key_of(thread), session)
        thread.loaded = True

    def _recover(self, thread: Thread, session: str, rows: Sequence[Row]) -> None:
        """A turn that the process died in: what Hermes has of it gets the id of the message that began it."""
        unfinished = self.store.unfinished(thread.chat_id)
        if unfinished is None:
            return
        turn_id, inputs = unfinished
        known = max((row_id for row_id, *_ in self.store.remembered(self.sessions.lineage(session))), default=0)
        left = [row for row in rows if row.id > known and not row.summary and not row.taken_back]
        paired = pair(_with_input(left, inputs), Streamed(), [message["id"] for message in inputs], whole=False)
        times = {row.id: row.timestamp for row in left}
        self.store.end_turn(turn_id, session, "lost", paired.ids, list(times), times=times)
        self.store.place_files(turn_id, max(times, default=known))
        self.sessions.count_again(session)

    async def reload(self, thread: Thread) -> None:
        """The thread's session was changed, by a switch or by another chat that stands on it: look again."""

        def work() -> None:
            thread.loaded = False
            self._load(thread)

        await self.run(work)

    async def messages(self, thread: Thread, until: int | None = None) -> list[Message]:
        """The whole conversation, with the turn that runs now as far as it is, or up to its position ``until``."""
        turn = thread.current
        past = await self._before(thread)
        if turn is None:
            return past
        now = await self.run(lambda: with_heard(turn, turn_messages(turn, until, self._view), until))
        return [*past, *turn.inputs, *now]

    async def past(self, thread: Thread) -> list[Message]:
        """The conversation without the turn that runs now, but with what that turn was given."""
        turn = thread.current
        past = await self._before(thread)
        return [*past, *turn.inputs] if turn is not None else past

    async def _before(self, thread: Thread) -> list[Message]:
        """The conversation without the turn that runs at this moment: should it end meanwhile, it is not in here."""
        running = thread.current is not None

        def work() -> list[Message]:
            session = self.sessions.session_id(self.key_of(thread))
            # The turn's own record comes behind this, so last_row is still what was there before it.
            last = thread.last_row if running else None
            mark = self._mark(thread, session, last)
            found = self._kept.get(thread.chat_id, mark)
            if found is None:
                looks = self.sessions.looks(session)
                rows = [row for row in self.sessions.rows(session) if last is None or row.id <= last]
                found = self._messages(thread, session, rows)
                self._kept.put(thread.chat_id, mark, found)
                if last is None:
                    self.sessions.counted(session, looks, len(without_reasoning(found)))
            return found

        return await self.run(work)

    def _mark(self, thread: Thread, session: str, last: int | None) -> object:
        """All that ``_before`` depends on; taken before anything is read."""
        return thread.principal.id, session, last, self.sessions.mark(), self.store.mark()

    def _messages(self, thread: Thread, session: str, rows: Sequence[Row]) -> list[Message]:
        ids: dict[int, str] = {}
        inputs: dict[int, list[Message]] = {}
        outcomes: dict[int, str] = {}
        turns: set[str] = set()
        turn_of: dict[int, str] = {}
        lineage = self.sessions.lineage(session)
        users = {row.id for row in rows if row.role == "user"}
        self._follow_rewritten(thread, lineage, rows)
        for row_id, wire, turn_id, outcome, given in self.store.remembered(lineage):
            if wire:
                ids[row_id] = wire
            outcomes[row_id] = outcome
            turn_of[row_id] = turn_id
            if wire and turn_id not in turns and row_id in users:
                turns.add(turn_id)
                messages = json.loads(given)
                if messages:
                    inputs[row_id] = self._linked(thread, messages)
        facts = {row_id: from_json(text) for row_id, text in self.store.facts(lineage).items()}
        late = mirrored(self.store.late(thread.chat_id), rows, ids)
        hidden = self.store.unsolicited(lineage) & users
        shown = [row for row in visible(rows, inputs) if row.id not in hidden]
        made = messages_of(shown, Told(ids, inputs, outcomes, facts))
        beside = [(after, self._linked(thread, [message])) for after, message in as_messages(late)]
        beside += [(after, self._linked(thread, said)) for after, said in self.store.beside(thread.chat_id, lineage)]
        beside += self._files_sent(thread, turn_of, shown)
        if beside:
            made = with_beside(made, shown, ids, inputs, sorted(beside, key=lambda one: one[0]))
        return seen_by(made, self._sight, {call for fact in facts.values() for call in fact.client})

    def _linked(self, thread: Thread, messages: list[Message]) -> list[Message]:
        return self.files.relinked(messages, thread.principal.id) if self.files is not None else messages

    def _files_sent(
        self, thread: Thread, turn_of: dict[int, str], rows: Sequence[Row]
    ) -> list[tuple[int, list[Message]]]:
        """What the agent sent, each behind the newest row of its turn that is left; gone with a turn taken back."""
        last: dict[str, int] = {}
        for row in rows:
            turn_id = turn_of.get(row.id, "")
            last[turn_id] = max(last.get(turn_id, 0), row.id)
        known = set(turn_of.values())
        found = []
        for record in self.files.sent_in(thread.chat_id) if self.files is not None else ():
            after = last.get(record.turn_id, -1 if record.turn_id in known else record.after_row)
            if self.files is not None and record.turn_id and after >= 0:  # one of no turn is a late message
                found.append((after, attachments.messages(self.files.attachment(record))))
        return found

    def _follow_rewritten(self, thread: Thread, lineage: Sequence[str], rows: Sequence[Row]) -> None:
        """``/retry`` writes a session's rows anew, with the times that they had: they keep their ids on the wire.

        The last message of the user is said again then, with a time of its own: it is the last that was lost.
        """
        there, known = {row.id: row for row in rows}, self.store.times(lineage)
        lost = {row_id: at for row_id, at in known.items() if row_id not in there}
        if not lost or min(there, default=0) < max(lost):
            return
        by_time = {at: row_id for row_id, at in lost.items() if at}
        moved = {by_time[row.timestamp]: row.id for row in rows if row.id not in known and row.timestamp in by_time}
        said = {row_id for row_id, wire, _, _, given in self.store.remembered(lineage) if wire and given != "[]"}
        left = [row_id for row_id in sorted(said & lost.keys()) if row_id not in moved]
        again = [row.id for row in rows if row.role == "user" and row.id not in {*known, *moved.values()}]
        if left and again:
            moved[left[-1]] = again[0]
        if moved:
            self.store.move_rows(thread.chat_id, moved)

    def record(self, turn: Turn, outcome: Outcome) -> None:
        """A turn ended: remember which rows of Hermes's it left, under which ids. Returns at once."""
        self._worker.submit(self._record, turn, outcome)
        self.later(lambda: self.store.set_context(turn.thread.chat_id, turn.thread.context))
        self.keep_state(turn.thread)

    def _record(self, turn: Turn, outcome: Outcome) -> None:
        try:
            thread, streamed = turn.thread, streamed_by(turn)
            last = streamed.messages[-1:] or turn.inputs[-1:]
            session = self.sessions.session_id(self.key_of(thread))
            rows = self._rows_left(turn, session, outcome)
            own = [row for row in rows if not row.summary and not row.taken_back]
            # Some commands write the session anew.
            if len(own) < len(rows) or turn.commands or sum(row.role == "user" for row in rows) > 1:
                every = self.sessions.rows(session)
                lineage = self.sessions.lineage(session)
                self._follow_rewritten(thread, lineage, every)
                known = self.store.times(lineage).keys()
                own = [row for row in visible(every) if row.id > thread.last_row and row.id not in known]
            user_ids = [message["id"] for message in turn.inputs]
            # A file's message is no row's; where it stands is told by its record.
            sent = {event.message_id for event in turn.log.events() if isinstance(event, Attachment)}
            said = [message for message in streamed.messages if message["id"] not in sent]
            streamed = replace(streamed, messages=said)
            paired = pair(_with_input(own, turn.inputs), streamed, user_ids, whole=outcome == "success")
            facts = {row_id: as_json(fact) for row_id, fact in paired.facts.items()}
            times = {row.id: row.timestamp for row in own}
            self.store.end_turn(turn.id, session, outcome, paired.ids, list(times), times=times, facts=facts)
            if not any(row.role == "user" for row in own) and not turn.unsolicited:
                # A command, or a refusal: Hermes's history has nothing of it, and a person saw it.
                before = next((row.id for row in own), 0) - 1 if own else thread.last_row
                self.store.add_beside(turn.id, thread.chat_id, session, before, () if own else streamed.messages)
            heard = [(position, one) for position, one in turn.heard if one["id"] not in paired.ids.values()]
            for number, (position, message) in enumerate(heard):
                after = self._row_behind(own, paired.ids, anchor_at(turn, position))
                self.store.add_beside(f"{turn.id}-{number}", thread.chat_id, session, after, [message])
            thread.last_row = max(thread.last_row, self.sessions.last_row(session))
            self.store.place_files(turn.id, max((row.id for row in own), default=thread.last_row))
            self.sessions.count_again(session)
            if turn.commands or sum(row.role == "user" for row in own) > 1:
                # A command may have changed the history, text may have been steered too late: the client is told.
                thread.last_id = None
            elif last:
                thread.last_id = last[0]["id"]
                thread.size += len(turn.inputs) + len(heard) + len(kept_messages(turn, view=self._view))
        except Exception:
            logger.exception("agui: a turn's ids were not recorded; its messages get new ids at the next reload")

    def _rows_left(self, turn: Turn, session: str, outcome: Outcome) -> list[Row]:
        """The rows that a turn left. Of one that was interrupted as it began, Hermes may write what it was given a
        moment behind its end (seen in one of a thousand): it would be shown twice, and taken for the next turn's."""
        until = time.monotonic() + _LATE_ROW_SECONDS
        while True:
            rows = self.sessions.rows(session, after=turn.thread.last_row)
            given = bool(turn.inputs) and outcome == "cancelled" and not turn.commands
            if not given or any(row.role == "user" for row in rows) or time.monotonic() > until:
                return rows
            time.sleep(0.02)

    def _row_behind(self, rows: Sequence[Row], ids: dict[int, str], anchor: str) -> int:
        """The last row of the step that this message belongs to; without one, the turn's first."""
        place = next((index for index, row in enumerate(rows) if ids.get(row.id) == anchor), 0)
        while place + 1 < len(rows) and rows[place + 1].role == "tool":
            place += 1
        return rows[place].id if rows else 0

    # -- lists --------------------------------------------------------------------------------------------------

    async def find(
        self,
        principal: str,
        query: str,
        *,
        archived: bool,
        after: tuple[float, str] | None = None,
        skip: int = 0,
        limit: int = 50,
    ) -> tuple[list[dict[str, Any]], int]:
        """A principal's threads, newest first: those behind ``after`` (time of last use, thread id) and ``skip`` more,
        and how many in all; with ``query`` those that have the words in title or messages."""
        return await self.run(lambda: self._find(principal, query, archived, after, skip, limit))

    def _find(
        self, principal: str, query: str, archived: bool, after: tuple[float, str] | None, skip: int, limit: int
    ) -> tuple[list[dict[str, Any]], int]:
        records = self.store.threads(principal, archived=archived)
        if query:
            hits, sessions = self.sessions.search(query), self._sessions_of(records)
            records = [one for one in records if self._meets(one, sessions.get(one.chat_id, ""), query, hits)]
        records.sort(key=lambda one: (-one.updated, one.thread_id))
        place = skip
        if after is not None:
            mark = (-after[0], after[1])
            place += sum((-one.updated, one.thread_id) <= mark for one in records)
        page = records[place : place + limit]
        sessions = self._sessions_of(page)
        return [self._told(one, sessions.get(one.chat_id, "")) for one in page], len(records)

    def _sessions_of(self, records: Sequence[ThreadRecord]) -> dict[str, str]:
        """Chat id → session. By key: another profile of the gateway may have a chat of the same id."""
        keys = {
            one.chat_id: self.key_of(Thread(Principal(one.principal), one.thread_id, one.chat_id)) for one in records
        }
        sessions = self.sessions.of_keys(keys.values())
        return {chat_id: sessions[key] for chat_id, key in keys.items() if key in sessions}

    def _meets(self, record: ThreadRecord, session: str, query: str, hits: set[str]) -> bool:
        if query.lower() in (record.title or str(self.sessions.info(session).get("title") or "")).lower():
            return True
        return bool(session) and not hits.isdisjoint(self.sessions.lineage(session))

    async def info(self, thread: Thread) -> dict[str, Any]:
        """Title, times and count of one thread."""

        def work() -> dict[str, Any]:
            record = self.store.thread(thread.chat_id) or ThreadRecord(
                thread.chat_id, thread.principal.id, thread.thread_id
            )
            return self._told(record, self.sessions.session_id(self.key_of(thread)))

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
            "messages": self.sessions.count(session, lambda rows: self._count(record, session, rows)),
        }

    def _count(self, record: ThreadRecord, session: str, rows: Sequence[Row]) -> int:
        """How many messages the history shows, beside reasoning and activities."""
        thread = Thread(Principal(record.principal), record.thread_id, record.chat_id)
        return len(without_reasoning(self._messages(thread, session, rows)))

    async def known(self, thread: Thread) -> bool:
        """Whether the thread has ever been used, in this process or before."""
        await self.load(thread)
        return thread.seen

    # -- changes ------------------------------------------------------------------------------------------------

    async def create(self, thread: Thread, title: str, system: str) -> None:
        """Remember a thread before its first message."""

        def work() -> None:
            self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            self.store.set_thread(thread.chat_id, title=title)
            self.store.set_system(thread.chat_id, system)
            thread.system, thread.seen = system, True

        await self.run(work)

    def let_go(self) -> None:
        """Histories that were read a while ago. Returns at once."""
        self.later(self._kept.sweep)

    def later(self, work: Callable[[], None]) -> None:
        """Do blocking work after what was handed over before; returns at once."""
        self._worker.submit(_quietly, work)

    def begin(self, turn: Turn, run_id: str) -> None:
        """A turn was accepted: remember what it was given. Returns at once."""
        thread = turn.thread

        def work() -> None:
            if thread.passing:
                self.store.add_passing(thread.chat_id, self.key_of(thread))
                return
            if not thread.hidden:
                self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            self.store.begin_turn(turn.id, thread.chat_id, turn.inputs, run_id)
            self.store.set_system(thread.chat_id, thread.system)
            self._keep_state(thread)

        self.later(work)

    def untake(self, turn: Turn) -> None:
        """The gateway never had what the turn was given: nobody has said it, and it may come again. Returns at once."""
        for message in turn.inputs:
            turn.thread.accepted.pop(message["id"], None)

        def work() -> None:  # behind the turn's record
            self.store.forget_turn(turn.id)
            turn.thread.last_id = None  # what its client holds is not what the history has

        self.later(work)

    def keep_state(self, thread: Thread) -> None:
        """The thread's document has changed: keep it. Returns at once; any thread."""
        self.later(lambda: self._keep_state(thread))

    def copy_state(self, thread: Thread, new: Thread) -> None:
        """A copied thread begins with the document of the original. Blocks."""
        self._keep_state(thread)
        self.store.set_state(new.chat_id, *self.store.state(thread.chat_id))

    def _keep_state(self, thread: Thread) -> None:
        kept = thread.document.keep()
        if kept is not None and not thread.gone:
            self.store.set_state(thread.chat_id, *kept)

    async def change(self, thread: Thread, *, title: str | None, archived: bool | None) -> None:
        """Rename or put aside, in the index and in Hermes."""

        def work() -> None:
            if self.store.thread(thread.chat_id) is None:  # a new name is no use of it: it keeps its place in lists
                self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            self.store.set_thread(thread.chat_id, title=title, archived=archived)
            session = self.sessions.session_id(self.key_of(thread))
            if session:
                named = in_hermes(thread, title) if title else title
                self.sessions.change(session, title=named, archived=archived)

        await self.run(work)

    async def delete(self, thread: Thread) -> None:
        """Delete the thread here and its session in Hermes."""

        def work() -> None:
            self.sessions.put_away([self.key_of(thread)], keep=False)
            self._erase(thread.chat_id)
            self.store.wipe()

        await self.run(work)

    def _erase(self, chat_id: str) -> None:
        self._kept.drop(chat_id)
        self.store.delete_thread(chat_id)
        if self.files is not None:
            self.files.forget(chat_id)

    async def erase(self, principal: str) -> None:
        """Forget what is left of a principal once its threads are deleted."""

        def work() -> None:
            self.sessions.put_away(self.store.hidden_of(principal), keep=False)
            for chat_id in self.store.chats_of(principal):
                self._erase(chat_id)
            self.store.wipe()

        await self.run(work)

    def prune(self, days: float, used: Callable[[str], bool]) -> None:
        """Forget threads that nobody used for so many days, but those in use; their Hermes sessions stay. Blocks."""
        old = [chat_id for chat_id in self.store.unused(days) if not used(chat_id)]
        for chat_id in old:
            self._erase(chat_id)
        self.store.prune()
        if old:
            logger.info("agui: %d threads were not used for %g days and are forgotten", len(old), days)
            self.store.wipe()

    def put_away(self, thread: Thread) -> None:
        """The turn of a stateless request is over: its thread and session go, within a second or so. On the loop.

        Not at once: its answer is on its way, and Hermes writes its whole index of sessions however many go. What the
        agent sent in it stays, for as long as any file does.
        """
        if not self._going:
            asyncio.get_running_loop().call_later(_TOGETHER, self._put_away_gone)
        self._going.append(thread)

    def _put_away_gone(self) -> None:
        going, self._going = self._going, []
        if going:
            self.later(lambda: self.put_away_now([(thread.chat_id, self.key_of(thread)) for thread in going]))

    def put_away_lost(self) -> None:
        """The same for those that an earlier process did not come to. Blocks."""
        self.put_away_now(self.store.passing())

    def put_away_now(self, gone: Sequence[tuple[str, str]]) -> None:
        """The same for any threads that nothing names any more: their chat ids and session keys. Blocks."""
        self.sessions.put_away([key for _, key in gone], keep=self.keeps_stateless)
        for chat_id, _ in gone:
            self._kept.drop(chat_id)
            self.store.delete_thread(chat_id)

    # -- rewind and seed ------------------------------------------------------------------------------------

    async def rewind(self, thread: Thread, message_id: str) -> tuple[int, list[Message]]:
        """Take back everything from this user message on. Returns how many of its turns were undone, and the messages
        that went with it although they stand before it: one row of Hermes's holds what a turn was given.

        Raises LookupError when the message is not in the agent's memory (any more).
        """
        return await self.run(lambda: self._rewind(thread, message_id))

    def _rewind(self, thread: Thread, message_id: str) -> tuple[int, list[Message]]:
        key = self.key_of(thread)
        session = self.sessions.session_id(key)
        lineage, every = self.sessions.lineage(session), self.sessions.rows(session)
        rows = visible(every, sent_rows(every, self.store.remembered(lineage)))
        beside = self.store.turns_beside(thread.chat_id, lineage)
        place = next((n for n, one in enumerate(beside) if any(m["id"] == message_id for m in one[2])), None)
        if place is None:
            row, given = self._row_of(session, rows, message_id)
        else:  # Hermes has no row of it (a command): what follows it is taken back
            row, given = next((one for one in rows if one.role == "user" and one.id > beside[place][1]), None), []
        if (row is None and place is None) or (row is not None and row.live[0] != session):
            raise LookupError(message_id)
        undone = sum(one.role == "user" and one.id >= row.id for one in rows) if row is not None else 0
        if row is not None:
            self.sessions.rewind(key, *row.live)
            self.store.forget_beside(thread.chat_id, row.id)
            self.store.hide_files(thread.chat_id, row.id)
        if place is not None:
            self.store.forget_turns_beside([turn_id for turn_id, _, _ in beside[place:]])
        self.sessions.count_again(session)
        thread.last_row, thread.last_id = self.sessions.last_row(session), None
        return undone, given[: next((n for n, message in enumerate(given) if message["id"] == message_id), 0)]

    def _row_of(self, session: str, rows: Sequence[Row], message_id: str) -> tuple[Row | None, list[Message]]:
        """The user row that holds this message, and all that it holds."""
        by_id = {row.id: row for row in rows if row.role == "user"}
        for row_id, wire, _, _, given in self.store.remembered(self.sessions.lineage(session)):
            row = by_id.get(row_id)
            if row is None or not wire:
                continue
            held = json.loads(given)
            if wire == message_id or any(message["id"] == message_id for message in held):
                return row, held
        name, _, number = message_id.partition("row-")
        return (by_id.get(int(number)) if not name and number.isdecimal() else None), []

    async def seed(self, thread: Thread, source: object, rows: Sequence[dict[str, object]]) -> None:
        """Give a thread that Hermes has never seen the conversation that its client brought."""
        await self.run(lambda: self._seed(thread, source, list(rows)))

    def _seed(self, thread: Thread, source: object, rows: list[dict[str, object]]) -> None:
        session = self.sessions.seed(self.key_of(thread), source, rows)
        written = self.sessions.rows(session)
        ids = {row.id: str(given["wire_id"]) for row, given in zip(written, rows, strict=False)}
        self.store.begin_turn(f"seed-{session}", thread.chat_id, [], "")
        self.store.end_turn(f"seed-{session}", session, "success", ids, list(ids))
        for row in written:
            thread.call_ids.update(call["id"] for call in row.calls)
        thread.last_row = self.sessions.last_row(session)
        thread.seen = True

    async def has_said(self, thread: Thread, text: str) -> bool:
        """Whether this text is the history's newest answer, be it behind a line that says that it comes again."""

        def work() -> bool:
            rows = self.sessions.rows(self.sessions.session_id(self.key_of(thread)))
            said = next((row.content.strip() for row in reversed(rows) if row.role == "assistant"), "")
            return bool(said) and f"\n\n{text.strip()}".endswith(f"\n\n{said}")

        return await self.run(work)

    async def deliver(self, thread: Thread, message_id: str, text: str, *, sent: float = 0.0) -> None:
        """Keep a message that Hermes's history does not have (a cron result), for the next snapshot.

        ``sent``: when another process sent it, in seconds since the epoch; 0 for now.
        """

        def work() -> None:
            self._load(thread)
            self.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id)
            session = self.sessions.session_id(self.key_of(thread))
            newest = after = max(thread.last_row, self.sessions.last_row(session))
            rows = self.sessions.rows(session) if sent else []
            mirror = next((row for row in rows if mirrors(row, text, sent)), None)
            if mirror is not None:
                after = mirror.id - 1
            self.store.add_late(thread.chat_id, message_id, after, text)
            self.sessions.count_again(session)
            thread.seen = True
            if thread.current is None:
                thread.last_id, thread.last_row = message_id, newest

        await self.run(work)


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        logger.exception("agui: the archive failed")


def _with_input(rows: Sequence[Row], inputs: Sequence[Message]) -> list[Row]:
    """A turn's rows; the first that stands in a user's place is what the turn was given, whatever it looks like."""
    first = next((row.id for row in rows if row.role == "user"), 0) if inputs else 0
    return [replace(row, aside=False) if row.id == first else row for row in rows]
