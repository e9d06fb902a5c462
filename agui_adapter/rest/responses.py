"""`/v1/responses`: OpenAI's Responses API. Stateful by `previous_response_id`, streamed, stored, in the background.

A chain of stored responses is one thread, which no list shows; going on from an older link begins another thread with
the conversation up to there. `conversation` or `X-Hermes-Session-Id` names a thread of the caller's instead. On the
gateway's loop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..door import Door, Reader, new_id
from ..errors import AguiError
from ..operation import operation, queried
from ..replies import reply
from ..session import Turn
from .caller import TAKEN, TOLD, TOOLS, Caller, read_caller, read_sight
from .chat import ERRORS, answered, client_tools, new_ask
from .conversation import Conversation, Message, sorted_out, wrong
from .items import kept, messages_of, read_items
from .openai_models import InputItemsQuery, ResponseQuery, ResponsesRequest
from .options import Options, read_options
from .replays import Replays
from .response_store import ResponseRecord, ResponseStore
from .response_stream import ResponseStream
from .seen import Sight
from .wire import frames

if TYPE_CHECKING:
    from ..adapter import AguiAdapter
    from ..server import Server

_SWEEP_SECONDS = 300.0
_ERRORS = (*ERRORS, "previous_response_not_found")
_STOPPED = AguiError(503, "gateway_stopped", "The gateway stopped in the middle of this response. Ask again.")


def add_routes(app: web.Application, server: Server) -> None:
    """Everything about responses."""
    routes = Responses(server)
    app.router.add_post("/v1/responses", routes.post)
    app.router.add_get("/v1/responses/{response_id}", routes.get)
    app.router.add_delete("/v1/responses/{response_id}", routes.delete)
    app.router.add_get("/v1/responses/{response_id}/input_items", routes.input_items)
    app.router.add_post("/v1/responses/{response_id}/cancel", routes.cancel)
    app.on_cleanup.append(routes.close)


@dataclass
class _Live:
    """A response that is being made, or was made lately: enough to tell it again."""

    turn: Turn
    position: int
    base: dict[str, Any]
    sight: Sight
    stream: ResponseStream  # as far as it is told by now, whoever reads it
    made: asyncio.Task[None] | None = None


@dataclass(frozen=True)
class _From:
    """What a response goes on from. ``thread``: the thread to go on with, None for a new one that begins with
    ``history``; ``hidden``: it is there for stored responses alone."""

    thread: str | None = None
    hidden: bool = False
    history: tuple[Message, ...] = ()


class Responses:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._replays: Replays[_Live] = Replays(lambda live: not live.turn.known)
        self._live: dict[str, _Live] = {}
        self._swept = 0.0

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @property
    def _stored(self) -> ResponseStore:
        return ResponseStore(self._adapter.archive.store, most=self._server.settings.max_responses)

    async def close(self, app: web.Application) -> None:
        """The server stops: what is being made has ended with its turn by now, and is saved."""
        tasks = [live.made for live in self._live.values() if live.made is not None and not live.made.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        for task in tasks:
            task.cancel()

    # -- making one -----------------------------------------------------------------------------------------

    @operation("openai", body=ResponsesRequest, reply=dict[str, Any], headers=TOLD, takes=TAKEN, errors=_ERRORS)
    async def post(self, request: web.Request) -> web.StreamResponse:
        """One response, plain, streamed or in the background."""
        settings = self._server.settings
        caller = read_caller(request, self._server.principal(request), settings)
        body = await self._server.json(request)
        asked = read_options(body, allowed=settings.allow_overrides, agent=settings.rest_model)
        if body.get("stream"):
            self._server.take_stream(request)
        caller = _with_conversation(caller, body)
        background, store = bool(body.get("background")), body.get("store") is not False
        if background and not store:
            raise wrong("store", "true for a response in the background: it is read later")
        self._sweep()
        async with self._replays.slot(request, f"{caller.principal.id} {caller.session}") as slot:
            live = slot.known
            if live is None:
                live = await self._begin(caller, body, asked, store=store, background=background)
                slot.keep(live)
        headers = caller.headers(asked.ignored)
        if body.get("stream"):
            stream = ResponseStream(live.base, caller.sight)
            told = frames(Reader(live.turn, live.position), stream)
            return await self._server.stream(request, told, stream.cut, headers)
        response = reply(live.stream.response() if background else await self._whole(live, caller))
        response.headers.update(headers)
        return response

    async def _whole(self, live: _Live, caller: Caller) -> dict[str, Any]:
        stream = ResponseStream(live.base, caller.sight)
        async for _ in frames(Reader(live.turn, live.position), stream):
            pass
        if stream.error is not None:
            raise stream.error
        return stream.response()

    async def _begin(
        self, caller: Caller, body: dict[str, Any], asked: Options, *, store: bool, background: bool
    ) -> _Live:
        response_id = new_id("resp").replace("-", "_")
        most = self._server.settings.max_messages
        items = read_items(body.get("input"), most=most, prefix=response_id.replace("resp", "item"))
        said = sorted_out(messages_of(items))
        instructions = body.get("instructions")
        if instructions is not None and not isinstance(instructions, str):
            raise wrong("instructions", "a text")
        previous = body.get("previous_response_id")
        origin, before = await self._origin(caller, previous, store)
        reader = self._answered(caller, said, before)
        if reader is None:
            reader = await self._open(caller, said, asked, origin, instructions)
        turn, thread = reader.turn, reader.turn.thread
        if background and not thread.passing:
            turn.on_unread = None  # nobody reads it while it is made
        base = _base(response_id, body, asked, thread.thread_id if caller.session else None)
        live = _Live(turn, reader.start, base, caller.sight, ResponseStream(base, caller.sight))
        if store:
            now = time.time()
            key = self._adapter.key_of(thread)
            record = ResponseRecord(
                response_id,
                caller.principal.id,
                thread.chat_id,
                thread.thread_id,
                key,
                thread.hidden,
                turn.id,
                reader.start,
                previous or "",
                now,
                now + self._server.settings.response_ttl_seconds,
                live.stream.response(),
                kept(items),
            )
            stored = self._stored
            # Not waited for: a caller that leaves now must not leave a turn without its response. Whoever looks for it
            # stands behind it at the archive.
            self._adapter.archive.later(lambda: stored.add(record))
            self._live[response_id] = live
            live.made = asyncio.create_task(self._make(response_id, live), name="agui-response")
        return live

    async def _origin(self, caller: Caller, previous: Any, store: bool) -> tuple[_From, ResponseRecord | None]:
        """Where a new turn belongs. Raises AguiError 404 for a response that the caller has not."""
        if previous is None:
            return _From(caller.session), None
        if not isinstance(previous, str):
            raise wrong("previous_response_id", "the id of a response")
        stored, archive = self._stored, self._adapter.archive
        record = await archive.run(lambda: stored.get(caller.principal.id, previous))
        if record is None:
            raise AguiError(
                404,
                "previous_response_not_found",
                "There is no such response; it may have expired. Send the conversation as input.",
                members={"param": "previous_response_id"},
            )
        if caller.session is not None:
            return _From(caller.session), record
        newest = await archive.run(lambda: stored.newest(record.chat_id))
        if store and newest == previous:
            return _From(record.thread_id, record.hidden), record
        chain = await archive.run(lambda: stored.chain(record))
        history = [one for link in chain for one in messages_of([*link.input, *_said(link.body)])]
        return _From(None, history=tuple(one for one in history if one["role"] != "system")), record

    def _answered(self, caller: Caller, said: Conversation, before: ResponseRecord | None) -> Reader | None:
        """The turn that waits for the results that were sent, if any does."""
        if not said.results:
            return None
        if before is not None:
            caller = replace(caller, session=before.thread_id)
        return answered(Door(self._adapter), caller, said)

    async def _open(
        self, caller: Caller, said: Conversation, asked: Options, origin: _From, instructions: str | None
    ) -> Reader:
        if instructions:
            said.instructions = "\n\n".join(text for text in (instructions, said.instructions) if text)
        going_on = replace(caller, session=origin.thread)
        ask = new_ask(going_on, said, asked, await client_tools(self._adapter, asked))
        ask = replace(ask, history=[*origin.history, *ask.history])
        if origin.hidden:  # OpenAI's rule: instructions are not carried over from the response before
            ask = replace(ask, instructions=said.instructions)
        return await Door(self._adapter).open(
            caller.principal, origin.thread, ask, hidden=origin.hidden or (origin.thread is None and asked.store)
        )

    async def _make(self, response_id: str, live: _Live) -> None:
        """Read a stored response to its end, whoever else reads it, and save it."""
        stored, archive = self._stored, self._adapter.archive
        try:
            async for _ in frames(Reader(live.turn, live.position, counts=False), live.stream):
                pass
        except asyncio.CancelledError:
            live.stream.fail(_STOPPED)
            raise
        finally:
            whole = live.stream.response()
            archive.later(lambda: stored.save(response_id, whole))

    def _sweep(self) -> None:
        """Forget what is old: here at once, or it would keep logs that were given up; on disk now and then."""
        for response_id, live in list(self._live.items()):
            if live.stream.done and not live.turn.known:
                del self._live[response_id]
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        stored, archive = self._stored, self._adapter.archive

        def work() -> None:
            archive.put_away_now(stored.prune())

        archive.later(work)

    # -- reading one ----------------------------------------------------------------------------------------

    async def _record(self, request: web.Request) -> ResponseRecord:
        principal, response_id = self._server.principal(request), request.match_info["response_id"]
        stored = self._stored
        record = await self._adapter.archive.run(lambda: stored.get(principal.id, response_id))
        if record is None:
            raise AguiError(404, "response_not_found", "There is no such response; it may have expired.")
        return record

    @operation("openai", query=ResponseQuery, reply=dict[str, Any], errors=("response_not_found", "stream_gone"))
    async def get(self, request: web.Request) -> web.StreamResponse:
        """A stored response as it is now; with ``?stream=true`` its events, behind ``starting_after``."""
        record = await self._record(request)
        live = self._live.get(record.response_id)
        asked = queried(ResponseQuery, request.query)
        if not asked.stream:
            return reply(self._now(record))
        after = asked.starting_after
        if live is None or (after is not None and not live.turn.log.whole):  # in a merged log the numbers are others
            raise AguiError(409, "stream_gone", "Its events are no longer known; read the response without stream.")
        # The numbers of a stream that is gone on with are those of what was seen.
        sight = read_sight(request.headers, self._server.settings) if TOOLS in request.headers else live.sight
        stream = ResponseStream(live.base, sight, after=-1 if after is None else after)
        return await self._server.stream(request, frames(Reader(live.turn, live.position), stream), stream.cut)

    def _now(self, record: ResponseRecord) -> dict[str, Any]:
        live = self._live.get(record.response_id)
        if live is not None:
            return live.stream.response()
        if record.body.get("status") != "in_progress":
            return record.body
        return {**record.body, "status": "failed", "error": {"code": "server_error", "message": _STOPPED.message}}

    @operation("openai", query=InputItemsQuery, reply=dict[str, Any], errors=("response_not_found",))
    async def input_items(self, request: web.Request) -> web.Response:
        """What a response was given, newest first unless ``order=asc``; ``limit`` and ``after`` page."""
        record = await self._record(request)
        asked = queried(InputItemsQuery, request.query)
        items = record.input if asked.order == "asc" else record.input[::-1]
        if asked.after:
            place = next((index for index, item in enumerate(items) if item["id"] == asked.after), None)
            if place is None:
                raise wrong("after", "the id of an item")
            items = items[place + 1 :]
        page = items[: asked.limit]
        ids = [item["id"] for item in page]
        more = len(items) > asked.limit
        first, last = (ids[0], ids[-1]) if ids else (None, None)
        return reply({"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": more})

    @operation("openai", reply=dict[str, Any], errors=("response_not_found",))
    async def cancel(self, request: web.Request) -> web.Response:
        """Stop a response that is being made; of one that is over, nothing changes."""
        record = await self._record(request)
        live = self._live.get(record.response_id)
        if live is not None and not live.turn.done.is_set() and not live.stream.done:
            await Door(self._adapter).stop(live.turn)
            if live.made is not None:
                await asyncio.wait([live.made], timeout=5)
        return reply(self._now(record))

    @operation("openai", reply=dict[str, Any], errors=("response_not_found",))
    async def delete(self, request: web.Request) -> web.Response:
        """Forget a response; its thread goes with the last one of a chain."""
        record = await self._record(request)
        live = self._live.pop(record.response_id, None)
        if live is not None and not live.turn.done.is_set() and not live.stream.done:
            await Door(self._adapter).stop(live.turn)
        stored, archive = self._stored, self._adapter.archive

        def work() -> None:
            archive.put_away_now(stored.delete(record))

        await archive.run(work)
        return reply({"id": record.response_id, "object": "response", "deleted": True})


def _with_conversation(caller: Caller, body: dict[str, Any]) -> Caller:
    """The thread that ``conversation`` names. Raises AguiError 422."""
    given = body.get("conversation")
    if given is None:
        return caller
    name = given.get("id") if isinstance(given, dict) else given
    if not isinstance(name, str) or not name.strip() or len(name) > 1024:
        raise wrong("conversation", "the id of a thread")
    if body.get("previous_response_id") is not None:
        raise AguiError(400, "invalid_input", "conversation and previous_response_id exclude each other.")
    return replace(caller, session=name)


def _said(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The output of a response as items that can be read again."""
    return [item for item in body.get("output") or [] if item["type"] in ("message", "function_call")]


def _base(response_id: str, body: dict[str, Any], asked: Options, conversation: str | None) -> dict[str, Any]:
    """What a response says of its request."""
    tools = body.get("tools")
    text = body.get("text")
    choice = body.get("tool_choice")
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": bool(body.get("background")),
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": asked.overrides.max_tokens,
        "metadata": body.get("metadata") if isinstance(body.get("metadata"), dict) else {},
        "model": asked.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "conversation": {"id": conversation} if conversation else None,
        "reasoning": {"effort": asked.overrides.reasoning_effort, "summary": None},
        "store": asked.store,
        "temperature": asked.overrides.temperature,
        "text": text if isinstance(text, dict) else {"format": {"type": "text"}},
        "tool_choice": choice if isinstance(choice, str | dict) else "auto",
        "tools": tools if isinstance(tools, list) else [],
        "top_p": asked.overrides.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.get("user") if isinstance(body.get("user"), str) else None,
    }
