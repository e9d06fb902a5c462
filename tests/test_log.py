"""EventLog: every reader sees every event in order, whoever appends; memory is bounded; a gap is reported, no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_adapter.log import Batch, EventLog
from agui_adapter.stream import (
    InnerToolResult,
    MessageChunk,
    MessageStart,
    ReasoningChunk,
    StreamEvent,
    ToolResult,
    TurnFinished,
)

PATIENCE = 30.0  # seconds until a test gives up on something that should come


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def read_all(log: EventLog, limit: int = 4096) -> list[tuple[int, StreamEvent]]:
    """A reader as doors have them: from the start to the end."""
    seen: list[tuple[int, StreamEvent]] = []
    position = 0
    async with asyncio.timeout(PATIENCE):
        while True:
            batch = await log.read(position, limit)
            assert not batch.gap
            seen += batch.events
            position = seen[-1][0] if seen else position
            if batch.closed:
                return seen


def appending(log: EventLog, name: str, count: int, pause: threading.Event) -> threading.Thread:
    def work() -> None:
        for number in range(count):
            assert log.append(MessageChunk(f"{name}.{number}"))
            if number % 40 == 0:
                pause.wait(0.001)  # let the readers catch up, so that waits and wake-ups meet appends

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("readers", [1, 200])
async def test_every_reader_sees_every_event_in_order(readers: int) -> None:
    log = EventLog(asyncio.get_running_loop())
    reading = [asyncio.create_task(read_all(log, limit=7 if number % 3 else 4096)) for number in range(readers)]
    await asyncio.sleep(0)
    pause = threading.Event()
    threads = [appending(log, name, 400, pause) for name in "abcd"]
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    log.append(TurnFinished())
    results = await asyncio.gather(*reading)
    wanted = log.take().events
    assert len(wanted) == 1601
    assert all(result == wanted for result in results)
    for name in "abcd":
        numbers = [int(e.text[2:]) for _, e in wanted if isinstance(e, MessageChunk) and e.text.startswith(name)]
        assert numbers == list(range(400))


async def test_a_wake_up_is_never_lost() -> None:
    """One event at a time: each must reach the waiting reader by itself, for nothing follows that could help."""
    log = EventLog(asyncio.get_running_loop())
    taken = threading.Semaphore(0)

    def work() -> None:
        for number in range(300):
            log.append(MessageChunk(str(number)))
            assert taken.acquire(timeout=PATIENCE)
        log.append(TurnFinished())

    thread = threading.Thread(target=work)
    thread.start()
    position = 0
    async with asyncio.timeout(PATIENCE):
        while not (batch := await log.read(position)).closed:
            position = batch.events[-1][0]
            taken.release()
    await asyncio.to_thread(thread.join)
    assert position == 300


async def test_the_end_fences_late_writers() -> None:
    log = EventLog(asyncio.get_running_loop())
    assert log.append(MessageChunk("a")) == 1
    assert not log.closed
    assert log.append(TurnFinished()) == 2
    assert log.closed
    assert not log.append(MessageChunk("late")) and not log.append(TurnFinished("failed"))
    assert log.take().events == [(1, MessageChunk("a")), (2, TurnFinished())]
    assert (await log.read(2)) == Batch([], [], True, False)


async def test_only_one_of_many_ends_counts() -> None:
    log = EventLog(asyncio.get_running_loop())
    start = threading.Barrier(8)
    ended: list[int] = []

    def work() -> None:
        start.wait()
        ended.append(log.append(TurnFinished()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert sorted(ended) == [0] * 7 + [1]


async def test_a_reader_stands_anywhere() -> None:
    log = EventLog(asyncio.get_running_loop())
    for number in range(10):
        log.append(MessageChunk(str(number)))
    for after in range(11):
        batch = log.take(after, limit=3)
        assert [position for position, _ in batch.events] == list(range(after + 1, min(after + 4, 11)))
        assert not batch.gap and not batch.closed
    log.append(TurnFinished())
    assert not log.take(0, limit=10).closed  # the end itself has not been read
    assert log.take(0, limit=11).closed


async def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    log = EventLog(asyncio.get_running_loop())
    readers = [asyncio.create_task(log.read()) for _ in range(50)]
    stays = asyncio.create_task(log.read())
    await until(lambda: len(log._waiters) == 51)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert len(log._waiters) == 1
    log.append(MessageChunk("a"))
    assert (await asyncio.wait_for(stays, PATIENCE)).events == [(1, MessageChunk("a"))]
    assert log._waiters == {}


async def test_a_reader_cancelled_while_it_is_woken_harms_nobody() -> None:
    log = EventLog(asyncio.get_running_loop())
    first, second = asyncio.create_task(log.read()), asyncio.create_task(log.read())
    await until(lambda: len(log._waiters) == 2)
    log.append(MessageChunk("a"))
    first.cancel()
    assert (await asyncio.wait_for(second, PATIENCE)).events == [(1, MessageChunk("a"))]
    await asyncio.gather(first, return_exceptions=True)
    assert log._waiters == {}


async def test_a_reader_that_is_woken_has_read_before_the_loop_looks_at_anything_else() -> None:
    log, seen = EventLog(asyncio.get_running_loop()), []
    reader = asyncio.create_task(log.read())
    await until(lambda: len(log._waiters) == 1)
    log.append(MessageChunk("a"))
    asyncio.get_running_loop().call_soon(lambda: seen.append(reader.done()))
    await reader
    assert seen == [True]


async def test_a_reader_that_fails_while_it_begins_to_wait_is_not_woken() -> None:
    log = EventLog(asyncio.get_running_loop())

    def fail() -> None:
        if log._waiters:
            raise RuntimeError("no")

    log.bring = fail
    with pytest.raises(RuntimeError):
        await log.read()
    assert log._waiters == {}


def test_an_append_after_the_loop_has_gone_is_kept() -> None:
    loop = asyncio.new_event_loop()
    log = EventLog(loop)

    async def leave() -> None:
        reader = asyncio.ensure_future(log.read())
        await asyncio.sleep(0)
        reader.cancel()

    loop.run_until_complete(leave())
    loop.close()
    assert log.append(MessageChunk("a")) == 1
    assert log.take().events == [(1, MessageChunk("a"))]


# -- shrinking -----------------------------------------------------------------------------------------------------


def idle(limit: int) -> EventLog:
    """A log that nobody waits on: its loop is never used."""
    return EventLog(asyncio.new_event_loop(), limit)


LIMIT = 65_536


@pytest.mark.parametrize(
    "make",
    [
        lambda number: ToolResult("terminal", call_id=str(number), content="x" * 20_000),
        lambda number: InnerToolResult("c", str(number), content="x" * 20_000),
        lambda number: MessageChunk("ab"),
        lambda number: ReasoningChunk("ab"),
        lambda number: ToolResult("t", call_id=str(number), content="y" * 9_000) if number % 9 else MessageChunk("ab"),
    ],
    ids=["results", "inner results", "text", "reasoning", "mixed"],
)
def test_memory_is_bounded(make: Callable[[int], StreamEvent]) -> None:
    log = idle(LIMIT * 16)
    for number in range(1800):
        log.append(make(number))
        assert log.size <= LIMIT * 16
    held = sum(len(getattr(event, "text", "") + getattr(event, "content", "")) for event in log.events())
    assert held <= log.size <= LIMIT * 16


def test_a_shortened_result_says_what_is_missing() -> None:
    log = idle(LIMIT)
    for number in range(100):
        log.append(ToolResult("terminal", call_id=str(number), content="x" * 5_000, cut=1))
    results = [event for event in log.events() if isinstance(event, ToolResult)]
    assert len(results) == 100
    assert all(len(result.content) + result.cut == 5_001 for result in results)
    assert all(result.cut == 1 for result in results[-4:])  # live readers get the newest ones whole
    assert results[0].cut > 1


def test_text_is_merged_and_never_lost() -> None:
    log = idle(LIMIT)
    pieces = [f"word {number} " for number in range(20_000)]
    for piece in pieces:
        log.append(MessageChunk(piece))
    events = log.events()
    assert len(events) < 3_000
    assert "".join(event.text for event in events if isinstance(event, MessageChunk)) == "".join(pieces)
    assert log.last == 20_000
    # More text than the limit is kept all the same, and what it costs beside itself is bounded.
    assert log.size < len("".join(pieces)) * 2 + LIMIT


def test_only_adjacent_deltas_of_a_kind_are_merged() -> None:
    log = idle(4096)
    for number in range(400):
        log.append(MessageStart(f"m{number}"))
        for text in "abc":
            log.append(MessageChunk(text))
        log.append(ReasoningChunk("r"))
    events = log.events()
    assert events[:3] == [MessageStart("m0"), MessageChunk("abc"), ReasoningChunk("r")]
    assert sum(isinstance(event, MessageStart) for event in events) == 400
    assert "".join(event.text for event in events if isinstance(event, MessageChunk)) == "abc" * 400


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from([MessageChunk("xxxxxxxx"), ReasoningChunk("yyyy"), MessageStart("m"), ToolResult("t")]),
        min_size=560,
        max_size=620,
    ),
    st.integers(1000, 60_000),
)
def test_a_gap_is_reported_exactly_inside_what_was_merged(script: list[StreamEvent], limit: int) -> None:
    log, whole = idle(limit), idle(1 << 40)
    for event in script:
        log.append(event)
        whole.append(event)
    boundaries = {0}
    texts: list[str] = [""]
    for position, event in log.take(0, limit=10_000).events:
        boundaries.add(position)
        texts.append(getattr(event, "text", ""))
    for after in range(len(script) + 1):
        batch = log.take(after, limit=10_000)
        assert batch.gap == (after not in boundaries), after
        if not batch.gap:
            said = "".join(getattr(event, "text", "") for _, event in batch.events)
            assert said == "".join(getattr(event, "text", "") for _, event in whole.take(after, limit=10_000).events)


async def test_a_reader_that_keeps_up_never_sees_a_gap() -> None:
    log = EventLog(asyncio.get_running_loop(), limit_bytes=LIMIT)
    reading = asyncio.create_task(read_all(log))
    for number in range(5_000):
        log.append(MessageChunk(f"{number} "))
        if number % 200 == 0:
            await asyncio.sleep(0)
    log.append(TurnFinished())
    seen = await reading
    assert "".join(e.text for _, e in seen if isinstance(e, MessageChunk)) == "".join(f"{n} " for n in range(5_000))
    assert seen[-1] == (5_001, TurnFinished())
