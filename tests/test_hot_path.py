"""The way of a text delta costs what it should: counted work and ratios, no times."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
from ag_ui.core import TextMessageContentEvent
from ag_ui.encoder import EventEncoder

from agui_adapter import log
from agui_adapter.events import AguiStream
from agui_adapter.hermes.redaction import hide, redact_lines
from agui_adapter.log import EventLog
from agui_adapter.run import Run
from agui_adapter.session import Principal, Thread, Turn
from agui_adapter.stream import GatewayNotice
from agui_adapter.tap import Secrets, Tap

DELTAS = 2000
TEXTS = [f"word {number} " for number in range(DELTAS)]


class CountingLoop:
    """The loop of a log, with its wake-ups and its timers counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.wakes, self.timers = loop, 0, 0

    def call_later(self, *args: Any) -> Any:
        self.timers += 1
        return self._loop.call_later(*args)

    def call_soon_threadsafe(self, *args: Any) -> Any:
        self.wakes += 1
        return self._loop.call_soon_threadsafe(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def turn_of(loop: Any) -> tuple[Turn, Tap]:
    turn = Turn(Thread(Principal("local"), "t", "local.t"), EventLog(loop))
    tap = Tap(turn, max_result_chars=1000, secrets=Secrets(redact_lines, hide))
    tap.begin()
    return turn, tap


def ended(loop: Any) -> Turn:
    turn, tap = turn_of(loop)
    for text in TEXTS:
        tap.text(text)
    tap.stop()
    turn.finish("success")
    return turn


async def read(turn: Turn) -> list[bytes]:
    return [chunk async for chunk in Run(turn, AguiStream("t", "r", prefix=turn.id)).chunks()]


async def test_a_delta_is_a_handful_of_calls() -> None:
    calls: dict[str, int] = {}

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_name}"
            calls[where] = calls.get(where, 0) + 1

    loop = asyncio.get_running_loop()
    sys.setprofile(count)
    try:
        chunks = await read(ended(loop))
    finally:
        sys.setprofile(None)
    assert b"".join(chunks).count(b'"TEXT_MESSAGE_CONTENT"') == DELTAS
    each = {where: number for where, number in calls.items() if number >= DELTAS // 2}
    assert sum(each.values()) <= 12 * DELTAS, each
    assert not any("pydantic" in where or where.startswith(("encoder.py", "__init__.py:dumps")) for where in each), each


async def test_deltas_that_wait_share_a_wake_up_and_a_write() -> None:
    loop = CountingLoop(asyncio.get_running_loop())
    turn, tap = turn_of(loop)
    reading = asyncio.create_task(read(turn))
    await asyncio.sleep(0)
    for text in TEXTS:  # the reader has no turn meanwhile
        tap.text(text)
    tap.stop()
    turn.finish("success")
    chunks = await reading
    assert loop.wakes <= 2
    assert len(chunks) <= 3


class Timer:
    """One of a ``ClockedLoop``."""

    def __init__(self, timers: dict[Timer, Any]) -> None:
        self._timers = timers

    def cancel(self) -> None:
        self._timers.pop(self, None)


class ClockedLoop(CountingLoop):
    """The same on a clock of the test's own, which only ``after`` moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._now = 0.0
        self._timers: dict[Timer, tuple[float, Callable[..., None], tuple[Any, ...]]] = {}

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Any:
        self.timers += 1
        timer = Timer(self._timers)
        self._timers[timer] = (self._now + delay, call, args)
        return timer

    async def after(self, seconds: float) -> None:
        end = self._now + seconds
        while True:
            for _ in range(8):  # who was woken runs
                await asyncio.sleep(0)
            timer = min(self._timers, key=lambda one: self._timers[one][0], default=None)
            if timer is None or self._timers[timer][0] > end:
                break
            self._now, call, args = self._timers.pop(timer)
            self._loop.call_soon(call, *args)
        self._now = end


async def streamed(spaces: Sequence[float]) -> ClockedLoop:
    """A turn with a delta behind each of these times, read by one reader as it comes."""
    loop = ClockedLoop(asyncio.get_running_loop())
    turn, tap = turn_of(loop)
    reading = asyncio.create_task(read(turn))
    for text, seconds in zip(TEXTS, spaces, strict=False):
        await loop.after(seconds)
        tap.text(text)
    tap.stop()
    turn.finish("success")
    await loop.after(1)
    assert b"".join(await reading).count(b'"delta"') == len(spaces)
    return loop


async def test_a_fast_stream_does_not_wake_the_loop_for_each_delta() -> None:
    spaces = [0.0002] * 400
    loop = await streamed(spaces)
    assert loop.wakes <= 5  # it is the time that ends a reader's wait


@pytest.mark.parametrize(("space", "breath"), [(0.002, log._BREATH), (0.0004, log._LONG_BREATH)])
async def test_the_faster_a_stream_the_longer_its_reader_waits(space: float, breath: float) -> None:
    loop = await streamed([space] * 500)
    assert loop.timers <= 500 * space / breath + 5
    assert loop.timers >= 500 * space / breath - 1


async def test_a_reader_waits_for_so_many_at_most() -> None:
    loop = await streamed([0.00001] * DELTAS)
    assert DELTAS / log._MOST - 1 <= loop.wakes <= DELTAS / log._MOST + 5


async def test_a_fast_stream_is_known_however_seldom_the_loop_has_its_turn() -> None:
    """The interpreter goes from thread to thread every 5 ms: by then 17 deltas are there, and a write lets it go."""
    loop = ClockedLoop(asyncio.get_running_loop())
    turn, tap = turn_of(loop)
    reading = asyncio.create_task(read(turn))
    await loop.after(0.001)
    for block in range(60):
        for text in TEXTS[17 * block : 17 * (block + 1)]:
            tap.text(text)
        await loop.after(0.0052)
    tap.stop()
    turn.finish("success")
    await loop.after(1)
    chunks = await reading
    assert b"".join(chunks).count(b'"delta"') == 60 * 17
    assert len(chunks) <= 60 * 0.0052 / log._LONG_BREATH + 4


async def test_a_slower_stream_pays_for_no_timers_once_it_was_fast() -> None:
    loop = await streamed([0.0005] * 20 + [log._SOON * 1.05] * 200)
    assert 0 < loop.timers < 5


async def test_two_deltas_of_a_slow_stream_that_come_together_delay_no_third() -> None:
    loop = await streamed([0.04, 0.04, 0.001] * 20)
    assert loop.timers == 0


async def test_what_is_no_delta_comes_at_once_in_a_fast_stream_too() -> None:
    """A call and its result are told apart, and a question does not wait, just behind a burst of text."""
    loop = ClockedLoop(asyncio.get_running_loop())
    turn, tap = turn_of(loop)
    reading = asyncio.create_task(read(turn))
    for text in TEXTS[:100]:
        await loop.after(0.0003)
        tap.text(text)
    turn.append(GatewayNotice("notice", "Between two deltas."))
    reader = asyncio.create_task(turn.log.read(turn.log.last))
    await loop.after(0)
    turn.append(GatewayNotice("notice", "And another one."))
    await loop.after(0)  # no time at all
    assert reader.done()
    tap.stop()
    turn.finish("success")
    await loop.after(1)
    await reading


async def test_two_hundred_readers_cost_the_producer_one_wake_up() -> None:
    loop = CountingLoop(asyncio.get_running_loop())
    turn, tap = turn_of(loop)
    readers = [asyncio.create_task(read(turn)) for _ in range(200)]
    await asyncio.sleep(0)
    for text in TEXTS[:50]:
        tap.text(text)
    tap.stop()
    turn.finish("success")
    streams = await asyncio.gather(*readers)
    assert loop.wakes <= 2
    assert len({b"".join(chunks) for chunks in streams}) == 1


async def test_a_replay_costs_less_than_the_sdks_encoder_alone() -> None:
    turn = ended(asyncio.get_running_loop())

    async def ours() -> float:
        begin = time.process_time()
        await read(turn)
        return time.process_time() - begin

    def theirs() -> float:
        encoder, begin = EventEncoder(), time.process_time()
        for text in TEXTS:
            encoder.encode(TextMessageContentEvent(message_id="m", delta=text))
        return time.process_time() - begin

    # Measured at about a tenth; half is a margin that noise of a shared machine does not use up.
    assert min([await ours() for _ in range(5)]) < min(theirs() for _ in range(5)) / 2
