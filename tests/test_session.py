"""Chats of hostile thread ids never meet; threads and turns are kept as long as they are of use, not longer."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread, Threads, Turn, chat_id_for
from agui_adapter.stream import MessageChunk, TurnFinished

_digest = chat_id_for("a", "/").partition(".")[2]
hostile = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=80),
    st.text("ab.:/_-\n\x00 ", max_size=8),
    st.sampled_from(
        [
            *("", ".", "..", "../..", "a.b", "a:b", "a/b", "_", "_a", _digest, _digest[1:], "A", "a", "a\n", "a "),
            *(
                "local",
                "owner",
                "agent:main:telegram:dm:1",
                "x" * 64,
                "x" * 65,
                "x" * 100_000,
                "é",
                "e\u0301",
                "\ud800",
            ),
        ]
    ),
)


@given(st.tuples(hostile, hostile), st.tuples(hostile, hostile))
@example(("a.b", "c"), ("a", "b.c"))
@example(("a", "b.c"), ("a.b", "c"))
@example(("", "a."), ("a", ""))
@example(("a", "/"), ("a", _digest))
@example(("a", "\ud800"), ("a", "\ufffd"))
def test_different_pairs_have_different_chats(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (chat_id_for(*one) == chat_id_for(*other)) == (one == other)


@given(hostile, hostile)
def test_a_chat_id_is_plain_and_short(principal: str, thread: str) -> None:
    chat = chat_id_for(principal, thread)
    assert re.fullmatch(r"[A-Za-z0-9-]{1,64}|_[0-9a-f]{40}", chat.partition(".")[0])
    assert re.fullmatch(r"[A-Za-z0-9_.-]{3,129}", chat)
    assert chat.count(".") == 1


def test_plain_ids_stay_readable_and_the_same_for_ever() -> None:
    """The chat id is in Hermes's database: another rule would lose every conversation."""
    assert chat_id_for("local", "thread-1") == "local.thread-1"
    assert chat_id_for("local", "../x") == "local._d6b96a97d147daaae49eb87a5ca7bfbc280e7955"


# -- threads -------------------------------------------------------------------------------------------------------

LOCAL, OWNER = Principal("local"), Principal("owner", trusted=True)


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def begin(thread: Thread, loop: asyncio.AbstractEventLoop) -> Turn:
    return thread.begin(EventLog(loop))


def test_a_thread_belongs_to_its_principal() -> None:
    threads = Threads(300)
    mine, theirs = threads.get(LOCAL, "t"), threads.get(OWNER, "t")
    assert mine is not theirs and mine.chat_id != theirs.chat_id
    assert threads.get(LOCAL, "t") is mine
    assert threads.by_chat(mine.chat_id) is mine and threads.by_chat("nobody") is None
    assert len(threads) == 2 and set(threads) == {mine, theirs}


def test_an_adopted_thread_is_the_one_that_its_client_finds() -> None:
    threads = Threads(300)
    hostile_id = "what/ever"
    adopted = threads.adopt(chat_id_for("local", hostile_id), "local")
    assert threads.get(LOCAL, hostile_id) is adopted
    assert (adopted.principal, adopted.thread_id) == (LOCAL, hostile_id)
    assert threads.adopt(adopted.chat_id, "someone") is adopted
    assert adopted.principal == LOCAL


def test_a_turn_ends_once(loop: asyncio.AbstractEventLoop) -> None:
    thread = Threads(300).get(LOCAL, "t")
    turn = begin(thread, loop)
    assert thread.current is turn and not turn.done.is_set()
    thread.end(turn, "success")
    thread.end(turn, "failed", "late", "late")
    assert thread.current is None and turn.done.is_set()
    assert turn.log.events() == [TurnFinished("success")]
    assert not turn.append(MessageChunk("late"))


def test_an_abandoned_turn_does_not_free_the_thread_of_its_successor(loop: asyncio.AbstractEventLoop) -> None:
    thread = Threads(300).get(LOCAL, "t")
    first = begin(thread, loop)
    second = begin(thread, loop)
    thread.end(first, "cancelled")
    assert thread.current is second
    assert first.id != second.id


def test_accepted_ids_are_bounded_and_the_newest_stay() -> None:
    thread = Threads(300).get(LOCAL, "t")
    thread.accept([f"m{number}" for number in range(10_000)])
    assert len(thread.accepted) <= 4096
    assert "m9999" in thread.accepted and "m0" not in thread.accepted


def test_a_blank_id_is_not_accepted_for_ever() -> None:
    thread = Threads(300).get(LOCAL, "t")
    thread.accept(["", " ", "m1"])
    assert list(thread.accepted) == ["m1"]


class TestSweep:
    DAY = 24 * 3600

    def test_finished_turns_go_after_their_time(self, loop: asyncio.AbstractEventLoop) -> None:
        threads = Threads(300)
        thread = threads.get(LOCAL, "t")
        turn = begin(thread, loop)
        thread.end(turn, "success")
        threads.sweep(turn.finished_at + 299)
        assert list(thread.turns) == [turn.id]
        threads.sweep(turn.finished_at + 301)
        assert not thread.turns and len(threads) == 1

    def test_a_turn_that_runs_or_is_read_stays(self, loop: asyncio.AbstractEventLoop) -> None:
        threads = Threads(0)
        thread = threads.get(LOCAL, "t")
        read = begin(thread, loop)
        read.readers = 1
        thread.end(read, "success")
        running = begin(thread, loop)
        threads.sweep(time.monotonic() + 30 * self.DAY)
        assert list(thread.turns) == [read.id, running.id]
        assert len(threads) == 1

    def test_threads_of_no_more_use_go(self, loop: asyncio.AbstractEventLoop) -> None:
        threads = Threads(300)
        idle, needed = threads.get(LOCAL, "idle"), threads.get(LOCAL, "needed")
        for thread in (idle, needed):
            thread.end(begin(thread, loop), "success")
        turns = list(idle.turns.values())
        now = time.monotonic()
        assert threads.sweep(now + 299) == []
        assert threads.sweep(now + self.DAY - 60, lambda turn: turn.thread is needed) == turns
        assert len(threads) == 2 and len(needed.turns) == 1
        threads.sweep(now + self.DAY + 60, lambda turn: turn.thread is needed)
        assert set(threads) == {needed}
        threads.sweep(now + self.DAY + 60)
        assert len(threads) == 0

    def test_many_threads_do_not_stay(self, loop: asyncio.AbstractEventLoop) -> None:
        threads = Threads(300)
        for number in range(500):
            thread = threads.get(LOCAL, f"t{number}")
            thread.end(begin(thread, loop), "success")
        threads.sweep(time.monotonic() + 301)
        assert sum(len(thread.turns) for thread in threads) == 0
        threads.sweep(time.monotonic() + self.DAY + 60)
        assert len(threads) == 0

    def test_a_thread_in_use_is_young_again(self, loop: asyncio.AbstractEventLoop) -> None:
        threads = Threads(0)
        thread = threads.get(LOCAL, "t")
        thread.used_at = time.monotonic() - 2 * self.DAY
        begin(thread, loop)
        thread.end(thread.current or pytest.fail("no turn"), "success")
        threads.sweep(time.monotonic() + 1)
        assert len(threads) == 1
