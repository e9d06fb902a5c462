"""The relay behind `hermes-agui mcp`: a client's messages, over a gateway that ends, comes back, or refuses."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import free_port
from agui_adapter.mcp_door import relay as relays
from agui_adapter.mcp_door.relay import Relay
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.mcp_wire import VERSION
from tests.scripted import Gate, serving, until

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the package mcp")

KEY = "0123456789abcdef-key"
HELLO = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
Json = dict[str, Any]


class Client:
    """A client whose messages go through a relay."""

    def __init__(self) -> None:
        self.told: list[Json] = []
        self.queue: asyncio.Queue[Json | None] = asyncio.Queue()

    async def send(self, message: Json) -> None:
        self.told.append(message)

    async def incoming(self) -> AsyncIterator[Json]:
        while (message := await self.queue.get()) is not None:
            yield message

    def say(self, method: str, **params: Any) -> None:
        self.queue.put_nowait({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, rid: Any, method: str, **params: Any) -> Json:
        self.queue.put_nowait({"jsonrpc": "2.0", "id": rid, "method": method, "params": params})
        await until(lambda: self.answer(rid))
        return self.answer(rid)  # type: ignore[return-value]

    def answer(self, rid: Any) -> Json | None:
        return next((one for one in self.told if one.get("id") == rid and "method" not in one), None)

    async def initialize(self) -> Json:
        about = {"name": "client", "version": "1"}
        made = await self.ask("init", "initialize", protocolVersion=VERSION, capabilities={}, clientInfo=about)
        self.say("notifications/initialized")
        return made


@asynccontextmanager
async def relayed(url: str, token: str | None = None) -> AsyncIterator[Client]:
    client = Client()
    running = asyncio.create_task(Relay(url, token, client.send).run(client.incoming()))
    try:
        yield client
        client.queue.put_nowait(None)
        await asyncio.wait_for(running, 10)
    finally:
        running.cancel()


async def test_calls_progress_and_cancellation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), relayed(url) as client:
        assert (await client.initialize())["result"]["serverInfo"]["name"] == "hermes-agui"
        assert len((await client.ask(1, "tools/list"))["result"]["tools"]) == 11
        adapter.script = HELLO
        answer = await client.ask(2, "tools/call", name="ask", arguments={"message": "x"}, _meta={"progressToken": "p"})
        assert answer["result"]["structuredContent"]["text"] == "Hello"
        assert "Hello" in "".join(
            one["params"]["message"] for one in client.told if one.get("method") == "notifications/progress"
        )
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        client.queue.put_nowait(
            {
                "jsonrpc": "2.0",
                "id": 3,
                "method": "tools/call",
                "params": {"name": "ask", "arguments": {"message": "y"}},
            }
        )
        client.say("notifications/cancelled", requestId=3)
        await client.ask(5, "ping")
        # Cancelled before, while or after its turn was opened: in the end none runs.
        await until(lambda: not any(thread.current for thread in adapter.threads))
        assert (await client.ask(4, "nonsense"))["error"]["code"] == -32601 or client.answer(4)["error"]  # type: ignore[index]


async def test_a_gateway_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"port": free_port()}
    async with relayed(f"http://127.0.0.1:{settings['port']}") as client:
        beginning = asyncio.create_task(client.initialize())
        async with serving(settings, tmp_path, monkeypatch) as (adapter, _):  # the client was first
            await beginning
            adapter.script = HELLO
            await client.ask(1, "tools/call", name="ask", arguments={"message": "x", "thread": "t"})
            assert "result" in await client.ask(2, "resources/subscribe", uri="hermes://threads/t")
        asking = asyncio.create_task(client.ask(3, "tools/call", name="ask", arguments={"message": "y", "thread": "t"}))
        async with serving(settings, tmp_path, monkeypatch) as (adapter, _):
            adapter.script = HELLO
            answer = (await asking)["result"]
            assert answer["structuredContent"]["text"] == "Hello", answer
            await client.ask(4, "tools/call", name="ask", arguments={"message": "z", "thread": "t"})
            await until(lambda: any(one.get("method") == "notifications/resources/updated" for one in client.told))
        assert not [one for one in client.told if str(one.get("id")).startswith("relay-")]


async def test_a_gateway_that_was_away_for_too_long_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, posted, ends = {"port": free_port()}, Relay._post, True

    async def post(relay: Relay, message: Json, *rest: Any) -> bool:
        if ends and message.get("id") == "relay-hello":  # it ends again in the middle of the new session's beginning
            raise relays._Problem("No Hermes gateway answers.")
        return await posted(relay, message, *rest)

    monkeypatch.setattr(Relay, "_post", post)
    async with relayed(f"http://127.0.0.1:{settings['port']}") as client:
        async with serving(settings, tmp_path, monkeypatch):
            await client.initialize()
            await client.ask(1, "tools/list")
        async with serving(settings, tmp_path, monkeypatch):
            assert "No Hermes gateway" in (await client.ask(2, "tools/list"))["error"]["message"]
            ends = False
            assert "result" in await client.ask(3, "tools/list")


async def test_a_call_that_breaks_off_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), relayed(url) as client:
        await client.initialize()
        adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, TurnFinished()]
        asking = asyncio.create_task(client.ask(1, "tools/call", name="ask", arguments={"message": "x"}))
        await until(lambda: getattr(adapter, "submitted", None))
        await adapter.disconnect()
        answer = await asking
        gate.open()
        assert "`wait`" in answer["error"]["message"] or "shutting down" in str(answer)


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "RETRY_SECONDS", 0.0)
    async with relayed(f"http://127.0.0.1:{free_port()}") as client:
        answer = await client.ask(1, "initialize", protocolVersion=VERSION, capabilities={}, clientInfo={})
        assert "Start it with `hermes gateway`" in answer["error"]["message"]


async def test_a_token_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({"require_token": True}, tmp_path, monkeypatch, key=KEY) as (_, url):
        async with relayed(url) as client:
            assert "AGUI_API_KEY" in (await client.initialize())["error"]["message"]
        async with relayed(url, KEY) as client:
            assert "result" in await client.initialize()


async def test_the_session_ends_with_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.test_mcp_door import _door

    async with serving({}, tmp_path, monkeypatch) as (adapter, url):
        async with relayed(url) as client:
            await client.initialize()
            assert len(_door(adapter)._sessions) == 1
        assert not _door(adapter)._sessions


async def test_a_message_of_a_wrong_shape_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({}, tmp_path, monkeypatch) as (_, url), relayed(url) as client:
        await client.initialize()
        wrong: list[Json] = [
            *({"id": one, "method": "tools/list"} for one in ([1], {"a": 1}, 1.5, None)),
            {"id": 7, "method": ["x"]},
            {"id": 7, "method": "tools/list", "params": [1]},
            {"id": 7, "method": "tools/list", "params": {"_meta": [1]}},
        ]
        unanswered: list[Json] = [
            {"method": "notifications/cancelled", "params": {"requestId": [1]}},
            {"method": "notifications/cancelled", "params": "x"},
            {"id": [1], "result": {}},
        ]
        for one in (*unanswered, *wrong):
            client.queue.put_nowait({"jsonrpc": "2.0", **one})
        assert "result" in await client.ask(1, "tools/list")
        refused = [one for one in client.told if "error" in one]
        assert [one["error"]["code"] for one in refused] == [-32600] * len(wrong)
        assert [one["id"] for one in refused] == [None] * 4 + [7] * 3
