"""A caller's threads over HTTP: list, read, rename, archive, delete, follow, answer, stop, steer.

Another principal's thread answers exactly as one that does not exist. On the gateway's loop.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .errors import AguiError
from .feed import Feed, past, position
from .interrupts import describe
from .operation import EVENT_STREAM, operation, parsed, queried
from .principal import Scope
from .replies import millis, reply
from .session import Thread
from .shapes import (
    CLOSED,
    GONE,
    STREAMS,
    TAG,
    Answered,
    EventsQuery,
    Steered,
    SteerText,
    ThreadDeleted,
    ThreadDetail,
    ThreadPatch,
    ThreadPatched,
    ThreadsPage,
    ThreadsQuery,
    ThreadStopped,
)
from .state import for_clients
from .thread_actions import ThreadActions

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server


def add_routes(app: web.Application, server: Server) -> None:
    """Everything under /agui/threads."""
    routes = ThreadRoutes(server)
    one = "/agui/threads/{thread_id}"
    app.router.add_get("/agui/threads", routes.list)
    app.router.add_get(one, routes.get)
    app.router.add_patch(one, routes.patch)
    app.router.add_delete(one, routes.delete)
    app.router.add_get(f"{one}/events", routes.events)
    app.router.add_post(f"{one}/stop", routes.stop)
    app.router.add_post(f"{one}/steer", routes.steer)
    app.router.add_post(f"{one}/requests/{{request_id}}", routes.answer)


async def known(server: Server, request: web.Request, scope: Scope | None = None) -> Thread:
    """The caller's thread of the address. Raises AguiError 404 where it has none of that id."""
    return await ThreadActions(server).known(server.principal(request, scope), request.match_info["thread_id"])


class ThreadRoutes:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._actions = ThreadActions(server)

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    # -- looking ------------------------------------------------------------------------------------------------

    @operation(TAG, query=ThreadsQuery, reply=ThreadsPage)
    async def list(self, request: web.Request) -> web.Response:
        """List the caller's threads, the one used last first."""
        principal = self._server.principal(request)
        await self._actions.ready()
        asked = queried(ThreadsQuery, request.query)
        limit, archived = asked.limit, asked.archived in ("1", "true")
        page, total = await self._adapter.archive.find(
            principal.id, asked.q.strip(), archived=archived, after=cursor(asked.before), limit=limit + 1
        )
        following = page_end(page[limit - 1]) if 0 < limit < len(page) else None
        threads = [self._summary(one) for one in page[:limit]]
        return reply({"threads": threads, "total": total, "next": following})

    def _summary(self, told: dict[str, Any]) -> dict[str, Any]:
        thread = self._adapter.threads.by_chat(told["chat_id"])
        return {
            "threadId": told["thread_id"],
            "title": told["title"],
            "createdAt": millis(told["created"]),
            "updatedAt": millis(told["updated"]),
            "messageCount": told["messages"],
            "archived": told["archived"],
            "status": self._actions.status(thread),
        }

    @operation(TAG, reply=ThreadDetail, errors=GONE)
    async def get(self, request: web.Request) -> web.Response:
        """One thread: its messages, what is open, and the turn that runs now with its newest event's id."""
        thread = await known(self._server, request)
        adapter = self._adapter
        turn = thread.current
        last = turn.log.last if turn is not None else 0
        messages = await adapter.archive.messages(thread, until=last)
        thread.show(messages)
        info = await adapter.archive.info(thread)
        state = turn.state_at(last) if turn is not None else thread.document.value  # as of `lastEventId`
        body = {
            "threadId": thread.thread_id,
            "title": info["title"],
            "createdAt": millis(info["created"]),
            "updatedAt": millis(info["updated"]),
            "archived": info["archived"],
            "status": self._actions.status(thread),
            "messages": messages,
            "turn": {"id": turn.id, "lastEventId": f"{turn.id}.{last}"} if turn is not None else None,
            "requests": [describe(asked) for asked in adapter.requests.open_on(thread)],
            "usage": await self._actions.usage(thread),
            "state": {} if state is None else for_clients(state),
        }
        return reply(body)

    @operation(
        TAG,
        query=EventsQuery,
        reply=str,
        media=EVENT_STREAM,
        errors=(*GONE, *STREAMS),
        takes={"Last-Event-ID": "Where the stream broke off; `after` comes first."},
    )
    async def events(self, request: web.Request) -> web.StreamResponse:
        """Follow a thread as AG-UI events: everything that happens, run after run.

        Without a position a reader gets the conversation as a snapshot, then everything that happens.
        """
        thread = await known(self._server, request)
        wanted = request.query.get("after") or request.headers.get("Last-Event-ID") or ""
        after = position(thread, wanted)
        history = None if after is not None else await past(self._adapter.archive, thread)
        feed = Feed(
            thread,
            self._server.view,
            after=after,
            history=history,
            once=request.query.get("once", "") in ("1", "true"),
            still=lambda: not self._adapter.closing,
        )
        return await self._server.stream(request, feed.chunks())

    # -- changing -----------------------------------------------------------------------------------------------

    @operation(TAG, body=ThreadPatch, reply=ThreadPatched, errors=GONE)
    async def patch(self, request: web.Request) -> web.Response:
        """Rename a thread (`title`) or put it aside (`archived`)."""
        thread = await known(self._server, request)
        asked = parsed(ThreadPatch, await self._server.json(request))
        if asked.title is None and asked.archived is None:
            raise AguiError(422, "invalid_input", "Give a title, archived, or both.")
        title = asked.title.strip() if asked.title else None
        await self._adapter.archive.change(thread, title=title, archived=asked.archived)
        info = await self._adapter.archive.info(thread)
        return reply({"threadId": thread.thread_id, "title": info["title"], "archived": info["archived"]})

    @operation(TAG, reply=ThreadDeleted, errors=GONE)
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a thread with its Hermes session. A turn that runs is stopped first."""
        thread = await known(self._server, request)
        await self._actions.delete(thread)
        return reply({"threadId": thread.thread_id, "deleted": True})

    @operation(TAG, reply=ThreadStopped, errors=GONE)
    async def stop(self, request: web.Request) -> web.Response:
        """Stop the thread's turn at once, running or parked. Idempotent."""
        thread = await known(self._server, request)
        return reply({"threadId": thread.thread_id, "stopped": await self._actions.stop(thread)})

    @operation(
        TAG,
        body=SteerText,
        reply=Steered,
        status=202,
        errors=(*GONE, "run_not_accepting_steer", "command_not_steerable"),
    )
    async def steer(self, request: web.Request) -> web.Response:
        """Give the running turn a text that its model sees with the next tool result; 409 when none takes it.

        Text that comes too late for that is answered in a further turn, as the user's message of that id.
        """
        thread = await known(self._server, request)
        asked = parsed(SteerText, await self._server.json(request))
        turn = self._actions.steer(thread, asked.text, asked.message_id)
        return reply({"threadId": thread.thread_id, "turnId": turn.id, "steered": True}, 202)

    @operation(TAG, body=dict[str, Any], reply=Answered, errors=(*GONE, "no_such_request", "invalid_answer", *CLOSED))
    async def answer(self, request: web.Request) -> web.Response:
        """Answer one open request, with what its `responseSchema` says."""
        principal = self._server.principal(request, "read")  # what is asked decides which scope the answer needs
        thread = await known(self._server, request, "read")
        payload = await self._server.json(request)
        turns, wanted = list(thread.turns.values()), request.match_info["request_id"]
        pending, counted = self._actions.answer(principal, turns, wanted, payload)
        return reply({"requestId": pending.request.id, "status": "answered" if counted else "repeated"})


def page_end(last: dict[str, Any]) -> str:
    """Where the next page begins, by what the last one of this page is: threads move to the front meanwhile."""
    return base64.urlsafe_b64encode(json.dumps([last["updated"], last["thread_id"]]).encode()).decode()


def cursor(text: str) -> tuple[float, str] | None:
    """The opposite; None for the first page. Raises AguiError 422."""
    if not text:
        return None
    try:
        updated, thread_id = json.loads(base64.urlsafe_b64decode(text))
        return float(updated), str(thread_id)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise AguiError(422, "invalid_input", "before must be the `next` of another page.") from None
