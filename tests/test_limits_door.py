"""Limits at the door: what is refused before anything starts, and that every place comes back on every path."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, serving, until

KEY = "limits-test-key-0123456789"
JSON = {"Content-Type": "application/json"}
OWNER = {"Authorization": f"Bearer {KEY}"}
Opened = tuple[ScriptedAdapter, str, aiohttp.ClientSession]


@pytest.fixture
def open_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    @asynccontextmanager
    async def door(**extra: Any) -> AsyncIterator[Opened]:
        async with (
            serving({"heartbeat_seconds": 0.2, **extra}, tmp_path, monkeypatch, key=KEY) as (adapter, url),
            aiohttp.ClientSession() as http,
        ):
            yield adapter, url, http

    return door


def body(thread: str = "t", number: int = 1, **more: Any) -> dict[str, Any]:
    message = {"id": f"u{number}", "role": "user", "content": "Hello"}
    return {"threadId": thread, "runId": f"r{number}", "protocolVersion": "1.0", "messages": [message], **more}


async def problem(response: aiohttp.ClientResponse) -> dict[str, Any]:
    assert response.status >= 400, await response.text()
    found: dict[str, Any] = await response.json(content_type="application/problem+json")
    assert found["detail"].endswith((".", ")."))
    if response.status in (408, 429):
        assert int(response.headers["Retry-After"]) >= 1
    return found


async def still_served(http: aiohttp.ClientSession, url: str) -> None:
    async with http.post(f"{url}/agui", json=body("after")) as response:
        assert response.status == 200 and "RUN_FINISHED" in await response.text()


async def test_requests_in_a_minute(open_door: Callable[..., Any]) -> None:
    async with open_door(requests_per_minute=3) as (_, url, http):
        for _ in range(3):
            async with http.get(f"{url}/agui/threads") as response:
                assert response.status == 200
        async with http.get(f"{url}/agui/threads") as response:
            assert (await problem(response))["code"] == "too_many_requests"
        async with http.get(f"{url}/agui/threads", headers=OWNER) as response:
            assert response.status == 200
        async with http.get(f"{url}/health") as response:
            assert response.status == 200


async def test_a_route_that_asks_twice_counts_once(open_door: Callable[..., Any]) -> None:
    async with open_door(requests_per_minute=2) as (adapter, url, http):
        adapter.script = [MessageStart("m"), MessageChunk("Hi"), TurnFinished()]
        async with http.post(f"{url}/agui", json=body()) as response:
            assert response.status == 200 and await response.read()
        async with http.get(f"{url}/agui/threads/t") as response:
            assert response.status == 200


async def test_wrong_tokens_from_one_address(open_door: Callable[..., Any]) -> None:
    async with open_door(failures_per_minute=3) as (_, url, http):
        async with http.get(f"{url}/agui/threads", headers=OWNER) as response:
            assert response.status == 200
        statuses = []
        for number in range(5):
            headers = {"Authorization": f"Bearer wrong-{number}"}
            async with http.get(f"{url}/agui/threads", headers=headers) as response:
                statuses.append(response.status)
                await problem(response)
        assert statuses == [401, 401, 401, 429, 429]
        async with http.get(f"{url}/agui/threads", headers=OWNER) as response:
            assert response.status == 200  # a token that was good is not shut out


async def test_bodies(open_door: Callable[..., Any]) -> None:
    deep: Any = 1
    for _ in range(20):
        deep = [deep]
    tool = {"name": "a", "description": "x" * 2000, "parameters": {"type": "object", "properties": {}}}
    async with open_door(
        max_json_depth=16, max_tools=1, max_tools_bytes=1024, max_messages=2, max_body_bytes=50_000
    ) as (
        adapter,
        url,
        http,
    ):
        many = [{"id": f"u{number}", "role": "user", "content": "x"} for number in range(3)]
        found = {}
        for name, sent in {
            "deep": body(forwardedProps={"x": deep}),
            "tools": body(tools=[tool | {"name": name, "description": ""} for name in "ab"]),
            "schemas": body(tools=[tool]),
            "messages": body(messages=many),
            "large": body(forwardedProps={"x": "y" * 60_000}),
        }.items():
            async with http.post(f"{url}/agui", json=sent) as response:
                found[name] = (response.status, (await problem(response))["code"])
        assert found == {
            "deep": (400, "too_deep"),
            "tools": (413, "too_many_tools"),
            "schemas": (413, "tools_too_large"),
            "messages": (413, "too_many_messages"),
            "large": (413, "body_too_large"),
        }
        async with http.patch(f"{url}/agui/threads/t", data=json.dumps({"title": deep}), headers=JSON) as response:
            assert response.status == 404  # who has no such thread learns nothing of limits
        assert not getattr(adapter, "submitted", []) and adapter.limits.streams.taken == 0
        await still_served(http, url)


async def test_a_body_that_does_not_come(open_door: Callable[..., Any]) -> None:
    async with open_door(body_seconds=0.3) as (adapter, url, http):

        async def slow() -> AsyncIterator[bytes]:
            yield b'{"threadId":'
            await asyncio.sleep(PATIENCE)

        headers = {"Content-Type": "application/json"}
        async with http.post(f"{url}/agui", data=slow(), headers=headers) as response:
            assert response.status == 408 and (await problem(response))["code"] == "body_too_slow"
        await until(lambda: adapter.limits.streams.taken == 0)
        await still_served(http, url)


async def begun(http: aiohttp.ClientSession, url: str, thread: str, **options: Any) -> aiohttp.ClientResponse:
    response = await http.post(f"{url}/agui", json=body(thread), **options)
    assert response.status == 200, await response.text()
    return response


async def test_turns_at_once(open_door: Callable[..., Any]) -> None:
    async with open_door(max_turns=3, max_turns_per_principal=2) as (adapter, url, http):
        gate = Gate()
        adapter.script = [MessageStart("m"), MessageChunk("Hi"), gate, TurnFinished()]
        runs = [await begun(http, url, str(number)) for number in range(2)]
        async with http.post(f"{url}/agui", json=body("third")) as response:
            assert response.status == 429 and (await problem(response))["code"] == "too_many_turns"
        runs.append(await begun(http, url, "other", headers=OWNER))
        async with http.post(f"{url}/agui", json=body("fourth"), headers=OWNER) as response:
            assert response.status == 429
        # The same run again is a replay, whatever the limits say.
        async with http.post(f"{url}/agui", json=body("0")) as response:
            assert response.status == 200
            gate.open()
            assert (await response.text()).count("RUN_FINISHED") == 1
        for run in runs:
            assert (await run.text()).count("RUN_FINISHED") == 1
        assert adapter.live_turns() == [] and not adapter.limits._opening
        await still_served(http, url)
        assert {turn.thread.thread_id for turn in adapter.submitted} == {"0", "1", "other", "after"}


async def test_streams_at_once(open_door: Callable[..., Any]) -> None:
    async with open_door(max_streams=3, max_streams_per_principal=2) as (adapter, url, http):
        adapter.script = [MessageStart("m"), MessageChunk("Hi"), TurnFinished()]
        await still_served(http, url)
        feeds = [await http.get(f"{url}/agui/threads/after/events") for _ in range(2)]
        assert [feed.status for feed in feeds] == [200, 200]
        before = len(adapter.submitted)
        async with http.post(f"{url}/agui", json=body("x")) as response:
            assert response.status == 429 and (await problem(response))["code"] == "too_many_streams"
        assert len(adapter.submitted) == before  # what could not be read was not begun
        async with http.post(f"{url}/agui", json=body("x"), headers=OWNER) as response:
            assert response.status == 200 and await response.read()
        feeds[0].close()
        await until(lambda: adapter.limits.streams.taken == 1)
        await still_served(http, url)
        feeds[1].close()
        await until(lambda: adapter.limits.streams.taken == 0)


@pytest.mark.parametrize("how", ["fails", "cancelled"])
async def test_a_stream_that_breaks_gives_its_place_back(
    open_door: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with open_door() as (adapter, url, http):

        async def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError("broken") if how == "fails" else asyncio.CancelledError

        monkeypatch.setattr(adapter.archive, "load", broken)
        with pytest.raises(aiohttp.ClientError) if how == "cancelled" else contextlib.nullcontext():
            async with http.post(f"{url}/agui", json=body()) as response:
                assert response.status == 500
        await until(lambda: adapter.limits.streams.taken == 0)
        assert not adapter.limits._opening
        monkeypatch.undo()
        await still_served(http, url)


async def test_a_run_stream_that_reaches_its_time_has_its_end(open_door: Callable[..., Any]) -> None:
    async with open_door(stream_seconds=0.3) as (adapter, url, http):
        gate = Gate()
        adapter.script = [MessageStart("m"), MessageChunk("Hi"), gate, TurnFinished()]
        async with http.post(f"{url}/agui", json=body()) as response:
            events = [json.loads(line[6:]) for line in (await response.text()).splitlines() if line[:6] == "data: "]
        assert [event["type"] for event in events][-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
        assert events[-1]["code"] == "stream_over"
        assert len(adapter.live_turns()) == 1  # the turn goes on
        assert adapter.limits.streams.taken == 0
        gate.open()
        await until(lambda: not adapter.live_turns())


async def test_a_turn_takes_no_place_once_its_end_is_told(open_door: Callable[..., Any]) -> None:
    """Whoever asks again as soon as the answer is there: the gateway may still write its records of the turn."""
    async with open_door(max_turns=1) as (adapter, url, http):
        gate = Gate()
        script = [MessageStart("m"), MessageChunk("Hi"), lambda turn: turn.append(TurnFinished()), gate, TurnFinished()]
        adapter.script = script
        asked = {"messages": [{"role": "user", "content": "Hello"}]}
        for _ in range(3):
            async with http.post(f"{url}/v1/chat/completions", json=asked, headers=OWNER) as response:
                assert response.status == 200, await response.text()
        assert len(adapter._cycles) == 3 and not adapter.live_turns()
        gate.open()
        await until(lambda: not adapter._cycles)


@pytest.mark.parametrize("limit", ["stream_seconds", "stream_idle_seconds"])
async def test_a_feed_that_reaches_its_time_ends_in_order(open_door: Callable[..., Any], limit: str) -> None:
    async with open_door(**{limit: 0.5}) as (adapter, url, http):
        adapter.script = [MessageStart("m"), MessageChunk("Hi"), TurnFinished()]
        await still_served(http, url)
        async with asyncio.timeout(PATIENCE), http.get(f"{url}/agui/threads/after/events") as response:
            assert response.status == 200
            await response.read()  # an end, not a connection that breaks off
        await until(lambda: adapter.limits.streams.taken == 0)
        thread = adapter.threads.by_chat("local.after")
        assert thread is not None and thread.watchers == 0


async def test_logs_of_all_turns(open_door: Callable[..., Any]) -> None:
    async with open_door(log_bytes_total=1 << 20) as (adapter, url, http):
        adapter.script = [MessageStart("m"), MessageChunk("x" * 700_000), TurnFinished()]
        for number in range(4):  # finished ones make room
            async with http.post(f"{url}/agui", json=body(f"t{number}")) as response:
                assert response.status == 200 and await response.read()
        kept = [turn for thread in adapter.threads for turn in thread.turns.values()]
        assert sum(turn.log.size for turn in kept) < 2 * (1 << 20)
        gate = Gate()
        adapter.script = [MessageStart("m"), MessageChunk("x" * 1_100_000), gate, TurnFinished()]
        run = await begun(http, url, "running")
        async with http.post(f"{url}/agui", json=body("next")) as response:
            assert response.status == 429 and (await problem(response))["code"] == "logs_full"
        gate.open()
        await run.read()
        async with http.post(f"{url}/agui", json=body("next")) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "stream": True}),
        ("/v1/responses", {"input": "Hello", "stream": True}),
        ("/chat/stream", {"message": "Hello"}),
    ],
)
async def test_what_cannot_be_read_is_not_begun_by_any_door(
    open_door: Callable[..., Any], path: str, sent: dict[str, Any]
) -> None:
    async with open_door(max_streams=1) as (adapter, url, http):
        adapter.script = [MessageStart("m"), MessageChunk("Hi"), TurnFinished()]
        await still_served(http, url)
        async with http.get(f"{url}/agui/threads/after/events") as feed:
            assert feed.status == 200
            before = len(adapter.submitted)
            async with http.post(url + path, json=sent, headers=OWNER) as response:
                assert response.status == 429, await response.text()
            assert len(adapter.submitted) == before and not adapter.live_turns()
