"""Who reads a turn: the last one that leaves is told of, one that comes back in time takes it back."""

from __future__ import annotations

import asyncio

import pytest

from agui_adapter import session
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread, Turn


def _turn(loop: asyncio.AbstractEventLoop) -> tuple[Thread, Turn, list[Turn]]:
    thread = Thread(Principal("local"), "t", "local.t")
    turn = thread.begin(EventLog(loop, 65536))
    left: list[Turn] = []
    turn.on_unread = left.append
    return thread, turn, left


async def test_only_the_last_reader_is_told_of() -> None:
    _, turn, left = _turn(asyncio.get_running_loop())
    turn.enter()
    turn.enter()
    turn.leave()
    assert left == []
    turn.leave()
    assert left == [turn] and turn.readers == 0


async def test_a_reader_that_comes_back_stops_the_clock() -> None:
    loop = asyncio.get_running_loop()
    _, turn, _ = _turn(loop)
    turn.enter()
    turn.leave()
    turn.grace = timer = loop.call_later(3600, lambda: None)
    turn.enter()
    assert timer.cancelled() and turn.grace is None


async def test_nobody_is_missed_at_a_turn_that_is_over() -> None:
    thread, turn, left = _turn(asyncio.get_running_loop())
    turn.enter()
    thread.end(turn, "success")
    turn.leave()
    assert left == []


async def test_without_a_rule_nothing_happens() -> None:
    _, turn, _ = _turn(asyncio.get_running_loop())
    turn.on_unread = None
    turn.enter()
    turn.leave()
    assert turn.readers == 0 and turn.grace is None


async def test_the_reader_that_begins_a_turn_counts_before_it_is_there() -> None:
    _, turn, left = _turn(asyncio.get_running_loop())
    turn.expect()
    assert turn.readers == 1
    turn.enter()
    assert turn.readers == 1 and turn.expected is None and left == []
    turn.leave()
    assert turn.readers == 0 and left == [turn]


async def test_a_reader_that_left_before_it_could_read_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_ON_ITS_WAY", 0.01)
    _, turn, _ = _turn(asyncio.get_running_loop())
    told = asyncio.Event()
    turn.on_unread = lambda turn: told.set()
    turn.expect()
    await asyncio.wait_for(told.wait(), 5)
    assert turn.readers == 0
