"""`GET /v1/models`, `/v1/capabilities`, `/api/model/options`: what may be asked for. On the gateway's loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .. import __version__
from ..errors import AguiError
from ..hermes.models import configured_model, picker
from ..operation import operation, queried
from ..replies import reply
from .caller import SESSION_ID, SESSION_KEY, TOOLS
from .openai_models import Models, OpenAIModel, OptionsQuery

if TYPE_CHECKING:
    from ..server import Server

_OPTIONS_SECONDS = 60.0  # custom providers are asked for their lists
# What other modules serve: name → method and path.
_OTHERS = {
    "health": ("GET", "/health"),
    "health_detailed": ("GET", "/health/detailed"),
    "models": ("GET", "/v1/models"),
    "chat_completions": ("POST", "/v1/chat/completions"),
    "responses": ("POST", "/v1/responses"),
    "response": ("GET", "/v1/responses/{response_id}"),
    "response_delete": ("DELETE", "/v1/responses/{response_id}"),
    "response_input_items": ("GET", "/v1/responses/{response_id}/input_items"),
    "response_cancel": ("POST", "/v1/responses/{response_id}/cancel"),
    "runs": ("POST", "/v1/runs"),
    "run_status": ("GET", "/v1/runs/{run_id}"),
    "run_events": ("GET", "/v1/runs/{run_id}/events"),
    "run_approval": ("POST", "/v1/runs/{run_id}/approval"),
    "run_answer": ("POST", "/v1/runs/{run_id}/answer"),
    "run_steer": ("POST", "/v1/runs/{run_id}/steer"),
    "run_stop": ("POST", "/v1/runs/{run_id}/stop"),
    "sessions": ("GET", "/api/sessions"),
    "session_create": ("POST", "/api/sessions"),
    "session": ("GET", "/api/sessions/{session_id}"),
    "session_update": ("PATCH", "/api/sessions/{session_id}"),
    "session_delete": ("DELETE", "/api/sessions/{session_id}"),
    "session_messages": ("GET", "/api/sessions/{session_id}/messages"),
    "session_fork": ("POST", "/api/sessions/{session_id}/fork"),
    "session_chat": ("POST", "/api/sessions/{session_id}/chat"),
    "session_chat_stream": ("POST", "/api/sessions/{session_id}/chat/stream"),
    "model_options": ("GET", "/api/model/options"),
    "openapi": ("GET", "/openapi.json"),
    "agui": ("POST", "/agui"),
    "mcp": ("POST", "/mcp"),
}


def add_routes(app: web.Application, server: Server) -> None:
    """What may be asked for."""
    routes = Catalog(server)
    app.router.add_get("/v1/models", routes.models)
    app.router.add_get("/v1/models/{model_id:.+}", routes.model)
    app.router.add_get("/v1/capabilities", routes.capabilities)
    app.router.add_get("/api/model/options", routes.options)


class Catalog:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began = int(time.time())

    @operation("openai", reply=Models)
    async def models(self, request: web.Request) -> web.Response:
        """The agent as a model; also the model behind it, where callers may choose."""
        self._server.principal(request)
        return reply({"object": "list", "data": await self._models()})

    @operation("openai", reply=OpenAIModel, errors=("model_not_found",))
    async def model(self, request: web.Request) -> web.Response:
        """One of them."""
        self._server.principal(request)
        wanted = request.match_info["model_id"]
        for model in await self._models():
            if model["id"] == wanted:
                return reply(model)
        raise AguiError(404, "model_not_found", "There is no such model here. Any name may be asked for all the same.")

    async def _models(self) -> list[dict[str, Any]]:
        settings = self._server.settings
        names = [settings.rest_model]
        if "model" in settings.allow_overrides:
            names.append(await asyncio.to_thread(configured_model))
        return [
            {"id": name, "object": "model", "created": self._began, "owned_by": "hermes"}
            for name in dict.fromkeys(names)
            if name
        ]

    @operation("openai", reply=dict[str, Any])
    async def capabilities(self, request: web.Request) -> web.Response:
        """What this server can do, in the form of Hermes's own api_server: only what is served is listed."""
        self._server.principal(request)
        served = {(route.method, route.resource.canonical) for route in request.app.router.routes() if route.resource}
        endpoints = {
            name: {"method": method, "path": path}
            for name, (method, path) in _OTHERS.items()
            if (method, path) in served
        }
        settings = self._server.settings
        return reply(
            {
                "object": "hermes.api_server.capabilities",
                "platform": "hermes-agent",
                "server": "hermes-agui",
                "version": __version__,
                "model": settings.rest_model,
                "auth": {"type": "bearer", "required": settings.require_token or settings.api_key is not None},
                "runtime": {
                    "mode": "server_agent",
                    "tool_execution": "server",
                    "split_runtime": True,
                    "description": "The agent's tools run beside the gateway; tools of a request run in its client.",
                },
                "features": {
                    "chat_completions": "chat_completions" in endpoints,
                    "chat_completions_streaming": "chat_completions" in endpoints,
                    "client_tools": True,
                    "responses_api": "responses" in endpoints,
                    "responses_streaming": "responses" in endpoints,
                    "run_submission": "runs" in endpoints,
                    "run_status": "run_status" in endpoints,
                    "run_events_sse": "run_events" in endpoints,
                    "run_stop": "run_stop" in endpoints,
                    "run_steer": "run_steer" in endpoints,
                    "run_approval_response": "run_approval" in endpoints,
                    "tool_progress_events": settings.tool_output != "off",
                    "approval_events": "run_events" in endpoints,
                    "session_resources": "sessions" in endpoints,
                    "session_chat": "session_chat" in endpoints,
                    "session_chat_streaming": "session_chat_stream" in endpoints,
                    "session_fork": "session_fork" in endpoints,
                    "model_options": True,
                    "session_continuity_header": SESSION_ID,
                    "session_key_header": SESSION_KEY,
                    "tools_header": TOOLS,
                    "cors": bool(settings.cors_origins),
                },
                "endpoints": endpoints,
            }
        )

    @operation("server", query=OptionsQuery, reply=dict[str, Any], errors=("options_timeout",))
    async def options(self, request: web.Request) -> web.Response:
        """Hermes's own picker: ``?refresh=1`` asks every provider anew, ``explicit_only`` and ``include_unconfigured``
        as in its dashboard. To refresh needs the scope `admin`: it drops caches, and sends keys to every provider."""
        self._server.principal(request)
        asked = queried(OptionsQuery, request.query)
        if asked.refresh:
            self._server.principal(request, "admin")
        try:
            made = await asyncio.wait_for(asyncio.to_thread(lambda: picker(**asked.model_dump())), _OPTIONS_SECONDS)
        except TimeoutError:
            raise AguiError(504, "options_timeout", "The providers did not tell their models in time.") from None
        return reply(made)
