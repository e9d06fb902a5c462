"""The door that is no wire: turns of callers that do not speak AG-UI, over the scripted source of events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.archive import Archive
from agui_adapter.door import Ask, Door, Reader
from agui_adapter.errors import AguiError
from agui_adapter.forwarded import Overrides
from agui_adapter.log import EventLog
from agui_adapter.requests import DENY, NOBODY, Answer, read_answer
from agui_adapter.session import SCOPES, Principal, Thread, Turn
from agui_adapter.stream import (
    MessageChunk,
    MessageStart,
    ReasoningChunk,
    ReasoningStart,
    Request,
    RequestClosed,
    RequestOpened,
    StreamEvent,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
)
from agui_adapter.tools import ClientTool
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, serving, until

ANNA, BERT = (Principal(name, scopes=SCOPES) for name in ("anna", "bert"))
HELLO = [MessageStart("m1"), MessageChunk("Hel"), MessageChunk("lo"), TurnFinished()]


@pytest.fixture
async def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedAdapter]:
    async with serving({"interrupt_wait_seconds": 5}, tmp_path, monkeypatch) as (made, _):
        made.script = HELLO
        yield made


@pytest.fixture
def door(adapter: ScriptedAdapter) -> Door:
    return Door(adapter)


def asks(adapter: ScriptedAdapter, *requests: Request) -> Any:
    """A step of a script: the worker asks all of these at once and waits for each in turn."""

    def step(turn: Turn) -> None:
        opened = [adapter.requests.open(turn, request, seconds=60) for request in requests]
        for pending in opened:
            if pending.closed is None:
                adapter.requests.park(pending)
                adapter.requests.wait(pending, lambda: "", 0.05)

    return step


def approval(request_id: str = "q1") -> Request:
    return Request(request_id, "approval", "Allow?", choices=("once", "deny"))


def call(call_id: str, request_id: str) -> Request:
    return Request(request_id, "client_tool", call_id=call_id)


class TestATurn:
    async def test_events_with_positions_to_the_end(self, door: Door) -> None:
        reader = await door.open(ANNA, "t", Ask("Hello"))
        found = [one async for one in reader.events()]
        assert [event for _, event in found] == HELLO
        assert [position for position, _ in found] == [1, 2, 3, 4]
        result = reader.result()
        assert (result.text, result.outcome, result.thread_id) == ("Hello", "success", "t")
        assert (result.turn_id, reader.turn.text, reader.turn.readers) == (reader.turn.id, "Hello", 0)

    async def test_another_reader_from_a_position(self, door: Door) -> None:
        reader = await door.open(ANNA, "t", Ask("Hello"))
        await reader.wait()
        late = door.read(reader.turn, after=2)
        assert [event async for _, event in late.events()] == HELLO[2:]
        behind = door.read(reader.turn, after=4)
        assert (await behind.wait()).outcome == "success"

    async def test_what_is_asked_reaches_the_turn(self, door: Door, adapter: ScriptedAdapter) -> None:
        tool = ClientTool("chart", "Draws")
        history = [
            {"id": "h1", "role": "user", "content": "Before"},
            {"id": "h2", "role": "assistant", "content": "Yes"},
        ]
        ask = Ask("New", history=history, instructions="Be brief.", overrides=Overrides(temperature=0.5), tools=(tool,))
        reader = await door.open(ANNA, "t", ask)
        await reader.wait()
        turn = reader.turn
        assert (turn.thread.system, turn.overrides, turn.client_tools) == ("Be brief.", ask.overrides, (tool,))
        told = [message["content"] for message in await adapter.archive.messages(turn.thread)]
        assert told[:2] == ["Before", "Yes"]
        # A thread that has a history keeps it, and its instructions stay where none are given.
        other = await door.open(ANNA, "t", Ask("More", history=[{"id": "x", "role": "user", "content": "Other"}]))
        await other.wait()
        told = [message["content"] for message in await adapter.archive.messages(turn.thread)]
        assert "Other" not in told and other.turn.thread.system == "Be brief."

    async def test_the_threads_of_two_principals_are_two(self, door: Door) -> None:
        anna, bert = await door.open(ANNA, "t", Ask("A")), await door.open(BERT, "t", Ask("B"))
        assert anna.turn.thread is not bert.turn.thread
        await anna.wait()
        await bert.wait()

    async def test_a_busy_thread_is_refused_and_a_stopped_one_free(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        reader = await door.open(ANNA, "t", Ask("One"))
        reading = asyncio.ensure_future(reader.wait())
        await until(lambda: reader.position == 2)
        with pytest.raises(AguiError) as refused:
            await door.open(ANNA, "t", Ask("Two"))
        assert (refused.value.status, refused.value.code) == (409, "thread_busy")
        await door.stop(reader.turn)
        assert (await reading).outcome == "cancelled"
        adapter.script = HELLO
        assert (await (await door.open(ANNA, "t", Ask("Two"))).wait()).text == "Hello"

    @pytest.mark.parametrize("thread_id", ["", "  ", "x" * 1025])
    async def test_a_thread_id_that_is_none(self, door: Door, thread_id: str) -> None:
        with pytest.raises(AguiError) as refused:
            await door.open(ANNA, thread_id, Ask("One"))
        assert refused.value.status == 422

    async def test_a_reader_counts_only_while_it_reads(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        reader = await door.open(ANNA, "t", Ask("One"))
        async with aclosing(reader.events()) as events:
            await anext(events)
            assert reader.turn.readers == 1
        assert reader.turn.readers == 0
        await door.stop(reader.turn)


class TestWaiting:
    async def test_it_parks_is_answered_and_ends(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [MessageStart("m1"), MessageChunk("May I?"), asks(adapter, approval()), *HELLO]
        reader = await door.open(ANNA, "t", Ask("Do"))
        result = await reader.wait()
        assert (result.outcome, result.text, [one.id for one in result.requests]) == ("parked", "May I?", ["q1"])
        assert [one.id for one in door.open_requests(reader.turn)] == ["q1"]
        assert door.request(BERT, "q1") is None and door.request(ANNA, "q2") is None
        pending = door.request(ANNA, "q1")
        assert pending is not None
        answers = [(pending, read_answer(pending.request, "once"))]
        following = door.answer(answers, ANNA)
        assert (await following.wait()).text == "Hello"
        # The same answer again reads the same again; another one is refused.
        assert (await door.answer(answers, ANNA).wait()).text == "Hello"
        with pytest.raises(AguiError) as refused:
            door.answer([(pending, Answer(choice=DENY))], ANNA)
        assert refused.value.code == "request_answered"

    async def test_two_client_calls_one_after_the_other(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [
            ToolCall("chart", call_id="c1", client=True),
            ToolCall("chart", call_id="c2", client=True),
            asks(adapter, call("c1", "q1"), call("c2", "q2")),
            *HELLO,
        ]
        reader = await door.open(ANNA, None, Ask("Do", one_shot=True))
        result = await reader.wait()
        assert [one.id for one in result.open_calls] == ["c1", "c2"]
        assert door.call(BERT, "c1") is None
        second, first = door.call(ANNA, "c2"), door.call(ANNA, "c1")
        assert first is not None and second is not None
        still = await door.answer([(second, Answer(text="2"))], ANNA).wait()
        assert (still.outcome, [one.id for one in still.requests]) == ("parked", ["q1"])
        assert (await door.answer([(first, Answer(text="1"))], ANNA).wait()).text == "Hello"

    async def test_two_answers_at_once_are_one(
        self, door: Door, adapter: ScriptedAdapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that is quick parks no more for what is being answered with the first."""
        two = [Request(f"q{number}", "client_tool", call_id=f"c{number}") for number in range(2)]
        adapter.script = [MessageStart("m1"), asks(adapter, *two), MessageChunk("Done."), TurnFinished()]
        reader = await door.open(ANNA, "t", Ask("Hello"))
        assert {one.id for one in (await reader.wait()).requests} == {"q0", "q1"}
        pendings = [door.request(ANNA, one.id) for one in two]
        answer, said = adapter.requests.answer, []

        def slowly(pending: Any, *rest: Any) -> bool:
            counted = answer(pending, *rest)
            said.append(pending.request.id)
            time.sleep(0.3)  # as another thread's turn of the interpreter; the worker is awake by now
            return counted

        monkeypatch.setattr(adapter.requests, "answer", slowly)
        pairs = [(pending, Answer(text="x")) for pending in pendings if pending is not None]
        result = await door.answer(pairs, ANNA).wait()
        assert said == ["q0", "q1"] and (result.outcome, result.text) == ("success", "Done.")

    async def test_a_request_is_told_before_its_end(
        self, door: Door, adapter: ScriptedAdapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append, requests = Turn.append, adapter.requests

        def slowly(turn: Turn, event: StreamEvent) -> int:
            if isinstance(event, RequestOpened):
                stopping = threading.Thread(target=requests.cancel_turn, args=(turn, "Stopped."))
                stopping.start()  # somebody stops the turn at this very moment
                stopping.join(0.3)
            return append(turn, event)

        monkeypatch.setattr(Turn, "append", slowly)
        adapter.script = [asks(adapter, Request("q", "approval", choices=("once", "deny"))), TurnFinished()]
        reader = await door.open(ANNA, "t", Ask("Hello"))
        await until(reader.turn.done.is_set)
        kinds = [type(one) for one in reader.turn.log.events() if isinstance(one, RequestOpened | RequestClosed)]
        assert kinds == [RequestOpened, RequestClosed]

    async def test_a_reader_may_go_on_past_waits(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [asks(adapter, approval()), *HELLO]
        reader = await door.open(ANNA, "t", Ask("Do"))

        async def whole() -> list[StreamEvent]:
            return [event async for _, event in door.read(reader.turn).events(past_parks=True)]

        watching = asyncio.ensure_future(whole())
        await reader.wait()
        pending = door.request(ANNA, "q1")
        assert pending is not None
        door.answer([(pending, Answer(choice="once"))], ANNA)
        events = await watching
        assert any(isinstance(event, TurnParked) for event in events) and events[-1] == TurnFinished()


async def put_away(archive: Archive, key: str) -> None:
    """The thread of this key has gone, which takes a second."""
    await until(lambda: not archive.sessions.session_id(key))
    await archive.run(lambda: None)


class TestOneShot:
    async def test_a_question_is_answered_at_once(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [asks(adapter, approval()), *HELLO]
        reader = await door.open(ANNA, None, Ask("Do", one_shot=True))
        async with asyncio.timeout(PATIENCE):
            assert (await reader.wait()).text == "Hello"
        pending = door.request(ANNA, "q1")
        assert pending is not None and pending.answer == Answer(choice=DENY, error=NOBODY)
        assert reader.turn.one_shot

    async def test_its_thread_is_in_no_list_and_goes(self, door: Door, adapter: ScriptedAdapter) -> None:
        gate = Gate()
        adapter.script = [gate, *HELLO]
        history = [{"id": "h", "role": "user", "content": "Before"}, {"id": "i", "role": "assistant", "content": "A"}]
        reader = await door.open(ANNA, None, Ask("Do", history=history, one_shot=True))
        archive, thread = adapter.archive, reader.turn.thread
        key = adapter.key_of(thread)
        session = await archive.run(lambda: archive.sessions.session_id(key))
        assert session and await archive.run(archive.store.passing) == [(thread.chat_id, key)]
        gate.open()
        assert (await reader.wait()).text == "Hello"
        assert (await archive.find(ANNA.id, "", archived=False))[1] == 0
        await put_away(archive, key)
        assert await archive.run(archive.store.passing) == []
        assert await archive.run(lambda: archive.sessions.rows(session)) == []
        assert adapter.gateway_runner.session_store._db.get_session(session) is None
        # Its id names nothing any more; whoever sends it begins anew.
        again = await door.open(ANNA, thread.thread_id, Ask("Hi"))
        await again.wait()
        assert again.turn.thread is not thread
        assert (await archive.find(ANNA.id, "", archived=False))[1] == 1

    async def test_one_that_the_process_died_in_goes_at_the_next_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with serving({}, tmp_path, monkeypatch) as (first, _):
            first.script = [MessageStart("m")]
            await Door(first).open(ANNA, None, Ask("Do", one_shot=True))
            archive = first.archive
            monkeypatch.setattr(archive, "put_away", lambda thread: None)
        async with serving({}, tmp_path, monkeypatch) as (second, _):
            assert await second.archive.run(second.archive.store.passing) == []

    async def test_unread_it_is_stopped(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.script = [MessageStart("m1"), MessageChunk("a")]
        reader = await door.open(ANNA, None, Ask("Do", one_shot=True))
        async with aclosing(reader.events()) as events:
            await anext(events)
        await until(reader.turn.done.is_set)

    async def test_sessions_may_be_kept_out_of_sight(self, door: Door, adapter: ScriptedAdapter) -> None:
        adapter.archive.keeps_stateless = True
        history = [{"id": "h", "role": "user", "content": "Before"}, {"id": "i", "role": "assistant", "content": "A"}]
        reader = await door.open(ANNA, None, Ask("Do", history=history, one_shot=True))
        key = adapter.key_of(reader.turn.thread)
        session = await adapter.archive.run(lambda: adapter.archive.sessions.session_id(key))
        await reader.wait()
        await put_away(adapter.archive, key)
        kept = adapter.gateway_runner.session_store._db.get_session(session)
        assert kept["archived"] and kept["end_reason"] == "agui_stateless"


class TestALongLog:
    """Merged deltas are never given twice."""

    async def turn(self, limit: int = 2000) -> Turn:
        thread = Thread.of(ANNA, "t")
        return thread.begin(EventLog(asyncio.get_running_loop(), limit))

    @pytest.mark.parametrize("stop", [1, 7, 300, 999])
    async def test_a_reader_that_falls_behind_gets_the_rest(self, stop: int) -> None:
        turn = await self.turn()
        turn.append(MessageStart("m1"))
        words = [f"{n} " for n in range(4000)]
        for word in words[:1000]:
            turn.append(MessageChunk(word))
        reader, got = Reader(turn), ""
        async with aclosing(reader.events()) as events:
            async for _, event in events:
                if isinstance(event, MessageChunk):
                    got += event.text
                    if reader.position >= stop + 1 and turn.log.last < 2000:
                        for word in words[1000:]:
                            turn.append(MessageChunk(word))
                        turn.append(ReasoningStart("r"))
                        turn.append(ReasoningChunk("hm"))
                        turn.append(ToolResult("x", call_id="c", content="y"))
                        turn.append(TurnFinished())
                    assert not reader.repeated
        assert got == "".join(words)

    async def test_one_that_began_in_the_middle_is_told(self) -> None:
        turn = await self.turn()
        for n in range(4000):
            turn.append(MessageChunk(f"{n} "))
        turn.append(TurnFinished())
        reader, repeated = Reader(turn, after=5), []
        async for _, event in reader.events():
            repeated += [event] if reader.repeated else []
        assert len(repeated) == 1 and isinstance(repeated[0], MessageChunk) and repeated[0].text.startswith("0 1 ")
