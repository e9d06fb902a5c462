"""Deltas of text that nobody waits for are only noted on Hermes's thread: none is lost, late, or out of order."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from types import FrameType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter import log as log_module
from agui_adapter.hermes.hooks import _Attachment
from agui_adapter.hermes.redaction import hide, redact_lines
from agui_adapter.log import EventLog
from agui_adapter.piece import Piece
from agui_adapter.secrets_hold import SecretsHold
from agui_adapter.session import Principal, Thread
from agui_adapter.stream import GatewayNotice, MessageChunk, MessageStart, MessageStop, StreamEvent, TurnFinished
from agui_adapter.tap import Secrets, Tap

PATIENCE = 20.0  # seconds
SK = "sk-proj-" + "a1B2c3D4" * 5


def tap_of(loop: asyncio.AbstractEventLoop) -> Tap:
    turn = Thread(Principal("local"), "t", "local.t").begin(EventLog(loop))
    tap = Tap(turn, max_result_chars=1000, secrets=Secrets(redact_lines, hide))
    tap.begin()
    return tap


@pytest.fixture
def tap() -> Iterator[Tap]:
    loop = asyncio.new_event_loop()
    yield tap_of(loop)
    loop.close()


def kept(log: EventLog) -> list[StreamEvent | str]:
    """What is in the log, without asking its writer for more."""
    return list(log._events)


def texts(log: EventLog) -> list[str]:
    return [event.text for _, event in log.take().events if isinstance(event, MessageChunk)]


def test_what_nobody_waits_for_is_noted_and_there_when_it_is_read(tap: Tap) -> None:
    log = tap.turn.log
    tap.text("one ")
    assert kept(log)[-1] == "one " and log.first_text_at  # the moment of the first text counts
    for word in ("two ", "three "):
        tap.text(word)
    assert kept(log)[-1] == "one "
    assert texts(log) == ["one ", "two ", "three "]
    tap.text("four ")
    assert log.last == 5
    tap.text("five")
    assert log.events()[-1] == MessageChunk("one two three four five")


def test_what_is_noted_is_bounded(tap: Tap) -> None:
    tap.text("first ")
    for number in range(1000):
        tap.text(f"{number} ")
    assert len(kept(tap.turn.log)) > 1000 - log_module._GATHERED
    assert len(texts(tap.turn.log)) == 1001


def test_what_others_add_comes_behind_what_was_noted(tap: Tap) -> None:
    tap.text("one ")
    tap.text("two")
    tap.turn.append(GatewayNotice("state_not_written", "By another thread."))
    tap.text("three")
    tap.notice("notice", "By the tap.")
    tap.text("four")
    tap.stop()
    tap.text("five")
    tap.turn.log.append(TurnFinished())
    tap.text("six")
    found = [one.text for one in tap.turn.log.events() if isinstance(one, (MessageChunk, GatewayNotice))]
    assert found == ["one two", "By another thread.", "three", "By the tap.", "four"]
    assert isinstance(tap.turn.log.events()[-1], TurnFinished)


def test_whether_it_spoke_counts_what_is_noted(tap: Tap) -> None:
    tap.turn.log.patience = 5
    tap.text("\n")
    assert not tap.spoke
    tap.text("word")
    assert tap.spoke


def test_blank_lines_before_a_message_are_none_of_it_however_they_come(tap: Tap) -> None:
    tap.turn.log.patience = 5
    for piece in ("\n", "", "\n\n", "\nword", "\n", "", "more"):
        tap.text(piece)
    tap.stop()
    told = [event for _, event in tap.turn.log.take().events]
    assert isinstance(told[0], MessageStart)
    assert told[1:] == [MessageChunk("word"), MessageChunk("\n"), MessageChunk("more")]


def test_an_end_leaves_nothing_that_keeps_the_writer_or_grows() -> None:
    loop = asyncio.new_event_loop()
    tap = tap_of(loop)
    log = tap.turn.log
    tap.text("word")
    tap.stop()
    log.append(TurnFinished())
    for _ in range(1000):
        tap.text("late")
    assert len(tap._noted) <= log_module._GATHERED
    gone = weakref.ref(tap)
    gc.disable()
    try:
        del tap
        assert gone() is None  # without the collector: an ended turn keeps no agent's work alive
    finally:
        gc.enable()
    assert texts(log) == ["word"]
    loop.close()


async def test_a_delta_that_comes_just_before_the_writer_knows_of_the_reader_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tap = tap_of(asyncio.get_running_loop())

    class Late(log_module._Waiter):
        """What a reader makes when it begins to wait, after which a delta is noted."""

        def __init__(self) -> None:
            super().__init__()
            tap.text("two ")

    tap.text("one ")
    monkeypatch.setattr(log_module, "_Waiter", Late)
    async with asyncio.timeout(PATIENCE):
        batch = await tap.turn.log.read(tap.turn.log.last)
    assert batch.found == ["two "]


async def test_no_delta_is_left_lying_while_somebody_waits() -> None:
    """One at a time, with all the ways in between that a reader has to find it: nothing follows that could help."""
    tap = tap_of(asyncio.get_running_loop())
    taken = threading.Semaphore(0)

    def work() -> None:
        for number in range(600):
            tap.text(f"{number} ")
            if number % 3 == 0:
                assert taken.acquire(timeout=PATIENCE)
        tap.stop()
        tap.turn.finish("success")

    thread = threading.Thread(target=work)
    thread.start()
    position, given, found = 0, 0, ""
    async with asyncio.timeout(PATIENCE):
        while not (batch := await tap.turn.log.read(position)).closed:
            position = batch.positions[-1]
            found += "".join(one for one in batch.found if isinstance(one, str))
            ready = len(found.split())
            for _ in range((ready + 2) // 3 - given):
                taken.release()
                given += 1
    await asyncio.to_thread(thread.join)
    found += "".join(one for one in batch.found if isinstance(one, str))
    assert found == "".join(f"{number} " for number in range(600))


async def test_many_readers_of_a_writer_without_pause() -> None:
    tap = tap_of(asyncio.get_running_loop())
    log = tap.turn.log

    async def read() -> str:
        position, found = 0, ""
        while True:
            batch = await log.read(position, limit=50)
            found += "".join(one for one in batch.found if isinstance(one, str))
            if batch.closed:
                return found
            position = batch.positions[-1]

    def work() -> None:
        for number in range(20_000):
            tap.text(f"{number} ")
            if number % 1000 == 0:
                tap.notice("notice", f"at {number}")
        tap.stop()
        tap.turn.finish("success")

    readers = [asyncio.create_task(read()) for _ in range(8)]
    await asyncio.sleep(0)
    async with asyncio.timeout(6 * PATIENCE):
        await asyncio.to_thread(work)
        found = await asyncio.gather(*readers)
    assert set(found) == {"".join(f"{number} " for number in range(20_000))}
    events = log.events()
    for index, event in enumerate(events):
        if isinstance(event, GatewayNotice):  # told where it was said
            before = events[index - 1]
            assert isinstance(before, MessageChunk)
            assert before.text.endswith(f"{event.text.removeprefix('at ')} ")


def test_a_delta_that_nobody_waits_for_is_two_calls_on_hermes_thread(tap: Tap) -> None:
    attachment = _Attachment(SimpleNamespace(), tap, SimpleNamespace(), "turn")  # type: ignore[arg-type]
    attachment.delta("first ")
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for _ in range(1000):
            attachment.delta("word ")
    finally:
        sys.setprofile(None)
    assert calls <= 1000 * 2.3
    assert texts(tap.turn.log)[1:] == ["word "] * 1000


words = st.sampled_from(
    [
        *("word ", "word", " ", "\n", "M", "MEDIA", "MEDIA:", "MEDIA:/a.png ", "[[as_doc", "ument]]", "s", "sk", "sk-"),
        *(SK, SK[:12], SK[12:], "key", "=", ": ", "password", "https://", "u:p@host", "+4917", "0123456", "-----BEGIN"),
    ]
)


@given(st.lists(words, min_size=1, max_size=30), st.data())
def test_gathered_deltas_come_to_what_they_come_to_one_by_one(deltas: list[str], data: st.DataObject) -> None:
    alone, gathered = (Piece("m", secrets=SecretsHold(redact_lines)) for _ in range(2))
    for delta in deltas:
        alone.feed([delta])
    told: list[str] = []
    at = 0
    while at < len(deltas):
        count = data.draw(st.integers(1, len(deltas) - at))
        told += gathered.feed(deltas[at : at + count])
        at += count
    assert all(told)
    for piece in (alone, gathered):
        piece.rest()
        assert SK not in piece.joined() or SK in redact_lines(piece.joined())  # what Hermes takes for none
    assert "".join(told) == "".join(gathered.text[: len(told)])
    assert gathered.joined() == alone.joined()


@given(st.lists(st.sampled_from(["word ", "More ", "[x] ", "a\n"]), min_size=2, max_size=30), st.integers(1, 9))
def test_gathered_deltas_stay_what_they_were(deltas: list[str], size: int) -> None:
    piece = Piece("m", secrets=SecretsHold(redact_lines))
    deltas = ["word ", *deltas]
    told = [one for at in range(0, len(deltas), size) for one in piece.feed(deltas[at : at + size])]
    assert told == deltas


def test_what_must_wait_cuts_only_the_delta_that_it_is_in() -> None:
    piece = Piece("m", secrets=SecretsHold(redact_lines))
    assert list(piece.feed(["one ", "two ", "three s"])) == ["one ", "two ", "three "]
    assert list(piece.feed(["afe ", "and ", "more "])) == ["safe and more "]
    assert piece.rest() == ""


def test_a_message_ends_with_what_was_noted(tap: Tap) -> None:
    tap.turn.log.patience = 5
    for word in ("one ", "two ", "s"):
        tap.text(word)
    tap.final("one two s")
    told = [event for _, event in tap.turn.log.take().events]
    assert told[1:] == [MessageChunk("one "), MessageChunk("two "), MessageChunk("s"), MessageStop(final=False)]
