"""The aiohttp application: middlewares, the server-sent-events writer, the AG-UI routes. On the gateway's loop.

Routes stay thin: read and check the request, get a turn from ``run.open_turn``, write what ``Run`` gives. Every error
leaves through ``_errors`` as a problem document (RFC 9457): a code and a sentence, never a stack, path or secret.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from . import __version__, action_routes, capabilities, file_routes, observe_routes, run_routes, thread_routes
from .auth import check_host, check_origin, principal_of
from .config import Settings
from .encode import HEARTBEAT
from .errors import INTERNAL, AguiError, bad_request
from .events import View
from .problems import error_response
from .replies import reply
from .session import Principal, Scope

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
        self.adapter = adapter
        self.settings = settings
        self._runner: web.AppRunner | None = None
        self._streams: set[_Stream] = set()
        self._beat: asyncio.Task[None] | None = None
        self.view = View(settings.reasoning, settings.tool_output, settings.steps)
        self.port = settings.port

    async def start(self) -> None:
        """Bind and serve. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=self.settings.max_body_bytes, middlewares=[self._errors, self._admission])
        app.on_response_prepare.append(self._headers)
        run_routes.add_routes(app, self)
        capabilities.add_routes(app, self)
        thread_routes.add_routes(app, self)
        action_routes.add_routes(app, self)
        file_routes.add_routes(app, self)
        observe_routes.add_routes(app, self)
        app.router.add_get("/health", self._health)
        # handler_cancellation: a reader leaves when its socket does.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.settings.host, self.settings.port)
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
            return error_response(error, request.path)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = error_response(
                AguiError(405, "method_not_allowed", f"This address takes {allowed}."), request.path
            )
            response.headers["Allow"] = allowed
            return response
        except web.HTTPException as error:
            return error_response(self._told(error), request.path)
        except web.RequestPayloadError:
            return error_response(bad_request("The body is not what its headers say (length, encoding)."), request.path)
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("agui: a request failed")
            return error_response(AguiError(500, "internal", INTERNAL), request.path)

    def _told(self, error: web.HTTPException) -> AguiError:
        """aiohttp's own errors."""
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            limit = self.settings.max_body_bytes
            return AguiError(413, "body_too_large", f"The body is larger than {limit} bytes (agui.max_body_bytes).")
        if isinstance(error, web.HTTPNotFound):
            return AguiError(404, "not_found", "There is nothing at this address.")
        return AguiError(error.status, "bad_request", error.reason)

    @web.middleware
    async def _admission(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        check_host(request.headers.get("Host"), self.settings)
        check_origin(request.headers.get("Origin"), request.headers.get("Host"), self.settings)
        if request.method == "OPTIONS":  # not a route: it would answer for every address that is none
            return self._preflight()
        return await handler(request)

    async def _headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """On every response, streams and errors too: security and cross-origin headers."""
        for name, value in _SECURITY.items():
            response.headers.setdefault(name, value)
        origin = request.headers.get("Origin", "")
        if self.settings.cors_origins:
            response.headers["Vary"] = "Origin"
        if origin.lower() in self.settings.cors_origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = "Retry-After"

    def _preflight(self) -> web.Response:
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
        ready = self.adapter.ready
        body = {"status": "ok" if ready else "starting", "version": __version__}
        return reply(body, 200 if ready else 503)

    # -- the writer -----------------------------------------------------------------------------------------

    async def stream(self, request: web.Request, source: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        """Write a stream of frames until its end, or until the client is gone: then the turn goes on without it."""
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        stream = _Stream(response)
        self._streams.add(stream)
        try:
            async with aclosing(source) as chunks:  # a reader that goes is no reader from that moment on
                async for chunk in chunks:
                    stream.wrote = time.monotonic()
                    await response.write(chunk)
            await response.write_eof()
        except ConnectionResetError:
            pass  # its log keeps what the turn says
        except Exception:  # the headers are out: a problem document would be written into the stream
            logger.exception("agui: a stream failed")
            if request.transport is not None:
                request.transport.close()
        finally:
            self._streams.discard(stream)
        return response

    async def frames(self, request: web.Request, frames: list[bytes]) -> web.StreamResponse:
        """A stream that is whole already."""
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        await response.write(b"".join(frames))
        await response.write_eof()
        return response

    # -- for routes -----------------------------------------------------------------------------------------

    def principal(self, request: web.Request, scope: Scope | None = None) -> Principal:
        """Who calls, if its token is good for ``scope``: without one for reading, or for running what is no GET.

        Raises AguiError 401, and 403 where the scope is missing.
        """
        principal = principal_of(request.headers.get("Authorization"), self.settings)
        need: Scope = scope or ("read" if request.method in ("GET", "HEAD") else "run")
        if not principal.may(need):
            raise AguiError(403, "scope_missing", f"This token lacks the scope `{need}`.")
        return principal

    async def json(self, request: web.Request, *, optional: bool = False) -> dict[str, Any]:
        """The body as a JSON object; empty where there is none and it is ``optional``. Raises AguiError 415 or 400."""
        if optional and not request.can_read_body:
            return {}
        if "application/json" not in request.headers.get("Content-Type", "").lower():
            raise AguiError(415, "not_json", "Send application/json.")
        try:
            data = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise bad_request(f"The body is not valid JSON: {error}.", "invalid_json") from None
        if not isinstance(data, dict):
            raise bad_request("The body must be a JSON object.", "invalid_input")
        return data

    async def _heartbeat(self) -> None:
        """A comment to every stream that was silent too long: proxies cut quiet connections."""
        period = self.settings.heartbeat_seconds
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
