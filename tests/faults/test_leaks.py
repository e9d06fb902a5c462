"""Two thousand turns leave no task, thread, socket or memory behind. `LEAK_TURNS` chooses another number."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, call, script, unique, write_plugin
from tests.faults.conftest import FAULTY, FAULTY_OPTIONS
from tests.faults.invariants import busy

TURNS = int(os.environ.get("LEAK_TURNS") or 2000)
THREADS, AT_ONCE = 48, 8
# Turns go on whose reader has left: the next one of their thread waits, and one caller has many.
AGUI = {
    "turn_ttl_seconds": 1,
    "busy": "queue",
    "max_turns": THREADS,
    "max_turns_per_principal": THREADS,
    "requests_per_minute": 0,
}


def open_files(pid: int) -> list[str]:
    """Names of what the process has open. Hermes has a connection to its database for each agent that it keeps, and
    SQLite opens its log when it is next used: those come and go."""
    found = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(one.readlink().name)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads Linux's /proc")
@pytest.mark.timeout(3600)
def test_two_thousand_turns(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(start=False, agui=AGUI, **FAULTY_OPTIONS)
    write_plugin(gateway.home, "faulty", FAULTY)
    gateway.start()
    process = psutil.Process(gateway.pid)
    chats = [Chat(gateway) for _ in range(THREADS)]

    def turn(number: int) -> None:
        """Each of them another end: an answer, a tool, a failure, a reader that leaves."""
        chat = chats[number % THREADS]
        kind = number // THREADS % 4
        chat.messages = []  # a client that sends its newest message only
        if kind == 1:
            tool = call("terminal", {"command": "true"}, unique("c"))
            chat.say(script({"text": "I look.", "tools": [tool]}, {"text": "Seen."})).succeeded()
        elif kind == 2:
            assert chat.say(script({"status": 401, "message": "no"})).end["type"] == "RUN_ERROR"
        elif kind == 3:
            run = chat.start(script({"text": "one two three four five. " * 4, "delta_ms": 2}))
            run.wait(lambda run: run.frames or run.raw, "the start")
            assert run.status == 200, run.raw
            run.leave()
        else:
            chat.say(script({"text": "Hello."})).succeeded()

    def all_of(first: int, count: int) -> None:
        # A thread's turns one after another, eight threads at once.
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for start in range(first, first + count, THREADS):
                list(pool.map(turn, range(start, min(start + THREADS, first + count))))

    def counts() -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while busy(gateway) != (0, 0, 0) and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(35)  # finished turns are looked after every thirty seconds
        found: dict[str, Any] = json.loads(Chat(gateway).say("/count-all").succeeded().text())
        return found | {
            "files": len([name for name in open_files(process.pid) if not name.startswith("state.db")]),
            "sockets": len(process.net_connections()),
            "rss": process.memory_info().rss // 1_000_000,
        }

    warm = THREADS * 4
    all_of(0, warm)
    before = counts()
    all_of(warm, TURNS // 2)
    middle = counts()
    all_of(warm + TURNS // 2, TURNS - TURNS // 2)
    after = counts()
    for found in (before, middle, after):
        print(
            {name: len(value) if isinstance(value, list) else value for name, value in found.items() if name != "held"}
        )
    print({name: (before["held"].get(name, 0), number) for name, number in after["held"].items() if number > 40})
    assert len(after["tasks"]) <= len(before["tasks"]) + 2, after["tasks"]
    pooled = ("hermes-gateway_", "asyncio_", "ThreadPoolExecutor")
    own = [[one for one in found["threads"] if not one.startswith(pooled)] for found in (before, after)]
    assert len(own[1]) <= len(own[0]) + 2, own[1]
    assert after["sockets"] <= before["sockets"] + 8
    assert after["files"] <= before["files"] + 8
    for name in ("Turn", "EventLog", "Cycle", "AguiStream", "Run", "Pending", "_Stream"):
        assert after["held"].get(name, 0) <= before["held"].get(name, 0) + 4, name
    assert after["held"].get("Thread", 0) <= THREADS + 8
    # Hermes's own memory of 48 conversations grows with their length; a leak of a turn's events would be far more.
    assert after["rss"] - middle["rss"] <= max(60, (middle["rss"] - before["rss"]) * 2), (before, middle, after)
