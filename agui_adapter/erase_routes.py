"""`DELETE /agui/threads?all=1`: everything that is kept of a principal. On the gateway's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import BaseModel, Field

from .errors import AguiError
from .operation import Query, operation, queried
from .principal import Principal
from .replies import reply
from .shapes import TAG
from .thread_actions import ThreadActions

if TYPE_CHECKING:
    from .server import Server


class EraseQuery(Query):
    """Whose threads."""

    all: str = Field(default="", description="`1` or `true`: yes, all of them.")
    principal: str = Field(default="", description="Another principal; for the owner only.")


class Erased(BaseModel):
    """How many threads are gone."""

    principal: str
    deleted: int


def add_routes(app: web.Application, server: Server) -> None:
    """The one route."""
    app.router.add_delete("/agui/threads", EraseRoutes(server).delete)


class EraseRoutes:
    """The route and what it needs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._actions = ThreadActions(server)

    @operation(TAG, query=EraseQuery, reply=Erased, errors=("owner_only",))
    async def delete(self, request: web.Request) -> web.Response:
        """Delete every thread of the caller's, with its Hermes session, its files and all else that is kept of it."""
        principal, asked = self._server.principal(request), queried(EraseQuery, request.query)
        if asked.all not in ("1", "true"):
            raise AguiError(422, "invalid_input", "This deletes every thread: say so with ?all=1.")
        if asked.principal not in ("", principal.id):
            if not principal.trusted:
                message = "Only the holder of the operator's key may delete another's threads."
                raise AguiError(403, "owner_only", message)
            principal = Principal(asked.principal)
        await self._actions.ready()
        adapter, archive = self._server.adapter, self._server.adapter.archive
        names = await archive.run(lambda: archive.store.threads_of(principal.id))
        here = [one for one in adapter.threads if one.principal.id == principal.id]
        threads = {one.chat_id: one for one in (*(adapter.threads.get(principal, name) for name in names), *here)}
        for thread in threads.values():
            await self._actions.delete(thread)
        await archive.erase(principal.id)
        return reply({"principal": principal.id, "deleted": len(threads)})
