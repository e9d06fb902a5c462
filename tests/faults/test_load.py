"""Ten minutes of load: 200 readers of idle threads, 16 turns that stream, 64 that wait. Nothing grows.

`LOAD_SECONDS` chooses another length. What was measured is printed (`pytest -s`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import psutil
import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.sse import SseParser
from tests.e2e.asking import COLOR, asks_client
from tests.e2e.helpers import script, unique, wait_until
from tests.faults.conftest import FAULTY_OPTIONS
from tests.faults.invariants import busy, detailed

SECONDS = float(os.environ.get("LOAD_SECONDS") or 600)
READERS, ACTIVE, PARKED = 200, 16, 64
TURNS = 8  # of each thread that streams
WARM = min(240.0, SECONDS * 0.4)  # until then pools fill, and Hermes's 128 agents that it keeps
HEARTBEAT = 15.0


class Load:
    """What runs, and what was seen of it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.beats: dict[str, list[float]] = {}
        self.first: list[tuple[float, float]] = []  # when a turn began, and the seconds to its first text
        self.turns = 0
        self.samples: list[dict[str, Any]] = []
        self.until = 0.0

    async def events(
        self, http: aiohttp.ClientSession, thread: str, messages: list[dict[str, Any]]
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a run."""
        body = {"threadId": thread, "runId": unique("r"), "protocolVersion": "1.0", "messages": messages}
        body |= {"tools": [COLOR], "state": {}, "context": [], "forwardedProps": {}}
        parser = SseParser()
        async with http.post(f"{self.gateway.url}/agui", json=body) as response:
            assert response.status == 200, await response.text()
            async for chunk in response.content.iter_any():
                for event in parser.feed(chunk):
                    yield json.loads(event.data)

    async def say(self, http: aiohttp.ClientSession, thread: str, text: str) -> list[dict[str, Any]]:
        message = {"id": unique("u"), "role": "user", "content": text}
        return [event async for event in self.events(http, thread, [message])]

    async def read(self, http: aiohttp.ClientSession, thread: str) -> None:
        """A reader of an idle thread, for as long as it takes; the times of its heartbeats."""
        beats = self.beats[thread] = [time.monotonic()]
        async with http.get(f"{self.gateway.url}/agui/threads/{thread}/events") as response:
            assert response.status == 200
            async for chunk in response.content.iter_any():
                if b": keep-alive" in chunk:
                    beats.append(time.monotonic())
        assert time.monotonic() >= self.until, "a stream ended before the load did"

    async def stream(self, http: aiohttp.ClientSession) -> None:
        """One turn after another, some on each thread, which is deleted then: what goes on, Hermes keeps."""
        thread, text = "", script({"text": "word " * 60, "chunk": 5, "delta_ms": 50})
        for number in itertools.count():
            if time.monotonic() >= self.until:
                return
            if number % TURNS == 0:
                if thread:
                    async with http.delete(f"{self.gateway.url}/agui/threads/{thread}") as response:
                        assert response.status < 300, await response.text()
                thread = unique("active")
            began, ends, first = time.monotonic(), 0, 0.0
            message = {"id": unique("u"), "role": "user", "content": text}
            async for event in self.events(http, thread, [message]):
                if event["type"] == "TEXT_MESSAGE_CONTENT" and not first:
                    first = time.monotonic() - began
                ends += event["type"] == "RUN_FINISHED"
                assert event["type"] != "RUN_ERROR", event
            assert ends == 1 and first
            self.first.append((began, first))
            self.turns += 1

    async def sample(self) -> None:
        """What the process takes, every few seconds."""
        process = psutil.Process(self.gateway.pid)
        began = time.monotonic()
        while time.monotonic() < self.until:
            found = await asyncio.to_thread(detailed, self.gateway)
            self.samples.append(
                {
                    "at": round(time.monotonic() - began),
                    "rss": process.memory_info().rss / 1e6,
                    "files": process.num_fds(),
                    "threads": process.num_threads(),
                    "logs": found["logBytes"] / 1e6,
                    "running": found["turns"]["running"],
                    "parked": found["parked"]["turns"],
                    "streams": found["streams"]["open"],
                }
            )
            await asyncio.sleep(min(10.0, SECONDS / 20))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
async def test_nothing_grows(make_gateway: Callable[..., Gateway]) -> None:
    agui = {"max_parked_per_principal": PARKED, "turn_ttl_seconds": 30, "heartbeat_seconds": HEARTBEAT}
    agui |= {"client_tool_timeout_seconds": 0}  # those that wait do so to the end
    options = FAULTY_OPTIONS | {"config": {"agent": {"api_max_retries": 2}}, "toolsets": ("terminal", "clarify")}
    gateway = make_gateway(agui=agui, **options)
    load = Load(gateway)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        idle = [unique("idle") for _ in range(READERS)]
        gate = asyncio.Semaphore(8)

        async def one(thread: str, text: str) -> list[dict[str, Any]]:
            async with gate:
                return await load.say(http, thread, text)

        for events in await asyncio.gather(*(one(thread, "/status") for thread in idle)):
            assert events[-1]["type"] == "RUN_FINISHED"
        waiting = {unique("parked"): unique("k") for _ in range(PARKED)}
        for events in await asyncio.gather(*(one(thread, asks_client(call)) for thread, call in waiting.items())):
            assert events[-1]["outcome"]["pendingToolCallIds"]
        load.until = time.monotonic() + SECONDS
        readers = [asyncio.create_task(load.read(http, thread)) for thread in idle]
        async with asyncio.TaskGroup() as group:
            for _ in range(ACTIVE):
                group.create_task(load.stream(http))
            group.create_task(load.sample())
        assert not [reader for reader in readers if reader.done()], "a reader lost its stream"
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

        # All that waited are answered, each with its own.
        async def answer(thread: str, call: str) -> list[dict[str, Any]]:
            async with gate:
                message = {"id": unique("tm"), "role": "tool", "toolCallId": call, "content": f"for {call}"}
                return [event async for event in load.events(http, thread, [message])]

        answered = await asyncio.gather(*(answer(thread, call) for thread, call in waiting.items()))
        assert all(events[-1]["type"] == "RUN_FINISHED" for events in answered)
    await asyncio.to_thread(wait_until, lambda: busy(gateway) == (0, 0, 0), "all places are free again")
    report(load)


def report(load: Load) -> None:
    """Print what was seen, and judge it: from the end of the warm-up on, nothing may have grown."""
    early = [one for one in load.samples if WARM <= one["at"] < WARM + SECONDS / 4]
    late = [one for one in load.samples if one["at"] >= SECONDS * 3 / 4]
    mean = lambda samples, name: statistics.mean(one[name] for one in samples)  # noqa: E731
    seconds = sorted(first for _, first in load.first)
    gaps = [after - before for beats in load.beats.values() for before, after in itertools.pairwise(beats)]
    print(
        json.dumps(
            {
                "seconds": SECONDS,
                "turns": load.turns,
                "first text s (median, 95 %)": [
                    round(seconds[len(seconds) // 2], 3),
                    round(seconds[len(seconds) * 95 // 100], 3),
                ],
                "heartbeat gap s (most)": round(max(gaps), 1),
                **{
                    name: [round(mean(early, name), 1), round(mean(late, name), 1)]
                    for name in ("rss", "files", "threads", "logs", "streams", "running", "parked")
                },
            }
        )
    )
    assert all(len(beats) - 1 >= (SECONDS - HEARTBEAT) // (HEARTBEAT * 1.5) for beats in load.beats.values())
    assert max(gaps) < HEARTBEAT * 1.5
    assert all(one["parked"] == PARKED for one in load.samples)
    assert mean(late, "files") <= mean(early, "files") + 16
    assert mean(late, "threads") <= mean(early, "threads") + 16
    assert mean(late, "logs") <= mean(early, "logs") * 1.5 + 1
    assert mean(late, "rss") <= mean(early, "rss") + 25, "megabytes"
