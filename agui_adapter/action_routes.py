"""What a user does with a thread beside talking, over HTTP: branch, compress, subagents, processes; and the commands.

Thin: `hermes/actions.py` knows how Hermes does it. Another principal's thread, child or process answers exactly as one
that does not exist. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .branches import branch
from .errors import AguiError
from .hermes.actions import Actions
from .inputs import MAX_ID_CHARS
from .principal import Principal
from .replies import reply
from .rights import check_command
from .run import wait_ready
from .session import Thread
from .thread_routes import MAX_TITLE, known

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server

MAX_FOCUS = 2000


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

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @property
    def _actions(self) -> Actions:
        return Actions(self._adapter.gateway_runner, self._adapter.archive.sessions)

    async def _thread(self, request: web.Request, command: str = "") -> Thread:
        """The caller's thread of the address. AguiError 404 where it has none, 403 where it may not ``command``."""
        principal = self._server.principal(request)
        thread = await known(self._server, request)
        if command:
            self._check(principal, command)
            if not self._actions.may(self._adapter.source_of(thread), command):
                raise AguiError(403, "not_allowed", f"The operator does not let you use /{command}.")
        return thread

    def _check(self, principal: Principal, name: str) -> None:
        """Raises AguiError 403 where the principal may not use a command of that name."""
        command = self._adapter.bridge.command(f"/{name}")
        if command is not None:
            check_command(command, principal, self._server.settings.user_commands)

    def _may(self, principal: Principal, name: str) -> bool:
        try:
            self._check(principal, name)
        except AguiError:
            return False
        return True

    def _idle(self, thread: Thread) -> None:
        """Raises AguiError 409 while a turn runs or waits: it would write into what is being changed."""
        turn = thread.current
        if turn is not None and not self._adapter.holds_only(turn):
            raise AguiError(409, "thread_busy", "A turn of this thread is running or waiting; stop it or let it end.")

    def _key(self, thread: Thread) -> str:
        return self._adapter.bridge.session_key(self._adapter.source_of(thread))

    # -- the conversation -----------------------------------------------------------------------------------

    async def branch(self, request: web.Request) -> web.Response:
        """``{title?, threadId?}``: a copy of the conversation as a new thread; this one stays as it is."""
        thread = await self._thread(request, "branch")
        body = await self._server.json(request, optional=True)
        title, wanted = body.get("title"), body.get("threadId")
        if title is not None and not (isinstance(title, str) and title.strip() and len(title) <= MAX_TITLE):
            raise AguiError(422, "invalid_input", f"title must be a text of 1 to {MAX_TITLE} characters.")
        if wanted is not None and not (isinstance(wanted, str) and wanted.strip() and len(wanted) <= MAX_ID_CHARS):
            raise AguiError(422, "invalid_input", f"threadId must be a text of 1 to {MAX_ID_CHARS} characters.")
        adapter, new_id = self._adapter, wanted or f"thread-{uuid.uuid4().hex}"
        # Before any lock is taken: two threads branched into each other would wait for each other for ever.
        if await adapter.known_thread(thread.principal, new_id) is not None:
            raise _taken()
        async with thread.lock:
            self._idle(thread)
            new = adapter.threads.get(thread.principal, new_id)
            async with new.lock:
                if new.current is not None or await adapter.archive.known(new):
                    raise _taken()
                source, actions = adapter.source_of(new), self._actions
                try:
                    made = await adapter.archive.run(
                        lambda: branch(adapter.archive, actions, thread, new, source, (title or "").strip())
                    )
                except LookupError:
                    adapter.threads.drop(new)
                    raise AguiError(409, "nothing_to_branch", "This thread has no conversation to copy yet.") from None
                new.loaded = False  # what is there now is read when the thread is used
        return reply({"threadId": new_id, "title": made, "branchedFrom": thread.thread_id}, 201)

    async def compress(self, request: web.Request) -> web.Response:
        """``{focus?}``: sum up the conversation for the model, as ``/compress`` does; people still see all of it."""
        thread = await self._thread(request, "compress")
        body = await self._server.json(request, optional=True)
        focus = body.get("focus", "")
        if not isinstance(focus, str) or len(focus) > MAX_FOCUS:
            raise AguiError(422, "invalid_input", f"focus must be a text of at most {MAX_FOCUS} characters.")
        adapter, actions = self._adapter, self._actions
        key, source = self._key(thread), adapter.source_of(thread)
        sessions = adapter.archive.sessions
        async with thread.lock:
            self._idle(thread)
            before = await adapter.archive.run(lambda: sessions.last_row(sessions.session_id(key)))
            if not before:
                raise AguiError(409, "nothing_to_compress", "This thread has no conversation to sum up yet.")
            said = await actions.compress(source, focus)
            after = await adapter.archive.run(lambda: sessions.last_row(sessions.session_id(key)))
            thread.last_row = max(thread.last_row, after)  # the summary and its copies are no rows of the next turn
        return reply({"threadId": thread.thread_id, "compressed": after != before, "text": said})

    # -- subagents ------------------------------------------------------------------------------------------

    async def _sessions_of(self, thread: Thread) -> list[str]:
        archive, key = self._adapter.archive, self._key(thread)

        return await archive.run(lambda: archive.sessions.lineage(archive.sessions.session_id(key)))

    async def subagents(self, request: web.Request) -> web.Response:
        """The running children of this thread."""
        thread = await self._thread(request)
        found = self._actions.subagents(await self._sessions_of(thread))
        return reply({"subagents": [self._shown(one, "goal", "lastTool") for one in found]})

    async def stop_subagent(self, request: web.Request) -> web.Response:
        """Ask a running child to end at its next step."""
        thread, subagent_id = await self._thread(request), request.match_info["subagent_id"]
        if not self._actions.stop_subagent(await self._sessions_of(thread), subagent_id):
            raise _no_child()
        return reply({"subagentId": subagent_id, "stopping": True}, 202)

    async def steer_subagent(self, request: web.Request) -> web.Response:
        """``{text}``: the child's model sees it with its next tool result."""
        thread, subagent_id = await self._thread(request), request.match_info["subagent_id"]
        text = (await self._server.json(request)).get("text")
        if not isinstance(text, str) or not text.strip():
            raise AguiError(422, "invalid_input", "text must be a text that is not empty.")
        if not self._actions.steer_subagent(await self._sessions_of(thread), subagent_id, text):
            raise _no_child()
        return reply({"subagentId": subagent_id, "steered": True}, 202)

    # -- processes ------------------------------------------------------------------------------------------

    async def processes(self, request: web.Request) -> web.Response:
        """The background processes of this thread, running and lately ended."""
        thread = await self._thread(request)
        key, actions = self._key(thread), self._actions
        found = await asyncio.to_thread(actions.processes, key)
        return reply({"processes": [self._shown(one, "command", "cwd", "output") for one in found]})

    async def stop_process(self, request: web.Request) -> web.Response:
        """End a background process. One that has ended already is no error."""
        thread, process_id = await self._thread(request), request.match_info["process_id"]
        key, actions = self._key(thread), self._actions
        result = await asyncio.to_thread(actions.stop_process, key, process_id)
        if result is None:
            raise AguiError(404, "no_such_process", "There is no such process on this thread.")
        if result.get("status") == "error":
            raise AguiError(409, "not_stopped", f"Hermes could not end it: {result.get('error')}")
        told = {
            "processId": process_id,
            "stopped": result.get("status") == "killed",
            "output": str(result.get("output") or ""),
        }
        return reply(self._shown(told, "output"))

    # -- commands -------------------------------------------------------------------------------------------

    async def commands(self, request: web.Request) -> web.Response:
        """The slash commands that this caller may use; each is sent as a message."""
        principal = self._server.principal(request)
        await wait_ready(self._adapter, self._server.settings.start_wait_seconds)
        nobody = Thread.of(principal, "")
        source, actions = self._adapter.source_of(nobody), self._actions
        told = await asyncio.to_thread(actions.commands, source)
        return reply({"commands": [one for one in told if self._may(principal, one["name"])]})

    # -- answers --------------------------------------------------------------------------------------------

    def _shown(self, told: dict[str, Any], *private: str) -> dict[str, Any]:
        """Without what tools read and do, where the operator hides that from clients (``agui.tool_output``)."""
        if self._server.settings.tool_output == "full":
            return told
        return {name: value for name, value in told.items() if name not in private}


def _taken() -> AguiError:
    return AguiError(409, "thread_exists", "You have a thread of this threadId already; choose another.")


def _no_child() -> AguiError:
    return AguiError(404, "no_such_subagent", "No such subagent of this thread is running.")
