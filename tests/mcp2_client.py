"""The client of mcp 2.x, for `test_mcp2`: what it sees of a server, as JSON. Arguments: URL [COMMAND]."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


async def main(url: str, command: str = "") -> None:
    heard: list[str] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    target = StdioServerParameters(command=command, args=["mcp", "--url", url]) if command else f"{url}/mcp"
    async with Client(target) as client:
        tools = await client.list_tools()
        found = await client.call_tool("ask", {"message": "x", "thread": "t"}, progress_callback=progress)
        read = await client.read_resource("hermes://threads")
        seen = {
            "version": client.protocol_version,
            "tools": [tool.name for tool in tools.tools],
            "told": found.structured_content,
            "progress": "".join(heard),
            "threads": read.contents[0].text,
        }
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
