"""What an idle thread costs here: measured, bounded, and forgotten in time. Hermes's own share is not counted."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc

from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread, Threads, Turn
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished

PRINCIPAL = Principal("local")
COUNT = 500
BYTES_A_THREAD = 8_000
"""An idle thread after one turn that is forgotten: the object, its lock, the ids that it must know."""


def one_turn(thread: Thread, text: str = "x" * 20_000) -> Turn:
    """A turn as a run leaves it: a client's messages, a log, ids."""
    messages = [{"id": f"u{number}", "role": "user", "content": text} for number in range(10)]
    turn = thread.begin(EventLog(asyncio.get_running_loop()))
    turn.begin_run(0, "run", base=messages)
    turn.inputs = messages
    thread.accept([message["id"] for message in messages])
    thread.call_ids.update(f"call-{number}" for number in range(10))
    turn.append(MessageStart("m"))
    for _ in range(100):
        turn.append(MessageChunk("word "))
    thread.end(turn, "success")
    return turn


async def test_an_idle_thread_is_small_once_its_turn_is_forgotten() -> None:
    threads = Threads(ttl_seconds=0)
    one_turn(threads.get(PRINCIPAL, "warm"))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(COUNT):
            one_turn(threads.get(PRINCIPAL, f"thread-{number}"), "x" * 20_000 + str(number))
        full = (tracemalloc.get_traced_memory()[0] - before) / COUNT
        gone = threads.sweep(time.monotonic() + 1)
        assert len(gone) == COUNT + 1
        gone.clear()
        gc.collect()
        idle = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()
    assert full > 20_000, "the measure does not see what a turn holds"
    print(f"an idle thread: {idle:.0f} bytes; with its finished turn: {full:.0f} bytes")
    assert idle < BYTES_A_THREAD
    assert len(threads) == COUNT + 1


async def test_finished_turns_are_forgotten_after_their_time_and_threads_after_a_day() -> None:
    threads = Threads(ttl_seconds=300)
    thread = threads.get(PRINCIPAL, "t")
    turn = one_turn(thread)
    now = time.monotonic()
    assert threads.sweep(now + 299) == [] and turn.id in thread.turns
    assert threads.sweep(now + 301) == [turn] and not thread.turns
    assert threads.find(PRINCIPAL, "t") is thread
    threads.sweep(now + 23 * 3600)
    assert threads.find(PRINCIPAL, "t") is thread
    threads.sweep(now + 25 * 3600)
    assert threads.find(PRINCIPAL, "t") is None and len(threads) == 0


async def test_what_is_still_needed_is_kept() -> None:
    """A turn that is read, or asked about, or runs; a thread that is watched, or being looked at."""
    threads = Threads(ttl_seconds=0)
    late = time.monotonic() + 48 * 3600
    read, asked, running, watched, locked = (threads.get(PRINCIPAL, name) for name in "abcde")
    one_turn(read).readers = 1
    wanted = one_turn(asked)
    running.begin(EventLog(asyncio.get_running_loop()))
    watched.watchers = 1
    async with locked.lock:
        gone = threads.sweep(late, lambda turn: turn is wanted)
    assert gone == []
    assert [threads.find(PRINCIPAL, name) is not None for name in "abcde"] == [True] * 5
    next(iter(read.turns.values())).readers = 0
    watched.watchers = 0
    assert len(threads.sweep(late)) == 2
    assert [threads.find(PRINCIPAL, name) is not None for name in "abcde"] == [False, False, True, False, False]


async def test_what_a_thread_remembers_is_bounded() -> None:
    thread = Threads(ttl_seconds=0).get(PRINCIPAL, "t")
    for number in range(20_000):
        thread.accept([f"message-{number}"])
    assert len(thread.accepted) == 4096
    assert "message-19999" in thread.accepted and "message-0" not in thread.accepted


async def test_a_log_that_is_over_holds_no_more_than_its_limit() -> None:
    log = EventLog(asyncio.get_running_loop(), limit_bytes=100_000)
    for number in range(50_000):
        log.append(MessageChunk(f"{number} "))
    log.append(TurnFinished())
    assert log.size < 500_000  # text is kept whole, merged; nothing else
