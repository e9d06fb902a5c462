"""`python hermes_api_client.py URL KEY PROMPT`: hermes-agent-api-client; what it made of it, as JSON."""

import asyncio
import json
import sys

from hermes_agent_api_client import HermesAgentApiClient


async def main(url: str, key: str, prompt: str) -> None:
    async with HermesAgentApiClient(url, key) as client:
        capabilities = await client.probe_capabilities()
    asked = {"model": capabilities.model, "messages": [{"role": "user", "content": prompt}], "stream": True}
    events = []
    async with HermesAgentApiClient(url, key) as client:
        async for event in client.stream_chat_events(asked, session_id="mine", session_key="scope"):
            events.append([type(event).__name__, event.model_dump(mode="json")])
    print(json.dumps({"capabilities": capabilities.model_dump(mode="json"), "events": events}))


asyncio.run(main(*sys.argv[1:]))
