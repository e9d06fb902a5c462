"""The MCP door by whichever SDK is installed, 1.x or 2.x, and by another Hermes: what every version must carry.

What only a 1.x client shows is in `test_mcp.py`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import deletes, victim
from tests.e2e.dialect import clarify
from tests.e2e.helpers import Chat, GatedModel, call, script, unique

mcp = pytest.importorskip("mcp")

IS_2 = hasattr(mcp, "Client")
"""2.x has one client for every transport, and says `snake_case` where 1.x has the protocol's own names."""


@asynccontextmanager
async def connected(gateway: Gateway, way: str) -> AsyncIterator[Any]:
    """A client of the SDK that is installed, over HTTP or through `hermes-agui mcp`."""
    command = str(Path(sys.executable).with_name("hermes-agui"))
    stdio = mcp.StdioServerParameters(command=command, args=["mcp", "--url", gateway.url])
    if IS_2:
        async with mcp.Client(stdio if way == "stdio" else f"{gateway.url}/mcp") as client:
            yield client
        return
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    opened: Any = stdio_client(stdio) if way == "stdio" else streamable_http_client(f"{gateway.url}/mcp")
    async with opened as (read, write, *_), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def told(client: Any, name: str, progress: Any = None, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that succeeds."""
    result = await client.call_tool(name, arguments, progress_callback=progress)
    failed, found = (result.is_error, result.structured_content) if IS_2 else (result.isError, result.structuredContent)
    assert not failed, result
    assert isinstance(found, dict) and result.content
    return found


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.mark.compat
@pytest.mark.core
@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_a_task_an_approval_and_a_question(gateway: Gateway, way: str) -> None:
    heard: list[str] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    look = script({"text": "I look.", "tools": [call("terminal", {"command": "echo sky-blue"})]}, {"text": "Done."})
    folder = victim(gateway)
    asks = script({"tools": [clarify("Which?", ["red", "blue"])]}, {"text": "Fine."})
    async with connected(gateway, way) as client:
        assert {"ask", "answer", "history"} <= {tool.name for tool in (await client.list_tools()).tools}
        found = await told(client, "ask", progress, message=look)
        assert (found["status"], found["text"]) == ("done", "Done.")
        assert "sky-blue" in found["tool_calls"][0]["result"]
        assert "I look.\n· terminal" in "".join(heard)
        resource = await client.read_resource(f"hermes://threads/{found['thread']}")
        assert "sky-blue" in resource.contents[0].text

        waiting = await told(client, "ask", message=deletes(folder))
        assert waiting["status"] == "needs_answer" and folder.exists()
        follow = waiting["requests"][0]["answer_with"]
        done = await told(client, follow["tool"], **(follow["arguments"] | {"choice": "once"}))
        assert (done["status"], done["text"]) == ("done", "The end.") and not folder.exists()

        waiting = await told(client, "ask", message=asks)
        assert waiting["requests"][0]["kind"] == "clarify"
        done = await told(client, "answer", request=waiting["requests"][0]["id"], text="green")
        assert done["text"] == "Fine." and "green" in done["tool_calls"][0]["result"]


@pytest.mark.compat
def test_the_second_hermes_gives_this_one_a_task(
    make_gateway: Callable[..., Gateway], model: GatedModel, gateway: Gateway
) -> None:
    key = unique("secret-word")
    inner = script({"text": f"It is {key}."})
    other = make_gateway(
        toolsets=["terminal", "mcp-friend"],
        config={
            "mcp_servers": {"friend": {"url": f"{gateway.url}/mcp", "timeout": 120}},
            "tools": {"tool_search": {"enabled": "off"}},  # from 0.22 on the model would have to look for its tools
        },
    )
    chat = Chat(other)
    run = chat.say(script({"tools": [call("mcp__friend__ask", {"message": inner})]}, {"text": "My friend knew."}))
    assert run.text().endswith("My friend knew."), run.events
    assert any(key in content for content in run.results().values()), run.results()
