"""The mcp SDK, 1.26 up to 2.x: the one file that knows what differs between them.

Everything else here speaks the protocol's own JSON (dicts with its camelCase names); the SDK's models check it on the
way in and out. Its low-level server alone is used: FastMCP is 1.x only, MCPServer 2.x only. Names are looked up at run
time, so that mypy passes with either, or with none, installed. Importing this module imports mcp.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio

from ..encode import clean

types: Any = importlib.import_module("mcp.types")
_lowlevel: Any = importlib.import_module("mcp.server.lowlevel")
_manager: Any = importlib.import_module("mcp.server.streamable_http_manager")
_security: Any = importlib.import_module("mcp.server.transport_security")
_exceptions: Any = importlib.import_module("mcp.shared.exceptions")

VERSION = importlib.metadata.version("mcp")
IS_2 = int(VERSION.partition(".")[0]) >= 2
CALLER = "agui_mcp_caller"
"""The member of an ASGI scope's ``state`` that handlers find as ``Call.caller``."""

Json: TypeAlias = dict[str, Any]
Handler: TypeAlias = "Callable[[Call], Awaitable[Json]]"

logger = logging.getLogger("hermes_agui")
PROTOCOL_ERROR: type[Exception] = _exceptions.MCPError if IS_2 else _exceptions.McpError
INVALID_PARAMS, INTERNAL_ERROR, RESOURCE_NOT_FOUND = -32602, -32603, -32002

# method → the stem of its request and result models in 1.x, the model of its params in 2.x
_METHODS = {
    "tools/list": ("ListTools", "PaginatedRequestParams"),
    "tools/call": ("CallTool", "CallToolRequestParams"),
    "resources/list": ("ListResources", "PaginatedRequestParams"),
    "resources/templates/list": ("ListResourceTemplates", "PaginatedRequestParams"),
    "resources/read": ("ReadResource", "ReadResourceRequestParams"),
    "resources/subscribe": ("Subscribe", "SubscribeRequestParams"),
    "resources/unsubscribe": ("Unsubscribe", "UnsubscribeRequestParams"),
    "prompts/list": ("ListPrompts", "PaginatedRequestParams"),
    "prompts/get": ("GetPrompt", "GetPromptRequestParams"),
    "completion/complete": ("Complete", "CompleteRequestParams"),
    "logging/setLevel": ("SetLevel", "SetLevelRequestParams"),
}


def error(code: int, message: str) -> Exception:
    """A protocol error for a handler to raise; a tool's failure is a result with ``isError`` instead."""
    if IS_2:
        return PROTOCOL_ERROR(code, message)
    return PROTOCOL_ERROR(types.ErrorData(code=code, message=message))


@dataclass(eq=False)
class Call:
    """One request of a client, as its handler sees it. ``params`` are the protocol's; ``caller`` is the bridge's.

    ``left``: its session is over, and nobody reads the answer; a call cancelled without it was cancelled by its client.
    """

    method: str
    params: Json
    caller: Any
    _context: Any
    left: bool = False
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def leave(self) -> None:
        """The session is over: the handler is cancelled, and answers nobody."""
        self.left = True
        self._scope.cancel()

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked to be told of the progress."""
        return (self.params.get("_meta") or {}).get("progressToken") is not None

    async def progress(self, value: float, text: str) -> None:
        """Tell how far it is; ``value`` must grow from one to the next. Nothing, if the client did not ask."""
        if not self.wants_progress:
            return
        session, text = self._context.session, clean(text)
        with _gone():
            if IS_2:
                await session.report_progress(value, None, text)
            else:
                token = self.params["_meta"]["progressToken"]
                await session.send_progress_notification(token, value, None, text, related_request_id=self._related)

    async def log(self, level: str, text: str, logger: str) -> None:
        """A log message on this request's stream."""
        with _gone():
            await self._context.session.send_log_message(level, clean(text), logger, related_request_id=self._related)

    @property
    def elicits(self) -> bool:
        """Whether the client can ask its user in the middle of this call."""
        session = self._context.session
        if IS_2:
            found, ready = session.client_capabilities, session.can_send_request
        else:
            found, ready = session.client_params and session.client_params.capabilities, True
        asks = found.elicitation if found else None
        if asks is None or not ready:
            return False
        modes = asks.model_dump(exclude_none=True)
        return "form" in modes or "url" not in modes  # an empty object means forms

    async def elicit(self, message: str, schema: Json) -> tuple[str, Json]:
        """Ask the client's user: the action (accept, decline, cancel) and what was filled in.

        Cancelled, it takes the question back.
        """
        session = self._context.session
        number = getattr(session, "_request_id", None)  # of 1.x: the id that the next request gets
        try:
            asked = await session.elicit_form(clean(message), clean(schema), related_request_id=self._related)
        except asyncio.CancelledError:
            if number is not None:  # 2.x does it by itself
                with anyio.CancelScope(shield=True), anyio.move_on_after(1), _gone():
                    cancelled = {"params": {"requestId": number, "reason": "It was answered elsewhere."}}
                    told = types.CancelledNotification.model_validate(cancelled | {"method": "notifications/cancelled"})
                    await session.send_notification(types.ServerNotification(told), self._related)
            raise
        return asked.action, dict(asked.content or {})

    @property
    def updates(self) -> Callable[[str], Awaitable[None]]:
        """Tells the session's own stream that a resource changed; good for as long as the session is."""
        session = self._context.session

        async def updated(uri: str) -> None:
            with _gone():
                await session.send_resource_updated(uri)

        return updated

    @property
    def _related(self) -> str:
        # As text: 1.26 takes the number 0 for none (BaseSession.send_notification).
        return str(self._context.request_id)


@contextlib.contextmanager
def _gone() -> Any:
    """What is sent to a client that has left is lost, and that is no error."""
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        yield


def make_server(name: str, version: str, instructions: str, handlers: Mapping[str, Handler]) -> Any:
    """A low-level server that answers these methods."""
    server = _Server(name, version=version, instructions=instructions)
    for method, handler in handlers.items():
        stem, params = _METHODS[method]
        result = getattr(types, f"{stem}Result", types.EmptyResult)
        if IS_2:
            server.add_request_handler(method, getattr(types, params), _for_2(method, handler, result))
        else:
            request = getattr(types, f"{stem}Request")
            server.request_handlers[request] = _for_1(server, method, handler, result)
    return server


class _Server(_lowlevel.Server):  # type: ignore[misc,unused-ignore]
    def get_capabilities(self, *args: Any, **kwargs: Any) -> Any:
        found = super().get_capabilities(*args, **kwargs)
        if not IS_2 and found.resources is not None:
            found.resources.subscribe = True  # 1.x says False whatever handlers there are
        return found


def _for_1(server: Any, method: str, handler: Handler, result: Any) -> Callable[[Any], Awaitable[Any]]:
    async def answer(request: Any) -> Any:
        return types.ServerResult(await _answer(method, request.params, server.request_context, handler, result))

    return answer


def _for_2(method: str, handler: Handler, result: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    async def answer(context: Any, params: Any) -> Any:
        return await _answer(method, params, context, handler, result)

    return answer


async def _answer(method: str, params: Any, context: Any, handler: Handler, result: Any) -> Any:
    given = params.model_dump(by_alias=True, mode="json", exclude_none=True) if params is not None else {}
    caller = context.request.scope["state"][CALLER]
    call = Call(method, given, caller, context)
    with call._scope, caller.holds(call):
        # Half a surrogate pair, from a terminal or a model, would break the SDK's writer, and the call had no answer.
        return result.model_validate(clean(await handler(call)))
    # Its session is over: 1.26 would write the answer into a closed stream, and log that as a crash.
    raise asyncio.CancelledError


# -- streamable HTTP -----------------------------------------------------------------------------------------------


def make_manager(server: Any, *, max_body_bytes: int) -> Any:
    """The manager of the HTTP sessions of a server; good for one ``run()``. Who may come in is the bridge's business,
    and so are session limits, which 1.26 lacks."""
    # Host and Origin are checked for every route of this port (server.py).
    security = _security.TransportSecuritySettings(enable_dns_rebinding_protection=False)
    more: Json = {"session_idle_timeout": None, "max_sessions": None, "max_request_body_size": max_body_bytes}
    return _manager.StreamableHTTPSessionManager(server, security_settings=security, **(more if IS_2 else {}))


async def end_session(manager: Any, session_id: str) -> None:
    """End a session and forget it: 1.26 keeps deleted ones for ever, and neither version has a call for it."""
    transport = manager._server_instances.pop(session_id, None)
    if transport is not None and not transport.is_terminated:
        with anyio.CancelScope(shield=True):
            await transport.terminate()


class _Noise(logging.Filter):
    """Closed streams, which 1.26 reports as errors with a stack at every client that leaves."""

    def filter(self, record: logging.LogRecord) -> bool:
        left = record.exc_info is not None and isinstance(record.exc_info[1], anyio.ClosedResourceError)
        return not left


def quiet() -> None:
    """Keep the SDK's server from telling of each request and each client that leaves. Idempotent."""
    for name in ("mcp.server.lowlevel.server", "mcp.server.streamable_http", "mcp.server.streamable_http_manager"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))
        if not any(isinstance(one, _Noise) for one in logger.filters):
            logger.addFilter(_Noise())
