"""What the tools, resources and prompts share: the gateway behind the door, and how things are named and told.

Results are the protocol's own JSON. Whatever a caller can do something about is an AguiError, whose sentence says what.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..door import Ask, Door, Reader
from ..errors import AguiError
from ..interrupts import describe
from ..results import Called, Result
from ..session import Principal, Thread, Turn
from ..store import RunRecord
from ..stream import Request
from ..thread_actions import ThreadActions

if TYPE_CHECKING:
    from ..adapter import AguiAdapter
    from ..config import Settings
    from ..server import Server

Json = dict[str, Any]

RESULT_CHARS = 2000  # of a tool's result or arguments in an answer: the reader's own context is small
_STATUS = {
    "parked": "needs_answer",
    "success": "done",
    "cancelled": "stopped",
    "failed": "failed",
    "running": "running",
}


class Desk:
    """The gateway as this door's callers see it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.door = Door(server.adapter)
        self.actions = ThreadActions(server)
        self._held: dict[Turn, asyncio.Task[None]] = {}
        self._locks: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def adapter(self) -> AguiAdapter:
        return self._server.adapter

    @property
    def settings(self) -> Settings:
        return self._server.settings

    async def ready(self) -> None:
        """Wait out the gateway's start. Raises AguiError 503."""
        await self.actions.ready()

    async def thread(self, principal: Principal, thread_id: str) -> Thread:
        """The caller's thread. Raises AguiError 404; another's is as unknown as a made-up one."""
        thread = await self.actions.find(principal, thread_id)
        if thread is None:
            raise AguiError(404, "no_such_thread", "You have no such thread; the tool `threads` lists yours.")
        return thread

    def turn(self, thread: Thread) -> Turn:
        """The turn that runs now, or the newest that is still known. Raises AguiError 404."""
        turn = thread.current or next(reversed(thread.turns.values()), None)
        if turn is None:
            message = "Nothing has run on this thread lately; read `history`, or give it a task with `ask`."
            raise AguiError(404, "no_turn", message)
        return turn

    def parked(self, turn: Turn) -> bool:
        """Whether the turn waits for somebody now."""
        return self.adapter.requests.parked(turn) or self.adapter.holds_only(turn)

    async def open(self, principal: Principal, thread_id: str, ask: Ask, key: str) -> Reader:
        """A turn for a task; with a ``key`` that was used before, the turn that it began then.

        Raises AguiError 409 where the key was another task's, or its turn is no longer known.
        """
        if not key:
            return await self._open(principal, thread_id, ask)
        name = f"mcp:{key}"
        digest = hashlib.sha256(json.dumps([message["content"] for message in ask.messages]).encode()).hexdigest()
        lock = self._locks.setdefault((principal.id, name), asyncio.Lock())
        archive = self.adapter.archive
        async with lock:
            found = await archive.run(lambda: archive.store.run(principal.id, name))
            if found is None:
                reader = await self._open(principal, thread_id, ask)
                record = RunRecord(digest, reader.turn.thread.chat_id, reader.turn.id, reader.start, "")
                archive.later(lambda: archive.store.keep_run(principal.id, name, record))
                return reader
        if found.digest != digest:
            message = "This idempotency_key was used for another task; take a new one."
            raise AguiError(409, "idempotency_conflict", message)
        thread = await self.adapter.thread_of_chat(found.chat_id)
        turn = thread.turns.get(found.turn_id) if thread is not None else None
        if turn is None:
            where = f"thread {thread.thread_id!r}" if thread is not None else "a thread that is gone"
            message = f"This task ran before, on {where}, and was not run again: read its `history`."
            raise AguiError(409, "already_done", message)
        return self.door.read(turn, found.position)

    async def _open(self, principal: Principal, thread_id: str, ask: Ask) -> Reader:
        try:
            return await self.door.open(principal, thread_id, ask)
        except AguiError as error:
            if error.code == "thread_busy":
                message = "A task runs on this thread: `wait` for it, `steer` or `stop` it, or use another thread."
                raise AguiError(409, error.code, message) from None
            raise

    def hold(self, turn: Turn) -> None:
        """A task that its caller will ask for again counts as read until its end: no new one may push it aside."""

        async def holds() -> None:
            try:
                await turn.done.wait()
            finally:
                turn.leave()

        if turn not in self._held and not turn.done.is_set():
            turn.enter()
            self._held[turn] = asyncio.create_task(holds(), name="agui-mcp-hold")
            self._held[turn].add_done_callback(lambda _: self._held.pop(turn, None))

    # -- telling ----------------------------------------------------------------------------------------------

    def told(self, result: Result) -> Json:
        """What a turn came to, as structured content."""
        made: Json = {
            "status": _STATUS[result.outcome],
            "thread": result.thread_id,
            "turn": result.turn_id,
            "text": result.text,
            "requests": [request_of(request) for request in result.requests],
            "tool_calls": self.calls(result.calls),
            "usage": {
                "input_tokens": result.tokens.input,
                "output_tokens": result.tokens.output,
                "model_calls": result.tokens.calls,
                "model": result.tokens.model,
            },
            "notices": [notice.text for notice in result.notices],
            "files": [{"uri": one.url, "name": one.name, "mimeType": one.mime} for one in result.attachments],
        }
        if result.outcome == "failed":
            made["error"] = {"code": result.code or "failed", "message": result.message}
        return made

    def calls(self, calls: Sequence[Called]) -> list[Json]:
        """Tool calls, as far as the operator lets clients see them (``agui.tool_output``)."""
        if self.settings.tool_output == "off":
            return []
        told = []
        for call in calls:
            one: Json = {"id": call.id, "name": call.name, "status": call.status or "running"}
            if self.settings.tool_output == "full":
                one["arguments"] = short(call.arguments)
                if call.result is not None:
                    one["result"] = short(call.result)
            told.append(one)
        return told


def request_of(request: Request) -> Json:
    """What waits for an answer, with the call that gives it."""
    about = describe(request)
    made: Json = {"id": request.id, "kind": request.kind, "message": request.message}
    if request.choices:
        made["choices"] = list(request.choices)
    if request.detail:
        made["detail"] = dict(request.detail)
    if "expiresAt" in about:
        made["expires_at"] = about["expiresAt"]
    arguments: Json = {"request": request.id}
    if request.kind == "client_tool":
        arguments["text"] = "<the tool's result>"
    elif request.choices and not request.free_text:
        arguments["choice"] = f"<one of: {', '.join(request.choices)}>"
    else:
        arguments["text"] = "<your answer>"
    made["answer_with"] = {"tool": "answer", "arguments": arguments}
    return made


def short(text: str, most: int = RESULT_CHARS) -> str:
    """A text, cut and marked where it is long."""
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most} more characters]"


def in_words(told: Json) -> str:
    """A result for clients and models that read text only: the answer, and what can be done next."""
    lines = [told["text"]] if told["text"].strip() else []
    status, thread = told["status"], told["thread"]
    if status == "failed":
        lines.append(f"The task failed: {told['error']['message'] or told['error']['code']}")
    elif status == "stopped":
        lines.append("The task was stopped before its end.")
    elif status == "running":
        lines.append(f"Still running. Call `wait` with thread {thread!r} for the rest.")
    for request in told["requests"]:
        lines.append(_question(request))
    lines += [f"[notice] {notice}" for notice in told["notices"]]
    lines.append(f"[thread {thread}]")
    return "\n\n".join(lines)


def _question(request: Json) -> str:
    command = request.get("detail", {}).get("command")
    lines = [f"The agent waits for an answer ({request['kind']}): {request['message']}"]
    if command:
        lines.append(f"```\n{command}\n```")
    lines.append(f"Call `answer` with {json.dumps(request['answer_with']['arguments'])} to go on.")
    return "\n".join(lines)
