"""`python langchain_chat.py BASE_URL TOOLS_PROMPT TEXT_PROMPT`: LangChain's ChatOpenAI; what it made of it, as JSON."""

import json
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def draw_chart(title: str) -> str:
    """Draws a chart in the client."""
    return f"drawn {title}"


url, with_tools, plain = sys.argv[1:]
chat = ChatOpenAI(
    base_url=url, api_key="none", model="hermes-agent", default_headers={"Authorization": ""}, stream_usage=True
)
bound = chat.bind_tools([draw_chart])
messages = [HumanMessage(with_tools)]
first = bound.invoke(messages)
results = [ToolMessage(draw_chart.invoke(made["args"]), tool_call_id=made["id"]) for made in first.tool_calls]
second = bound.invoke([*messages, first, *results])
parts = list(chat.stream(plain))
whole = parts[0]
for part in parts[1:]:
    whole += part
print(
    json.dumps(
        {
            "titles": [made["args"]["title"] for made in first.tool_calls],
            "text": second.content,
            "streamed": whole.content,
            "parts": len(parts),
            "tokens": whole.usage_metadata["total_tokens"],
        }
    )
)
