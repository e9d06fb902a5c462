"""`GET /files/{id}`: a file that the agent sent or a user sent inline, to its owner only.

The owner is who the request's key says, or whoever has a signed link: a page's ``<img>`` cannot send a header. A file
is shown by the browser only where that is harmless, never with scripts, and answers ranges. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from .errors import AguiError
from .files import PREFIX
from .operation import Query, operation
from .store import FileRecord

if TYPE_CHECKING:
    from .server import Server

# What a browser may show in place; it downloads everything else. Neither HTML nor SVG: both can carry scripts.
_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "text/plain", "application/pdf"})
_POLICY = "sandbox; default-src 'none'"
_CACHE_SECONDS = 3600


_ERRORS = ("no_such_file", "file_expired")
_ALSO = {206: None, 304: None, 416: None}


class FileQuery(Query):
    """What a signed link holds."""

    expires: str = ""
    signature: str = ""


def add_routes(app: web.Application, server: Server) -> None:
    """The one route; HEAD comes with GET."""
    app.router.add_get(PREFIX + "{file_id:[0-9a-f]{32}}", FileRoutes(server).get)


class FileRoutes:
    """The route and what it needs."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @operation("ag-ui", query=FileQuery, reply=str, media="application/octet-stream", errors=_ERRORS, also=_ALSO)
    async def get(self, request: web.Request) -> web.StreamResponse:
        """A file that the agent sent, or a user's own. A signed link needs no token; ranges are answered."""
        files = getattr(self._server.adapter, "files", None)
        if files is None:
            raise AguiError(503, "starting", "The gateway is still starting; try again soon.", retry_after=5)
        file_id = request.match_info["file_id"]
        query = request.query
        linked = files.signed(file_id, query.get("expires", ""), query.get("signature", ""))
        principal = None if linked else self._server.principal(request)
        record = await asyncio.to_thread(files.find, file_id)
        if record is None or record.url or (principal is not None and principal.id != record.principal):
            raise AguiError(404, "no_such_file", "There is no such file.")
        path = await asyncio.to_thread(files.path, record)
        if path is None:
            raise AguiError(
                410, "file_expired", "This file is no longer kept (agui.file_ttl_seconds). Ask for it again."
            )
        return web.FileResponse(path, headers=headers(record, time.time()))


def headers(record: FileRecord, now: float) -> dict[str, str]:
    """How a browser is to take the file."""
    main = record.mime.partition("/")[0]
    shown = record.mime in _SHOWN or main in ("audio", "video")
    plain = record.mime.startswith("text/")
    return {
        "Content-Type": f"{record.mime}; charset=utf-8" if plain else record.mime,
        "Content-Disposition": disposition("inline" if shown else "attachment", record.name),
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Resource-Policy": "cross-origin",  # a page that isolates itself may still show it
        "Cache-Control": f"private, max-age={max(0, min(_CACHE_SECONDS, int(record.expires - now)))}",
    }


def disposition(kind: str, name: str) -> str:
    """``Content-Disposition`` with the name for all clients (RFC 6266): ASCII without quotes, and as UTF-8."""
    plain = "".join(char if char.isascii() and char.isprintable() and char not in '"\\%;' else "_" for char in name)
    return f"{kind}; filename=\"{plain or 'file'}\"; filename*=UTF-8''{quote(name, safe='')}"
