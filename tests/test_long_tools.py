"""One timer for all tools that run long."""

from __future__ import annotations

import asyncio
import itertools
import threading

from agui_adapter.long_tools import LongTools
from tests.scripted import until


async def test_each_long_call_is_told_of_while_it_runs() -> None:
    told: list[tuple[str, float]] = []
    watch = LongTools(asyncio.get_running_loop(), 0.05)

    def tell(name: str, seconds: float) -> bool:
        told.append((name, seconds))
        return True

    first = watch.begin(lambda seconds: tell("first", seconds))
    quick = watch.begin(lambda seconds: tell("quick", seconds))
    watch.end(quick)
    await until(lambda: told)
    second = watch.begin(lambda seconds: tell("second", seconds))
    await until(lambda: len([name for name, _ in told if name == "first"]) >= 3)
    watch.end(first)
    watch.end(second)
    await until(lambda: not watch._armed)
    assert {name for name, _ in told} == {"first", "second"}
    times = [seconds for name, seconds in told if name == "first"]
    assert times[0] >= 0.05 and all(later >= 2 * earlier for earlier, later in itertools.pairwise(times))


async def test_who_says_not_now_is_asked_again() -> None:
    asked: list[float] = []
    watch = LongTools(asyncio.get_running_loop(), 0.02)

    def tell(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) == 3

    watched = watch.begin(tell)
    await until(lambda: len(asked) >= 4)
    watch.end(watched)
    await until(lambda: not watch._armed)
    assert asked[3] >= 2 * asked[2] >= 2 * asked[1] >= 2 * asked[0]


async def test_calls_begin_on_threads_and_the_timer_rests_without_any() -> None:
    told: list[str] = []
    watch = LongTools(asyncio.get_running_loop(), 0.02)

    def work() -> None:
        made.append(watch.begin(lambda seconds: bool(told.append("x")) or True))

    made: list[object] = []
    for _ in range(2):
        told.clear()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        await until(lambda: told)
        watch.end(made.pop())
        await until(lambda: not watch._armed)


async def test_zero_seconds_watch_none() -> None:
    watch = LongTools(asyncio.get_running_loop(), 0)
    watch.end(watch.begin(lambda seconds: True))
    assert not watch._calls and not watch._armed
