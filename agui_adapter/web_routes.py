"""The web console at `/`: static files that `web/` is built into (`agui_adapter/web/`), and what to do without them.

The page is the same for everybody and knows nothing; who calls is asked by the API that it calls. Its files are
compressed when they are built. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from .errors import AguiError
from .operation import operation

if TYPE_CHECKING:
    from .server import Server

BUILT = Path(__file__).parent / "web"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Everything from this server, nothing else: a page that shows what a model wrote must have nowhere to send it.
# `blob:` and `data:` are what a user attaches, before it is sent and in the history.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' blob: data:",
        "media-src 'self' blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>hermes-agui</title>
<h1>The gateway runs; its web console is not built</h1>
<p>A wheel of hermes-agui contains the console. This is a checkout, or a wheel that was built without Node:</p>
<pre>make web        # needs Node 20.19 or newer; then load this page again</pre>
<p>Everything else works without it: AG-UI at <code>POST /agui</code>, the terminal client
<code>hermes-agui chat TEXT</code>, <a href="/health">/health</a>.</p>
</html>
"""


def add_routes(app: web.Application, server: Server, built: Path = BUILT) -> None:
    """`/` and what it loads. ``built``: where the build is."""
    routes = WebRoutes(built)
    app.router.add_get("/", routes.page)
    app.router.add_get("/assets/{name}", routes.asset)


class WebRoutes:
    """The routes and the files there are: no path of a request ever reaches the file system."""

    def __init__(self, built: Path) -> None:
        self._built = built
        self._assets = {path.name: path for path in _files(built / "assets")}

    @operation("server", public=True, reply=str, media="text/html")
    async def page(self, request: web.Request) -> web.StreamResponse:
        """The console, or how to get it."""
        path = self._built / "index.html"
        if not await asyncio.to_thread(path.is_file):
            return web.Response(text=_NOT_BUILT, content_type="text/html", headers=_HEADERS)
        # A name in it changes with what it names, so only the page itself must be asked for anew.
        headers = {**_HEADERS, "Content-Type": _TYPES[".html"], "Cache-Control": "no-cache"}
        return web.FileResponse(path, headers=headers)

    @operation("server", public=True, reply=str, media="application/octet-stream", errors=("not_found",))
    async def asset(self, request: web.Request) -> web.StreamResponse:
        """A file of the console; its name holds a digest, so it never changes."""
        name = request.match_info["name"]
        path = self._assets.get(name)
        if path is None:  # built while the gateway runs
            self._assets = {
                path.name: path for path in await asyncio.to_thread(lambda: [*_files(self._built / "assets")])
            }
            path = self._assets.get(name)
        if path is None:
            raise AguiError(404, "not_found", "There is nothing at this address.")
        headers = {
            **_HEADERS,
            "Content-Type": _TYPES[path.suffix],
            "Cache-Control": "public, max-age=31536000, immutable",
        }
        return web.FileResponse(path, headers=headers)


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.suffix in _TYPES)
