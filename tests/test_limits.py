"""Limits: what one caller may have at once and in a minute; only live work counts, and a place comes back at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agui_adapter.config import Settings, load
from agui_adapter.errors import AguiError
from agui_adapter.limits import Limits, Pace, Places, check_depth
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Threads, Turn
from agui_adapter.stream import MessageChunk


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def refused(action: Callable[[], Any]) -> AguiError:
    with pytest.raises(AguiError) as caught:
        action()
    assert caught.value.status == 429 and caught.value.retry_after is not None and caught.value.retry_after >= 1
    return caught.value


class TestPace:
    def test_as_many_at_once_as_in_a_minute_and_then_one_by_one(self, clock: Clock) -> None:
        pace = Pace(60, clock)
        for _ in range(60):
            assert pace.wait("a") == 0
            pace.spend("a")
        assert pace.wait("a") == pytest.approx(1)
        assert pace.wait("b") == 0
        clock.now += 0.5
        assert pace.wait("a") == pytest.approx(0.5)
        clock.now += 0.6
        assert pace.wait("a") == 0

    def test_it_fills_up_to_its_size_and_no_further(self, clock: Clock) -> None:
        pace = Pace(2, clock)
        pace.spend("a")
        clock.now += 10_000
        pace.spend("a")
        pace.spend("a")
        assert pace.wait("a") > 0

    def test_a_clock_that_jumps_back_gives_nothing(self, clock: Clock) -> None:
        pace = Pace(1, clock)
        pace.spend("a")
        clock.now -= 5000
        assert pace.wait("a") == pytest.approx(60)

    def test_zero_is_no_limit(self, clock: Clock) -> None:
        pace = Pace(0, clock)
        for _ in range(10_000):
            pace.spend("a")
        assert pace.wait("a") == 0

    def test_names_are_bounded(self, clock: Clock) -> None:
        pace = Pace(5, clock)
        for number in range(10_000):
            pace.spend(str(number))
        assert len(pace._left) <= 4096


class TestPlaces:
    def test_in_all_and_for_each(self) -> None:
        places = Places(3, 2)
        assert [places.take("a") for _ in range(3)] == [True, True, False]
        assert [places.take("b") for _ in range(2)] == [True, False]
        places.give("a")
        assert places.take("b") and places.taken == 3

    def test_nothing_is_kept_of_names_without_a_place(self) -> None:
        places = Places(1, 1)
        for number in range(1000):
            assert places.take(str(number))
            places.give(str(number))
        assert not places._taken


class TestRequests:
    def test_each_principal_has_its_own(self, clock: Clock) -> None:
        limits = Limits(load({"requests_per_minute": 2}, {}), clock=clock)
        limits.request("a")
        limits.request("a")
        assert refused(lambda: limits.request("a")).retry_after == 30
        limits.request("b")
        clock.now += 30
        limits.request("a")

    def test_failures_of_an_address(self, clock: Clock) -> None:
        limits = Limits(load({"failures_per_minute": 2}, {}), clock=clock)
        limits.welcomed("Bearer good")
        for _ in range(2):
            assert limits.wary("192.0.2.1", "Bearer bad") is None
            limits.refused("192.0.2.1", "Bearer bad")
        told = limits.wary("192.0.2.1", "Bearer bad")
        assert told is not None and (told.status, told.code, told.retry_after) == (429, "too_many_failures", 30)
        assert limits.wary("192.0.2.1", "") is None  # nothing is tried without a token
        assert limits.wary("192.0.2.1", "Bearer good") is None  # others behind this address are not shut out
        assert limits.wary("192.0.2.2", "Bearer bad") is None
        limits.refused("192.0.2.1", "Bearer good")  # revoked, or expired
        assert limits.wary("192.0.2.1", "Bearer good") is not None
        clock.now += 31
        assert limits.wary("192.0.2.1", "Bearer bad") is None

    def test_the_good_ones_that_are_used_are_remembered(self, clock: Clock) -> None:
        limits = Limits(load({"failures_per_minute": 1}, {}), clock=clock)
        for number in range(3000):
            limits.welcomed(f"Bearer {number}")
            limits.welcomed("Bearer good")
        assert len(limits._good) <= 1024
        limits.refused("192.0.2.1", "Bearer bad")
        assert limits.wary("192.0.2.1", "Bearer good") is None

    def test_an_ipv6_network_is_one_address(self, clock: Clock) -> None:
        limits = Limits(load({"failures_per_minute": 1}, {}), clock=clock)
        limits.refused("2001:db8::1", "x")
        assert limits.wary("2001:db8::ffff", "x") is not None
        assert limits.wary("2001:db8:0:1::1", "x") is None
        limits.refused("::ffff:192.0.2.9", "x")
        assert limits.wary("192.0.2.9", "x") is not None


@pytest.fixture
def threads() -> Threads:
    return Threads(ttl_seconds=300)


def begin(threads: Threads, principal: str, thread_id: str, size: int = 0) -> Turn:
    turn = threads.get(Principal(principal), thread_id).begin(EventLog(asyncio.get_running_loop()))
    if size:
        turn.append(MessageChunk("x" * size))
    return turn


class TestTurns:
    async def test_in_all_and_for_each(self, threads: Threads) -> None:
        live: list[Turn] = []
        limits = Limits(load({"max_turns": 3, "max_turns_per_principal": 2}, {}), lambda: live)

        async def opens(principal: str, thread_id: str) -> None:
            async with limits.turn(threads.get(Principal(principal), thread_id)):
                live.append(begin(threads, principal, thread_id))

        await opens("a", "1")
        await opens("a", "2")
        with pytest.raises(AguiError) as own:
            await opens("a", "3")
        assert own.value.status == 429 and "per_principal" in own.value.message
        await opens("b", "1")
        with pytest.raises(AguiError) as all_of_them:
            await opens("b", "2")
        assert all_of_them.value.status == 429 and "max_turns)" in all_of_them.value.message
        live.pop(0)  # it ended, or waits for its client
        await opens("b", "2")

    async def test_a_turn_that_begins_has_its_place_already(self, threads: Threads) -> None:
        limits = Limits(load({"max_turns": 1}, {}))
        one, two = (threads.get(Principal("a"), name) for name in "12")
        async with limits.turn(one):
            with pytest.raises(AguiError):
                async with limits.turn(two):
                    pass
            async with limits.turn(one):  # queued on the same thread
                pass
        async with limits.turn(two):
            pass

    async def test_a_turn_that_fails_to_begin_gives_it_back(self, threads: Threads) -> None:
        limits = Limits(load({"max_turns": 1}, {}))
        with pytest.raises(RuntimeError):
            async with limits.turn(threads.get(Principal("a"), "1")):
                raise RuntimeError
        async with limits.turn(threads.get(Principal("a"), "2")):
            pass

    async def test_a_turn_in_the_place_of_another_needs_no_further_one(self, threads: Threads) -> None:
        turn = begin(threads, "a", "1")
        limits = Limits(load({"max_turns": 1}, {}), lambda: [turn])
        async with limits.turn(turn.thread):
            pass


class TestLogs:
    def settings(self) -> Settings:
        return load({"log_bytes_total": 1 << 20}, {})

    async def test_finished_turns_go_first_the_oldest_before_the_others(self, threads: Threads) -> None:
        limits = Limits(self.settings())
        turns = [begin(threads, "a", str(number), 400_000) for number in range(4)]
        for place, turn in enumerate(turns[:3]):
            turn.thread.end(turn, "success")
            turn.finished_at = 10.0 - place
        assert limits.room_in_logs(threads) == [turns[2], turns[1]]
        assert [bool(turn.thread.turns) for turn in turns] == [True, False, False, True]
        assert limits.room_in_logs(threads) == []

    async def test_turns_that_run_or_are_read_stay(self, threads: Threads) -> None:
        limits = Limits(self.settings())
        turns = [begin(threads, "a", str(number), 400_000) for number in range(3)]
        turns[0].thread.end(turns[0], "success")
        turns[0].enter()
        with pytest.raises(AguiError) as full:
            limits.room_in_logs(threads)
        assert (full.value.status, full.value.code) == (429, "logs_full")
        turns[0].leave()
        assert limits.room_in_logs(threads) == [turns[0]]


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


class TestDepth:
    @pytest.mark.parametrize("levels", [0, 1, 8])
    def test_up_to_the_limit(self, levels: int) -> None:
        check_depth(nested(levels), 8)

    @pytest.mark.parametrize("levels", [9, 400])
    def test_beyond_it(self, levels: int) -> None:
        with pytest.raises(AguiError) as deep:
            check_depth(nested(levels), 8)
        assert (deep.value.status, deep.value.code) == (400, "too_deep")

    def test_width_is_no_depth(self) -> None:
        check_depth([[index] for index in range(1000)], 2)
