"""`POST /chat` and `/chat/stream`: the shortest request that works, ``{"message": …}``.

Complete in itself unless a session is named: on a thread that goes with its answer, where nobody can be asked. The
stream is the core's own vocabulary (``vocabulary.py``), an event a line; who wants a standard takes AG-UI.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web
from pydantic import Field

from ..door import Ask, Door, Reader, new_id
from ..error_codes import RUN_ERRORS
from ..operation import EVENT_STREAM, Body, operation, parsed
from ..replies import reply
from .models import Id, Text
from .talk import FAILURES, RUN_ID, SESSION_ID, Talked, events, headers, talked

if TYPE_CHECKING:
    from ..server import Server

logger = logging.getLogger("hermes_agui")

TAG = "chat"
_HEADERS = {SESSION_ID: "The session, where one was named.", RUN_ID: "The turn."}


class Said(Body):
    """What was said before."""

    role: Literal["user", "assistant"]
    content: str


class ChatBody(Body):
    """A message, and if it is wished what was said before or the session to go on with."""

    message: Text
    history: list[Said] = Field(default_factory=list, max_length=5000)
    session_id: Id | None = Field(default=None, description="A thread of the caller's; made where it is new.")
    instructions: str | None = Field(default=None, max_length=200_000, description="Layered on Hermes's own prompt.")


class ChatReply(Talked):
    """The answer."""

    response: str
    session_id: str | None


def add_routes(app: web.Application, server: Server) -> None:
    """Both."""
    routes = SimpleChat(server)
    app.router.add_post("/chat", routes.chat)
    app.router.add_post("/chat/stream", routes.stream)


class SimpleChat:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def _begin(self, request: web.Request) -> tuple[ChatBody, Reader]:
        principal = self._server.principal(request)
        asked = parsed(ChatBody, await self._server.json(request))
        history = [
            {"id": new_id("chat"), "role": one.role, "content": one.content} for one in asked.history if one.content
        ]
        ask = Ask(asked.message, history=history, instructions=asked.instructions, one_shot=asked.session_id is None)
        return asked, await Door(self._server.adapter).open(principal, asked.session_id, ask)

    @operation(TAG, body=ChatBody, reply=ChatReply, errors=(*RUN_ERRORS, *FAILURES), headers=_HEADERS)
    async def chat(self, request: web.Request) -> web.Response:
        """Say something and get the answer."""
        asked, reader = await self._begin(request)
        result = await reader.wait()
        told: dict[str, Any] = {"response": result.text, "session_id": asked.session_id, **talked(result)}
        response = reply(told)
        response.headers.update(headers(asked.session_id or "", reader))
        return response

    @operation(TAG, body=ChatBody, reply=str, media=EVENT_STREAM, errors=RUN_ERRORS, headers=_HEADERS)
    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Say something and see what happens: `data: {"event": KIND, …}`, one event a line, in the core's own words.

        It ends with `TurnFinished`, or with `TurnParked` where the turn waits for what its requests name.
        """
        self._server.take_stream(request)
        asked, reader = await self._begin(request)
        source = events(reader, self._server.view, lambda: logger.exception("agui: a stream failed"))
        return await self._server.stream(request, source, headers=headers(asked.session_id or "", reader))
