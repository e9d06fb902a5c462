"""What a user does with a thread beside talking, over HTTP: branch, compress, subagents, processes; and the commands.

Thin: `thread_actions.py` does it. Another principal's thread, child or process answers exactly as one
that does not exist. On the gateway's loop.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from aiohttp import web

from .operation import operation, parsed
from .replies import reply
from .session import Thread
from .shapes import (
    COMMAND,
    GONE,
    TAG,
    Branch,
    Branched,
    Commands,
    Compress,
    Compressed,
    ProcessEnded,
    Processes,
    SubagentAsked,
    Subagents,
    SubagentText,
)
from .thread_actions import ThreadActions
from .thread_routes import known

if TYPE_CHECKING:
    from .server import Server


def add_routes(app: web.Application, server: Server) -> None:
    """Everything a thread can be made to do, and what can be typed."""
    routes = ActionRoutes(server)
    one = "/agui/threads/{thread_id}"
    app.router.add_get("/agui/commands", routes.commands)
    app.router.add_post(f"{one}/branch", routes.branch)
    app.router.add_post(f"{one}/compress", routes.compress)
    app.router.add_get(f"{one}/subagents", routes.subagents)
    app.router.add_post(f"{one}/subagents/{{subagent_id}}/stop", routes.stop_subagent)
    app.router.add_post(f"{one}/subagents/{{subagent_id}}/steer", routes.steer_subagent)
    app.router.add_get(f"{one}/processes", routes.processes)
    app.router.add_post(f"{one}/processes/{{process_id}}/stop", routes.stop_process)


class ActionRoutes:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._actions = ThreadActions(server)

    async def _thread(self, request: web.Request, command: str = "") -> Thread:
        """The caller's thread of the address. AguiError 404 where it has none, 403 where it may not ``command``."""
        principal = self._server.principal(request)
        thread = await known(self._server, request)
        if command:
            self._actions.check_may(principal, thread, command)
        return thread

    # -- the conversation -----------------------------------------------------------------------------------

    @operation(
        TAG,
        body=Branch,
        optional=True,
        reply=Branched,
        status=201,
        errors=(*GONE, *COMMAND, "thread_exists", "thread_busy", "nothing_to_branch"),
    )
    async def branch(self, request: web.Request) -> web.Response:
        """Copy the conversation into a new thread; this one stays as it is."""
        thread = await self._thread(request, "branch")
        asked = parsed(Branch, await self._server.json(request, optional=True))
        new_id = asked.thread_id or f"thread-{uuid.uuid4().hex}"
        made = await self._actions.branch(thread, new_id, asked.title or "")
        return reply({"threadId": new_id, "title": made, "branchedFrom": thread.thread_id}, 201)

    @operation(
        TAG,
        body=Compress,
        optional=True,
        reply=Compressed,
        errors=(*GONE, *COMMAND, "thread_busy", "nothing_to_compress"),
    )
    async def compress(self, request: web.Request) -> web.Response:
        """Sum up the conversation for the model, as `/compress` does; people still see all of it."""
        thread = await self._thread(request, "compress")
        asked = parsed(Compress, await self._server.json(request, optional=True))
        compressed, said = await self._actions.compress(thread, asked.focus)
        return reply({"threadId": thread.thread_id, "compressed": compressed, "text": said})

    # -- subagents ------------------------------------------------------------------------------------------

    @operation(TAG, reply=Subagents, errors=GONE)
    async def subagents(self, request: web.Request) -> web.Response:
        """The running children of a thread."""
        return reply({"subagents": await self._actions.subagents(await self._thread(request))})

    @operation(TAG, reply=SubagentAsked, status=202, errors=(*GONE, "no_such_subagent"))
    async def stop_subagent(self, request: web.Request) -> web.Response:
        """Ask a running child to end at its next step."""
        thread, subagent_id = await self._thread(request), request.match_info["subagent_id"]
        await self._actions.stop_subagent(thread, subagent_id)
        return reply({"subagentId": subagent_id, "stopping": True}, 202)

    @operation(TAG, body=SubagentText, reply=SubagentAsked, status=202, errors=(*GONE, "no_such_subagent"))
    async def steer_subagent(self, request: web.Request) -> web.Response:
        """Give a running child a text that its model sees with its next tool result."""
        thread, subagent_id = await self._thread(request), request.match_info["subagent_id"]
        asked = parsed(SubagentText, await self._server.json(request))
        await self._actions.steer_subagent(thread, subagent_id, asked.text)
        return reply({"subagentId": subagent_id, "steered": True}, 202)

    # -- processes ------------------------------------------------------------------------------------------

    @operation(TAG, reply=Processes, errors=GONE)
    async def processes(self, request: web.Request) -> web.Response:
        """The background processes of a thread, running and lately ended."""
        return reply({"processes": await self._actions.processes(await self._thread(request))})

    @operation(TAG, reply=ProcessEnded, errors=(*GONE, "no_such_process", "not_stopped"))
    async def stop_process(self, request: web.Request) -> web.Response:
        """End a background process. One that has ended already is no error."""
        thread, process_id = await self._thread(request), request.match_info["process_id"]
        return reply({"processId": process_id, **await self._actions.stop_process(thread, process_id)})

    # -- commands -------------------------------------------------------------------------------------------

    @operation(TAG, reply=Commands)
    async def commands(self, request: web.Request) -> web.Response:
        """The slash commands that this caller may use; each is sent as a message."""
        return reply({"commands": await self._actions.commands(self._server.principal(request))})
