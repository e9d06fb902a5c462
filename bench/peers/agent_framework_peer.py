"""agent-framework-ag-ui on the synthetic turn."""

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import ag_ui.core
from ag_ui.encoder import EventEncoder
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    ResponseStream,
    tool,
)
from agent_framework_ag_ui import AgentFrameworkAgent
from turn import ARGUMENTS, CALL, RESULT, TOOL, pieces, report, run_input


class Speaker(FunctionInvocationLayer, BaseChatClient):
    def __init__(self, deltas: int) -> None:
        super().__init__()
        self.deltas = deltas

    def _inner_get_response(self, *, messages: Any, stream: bool = False, options: Any, **kwargs: Any) -> Any:
        return ResponseStream(self._speak(messages), finalizer=ChatResponse.from_updates)

    async def _speak(self, messages: Any) -> AsyncIterator[ChatResponseUpdate]:
        for piece in pieces(self.deltas):
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(piece)], message_id="m")
        if not any(content.type == "function_result" for message in messages for content in message.contents):
            call = Content.from_function_call(CALL, TOOL, arguments=ARGUMENTS)
            yield ChatResponseUpdate(role="assistant", contents=[call], message_id="m")


@tool(name=TOOL, approval_mode="never_require")
def look(path: str) -> str:
    """Reads a file."""
    return RESULT


def _agent(deltas: int) -> Agent:
    return Agent(client=Speaker(deltas), name="bench", tools=[look])


async def ours(deltas: int, thread: str) -> AsyncIterator[Any]:
    encoder = EventEncoder()
    asked = run_input(ag_ui.core, thread).model_dump(by_alias=False, mode="json")
    async for event in AgentFrameworkAgent(agent=_agent(deltas)).run(asked):
        yield encoder.encode(event)


async def alone(deltas: int, thread: str) -> AsyncIterator[Any]:
    async for update in _agent(deltas).run("go", stream=True):
        yield update


report(ours, alone, peer="agent-framework-ag-ui", version=version("agent-framework-ag-ui"))
