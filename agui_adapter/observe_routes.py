"""The gateway's sessions of every platform over HTTP: list, read, watch, copy into a thread, take over in one.

For the holder of the operator's key, and only with ``agui.observe``: to everybody else there is nothing at these
addresses. On the gateway's loop.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .branches import branch
from .errors import AguiError
from .feed import Feed, past, position
from .hermes.actions import Actions
from .hermes.observe import Session
from .observe import session_id
from .operation import EVENT_STREAM, operation, parsed, queried
from .replies import millis, reply
from .run import wait_ready
from .session import Principal, Thread
from .shapes import (
    STREAMS,
    TAG,
    EventsQuery,
    ObservedBranch,
    ObservedBranched,
    ObservedDetail,
    ObservedPage,
    ObservedQuery,
    Resume,
    Resumed,
)

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server


_HIDDEN = ("not_found",)
_ONE = ("not_found", "no_such_session")


def add_routes(app: web.Application, server: Server) -> None:
    """Everything under /agui/sessions."""
    routes = ObserveRoutes(server)
    one = "/agui/sessions/{session_id}"
    app.router.add_get("/agui/sessions", routes.list)
    app.router.add_get(one, routes.get)
    app.router.add_get(f"{one}/events", routes.events)
    app.router.add_post(f"{one}/branch", routes.branch)
    app.router.add_post(f"{one}/resume", routes.resume)


class ObserveRoutes:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    async def _owner(self, request: web.Request) -> Principal:
        principal = self._server.principal(request)
        if self._adapter.observer is None or not principal.trusted:
            raise AguiError(404, "not_found", "There is nothing at this address.")
        await wait_ready(self._adapter, self._server.settings.start_wait_seconds)
        return principal

    async def _session(self, request: web.Request) -> Session:
        wire_id, others = request.match_info["session_id"], self._adapter.others
        found = await self._adapter.archive.run(lambda: others.find(wire_id))
        if found is None:
            raise AguiError(404, "no_such_session", "The gateway has no such session.")
        return found

    async def _thread(self, session: Session) -> Thread:
        """What stands for the session here: a thread of this platform is itself."""
        adapter = self._adapter
        thread = adapter.thread_of(session.key)
        if thread is None and session.platform == "agui":
            thread = await adapter.thread_of_chat(session.chat_id)
            if thread is not None and adapter.key_of(thread) != session.key:
                thread = None  # another profile's chat of the same id
        if thread is not None:
            await adapter.archive.load(thread)
            return thread
        assert adapter.observer is not None
        return adapter.observer.thread(session.key)

    # -- looking ------------------------------------------------------------------------------------------------

    @operation(TAG, query=ObservedQuery, reply=ObservedPage, errors=_HIDDEN)
    async def list(self, request: web.Request) -> web.Response:
        """List the gateway's sessions of every platform, newest first."""
        await self._owner(request)
        asked = queried(ObservedQuery, request.query)
        limit, start = asked.limit, asked.before
        query, platform = asked.q.strip().lower(), asked.platform.strip().lower()
        others = self._adapter.others

        def work() -> tuple[list[Session], int]:
            found = [one for one in others.list() if not platform or one.platform == platform]
            if query:
                found = [one for one in map(others.told, found) if query in _words(one)]
                return found[start : start + limit], len(found)
            return [others.told(one) for one in found[start : start + limit]], len(found)

        page, total = await self._adapter.archive.run(work)
        following = start + limit if start + limit < total else None
        return reply({"sessions": [_summary(one) for one in page], "total": total, "next": following})

    @operation(TAG, reply=ObservedDetail, errors=_ONE)
    async def get(self, request: web.Request) -> web.Response:
        """One session: its messages, and the turn that runs now with its newest event's id."""
        await self._owner(request)
        session = await self._session(request)
        thread = await self._thread(session)
        turn = thread.current
        last = turn.log.last if turn is not None else 0
        messages = await self._adapter.archive.messages(thread, until=last)
        body = _summary(session) | {
            "messages": messages,
            "turn": {"id": turn.id, "lastEventId": f"{turn.id}.{last}"} if turn is not None else None,
        }
        return reply(body)

    @operation(TAG, query=EventsQuery, reply=str, media=EVENT_STREAM, errors=(*_ONE, *STREAMS))
    async def events(self, request: web.Request) -> web.StreamResponse:
        """Watch a session, as a thread's own event feed; what is watched does not notice."""
        await self._owner(request)
        thread = await self._thread(await self._session(request))
        wanted = request.query.get("after") or request.headers.get("Last-Event-ID") or ""
        after = position(thread, wanted)
        history = None if after is not None else await past(self._adapter.archive, thread)
        once = request.query.get("once", "") in ("1", "true")
        feed = Feed(
            thread,
            self._server.view,
            after=after,
            history=history,
            once=once,
            counts=False,
            still=lambda: not self._adapter.closing,
        )
        return await self._server.stream(request, feed.chunks())

    # -- taking part --------------------------------------------------------------------------------------------

    @operation(
        TAG,
        body=ObservedBranch,
        optional=True,
        reply=ObservedBranched,
        status=201,
        errors=(*_ONE, "thread_exists", "nothing_to_branch"),
    )
    async def branch(self, request: web.Request) -> web.Response:
        """Copy the conversation into a thread that was never used."""
        owner = await self._owner(request)
        session = await self._session(request)
        asked = parsed(ObservedBranch, await self._server.json(request, optional=True))
        title = asked.title
        adapter, original, thread = self._adapter, await self._thread(session), self._target(owner, asked.thread_id)
        if thread.current is not None:  # at once: a run that is queued holds the lock
            raise _not_new()
        async with thread.lock:
            if thread.current is not None or await adapter.archive.known(thread):
                raise _not_new()
            source, actions = adapter.source_of(thread), Actions(adapter.gateway_runner, adapter.archive.sessions)
            try:
                made = await adapter.archive.run(
                    lambda: branch(adapter.archive, actions, original, thread, source, title.strip())
                )
            except LookupError:
                adapter.threads.drop(thread)
                raise AguiError(409, "nothing_to_branch", "The session has no conversation yet.") from None
            told = await self._taken(thread)
        return reply(told | {"title": made, "branchedFrom": session.id}, 201)

    @operation(
        TAG,
        body=Resume,
        optional=True,
        reply=Resumed,
        errors=(*_ONE, "same_session", "thread_busy", "cannot_resume"),
    )
    async def resume(self, request: web.Request) -> web.Response:
        """Go on with the session itself in a thread, with its memory and history.

        The session that the thread had before is ended, as ``/resume`` does; it stays in Hermes's database.
        """
        owner = await self._owner(request)
        session = await self._session(request)
        asked = parsed(Resume, await self._server.json(request, optional=True))
        thread = self._target(owner, asked.thread_id)
        adapter = self._adapter
        source, key = adapter.source_of(thread), adapter.key_of(thread)
        if key == session.key:
            raise AguiError(409, "same_session", "This thread is that session.")
        _check_idle(thread)  # at once: a run that is queued holds the lock
        async with thread.lock:
            _check_idle(thread)
            try:
                await adapter.archive.run(lambda: adapter.others.resume(session, key, source))
            except LookupError:
                raise AguiError(409, "cannot_resume", "Hermes did not take the session over; it may be gone.") from None
            told = await self._taken(thread)
        shared = await adapter.archive.run(lambda: adapter.others.shared(key))
        seconds = self._server.settings.shared_request_seconds
        where = ", ".join(_where(one) for one in shared)
        notice = (
            f"This thread and {where} are one session now: while a turn runs or waits for an answer in one of them, "
            f"the other waits. Questions and approvals asked here expire after {seconds:g} seconds."
        )
        return reply(told | {"sharedWith": [_summary(one) for one in shared], "notice": notice if shared else ""})

    def _target(self, owner: Principal, thread_id: str) -> Thread:
        return self._adapter.threads.get(owner, thread_id or str(uuid.uuid4()))

    async def _taken(self, thread: Thread) -> dict[str, Any]:
        """The thread stands on another session now."""
        archive = self._adapter.archive
        await archive.run(lambda: archive.store.touch_thread(thread.chat_id, thread.principal.id, thread.thread_id))
        await archive.reload(thread)
        messages = await archive.messages(thread)
        return {
            "threadId": thread.thread_id,
            "sessionId": session_id(self._adapter.key_of(thread)),
            "messages": messages,
        }


def _not_new() -> AguiError:
    return AguiError(409, "thread_exists", "A branch needs a new thread; leave threadId out to get one.")


def _check_idle(thread: Thread) -> None:
    if thread.current is not None:
        raise AguiError(409, "thread_busy", "This thread is answering a message; wait for its end, or stop it.")


def _summary(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "platform": session.platform,
        "chatType": session.chat_type,
        "chatName": session.chat_name,
        "userName": session.user_name,
        "title": session.title,
        "createdAt": millis(session.created),
        "updatedAt": millis(session.updated),
        "messageCount": session.messages,
        "status": "running" if session.running else "idle",
        "sharedWith": [session_id(key) for key in session.shared],
    }


def _words(session: Session) -> str:
    return " ".join((session.platform, session.chat_name, session.user_name, session.title)).lower()


def _where(session: Session) -> str:
    name = session.chat_name or session.user_name or "a chat"
    return f"{name} on {session.platform}"
