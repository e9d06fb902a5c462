"""Following a turn for one call: progress as it happens, questions put to the client's user, the end. On the loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from ..door import Reader
from ..errors import AguiError
from ..interrupts import is_human, response_schema
from ..requests import Pending, read_answer
from ..results import Result
from ..session import Turn
from ..stream import GatewayNotice, MessageChunk, Request, StreamEvent, ToolCall, TurnParked

if TYPE_CHECKING:
    from .desk import Desk
    from .sdk import Call

_TELL = 0.2  # seconds between two progress notifications
_ALIVE = 10.0  # seconds of silence after which one says only that the work goes on: clients give up on silent calls
_LOOK = 0.2  # seconds between looks whether somebody else has answered
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


async def follow(desk: Desk, call: Call, reader: Reader, *, seconds: float = 0.0, stops: bool = True) -> Result:
    """Read a turn until it ends or needs an answer that the client's user cannot be asked for, or for ``seconds``.

    ``stops``: a client that cancels the call stops the turn; one that only leaves stops nothing.
    """
    turn = reader.turn
    try:
        async with Teller(desk, call, turn) as teller, aclosing(reader.events(past_parks=True)) as events:
            with anyio.move_on_after(seconds or None):
                async for position, event in events:
                    teller.feed(event)
                    # A wait that is over is only told of. (The worker writes parked_at behind the event itself.)
                    if not isinstance(event, TurnParked) or position < turn.parked_at or not desk.parked(turn):
                        continue
                    await teller.flush()
                    if not stops or not await put(desk, call, turn):
                        break
    except asyncio.CancelledError:
        if stops and not call.left and not desk.adapter.closing:
            with anyio.CancelScope(shield=True):
                await desk.door.stop(turn, "The client cancelled the task.")
        raise
    result = reader.result()
    if result.outcome == "parked":  # as it is now: one of several may have been answered meanwhile
        result.requests = desk.door.open_requests(turn)
    return result


async def put(desk: Desk, call: Call, turn: Turn) -> bool:
    """Put what the turn waits for to the client's user. False where that cannot be, and something stays open."""
    for request in desk.door.open_requests(turn):
        principal = call.caller.principal
        if not is_human(request) or not call.elicits or (_grants(request) and not principal.may("approve")):
            return False
        pending = desk.door.request(principal, request.id)
        if pending is None:
            return False
        try:
            reply = await _elicited(call, pending)
        except Exception:  # the client cannot after all, whatever it said
            return False
        if reply is None:
            continue  # answered elsewhere, or expired
        action, content = reply
        payload = {name: value for name, value in content.items() if value != ""}
        try:
            answer = read_answer(request, payload, cancelled=action != "accept")
            desk.door.answer([(pending, answer)], principal)
        except AguiError as error:
            if error.status != 409:  # no answer, whatever the form let through; closed meanwhile is as good as answered
                return False
    return True


async def _elicited(call: Call, pending: Pending) -> tuple[str, dict[str, Any]] | None:
    """The user's reply; None once somebody else has answered."""
    asking = asyncio.ensure_future(call.elicit(_message(pending.request), _form(pending.request)))
    try:
        while not asking.done():
            if pending.closed is not None:
                return None
            await asyncio.wait([asking], timeout=_LOOK)
        return asking.result()
    finally:
        if not asking.done():
            asking.cancel()
            await asyncio.wait([asking], timeout=1)


def _grants(request: Request) -> bool:
    """Whether an answer can let something run: that takes the scope `approve` (``rights.py``)."""
    return request.kind in ("approval", "confirm")


def _message(request: Request) -> str:
    command = request.detail.get("command") or request.detail.get("text")
    return f"{request.message}\n\n{command}" if isinstance(command, str) and command.strip() else request.message


def _form(request: Request) -> dict[str, Any]:
    """The form of an elicitation: flat, and of few kinds of fields."""
    form = response_schema(request)
    fields = {}
    for name, schema in form["properties"].items():
        fields[name] = {key: value for key, value in schema.items() if key in ("type", "enum", "description")}
        if schema.get("examples"):
            fields[name]["description"] = f"For example: {', '.join(schema['examples'])}"
    return {"type": "object", "properties": fields, "required": form["required"]}


class Teller:
    """Tells a call's client of the progress: text as it is streamed, tools as they are called, notices as log messages.

    On a task of its own and in few notifications: a slow client delays nobody but itself.
    """

    def __init__(self, desk: Desk, call: Call, turn: Turn) -> None:
        self._desk = desk
        self._call = call
        self._texts: list[str] = [f"[thread {turn.thread.thread_id}]\n"]
        self._notices: list[str] = []
        self._count = 0
        self._began = self._told = time.monotonic()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Teller:
        self._task = asyncio.create_task(self._run(), name="agui-mcp-progress")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        assert self._task is not None
        try:
            if kind is None:
                await self.flush()  # first: who is cancelled while it tells has taken what it does not tell
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])

    def feed(self, event: StreamEvent) -> None:
        """Take an event."""
        if isinstance(event, MessageChunk):
            self._texts.append(event.text)
        elif isinstance(event, ToolCall) and self._desk.settings.tool_output != "off":
            about = f" {_line(event.arguments)}" if self._desk.settings.tool_output == "full" else ""
            self._texts.append(f"\n· {event.tool_name}{about}\n")
        elif isinstance(event, GatewayNotice):
            self._notices.append(event.text)

    async def flush(self) -> None:
        """Send what has gathered."""
        async with self._lock:
            text, self._texts = "".join(self._texts), []
            notices, self._notices = self._notices, []
            level = self._call.caller.session.level
            if LEVELS.index(level) <= LEVELS.index("notice"):
                for notice in notices:
                    await self._call.log("notice", notice, "hermes")
            if text:
                await self._tell(text)

    async def _tell(self, text: str) -> None:
        self._count += 1
        self._told = time.monotonic()
        await self._call.progress(self._count, text)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TELL)
            await self.flush()
            if time.monotonic() - self._told >= _ALIVE:
                async with self._lock:
                    await self._tell(f"[still working, {time.monotonic() - self._began:.0f} s]")


def _line(arguments: str) -> str:
    """Arguments in one short line."""
    with contextlib.suppress(ValueError):
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
    line = " ".join(arguments.split())
    return line if len(line) <= 200 else f"{line[:200]}…"
