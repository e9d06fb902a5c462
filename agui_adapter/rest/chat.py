"""`POST /v1/chat/completions`: OpenAI's Chat Completions, plain and streamed.

Stateless unless a session is named: the messages are the conversation, on a thread that goes with its answer
(``door``). A request whose newest messages are results of client tools goes on with the turn that waits for them, found
by caller and call id. Text is never a command here. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..answers import tool_answer
from ..door import Ask, Door, Reader, new_id
from ..errors import AguiError, bad_request
from ..inputs import has_media
from ..operation import operation
from ..reconcile import text_of
from ..replies import reply
from ..session import Turn
from ..tools import ClientTool, read_tools
from .caller import TAKEN, TOLD, Caller, read_caller
from .chunks import ChatStream, completion, completion_id
from .conversation import Conversation, read_messages
from .openai_models import ChatRequest
from .options import Options, read_options
from .replays import Replays
from .wire import frames

if TYPE_CHECKING:
    from ..adapter import AguiAdapter
    from ..server import Server

ERRORS = (
    *("no_input", "missing_tool_result", "thread_busy", "thread_waiting", "turn_waits", "idempotency_conflict"),
    *("invalid_tool", "tool_name_taken", "too_many_tools", "too_many_messages", "too_many_items", "format_too_large"),
    *(
        "too_many_turns",
        "too_many_queued",
        "invalid_session_id",
        "invalid_session_key",
        "request_answered",
        "turn_failed",
    ),
)
GO_ON = "[The results of the tool calls above have come. Go on from them.]"


def add_routes(app: web.Application, server: Server) -> None:
    """The one route."""
    app.router.add_post("/v1/chat/completions", Completions(server).post)


@dataclass(frozen=True)
class _Kept:
    """What a request began: enough to answer it again."""

    turn: Turn
    position: int
    name: str
    created: int


class Completions:
    """The route and what it needs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._replays: Replays[_Kept] = Replays(lambda kept: not kept.turn.known)

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @operation("openai", body=ChatRequest, reply=dict[str, Any], headers=TOLD, takes=TAKEN, errors=ERRORS)
    async def post(self, request: web.Request) -> web.StreamResponse:
        """One answer. ``X-Hermes-Session-Id`` goes on with a thread of the caller's."""
        settings = self._server.settings
        caller = read_caller(request, self._server.principal(request), settings)
        body = await self._server.json(request)
        asked = read_options(body, allowed=settings.allow_overrides, agent=settings.rest_model)
        if body.get("stream"):
            self._server.take_stream(request)
        async with self._replays.slot(request, f"{caller.principal.id} {caller.session}") as slot:
            kept = slot.known
            if kept is None:
                reader = await self._begin(caller, body, asked)
                kept = _Kept(reader.turn, reader.start, completion_id(), int(time.time()))
                slot.keep(kept)
        reader = Reader(kept.turn, kept.position)
        headers = caller.headers(asked.ignored)
        if body.get("stream"):
            options = body.get("stream_options")
            usage = bool(options.get("include_usage")) if isinstance(options, dict) else False
            stream = ChatStream(kept.name, asked.model, kept.created, caller.sight, usage=usage)
            return await self._server.stream(request, frames(reader, stream), stream.cut, headers)
        result = await reader.wait()
        response = reply(completion(kept.name, asked.model, kept.created, result, caller.sight))
        response.headers.update(headers)
        return response

    async def _begin(self, caller: Caller, body: dict[str, Any], asked: Options) -> Reader:
        """The turn that answers: the one that waits for the results that were sent, else a new one."""
        most = self._server.settings.max_messages
        said = read_messages(body.get("messages"), most=most, prefix=new_id("chat"))
        door = Door(self._adapter)
        going = answered(door, caller, said) if said.results else None
        if going is not None:
            return going
        tools = await client_tools(self._adapter, asked)
        return await door.open(caller.principal, caller.session, new_ask(caller, said, asked, tools))


def answered(door: Door, caller: Caller, said: Conversation) -> Reader | None:
    """The turn that waits for these results, which it is given; None where none does (any more).

    Raises AguiError 400 where one of its open calls is left out.
    """
    found = []
    for message in said.results:
        pending = door.call(caller.principal, message["toolCallId"])
        if pending is None or pending.closed in ("expired", "cancelled"):
            continue
        if caller.session is None or pending.turn.thread.thread_id == caller.session:
            found.append((pending, tool_answer(message)))
    if not found:
        return None
    turn = found[-1][0].turn
    found = [pair for pair in found if pair[0].turn is turn]
    given = {pending.request.call_id for pending, _ in found}
    waiting = [one.call_id for one in door.open_requests(turn) if one.kind == "client_tool"]
    missing = [call_id for call_id in waiting if call_id not in given]
    if missing:
        raise AguiError(
            400, "missing_tool_result", f"Every call needs a tool message; there is none for {', '.join(missing)}."
        )
    if said.new and any(pending.closed is None for pending, _ in found):
        # Before the results, which let the worker go on: the model gets it together with them.
        if has_media(said.new) or not door.steer(turn, "\n\n".join(text_of(one["content"]) for one in said.new)):
            raise AguiError(409, "turn_waits", "Send the results alone, and this message after the answer to them.")
        turn.hear(said.new)
    return door.answer(found, caller.principal)


def new_ask(caller: Caller, said: Conversation, asked: Options, tools: tuple[ClientTool, ...]) -> Ask:
    """A new turn's input. Raises AguiError 400 where there is none."""
    history, new = said.history, said.new
    if said.results and caller.session is not None:  # the thread has ended these calls with results of its own
        new = [*map(_late, said.results), *new]
    elif not new and said.results:  # results that nobody waits for: they are part of the conversation
        new = [{"id": new_id("go-on"), "role": "user", "content": GO_ON}]
    if said.results:
        history = [*history, *said.results]
    if not any(text_of(one["content"]).strip() for one in new) and not has_media(new):
        raise bad_request("There is no user message with content at the end of messages.", "no_input")
    return Ask(
        messages=new,
        history=history,
        instructions=said.instructions if said.instructions or caller.session is None else None,
        context=f"Instruction of the application the user sees: {said.late}" if said.late else "",
        overrides=asked.overrides,
        tools=tools,
        one_shot=True,
        memory=caller.memory,
    )


def _late(message: dict[str, Any]) -> dict[str, Any]:
    """A result that came when nobody waited for it, as a thread is told it."""
    text = f"[Late result of a client tool, call {message['toolCallId']}]\n{text_of(message['content'])}"
    return {"id": f"{message['id']}-late", "role": "user", "content": text}


async def client_tools(adapter: AguiAdapter, asked: Options) -> tuple[ClientTool, ...]:
    """The client's tools, checked against the agent's own. Raises AguiError 422."""
    # On a thread: without the warm-up it is this that imports Hermes's tools.
    taken = await asyncio.to_thread(adapter.server_tools) if asked.tools else frozenset()
    return read_tools(asked.tools, taken)
