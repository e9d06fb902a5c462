"""pydantic-ai's AG-UI adapter on the synthetic turn."""

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import ag_ui.core
from pydantic_ai import Agent
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from turn import ARGUMENTS, CALL, RESULT, TOOL, pieces, report, run_input


def _agent(deltas: int) -> Agent:
    async def speak(messages: list[Any], info: Any) -> AsyncIterator[Any]:
        for piece in pieces(deltas):
            yield piece
        if len(messages) == 1:
            yield {1: DeltaToolCall(name=TOOL, json_args=ARGUMENTS, tool_call_id=CALL)}

    agent = Agent(FunctionModel(stream_function=speak))

    @agent.tool_plain(name=TOOL)
    def look(path: str) -> str:
        return RESULT

    return agent


async def ours(deltas: int, thread: str) -> AsyncIterator[Any]:
    adapter = AGUIAdapter(agent=_agent(deltas), run_input=run_input(ag_ui.core, thread))
    async for chunk in adapter.encode_stream(adapter.run_stream()):
        yield chunk


async def alone(deltas: int, thread: str) -> AsyncIterator[Any]:
    async with _agent(deltas).run_stream_events("go") as events:
        async for event in events:
            yield event


report(ours, alone, peer="pydantic-ai", version=version("pydantic-ai-slim"))
