"""The tools: what each is called, says, takes and does. Few, and each says what to call next.

Results are structured content with the same in words beside it, for clients that show only text.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from ..answers import tool_answer
from ..door import Ask, Reader, new_id
from ..errors import AguiError
from ..requests import read_answer
from ..results import Result
from ..session import Principal, Scope
from . import inputs
from .desk import Desk, Json, in_words
from .follow import follow
from .reading import branch, events, history, threads

if TYPE_CHECKING:
    from .sdk import Call

Run = Callable[[Desk, "Call", Any], Awaitable[Json]]

_RESULT: Json = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["done", "needs_answer", "running", "failed", "stopped"]},
        "thread": {"type": "string"},
        "turn": {"type": "string"},
        "text": {"type": "string", "description": "The agent's answer, as far as it is."},
        "requests": {
            "type": "array",
            "description": "What the agent waits for; `answer_with` is the call that gives it.",
            "items": {"type": "object"},
        },
        "tool_calls": {"type": "array", "items": {"type": "object"}},
        "usage": {"type": "object"},
        "notices": {"type": "array", "items": {"type": "string"}},
        "files": {"type": "array", "items": {"type": "object"}},
        "error": {"type": "object"},
    },
    "required": ["status", "thread", "turn", "text", "requests"],
}


@dataclass(frozen=True)
class Tool:
    """One tool. ``scope`` is what the caller's token must be good for; ``reads``: it changes nothing."""

    name: str
    title: str
    text: str
    takes: type[inputs.Input]
    run: Run
    scope: Scope = "run"
    reads: bool = False
    destructive: bool = True
    again: bool = False  # called twice it does no more than once
    output: Json | None = None

    def listed(self) -> Json:
        """As clients see it."""
        hints = {"title": self.title, "readOnlyHint": self.reads, "openWorldHint": not self.reads}
        if not self.reads:
            hints |= {"destructiveHint": self.destructive, "idempotentHint": self.again}
        made: Json = {
            "name": self.name,
            "title": self.title,
            "description": self.text,
            "inputSchema": inputs.schema(self.takes),
            "annotations": hints,
        }
        if self.output is not None:
            made["outputSchema"] = self.output
        return made


# -- giving it work ----------------------------------------------------------------------------------------------


async def _opened(desk: Desk, call: Call, given: inputs.Task) -> Reader:
    principal, ask = call.caller.principal, _task(given)
    thread = given.thread or f"mcp-{uuid.uuid4().hex[:12]}"
    try:
        return await desk.open(principal, thread, ask, given.idempotency_key)
    except asyncio.CancelledError:
        if not call.left and not desk.adapter.closing:
            with anyio.CancelScope(shield=True):
                await desk.door.withdraw(principal, thread, ask.messages[0]["id"])
        raise


async def _ask(desk: Desk, call: Call, given: inputs.AskInput) -> Json:
    reader = await _opened(desk, call, given)
    return await _followed(desk, call, reader, given.timeout)


async def _start(desk: Desk, call: Call, given: inputs.StartInput) -> Json:
    reader = await _opened(desk, call, given)
    desk.hold(reader.turn)
    return _ended(desk, _now(desk, reader, reader.turn.log.last))


def _task(given: inputs.Task) -> Ask:
    if not given.files:
        return Ask(messages=[{"id": new_id("user"), "role": "user", "content": given.message}], inline=True)
    parts: list[Json] = [{"type": "text", "text": given.message}]
    for file in given.files:
        content = [one for one in (file.data, file.text, file.url) if one]
        if len(content) != 1:
            raise AguiError(422, "invalid_input", "Each of files needs one of data, text and url.")
        mime = file.mime_type or ("text/plain" if file.text else "")
        kind = mime.partition("/")[0]
        if file.url:
            source: Json = {"type": "url", "value": file.url}
        else:
            value = file.data or base64.b64encode(file.text.encode()).decode()
            source = {"type": "data", "value": value}
        if mime:
            source["mimeType"] = mime
        part = {"type": kind if kind in ("image", "audio", "video") else "document", "source": source}
        parts.append(part | ({"metadata": {"filename": file.name}} if file.name else {}))
    return Ask(messages=[{"id": new_id("user"), "role": "user", "content": parts}], inline=True)


async def _answer(desk: Desk, call: Call, given: inputs.AnswerInput) -> Json:
    principal = call.caller.principal
    await desk.ready()
    pending = desk.door.request(principal, given.request)
    if pending is None:
        raise AguiError(404, "no_such_request", "You have no such request; `status` of a thread tells what is open.")
    request = pending.request
    if request.kind == "client_tool":
        if not given.text:
            raise AguiError(422, "invalid_answer", "Give the tool's result as `text`. The request stays open.")
        reader = desk.door.answer([(pending, tool_answer({"content": given.text}))], principal)
        return await _followed(desk, call, reader, given.timeout)
    if request.kind == "clarify":
        payload: Any = {"answer": given.text or given.choice}
    else:
        payload = {"choice": given.choice or given.text, "reason": given.text if given.choice else ""}
    reader = desk.door.answer([(pending, read_answer(request, payload))], principal)
    return await _followed(desk, call, reader, given.timeout)


async def _steer(desk: Desk, call: Call, given: inputs.SteerInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    turn = thread.current
    if turn is None or desk.parked(turn) or not desk.door.steer(turn, given.text):
        message = (
            "No task is running on this thread that could take it; send it with `ask`, or `answer` what it waits for."
        )
        raise AguiError(409, "not_steered", message)
    return _said({"thread": thread.thread_id, "steered": True}, "The agent sees it with its next tool result.")


async def _stop(desk: Desk, call: Call, given: inputs.ThreadInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    turn = thread.current
    if turn is not None:
        await desk.door.stop(turn)
    words = "Stopped." if turn is not None else "Nothing was running on this thread."
    return _said({"thread": thread.thread_id, "stopped": turn is not None}, words)


# -- watching it -------------------------------------------------------------------------------------------------


async def _status(desk: Desk, call: Call, given: inputs.ThreadInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    turn = desk.turn(thread)
    return _ended(desk, _now(desk, desk.door.read(turn), turn.log.last))


def _now(desk: Desk, reader: Reader, position: int) -> Result:
    reader.position = position
    result = reader.result()
    if result.outcome == "parked" or (result.outcome == "running" and desk.parked(reader.turn)):
        result.requests = desk.door.open_requests(reader.turn)
        result.outcome = "parked" if result.requests else "running"
    return result


async def _wait(desk: Desk, call: Call, given: inputs.WaitInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    reader = desk.door.read(desk.turn(thread))
    return _ended(desk, await follow(desk, call, reader, seconds=given.timeout, stops=False))


async def _events(desk: Desk, call: Call, given: inputs.EventsInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    return _said(await events(desk, thread, given.after, given.limit, given.wait))


async def _threads(desk: Desk, call: Call, given: inputs.ThreadsInput) -> Json:
    await desk.ready()
    return _said(await threads(desk, call.caller.principal, **given.model_dump()))


async def _history(desk: Desk, call: Call, given: inputs.HistoryInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    return _said(await history(desk, thread, given.limit, given.before))


async def _branch(desk: Desk, call: Call, given: inputs.BranchInput) -> Json:
    thread = await desk.thread(call.caller.principal, given.thread)
    return _said(await branch(desk, call.caller.principal, thread, given.title.strip()))


# -- results -----------------------------------------------------------------------------------------------------


async def _followed(desk: Desk, call: Call, reader: Reader, seconds: float) -> Json:
    result = await follow(desk, call, reader, seconds=seconds)
    if result.outcome == "running":
        desk.hold(reader.turn)
    return _ended(desk, result)


def _ended(desk: Desk, result: Result) -> Json:
    told = desk.told(result)
    made = _said(told, in_words(told))
    made["content"] += [
        {"type": "resource_link", "uri": file["uri"], "name": file["name"], "mimeType": file["mimeType"]}
        for file in told["files"]
        if file["uri"].startswith(("http://", "https://"))
    ]
    made["isError"] = told["status"] == "failed"
    return made


def _said(told: Json, words: str = "") -> Json:
    text = words or json.dumps(told, ensure_ascii=False, indent=1)
    return {"content": [{"type": "text", "text": text}], "structuredContent": told}


def failed(error: AguiError) -> Json:
    """What a caller can do something about, as a result that the model sees."""
    return {"content": [{"type": "text", "text": f"{error.message} [{error.code}]"}], "isError": True}


_WORK = "It has a terminal, files, memory and skills of its own, and it can do what its operator allows."

TOOLS = (
    Tool(
        "ask",
        "Give the agent a task",
        f"Give a task to the Hermes agent and wait for its answer. {_WORK} Progress notifications carry its text and "
        "tools as they happen; cancelling stops it. If status is `needs_answer`, call what `requests[].answer_with` "
        "says. If your client cuts long calls, use `start` and `wait` instead.",
        inputs.AskInput,
        _ask,
        output=_RESULT,
    ),
    Tool(
        "start",
        "Start a task",
        "Give the agent a task and return at once. Follow it with `wait` (blocks for up to `timeout` seconds), "
        "`events` or `status` of its thread.",
        inputs.StartInput,
        _start,
        output=_RESULT,
    ),
    Tool(
        "status",
        "How a task stands",
        "What the newest task of a thread has come to so far: its text, tools and open requests. Does not wait.",
        inputs.ThreadInput,
        _status,
        scope="read",
        reads=True,
        output=_RESULT,
    ),
    Tool(
        "wait",
        "Wait for a task",
        "Wait until the newest task of a thread ends or needs an answer, at most `timeout` seconds; then call it "
        "again. Cancelling it stops only the waiting.",
        inputs.WaitInput,
        _wait,
        scope="read",
        reads=True,
        output=_RESULT,
    ),
    Tool(
        "events",
        "What happens on a thread",
        "What happens on a thread, step by step: texts, tool calls, results, questions, ends. Go on with `next` as "
        "`after`.",
        inputs.EventsInput,
        _events,
        scope="read",
        reads=True,
    ),
    Tool(
        "answer",
        "Answer the agent",
        "Answer what the agent waits for: approve or deny a command (`choice`), or answer its question (`text`). "
        "The command really runs, so ask your user unless they have told you. Then waits as `ask` does.",
        inputs.AnswerInput,
        _answer,
        output=_RESULT,
    ),
    Tool(
        "steer",
        "Tell the agent something while it works",
        "Give a running task a text that the agent sees with its next tool result, without stopping it.",
        inputs.SteerInput,
        _steer,
    ),
    Tool(
        "stop",
        "Stop a task",
        "Stop what runs or waits on a thread, at once. What was done stays done.",
        inputs.ThreadInput,
        _stop,
        again=True,
    ),
    Tool(
        "threads",
        "List threads",
        "Your threads, newest first, or those in which words occur. `next` is the `before` of the next page.",
        inputs.ThreadsInput,
        _threads,
        scope="read",
        reads=True,
    ),
    Tool(
        "history",
        "Read a thread",
        "The newest messages of a thread, oldest first.",
        inputs.HistoryInput,
        _history,
        scope="read",
        reads=True,
    ),
    Tool(
        "branch",
        "Copy a thread",
        "Copy a thread into a new one, to try something else from there; the original stays as it is.",
        inputs.BranchInput,
        _branch,
        destructive=False,
    ),
)

NAMES = tuple(tool.name for tool in TOOLS)


def offered(desk: Desk, principal: Principal) -> list[Tool]:
    """The tools that this caller may use: by the operator's settings, and by what its token is good for."""
    settings = desk.settings
    return [
        tool
        for tool in TOOLS
        if (tool.reads or not settings.mcp_read_only)
        and (not settings.mcp_tools or tool.name in settings.mcp_tools)
        and principal.may(tool.scope)
    ]


async def call_tool(desk: Desk, call: Call) -> Json:
    """Run a tool for a caller."""
    name = call.params["name"]
    tool = next((one for one in offered(desk, call.caller.principal) if one.name == name), None)
    if tool is None:
        known = ", ".join(one.name for one in offered(desk, call.caller.principal))
        return failed(AguiError(404, "no_such_tool", f"There is no tool {name!r} for you here; there are: {known}."))
    try:
        return await tool.run(desk, call, inputs.read(tool.takes, call.params.get("arguments") or {}))
    except AguiError as error:
        return failed(error)


__all__ = ["NAMES", "TOOLS", "Tool", "call_tool", "failed", "offered"]
