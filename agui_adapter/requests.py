"""Requests of parked turns: asked, answered, expired, cancelled. Wire-neutral: every door answers through here.

A request is closed exactly once, under one lock, whoever comes first: an answer, the expiry, a stop. Opened and waited
for on worker threads, answered and expired on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import AguiError
from .limits import Places
from .principal import Principal
from .rights import check_answer
from .session import Thread, Turn
from .stream import Closed, Request, RequestClosed, RequestOpened, StreamEvent, TurnParked

logger = logging.getLogger("hermes_agui")
audit = logging.getLogger("hermes_agui.audit")  # one line for everything that was answered, expired or cancelled

APPROVE_ONCE, DENY = "once", "deny"
NOBODY = "Nobody can be asked on this connection. Go on without it, or say in your answer what you would need."


@dataclass(frozen=True)
class Answer:
    """What somebody answered: a choice, free text (a reason, a clarify answer, a tool's content), a tool's error.

    ``parts`` is a client tool's content as AG-UI content parts, when it was not plain text.
    """

    choice: str = ""
    text: str = ""
    error: str = ""
    parts: tuple[dict[str, Any], ...] = ()


@dataclass(eq=False)
class Pending:
    """A request with its state.

    ``opened`` is where in the log it was asked, ``position`` where its answer came: what follows answers it.
    ``waited``: the turn's worker waits for it now. ``beside``: no call of the turn waits but something beside it
    (``/background``). ``deadline`` on the monotonic clock, 0 for never: an answer that is not there by then is late,
    whenever the expiry itself comes.
    """

    request: Request
    turn: Turn
    on_close: Callable[[Pending], None] | None = None
    beside: bool = False
    deadline: float = 0.0
    closed: Closed | None = None
    answer: Answer | None = None
    waited: bool = False
    place: str | None = None  # whose place its worker waits on
    opened: int = 0
    position: int = 0
    event: threading.Event = field(default_factory=threading.Event)
    timer: asyncio.TimerHandle | None = None


class Requests:
    """All requests of this process that are open, or were and whose turn is still known."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_parked: int,
        on_closed: Callable[[Pending], None] = lambda pending: None,
        limit: Callable[[Turn], float] = lambda turn: 0.0,
        max_parked_each: int | None = None,
    ) -> None:
        self._loop = loop
        self._places = Places(max_parked, max_parked if max_parked_each is None else max_parked_each)
        self._on_closed = on_closed  # called on the loop, after any close
        self._limit = limit  # seconds that a turn's requests may be open at most, 0 for no limit
        self._lock = threading.RLock()
        self._by_turn: dict[Turn, dict[str, Pending]] = {}

    # -- opening and waiting (worker threads) --------------------------------------------------------------

    def open(
        self,
        turn: Turn,
        request: Request,
        *,
        seconds: float = 0.0,
        parks: bool = True,
        on_close: Callable[[Pending], None] | None = None,
    ) -> Pending:
        """Ask. ``seconds`` until it expires, 0 for never. Any thread.

        In a turn of a caller that reads one response and is gone nobody is there: a person's answer is a refusal then.
        """
        seconds = self.limited(turn, seconds)
        deadline = 0.0
        if seconds:
            deadline = time.monotonic() + seconds
            request = replace(request, expires_at=time.time() + seconds)
        pending = Pending(request, turn, on_close, beside=not parks, deadline=deadline)
        with self._lock:
            self._by_turn.setdefault(turn, {})[request.id] = pending
            pending.opened = turn.append(RequestOpened(request, parks))  # before its end, whoever stops the turn now
        if seconds:
            self._loop.call_soon_threadsafe(self._arm, pending, seconds)
        logger.info("agui: %s asked on %s: %s", request.kind, turn.thread.chat_id, request.id)
        if turn.one_shot and request.kind != "client_tool":
            self.close(pending, "cancelled", Answer(choice=DENY, error=NOBODY))
        return pending

    def limited(self, turn: Turn, seconds: float) -> float:
        """The time that a request of this turn may be open, where ``seconds`` (0: for ever) are wished for."""
        limit = self._limit(turn)
        return min(seconds or limit, limit) if limit else seconds

    def take_place(self, turn: Turn) -> bool:
        """Take one of the places for workers that wait (``agui.max_parked``); False when all are taken, or all that the
        turn's principal may have.

        Whoever took it hands it to a request (``hold``), which gives it back when its wait is over.
        """
        return self._places.take(turn.thread.principal.id)

    def hold(self, pending: Pending) -> None:
        """A worker waits for this request, on a place that was taken for it; no more, if that is closed already."""
        with self._lock:
            name = pending.turn.thread.principal.id
            pending.place = name if pending.closed is None else None
            free = pending.place is None
        if free:
            self._places.give(name)

    @property
    def waiting(self) -> int:
        """How many workers wait."""
        return self._places.taken

    def park(self, pending: Pending) -> None:
        """The worker waits for this request from now on: runs of the turn end here, with what is open."""
        with self._lock:
            if pending.closed is None:
                pending.waited = True
                self._park(pending.turn)

    def wait(self, pending: Pending, keep: Callable[[], str], slice_seconds: float = 0.5) -> Pending:
        """Block this worker until the request is closed. ``keep`` is asked each slice: a word cancels the request.

        The caller has announced the wait with ``park``.
        """
        try:
            while not pending.event.wait(slice_seconds):
                reason = keep()
                if reason:
                    self.close(pending, "cancelled", Answer(error=reason))
        finally:
            self.resumed(pending)
        return pending

    def resumed(self, pending: Pending) -> None:
        """The worker waits no more."""
        with self._lock:
            pending.waited = False
            place, pending.place = pending.place, None
        if place is not None:
            self._places.give(place)

    # -- closing ------------------------------------------------------------------------------------------------

    def answer(self, pending: Pending, answer: Answer, by: Principal) -> bool:
        """Answer. True if this answer counts, False if the same one was given before (harmless).

        Raises AguiError 403 where the principal lacks the scope (``rights.check_answer``), and 409 when the request is
        closed already: ``request_expired``, ``request_cancelled`` or ``request_answered`` (with another answer).
        """
        with self._lock:
            if pending.closed is None and 0 < pending.deadline <= time.monotonic():
                self.close(pending, "expired")
            if pending.closed is None:
                check_answer(pending.request, answer, by)
                self.close(pending, "answered", answer, by.id)
                return True
            if pending.closed == "answered" and pending.answer == answer:
                return False
            code = f"request_{pending.closed}"
        raise AguiError(409, code, f"This request is no longer open: it was {pending.closed}.")

    def together(self) -> contextlib.AbstractContextManager[object]:
        """Around several answers to one turn: a worker that goes on by the first of them must not park for the next,
        which is there already; the run that reads on would end with it."""
        return self._lock

    def close(self, pending: Pending, how: Closed, answer: Answer | None = None, by: str = "") -> bool:
        """Close a request; the first to come wins. Any thread."""
        with self._lock:
            if pending.closed is not None:
                return False
            pending.closed, pending.answer = how, answer
            pending.position = pending.turn.log.last
            choice = answer.choice if answer is not None else ""
            pending.turn.append(RequestClosed(pending.request.id, how, choice))
            if pending.on_close is not None:
                pending.on_close(pending)
            pending.event.set()
            self.resumed(pending)  # nobody waits for what is closed
        with contextlib.suppress(RuntimeError):  # the loop is gone, and nobody is left to tell
            self._loop.call_soon_threadsafe(self._is_closed, pending)
        # Who, what, when; never the content.
        audit.info(
            "agui: audit: %s %s on %s was %s%s%s",
            pending.request.kind,
            pending.request.id,
            pending.turn.thread.chat_id,
            how,
            f" by {by}" if by else "",
            f": {choice}" if choice else "",
        )
        return True

    def cancel_turn(self, turn: Turn, reason: str, *, beside: bool = False) -> int:
        """Cancel what a turn has open, telling the model why; also what is asked ``beside`` it. Returns how many."""
        return sum(
            self.close(pending, "cancelled", Answer(choice=DENY, error=reason))
            for pending in self.of_turn(turn, True)
            if beside or not pending.beside
        )

    def cancel_all(self, reason: str) -> None:
        """Cancel everything: the process ends, and no worker may go on waiting."""
        with self._lock:
            turns = list(self._by_turn)
        for turn in turns:
            self.cancel_turn(turn, reason, beside=True)

    def adopt(self, turns: Iterable[Turn], turn: Turn) -> None:
        """A new turn of the thread takes over what is still asked beside the older ones, so that its runs show it."""
        with self._lock:
            moved = [p for old in turns if old is not turn for p in self.of_turn(old, True) if p.beside]
            for pending in moved:
                del self._by_turn[pending.turn][pending.request.id]
                self._by_turn.setdefault(turn, {})[pending.request.id] = pending
                pending.turn = turn
                pending.opened = turn.append(RequestOpened(pending.request, parks=False))

    def still_parked(self, turn: Turn) -> bool:
        """After answers: if the worker still waits for another one, say so in the log, which ends the new run."""
        with self._lock:
            parked = self.parked(turn)
            if parked:
                self._park(turn)
            return parked

    def tell(self, turn: Turn, event: StreamEvent) -> int:
        """Add to a turn's log what comes from beside it. Its position; 0, and nothing added, while the turn waits (what
        follows a wait answers it) or when it is over. Any thread."""
        with self._lock:
            return 0 if self.parked(turn) else turn.append(event)

    def _park(self, turn: Turn) -> None:
        turn.parked_at = turn.append(TurnParked(self.open_requests(turn))) or turn.parked_at

    def forget(self, turn: Turn) -> None:
        """The turn is over and no longer known: drop its requests; what is open is cancelled."""
        self.cancel_turn(turn, "The turn is over.", beside=True)
        with self._lock:
            self._by_turn.pop(turn, None)

    def _is_closed(self, pending: Pending) -> None:
        timer, pending.timer = pending.timer, None
        if timer is not None:
            timer.cancel()  # it would keep the turn and its log alive for as long
        self._on_closed(pending)

    def _arm(self, pending: Pending, seconds: float) -> None:
        if pending.closed is None:
            pending.timer = self._loop.call_later(seconds, self.close, pending, "expired")

    # -- looking ------------------------------------------------------------------------------------------------

    def of_turn(self, turn: Turn, only_open: bool = False) -> list[Pending]:
        """The turn's requests, oldest first."""
        with self._lock:
            return [p for p in self._by_turn.get(turn, {}).values() if not (only_open and p.closed)]

    def open_requests(self, turn: Turn) -> tuple[Request, ...]:
        """What the turn has open now."""
        return tuple(p.request for p in self.of_turn(turn, True))

    def open_on(self, thread: Thread) -> list[Request]:
        """What all turns of a thread have open now."""
        return [request for turn in thread.turns.values() for request in self.open_requests(turn)]

    def parked(self, turn: Turn) -> bool:
        """Whether the turn's worker waits now."""
        return any(p.waited for p in self.of_turn(turn, True))

    def parked_turns(self) -> list[Turn]:
        """All turns whose worker waits now."""
        with self._lock:
            return [turn for turn in self._by_turn if self.parked(turn)]

    def turns_of(self, principal_id: str) -> list[Turn]:
        """The turns of a principal's that have or had requests, oldest first."""
        with self._lock:
            return [turn for turn in self._by_turn if turn.thread.principal.id == principal_id]

    def find(self, turns: list[Turn], request_id: str) -> Pending | None:
        """A request by its id, among turns of one thread: another's id is as unknown as a made-up one."""
        with self._lock:
            return next((p for t in turns if (p := self._by_turn.get(t, {}).get(request_id))), None)

    def find_call(self, turns: list[Turn], call_id: str) -> Pending | None:
        """A client tool's request by its call id."""
        with self._lock:
            for turn in turns:
                for pending in self._by_turn.get(turn, {}).values():
                    if pending.request.kind == "client_tool" and pending.request.call_id == call_id:
                        return pending
        return None


def new_id(kind: str) -> str:
    """An id for a request; unguessable, so that it names nothing of another thread."""
    return f"{kind}-{uuid.uuid4().hex}"


def read_answer(request: Request, payload: Any, *, cancelled: bool = False) -> Answer:
    """A door's payload → Answer. Raises AguiError 422 ``invalid_answer`` that says what may be answered.

    Approvals and confirmations take ``{"choice": …, "reason"?: …}``, ``{"approved": bool, "reason"?: …}``, or the
    choice itself; clarify takes ``{"answer": text}`` or text; a client tool's content comes as its tool message.
    """
    if request.kind in ("approval", "confirm"):
        no = DENY if request.kind == "approval" else "cancel"
        if cancelled:
            return Answer(choice=no, text="The user closed the question without an answer.")
        reason = ""
        if isinstance(payload, dict):
            reason = payload.get("reason") or ""
            payload = payload.get("choice", payload.get("approved"))
        if isinstance(payload, bool):
            payload = APPROVE_ONCE if payload else no
        if payload in request.choices and isinstance(reason, str):
            return Answer(choice=payload, text=reason[:2000])
        raise _invalid(f"Answer with one of: {', '.join(request.choices)} (and a reason as text, if any).")
    if cancelled:
        return Answer(error="The user closed the question without an answer.")
    if isinstance(payload, dict):
        payload = next((payload[key] for key in ("answer", "text", "choice", "content") if key in payload), None)
    if isinstance(payload, str) and payload.strip() and (request.free_text or payload in request.choices):
        return Answer(text=payload[:100_000])
    what = f" one of: {', '.join(request.choices)}," if request.choices else ""
    raise _invalid(f"Answer with{what} a text that is not empty." if request.free_text else f"Answer with{what}.")


def _invalid(message: str) -> AguiError:
    return AguiError(422, "invalid_answer", message + " The request stays open.")
