"""500 threads with one turn each: what an idle one costs is measured and bounded, and nothing of them is in the way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # 500 turns, on a slow machine too

THREADS = 500
# What Hermes itself keeps of a session (its cached agent, with tools and client) is the most of it; what is ours of an
# idle thread is measured alone, in tests/test_memory.py.
BYTES_A_THREAD = 700_000


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read())
    assert found is not None
    return int(found[1]) * 1024


def test_500_threads_with_one_turn_each(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"turn_ttl_seconds": 0})
    assert gateway.pid is not None
    for _ in range(5):
        Chat(gateway).say(script({"text": "Warm."})).succeeded()
    before = _resident(gateway.pid)

    def one(number: int) -> Chat:
        chat = Chat(gateway)
        chat.say(script({"text": f"Answer {number}."}, say=str(number))).succeeded()
        return chat

    with ThreadPoolExecutor(4) as pool:
        chats = list(pool.map(one, range(THREADS)))
    time.sleep(31)  # finished turns are forgotten at the next sweep
    grown = (_resident(gateway.pid) - before) / THREADS
    print(f"{grown / 1024:.0f} KiB resident for each of {THREADS} threads")
    assert grown < BYTES_A_THREAD

    page = httpx.get(f"{gateway.url}/agui/threads?limit=200", timeout=60, trust_env=False).json()
    assert page["total"] == THREADS + 5 and len(page["threads"]) == 200
    for chat in (chats[0], chats[THREADS // 2], chats[-1]):
        chat.say(script({"text": "Still here."})).succeeded()
        chat.assert_as_transcript()
