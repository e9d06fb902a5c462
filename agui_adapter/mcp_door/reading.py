"""Threads as other agents read them: lists, transcripts, steps. On the gateway's loop."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..errors import AguiError
from ..interrupts import iso
from ..reconcile import text_of
from ..session import Principal, Thread, Turn
from ..stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageRevised,
    RequestClosed,
    RequestOpened,
    StreamEvent,
    SubagentFailed,
    SubagentFinished,
    SubagentStarted,
    ToolCall,
    ToolResult,
    TurnFinished,
)
from ..thread_routes import cursor, page_end
from .desk import Desk, Json, request_of, short

_TEXT_CHARS = 20_000  # of one message of a transcript


# -- threads -----------------------------------------------------------------------------------------------------


async def threads(
    desk: Desk, principal: Principal, *, query: str = "", limit: int = 20, before: str = "", archived: bool = False
) -> Json:
    """A page of the caller's threads, newest first; ``before`` is the ``next`` of the page before."""
    archive = desk.adapter.archive
    page, total = await archive.find(
        principal.id, query.strip(), archived=archived, after=cursor(before), limit=limit + 1
    )
    shown = page[:limit]
    told: Json = {"threads": [_summary(desk, one) for one in shown], "total": total}
    if len(page) > limit:
        told["next"] = page_end(shown[-1])
    return told


def _summary(desk: Desk, told: Json) -> Json:
    thread = desk.adapter.threads.by_chat(told["chat_id"])
    turn = thread.current if thread is not None else None
    status = "idle" if turn is None else "needs_answer" if desk.parked(turn) else "running"
    return {
        "thread": told["thread_id"],
        "title": told["title"],
        "messages": told["messages"],
        "updated": iso(told["updated"]),
        "status": status,
    }


async def branch(desk: Desk, principal: Principal, thread: Thread, title: str) -> Json:
    """Copy a thread into a new one. Raises AguiError 403, and 409 while it runs or has nothing to copy."""
    desk.actions.check_may(principal, thread, "branch")
    new_id = f"mcp-{uuid.uuid4().hex[:12]}"
    made = await desk.actions.branch(thread, new_id, title)
    return {"thread": new_id, "title": made, "branched_from": thread.thread_id}


# -- messages ----------------------------------------------------------------------------------------------------


async def history(desk: Desk, thread: Thread, limit: int, before: str = "") -> Json:
    """The newest messages, oldest first; ``before``: only those before the message of this id."""
    found = [message for message in await desk.adapter.archive.messages(thread) if message["role"] in _ROLES]
    if before:
        place = next((n for n, message in enumerate(found) if message["id"] == before), None)
        if place is None:
            raise AguiError(404, "no_such_message", "`before` names no message of this thread.")
        found = found[:place]
    shown = found[-limit:]
    told: Json = {"thread": thread.thread_id, "messages": [_message(one) for one in shown], "total": len(found)}
    if len(found) > limit:
        told["before"] = shown[0]["id"]
    return told


_ROLES = ("user", "assistant", "tool")


def _message(message: Json) -> Json:
    told: Json = {"id": message["id"], "role": message["role"]}
    text = text_of(message.get("content") or "")
    if text:
        told["text"] = short(text) if message["role"] == "tool" else short(text, _TEXT_CHARS)
    if message["role"] == "tool":
        told["call"] = message["toolCallId"]
    if message.get("toolCalls"):
        told["tool_calls"] = [
            {"id": one["id"], "name": one["function"]["name"], "arguments": short(one["function"]["arguments"])}
            for one in message["toolCalls"]
        ]
    return told


def as_markdown(title: str, messages: Sequence[Json]) -> str:
    """A transcript for people and models."""
    lines = [f"# {title}" if title else "# Thread"]
    for message in messages:
        text = text_of(message.get("content") or "")
        if message["role"] == "tool":
            lines.append(f"**Result**\n\n```\n{short(text)}\n```")
            continue
        if message["role"] not in _ROLES:
            continue
        lines.append(f"## {'User' if message['role'] == 'user' else 'Agent'}")
        if text:
            lines.append(short(text, _TEXT_CHARS))
        for one in message.get("toolCalls") or ():
            lines.append(f"**{one['function']['name']}** `{short(one['function']['arguments'], 500)}`")
    return "\n\n".join(lines) + "\n"


# -- steps -------------------------------------------------------------------------------------------------------


async def events(desk: Desk, thread: Thread, after: str, limit: int, wait: float) -> Json:
    """What happens on a thread behind ``after``, turn after turn; ``next`` goes on from there."""
    deadline = time.monotonic() + wait
    turn, position = _place(thread, after)
    told: list[Json] = []
    while True:
        while turn is not None and len(told) < limit:
            batch = turn.log.take(position)
            for number, event in batch.events:
                position = number
                if batch.gap and number == batch.events[0][0] and isinstance(event, MessageChunk):
                    told.append({"type": "revised", "text": event.text})  # with what the reader has of it already
                else:
                    _add(desk, told, event)
                if len(told) >= limit:
                    break
            later = _following(thread, turn) if turn.log.closed and position >= turn.log.last else None
            if later is None:
                break
            turn, position = later, 0
        left = deadline - time.monotonic()
        if told or left <= 0:
            break
        with suppress(TimeoutError):
            running = turn is not None and not turn.log.closed
            more = turn.log.read(position) if turn is not None and running else thread.changed.wait()
            await asyncio.wait_for(more, left)
        if turn is None:
            turn, position = _place(thread, "")
    return {"thread": thread.thread_id, "events": told, "next": f"{turn.id}.{position}" if turn is not None else ""}


def _place(thread: Thread, after: str) -> tuple[Turn | None, int]:
    if not after:
        return thread.current or next(reversed(thread.turns.values()), None), 0
    turn_id, _, number = after.rpartition(".")
    turn = thread.turns.get(turn_id)
    if turn is None or not (number.isascii() and number.isdigit()) or len(number) > 12:
        message = "`after` is no longer known; read `history`, then call `events` without it."
        raise AguiError(409, "position_gone", message)
    return turn, int(number)


def _following(thread: Thread, turn: Turn) -> Turn | None:
    ids = list(thread.turns)
    behind = ids[ids.index(turn.id) + 1 :] if turn.id in ids else []
    return thread.turns[behind[0]] if behind else None


def _add(desk: Desk, told: list[Json], event: StreamEvent) -> None:
    shown = desk.settings.tool_output
    if isinstance(event, MessageChunk | Commentary):
        if told and told[-1]["type"] == "text":
            told[-1]["text"] += event.text
        else:
            told.append({"type": "text", "text": event.text})
    elif isinstance(event, MessageRevised):
        told.append({"type": "revised", "text": event.text})
    elif isinstance(event, ToolCall | ToolResult):
        if shown == "off":
            return
        calls = isinstance(event, ToolCall)
        one: Json = {"type": "tool_call" if calls else "tool_result", "id": event.call_id, "name": event.tool_name}
        if isinstance(event, ToolResult):
            one["status"] = event.status
        if shown == "full":
            text = event.arguments if isinstance(event, ToolCall) else event.content
            one["arguments" if calls else "result"] = short(text)
        told.append(one)
    else:
        told.extend(_others(event))


def _others(event: Any) -> list[Json]:
    if isinstance(event, RequestOpened):
        return [{"type": "request", **request_of(event.request)}]
    if isinstance(event, RequestClosed):
        return [{"type": "request_closed", "id": event.request_id, "how": event.how, "choice": event.choice}]
    if isinstance(event, GatewayNotice):
        return [{"type": "notice", "text": event.text}]
    if isinstance(event, Attachment):
        return [{"type": "file", "uri": event.url, "name": event.name, "mimeType": event.mime}]
    if isinstance(event, SubagentStarted):
        return [{"type": "subagent", "name": event.subagent.name, "goal": event.subagent.goal}]
    if isinstance(event, SubagentFinished | SubagentFailed):
        text = event.summary if isinstance(event, SubagentFinished) else event.message
        return [{"type": "subagent_end", "name": event.subagent.name, "text": short(text)}]
    if isinstance(event, TurnFinished):
        return [{"type": "end", "outcome": event.outcome, "code": event.code, "message": event.message}]
    return []
