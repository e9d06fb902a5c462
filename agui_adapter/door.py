"""Door: how a door that is not AG-UI runs a turn. Wire-neutral; on the gateway's loop.

    door = Door(adapter)
    reader = await door.open(principal, "thread-1", Ask("Hello"))      # or None: a one-shot thread of its own
    async for position, event in reader.events():                      # StreamEvents, until it parks or ends
        ...                                                            # → your wire
    result = reader.result()                                           # what that came to, as a whole
    if result.outcome == "parked":                                     # result.requests wait for somebody
        pending = door.request(principal, result.requests[0].id)       # found by caller and id, whatever the thread
        reader = door.answer([(pending, read_answer(pending.request, payload))], principal)
        result = await reader.wait()                                   # on to the next park or the end
    await door.stop(reader.turn)

A caller that wants no stream does ``await reader.wait()`` at once. Several readers of one turn are no trouble, and
``door.read(turn, after=position)`` makes another one at any time while the turn is known (``agui.turn_ttl_seconds``).

``Ask.one_shot`` is for callers that read one response and are gone: delegation runs inside the turn, what would ask a
person is answered at once with a sentence, the turn is stopped soon after its reader has left, and its thread (when
it has no id of the caller's) is in no list and is removed with its Hermes session once it has ended. Client tools
still park such a turn: their results are found by caller and call id (``door.call``).

A busy thread, a gateway that starts or stops, and wrong input are AguiError, raised before anything runs.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .errors import AguiError
from .forwarded import Overrides
from .hermes.actions import is_command
from .inputs import MAX_ID_CHARS
from .reconcile import text_of, transcript
from .requests import Answer, Pending
from .results import Result, collect
from .rights import check_answer
from .run import Prepared, end_turn, open_turn, wait_ready
from .session import Principal, Thread, Turn
from .stream import MessageChunk, ReasoningChunk, Request, StreamEvent, TurnFinished, TurnParked
from .tools import ClientTool

if TYPE_CHECKING:
    from .adapter import AguiAdapter

Message = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """What a caller asks for.

    ``text``, or ``messages``: the caller's new user messages in AG-UI's form (``id``, ``role``, ``content`` as text or
    parts), for those that carry media. ``history``: the conversation before them in the same form, which a thread that
    Hermes has never seen begins with; a thread that has one of its own keeps that. ``instructions``: the caller's
    system prompt, layered on Hermes's own (None: as the thread has it). ``context`` rides once with the message.
    ``inline``: delegated work is done in the turn, for callers that do not read the thread later. ``run_id`` names the
    run in the thread's record. ``commands``: the text may be a command (a slash command, "restart gateway") as far as
    the caller's scopes allow; else the model gets it, whatever it says.
    ``memory``: what long-term memory is scoped by, instead of the thread.
    ``first`` is done when the thread is free, before the turn begins and with nobody else at it; what raises AguiError
    there stops the rest.
    """

    text: str = ""
    messages: Sequence[Message] = ()
    history: Sequence[Message] = ()
    instructions: str | None = None
    context: str = ""
    overrides: Overrides = field(default_factory=Overrides)
    tools: tuple[ClientTool, ...] = ()
    one_shot: bool = False
    commands: bool = False
    inline: bool = False
    run_id: str = ""
    memory: str = ""
    first: Callable[[], Awaitable[object]] | None = None


class Reader:
    """One reader of a turn, from a position of its log on."""

    def __init__(self, turn: Turn, after: int = 0, *, counts: bool = True) -> None:
        self.turn = turn
        self._counts = counts  # as somebody who reads the turn; not one who only keeps what it says
        self.start = self.position = after
        self.repeated = False  # the event just given begins with text that stands before ``start`` (see ``events``)
        # The kind of the newest event, and how much of this stretch of text deltas was given; None: not all of it.
        self._kind: type | None = None
        self._given: int | None = None if after else 0

    async def events(self, *, past_parks: bool = False) -> AsyncGenerator[tuple[int, StreamEvent], None]:
        """Events with their positions, live, up to the ``TurnParked`` or ``TurnFinished`` that ends this run, which is
        given too; ``past_parks``: up to the turn's end.

        While it is iterated the turn counts as read. Close it (``contextlib.aclosing``) when you leave in the middle.
        Nothing is given twice, but for one case: a reader that began in the middle of a text, in a log that has become
        too long since. ``repeated`` is True then for one event, whose text begins anew.
        """
        async with aclosing(self.batches(past_parks=past_parks)) as batches:
            async for batch in batches:
                repeated, self.repeated = self.repeated, False
                for position, event in batch:
                    self.repeated, repeated = repeated, False
                    self.position = position
                    yield position, event
        self.repeated = False

    async def batches(self, *, past_parks: bool = False) -> AsyncGenerator[list[tuple[int, StreamEvent]], None]:
        """The same in lists, of what had come when the reader was ready for more; never an empty one. ``repeated`` is
        about the first event of a list."""
        log = self.turn.log
        if self._counts:
            self.turn.enter()
        try:
            while True:
                batch = await log.read(self.position)
                found: list[tuple[int, StreamEvent]] = []
                gap, over, self.repeated = batch.gap, batch.closed, False
                for position, event in batch.events:
                    event, gap = self._behind(event) if gap else event, False
                    self._count(event)
                    found.append((position, event))
                    if isinstance(event, TurnFinished) or (
                        isinstance(event, TurnParked) and event.requests and not past_parks
                    ):
                        over = True
                        break
                if found:
                    self.position = found[-1][0]
                    yield found
                if over:
                    return
        finally:
            if self._counts:
                self.turn.leave()

    def _behind(self, event: StreamEvent) -> StreamEvent:
        """What is new of an event that the log has merged with those before it."""
        if not isinstance(event, MessageChunk | ReasoningChunk):
            return event
        same: bool = type(event) is self._kind
        if same and self._given is not None:
            return replace(event, text=event.text[self._given :])
        self.repeated, self._kind, self._given = True, type(event), 0
        return event

    def _count(self, event: StreamEvent) -> None:
        kind = type(event)
        if not isinstance(event, MessageChunk | ReasoningChunk):
            self._given = 0
        elif kind is not self._kind:
            self._given = len(event.text) if self._kind is not None or self.start == 0 else None
        elif self._given is not None:
            self._given += len(event.text)
        self._kind = kind

    async def wait(self) -> Result:
        """Read to the end of this run; what it came to."""
        async for _ in self.events():
            pass
        return self.result()

    def result(self) -> Result:
        """What the turn came to between ``start`` and where the reader stands."""
        result = collect(self.turn.log.events(after=self.start, until=self.position))
        result.thread_id, result.turn_id = self.turn.thread.thread_id, self.turn.id
        if result.outcome == "running" and self.turn.log.closed and self.position >= self.turn.log.last:
            end = self.turn.end  # it began to read behind it
            result.outcome, result.code, result.message = end.outcome, end.code, end.message
        return result


class Door:
    """Turns for the callers of one door."""

    def __init__(self, adapter: AguiAdapter) -> None:
        self._adapter = adapter

    @property
    def _seconds(self) -> float:
        assert self._adapter.settings is not None
        return self._adapter.settings.interrupt_wait_seconds

    async def open(self, principal: Principal, thread_id: str | None, ask: Ask, *, hidden: bool = False) -> Reader:
        """Begin a turn on the caller's thread, or with None on a new one that nobody names.

        ``hidden``: that thread is in no list, and stays until somebody puts it away (``archive.put_away_now``).

        Raises AguiError: 409 while the thread is busy (``agui.busy``) or waits (``agui.parked``), 422 for wrong input,
        503 while the gateway starts or stops. With ``agui.busy: steer`` the turn may be one that runs already.
        """
        adapter = self._adapter
        assert adapter.settings is not None
        await wait_ready(adapter, adapter.settings.start_wait_seconds)
        messages = list(ask.messages) or [{"id": new_id("user"), "role": "user", "content": ask.text}]
        await self._gone(principal, thread_id)
        thread = self._thread(principal, thread_id, passing=ask.one_shot and not hidden)
        thread.hidden = hidden
        await adapter.archive.load(thread)

        async def prepare() -> Prepared:
            if not adapter.lets_in(thread):  # the gateway will say so: until then nothing is kept of it
                return Prepared()
            if thread.shared:
                await adapter.archive.reload(thread)
            if ask.first is not None:
                await ask.first()
            if ask.instructions is not None:
                thread.system = ask.instructions
            if ask.history and not thread.seen:
                await adapter.archive.seed(thread, adapter.source_of(thread), transcript(ask.history, images=True))
                thread.show(list(ask.history))
            return Prepared()

        texts = [text_of(message["content"]) for message in messages]
        try:
            turn, position, prepared = await open_turn(
                adapter,
                thread,
                "\n\n".join(text for text in texts if text.strip()),
                prepare=prepare,
                context=ask.context,
                ids=[message["id"] for message in messages],
                inputs=messages,
                run_id=ask.run_id or new_id("run"),
                client_tools=ask.tools,
                commands=principal if ask.commands else False,
            )
        except BaseException:
            if thread_id is None and ask.history:  # nobody can name it: what was written of it goes
                adapter.threads.drop(thread)
                adapter.archive.put_away(thread)
            raise
        if not prepared.steered:
            turn.overrides, turn.inline, turn.memory = ask.overrides, ask.inline, ask.memory
            if ask.one_shot:
                adapter.one_shot(turn)
            await adapter.submit(turn)
        return Reader(turn, position)

    async def _gone(self, principal: Principal, thread_id: str | None) -> None:
        """Wait while a stateless request of that thread has its answer and Hermes is not through with it."""
        known = self._adapter.threads.find(principal, thread_id) if thread_id is not None else None
        if known is not None and known.passing and known.current is not None and known.current.log.closed:
            await known.current.done.wait()

    def _thread(self, principal: Principal, thread_id: str | None, *, passing: bool) -> Thread:
        threads = self._adapter.threads
        if thread_id is None:
            if passing:
                return threads.passing(principal, new_id("once"))
            return threads.get(principal, new_id("thread"))
        if not thread_id.strip() or len(thread_id) > MAX_ID_CHARS:
            raise AguiError(422, "invalid_input", f"A thread's id has 1 to {MAX_ID_CHARS} characters.")
        known = threads.find(principal, thread_id)
        if known is not None and known.passing and known.current is None:  # it is put away: this one is another
            threads.drop(known)
        return threads.get(principal, thread_id)

    def read(self, turn: Turn, after: int = 0) -> Reader:
        """Another reader of a turn."""
        return Reader(turn, after)

    # -- what waits -----------------------------------------------------------------------------------------

    def open_requests(self, turn: Turn) -> tuple[Request, ...]:
        """What the turn has open now."""
        return self._adapter.requests.open_requests(turn)

    def request(self, principal: Principal, request_id: str) -> Pending | None:
        """A request of the caller's by its id, open or closed; another's is as unknown as a made-up one."""
        requests = self._adapter.requests
        return requests.find(requests.turns_of(principal.id), request_id)

    def call(self, principal: Principal, call_id: str) -> Pending | None:
        """The request of a client tool's call of the caller's, open or closed, on whatever thread; the newest."""
        requests = self._adapter.requests
        return requests.find_call(requests.turns_of(principal.id)[::-1], call_id)

    def answer(self, answers: Sequence[tuple[Pending, Answer]], principal: Principal) -> Reader:
        """Give answers, all to requests of one turn (``requests.read_answer`` makes them), and read what follows.

        Where other requests of the turn stay open, the reader ends at once with those. Raises AguiError 409 where one
        of them is closed: ``request_expired``, ``request_cancelled`` or, by another answer, ``request_answered``; and
        403, with nothing done, for an answer that the principal's scopes do not allow.
        """
        requests, turn = self._adapter.requests, answers[0][0].turn
        for pending, answer in answers:
            check_answer(pending.request, answer, principal)
        with requests.together():
            if all(pending.closed == "answered" for pending, _ in answers):  # the same again reads the same again
                position = min(pending.position for pending, _ in answers)
            else:
                position = turn.parked_at if requests.parked(turn) else turn.log.last
            for pending, answer in answers:
                requests.answer(pending, answer, principal)
            requests.still_parked(turn)
        return Reader(turn, position)

    # -- while it runs --------------------------------------------------------------------------------------

    def steer(self, turn: Turn, text: str) -> bool:
        """Give a running turn a text that its model sees with its next tool result. False where nothing takes it, and
        for what reads like a slash command: where it comes too late for that, Hermes throws it away."""
        return not is_command(text) and self._adapter.steer(turn, text)

    async def stop(self, turn: Turn, reason: str = "The caller stopped the turn.") -> None:
        """End a turn in order; ``reason`` is what the model is told of what it waited for. Returns when it is over."""
        await end_turn(self._adapter, turn, self._seconds, reason)

    async def withdraw(self, principal: Principal, thread_id: str, message_id: str) -> None:
        """``open`` was cancelled: if this message has begun a turn all the same, that is stopped."""
        thread = self._adapter.threads.find(principal, thread_id)
        turn = thread.current if thread is not None else None
        if turn is not None and any(message["id"] == message_id for message in turn.inputs):
            await self.stop(turn, "The client cancelled the task.")


def new_id(what: str) -> str:
    """An id that nobody else has: of a message, a run, a thread of one request."""
    return f"{what}-{uuid.uuid4().hex}"
