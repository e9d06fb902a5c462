"""Resources: the caller's threads, and each one's transcript; told of when they change, to those who subscribe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ..errors import AguiError
from ..session import Principal, Thread
from . import sdk
from .desk import Desk, Json
from .reading import as_markdown, threads

if TYPE_CHECKING:
    from .sdk import Call

ALL = "hermes://threads"
ONE = "hermes://threads/{thread}"
_PAGE = 50
_MAX_WATCHES = 50
_MARKDOWN = "text/markdown"


def uri_of(thread_id: str) -> str:
    """A thread's address."""
    return f"{ALL}/{quote(thread_id, safe='')}"


async def listed(desk: Desk, call: Call) -> Json:
    """``resources/list``: the list itself, and a page of threads."""
    await desk.ready()
    before = call.params.get("cursor") or ""
    page = await threads(desk, call.caller.principal, limit=_PAGE, before=before)
    found = [] if before else [_LIST]
    for one in page["threads"]:
        title = one["title"] or one["thread"]
        found.append(
            {
                "uri": uri_of(one["thread"]),
                "name": one["thread"],
                "title": title,
                "description": f"Transcript, {one['messages']} messages, {one['status']}",
                "mimeType": _MARKDOWN,
            }
        )
    return {"resources": found, **({"nextCursor": page["next"]} if "next" in page else {})}


_LIST = {
    "uri": ALL,
    "name": "threads",
    "title": "Threads",
    "description": "Your conversations with the agent, newest first.",
    "mimeType": "application/json",
}


async def templates(desk: Desk, call: Call) -> Json:
    """``resources/templates/list``."""
    one = {"uriTemplate": ONE, "name": "thread", "title": "A thread", "description": "Its transcript."}
    return {"resourceTemplates": [one | {"mimeType": _MARKDOWN}]}


async def read(desk: Desk, call: Call) -> Json:
    """``resources/read``."""
    uri = str(call.params["uri"])
    if uri == ALL:
        await desk.ready()
        page = await threads(desk, call.caller.principal, limit=100)
        text, mime = json.dumps(page, ensure_ascii=False, indent=1), "application/json"
    else:
        thread = await _thread(desk, call.caller.principal, uri)
        archive = desk.adapter.archive
        info, messages = await archive.info(thread), await archive.messages(thread)
        text, mime = as_markdown(info["title"] or thread.thread_id, messages), _MARKDOWN
    return {"contents": [{"uri": uri, "mimeType": mime, "text": text}]}


async def _thread(desk: Desk, principal: Principal, uri: str) -> Thread:
    name = uri.removeprefix(f"{ALL}/")
    if name != uri and name:
        try:
            return await desk.thread(principal, unquote(name))
        except AguiError as error:
            if error.status != 404:
                raise
    raise sdk.error(sdk.RESOURCE_NOT_FOUND, f"There is no resource {uri}; `resources/list` lists yours.")


async def subscribe(desk: Desk, call: Call) -> Json:
    """``resources/subscribe``: the session is told whenever something begins or ends on the thread."""
    uri, session = str(call.params["uri"]), call.caller.session
    thread = await _thread(desk, call.caller.principal, uri)
    if uri not in session.watches:
        if len(session.watches) >= _MAX_WATCHES:
            raise sdk.error(sdk.INVALID_PARAMS, f"At most {_MAX_WATCHES} subscriptions of one session.")
        session.watches[uri] = asyncio.create_task(_watch(thread, uri, call.updates), name="agui-mcp-watch")
    return {}


async def unsubscribe(desk: Desk, call: Call) -> Json:
    """``resources/unsubscribe``."""
    watch = call.caller.session.watches.pop(str(call.params["uri"]), None)
    if watch is not None:
        watch.cancel()
    return {}


async def _watch(thread: Thread, uri: str, updated: Callable[[str], Awaitable[None]]) -> None:
    """Until it is cancelled, or the thread is deleted."""
    thread.watchers += 1
    told = _stands(thread)
    try:
        while not thread.gone:
            if (stands := _stands(thread)) != told:  # what happened while the client was being told is told too
                told = stands
                await updated(uri)
                continue
            turn = thread.current
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(thread.changed.wait())]
            if turn is not None:
                waits.append(asyncio.ensure_future(turn.done.wait()))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()
    finally:
        thread.watchers -= 1


def _stands(thread: Thread) -> tuple[str, bool]:
    """The newest turn, and whether it is over."""
    turn = next(reversed(thread.turns.values()), None)
    return (turn.id, turn.done.is_set()) if turn is not None else ("", True)


async def complete(desk: Desk, call: Call) -> Json:
    """``completion/complete``: thread ids for the template."""
    reference, argument = call.params["ref"], call.params["argument"]
    values: list[str] = []
    if reference.get("type") == "ref/resource" and argument.get("name") == "thread":
        await desk.ready()
        page = await threads(desk, call.caller.principal, limit=100)
        begun = argument.get("value") or ""
        values = [one["thread"] for one in page["threads"] if one["thread"].startswith(begun)]
    return {"completion": {"values": values[:100], "total": len(values), "hasMore": len(values) > 100}}
