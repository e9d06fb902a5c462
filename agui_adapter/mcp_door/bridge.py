"""MCP's streamable HTTP at ``/mcp``: from aiohttp's request to the SDK's session manager, and back. On the loop.

The manager speaks ASGI; the two adapters that are published fail with its streams, so this small one is our own. It
also keeps what mcp 1.26 lacks: whose a session is, how many there may be, and their end when nobody uses them. The SDK
is imported on a worker thread when the first request comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from ..errors import AguiError
from ..limits import check_depth
from ..operation import operation
from ..principal import Principal
from ..problems import error_response
from ..replies import reply

if TYPE_CHECKING:
    from ..server import Server
    from .sdk import Call

logger = logging.getLogger("hermes_agui")

PATH = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"  # RFC 9728; the resource's path stands behind it
INSTALL = "pip install 'hermes-agui[mcp]'"
_STOP_SECONDS = 5.0
_SESSION = "Mcp-Session-Id"

_Message = MutableMapping[str, Any]


def add_routes(app: web.Application, server: Server) -> None:
    """The door, or where it is off a sentence that says why."""
    door = McpDoor(server, off=_why_off(server))
    for path in (PATH, f"{PATH}/"):
        app.router.add_route("*", path, door.handle)
    if door.off:
        logger.info("agui: %s", door.off)
        return
    for path in (METADATA, f"{METADATA}{PATH}"):
        app.router.add_get(path, door.metadata)
    app.on_shutdown.append(door.stop)


def _why_off(server: Server) -> str:
    if not server.settings.mcp:
        return "The MCP door is off (agui.mcp)."
    if importlib.util.find_spec("mcp") is None:
        return f"The MCP door is off: the package mcp is missing. Install it with {INSTALL} and restart the gateway."
    version = importlib.metadata.version("mcp")
    numbers = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    if numbers < [1, 26] or [2] <= numbers < [2, 2]:
        return f"The MCP door is off: mcp {version} is too old. Install another with {INSTALL}."
    return ""


@dataclass(eq=False)
class Session:
    """One client's session: whose it is, and what goes on in it. Without an id it is good for one request (2026-07-28).

    ``open``: HTTP requests that are being answered, its own stream among them. ``level``: log messages of at least this
    weight are sent. ``watches``: URI → the task that tells of its changes.
    """

    id: str
    principal: Principal
    used_at: float = field(default_factory=time.monotonic)
    open: int = 0
    calls: set[Call] = field(default_factory=set)
    level: str = "info"
    watches: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether nothing of it is being answered."""
        return not self.open and not self.calls


@dataclass(frozen=True)
class Caller:
    """Who sends a request: as its own token says, whoever began the session."""

    principal: Principal
    session: Session

    @contextlib.contextmanager
    def holds(self, call: Call) -> Iterator[None]:
        """While the call is worked on."""
        self.session.calls.add(call)
        try:
            yield
        finally:
            self.session.calls.discard(call)


class McpDoor:
    """The routes, the sessions, and the task in which the SDK's manager lives."""

    def __init__(self, server: Server, off: str = "") -> None:
        self.off = off
        self._server = server
        self._sdk: Any = None
        self._manager: Any = None
        self._sessions: dict[str, Session] = {}
        self._running: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()

    # -- life -------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Have the manager running. One task of its own enters and leaves it: anyio's scopes demand that."""
        if self._stop.is_set():
            raise AguiError(503, "stopping", "The gateway is shutting down; try again when it is back.", retry_after=15)
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._ready), name="agui-mcp")
        await asyncio.shield(self._ready)

    async def _run(self, ready: asyncio.Future[None]) -> None:
        try:
            offer: ModuleType = await asyncio.to_thread(importlib.import_module, "agui_adapter.mcp_door.offer")
            self._sdk = offer.sdk
            self._sdk.quiet()
            made = self._sdk.make_manager(
                offer.make_server(self._server), max_body_bytes=self._server.settings.max_body_bytes
            )
            async with made.run():
                self._manager = made
                ready.set_result(None)
                await self._sweep()
                for session in list(self._sessions.values()):
                    await self._end(session)
                self._manager = None
        except Exception as error:
            logger.exception("agui: the MCP door failed")
            if not ready.done():
                ready.set_exception(AguiError(500, "mcp_failed", f"The MCP door could not start: {error}"))

    async def _sweep(self) -> None:
        """Until the stop: end sessions that nobody has used for a while. Clients begin another then (404)."""
        keep = self._server.settings.mcp_session_seconds
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(30.0, keep / 2))
            now = time.monotonic()
            for session in list(self._sessions.values()):
                if session.idle and now - session.used_at > keep:
                    await self._end(session)

    async def stop(self, app: web.Application) -> None:
        """End every session, then the manager. Within seconds, whatever hangs."""
        self._stop.set()
        if self._running is not None:
            _, late = await asyncio.wait([self._running], timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()

    async def _end(self, session: Session) -> None:
        """The session is over: its calls are left (their turns go on), its streams closed, and it is unknown."""
        self._sessions.pop(session.id, None)
        for watch in session.watches.values():
            watch.cancel()
        for call in list(session.calls):
            call.leave()
        if self._manager is not None:
            await self._sdk.end_session(self._manager, session.id)

    # -- requests -----------------------------------------------------------------------------------------------

    @operation("mcp", reply=dict[str, Any], public=True)
    async def metadata(self, request: web.Request) -> web.Response:
        """Protected resource metadata (RFC 9728). Tokens come from this server's operator, or from the issuer of JSON
        Web Tokens that it was told of."""
        about: dict[str, Any] = {
            "resource": f"{self._base(request)}{PATH}",
            "resource_name": "Hermes Agent",
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["read", "run", "approve"],
        }
        if self._server.settings.jwt_issuer:
            about["authorization_servers"] = [self._server.settings.jwt_issuer]
        return reply(about)

    def _base(self, request: web.Request) -> str:
        return self._server.settings.public_url or f"{request.scheme}://{request.host}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request to ``/mcp``."""
        if self.off:
            raise AguiError(404, "mcp_off", self.off)
        try:
            principal = self._server.principal(request, "read")
        except AguiError as error:
            response = error_response(error, request.path)
            if error.status in (401, 403):
                response.headers["WWW-Authenticate"] = self._challenge(request, error)
            return response
        body = await self._server.body(request)
        try:
            check_depth(_parsed(body or b"null"), self._server.settings.max_json_depth)
        except (ValueError, RecursionError):  # nested without end, too: the SDK's reader would fail at that
            return _wrong(400, -32700, "Parse error: the body is no JSON that can be read.")
        if request.method == "GET":
            self._server.take_stream(request)
        await self._begin()
        session = None
        if named := request.headers.get(_SESSION):
            session = self._sessions.get(named)
            if session is None or session.principal.id != principal.id:
                return _unknown_session()
        elif len(self._sessions) >= self._server.settings.mcp_max_sessions:
            await self._make_room(principal)
        exchange = _Exchange(request, body, Caller(principal, session or Session("", principal)))
        if session is None:
            exchange.begun = self._begun
        else:
            session.open += 1
        # On a task of its own: a client that leaves is told to the SDK as a disconnect, and the SDK cleans up in order.
        task = asyncio.create_task(self._manager.handle_request(exchange.scope, exchange.receive, exchange.send))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        try:
            await asyncio.shield(task)
        finally:
            exchange.gone.set()
            if session is not None:
                session.open -= 1
                session.used_at = time.monotonic()
        if session is not None and request.method == "DELETE":
            await self._end(session)
        return await exchange.finish()

    async def _begun(self, status: int, session_id: str, principal: Principal) -> None:
        """The SDK answers a request that named no session."""
        if status < 400:
            self._sessions[session_id] = Session(session_id, principal)
        else:  # 1.26 makes a session for whatever comes
            await self._sdk.end_session(self._manager, session_id)

    async def _make_room(self, principal: Principal) -> None:
        """End the least used session of whoever has most; of this caller's only idle ones. AguiError 503 where it has
        no idle one and nobody has more."""
        held = Counter(one.principal.id for one in self._sessions.values())
        mine = principal.id
        most = max(held.values(), default=0)
        if held[mine] + 1 < most:  # it would still have fewer: no stream that the other keeps open shuts it out
            theirs = [one for one in self._sessions.values() if held[one.principal.id] == most]
        else:
            theirs = [one for one in self._sessions.values() if one.principal.id == mine and one.idle]
        if not theirs:
            message = "Too many MCP sessions are open (agui.mcp_max_sessions); close one, or try again later."
            raise AguiError(503, "too_many_sessions", message, retry_after=30)
        await self._end(min(theirs, key=lambda one: (not one.idle, one.used_at)))

    def _challenge(self, request: web.Request, error: AguiError) -> str:
        """Where a client finds out how to come in (MCP, authorization; RFC 6750)."""
        found = f'Bearer resource_metadata="{self._base(request)}{METADATA}{PATH}"'
        code = {"invalid_token": "invalid_token", "scope_missing": "insufficient_scope"}.get(error.code)
        return f'{found}, error="{code}"' if code else found


class _Exchange:
    """One HTTP exchange as ASGI sees it."""

    def __init__(self, request: web.Request, body: bytes, caller: Caller) -> None:
        self.gone = asyncio.Event()  # the client has left, or has its answer
        self.begun: Callable[[int, str, Principal], Awaitable[None]] | None = None
        self._request = request
        self._caller = caller
        self._body: bytes | None = body
        self._response: web.StreamResponse | None = None
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.raw_path.encode(),
            "root_path": "",
            "query_string": request.query_string.encode(),
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": (request.remote or "", 0),
            "server": None,
            "state": {"agui_mcp_caller": caller},
        }

    async def receive(self) -> _Message:
        """The body once, then nothing until the client has left: an early answer would make the SDK's streams spin."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: _Message) -> None:
        """The SDK's answer, piece by piece; dropped quietly once the client is gone."""
        if message["type"] == "http.response.start":
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            named = next((value for name, value in headers if name.lower() == _SESSION.lower()), "")
            if self.begun is not None and named:
                await self.begun(message["status"], named, self._caller.principal)
            response = web.StreamResponse(status=message["status"])
            for name, value in headers:
                if name.lower() not in ("connection", "transfer-encoding"):  # this server's own business
                    response.headers[name] = value
            self._response = response
            if not self.gone.is_set():
                with self._leaving():
                    await response.prepare(self._request)
        elif message["type"] == "http.response.body" and self._response is not None and not self.gone.is_set():
            with self._leaving():
                if message.get("body"):
                    await self._response.write(message["body"])

    @contextlib.contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        except ConnectionResetError:
            self.gone.set()

    async def finish(self) -> web.StreamResponse:
        """The response, whole."""
        if self._response is None:
            raise AguiError(500, "internal", "The MCP door gave no answer; the operator's log says why.")
        with contextlib.suppress(ConnectionResetError):
            await self._response.write_eof()
        return self._response


def _parsed(body: bytes) -> Any:
    """The body as the SDK will read it. Raises ValueError and RecursionError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)  # half a surrogate pair, for one


def _unknown_session() -> web.Response:
    """As the SDK says it of one that is gone; a foreign one is as unknown."""
    return _wrong(404, -32600, "Session not found")


def _wrong(status: int, code: int, message: str) -> web.Response:
    """A JSON-RPC error of no request, in the SDK's form."""
    error = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": code, "message": message}}
    return web.Response(status=status, body=json.dumps(error), content_type="application/json")
