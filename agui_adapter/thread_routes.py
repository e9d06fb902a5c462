"""A caller's threads over HTTP: list, read, rename, archive, delete, follow, answer, stop, steer.

Another principal's thread answers exactly as one that does not exist. On the gateway's loop.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .answers import tool_answer
from .errors import AguiError
from .feed import Feed, past, position
from .hermes.actions import Actions, is_command
from .inputs import MAX_ID_CHARS
from .interrupts import describe
from .principal import Scope
from .replies import millis, number, reply
from .requests import read_answer
from .run import end_turn, wait_ready
from .session import Thread
from .state import for_clients

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server

PAGE = 50
MAX_PAGE = 200
MAX_TITLE = 200


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
    principal = server.principal(request, scope)
    await wait_ready(server.adapter, server.settings.start_wait_seconds)
    thread: Thread | None = await server.adapter.known_thread(principal, request.match_info["thread_id"])
    if thread is None:
        raise AguiError(404, "no_such_thread", "There is no such thread.")
    return thread


class ThreadRoutes:
    """The routes and what they need."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    # -- looking ------------------------------------------------------------------------------------------------

    async def list(self, request: web.Request) -> web.Response:
        """``?limit=&before=&q=&archived=``: newest first; ``before`` is the ``next`` of the page before."""
        principal = self._server.principal(request)
        await wait_ready(self._adapter, self._server.settings.start_wait_seconds)
        limit = number(request.query.get("limit"), PAGE, MAX_PAGE, "limit")
        after = cursor(request.query.get("before", ""))
        archived = request.query.get("archived", "") in ("1", "true")
        page, total = await self._adapter.archive.find(
            principal.id, request.query.get("q", "").strip(), archived=archived, after=after, limit=limit + 1
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
            "status": self._status(thread),
        }

    def _status(self, thread: Thread | None) -> str:
        turn = thread.current if thread is not None else None
        if turn is None:
            return "idle"
        waits = self._adapter.requests.parked(turn) or self._adapter.holds_only(turn)
        return "parked" if waits else "running"

    async def get(self, request: web.Request) -> web.Response:
        """One thread: its messages, what is open, and the turn that runs now with its newest event's id."""
        thread = await known(self._server, request)
        adapter = self._adapter
        turn = thread.current
        last = turn.log.last if turn is not None else 0
        messages = await adapter.archive.messages(thread, until=last)
        thread.show(messages)
        info = await adapter.archive.info(thread)
        waiting = [asked for one in thread.turns.values() for asked in adapter.requests.open_requests(one)]
        state = turn.state_at(last) if turn is not None else thread.document.value  # as of `lastEventId`
        body = {
            "threadId": thread.thread_id,
            "title": info["title"],
            "createdAt": millis(info["created"]),
            "updatedAt": millis(info["updated"]),
            "archived": info["archived"],
            "status": self._status(thread),
            "messages": messages,
            "turn": {"id": turn.id, "lastEventId": f"{turn.id}.{last}"} if turn is not None else None,
            "requests": [describe(asked) for asked in waiting],
            "usage": await self._usage(thread),
            "state": {} if state is None else for_clients(state),
        }
        return reply(body)

    async def _usage(self, thread: Thread) -> dict[str, Any]:
        archive, bridge = self._adapter.archive, self._adapter.bridge
        key = bridge.session_key(self._adapter.source_of(thread))
        actions, agent = Actions(self._adapter.gateway_runner, archive.sessions), bridge.cached_agent(key)
        return await archive.run(lambda: actions.usage(archive.sessions.session_id(key), agent))

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Follow a thread: ``Last-Event-ID`` or ``?after=`` goes on from there, ``?once=1`` ends with the turn.

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

    async def patch(self, request: web.Request) -> web.Response:
        """Rename (``title``) or put aside (``archived``)."""
        thread = await known(self._server, request)
        body = await self._server.json(request)
        title, archived = body.get("title"), body.get("archived")
        if title is not None and not (isinstance(title, str) and title.strip() and len(title) <= MAX_TITLE):
            raise AguiError(422, "invalid_input", f"title must be a text of 1 to {MAX_TITLE} characters.")
        if archived is not None and not isinstance(archived, bool):
            raise AguiError(422, "invalid_input", "archived must be true or false.")
        if title is None and archived is None:
            raise AguiError(422, "invalid_input", "Give a title, archived, or both.")
        await self._adapter.archive.change(thread, title=title.strip() if title else None, archived=archived)
        info = await self._adapter.archive.info(thread)
        return reply({"threadId": thread.thread_id, "title": info["title"], "archived": info["archived"]})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a thread with its Hermes session. A turn that runs is stopped first."""
        thread = await known(self._server, request)
        async with thread.lock:
            await self._end(thread, "The user deleted the thread.")
            await self._adapter.archive.delete(thread)
            self._adapter.threads.drop(thread)
            for turn in thread.turns.values():  # the sweep, which forgets others, no longer meets them
                self._adapter.requests.forget(turn)
        return reply({"threadId": thread.thread_id, "deleted": True})

    async def stop(self, request: web.Request) -> web.Response:
        """Stop the thread's turn at once, running or parked. Idempotent."""
        thread = await known(self._server, request)
        return reply({"threadId": thread.thread_id, "stopped": await self._end(thread, "The user stopped the turn.")})

    async def _end(self, thread: Thread, reason: str) -> bool:
        turn = thread.current
        if turn is None:
            return False
        await end_turn(self._adapter, turn, self._server.settings.interrupt_wait_seconds, reason)
        return True

    async def steer(self, request: web.Request) -> web.Response:
        """``{text, messageId?}``: the running turn's model sees it with its next tool result; 409 when none takes it.

        Text that comes too late for that is answered in a further turn, as the user's message of that id.
        """
        thread = await known(self._server, request)
        body = await self._server.json(request)
        text = body.get("text")
        if not isinstance(text, str) or not text.strip():
            raise AguiError(422, "invalid_input", "text must be a text that is not empty.")
        message_id = body.get("messageId", "")
        if not isinstance(message_id, str) or len(message_id) > MAX_ID_CHARS:
            raise AguiError(422, "invalid_input", f"messageId must be a text of at most {MAX_ID_CHARS} characters.")
        if is_command(text):  # read by the model it is only text, and as a further turn Hermes throws it away
            raise AguiError(422, "command_not_steerable", "This is a slash command: send it as a message of its own.")
        turn = thread.current
        if turn is None or self._adapter.requests.parked(turn) or not self._adapter.steer(turn, text, message_id):
            raise AguiError(409, "run_not_accepting_steer", "No turn is running that could take it; send a message.")
        return reply({"threadId": thread.thread_id, "turnId": turn.id, "steered": True}, 202)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one open request; 404 unknown, 409 no longer open, 422 a payload that is no answer."""
        principal = self._server.principal(request, "read")  # what is asked decides which scope the answer needs
        thread = await known(self._server, request, "read")
        requests = self._adapter.requests
        pending = requests.find(list(thread.turns.values()), request.match_info["request_id"])
        if pending is None:
            raise AguiError(404, "no_such_request", "There is no such request on this thread.")
        payload = await self._server.json(request)
        if pending.request.kind == "client_tool":
            content, error = payload.get("content", ""), payload.get("error", "")
            if not isinstance(error, str) or not isinstance(content, (str, list)) or not (content or error):
                raise AguiError(422, "invalid_answer", "Answer with content (a text or parts) or error (a text).")
            answer = tool_answer({"content": content, "error": error})
        else:
            answer = read_answer(pending.request, payload, cancelled=payload.get("status") == "cancelled")
        counted = requests.answer(pending, answer, principal)
        requests.still_parked(pending.turn)
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
    except (ValueError, TypeError, OverflowError):
        raise AguiError(422, "invalid_input", "before must be the `next` of another page.") from None
