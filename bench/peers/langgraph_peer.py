"""ag-ui-langgraph on the synthetic turn."""

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import ag_ui.core
from ag_ui.encoder import EventEncoder
from ag_ui_langgraph import LangGraphAgent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from turn import ARGUMENTS, CALL, RESULT, TOOL, pieces, report, run_input


class Speaker(BaseChatModel):
    deltas: int

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessageChunk(content="".join(pieces(self.deltas))))])

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in pieces(self.deltas):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        if messages[-1].type != "tool":
            call = {"name": TOOL, "args": ARGUMENTS, "id": CALL, "index": 0, "type": "tool_call_chunk"}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


@tool(TOOL)
def look(path: str) -> str:
    """Reads a file."""
    return RESULT


def _graph(deltas: int) -> Any:
    model = Speaker(deltas=deltas)

    async def speak(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", speak)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=MemorySaver())


async def ours(deltas: int, thread: str) -> AsyncIterator[Any]:
    encoder = EventEncoder()
    agent = LangGraphAgent(name="bench", graph=_graph(deltas))
    async for event in agent.run(run_input(ag_ui.core, thread)):
        yield encoder.encode(event)


async def alone(deltas: int, thread: str) -> AsyncIterator[Any]:
    config = {"configurable": {"thread_id": thread}}
    asked = {"messages": [{"role": "user", "content": "go"}]}
    async for event in _graph(deltas).astream_events(asked, config=config, version="v2"):
        yield event


report(ours, alone, peer="ag-ui-langgraph", version=version("ag-ui-langgraph"))
