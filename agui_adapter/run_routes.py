"""`POST /agui`: a run.

Reads and checks the request, finds out what it asks for (an answer, new input, a replay), gets the turn, and hands its
stream to the server. Thin: the rules are in ``answers``, ``history``, ``run`` and ``archive``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ag_ui.core import RunAgentInput
from aiohttp import web

from .answers import (
    Answers,
    Follow,
    apply,
    collect,
    late_id,
    late_results,
    late_text,
    nothing_open,
    reinterrupt,
    tell_agent,
    typed_answer,
)
from .error_codes import RUN_ERRORS
from .errors import INTERNAL, AguiError
from .events import AguiStream
from .hermes.actions import is_command
from .history import Message, without_reasoning
from .inputs import NewInput, RunInput, has_media, new_input, parse
from .operation import EVENT_STREAM, operation
from .principal import Principal
from .reconcile import Plan, known_beginning, plan, snapshot_of, transcript
from .requests import Answer, Pending
from .rights import COMMAND_REFUSED, check_answer
from .run import Prepared, Run, open_turn, wait_ready
from .session import Segment, Thread, Turn
from .state import same
from .store import RunRecord
from .stream import GatewayNotice, TurnFinished
from .tools import ClientTool, read_tools

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server

logger = logging.getLogger("hermes_agui")

_QUICK_SECONDS = 2.0  # until then a run that is refused is so by its status; then its stream begins, with heartbeats
_INTERRUPTED = "The gateway stopped in the middle of this run; what was kept of it is shown. Send a new run to go on."


def add_routes(app: web.Application, server: Server) -> None:
    """The main door."""
    app.router.add_post("/agui", Runs(server).post)


@dataclass
class _Claim:
    """A run's key, taken before anything is awaited, so that the same run sent twice at once runs once."""

    principal: str
    key: str
    digest: str
    done: asyncio.Future[RunRecord | None]


class Runs:
    """The route and what it needs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._claims: dict[tuple[str, str], _Claim] = {}

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @operation(
        "ag-ui",
        body=RunAgentInput,
        reply=str,
        media=EVENT_STREAM,
        errors=RUN_ERRORS,
        takes={"Idempotency-Key": "The same key and body replays the run; `runId` and body do too."},
    )
    async def post(self, request: web.Request) -> web.StreamResponse:
        """One run: RunAgentInput in, AG-UI events out."""
        adapter, settings = self._adapter, self._server.settings
        principal = self._server.principal(request)
        self._server.take_stream(request)  # before anything starts: whoever cannot read must not run
        body = await self._server.json_body(request)
        asked = parse(
            body,
            max_messages=settings.max_messages,
            max_depth=settings.max_json_depth,
            undeclared=settings.undeclared_client,
            overrides=settings.allow_overrides,
            forward=settings.forward_props,
        )
        await wait_ready(adapter, settings.start_wait_seconds)
        # On a thread: without the warm-up it is this that imports Hermes's tools.
        taken = await asyncio.to_thread(adapter.server_tools) if asked.tools else frozenset()
        most, most_bytes = settings.max_tools, settings.max_tools_bytes
        tools = read_tools(asked.tools, taken, most=most, most_bytes=most_bytes)
        thread = adapter.threads.get(principal, asked.thread_id)
        explicit = request.headers.get("Idempotency-Key", "").strip()[:200]
        digest = hashlib.sha256(body).hexdigest()
        # Without a key the body is part of it: CopilotKit resumes under the run id that was interrupted.
        key = f"key:{explicit}" if explicit else f"run:{thread.chat_id}:{asked.run_id}:{digest}"
        claim, earlier = await self._claim(principal.id, key, digest)
        if earlier is not None:
            return await self._replay(request, thread, asked, earlier)
        assert claim is not None
        try:
            await adapter.archive.load(thread)
            late = await late_results(adapter, thread, asked)
            answering = await self._answer(request, thread, asked, late, claim, principal)
            if answering is not None:
                return answering
            new = self._new_input(thread, asked, late)
            typed = self._typed_answer(thread, new.text) if not has_media(new.messages) else None
            if typed is not None:
                check_answer(typed[0].request, typed[1], principal)
                follow = apply(adapter, thread, asked, Answers([typed]), principal)
                follow.turn.hear(new.messages)
                self._kept(claim, follow.turn, follow.position, asked.run_id)
                run = self._follow(asked, follow)
                return await self._server.stream(request, run.chunks(), run.over)
            opening = asyncio.create_task(self._begin(thread, asked, new, tools, claim, principal), name="agui-opening")
            opening.add_done_callback(_heard)
            try:
                await asyncio.wait([opening], timeout=min(_QUICK_SECONDS, settings.heartbeat_seconds / 2))
                if opening.done():
                    run = opening.result()
                    return await self._server.stream(request, run.chunks(), run.over)
                told = self._awaited(opening, asked)
                return await self._server.stream(request, told, lambda: self._over(opening, asked))
            finally:
                if not opening.done():  # the client has left: nothing begins
                    opening.cancel()
                    await asyncio.wait([opening])
        finally:
            self._release(claim)

    # -- beginning ----------------------------------------------------------------------------------------------

    async def _begin(
        self,
        thread: Thread,
        asked: RunInput,
        new: NewInput,
        tools: tuple[ClientTool, ...],
        claim: _Claim,
        principal: Principal,
    ) -> Run:
        """A new turn, or the one that the input is steered into. Raises AguiError. May wait for a busy thread."""
        adapter, settings = self._adapter, self._server.settings
        try:
            turn, position, prepared = await open_turn(
                adapter,
                thread,
                new.text,
                prepare=lambda: self._agree(thread, asked, new),
                context=asked.context,
                ids=new.ids,
                inputs=new.messages,
                client_tools=tools,
                run_id=asked.run_id,
                commands=principal,
            )
        except AguiError as error:
            if error.code == COMMAND_REFUSED:  # the client holds it and would send it again with its next message
                thread.accept(new.ids)
            raise
        base, joins = prepared.base, prepared.steered
        if joins:  # by steering: this client may hold a part of the turn already, or nothing of it
            base = [message for message in asked.messages if not message["id"].startswith(f"{turn.id}-")]
            prepared.state, prepared.tells_state = tell_agent(adapter, turn, asked)
        segment = turn.begin_run(position, asked.run_id, asked.peer, base)
        segment = self._begins(turn, segment, asked, prepared)
        self._kept(claim, turn, position, asked.run_id)
        stream = self._stream(asked.thread_id, turn, segment, whole=joins)
        run = Run(turn, stream, after=position, merge_ms=settings.merge_ms, joins=joins)
        run.first = segment.first
        if not joins:
            turn.overrides = asked.forwarded.overrides
            if asked.forwarded.ignored:
                names = list(asked.forwarded.ignored)
                text = f"The operator does not let clients choose {', '.join(names)} (agui.allow_overrides)."
                turn.append(GatewayNotice("override_ignored", text, {"names": names}))
            await adapter.submit(turn)
        return run

    async def _awaited(self, opening: asyncio.Task[Run], asked: RunInput) -> AsyncGenerator[bytes, None]:
        """The stream of a run that has to wait for its turn; the headers are out, so an error is told in it."""
        await asyncio.wait([opening])
        try:
            run = opening.result()
        except AguiError as error:
            yield b"".join(self._failed(asked, error))
        except Exception:
            logger.exception("agui: a run could not begin")
            yield b"".join(self._failed(asked, AguiError(500, "internal", INTERNAL)))
        else:
            async with aclosing(run.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _over(self, opening: asyncio.Task[Run], asked: RunInput) -> list[bytes]:
        """The end of such a stream when its time is over."""
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            return opening.result().over()
        message = "This stream has reached its time before the thread was free; send the run again."
        return self._failed(asked, AguiError(504, "stream_over", message))

    def _failed(self, asked: RunInput, error: AguiError) -> list[bytes]:
        bare = self._bare(asked)
        return [*bare.start(), *bare.fail(error.code, error.message)]

    def _bare(self, asked: RunInput) -> AguiStream:
        """The stream of a run that has no turn."""
        return AguiStream(asked.thread_id, asked.run_id, peer=asked.peer, view=self._server.view)

    # -- the same run again -------------------------------------------------------------------------------------

    async def _claim(self, principal: str, key: str, digest: str) -> tuple[_Claim | None, RunRecord | None]:
        """Take a key, or the record of the run that has it. Raises AguiError 409 for another body under it."""
        while (running := self._claims.get((principal, key))) is not None:
            if running.digest != digest:
                raise _taken()
            record = await asyncio.shield(running.done)
            if record is not None:
                return None, record
        future: asyncio.Future[RunRecord | None] = asyncio.get_running_loop().create_future()
        claim = self._claims[(principal, key)] = _Claim(principal, key, digest, future)
        try:
            found = await self._adapter.archive.run(lambda: self._adapter.archive.store.run(principal, key))
        except BaseException:
            self._release(claim)
            raise
        if found is None:
            return claim, None
        self._release(claim)
        if found.digest != digest:
            raise _taken()
        return None, found

    def _kept(self, claim: _Claim, turn: Turn, position: int, run_id: str) -> None:
        record = RunRecord(claim.digest, turn.thread.chat_id, turn.id, position, run_id)
        if not claim.done.done():
            claim.done.set_result(record)
        archive = self._adapter.archive
        archive.later(lambda: archive.store.keep_run(claim.principal, claim.key, record))

    def _release(self, claim: _Claim) -> None:
        if not claim.done.done():
            claim.done.set_result(None)
        if self._claims.get((claim.principal, claim.key)) is claim:
            del self._claims[(claim.principal, claim.key)]

    async def _replay(
        self, request: web.Request, thread: Thread, asked: RunInput, record: RunRecord
    ) -> web.StreamResponse:
        """The first answer again: from the turn's log, or from the history when the log is gone."""
        turn = thread.turns.get(record.turn_id)
        if turn is not None:
            segment = turn.segment_of(record.run_id, record.position)
            merge_ms = self._server.settings.merge_ms
            run = Run(turn, self._stream(asked.thread_id, turn, segment), after=record.position, merge_ms=merge_ms)
            run.first = segment.first
            return await self._server.stream(request, run.chunks(), run.over)
        archive = self._adapter.archive
        await archive.load(thread)
        history = await archive.messages(thread)
        thread.show(history)
        outcome = await archive.run(lambda: archive.store.outcome(record.turn_id))
        stream = AguiStream(asked.thread_id, asked.run_id, peer=asked.peer, view=self._server.view)
        told = snapshot_of(asked.messages, [message["id"] for message in asked.messages], history)
        state = thread.document.value
        known = [] if state is None or same(asked.state, state) else stream.state_snapshot(state)
        frames = [*stream.start(), *known, *_snapshots(stream, asked.messages, told)]
        if outcome in ("success", "cancelled"):
            frames += stream.feed(TurnFinished(outcome))  # type: ignore[arg-type]
        elif outcome == "failed":
            frames += stream.fail("failed", "This run failed, and its error is no longer known. Send a new run.")
        else:
            frames += stream.fail("interrupted", _INTERRUPTED)
        return await self._server.frames(request, frames)

    # -- new input ----------------------------------------------------------------------------------------------

    def _new_input(self, thread: Thread, asked: RunInput, late: list[Message]) -> NewInput:
        """New user messages, behind results of client tools that nobody waits for any more."""
        if not late:
            return new_input(asked.messages, thread.accepted)
        ids = [message["id"] for message in late]
        shown: list[Message] = [
            {"id": late_id(message), "role": "user", "content": late_text(asked, message)} for message in late
        ]
        text = "\n\n".join(message["content"] for message in shown)
        if all(message["id"] in thread.accepted for message in asked.tail()[1]):
            return NewInput(text, ids, shown)
        new = new_input(asked.messages, thread.accepted)
        return replace(new, text=f"{text}\n\n{new.text}", ids=[*ids, *new.ids], messages=[*shown, *new.messages])

    def _typed_answer(self, thread: Thread, text: str) -> tuple[Pending, Answer] | None:
        """A message typed while the agent asks may be the answer, as on every platform of the gateway.

        Not to a question that nobody was shown: a turn that Hermes takes up again after a crash may ask once more.
        """
        turn = thread.current
        if turn is None:
            return None
        unseen = turn.unsolicited and not (turn.segments or turn.readers or thread.watchers)
        for pending in self._adapter.requests.of_turn(turn, True):
            if unseen and pending.request.kind == "clarify":
                continue
            answer = typed_answer(pending.request, text, commands_only=self._server.settings.parked == "refuse")
            if answer is not None:
                return pending, answer
        return None

    async def _agree(self, thread: Thread, asked: RunInput, new: NewInput) -> Prepared:
        """Messages and state: what holds at the beginning of the run. Under the thread's lock."""
        if not self._adapter.lets_in(thread):  # the gateway will say so: until then nothing is kept of it
            return Prepared(asked.messages, state=asked.state)
        prepared = await self._prepare(thread, asked, new)
        rewound = any(name == "rewound" for name, _ in prepared.notices)
        if rewound:  # what the model was told of context and state may be gone with it
            thread.context = ""
            thread.document.model_forgot()
        # A client that brings a history and lacks a part of it lacks what the state became meanwhile.
        behind = prepared.snapshot and not rewound and len(asked.messages) > len(new.ids)
        prepared.state, prepared.tells_state = thread.document.adopt(asked.state, behind=behind)
        return prepared

    async def _prepare(self, thread: Thread, asked: RunInput, new: NewInput) -> Prepared:
        """Make the client's messages and Hermes's agree, before the new input runs. Under the thread's lock."""
        before = [m for m in asked.messages if m["role"] in ("user", "assistant", "tool") and m["id"] not in new.ids]
        again: list[Message] = []
        system = asked.system()
        if system or before or not thread.seen:  # who sends only its newest message has not taken it back
            thread.system = system
        fresh = not any(new_id in thread.accepted for new_id in new.ids)
        stands = (before[-1]["id"] if before else "", len(before))
        if fresh and not thread.shared and stands == (thread.last_id, thread.size):
            return Prepared(asked.messages)  # the client knows all there is: the usual case, without a look-up
        archive, settings = self._adapter.archive, self._server.settings
        shown = frozenset(thread.accepted)  # before the look-up, which learns what another chat of its session has said
        if thread.shared:
            await archive.reload(thread)
        history = await archive.messages(thread)
        thread.size = len(without_reasoning(history))
        todo = plan(asked.messages, new.ids, history, seen=thread.seen)
        if todo.action == "rewind" and todo.rewind_to not in new.ids:  # an edit, or a client that knows less
            if todo.rewind_to not in shown or settings.shorter_list == "append":
                # Said in that other chat, and never shown here: the client cuts nothing. Or so the operator has it.
                todo = Plan(snapshot=True)
            elif settings.shorter_list == "refuse":
                raise _behind(todo.rewind_to)
        notices = []
        if todo.action == "seed":
            rows = transcript([m for m in asked.messages if m["id"] not in new.ids])
            await archive.seed(thread, self._adapter.source_of(thread), rows)
            thread.show(asked.messages)
        elif todo.action == "rewind":
            try:
                turns, again = await archive.rewind(thread, todo.rewind_to)
            except LookupError:
                message = (
                    "The message to go back to is no longer in the agent's memory (it was summed up). Send the whole "
                    "conversation with a new message at its end, or begin a new thread."
                )
                raise AguiError(409, "cannot_rewind", message) from None
            notices.append(("rewound", {"messageId": todo.rewind_to, "turns": turns}))
            cut = next(index for index, message in enumerate(history) if message["id"] == todo.rewind_to)
            history = history[:cut]
            thread.size = len(without_reasoning(history)) - len(again)  # the turn brings those again
        if not todo.snapshot:
            return Prepared(asked.messages, notices, complete=True, again=again)
        thread.show(history)
        base = snapshot_of(asked.messages, new.ids, history)
        return Prepared(base, notices, snapshot=True, complete=True, again=again)

    # -- answers ------------------------------------------------------------------------------------------------

    async def _answer(
        self,
        request: web.Request,
        thread: Thread,
        asked: RunInput,
        late: list[Message],
        claim: _Claim,
        principal: Principal,
    ) -> web.StreamResponse | None:
        """The response to a run that answers open questions or calls; None if there is (more) to do for a new turn."""
        adapter = self._adapter
        _, users = asked.tail()
        new = [message for message in users if message["id"] not in thread.accepted]
        try:
            found = collect(adapter.requests, thread, asked, principal)
            if found.uncovered:
                return await self._server.frames(request, reinterrupt(self._bare(asked), found.uncovered))
            if not found.pairs and found.unknown and not new:
                raise nothing_open()
            if not found.pairs and not new and not late:
                return await self._again(request, thread, asked)
            if not found.pairs or (new and not found.fresh):
                return None
            follow = apply(adapter, thread, asked, found, principal)
        except AguiError as error:
            # The documented answer to a wrong or stale resume: the client keeps its interrupts and may try again.
            return await self._server.frames(request, self._failed(asked, error))
        thread.accept(found.message_ids)
        if new:
            text = new_input(asked.messages, thread.accepted)
            steers = not has_media(text.messages) and not is_command(text.text)
            if not steers or not adapter.steer(follow.turn, text.text, text.ids[0]):
                # Nothing of it runs that could take the message: it begins a turn of its own, behind this one.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(follow.turn.done.wait(), self._server.settings.interrupt_wait_seconds)
                return None
            follow.turn.hear(text.messages)
        self._kept(claim, follow.turn, follow.position, asked.run_id)
        run = self._follow(asked, follow)
        return await self._server.stream(request, run.chunks(), run.over)

    async def _again(self, request: web.Request, thread: Thread, asked: RunInput) -> web.StreamResponse | None:
        """A request that brings nothing to a thread that waits is told again for what it waits."""
        turn = thread.current
        if turn is None or not self._adapter.requests.parked(turn):
            return None
        position = turn.parked_at - 1
        segment = turn.begin_run(position, asked.run_id, asked.peer, asked.messages)
        run = Run(turn, self._stream(asked.thread_id, turn, segment), after=position)
        return await self._server.stream(request, run.chunks(), run.over)

    def _follow(self, asked: RunInput, follow: Follow) -> Run:
        base = asked.messages if follow.messages is None else follow.messages
        segment = follow.turn.amend(follow.segment, base=base)
        prepared = Prepared(base, follow.notices, snapshot=follow.messages is not None)
        prepared.state, prepared.tells_state = follow.state, follow.tells_state
        segment = self._begins(follow.turn, segment, asked, prepared)
        merge_ms = self._server.settings.merge_ms
        stream = self._stream(asked.thread_id, follow.turn, segment)
        run = Run(follow.turn, stream, after=follow.position, merge_ms=merge_ms)
        run.first = segment.first
        return run

    # -- streams ------------------------------------------------------------------------------------------------

    def _stream(self, thread_id: str, turn: Turn, segment: Segment, *, whole: bool = False) -> AguiStream:
        """The translator of a run; ``whole``: it is fed the turn from its beginning, whatever the segment's start."""
        return AguiStream(
            thread_id,
            segment.run_id,
            prefix=segment.prefix,
            peer=segment.peer,
            view=self._server.view,
            base=segment.base,
            open_calls=() if whole else turn.open_calls(segment.start),
            state=turn.state if whole else segment.state,
        )

    def _begins(self, turn: Turn, segment: Segment, asked: RunInput, prepared: Prepared) -> Segment:
        """The run with what stands behind its ``RUN_STARTED``, before the turn's own events."""
        stream = AguiStream(asked.thread_id, segment.run_id, peer=asked.peer)
        frames = stream.state_snapshot(prepared.state) if prepared.tells_state else []
        frames += [frame for name, value in prepared.notices for frame in stream.notice(name, value)]
        if prepared.snapshot:
            frames += _snapshots(stream, asked.messages, prepared.base)
        return turn.amend(
            segment,
            first=tuple(frames),
            tells=prepared.snapshot,
            complete=prepared.complete,
            state=prepared.state,
            tells_state=prepared.tells_state,
        )


def _heard(task: asyncio.Task[Run]) -> None:
    """An error that nobody is left to be told of is no defect."""
    _ = task.cancelled() or task.exception()


def _taken() -> AguiError:
    message = "This Idempotency-Key was used for another request; take a new one."
    return AguiError(409, "idempotency_conflict", message)


def _behind(message_id: str) -> AguiError:
    message = (
        f"This thread went on behind what this request knows, with message {message_id}. Fetch the thread's messages "
        "and send the new one behind them; to answer a message again, send the list up to it, under its own id."
    )
    return AguiError(409, "history_behind", message)


def _snapshots(stream: AguiStream, client: Sequence[Message], wanted: Sequence[Message]) -> list[bytes]:
    """What makes a client that holds ``client`` hold ``wanted``, in this order."""
    frames: list[bytes] = []
    for messages in (known_beginning(client, wanted), wanted):
        if messages is not None:
            stream.base = messages
            frames += stream.snapshot()
    return frames


__all__ = ["Message", "Runs", "add_routes"]
