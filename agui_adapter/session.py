"""Who talks (Principal, see `principal.py`), about what (Thread), and one processing of it (Turn).

A thread is a principal's conversation: one Hermes chat, one session key. A turn is one processing cycle of the
gateway, from the accepted message to its end, with the log that every door reads. Lives on the gateway's event
loop; knows neither HTTP nor Hermes's internals.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .document import Document
from .log import EventLog
from .peers import MODERN, Peer
from .principal import SCOPES as SCOPES
from .principal import Principal as Principal
from .principal import Scope as Scope
from .stream import Outcome, StateChanged, StreamEvent, ToolCall, ToolResult, TurnFinished
from .tools import ClientTool

if TYPE_CHECKING:
    from .forwarded import Overrides
    from .media_in import Media

_PLAIN = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_ON_ITS_WAY = 2.0  # seconds from a turn's beginning to the reader that began it, at most


def _part(text: str) -> str:
    if _PLAIN.match(text):
        return text
    return "_" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def chat_id_for(principal_id: str, thread_id: str, profile: str = "") -> str:
    """The Hermes chat of a principal's thread: the one place where the internal key is built.

    Client ids are hostile input (any length, any character): what is not plain and short becomes a digest. A
    digest begins with ``_`` and parts are joined by ``.``, neither of which a plain part can hold, so two
    different pairs never share a chat. The platform name stands before it in the session key, so no thread can
    name another platform's session.

    ``profile``: a further profile of the gateway, whose port it comes by. It has to be in here too: beside the key,
    Hermes finds a session again by platform, user and chat, whatever the profile (hermes_state.py,
    find_latest_gateway_session_for_peer).
    """
    return f"{_mark(profile)}{_part(principal_id)}.{_part(thread_id)}"


def _mark(profile: str) -> str:
    return f"{profile}~" if profile else ""  # a character that no other part can hold, nor a profile's name


def plain_names(chat_id: str, profile: str = "") -> tuple[str, str] | None:
    """The opposite, where both parts are plain; None where one is a digest, or it is no chat of this platform."""
    principal_id, dot, thread_id = chat_id.removeprefix(_mark(profile)).partition(".")
    if dot and _PLAIN.match(principal_id) and _PLAIN.match(thread_id):
        return principal_id, thread_id
    return None


class Signal:
    """Wakes everybody who waits for something to change. On the loop."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Wake all."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Until the next ``notify``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter.cancelled() and waiter in self._waiters:
                self._waiters.remove(waiter)


@dataclass(frozen=True)
class Segment:
    """A run's part of a turn: from position ``start`` on, for the client that asked with these ids and messages.

    ``first``: the frames that stand behind ``RUN_STARTED`` before the turn's own events, ``tells``: a snapshot is among
    them. ``complete``: ``base`` is the whole conversation, not only what that client cared to send. ``state``: the
    thread's document as that client has it when the run begins, ``tells_state`` by one of these frames.
    """

    start: int
    run_id: str
    prefix: str
    peer: Peer = MODERN
    base: Sequence[dict[str, Any]] = ()
    first: Sequence[bytes] = ()
    tells: bool = False
    complete: bool = False
    state: Any = None
    tells_state: bool = False


@dataclass(eq=False)
class Turn:
    """One processing cycle. ``message_id`` is the id that its message carries through the gateway.

    ``unsolicited``: the gateway began it by itself (a session resumed after a restart, a background result).
    """

    thread: Thread
    log: EventLog
    message_id: str = field(default_factory=lambda: f"turn-{uuid.uuid4().hex}")
    text: str = ""
    context: str = ""
    commands: bool = False  # whether its text is a command where it reads like one; else it is for the model
    unsolicited: bool = False
    memory: str = ""  # what long-term memory is scoped by, where it is not the session
    one_shot: bool = False  # its caller reads nothing after its end: what would come later is done in it instead
    inline: bool = False  # delegated work is done in it
    client_tools: tuple[ClientTool, ...] = ()
    media: tuple[Media, ...] = ()  # what its message carries beside text
    overrides: Overrides | None = None  # what its client asked of the model
    state: Any = None  # the thread's document at its beginning, and as its log tells it by now; None: no state
    state_now: Any = None
    client_context: str | None = None  # the client's context, when the model is told it with this turn
    told: bool = False  # the model got ``context``
    steered_text: str = ""  # what an answering run brought of context and state, on its way to the model
    parked_at: int = 0
    inputs: list[dict[str, Any]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    answered_by: dict[str, str] = field(default_factory=dict)  # client call id → the client's tool message
    answered_with: dict[str, dict[str, Any]] = field(default_factory=dict)  # … what of it is more than a text
    steered_ids: dict[str, str] = field(default_factory=dict)  # a steered text → the client's message that it is
    heard: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # what the user said meanwhile, and where
    readers: int = 0
    expected: asyncio.TimerHandle | None = None  # the reader that began the turn counts already, and will come soon
    on_unread: Callable[[Turn], None] | None = None  # called when the last reader has left
    grace: asyncio.TimerHandle | None = None  # until the turn is stopped because nobody reads it
    stopping: bool = False  # somebody wants its end: it takes no more input, and what begins in it is interrupted
    started_at: float = field(default_factory=time.monotonic)
    finished_at: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """Names the turn on the wire; ids made in it begin with it."""
        return self.message_id

    @property
    def known(self) -> bool:
        """Whether it may still be read: until its time is over, or others need the room, or its thread is deleted."""
        return not self.thread.gone and self.thread.turns.get(self.id) is self

    @property
    def end(self) -> TurnFinished:
        """How it ended, for who reads from behind its end."""
        ends = (event for event in reversed(self.log.events()) if isinstance(event, TurnFinished))
        return next(ends, TurnFinished())

    def append(self, event: StreamEvent) -> int:
        """Add to the log; its position, 0 when the log is closed. Any thread."""
        return self.log.append(event)

    def hear(self, messages: Sequence[dict[str, Any]]) -> None:
        """The user's messages that this turn takes while it runs: an answer that was typed, a text that is steered."""
        self.heard += [(self.log.last, dict(message)) for message in messages]
        self.thread.accept([message["id"] for message in messages])

    def expect(self) -> None:
        """A reader that is on its way counts: a turn about to be read is not unread. On the loop.

        The next one to come is taken for it. One that has not come after `_ON_ITS_WAY` had left before it could.
        """
        self.enter()
        self.expected = asyncio.get_running_loop().call_later(_ON_ITS_WAY, self.came)

    def came(self) -> None:
        """The reader that was expected is no more: it has come, or will not. On the loop."""
        if self.expected is not None:
            self.expected.cancel()
            self.expected = None
            self.leave()

    def enter(self) -> None:
        """A reader comes. On the loop."""
        self.readers += 1
        self.came()
        if self.grace is not None:
            self.grace.cancel()
            self.grace = None

    def leave(self) -> None:
        """A reader goes; the last one is told of while the turn runs. On the loop."""
        self.readers -= 1
        if self.readers == 0 and self.on_unread is not None and not self.log.closed:
            self.on_unread(self)

    def begin_run(self, start: int, run_id: str, peer: Peer = MODERN, base: Sequence[dict[str, Any]] = ()) -> Segment:
        """A client's run begins to see the turn here; the newest one at a position counts."""
        prefix = f"{self.id}-{start}" if start else self.id
        segment = Segment(start, run_id, prefix, peer, base)
        self.segments.append(segment)
        return segment

    def amend(self, segment: Segment, **changes: Any) -> Segment:
        """The same run, of which more is known now."""
        changed = replace(segment, **changes)
        self.segments[self.segments.index(segment)] = changed
        return changed

    def segment_at(self, position: int) -> Segment:
        """The run that position ``position`` lies in; one of the turn's own where no client asked for it."""
        for segment in reversed(self.segments):
            if segment.start <= position:
                return segment
        return Segment(0, self.id, self.id)

    def segment_from(self, position: int) -> Segment:
        """The run that begins at this position; one of the turn's own where no client asked for it."""
        for segment in reversed(self.segments):
            if segment.start == position:
                return segment
        name = f"{self.id}-{position}" if position else self.id
        return Segment(position, name, name)

    def segment_of(self, run_id: str, position: int) -> Segment:
        """The run of this id that begins at this position."""
        mine = (one for one in reversed(self.segments) if one.start == position and one.run_id == run_id)
        return next(mine, None) or self.segment_from(position)

    def state_at(self, position: int) -> Any:
        """The thread's document at a position of the log; None: no state."""
        events = self.log.events(until=position)
        newest = next((one for one in reversed(events) if isinstance(one, StateChanged) and not one.dropped), None)
        return self.state if newest is None else newest.state

    def hand_over(self) -> str:
        """What the model is told with the user's message; once, however many agent turns it makes. Worker thread."""
        if self.told or not self.context:
            return ""
        self.told = True
        if self.client_context is not None:
            self.thread.context = self.client_context
        self.thread.document.model_knows()
        return self.context

    def open_calls(self, position: int) -> list[str]:
        """Ids of the calls that were announced up to ``position`` and had no result by then."""
        calls: dict[str, None] = {}
        for event in self.log.events(until=position):
            if isinstance(event, ToolCall):
                calls[event.call_id] = None
            elif isinstance(event, ToolResult):
                calls.pop(event.call_id, None)
        return list(calls)

    def finish(self, outcome: Outcome, code: str = "", message: str = "") -> None:
        """End the log, unless it has ended before (``Tap.tell_end``), and free the thread. On the loop."""
        self.log.append(TurnFinished(outcome, code, message))
        self.finished_at = self.finished_at or time.monotonic()
        self.done.set()


@dataclass(eq=False)
class Thread:
    """A principal's conversation. ``current`` is the turn that runs now, if any."""

    principal: Principal
    thread_id: str
    chat_id: str
    current: Turn | None = None
    turns: OrderedDict[str, Turn] = field(default_factory=OrderedDict)
    accepted: OrderedDict[str, None] = field(default_factory=OrderedDict)
    kept: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)  # messages whose data became files
    call_ids: set[str] = field(default_factory=set)
    client_call_ids: set[str] = field(default_factory=set)  # of calls that its clients were given (see ``Threads``)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    context: str = ""
    document: Document = field(default_factory=Document)
    loaded: bool = False
    seen: bool = False
    shared: bool = False  # another platform's chat stands on the same Hermes session
    last_id: str | None = ""  # of the newest message; None while a turn runs or is being recorded
    size: int = 0  # messages that a client holds which knows all, without reasoning and activities
    last_row: int = 0
    changed: Signal = field(default_factory=Signal)
    system: str = ""  # the client's own instructions to the agent
    watchers: int = 0  # readers of its feed
    deleting: bool = False  # about to be: no run begins any more
    gone: bool = False  # deleted
    hidden: bool = False  # in no list: what it belongs to (a stored response) names it
    passing: bool = False  # of one stateless request: in no list, put away once its turn has ended
    used_at: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, principal: Principal, thread_id: str, profile: str = "") -> Thread:
        """The principal's thread of that id, known to nobody yet (``Threads``)."""
        return cls(principal, thread_id, chat_id_for(principal.id, thread_id, profile))

    def begin(
        self,
        log: EventLog,
        *,
        text: str = "",
        context: str = "",
        unsolicited: bool = False,
        client_tools: tuple[ClientTool, ...] = (),
    ) -> Turn:
        """A new turn, now the thread's current one."""
        turn = Turn(self, log, text=text, context=context, unsolicited=unsolicited, client_tools=client_tools)
        turn.state = turn.state_now = self.document.value
        self.current = turn
        self.turns[turn.id] = turn
        self.used_at = time.monotonic()
        self.seen = True
        self.last_id = None
        self.changed.notify()
        return turn

    def end(self, turn: Turn, outcome: Outcome, code: str = "", message: str = "") -> None:
        """The turn is over: finish its log and let the next one begin."""
        if self.current is turn:
            self.current = None
        self.used_at = time.monotonic()
        turn.finish(outcome, code, message)

    def accept(self, message_ids: list[str]) -> None:
        """Remember ids of the client's messages that became input; only the newest few thousand matter."""
        for message_id in message_ids:
            if message_id.strip():  # a blank id names nothing: every later message without one would count as known
                self.accepted[message_id] = None
        while len(self.accepted) > 4096:
            self.accepted.popitem(last=False)

    def keep(self, messages: Sequence[dict[str, Any]]) -> None:
        """Remember messages as they are kept, with addresses in the place of inline data: the newest hundred."""
        for message in messages:
            if isinstance(message["content"], list):
                self.kept[message["id"]] = message
        while len(self.kept) > 100:
            self.kept.popitem(last=False)

    def light(self, messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """A client's messages without the inline data that is kept as files."""
        return [self.kept.get(message["id"], message) for message in messages] if self.kept else messages

    def show(self, messages: Sequence[dict[str, Any]]) -> None:
        """A client is shown this history: it may go back to what it sees, whoever said it."""
        self.accept([message["id"] for message in messages if message["role"] == "user"])


class _CallIds(set[str]):
    """A set that goes when the last thread that shares it does."""


class Threads:
    """All threads of one adapter, by chat. ``profile``: as for ``chat_id_for``."""

    def __init__(self, ttl_seconds: float, profile: str = "") -> None:
        self._ttl = ttl_seconds
        self.profile = profile
        self._by_chat: dict[str, Thread] = {}
        self._client_call_ids: WeakValueDictionary[str, _CallIds] = WeakValueDictionary()  # by principal

    def get(self, principal: Principal, thread_id: str) -> Thread:
        """The principal's thread of that id, made when it is new."""
        thread = self.find(principal, thread_id)
        if thread is None:
            thread = self.of(principal, thread_id)
            self._by_chat[thread.chat_id] = thread
        # A thread that the gateway spoke of first (see adopt) learns its client's id and principal here.
        thread.principal, thread.thread_id = principal, thread_id
        thread.used_at = time.monotonic()
        return thread

    def of(self, principal: Principal, thread_id: str) -> Thread:
        """The principal's thread of that id as it would be made; nobody knows it yet (``hold``)."""
        return Thread.of(principal, thread_id, self.profile)

    def passing(self, principal: Principal, thread_id: str) -> Thread:
        """A thread of one stateless request.

        Results of its client's calls are found by their ids alone, so no two such threads of a caller have one in
        common, whatever a provider repeats.
        """
        thread = self.get(principal, thread_id)
        ids = self._client_call_ids.get(principal.id)
        if ids is None or len(ids) > 10_000:
            ids = self._client_call_ids[principal.id] = _CallIds()
        thread.passing, thread.client_call_ids = True, ids
        return thread

    def find(self, principal: Principal, thread_id: str) -> Thread | None:
        """The principal's thread of that id if this process has met it."""
        return self._by_chat.get(chat_id_for(principal.id, thread_id, self.profile))

    def hold(self, thread: Thread) -> Thread | None:
        """The thread of this one's chat: this one, where there is none yet; None if it was dropped meanwhile."""
        return None if thread.gone else self._by_chat.setdefault(thread.chat_id, thread)

    def drop(self, thread: Thread) -> None:
        """Forget a thread."""
        self._by_chat.pop(thread.chat_id, None)
        thread.gone = True
        thread.changed.notify()

    def by_chat(self, chat_id: str) -> Thread | None:
        """The thread of a Hermes chat id, if this process has met it."""
        return self._by_chat.get(chat_id)

    def adopt(self, chat_id: str, user_id: str) -> Thread:
        """The thread of a chat that the gateway speaks of first (a session resumed after a restart).

        The client's own thread id is not known then; its next run finds this thread by the same chat id.
        """
        thread = self._by_chat.get(chat_id)
        if thread is None:
            thread = self._by_chat[chat_id] = Thread(Principal(user_id), chat_id.partition(".")[2], chat_id)
        return thread

    def __iter__(self) -> Iterator[Thread]:
        return iter(list(self._by_chat.values()))

    def __len__(self) -> int:
        return len(self._by_chat)

    def sweep(self, now: float, needed: Callable[[Turn], bool] = lambda turn: False) -> list[Turn]:
        """Forget finished turns after their time (returned), and threads with nothing left of any use.

        ``needed``: a turn that something still depends on (an open request asked beside it).
        """
        gone: list[Turn] = []
        for chat_id, thread in list(self._by_chat.items()):
            for turn_id, turn in list(thread.turns.items()):
                over = turn.done.is_set() and now - turn.finished_at > self._ttl
                if over and not turn.readers and not needed(turn):
                    del thread.turns[turn_id]
                    gone.append(turn)
            idle = thread.current is None and not thread.turns and not thread.watchers and not thread.lock.locked()
            if idle and (thread.passing or now - thread.used_at > 24 * 3600):
                del self._by_chat[chat_id]
        return gone
