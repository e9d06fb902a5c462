"""`/v1/runs`: a turn that is started, watched, answered, steered and stopped by requests of their own.

A run is a turn of the caller's: it goes on without any reader, its events can be read by many and from any position for
as long as its log is kept, and its status and answer outlive the process. A run of another's is as unknown as a made-up
one. Text is never a command here. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..archive import Archive
from ..door import Ask, Door, Reader, new_id
from ..encode import dumps
from ..error_codes import RUN_ERRORS
from ..errors import INTERNAL, AguiError
from ..inputs import has_media
from ..operation import EVENT_STREAM, operation, parsed, queried
from ..past_turns import Past, past_turn
from ..reconcile import text_of
from ..replies import reply
from ..requests import Pending
from ..results import Result
from ..session import Principal, Thread, Turn
from ..store import RunRecord
from ..stream import GatewayNotice, MessageChunk
from ..thread_actions import ThreadActions
from . import run_models as m
from .chat import client_tools
from .conversation import read_messages
from .models import CLOSED_ERRORS, Answered, request_info, steered
from .options import read_options
from .replays import Replays
from .run_events import STEERED, RunEvents, Steered, usage_of

if TYPE_CHECKING:
    from ..adapter import AguiAdapter
    from ..server import Server

logger = logging.getLogger("hermes_agui")

TAG = "runs"
GONE = ("run_not_found",)
_ENDS: dict[str, m.Status] = {"success": "completed", "cancelled": "cancelled", "failed": "failed", "lost": "failed"}
_MOST = 2000  # runs that are remembered beside the store
_ALIASES = {"approve": "once", "approved": "once", "allow": "once"}


def add_routes(app: web.Application, server: Server) -> None:
    """Everything under /v1/runs."""
    routes = RunRoutes(server)
    one = "/v1/runs/{run_id}"
    app.router.add_post("/v1/runs", routes.create)
    app.router.add_get(one, routes.get)
    app.router.add_get(f"{one}/events", routes.events)
    app.router.add_post(f"{one}/approval", routes.approval)
    app.router.add_post(f"{one}/answer", routes.answer)
    app.router.add_post(f"{one}/steer", routes.steer)
    app.router.add_post(f"{one}/stop", routes.stop)


@dataclass(eq=False)
class _Run:
    """A run of this process. ``opening`` gets it its turn: behind another one, where the operator queues.

    It does not hold the turn: a log that is over is kept no longer than any other's.
    """

    id: str
    principal: str
    session_id: str
    message_id: str = ""  # of what it was asked last
    created: float = field(default_factory=time.time)
    opening: asyncio.Task[Reader] | None = None
    queued: bool = False
    thread: Thread | None = None
    turn_id: str = ""
    start: int = 0
    failed: AguiError | None = None
    cancelled: bool = False

    @property
    def turn(self) -> Turn | None:
        """Its turn, while that is known."""
        return None if self.thread is None or self.thread.gone else self.thread.turns.get(self.turn_id)

    @property
    def waits(self) -> bool:
        """Whether it stands in a queue now."""
        return self.queued and self.opening is not None

    def begins(self, turn: Turn, start: int) -> None:
        """Its turn is there."""
        self.thread, self.turn_id, self.start = turn.thread, turn.id, start


class RunRoutes:
    """The routes, and the runs of this process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._actions = ThreadActions(server)
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._replays: Replays[_Run] = Replays()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @property
    def _door(self) -> Door:
        return Door(self._adapter)

    # -- beginning --------------------------------------------------------------------------------------------

    @operation(
        TAG,
        body=m.RunCreate,
        reply=m.RunStarted,
        status=202,
        errors=RUN_ERRORS,
        headers={"Location": "Where its status is."},
        takes={"Idempotency-Key": "The same key and body is the same run, however often it is sent."},
    )
    async def create(self, request: web.Request) -> web.Response:
        """Start a run; returns at once. What is asked is never read as a command."""
        principal = self._server.principal(request)
        body = await self._server.json(request)
        asked = parsed(m.RunCreate, body)
        scope = f"run {principal.id}"
        async with self._replays.slot(request, scope) as slot:
            run = slot.known
            if run is None:
                run = self._begin(principal, await self._ask(asked, body), asked.session_id)
                slot.keep(run)  # at once: a caller that leaves now and asks again has begun it all the same
                self._forget_failed(run, lambda: self._replays.forget(request, scope))
        if run.opening is not None and not run.queued:
            await asyncio.shield(run.opening)
        if run.failed is not None and not run.queued:
            raise run.failed
        told = {
            "object": "hermes.run",
            "run_id": run.id,
            "session_id": run.session_id,
            "status": self._status(run),
            "created_at": run.created,
        }
        response = reply(told, 202)
        response.headers["Location"] = f"/v1/runs/{run.id}"
        return response

    def _begin(self, principal: Principal, ask: Ask, session_id: str | None) -> _Run:
        run = _Run(ask.run_id, principal.id, session_id or ask.run_id, ask.messages[-1]["id"])
        thread = self._adapter.threads.find(principal, run.session_id)
        running = thread.current if thread is not None else None
        run.queued = self._server.settings.busy == "queue" and running is not None and bool(running.readers)
        if run.queued:
            mine = [one for one in self._runs.values() if one.principal == principal.id and one.waits]
            self._server.limits.check_queue(len(mine))
        run.opening = asyncio.create_task(self._door.open(principal, run.session_id, ask), name="agui-run")
        run.opening.add_done_callback(lambda task: self._opened(run, task))
        self._remember(run)
        return run

    async def _ask(self, asked: m.RunCreate, body: dict[str, Any]) -> Ask:
        settings = self._server.settings
        if body.get("previous_response_id") is not None:  # left out, the run would know nothing of it
            message = "previous_response_id is for /v1/responses; name a session_id or send conversation_history."
            raise AguiError(422, "invalid_input", message, members={"param": "previous_response_id"})
        options = read_options(body, allowed=settings.allow_overrides, agent=settings.rest_model)
        asks: list[Any] = asked.input if isinstance(asked.input, list) else [{"role": "user", "content": asked.input}]
        said = read_messages(
            [*(asked.conversation_history or []), *asks], most=settings.max_messages, prefix=new_id("run-message")
        )
        if not any(text_of(one["content"]).strip() for one in said.new) and not has_media(said.new):
            raise AguiError(400, "no_input", "There is no user message with content at the end of input.")
        instructions = "\n\n".join(text for text in (asked.instructions, said.instructions) if text)
        return Ask(
            messages=said.new,
            history=said.history,
            instructions=instructions or None,
            context=f"Instruction of the application the user sees: {said.late}" if said.late else "",
            overrides=options.overrides,
            tools=await client_tools(self._adapter, options),
            run_id=new_id("run").replace("-", "_", 1),
        )

    def _opened(self, run: _Run, task: asyncio.Task[Reader]) -> None:
        """Its turn is there, or will not be."""
        run.opening = None
        if task.cancelled():
            run.cancelled = True
            return
        error = task.exception()
        if error is not None:
            if not isinstance(error, AguiError):
                logger.error("agui: a run could not begin", exc_info=error)
            run.failed = error if isinstance(error, AguiError) else AguiError(500, "internal", INTERNAL)
            if not run.queued:  # its caller is told, and nobody knows it
                self._runs.pop(run.id, None)
            return
        turn, start = task.result().turn, task.result().start
        run.begins(turn, start)
        kept = asyncio.create_task(_keep(turn), name="agui-run-kept")
        self._tasks.add(kept)
        kept.add_done_callback(self._tasks.discard)
        record = RunRecord("", turn.thread.chat_id, turn.id, start, run.id)
        archive = self._adapter.archive
        archive.later(lambda: archive.store.keep_run(run.principal, _key(run.id), record))

    def _forget_failed(self, run: _Run, forget: Callable[[], None]) -> None:
        """A run that could not begin, and that nobody knows, leaves its key to the next try; whoever still waits."""

        def opened(task: asyncio.Task[Reader]) -> None:
            if run.failed is not None and not run.queued:
                forget()

        if run.opening is not None:
            run.opening.add_done_callback(opened)

    def _remember(self, run: _Run) -> None:
        self._runs[run.id] = run
        over = len(self._runs) - _MOST
        for one in [one for one in self._runs.values() if not one.waits][: max(0, over)]:  # its record is in the store
            del self._runs[one.id]

    # -- which run --------------------------------------------------------------------------------------------

    async def _find(self, request: web.Request, principal: Principal) -> _Run | tuple[Thread, RunRecord]:
        """The caller's run of the address: one of this process, else what the store has of it. AguiError 404."""
        await self._actions.ready()
        run_id, archive = request.match_info["run_id"], self._adapter.archive
        run = self._runs.get(run_id)
        if run is not None and run.principal == principal.id and (run.thread is None or run.turn is not None):
            return run
        record = await archive.run(lambda: archive.store.run(principal.id, _key(run_id)) or _of_turn(archive, run_id))
        thread = await self._adapter.thread_of_chat(record.chat_id) if record is not None else None
        if record is None or thread is None or thread.principal.id != principal.id:
            raise _unknown()
        turn = thread.turns.get(record.turn_id)
        if turn is None:
            return thread, record
        run = _Run(run_id, principal.id, thread.thread_id)
        run.created = time.time() - (time.monotonic() - turn.started_at)
        run.begins(turn, record.position)
        self._remember(run)
        return run

    async def _live(self, request: web.Request, scope: Any = None) -> tuple[Principal, _Run]:
        """The same, one of this process. AguiError 409 for one whose log is gone."""
        principal = self._server.principal(request, scope)
        found = await self._find(request, principal)
        if isinstance(found, _Run):
            return principal, found
        raise AguiError(409, "run_over", "This run is over.")

    def _status(self, run: _Run) -> m.Status:
        turn = run.turn
        if turn is None:
            return "failed" if run.failed is not None else "cancelled" if run.cancelled else "queued"
        if turn.log.closed:
            return _ENDS[Reader(turn, turn.log.last).result().outcome]
        if turn.stopping:
            return "stopping"
        return "waiting" if self._adapter.requests.parked(turn) else "running"

    # -- looking ------------------------------------------------------------------------------------------------

    @operation(TAG, reply=m.RunInfo, errors=GONE)
    async def get(self, request: web.Request) -> web.Response:
        """A run's status, what it has answered so far, and what it waits for."""
        found = await self._find(request, self._server.principal(request))
        if isinstance(found, _Run):
            return reply(self._told(found))
        thread, record = found
        past = await past_turn(self._adapter.archive, thread, record.turn_id)
        return reply(_from_past(thread, record, past))

    def _told(self, run: _Run) -> dict[str, Any]:
        told: dict[str, Any] = {
            "object": "hermes.run",
            "run_id": run.id,
            "session_id": run.session_id,
            "status": self._status(run),
            "created_at": run.created,
            "output": "",
            "requests": [],
        }
        turn = run.turn
        if turn is None:
            if run.failed is not None:
                told["error"] = {"code": run.failed.code, "message": run.failed.message}
            return told
        result = self._result(run, turn)
        told |= {"output": result.text, "usage": usage_of(result.tokens), "last_event_id": f"{turn.id}.{turn.log.last}"}
        told["requests"] = [request_info(one) for one in self._door.open_requests(turn)]
        if result.outcome == "failed":
            message = result.message or "The agent could not answer."
            told["error"] = {"code": result.code or "failed", "message": message}
        late = Steered()
        for event in turn.log.events(run.start):
            late.feed(event)
        return told | late.told()

    def _result(self, run: _Run, turn: Turn) -> Result:
        reader = Reader(turn, run.start)
        reader.position = turn.log.last
        return reader.result()

    @operation(
        TAG,
        query=m.EventsQuery,
        reply=str,
        media=EVENT_STREAM,
        errors=(*GONE, "run_over", "too_many_streams"),
        takes={"Last-Event-ID": "Where the stream broke off; `after` comes first."},
    )
    async def events(self, request: web.Request) -> web.StreamResponse:
        """A run's events from its beginning, or from where a stream broke off, until it ends. Any number may read."""
        asked = queried(m.EventsQuery, request.query)
        _, run = await self._live(request)
        return await self._server.stream(
            request, self._frames(run, asked.after or request.headers.get("Last-Event-ID", ""))
        )

    async def _frames(self, run: _Run, event_id: str) -> AsyncGenerator[bytes, None]:
        if run.opening is not None:  # queued: its turn comes
            await asyncio.wait([run.opening])
        turn = run.turn
        if turn is None:
            name, about = "run.cancelled", {}
            if run.failed is not None:
                name, about = "run.failed", {"code": run.failed.code, "error": run.failed.message}
            yield b"data: %b\n\n" % dumps({"event": name, "run_id": run.id, "timestamp": time.time(), **about})
            return
        after = position_of(turn, event_id, run.start)
        translator = RunEvents(self._server.view, lambda: self._result(run, turn).text)
        prefix = turn.id.encode() + b"."
        for event in turn.log.events(run.start, after):
            translator.feed(event)
        try:
            reader = Reader(turn, after)
            async with aclosing(reader.batches(past_parks=True)) as batches:
                async for batch in batches:
                    frames = []
                    for index, (position, event) in enumerate(batch):
                        told_of = translator.feed(event)
                        if reader.repeated and not index and isinstance(event, MessageChunk):
                            told_of = [translator.revised(turn.log.events(run.start, position))]
                        for name, members in told_of:
                            told = {"event": name, "run_id": run.id, "timestamp": time.time(), **members}
                            frames.append(b"id: %b%d\ndata: %b\n\n" % (prefix, position, dumps(told)))
                    if frames:
                        yield b"".join(frames)
        except Exception:  # the headers are out
            logger.exception("agui: a run's events failed")
            told = {"event": "error", "run_id": run.id, "code": "internal", "error": INTERNAL}
            yield b"data: %b\n\n" % dumps(told)

    # -- answering ------------------------------------------------------------------------------------------------

    @operation(
        TAG,
        body=m.Approval,
        reply=m.ApprovalReply,
        errors=(*GONE, "run_over", "approval_not_pending", "no_such_request", "invalid_answer", *CLOSED_ERRORS),
    )
    async def approval(self, request: web.Request) -> web.Response:
        """Answer an approval (or a confirmation) that the run waits for; it goes on."""
        principal, run = await self._live(request, "read")  # what is asked decides which scope the answer needs
        asked = parsed(m.Approval, await self._server.json(request))
        waiting = self._open(run, "approval", "confirm")
        if asked.request_id is not None:
            waiting = [self._named(run, asked.request_id)]
        elif not (asked.all or asked.resolve_all):
            waiting = waiting[:1]
        if not waiting:
            raise AguiError(409, "approval_not_pending", "This run waits for no approval.")
        choice = asked.choice.strip().lower()
        payload = {"choice": _ALIASES.get(choice, choice), **({"reason": asked.reason} if asked.reason else {})}
        for pending in waiting:
            self._actions.answer(principal, [pending.turn], pending.request.id, payload)
        told = {"object": "hermes.run.approval_response", "run_id": run.id, "choice": payload["choice"]}
        return reply({**told, "resolved": len(waiting)})

    @operation(
        TAG,
        body=m.RunAnswer,
        reply=Answered,
        errors=(
            *(*GONE, "run_over", "no_such_request", "nothing_to_answer", "several_open", "invalid_answer"),
            *CLOSED_ERRORS,
        ),
    )
    async def answer(self, request: web.Request) -> web.Response:
        """Answer a question of the agent's, or give the result of a tool that the caller runs; the run goes on."""
        principal, run = await self._live(request, "read")
        asked = parsed(m.RunAnswer, await self._server.json(request))
        pending = self._meant(run, asked)
        pending, counted = self._actions.answer(principal, [pending.turn], pending.request.id, asked.payload())
        return reply({"request_id": pending.request.id, "status": "answered" if counted else "repeated"})

    def _open(self, run: _Run, *kinds: str) -> list[Pending]:
        turn = run.turn
        found = self._adapter.requests.of_turn(turn, True) if turn is not None else []
        return [pending for pending in found if not kinds or pending.request.kind in kinds]

    def _named(self, run: _Run, request_id: str) -> Pending:
        turn = run.turn
        pending = self._adapter.requests.find([turn], request_id) if turn is not None else None
        if pending is None:
            raise AguiError(404, "no_such_request", "This run has no such request.")
        return pending

    def _meant(self, run: _Run, asked: m.RunAnswer) -> Pending:
        """Which request an answer is for."""
        if asked.request_id is not None:
            return self._named(run, asked.request_id)
        if asked.call_id is not None:
            turn = run.turn
            found = self._adapter.requests.find_call([turn], asked.call_id) if turn is not None else None
            if found is None:
                raise AguiError(404, "no_such_request", "This run has no such request.")
            return found
        waiting = self._open(run)
        if not waiting:
            raise AguiError(409, "nothing_to_answer", "This run waits for no answer.")
        if len(waiting) > 1:
            names = ", ".join(pending.request.id for pending in waiting)
            raise AguiError(409, "several_open", f"Several requests are open; name one as request_id: {names}.")
        return waiting[0]

    # -- while it runs ----------------------------------------------------------------------------------------------

    @operation(
        TAG, body=m.RunSteer, reply=m.RunSteered, errors=(*GONE, "run_not_accepting_steer", "command_not_steerable")
    )
    async def steer(self, request: web.Request) -> web.Response:
        """Give the running model a text, which it sees with its next tool result.

        Text that comes too late for that is told as `pending_steer` when the run ends, with what became of it.
        """
        found = await self._find(request, self._server.principal(request))
        asked = parsed(m.RunSteer, await self._server.json(request))
        text = steered(asked)
        turn = found.turn if isinstance(found, _Run) else None
        if not isinstance(found, _Run) or turn is None or self._status(found) != "running":
            raise _no_steer()
        if turn.thread.current is not turn:
            raise _no_steer()
        self._actions.steer(turn.thread, text, asked.message_id)
        turn.append(GatewayNotice(STEERED, text))
        return reply({"object": "hermes.run.steer", "run_id": found.id, "status": self._status(found), "steered": True})

    @operation(TAG, reply=m.RunStopped, errors=GONE)
    async def stop(self, request: web.Request) -> web.Response:
        """Stop a run in order, running, waiting or queued; returns at once. One that is over stays what it is."""
        principal = self._server.principal(request)
        found = await self._find(request, principal)
        if not isinstance(found, _Run):
            thread, record = found
            past = await past_turn(self._adapter.archive, thread, record.turn_id)
            return reply({"run_id": record.run_id, "status": _ENDS.get(past.outcome, "failed")})
        opening = found.opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if found.cancelled:  # perhaps at the moment that its turn began
                await self._door.withdraw(principal, found.session_id, found.message_id)
        status, turn = self._status(found), found.turn
        if turn is not None and not turn.log.closed:
            task = asyncio.create_task(self._door.stop(turn), name="agui-run-stop")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            status = "stopping"
        return reply({"run_id": found.id, "status": status})


def position_of(turn: Turn, event_id: str, start: int) -> int:
    """The position that an event's id names; the run's beginning for one that is made up or another turn's."""
    turn_id, _, number = event_id.rpartition(".")
    if turn_id != turn.id or not (number.isascii() and number.isdigit()) or len(number) > 12:
        return start
    return max(start, int(number)) if int(number) <= turn.log.last else start


async def _keep(turn: Turn) -> None:
    """A run goes on whether anybody reads or not: it counts as read, or the thread's next message would end it."""
    turn.enter()
    try:
        await turn.done.wait()
    finally:
        turn.leave()


def _key(run_id: str) -> str:
    return f"run-id:{run_id}"


def _of_turn(archive: Archive, turn_id: str) -> RunRecord | None:
    """A turn that began at another door is a run too, under its own id."""
    found = archive.store.turn(turn_id)
    return RunRecord("", found.chat_id, turn_id, 0, turn_id) if found is not None else None


def _unknown() -> AguiError:
    return AguiError(404, "run_not_found", "There is no such run.")


def _no_steer() -> AguiError:
    return AguiError(409, "run_not_accepting_steer", "This run is not running, so nothing takes the text.")


def _from_past(thread: Thread, record: RunRecord, past: Past) -> dict[str, Any]:
    status = _ENDS.get(past.outcome, "failed")
    told: dict[str, Any] = {
        "object": "hermes.run",
        "run_id": record.run_id,
        "session_id": thread.thread_id,
        "status": status,
        "created_at": past.started,
        "output": past.text,
        "requests": [],
    }
    if status == "failed":
        lost = past.outcome != "failed"
        message = "The gateway stopped in the middle of this run." if lost else "It failed; why is no longer known."
        told["error"] = {"code": "interrupted" if lost else "failed", "message": message}
    return told


__all__ = ["add_routes"]
