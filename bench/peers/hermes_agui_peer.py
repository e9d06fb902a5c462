"""This project's path on the synthetic turn: the turn's log, its reader, the translator and the encoder."""

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from turn import ARGUMENTS, CALL, RESULT, TOOL, pieces, report

from agui_adapter.events import AguiStream
from agui_adapter.log import EventLog
from agui_adapter.run import Run
from agui_adapter.session import Principal, Thread, Turn
from agui_adapter.stream import MessageChunk, MessageStart, MessageStop, ToolCall, ToolResult


async def ours(deltas: int, thread: str) -> AsyncIterator[Any]:
    turn = Turn(Thread(Principal("bench"), thread, f"bench.{thread}"), EventLog(asyncio.get_running_loop()))
    reader = asyncio.create_task(_speak(turn, deltas))
    async for chunk in Run(turn, AguiStream(thread, "r", prefix=turn.id)).chunks():
        yield chunk
    await reader


async def _speak(turn: Turn, deltas: int) -> None:
    for number, message_id in enumerate(("m1", "m2")):
        turn.append(MessageStart(message_id))
        for piece in pieces(deltas):
            turn.append(MessageChunk(piece))
            await asyncio.sleep(0)  # the frameworks hand over each delta by itself too
        turn.append(MessageStop(final=bool(number)))
        if not number:
            turn.append(ToolCall(TOOL, call_id=CALL, arguments=ARGUMENTS, message_id=message_id))
            turn.append(ToolResult(TOOL, call_id=CALL, content=RESULT, message_id="t1"))
    turn.finish("success")


report(ours, None, peer="hermes-agui", version=version("hermes-agui"))
