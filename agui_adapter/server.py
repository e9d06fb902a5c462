"""The aiohttp application: middlewares, the server-sent-events writer, the AG-UI routes. On the gateway's loop.

Routes stay thin: read and check the request, get a turn from ``run.open_turn``, write what ``Run`` gives. Every error
leaves through ``_errors`` as a problem document (RFC 9457): a code and a sentence, never a stack, path or secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from . import (
    action_routes,
    capabilities,
    erase_routes,
    file_routes,
    observe_routes,
    openapi,
    operator_routes,
    run_routes,
    thread_routes,
    web_routes,
)
from .access_log import log_request, wire_logger
from .auth import check_address, check_host, check_origin, is_json
from .config import Settings
from .encode import HEARTBEAT
from .errors import INTERNAL, AguiError, bad_request
from .events import View
from .identity import Identity
from .limits import Limits, check_depth
from .mcp_door import bridge as mcp_bridge
from .metrics import Gauges, Metrics, available
from .problems import error_response
from .rest import catalog, chat, responses, runs, session_chat, sessions, simple_chat
from .session import Principal, Scope
from .tls import tls_context
from .unpack import unpacked

if TYPE_CHECKING:
    from .adapter import AguiAdapter

logger = logging.getLogger("hermes_agui")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
}
_SSE = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # or nginx holds the stream back
}
_KEEPALIVE_SECONDS = 75  # of a connection without a request: longer than reverse proxies keep theirs
_PRINCIPAL = web.RequestKey("agui_principal", Principal)  # who sent a request
_CALLER: web.RequestKey[Principal | AguiError] = web.RequestKey("agui_caller", object)  # type: ignore[arg-type]
_CODE = web.RequestKey("agui_code", str)  # of the error that answers it
_STREAM = web.RequestKey("agui_stream", str)  # whose place for a stream the request holds
_EXPOSED = (
    "Retry-After, Location, Mcp-Session-Id, X-Hermes-Session-Id, X-Hermes-Run-Id, X-Hermes-Session-Key, "
    "X-Hermes-Ignored"
)
_LEFT = 499  # the client left first
_NO_HEADERS: Mapping[str, str] = {}
_CORS_HEADERS = (
    "Authorization, Content-Type, Last-Event-ID, Idempotency-Key, "
    "Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name, "
    "X-Hermes-Session-Id, X-Session-ID, X-Hermes-Session-Key, X-Hermes-Tools, "
    # What OpenAI's SDK for browsers sends of itself.
    "OpenAI-Organization, OpenAI-Project, OpenAI-Beta, X-Stainless-Arch, X-Stainless-Lang, X-Stainless-OS, "
    "X-Stainless-Package-Version, X-Stainless-Runtime, X-Stainless-Runtime-Version, X-Stainless-Retry-Count, "
    "X-Stainless-Timeout, X-Stainless-Helper-Method, X-Stainless-Poll-Helper, X-Stainless-Custom-Poll-Interval"
)


class Server:
    """Owns the listening socket and the open streams. Raises ConfigError for settings that cannot be served."""

    def __init__(self, adapter: AguiAdapter, settings: Settings) -> None:
        self.adapter = adapter
        self.settings = settings
        self._runner: web.AppRunner | None = None
        self._streams: set[_Stream] = set()
        self._beat: asyncio.Task[None] | None = None
        self.limits = Limits(settings, adapter.live_turns if adapter is not None else tuple)
        self.metrics = Metrics(self._gauges()) if settings.metrics != "off" and available() else None
        self.identity = Identity(settings, lambda: getattr(getattr(adapter, "archive", None), "store", None))
        self._tls = tls_context(settings)
        self.view = View(settings.reasoning, settings.tool_output, settings.steps)
        self.port = settings.port

    def application(self) -> web.Application:
        """All routes, with what stands before them."""
        app = web.Application(
            client_max_size=self.settings.max_body_bytes, middlewares=[self._watch, self._errors, self._admission]
        )
        app.on_response_prepare.append(self._headers)
        run_routes.add_routes(app, self)
        capabilities.add_routes(app, self)
        thread_routes.add_routes(app, self)
        action_routes.add_routes(app, self)
        file_routes.add_routes(app, self)
        erase_routes.add_routes(app, self)
        observe_routes.add_routes(app, self)
        operator_routes.add_routes(app, self)
        mcp_bridge.add_routes(app, self)
        catalog.add_routes(app, self)
        chat.add_routes(app, self)
        responses.add_routes(app, self)
        runs.add_routes(app, self)
        sessions.add_routes(app, self)
        session_chat.add_routes(app, self)
        simple_chat.add_routes(app, self)
        openapi.add_routes(app)
        web_routes.add_routes(app, self)
        return app

    async def start(self) -> None:
        """Bind and serve. Raises OSError when the port is taken."""
        app = self.application()
        # handler_cancellation: a reader leaves when its socket does.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=2.0,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            # aiohttp would unpack on the loop whatever comes, from anybody, for any address; ``body`` does it instead.
            auto_decompress=False,
            logger=wire_logger(),
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.settings.host, self.settings.port, ssl_context=self._tls)
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

    def _gauges(self) -> Gauges:
        adapter, streams = self.adapter, self.limits.streams
        return {
            "turns_running": ("Turns that run", lambda: len(adapter.live_turns())),
            "turns_parked": ("Turns that wait for their client", lambda: adapter.requests.waiting),
            "streams_open": ("Streams that are open", lambda: streams.taken),
            "threads": ("Threads in memory", lambda: len(adapter.threads)),
            "log_bytes": ("Bytes of events that turns keep", lambda: adapter.log_bytes()),
        }

    # -- middlewares ----------------------------------------------------------------------------------------

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Outermost: counts and logs what became of a request, and gives back what it held."""
        began, status = time.monotonic(), _LEFT
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            place = request.pop(_STREAM, None)
            if place is not None:
                self.limits.streams.give(place)
            principal, code = request.get(_PRINCIPAL), request.get(_CODE, "")
            if self.metrics is not None and status >= 400:
                self.metrics.refused(status, code)
            if self.settings.access_log:
                name = principal.id if principal is not None else ""
                log_request(request, status, principal=name, code=code, began=began)

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        headers: dict[str, str] = {}
        try:
            return await handler(request)
        except AguiError as error:
            told = error
        except web.HTTPMethodNotAllowed as error:
            headers["Allow"] = allowed = ", ".join(sorted(error.allowed_methods))
            told = AguiError(405, "method_not_allowed", f"This address takes {allowed}.")
        except web.HTTPException as error:
            told = self._told(error)
        except web.RequestPayloadError:
            told = bad_request("The body is not what its headers say (length, encoding).")
        except asyncio.CancelledError:
            raise
        except ConnectionResetError:  # the client has left, and reads nothing of this; aiohttp would log an error
            return web.Response(status=_LEFT)
        except Exception:
            logger.exception("agui: a request failed")
            told = AguiError(500, "internal", INTERNAL)
        request[_CODE] = told.code
        response = error_response(told, request.path)
        response.headers.update(headers)
        return response

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
        check_address(request.query.keys())
        if request.can_read_body:
            _check_json(request)
        request[_CALLER] = await self._caller(request)
        return await handler(request)

    async def _caller(self, request: web.Request) -> Principal | AguiError:
        """Who sends a request, or what is wrong with it, for the routes that ask."""
        token, peer = request.headers.get("Authorization", ""), request.remote or ""
        wary = self.limits.wary(peer, token)
        try:
            principal = await self.identity.of(request, wary)
        except AguiError as error:
            if error.status == 401 and token and wary is None:  # whatever the route: each costs a look-up
                self.limits.refused(peer, token)
            return error
        return wary if wary is not None and self.adapter.is_stranger(principal) else principal

    async def _headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """On every response, streams and errors too: security and cross-origin headers."""
        for name, value in _SECURITY.items():
            response.headers.setdefault(name, value)
        origin = request.headers.get("Origin", "")
        if self.settings.cors_origins:
            response.headers.add("Vary", "Origin")  # beside a file's own `Accept-Encoding`
        if origin.lower() in self.settings.cors_origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    def _preflight(self) -> web.Response:
        return web.Response(
            status=204,
            headers={
                "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE, OPTIONS",
                "Access-Control-Allow-Headers": _CORS_HEADERS,
                "Access-Control-Max-Age": "600",
            },
        )

    # -- the writer -----------------------------------------------------------------------------------------

    async def stream(
        self,
        request: web.Request,
        source: AsyncGenerator[bytes, None],
        over: Callable[[], list[bytes]] = list,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> web.StreamResponse:
        """Write a stream of frames until its end, or until the client is gone: then the turn goes on without it.

        ``over`` gives the frames that end it when its time is over (agui.stream_seconds, agui.stream_idle_seconds).
        Raises AguiError 429 when there are too many streams.
        """
        self.take_stream(request)
        response = web.StreamResponse(headers={**_SSE, **headers})
        await response.prepare(request)
        if request.method == "HEAD":  # has no body, so nothing would ever end it
            await response.write_eof()
            return response
        stream = _Stream(request, response)
        self._streams.add(stream)
        try:
            try:
                async with asyncio.timeout(self.settings.stream_seconds or None) as stream.until, aclosing(source):
                    async for chunk in source:  # closed at once: a reader that goes is no reader from that moment on
                        stream.told = stream.wrote = time.monotonic()
                        stream.size += len(chunk)
                        await response.write(chunk)
            except TimeoutError:
                if not stream.until.expired():
                    raise
                await response.write(b"".join(over()))
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

        Raises AguiError 401, 403 where the scope is missing, and 429 when it asks too often.
        """
        token, peer = request.headers.get("Authorization", ""), request.remote or ""
        principal = request[_CALLER]
        if isinstance(principal, AguiError):
            raise principal
        if _PRINCIPAL not in request:  # a route may ask twice
            if self.adapter.is_stranger(principal):  # it can be another one with each request
                self.limits.refused(peer, token)
            else:
                self.limits.welcomed(token)
            self.limits.request(principal.id)
            request[_PRINCIPAL] = principal
        need: Scope = scope or ("read" if request.method in ("GET", "HEAD") else "run")
        if not principal.may(need):
            raise AguiError(403, "scope_missing", f"This token lacks the scope `{need}`.")
        return principal

    def take_stream(self, request: web.Request) -> None:
        """A place for the stream that will answer this request, until the request is over. Raises AguiError 429.

        ``stream`` takes it by itself; a route that starts something first takes it before.
        """
        principal = request.get(_CALLER)
        if isinstance(principal, Principal) and _STREAM not in request:
            self.limits.open_stream(principal.id)
            request[_STREAM] = principal.id

    async def body(self, request: web.Request) -> bytes:
        """The request's body, unpacked. Raises AguiError 408 when it does not come in time (agui.body_seconds)."""
        seconds = self.settings.body_seconds
        try:
            async with asyncio.timeout(seconds):
                raw = await request.read()
        except TimeoutError:
            message = f"The body did not come within {seconds:g} seconds (agui.body_seconds)."
            raise AguiError(408, "body_too_slow", message, retry_after=1) from None
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding in ("", "identity"):
            return raw
        return await asyncio.to_thread(unpacked, raw, encoding, self.settings.max_body_bytes)

    async def json_body(self, request: web.Request) -> bytes:
        """The same of a route that needs one. Raises AguiError 415 where it does not say that it is JSON."""
        _check_json(request)
        return await self.body(request)

    async def json(self, request: web.Request, *, optional: bool = False) -> dict[str, Any]:
        """The body as a JSON object; empty where there is none and it is ``optional``. AguiError 400, 408 or 415."""
        if optional and not request.can_read_body:
            return {}
        try:
            data = orjson.loads(await self.json_body(request))
        except orjson.JSONDecodeError as error:
            raise bad_request(f"The body is not valid JSON: {error}.", "invalid_json") from None
        if not isinstance(data, dict):
            raise bad_request("The body must be a JSON object.", "invalid_input")
        check_depth(data, self.settings.max_json_depth)
        return data

    async def _heartbeat(self) -> None:
        """A comment to every stream that was silent too long: proxies cut quiet connections."""
        period, idle = self.settings.heartbeat_seconds, self.settings.stream_idle_seconds
        stalled = self.settings.stream_stalled_seconds
        while True:
            await asyncio.sleep(min(period, stalled) / 4)
            now = time.monotonic()
            for stream in list(self._streams):
                if stream.stuck(now) > stalled:
                    logger.info("agui: a reader that took nothing for %g seconds was dropped", stalled)
                    stream.abort()
                elif idle and now - stream.told > idle:
                    with contextlib.suppress(RuntimeError):  # it is ending already
                        stream.until.reschedule(0)
                elif now - stream.wrote >= period * 0.75 and not stream.waiting:
                    stream.wrote = now
                    # Nothing waits for it: a full socket needs no heartbeat, and must not keep the others from theirs.
                    with contextlib.suppress(TimeoutError, ConnectionResetError, RuntimeError):
                        await asyncio.wait_for(stream.response.write(HEARTBEAT), 0.05)


def _check_json(request: web.Request) -> None:
    if not is_json(request.headers.get("Content-Type", "")):
        raise AguiError(415, "not_json", "Send application/json.")


class _Stream:
    """A stream that is open: when it was last told something (``told``) or written to, and how much it took."""

    __slots__ = ("_moved", "_taken", "_transport", "response", "size", "told", "until", "wrote")

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self.response = response
        self.told = self.wrote = self._moved = time.monotonic()
        self.size = 0
        self.until: asyncio.Timeout
        self._taken = 0
        self._transport = request.transport

    @property
    def waiting(self) -> int:
        """Bytes that its reader has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def stuck(self, now: float) -> float:
        """Seconds since its reader last took something of what waits for it; 0 while nothing waits."""
        waiting = self.waiting
        taken = self.size - waiting
        if not waiting or taken > self._taken:
            self._taken, self._moved = taken, now
        return now - self._moved

    def abort(self) -> None:
        """Drop the connection with all that waits in it."""
        if self._transport is not None:
            self._transport.abort()
