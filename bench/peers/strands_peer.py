"""ag_ui_strands on the synthetic turn."""

import json
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import ag_ui.core
from ag_ui.encoder import EventEncoder
from ag_ui_strands import StrandsAgent
from strands import Agent, tool
from strands.models import Model
from turn import ARGUMENTS, CALL, RESULT, TOOL, pieces, report, run_input


class Speaker(Model):
    def __init__(self, deltas: int) -> None:
        self.deltas = deltas

    def update_config(self, **config: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for piece in pieces(self.deltas):
            yield {"contentBlockDelta": {"delta": {"text": piece}}}
        yield {"contentBlockStop": {}}
        answered = any("toolResult" in block for block in messages[-1]["content"])
        if not answered:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": TOOL, "toolUseId": CALL}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": ARGUMENTS}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if answered else "tool_use"}}


@tool(name=TOOL)
def look(path: str) -> str:
    """Reads a file."""
    return RESULT


def _agent(deltas: int) -> Agent:
    return Agent(model=Speaker(deltas), tools=[look], callback_handler=None)


async def ours(deltas: int, thread: str) -> AsyncIterator[Any]:
    encoder = EventEncoder()
    async for event in StrandsAgent(_agent(deltas), name="bench").run(run_input(ag_ui.core, thread)):
        yield encoder.encode(event)


async def alone(deltas: int, thread: str) -> AsyncIterator[Any]:
    async for event in _agent(deltas).stream_async("go"):
        yield event


assert json.loads(ARGUMENTS)
report(ours, alone, peer="ag_ui_strands", version=version("ag_ui_strands"))
