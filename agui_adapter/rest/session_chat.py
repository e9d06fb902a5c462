"""`POST /api/sessions/{id}/chat` and `…/chat/stream`: talking in a session, in the shapes of Hermes's own api_server.

What is taken back first (``truncate_…``, confirmed) makes it the edit or the regenerate of a client that shows the
history. A closed connection stops nothing. Text is never a command here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from ..door import Ask, Door, Reader, new_id
from ..encode import dumps
from ..error_codes import RUN_ERRORS
from ..errors import INTERNAL, AguiError
from ..operation import EVENT_STREAM, operation
from ..replies import reply
from ..session import Thread
from ..stream import TurnFinished
from ..thread_actions import ThreadActions
from ..user_rows import rewind
from . import models as m
from .conversation import parts
from .run_events import RunEvents
from .sessions import GONE, meant, session_of
from .talk import FAILURES, RUN_ID, SESSION_ID, Talked, headers, talked

if TYPE_CHECKING:
    from ..server import Server

logger = logging.getLogger("hermes_agui")

TAG = "sessions"
_HEADERS = {SESSION_ID: "The session.", RUN_ID: "The turn."}
_ERRORS = (*GONE, *RUN_ERRORS, *m.TRUNCATION_ERRORS)
# What api_server calls the same on this route.
_NAMES = {"message.delta": "assistant.delta"}


class SessionChatBody(m.Truncation):
    """A message as text or as OpenAI's content parts (`text`, `image_url`, `input_audio`, `file`)."""

    message: str | list[dict[str, Any]] | None = None
    input: str | list[dict[str, Any]] | None = Field(default=None, description="The same as `message`.")
    system_message: str | None = Field(default=None, max_length=200_000, description="Layered on Hermes's own prompt.")
    instructions: str | None = Field(default=None, max_length=200_000, description="The same as `system_message`.")


class AssistantMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str


class SessionChatReply(Talked):
    """What the message came to. ``survivor_user_row_ids``: where something was taken back first, as `rewind` tells."""

    object: Literal["hermes.session.chat.completion"] = "hermes.session.chat.completion"
    session_id: str
    message: AssistantMessage
    survivor_user_row_ids: list[int | None] | None = None


def add_routes(app: web.Application, server: Server) -> None:
    """Both."""
    routes = SessionChat(server)
    one = "/api/sessions/{session_id}/chat"
    app.router.add_post(one, routes.chat)
    app.router.add_post(f"{one}/stream", routes.stream)


class SessionChat:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._actions = ThreadActions(server)

    async def _begin(self, request: web.Request) -> tuple[Thread, Reader, list[int | None] | None]:
        principal = self._server.principal(request)
        thread = await session_of(self._server, request, principal)
        asked = m.truncation(SessionChatBody, await self._server.json(request))
        content = parts(asked.message if asked.message is not None else asked.input or "", "message")
        if not (content.strip() if isinstance(content, str) else content):
            raise AguiError(422, "invalid_input", "message must not be empty.", members={"param": "message"})
        archive, left = self._server.adapter.archive, None
        cut = await meant(self._actions, archive, thread, asked)

        async def take_back() -> None:
            nonlocal left
            if cut is not None:
                _, left = await rewind(archive, thread, cut)

        ask = Ask(
            messages=[{"id": new_id("user"), "role": "user", "content": content}],
            instructions=asked.system_message if asked.system_message is not None else asked.instructions,
            first=take_back,
        )
        reader = await Door(self._server.adapter).open(principal, thread.thread_id, ask)
        return thread, reader, left

    @operation(TAG, body=SessionChatBody, reply=SessionChatReply, errors=(*_ERRORS, *FAILURES), headers=_HEADERS)
    async def chat(self, request: web.Request) -> web.Response:
        """Say something in a session and get the answer."""
        thread, reader, left = await self._begin(request)
        result = await reader.wait()
        told: dict[str, Any] = {
            "object": "hermes.session.chat.completion",
            "session_id": thread.thread_id,
            "message": {"role": "assistant", "content": result.text},
            **talked(result),
        }
        if left is not None:
            told["survivor_user_row_ids"] = left
        response = reply(told)
        response.headers.update(headers(thread.thread_id, reader))
        return response

    @operation(TAG, body=SessionChatBody, reply=str, media=EVENT_STREAM, errors=_ERRORS, headers=_HEADERS)
    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Say something in a session and see it being answered: api_server's events (`event: assistant.delta`, …).

        It ends with `done`, behind `run.completed`, `run.failed`, `run.cancelled` or, where the turn waits for an
        answer, `run.waiting`.
        """
        self._server.take_stream(request)
        thread, reader, left = await self._begin(request)
        source = self._frames(thread, reader, left)
        return await self._server.stream(request, source, headers=headers(thread.thread_id, reader))

    async def _frames(
        self, thread: Thread, reader: Reader, left: list[int | None] | None
    ) -> AsyncGenerator[bytes, None]:
        turn = reader.turn
        translator = RunEvents(self._server.view, lambda: reader.result().text)
        count = 0

        def frame(name: str, members: dict[str, Any]) -> bytes:
            nonlocal count
            count += 1
            about = {"session_id": thread.thread_id, "run_id": turn.id, "seq": count, "ts": time.time()}
            return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps({**about, **members}))

        began: dict[str, Any] = {"user_message": {"role": "user", "content": turn.inputs[-1]["content"]}}
        if left is not None:
            began["survivor_user_row_ids"] = left
        try:
            yield frame("run.started", began)
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    frames = []
                    for _, event in batch:
                        told = translator.feed(event)
                        if isinstance(event, TurnFinished):
                            said = {"content": reader.result().text, "completed": event.outcome == "success"}
                            frames.append(frame("assistant.completed", said))
                        frames += [frame(_NAMES.get(name, name), members) for name, members in told]
                    if frames:
                        yield b"".join(frames)
        except Exception:  # the headers are out
            logger.exception("agui: a stream failed")
            yield frame("error", {"code": "internal", "message": INTERNAL})
        yield frame("done", {})
