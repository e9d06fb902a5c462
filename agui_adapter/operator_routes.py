"""What operators ask the server: `/health` (liveness), `/health/detailed` and `/metrics`. On the gateway's loop."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web
from pydantic import BaseModel

from . import __version__
from .errors import AguiError
from .operation import operation
from .replies import reply

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server

_LIBRARIES = ("hermes-agent", "ag-ui-protocol", "aiohttp", "pydantic", "mcp")


class Health(BaseModel):
    """Whether it lives. 503 while it starts."""

    status: Literal["ok", "starting"]
    version: str


def add_routes(app: web.Application, server: Server) -> None:
    """The three routes."""
    routes = OperatorRoutes(server)
    app.router.add_get("/health", routes.health)
    app.router.add_get("/health/detailed", routes.detailed)
    if server.settings.metrics != "off":
        app.router.add_get("/metrics", routes.metrics)


class OperatorRoutes:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began = time.monotonic()

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @operation("server", reply=Health, also={503: Health}, public=True)
    async def health(self, request: web.Request) -> web.Response:
        """Liveness and nothing else: no secrets, no counts."""
        ready = self._adapter.ready
        body = {"status": "ok" if ready else "starting", "version": __version__}
        return reply(body, 200 if ready else 503)

    @operation("server", reply=dict[str, Any])
    async def detailed(self, request: web.Request) -> web.Response:
        """How the server does: counts, versions, what is kept. For the owner, or a token with scope `admin`."""
        self._server.principal(request, "admin")
        adapter, settings = self._adapter, self._server.settings
        body: dict[str, Any] = {
            "status": "ok" if adapter.ready else "starting",
            "version": __version__,
            "python": platform.python_version(),
            "libraries": {name: found for name in _LIBRARIES if (found := installed(name))},
            "pid": os.getpid(),
            "uptimeSeconds": round(time.monotonic() - self._began),
            "turns": {"running": len(adapter.live_turns()), "most": settings.max_turns},
            "parked": {"turns": adapter.requests.waiting, "most": settings.max_parked},
            "streams": {"open": self._server.limits.streams.taken, "most": settings.max_streams},
            "threads": len(adapter.threads),
            "logBytes": adapter.log_bytes(),
            "store": {"onDisk": await adapter.archive.run(lambda: adapter.archive.store.on_disk)},
            "sessions": {"stored": adapter.bridge.keeps, "turnsLost": adapter.bridge.turns_lost},
            "untappable": adapter.blind,
            "stopping": adapter.bridge.stopping(),
        }
        return reply(body)

    @operation("server", reply=str, media="text/plain", errors=("not_installed",))
    async def metrics(self, request: web.Request) -> web.Response:
        """For a Prometheus server: with scope `admin`, or for everybody (agui.metrics)."""
        if self._server.settings.metrics == "owner":
            self._server.principal(request, "admin")
        metrics = self._server.metrics
        if metrics is None:
            raise AguiError(501, "not_installed", "Metrics need a library: pip install 'hermes-agui[metrics]'.")
        body, content_type = metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


def installed(name: str) -> str:
    """The version of an installed distribution; empty when it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
