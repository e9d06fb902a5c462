"""The MCP door on a real gateway with the scripted model, by the SDK's own Python client, over HTTP and stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import deletes, victim
from tests.e2e.attach import Watcher
from tests.e2e.helpers import DEADLINE, Chat, GatedModel, call, script, unique
from tests.scripted import until

mcp = pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters, types  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402


@asynccontextmanager
async def over_http(gateway: Gateway, key: str = "", **options: Any) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(30, read=300), trust_env=False) as http,
        streamable_http_client(f"{gateway.url}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write, **options) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def over_stdio(gateway: Gateway, key: str = "", **options: Any) -> AsyncIterator[ClientSession]:
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env |= {"AGUI_API_KEY": key} if key else {}
    server = StdioServerParameters(
        command=str(Path(sys.executable).with_name("hermes-agui")), args=["mcp", "--url", gateway.url], env=env
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write, **options) as session:
        await session.initialize()
        yield session


ways = pytest.mark.parametrize("way", [over_http, over_stdio], ids=["http", "stdio"])


async def told(session: ClientSession, name: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that succeeds."""
    result = await session.call_tool(name, arguments)
    assert not result.isError, result
    assert result.structuredContent is not None and result.content
    return result.structuredContent


@ways
async def test_a_task(gateway: Gateway, way: Callable[..., Any]) -> None:
    heard: list[str] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    task = script(
        {"text": "Let me look.", "tools": [call("terminal", {"command": "echo sky-blue"})]}, {"text": "Done."}
    )
    async with way(gateway) as session:
        result = await session.call_tool("ask", {"message": task}, progress_callback=progress)
        found = result.structuredContent
        assert (found["status"], found["text"]) == ("done", "Done.")
        assert "sky-blue" in found["tool_calls"][0]["result"] and found["usage"]["output_tokens"] > 0
        assert "Let me look.\n· terminal" in "".join(heard)
        thread = found["thread"]
        assert [one["role"] for one in (await told(session, "history", thread=thread))["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert thread in [one["thread"] for one in (await told(session, "threads"))["threads"]]
        copied = await told(session, "branch", thread=thread)
        assert (await told(session, "ask", thread=copied["thread"], message="And now?"))["thread"] == copied["thread"]
        text = (await session.read_resource(f"hermes://threads/{thread}")).contents[0].text
        assert "sky-blue" in text
        assert "delegate" in [one.name for one in (await session.list_prompts()).prompts]


@ways
async def test_elicitation_lets_the_command_run_or_not(gateway: Gateway, way: Callable[..., Any]) -> None:
    asked: list[str] = []
    choices = iter(["once", "deny"])

    async def elicit(context: Any, params: Any) -> Any:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"choice": next(choices)})

    allowed, denied = victim(gateway), victim(gateway)
    async with way(gateway, elicitation_callback=elicit) as session:
        assert (await told(session, "ask", message=deletes(allowed)))["text"] == "The end."
        assert (await told(session, "ask", message=deletes(denied)))["status"] == "done"
    assert not allowed.exists() and denied.exists()
    assert str(allowed) in asked[0] and str(denied) in asked[1]


async def test_without_elicitation_ask_tells_the_call_to_make(gateway: Gateway) -> None:
    folder = victim(gateway)
    async with over_http(gateway) as session:
        waiting = await told(session, "ask", message=deletes(folder))
        assert waiting["status"] == "needs_answer" and folder.exists()
        follow = waiting["requests"][0]["answer_with"]
        done = await told(session, follow["tool"], **(follow["arguments"] | {"choice": "once"}))
        assert (done["status"], done["text"]) == ("done", "The end.") and not folder.exists()


async def test_a_question(gateway: Gateway) -> None:
    asks = script({"tools": [call("clarify", {"question": "Which?", "choices": ["red", "blue"]})]}, {"text": "Fine."})
    async with over_http(gateway) as session:
        waiting = await told(session, "ask", message=asks)
        assert waiting["requests"][0]["kind"] == "clarify"
        done = await told(session, "answer", request=waiting["requests"][0]["id"], text="green")
        assert done["text"] == "Fine." and "green" in done["tool_calls"][0]["result"]


async def test_cancelling_keeps_the_next_tool_from_running(gateway: Gateway, model: GatedModel) -> None:
    mark, gate = gateway.work_dir / unique("mark"), unique("gate")
    task = script(
        {"text": f"First. {{gate:{gate}}}", "tools": [call("terminal", {"command": f"touch {mark}"})]}, {"text": "End."}
    )
    async with over_http(gateway) as session:
        thread = unique("t")
        arguments = {"message": task, "thread": thread}
        request = types.CallToolRequest(params=types.CallToolRequestParams(name="ask", arguments=arguments))
        number = session._request_id
        asking = asyncio.create_task(session.send_request(types.ClientRequest(request), types.CallToolResult))
        await until(lambda: model.reached(gate))
        cancelled = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
        await session.send_notification(types.ClientNotification(cancelled))
        assert (await told(session, "wait", thread=thread, timeout=DEADLINE))["status"] == "stopped"
        model.open_gate(gate)
        asking.cancel()
    assert not mark.exists()


async def test_a_tool_slower_than_the_clients_patience(gateway: Gateway, model: GatedModel) -> None:
    gate = unique("gate")
    async with over_http(gateway) as session:
        from datetime import timedelta

        with pytest.raises(mcp.McpError, match="Timed out"):
            await session.call_tool(
                "ask",
                {"message": script({"text": f"a {{gate:{gate}}} b"}), "thread": gate},
                read_timeout_seconds=timedelta(seconds=2),
            )
        assert (await told(session, "wait", thread=gate, timeout=0.2))["status"] == "running"
        model.open_gate(gate)
        done = await told(session, "wait", thread=gate)
    assert done["status"] == "done" and done["text"].endswith("b")


async def test_a_browser_sees_it_live(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    chat.say("Hello").succeeded()
    gate = unique("gate")
    browser = Watcher(chat)

    def seen(text: str) -> Callable[[Watcher], bool]:
        return lambda watcher: text in "".join(str(event.get("delta", "")) for event in watcher.events)

    async with over_http(gateway) as session:
        task = script({"text": f"Seen by all. {{gate:{gate}}} The rest."})
        asking = asyncio.create_task(told(session, "ask", message=task, thread=chat.thread))
        await asyncio.to_thread(browser.wait, seen("Seen by all."))
        assert not asking.done()
        model.open_gate(gate)
        assert (await asking)["thread"] == chat.thread
        await asyncio.to_thread(browser.wait, seen("The rest."))
    browser._stop.set()


async def test_text_is_no_command(gateway: Gateway) -> None:
    async with over_http(gateway) as session:
        for text in ("/yolo", "/new", "restart gateway"):
            result = await session.call_tool("ask", {"message": text, "thread": unique()})
            assert result.structuredContent is not None and result.structuredContent["usage"]["model_calls"] >= 1, text
    assert gateway.running


async def test_steering_and_stopping(gateway: Gateway, model: GatedModel) -> None:
    gate = unique("gate")
    task = script({"text": f"a {{gate:{gate}}}", "tools": [call("terminal", {"command": "echo x"})]}, {"text": "End."})
    async with over_http(gateway) as session:
        thread = (await told(session, "start", message=task))["thread"]
        await until(lambda: model.reached(gate))
        await told(session, "steer", thread=thread, text="look at the purple one")
        model.open_gate(gate)
        assert (await told(session, "wait", thread=thread))["status"] == "done"
        assert any("purple" in str(one["messages"]) for one in model.requests)
        assert (await told(session, "stop", thread=thread))["stopped"] is False


async def test_twenty_sessions_at_once(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"max_turns_per_principal": 20})
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(over_http(gateway)) for _ in range(20)]
        words = [unique("w") for _ in sessions]
        found = await asyncio.gather(
            *(told(one, "ask", message=script({"text": word})) for one, word in zip(sessions, words, strict=True))
        )
        assert [one["text"] for one in found] == words
        assert len({one["thread"] for one in found}) == 20


async def test_delegated_work_is_waited_for(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(toolsets=["terminal", "file", "todo", "clarify", "delegation"])
    child = script({"text": "The child found 42."})
    task = script({"tools": [call("delegate_task", {"goal": child})]}, {"text": "All is done."})
    async with over_http(gateway) as session:
        found = await told(session, "ask", message=task)
    assert found["text"] == "All is done."
    assert "42" in found["tool_calls"][0]["result"]
