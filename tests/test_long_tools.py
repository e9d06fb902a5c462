"""One timer for all tools that run long."""

from __future__ import annotations

import asyncio
import threading

from agui_adapter.long_tools import LongTools
from tests.scripted import until


async def test_each_long_call_is_told_of_once() -> None:
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
    await until(lambda: len(told) == 2)
    watch.end(first)
    watch.end(second)
    assert [name for name, _ in told] == ["first", "second"] and all(seconds >= 0.05 for _, seconds in told)


async def test_who_says_not_now_is_asked_again() -> None:
    asked: list[float] = []
    watch = LongTools(asyncio.get_running_loop(), 0.02)

    def tell(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) == 3

    watch.begin(tell)
    await until(lambda: len(asked) == 3)
    assert asked == sorted(asked)
    assert watch._armed is False and not watch._calls


async def test_calls_begin_on_threads_and_the_timer_rests_without_any() -> None:
    told: list[str] = []
    watch = LongTools(asyncio.get_running_loop(), 0.02)

    def work() -> None:
        watch.begin(lambda seconds: bool(told.append("x")) or True)

    for count in (1, 2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        await until(lambda count=count: len(told) == count)  # type: ignore[misc]
        await until(lambda: not watch._armed)


async def test_zero_seconds_watch_none() -> None:
    watch = LongTools(asyncio.get_running_loop(), 0)
    watch.end(watch.begin(lambda seconds: True))
    assert not watch._calls and not watch._armed
