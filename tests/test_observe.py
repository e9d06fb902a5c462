"""The observer: what the seam reports of another session's turns, as threads and logs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from agui_adapter.events import View
from agui_adapter.feed import Feed
from agui_adapter.observe import Observer, session_id
from agui_adapter.session import Turn
from agui_adapter.sse import SseParser
from agui_adapter.stream import Outcome, TurnFinished
from agui_adapter.tap import Failure
from tests.scripted import until

KEY = "agent:main:telegram:dm:4711"


def read(chunk: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in SseParser().feed(chunk)]


class Kept:
    """An observer and what it has recorded."""

    def __init__(self) -> None:
        self.records: list[tuple[Turn, Outcome]] = []
        self.running = True
        self.observer = Observer(
            asyncio.get_running_loop(),
            log_bytes=1 << 20,
            max_result_chars=1000,
            keep_seconds=10,
            record=lambda turn, outcome: self.records.append((turn, outcome)),
        )


@pytest.fixture
async def kept() -> Kept:
    return Kept()


def test_an_id_tells_nothing_of_the_chat() -> None:
    assert session_id(KEY) != session_id(KEY + "1")
    assert "4711" not in session_id(KEY) and len(session_id(KEY)) == 32


async def test_a_turn_from_begin_to_end(kept: Kept) -> None:
    tap = kept.observer.begin(KEY, "Hello", 7, lambda: True)
    tap.begin("Hello")
    tap.text("Hi")
    await asyncio.sleep(0)
    thread = kept.observer.thread(KEY)
    assert thread.current is tap.turn and thread.last_row == 7
    assert kept.observer.key_of(thread) == KEY
    assert tap.turn.inputs[0]["content"] == "Hello"
    tap.final("Hi")
    kept.observer.end(tap, "success")
    await asyncio.wait_for(tap.turn.done.wait(), 5)
    assert thread.current is None
    assert kept.records == [(tap.turn, "success")]
    tap.text("too late")
    assert isinstance(tap.turn.log.events()[-1], TurnFinished)


async def test_reported_from_worker_threads(kept: Kept) -> None:
    def work() -> None:
        for number in range(50):
            tap = kept.observer.begin(f"{KEY}{number % 5}", "x", 0, lambda: True)
            tap.begin("x")
            tap.final("y")
            kept.observer.end(tap, "success")

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await asyncio.to_thread(worker.join)
    await asyncio.sleep(0.05)
    assert len(kept.records) == 200
    assert all(turn.log.closed for turn, _ in kept.records)


async def test_a_turn_that_ends_without_a_word_is_found_out(kept: Kept) -> None:
    tap = kept.observer.begin(KEY, "Hello", 0, lambda: kept.running)
    tap.begin("Hello")
    tap.text("half a sen")
    tap.failure = Failure("provider_auth", "The key is wrong.")
    kept.running = False
    await asyncio.wait_for(tap.turn.done.wait(), 5)
    end = tap.turn.log.events()[-1]
    assert end == TurnFinished("failed", "provider_auth", "The key is wrong.")
    assert kept.records == [(tap.turn, "failed")]


async def test_a_turn_that_begins_ends_the_one_before(kept: Kept) -> None:
    first = kept.observer.begin(KEY, "one", 0, lambda: True)
    second = kept.observer.begin(KEY, "two", 0, lambda: True)
    await asyncio.sleep(0)
    assert first.turn.done.is_set() and not second.turn.done.is_set()
    assert kept.observer.thread(KEY).current is second.turn


async def test_a_watcher_is_no_reader(kept: Kept) -> None:
    """Whether a turn is read decides in own threads whether it may be interrupted: a watcher must not count."""
    tap = kept.observer.begin(KEY, "Hello", 0, lambda: True)
    await asyncio.sleep(0)
    feed = Feed(kept.observer.thread(KEY), View(), history=[], once=True, counts=False)
    chunks = feed.chunks()
    events = read(await anext(chunks))
    assert tap.turn.readers == 0
    assert [event["type"] for event in events] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    kept.observer.end(tap, "success")
    rest = read(b"".join([chunk async for chunk in chunks]))
    assert rest[-1]["type"] == "RUN_FINISHED"


async def test_the_end_of_the_server_ends_every_log(kept: Kept) -> None:
    tap = kept.observer.begin(KEY, "Hello", 0, lambda: True)
    await asyncio.sleep(0)
    kept.observer.close()
    assert tap.turn.log.events()[-1] == TurnFinished(
        "failed", "gateway_stopped", "The gateway is shutting down; look again when it is back."
    )


async def test_the_end_of_the_server_ends_every_feed(kept: Kept) -> None:
    """That of a session whose turn runs, with an error; that of an idle one in silence."""
    tap = kept.observer.begin(KEY, "Hello", 0, lambda: True)
    await asyncio.sleep(0)
    serves = True
    threads = [kept.observer.thread(KEY), kept.observer.thread(f"{KEY}-idle")]
    feeds = [Feed(thread, View(), history=[], counts=False, still=lambda: serves).chunks() for thread in threads]

    async def whole(feed: Any) -> list[dict[str, Any]]:
        return read(b"".join([chunk async for chunk in feed]))

    reading = [asyncio.create_task(whole(feed)) for feed in feeds]
    await until(lambda: all(thread.watchers for thread in threads))
    serves = False
    kept.observer.close()
    running, idle = await asyncio.wait_for(asyncio.gather(*reading), 5)
    assert idle == []
    assert (running[-1]["type"], running[-1]["code"]) == ("RUN_ERROR", "gateway_stopped")
    assert tap.turn.done.is_set() and not any(thread.watchers for thread in threads)


async def test_what_is_over_is_forgotten(kept: Kept) -> None:
    tap = kept.observer.begin(KEY, "Hello", 0, lambda: True)
    kept.observer.end(tap, "success")
    await asyncio.wait_for(tap.turn.done.wait(), 5)
    thread = kept.observer.thread(KEY)
    kept.observer.sweep(time.monotonic() + 5)
    assert kept.observer.thread(KEY) is thread
    thread.watchers = 1
    kept.observer.sweep(time.monotonic() + 20)
    assert kept.observer.thread(KEY) is thread and not thread.turns  # somebody waits for its next turn
    thread.watchers = 0
    kept.observer.sweep(time.monotonic() + 20)
    assert kept.observer.key_of(thread) is None
