"""The aiohttp application: middlewares, the server-sent-events writer, the AG-UI routes. On the gateway's loop.

Routes stay thin: read and check the request, get a turn from ``run.open_turn``, write what ``Run`` gives. Every error
leaves through ``_errors`` as a problem document (RFC 9457): a code and a sentence, never a stack, path or secret.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from . import __version__
from .answers import (
    Answers,
    Follow,
    apply,
    collect,
    late_text,
    nothing_open,
    reinterrupt,
    tool_answer,
)
from .auth import check_host, check_origin, principal_of
from .config import Settings
from .encode import HEARTBEAT, dumps
from .errors import AguiError, bad_request
from .events import AguiStream, View
from .inputs import NewInput, RunInput, new_input, parse
from .interrupts import describe
from .requests import Answer, Pending, read_answer
from .run import Run, end_turn, open_turn, wait_ready
from .session import Thread, Turn
from .tools import read_tools

if TYPE_CHECKING:
    from .adapter import AguiAdapter

logger = logging.getLogger("hermes_agui")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_SSE = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # or nginx holds the stream back
}
_CORS_HEADERS = "Authorization, Content-Type, Last-Event-ID, Idempotency-Key"


class Server:
    """Owns the listening socket and the open streams."""

    def __init__(self, adapter: AguiAdapter, settings: Settings) -> None:
        self._adapter = adapter
        self._settings = settings
        self._runner: web.AppRunner | None = None
        self._streams: set[_Stream] = set()
        self._beat: asyncio.Task[None] | None = None
        self._view = View(settings.reasoning, settings.tool_output)
        self.port = settings.port

    async def start(self) -> None:
        """Bind and serve. Raises OSError when the port is taken."""
        app = web.Application(
            client_max_size=self._settings.max_body_bytes, middlewares=[self._errors, self._admission]
        )
        app.on_response_prepare.append(self._headers)
        app.router.add_post("/agui", self._agui)
        app.router.add_get("/agui/threads/{thread_id}", self._get_thread)
        app.router.add_post("/agui/threads/{thread_id}/stop", self._stop)
        app.router.add_post("/agui/threads/{thread_id}/requests/{request_id}", self._answer_request)
        app.router.add_get("/health", self._health)
        app.router.add_route("OPTIONS", "/{path:.*}", self._preflight)
        # handler_cancellation: a reader leaves when its socket does.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.port)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            self._runner = None
            raise
        for address in self._runner.addresses:
            self.port = address[1]
        self._beat = asyncio.create_task(self._heartbeat(), name="agui-heartbeat")

    async def stop(self) -> None:
        """Free the port. Streams have had their end by now; what is left is closed after two seconds."""
        beat, self._beat = self._beat, None
        if beat is not None:
            beat.cancel()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    # -- middlewares ----------------------------------------------------------------------------------------

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except AguiError as error:
            return _problem(error)
        except web.HTTPRequestEntityTooLarge:
            limit = self._settings.max_body_bytes
            return _problem(
                AguiError(413, "body_too_large", f"The body is larger than {limit} bytes (agui.max_body_bytes).")
            )
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = _problem(AguiError(405, "method_not_allowed", f"This address takes {allowed}."))
            response.headers["Allow"] = allowed
            return response
        except web.HTTPNotFound:
            return _problem(AguiError(404, "not_found", "There is nothing at this address."))
        except web.HTTPException as error:
            return _problem(AguiError(error.status, "bad_request", error.reason))
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("agui: a request failed")
            return _problem(AguiError(500, "internal", "Something failed here; the operator's log says what."))

    @web.middleware
    async def _admission(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        check_host(request.headers.get("Host"), self._settings)
        check_origin(request.headers.get("Origin"), request.headers.get("Host"), self._settings)
        return await handler(request)

    async def _headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """On every response, streams and errors too: security and cross-origin headers."""
        for name, value in _SECURITY.items():
            response.headers.setdefault(name, value)
        origin = request.headers.get("Origin", "")
        if self._settings.cors_origins:
            response.headers["Vary"] = "Origin"
        if origin.lower() in self._settings.cors_origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = "Retry-After"

    async def _preflight(self, request: web.Request) -> web.Response:
        return web.Response(
            status=204,
            headers={
                "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE, OPTIONS",
                "Access-Control-Allow-Headers": _CORS_HEADERS,
                "Access-Control-Max-Age": "600",
            },
        )

    # -- routes ---------------------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.Response:
        """Liveness and nothing else: no secrets, no counts."""
        ready = self._adapter.ready
        body = {"status": "ok" if ready else "starting", "version": __version__}
        return web.Response(body=dumps(body), content_type="application/json", status=200 if ready else 503)

    async def _agui(self, request: web.Request) -> web.StreamResponse:
        """One run: RunAgentInput in, AG-UI events out."""
        adapter, settings = self._adapter, self._settings
        principal = principal_of(request.headers.get("Authorization"), settings)
        if "application/json" not in request.headers.get("Content-Type", "").lower():
            raise AguiError(415, "not_json", "Send the run as application/json.")
        asked = parse(await request.read(), max_messages=settings.max_messages)
        await wait_ready(adapter, settings.start_wait_seconds)
        tools = read_tools(asked.tools, adapter.server_tools())
        thread = adapter.threads.get(principal, asked.thread_id)
        answering = await self._answer(request, thread, asked)
        if answering is not None:
            return answering
        new = self._new_input(thread, asked)
        position = 0
        clarify = self._open_question(thread)
        if clarify is not None:
            # A message typed while the agent asks is the answer, as on every platform of the gateway.
            follow = apply(adapter, thread, asked, Answers([(clarify, Answer(text=new.text))]))
            thread.accept(new.ids)
            return await self._write(request, self._follow(asked, follow))
        turn, position = await open_turn(
            adapter,
            thread,
            new.text,
            context=asked.context,
            ids=new.ids,
            skipped=new.skipped,
            client_tools=tools,
        )
        run = Run(turn, self._stream(asked, turn, position), after=position, merge_ms=settings.merge_ms)
        if position == 0:
            turn.readers += 1  # until the reader itself counts: a turn about to be read is not unread
            try:
                await adapter.submit(turn)
            finally:
                turn.readers -= 1
        return await self._write(request, run)

    def _new_input(self, thread: Thread, asked: RunInput) -> NewInput:
        """New user messages, or results of client tools that came when nobody waited for them any more."""
        tools, users = asked.tail()
        late = [message for message in tools if message["id"] not in thread.accepted]
        if late and not users:
            return NewInput(late_text(asked, late), [message["id"] for message in late])
        return new_input(asked.messages, thread.accepted)

    def _open_question(self, thread: Thread) -> Pending | None:
        turn = thread.current
        if turn is None or self._settings.parked == "refuse":
            return None
        waiting = [p for p in self._adapter.requests.of_turn(turn, True) if p.request.kind == "clarify"]
        return waiting[0] if waiting else None

    async def _answer(self, request: web.Request, thread: Thread, asked: RunInput) -> web.StreamResponse | None:
        """The response to a run that answers open questions or calls; None if it answers none."""
        adapter = self._adapter
        _, users = asked.tail()
        new = [message for message in users if message["id"] not in thread.accepted]
        try:
            found = collect(adapter.requests, thread, asked)
            if found.uncovered:
                return await self._write_frames(request, reinterrupt(self._stream(asked), found.uncovered))
            if not found.pairs and found.unknown and not new:
                raise nothing_open(found)
            if not found.pairs or (new and not found.fresh):
                return None
            follow = apply(adapter, thread, asked, found)
        except AguiError as error:
            # The documented answer to a wrong or stale resume: the client keeps its interrupts and may try again.
            stream = self._stream(asked)
            return await self._write_frames(request, [*stream.start(), *stream.fail(error.code, error.message)])
        if new:
            text = new_input(asked.messages, thread.accepted)
            if adapter.steer(follow.turn, text.text):
                thread.accept(text.ids)
            else:
                follow.notices.append(("not_taken", {"messageIds": text.ids}))
        return await self._write(request, self._follow(asked, follow))

    def _stream(self, asked: RunInput, turn: Turn | None = None, position: int = 0) -> AguiStream:
        return AguiStream(
            asked.thread_id,
            asked.run_id,
            prefix=f"{turn.id}-{position}" if turn is not None and position else turn.id if turn is not None else "",
            peer=asked.peer,
            view=self._view,
            base=asked.messages,
            open_calls=turn.open_calls(position) if turn is not None else (),
        )

    def _follow(self, asked: RunInput, follow: Follow) -> Run:
        if follow.messages is not None:
            asked = replace(asked, messages=follow.messages)
        stream = self._stream(asked, follow.turn, follow.position)
        first = [frame for name, value in follow.notices for frame in stream.notice(name, value)]
        if follow.messages is not None:
            first += stream.snapshot()
        merge_ms = self._settings.merge_ms
        return Run(follow.turn, stream, after=follow.position, merge_ms=merge_ms, first=b"".join(first))

    # -- a thread -------------------------------------------------------------------------------------------

    def _thread(self, request: web.Request) -> Thread:
        principal = principal_of(request.headers.get("Authorization"), self._settings)
        thread = self._adapter.threads.find(principal, request.match_info["thread_id"])
        if thread is None:
            raise AguiError(404, "no_such_thread", "There is no such thread.")
        return thread

    async def _get_thread(self, request: web.Request) -> web.Response:
        """Is a turn running or waiting, and for what."""
        thread = self._thread(request)
        requests = self._adapter.requests
        turn = thread.current
        status = "idle" if turn is None else "parked" if requests.parked(turn) else "running"
        turns = list(thread.turns.values())
        waiting = [asked for one in turns for asked in requests.open_requests(one)]
        body = {
            "threadId": thread.thread_id,
            "status": status,
            "turn": {"id": turn.id, "lastEventId": f"{turn.id}.{turn.log.last}"} if turn is not None else None,
            "requests": [describe(asked) for asked in waiting],
        }
        return web.Response(body=dumps(body), content_type="application/json")

    async def _answer_request(self, request: web.Request) -> web.Response:
        """Answer one open request; 404 unknown, 409 no longer open, 422 a payload that is no answer."""
        thread = self._thread(request)
        pending = self._adapter.requests.find(list(thread.turns.values()), request.match_info["request_id"])
        if pending is None:
            raise AguiError(404, "no_such_request", "There is no such request on this thread.")
        payload = await self._json(request)
        if pending.request.kind == "client_tool":
            content, error = payload.get("content", ""), payload.get("error", "")
            if not isinstance(error, str) or not isinstance(content, (str, list)) or not (content or error):
                raise AguiError(422, "invalid_answer", "Answer with content (a text or parts) or error (a text).")
            answer = tool_answer({"content": content, "error": error})
        else:
            answer = read_answer(pending.request, payload, cancelled=payload.get("status") == "cancelled")
        counted = self._adapter.requests.answer(pending, answer, thread.principal.id)
        self._adapter.requests.still_parked(pending.turn)
        body = {"requestId": pending.request.id, "status": "answered" if counted else "repeated"}
        return web.Response(body=dumps(body), content_type="application/json")

    async def _stop(self, request: web.Request) -> web.Response:
        """Stop the thread's turn at once, running or parked. Idempotent."""
        thread = self._thread(request)
        turn = thread.current
        if turn is not None:
            await end_turn(self._adapter, turn, self._settings.interrupt_wait_seconds, "The user stopped the turn.")
        body = {"threadId": thread.thread_id, "stopped": turn is not None}
        return web.Response(body=dumps(body), content_type="application/json")

    async def _json(self, request: web.Request) -> dict[str, Any]:
        if "application/json" not in request.headers.get("Content-Type", "").lower():
            raise AguiError(415, "not_json", "Send application/json.")
        try:
            data = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise bad_request(f"The body is not valid JSON: {error}.", "invalid_json") from None
        if not isinstance(data, dict):
            raise bad_request("The body must be a JSON object.", "invalid_input")
        return data

    # -- the writer -----------------------------------------------------------------------------------------

    async def _write(self, request: web.Request, run: Run) -> web.StreamResponse:
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        stream = _Stream(response)
        self._streams.add(stream)
        try:
            async for chunk in run.chunks():
                stream.wrote = time.monotonic()
                await response.write(chunk)
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client is gone; the turn goes on, and its log keeps what it says
        finally:
            self._streams.discard(stream)
        return response

    async def _write_frames(self, request: web.Request, frames: list[bytes]) -> web.StreamResponse:
        """A stream that is whole already."""
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        await response.write(b"".join(frames))
        await response.write_eof()
        return response

    async def _heartbeat(self) -> None:
        """A comment to every stream that was silent too long: proxies cut quiet connections."""
        period = self._settings.heartbeat_seconds
        while True:
            await asyncio.sleep(period / 4)
            now = time.monotonic()
            for stream in list(self._streams):
                if now - stream.wrote >= period * 0.75:
                    stream.wrote = now
                    try:
                        await asyncio.wait_for(stream.response.write(HEARTBEAT), 0.05)
                    except (TimeoutError, ConnectionResetError, RuntimeError):
                        continue  # a full or closed socket needs no heartbeat


class _Stream:
    __slots__ = ("response", "wrote")

    def __init__(self, response: web.StreamResponse) -> None:
        self.response = response
        self.wrote = time.monotonic()


def _problem(error: AguiError) -> web.Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": error.code.replace("_", " "),
        "status": error.status,
        "code": error.code,
        "detail": error.message,
    }
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(status=error.status, body=dumps(body), content_type="application/problem+json", headers=headers)
