"""`/api/sessions`: a caller's threads as Hermes's own api_server names them, with what can be done to one.

A session's id is the thread's: whoever talks through another door finds the same conversation here. Another's session
answers exactly as one that does not exist. What may be done when is in ``thread_actions``. On the gateway's loop.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..archive import Archive
from ..errors import AguiError
from ..operation import operation, parsed, queried
from ..replies import reply
from ..session import Principal, Thread
from ..thread_actions import ThreadActions
from ..user_rows import Cut, cut_at, nothing_named, rewind, user_rows
from . import models as m

if TYPE_CHECKING:
    from ..adapter import AguiAdapter
    from ..server import Server

TAG = "sessions"
GONE = ("session_not_found",)
_CREATE = ("session_exists", "not_authorized")


def add_routes(app: web.Application, server: Server) -> None:
    """Everything under /api/sessions but talking."""
    routes = SessionRoutes(server)
    one = "/api/sessions/{session_id}"
    app.router.add_get("/api/sessions", routes.list)
    app.router.add_post("/api/sessions", routes.create)
    app.router.add_get(one, routes.get)
    app.router.add_patch(one, routes.patch)
    app.router.add_delete(one, routes.delete)
    app.router.add_get(f"{one}/messages", routes.messages)
    app.router.add_get(f"{one}/usage", routes.usage)
    app.router.add_post(f"{one}/fork", routes.fork)
    app.router.add_post(f"{one}/compress", routes.compress)
    app.router.add_post(f"{one}/rewind", routes.rewind)
    app.router.add_post(f"{one}/stop", routes.stop)
    app.router.add_post(f"{one}/steer", routes.steer)
    app.router.add_post(f"{one}/requests/{{request_id}}", routes.answer)
    app.router.add_get(f"{one}/subagents", routes.subagents)
    app.router.add_post(f"{one}/subagents/{{subagent_id}}/stop", routes.stop_subagent)
    app.router.add_post(f"{one}/subagents/{{subagent_id}}/steer", routes.steer_subagent)
    app.router.add_get(f"{one}/delegation", routes.delegation)
    app.router.add_get(f"{one}/processes", routes.processes)
    app.router.add_post(f"{one}/processes/{{process_id}}/stop", routes.stop_process)


async def session_of(server: Server, request: web.Request, principal: Principal) -> Thread:
    """The caller's session of the address. AguiError 404 where it has none."""
    thread = await ThreadActions(server).find(principal, request.match_info["session_id"])
    if thread is None:
        raise AguiError(404, "session_not_found", "There is no such session.")
    return thread


class SessionRoutes:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._actions = ThreadActions(server)

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    async def _session(self, request: web.Request, command: str = "") -> Thread:
        principal = self._server.principal(request)
        thread = await session_of(self._server, request, principal)
        if command:
            self._actions.check_may(principal, thread, command)
        return thread

    async def _body(self, request: web.Request) -> dict[str, Any]:
        return await self._server.json(request, optional=True)

    # -- looking --------------------------------------------------------------------------------------------

    @operation(TAG, query=m.SessionsQuery, reply=m.SessionsPage)
    async def list(self, request: web.Request) -> web.Response:
        """List the caller's sessions, the one used last first."""
        principal = self._server.principal(request)
        asked = queried(m.SessionsQuery, request.query)
        await self._actions.ready()
        found, total = await self._adapter.archive.find(
            principal.id, asked.q.strip(), archived=asked.archived, skip=asked.offset, limit=asked.limit
        )
        return reply(
            {
                "object": "list",
                "data": [self._info(one) for one in found],
                "total": total,
                "limit": asked.limit,
                "offset": asked.offset,
                "has_more": asked.offset + len(found) < total,
            }
        )

    def _info(self, told: dict[str, Any]) -> dict[str, Any]:
        status = self._actions.status(self._adapter.threads.by_chat(told["chat_id"]))
        return {
            "id": told["thread_id"],
            "source": "agui",
            "title": told["title"],
            "started_at": told["created"],
            "last_active": told["updated"],
            "message_count": told["messages"],
            "archived": told["archived"],
            "status": "waiting" if status == "parked" else status,
        }

    async def _detail(self, thread: Thread) -> dict[str, Any]:
        adapter, turn = self._adapter, thread.current
        return {
            **self._info(await adapter.archive.info(thread)),
            "run_id": turn.id if turn is not None else None,
            "requests": [m.request_info(one) for one in adapter.requests.open_on(thread)],
            "usage": m.session_usage(await self._actions.usage(thread)),
        }

    @operation(TAG, reply=m.SessionReply, errors=GONE)
    async def get(self, request: web.Request) -> web.Response:
        """Read one session: its status, what waits for an answer, what it has used."""
        return await self._told(await self._session(request))

    async def _told(self, thread: Thread, status: int = 200, **more: Any) -> web.Response:
        return reply({"object": "hermes.session", "session": await self._detail(thread), **more}, status)

    @operation(TAG, reply=m.MessagesPage, errors=GONE)
    async def messages(self, request: web.Request) -> web.Response:
        """Read the whole conversation of a session, with what the turn that runs now has said so far."""
        thread = await self._session(request)
        found = await self._adapter.archive.messages(thread)
        rows = {row.message_id: row.row_id for row in await user_rows(self._adapter.archive, thread)}
        data = messages_of(thread.thread_id, found, rows)
        return reply({"object": "list", "session_id": thread.thread_id, "data": data})

    @operation(TAG, reply=m.UsageReply, errors=GONE)
    async def usage(self, request: web.Request) -> web.Response:
        """Tokens, model calls and cost of a session, and how full its context is."""
        thread = await self._session(request)
        used = m.session_usage(await self._actions.usage(thread))
        return reply({"session_id": thread.thread_id, "usage": used})

    # -- changing -------------------------------------------------------------------------------------------

    @operation(TAG, body=m.SessionCreate, optional=True, reply=m.SessionReply, status=201, errors=_CREATE)
    async def create(self, request: web.Request) -> web.Response:
        """Create an empty session, so that it is in lists before the first message. Talking to a new id needs none."""
        principal = self._server.principal(request)
        asked = parsed(m.SessionCreate, await self._body(request))
        wanted = asked.id or asked.session_id or f"session-{uuid.uuid4().hex}"
        if await self._actions.find(principal, wanted) is not None:
            raise _exists()
        thread = self._adapter.threads.get(principal, wanted)
        if not self._adapter.lets_in(thread):
            raise AguiError(403, "not_authorized", "The gateway's rules do not let you use the agent (yet).")
        async with thread.lock:
            if thread.current is not None or await self._adapter.archive.known(thread):
                raise _exists()
            await self._adapter.archive.create(thread, asked.title or "", asked.system_prompt or "")
        return await self._told(thread, 201)

    @operation(TAG, body=m.SessionPatch, reply=m.SessionReply, errors=GONE)
    async def patch(self, request: web.Request) -> web.Response:
        """Rename a session (`title`) or put it aside (`archived`)."""
        thread = await self._session(request)
        asked = parsed(m.SessionPatch, await self._server.json(request))
        if asked.title is None and asked.archived is None:
            raise AguiError(422, "invalid_input", "Give a title, archived, or both.")
        title = asked.title.strip() if asked.title else None
        await self._adapter.archive.change(thread, title=title, archived=asked.archived)
        return await self._told(thread)

    @operation(TAG, reply=m.SessionDeleted, errors=GONE)
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a session, here and in Hermes. A turn that runs is stopped first."""
        thread = await self._session(request)
        await self._actions.delete(thread)
        return reply({"object": "hermes.session.deleted", "id": thread.thread_id, "deleted": True})

    @operation(
        TAG,
        body=m.Fork,
        optional=True,
        reply=m.ForkReply,
        status=201,
        errors=(*GONE, "session_exists", "nothing_to_branch", "thread_busy", "not_allowed"),
    )
    async def fork(self, request: web.Request) -> web.Response:
        """Copy a session into a new one; the original stays as it is."""
        thread = await self._session(request, "branch")
        asked = parsed(m.Fork, await self._body(request))
        wanted = asked.id or asked.session_id or f"session-{uuid.uuid4().hex}"
        try:
            await self._actions.branch(thread, wanted, asked.title or "")
        except AguiError as error:
            raise (_exists() if error.code == "thread_exists" else error) from None
        made = await self._actions.known(thread.principal, wanted)
        return await self._told(made, 201, forked_from=thread.thread_id)

    @operation(
        TAG,
        body=m.Compress,
        optional=True,
        reply=m.CompressReply,
        errors=(*GONE, "thread_busy", "nothing_to_compress", "not_allowed"),
    )
    async def compress(self, request: web.Request) -> web.Response:
        """Sum up the conversation for the model, as `/compress` does; people still see all of it."""
        thread = await self._session(request, "compress")
        asked = parsed(m.Compress, await self._body(request))
        compressed, said = await self._actions.compress(thread, asked.focus)
        return reply({"session_id": thread.thread_id, "compressed": compressed, "text": said})

    @operation(TAG, body=m.Truncation, reply=m.RewindReply, errors=(*GONE, *m.TRUNCATION_ERRORS, "thread_busy"))
    async def rewind(self, request: web.Request) -> web.Response:
        """Take back a turn of the user's and all behind it. Must be confirmed; the next message goes on from there."""
        thread = await self._session(request)
        asked = m.truncation(m.Truncation, await self._server.json(request))
        archive = self._adapter.archive
        self._actions.check_idle(thread)  # at once: a run that is queued holds the lock
        async with thread.lock:
            cut = await meant(self._actions, archive, thread, asked)
            if cut is None:
                raise nothing_named()
            undone, left = await rewind(archive, thread, cut)
        return reply({"session_id": thread.thread_id, "turns_undone": undone, "survivor_user_row_ids": left})

    # -- the turn that runs -----------------------------------------------------------------------------------

    @operation(TAG, reply=m.StopReply, errors=GONE)
    async def stop(self, request: web.Request) -> web.Response:
        """Stop the session's turn at once, running or waiting. Idempotent."""
        thread = await self._session(request)
        return reply({"session_id": thread.thread_id, "stopped": await self._actions.stop(thread)})

    @operation(
        TAG,
        body=m.Steer,
        reply=m.SteerReply,
        status=202,
        errors=(*GONE, "run_not_accepting_steer", "command_not_steerable"),
    )
    async def steer(self, request: web.Request) -> web.Response:
        """Give the running turn a text that its model sees with the next tool result.

        One that comes too late for that is answered in a further turn.
        """
        thread = await self._session(request)
        asked = parsed(m.Steer, await self._server.json(request))
        turn = self._actions.steer(thread, m.steered(asked), asked.message_id)
        return reply({"session_id": thread.thread_id, "run_id": turn.id, "status": "steered"}, 202)

    @operation(
        TAG,
        body=m.AnswerBody,
        reply=m.Answered,
        errors=(*GONE, "no_such_request", "invalid_answer", *m.CLOSED_ERRORS),
    )
    async def answer(self, request: web.Request) -> web.Response:
        """Answer what the session's turn waits for; the same turn goes on."""
        principal = self._server.principal(request, "read")  # what is asked decides which scope the answer needs
        thread = await session_of(self._server, request, principal)
        asked = parsed(m.AnswerBody, await self._server.json(request))
        turns, wanted = list(thread.turns.values()), request.match_info["request_id"]
        pending, counted = self._actions.answer(principal, turns, wanted, asked.payload())
        return reply({"request_id": pending.request.id, "status": "answered" if counted else "repeated"})

    # -- subagents and processes --------------------------------------------------------------------------------

    @operation(TAG, reply=m.SubagentsReply, errors=GONE)
    async def subagents(self, request: web.Request) -> web.Response:
        """The running children of a session."""
        thread = await self._session(request)
        found = [m.subagent_info(one) for one in await self._actions.subagents(thread)]
        return reply({"session_id": thread.thread_id, "data": found})

    @operation(TAG, reply=m.DelegationReply, errors=GONE)
    async def delegation(self, request: web.Request) -> web.Response:
        """The session's children, and whether and how far Hermes delegates at all."""
        thread = await self._session(request)
        found = [m.subagent_info(one) for one in await self._actions.subagents(thread)]
        return reply({"session_id": thread.thread_id, "active": found, **self._actions.delegation()})

    @operation(TAG, reply=m.SubagentReply, status=202, errors=(*GONE, "no_such_subagent"))
    async def stop_subagent(self, request: web.Request) -> web.Response:
        """Ask a running child to end at its next step."""
        thread, subagent_id = await self._session(request), request.match_info["subagent_id"]
        await self._actions.stop_subagent(thread, subagent_id)
        return reply({"subagent_id": subagent_id, "status": "stopping"}, 202)

    @operation(TAG, body=m.Steer, reply=m.SubagentReply, status=202, errors=(*GONE, "no_such_subagent"))
    async def steer_subagent(self, request: web.Request) -> web.Response:
        """Give a running child a text that its model sees with its next tool result."""
        thread, subagent_id = await self._session(request), request.match_info["subagent_id"]
        asked = parsed(m.Steer, await self._server.json(request))
        await self._actions.steer_subagent(thread, subagent_id, m.steered(asked))
        return reply({"subagent_id": subagent_id, "status": "steered"}, 202)

    @operation(TAG, reply=m.ProcessesReply, errors=GONE)
    async def processes(self, request: web.Request) -> web.Response:
        """The background processes of a session, running and lately ended."""
        thread = await self._session(request)
        found = [m.process_info(one) for one in await self._actions.processes(thread)]
        return reply({"session_id": thread.thread_id, "data": found})

    @operation(TAG, reply=m.ProcessStopped, errors=(*GONE, "no_such_process", "not_stopped"))
    async def stop_process(self, request: web.Request) -> web.Response:
        """End a background process. One that has ended already is no error."""
        thread, process_id = await self._session(request), request.match_info["process_id"]
        return reply({"process_id": process_id, **await self._actions.stop_process(thread, process_id)})


async def meant(actions: ThreadActions, archive: Archive, thread: Thread, asked: m.Truncation) -> Cut | None:
    """What a body asks to take back, of an idle thread; None where it asks for nothing. Nothing is done yet."""
    cut = cut_at(
        await user_rows(archive, thread),
        ordinal=asked.truncate_before_user_ordinal,
        row_id=asked.truncate_before_row_id,
        confirmed=asked.confirm_truncate,
        confirmed_empty=asked.confirm_empty_truncate,
    )
    if cut is not None:
        actions.check_idle(thread)
    return cut


def messages_of(session_id: str, found: list[dict[str, Any]], rows: dict[str, int | None]) -> list[dict[str, Any]]:
    """AG-UI's messages under Hermes's names; reasoning goes with the answer that it stands before. Pure."""
    made: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for message in found:
        role = message["role"]
        if role == "reasoning":
            reasoning.append(str(message.get("content") or ""))
            continue
        if role not in ("user", "assistant", "tool", "system"):
            continue
        told = {"id": message["id"], "session_id": session_id, "role": role, "content": message.get("content") or ""}
        if role == "user":
            told["row_id"] = rows.get(message["id"])
        if message.get("toolCalls"):
            told["tool_calls"] = message["toolCalls"]
        if role == "tool":
            told["tool_call_id"] = message["toolCallId"]
        if role == "assistant" and reasoning:
            told["reasoning"], reasoning = "\n\n".join(reasoning), []
        made.append(told)
    return made


def _exists() -> AguiError:
    return AguiError(409, "session_exists", "You have a session of this id already; choose another.")
