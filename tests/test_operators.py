"""What operators see: liveness, details and metrics for whom they are meant, and a log of requests without content."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agui_adapter import server as server_module
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, serving, until

KEY = "operator-test-key-0123456789"
OWNER = {"Authorization": f"Bearer {KEY}"}
SECRET = "the user's own words"
Opened = tuple[ScriptedAdapter, str, aiohttp.ClientSession]


@pytest.fixture
def open_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    @asynccontextmanager
    async def door(**extra: Any) -> AsyncIterator[Opened]:
        async with serving(extra, tmp_path, monkeypatch, key=KEY) as (adapter, url), aiohttp.ClientSession() as http:
            adapter.script = [MessageStart("m"), MessageChunk("Hi"), TurnFinished()]
            yield adapter, url, http

    return door


def body(thread: str = "t") -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "content": SECRET}
    return {"threadId": thread, "runId": "r1", "protocolVersion": "1.0", "messages": [message]}


async def scrape(http: aiohttp.ClientSession, url: str, **options: Any) -> dict[tuple[Any, ...], float]:
    """Each sample by its name and its labels' values, in the order of the labels' names."""
    async with http.get(f"{url}/metrics", headers=OWNER, **options) as response:
        assert response.status == 200 and response.headers["Content-Type"].startswith("text/plain")
        text = await response.text()
    families = list(text_string_to_metric_families(text))
    return {
        (one.name, *map(one.labels.get, sorted(one.labels))): one.value for family in families for one in family.samples
    }


class TestMetrics:
    async def test_a_turn_and_a_refusal_are_counted(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (adapter, url, http):
            async with http.post(f"{url}/agui", json=body()) as response:
                assert response.status == 200 and await response.read()
            adapter.script = [TurnFinished("failed", "provider_auth", "no")]
            async with http.post(f"{url}/agui", json=body("u")) as response:
                assert response.status == 200 and await response.read()
            async with http.get(f"{url}/agui/threads/unknown") as response:
                assert response.status == 404
            found = await scrape(http, url)
            assert found["hermes_agui_turns_total", "", "success"] == 1
            assert found["hermes_agui_turns_total", "provider_auth", "failed"] == 1
            assert found["hermes_agui_turn_seconds_count",] == 2
            assert found["hermes_agui_first_text_seconds_count",] == 1
            assert found["hermes_agui_refusals_total", "no_such_thread", "404"] == 1
            assert found["hermes_agui_turns_running",] == found["hermes_agui_streams_open",] == 0
            assert found["hermes_agui_log_bytes",] > 0 and found["hermes_agui_threads",] == 2

    async def test_what_is_there_now(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (adapter, url, http):
            gate = Gate()
            adapter.script = [MessageStart("m"), MessageChunk("Hi"), gate, TurnFinished()]
            async with http.post(f"{url}/agui", json=body()) as response:
                found = await scrape(http, url)
                assert found["hermes_agui_turns_running",] == found["hermes_agui_streams_open",] == 1
                gate.open()
                await response.read()
            await until(lambda: not adapter.limits.streams.taken)
            assert (await scrape(http, url))["hermes_agui_turns_running",] == 0

    async def test_no_label_holds_what_a_user_chose(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (_, url, http):
            async with http.post(f"{url}/agui", json=body("a-private-thread")) as response:
                await response.read()
            async with http.get(f"{url}/nowhere/a-private-thread") as response:
                assert response.status == 404
            async with http.get(f"{url}/metrics", headers=OWNER) as response:
                text = await response.text()
            assert "private" not in text and SECRET not in text and "local" not in text

    @pytest.mark.parametrize(
        ("setting", "anybody", "owner"), [("owner", 403, 200), ("open", 200, 200), ("off", 404, 404)]
    )
    async def test_who_may_read_them(
        self, open_door: Callable[..., Any], setting: str, anybody: int, owner: int
    ) -> None:
        async with open_door(metrics=setting) as (_, url, http):
            async with http.get(f"{url}/metrics") as response:
                assert response.status == anybody
            async with http.get(f"{url}/metrics", headers=OWNER) as response:
                assert response.status == owner

    async def test_without_the_library(self, open_door: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_module, "available", lambda: False)
        async with open_door() as (_, url, http):
            async with http.post(f"{url}/agui", json=body()) as response:
                assert response.status == 200 and await response.read()
            async with http.get(f"{url}/metrics", headers=OWNER) as response:
                assert response.status == 501 and "hermes-agui[metrics]" in (await response.json())["detail"]


class TestHealth:
    async def test_liveness_tells_nothing(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (adapter, url, http):
            async with http.get(f"{url}/health") as response:
                assert response.status == 200 and set(await response.json()) == {"status", "version"}
            adapter.started = False
            async with http.get(f"{url}/health") as response:
                assert response.status == 503

    async def test_details_are_the_owners(self, open_door: Callable[..., Any]) -> None:
        async with open_door() as (_, url, http):
            async with http.get(f"{url}/health/detailed") as response:
                assert response.status == 403 and (await response.json())["code"] == "scope_missing"
            async with http.get(f"{url}/health/detailed", headers=OWNER) as response:
                found = await response.json()
            assert found["status"] == "ok" and found["store"] == {"onDisk": True}
            assert found["sessions"] == {"stored": True, "turnsLost": 0}
            assert found["turns"] == {"running": 0, "most": 32} and found["parked"] == {"turns": 0, "most": 64}
            assert found["libraries"]["hermes-agent"] == "0.19.0"
            assert KEY not in json.dumps(found)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "hermes_agui.access"]


class TestAccessLog:
    async def test_a_line_for_each_request(
        self, open_door: Callable[..., Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "hermes_agui.access")
        async with open_door(access_log=True) as (_, url, http):
            async with http.post(f"{url}/agui", json=body("a-private-thread")) as response:
                await response.read()
            async with http.get(f"{url}/agui/threads/a-private-thread?q={SECRET}", headers=OWNER) as response:
                assert response.status == 404
            async with http.get(f"{url}/nowhere", headers={"Authorization": "Bearer wrong"}) as response:
                assert response.status == 404
            await until(lambda: len(lines(caplog)) == 3)
        posted, looked, lost = lines(caplog)
        assert (posted["method"], posted["route"], posted["status"]) == ("POST", "/agui", 200)
        assert posted["principal"] == "local" and posted["peer"] == "127.0.0.1" and posted["ms"] >= 0
        assert (looked["route"], looked["code"]) == ("/agui/threads/{thread_id}", "no_such_thread")
        assert looked["principal"] == "owner"
        assert (lost["route"], lost["status"], lost["principal"]) == ("", 404, "")
        text = caplog.text
        assert SECRET not in text and KEY not in text and "wrong" not in text
        assert "private" not in "".join(map(str, lines(caplog)))

    async def test_a_client_that_left(self, open_door: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "hermes_agui.access")
        async with open_door(access_log=True) as (adapter, url, http):
            gate = Gate()
            adapter.script = [MessageStart("m"), MessageChunk("Hi"), gate, TurnFinished()]
            async with asyncio.timeout(PATIENCE):
                response = await http.post(f"{url}/agui", json=body())
                await response.content.readany()
                response.close()
            await until(lambda: lines(caplog))
            assert lines(caplog)[0]["status"] in (200, 499)
            gate.open()

    async def test_off_by_default(self, open_door: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "hermes_agui.access")
        async with open_door() as (_, url, http), http.get(f"{url}/health"):
            pass
        assert not lines(caplog)
