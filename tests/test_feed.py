"""The feed against any log: a reader that comes back anywhere misses nothing and gets nothing twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_adapter.events import AguiStream, View
from agui_adapter.feed import Feed, Position, position
from agui_adapter.log import EventLog
from agui_adapter.peers import OLD
from agui_adapter.run import Run
from agui_adapter.session import Principal, Segment, Thread, Turn
from agui_adapter.sse import SseParser
from agui_adapter.stream import (
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    ReasoningChunk,
    ReasoningStart,
    ReasoningStop,
    Request,
    RequestClosed,
    RequestOpened,
    StreamEvent,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
)
from tests.reducer import reduce
from tests.strategies import scripts

PATIENCE = 30.0
ASKED = Request("approval-1", "approval", "Allow?", "c2", ("once", "deny"))
FIRST: tuple[StreamEvent, ...] = (
    ReasoningStart("r1"),
    ReasoningChunk("I "),
    ReasoningChunk("think."),
    ReasoningStop(),
    MessageStart("m1"),
    *(MessageChunk(f"word{number} ") for number in range(5)),
    MessageStop(final=False),
    ToolCall(tool_name="terminal", call_id="c1", message_id="m1"),
    ToolCall(tool_name="terminal", call_id="c2", message_id="m1", index=1),
    ToolResult(tool_name="terminal", call_id="c1", content="one", message_id="t1"),
    RequestOpened(ASKED),
    TurnParked((ASKED,)),
)
SECOND: tuple[StreamEvent, ...] = (
    RequestClosed("approval-1", "answered", "once"),
    ToolResult(tool_name="terminal", call_id="c2", content="two", message_id="t2"),
    MessageStart("m2"),
    MessageChunk("All "),
    MessageChunk("done."),
    MessageStop(final=True),
    TurnFinished(),
)
BASE = [{"id": "u1", "role": "user", "content": "go"}]


class Reader:
    """Reads chunks in the background; frames as (id of the frame or None, event)."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self.raw = b""
        self._task = asyncio.create_task(self._read(chunks))

    async def _read(self, chunks: AsyncGenerator[bytes, None]) -> None:
        async for chunk in chunks:
            self.raw += chunk

    @property
    def frames(self) -> list[tuple[str | None, dict[str, Any]]]:
        return parsed(self.raw)

    @property
    def types(self) -> list[str]:
        return [event["type"] for _, event in self.frames]

    async def until(self, kind: str, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.types.count(kind) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def end(self) -> Reader:
        async with asyncio.timeout(PATIENCE):
            await self._task
        return self

    async def leave(self) -> Reader:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self


def parsed(raw: bytes) -> list[tuple[str | None, dict[str, Any]]]:
    made = []
    for block in raw.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if "data" in lines:
            made.append((lines.get("id"), json.loads(lines["data"])))
    return made


def folded(reader: Reader) -> list[dict[str, Any]]:
    """The messages that a client sends when it answers: what it had and what it was told."""
    return reduce([event for _, event in reader.frames], BASE)


def thread() -> Thread:
    return Thread(Principal("local"), "t", "local.t")


def begin(on: Thread, *, limit: int = 8 << 20, run_id: str = "run-1", base: Sequence[Any] = BASE, **more: Any) -> Turn:
    turn = on.begin(EventLog(asyncio.get_running_loop(), limit))
    turn.amend(turn.begin_run(0, run_id, base=base), **more)
    return turn


def play(turn: Turn, events: Sequence[StreamEvent]) -> None:
    for event in events:
        place = turn.append(event)
        if isinstance(event, TurnParked):
            turn.parked_at = place
        if isinstance(event, TurnFinished):
            turn.thread.current = None
            turn.done.set()


def post(turn: Turn, segment: Segment) -> Reader:
    """The stream that the run's own client reads."""
    stream = AguiStream(
        "t", segment.run_id, prefix=segment.prefix, base=segment.base, open_calls=turn.open_calls(segment.start)
    )
    run = Run(turn, stream, after=segment.start)
    run.first = segment.first
    return Reader(run.chunks())


def attach(on: Thread, event_id: str, *, once: bool = True) -> Reader:
    after = position(on, event_id)
    assert after is not None, event_id
    return Reader(Feed(on, View(), after=after, once=once).chunks())


async def test_a_run_that_begins_behind_the_turns_end_tells_how_that_was() -> None:
    turn = begin(thread())
    play(turn, [TurnFinished("failed", "provider_auth", "Your key is wrong.")])
    reader = await post(turn, turn.begin_run(turn.log.last, "late")).end()
    assert [(event["type"], event.get("code")) for _, event in reader.frames] == [
        ("RUN_STARTED", None),
        ("RUN_ERROR", "provider_auth"),
    ]


async def test_a_feed_that_comes_back_there_tells_it_too() -> None:
    on = thread()
    turn = begin(on)
    play(turn, [TurnFinished("failed", "provider_auth", "Your key is wrong.")])
    turn.begin_run(turn.log.last, "late")
    reader = await attach(on, f"{turn.id}.{turn.log.last}").end()
    assert ("RUN_ERROR", "provider_auth") in [(event["type"], event.get("code")) for _, event in reader.frames]
    assert not [event for _, event in reader.frames if event["type"] == "RUN_FINISHED"]


# --- coming back


async def test_every_frame_of_every_run_can_be_come_back_to() -> None:
    """The undisturbed reader is the client that posted both runs; everybody else is cut once, anywhere."""
    where = thread()
    turn = begin(where)
    play(turn, FIRST)
    first = await post(turn, turn.segments[0]).end()
    turn.begin_run(turn.parked_at, "run-2", base=folded(first))
    play(turn, SECOND)
    second = await post(turn, turn.segments[1]).end()
    whole = [*first.frames, *second.frames]
    assert first.types[-1] == second.types[-1] == "RUN_FINISHED"
    seen = {event_id for event_id, _ in whole}
    assert None not in seen and len(seen) == len(whole) > 25
    for index, (event_id, _) in enumerate(whole):
        back = await attach(where, event_id).end()
        assert back.frames == whole[index + 1 :], (index, event_id)


@settings(max_examples=60, deadline=None)
@given(scripts, st.data())
async def test_any_log_can_be_come_back_to_anywhere(events: list[StreamEvent], data: st.DataObject) -> None:
    where = thread()
    turn = begin(where)
    play(turn, [event for event in events if not isinstance(event, TurnFinished)])
    play(turn, [TurnFinished()])
    whole = (await Reader(Feed(where, View(), after=Position(turn, 0), once=True).chunks()).end()).frames
    assert whole[0][1]["type"] == "RUN_STARTED"
    assert len({event_id for event_id, _ in whole} - {None}) == len(whole)
    index = data.draw(st.sampled_from(range(len(whole))))
    back = await attach(where, str(whole[index][0])).end()
    assert back.frames == whole[index + 1 :]


async def test_a_cut_in_the_middle_of_what_runs_goes_on_live() -> None:
    where = thread()
    turn = begin(where)
    undisturbed = post(turn, turn.segments[0])
    play(turn, FIRST[:7])
    await undisturbed.until("TEXT_MESSAGE_CONTENT", 2)
    cut = undisturbed.frames
    back = attach(where, str(cut[-1][0]))
    play(turn, [*FIRST[7:10], MessageStop(final=True), TurnFinished()])
    whole = (await undisturbed.end()).frames
    assert [*cut, *(await back.end()).frames] == whole


@pytest.mark.parametrize(
    "event_id", ["", "x", "turn-0.1", ".", "{turn}", "{turn}.", "{turn}.x", "{turn}.-1", "{turn}.99", "{turn}.9" * 9,
                 "{turn}.3-", "{turn}.3-x", "{turn}.3s-1", "{turn}.3-99999"],
)  # fmt: skip
async def test_a_position_that_is_made_up_is_none(event_id: str) -> None:
    where = thread()
    turn = begin(where)
    play(turn, FIRST)
    assert position(where, event_id.replace("{turn}", turn.id)) is None
    assert position(where, f"{turn.id}.²") is None


async def test_positions() -> None:
    where = thread()
    turn = begin(where)
    play(turn, FIRST)
    assert position(where, f"{turn.id}.3") == Position(turn, 3)
    assert position(where, f"{turn.id}.0s") == Position(turn, 0, begun=True)
    assert position(where, f"{turn.id}.3-2") == Position(turn, 3, begun=True, frames=2)


# --- readers that know nothing


async def test_a_new_reader_of_an_older_clients_run_gets_what_such_a_client_can_read() -> None:
    where = thread()
    turn = begin(where, peer=OLD)
    play(turn, FIRST[:6])
    parts = [{"type": "text", "text": "seen"}, {"type": "image", "source": {"type": "url", "value": "https://x/y"}}]
    history = [{"id": "t0", "role": "tool", "toolCallId": "c0", "content": parts}, *BASE]
    reader = Reader(Feed(where, View(), history=history).chunks())
    await reader.until("TEXT_MESSAGE_CONTENT")
    assert reader.frames[1][1]["messages"] == [{**history[0], "content": "seen"}, *BASE]


async def test_a_new_reader_gets_the_conversation_and_the_turn_from_its_beginning() -> None:
    where = thread()
    turn = begin(where)
    play(turn, FIRST[:6])
    history = [{"id": "u0", "role": "user", "content": "before"}, *BASE]
    reader = Reader(Feed(where, View(), history=history).chunks())
    await reader.until("TEXT_MESSAGE_CONTENT")
    assert reader.types[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "REASONING_START"]
    assert reader.frames[1][1]["messages"] == history
    play(turn, [*FIRST[6:], *SECOND])
    await reader.until("RUN_FINISHED", 2)
    assert reader.types.count("MESSAGES_SNAPSHOT") == 1  # of the second run it knows everything
    await reader.leave()


async def test_an_idle_reader_is_told_what_another_window_sends() -> None:
    where = thread()
    reader = Reader(Feed(where, View(), history=list(BASE)).chunks())
    await asyncio.sleep(0)
    turn = begin(where, base=[*BASE, {"id": "u2", "role": "user", "content": "more"}], complete=True)
    play(turn, [MessageStart("m"), MessageChunk("yes"), TurnFinished()])
    await reader.until("RUN_FINISHED")
    # It came for the past; the message of the new turn is in the run's own base.
    again = begin(where, run_id="run-2", base=[*_held(reader), {"id": "u3", "role": "user", "content": "!"}])
    play(again, [MessageStart("n"), MessageChunk("no"), TurnFinished()])
    await reader.until("RUN_FINISHED", 2)
    snapshots = [event["messages"] for _, event in reader.frames if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["id"] for message in snapshots[-1]][-1] == "u3"
    await reader.leave()


def _held(reader: Reader) -> list[dict[str, Any]]:
    return [*BASE, {"id": "m", "role": "assistant", "content": "yes"}]


async def test_a_turn_that_was_over_at_once_is_told_too() -> None:
    """A message that comes late is a closed turn: no reader is ever awake while it is the current one."""
    where = thread()
    reader = Reader(Feed(where, View(), history=[]).chunks())
    await asyncio.sleep(0)
    for number in range(3):
        turn = where.begin(EventLog(asyncio.get_running_loop()), unsolicited=True)
        play(turn, [MessageStart(f"m{number}"), MessageChunk(f"late {number}"), TurnFinished()])
    await reader.until("RUN_FINISHED", 3)
    texts = [event["delta"] for _, event in reader.frames if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert texts == ["late 0", "late 1", "late 2"]
    await reader.leave()


async def test_a_correction_in_an_unsolicited_turn_takes_nothing_from_a_reader() -> None:
    where = thread()
    reader = Reader(Feed(where, View(), history=list(BASE)).chunks())
    await asyncio.sleep(0)
    turn = where.begin(EventLog(asyncio.get_running_loop()), unsolicited=True)
    play(turn, [MessageStart("m"), MessageChunk("draft"), MessageRevised("m", "final"), TurnFinished()])
    await reader.until("RUN_FINISHED")
    last = [event["messages"] for _, event in reader.frames if event["type"] == "MESSAGES_SNAPSHOT"][-1]
    assert [message["id"] for message in last] == ["u1", "m"]
    await reader.leave()


async def test_a_partial_list_of_another_client_takes_nothing_from_a_reader() -> None:
    """Another window may send only its newest messages; one that rewinds has the whole conversation."""
    where = thread()
    past = [*BASE, {"id": "a1", "role": "assistant", "content": "A"}]
    reader = Reader(Feed(where, View(), history=past).chunks())
    await asyncio.sleep(0)
    begun = begin(where)
    play(begun, [MessageStart("m"), MessageChunk("x"), TurnFinished()])
    await reader.until("RUN_FINISHED")
    new = {"id": "u2", "role": "user", "content": "more"}
    play(begin(where, run_id="r2", base=[new]), [MessageStart("m2"), MessageChunk("y"), TurnFinished()])
    await reader.until("RUN_FINISHED", 2)
    play(begin(where, run_id="r3", base=[*BASE, new], complete=True), [TurnFinished()])
    await reader.until("RUN_FINISHED", 3)
    snapshots = [event["messages"] for _, event in reader.frames if event["type"] == "MESSAGES_SNAPSHOT"]
    ids = [[message["id"] for message in messages] for messages in snapshots]
    assert ids == [["u1", "a1"], ["u1", "a1", "m", "u2"], ["u1", "u2"]]
    await reader.leave()


async def test_what_the_runs_client_was_told_is_told_to_readers_too() -> None:
    where = thread()
    turn = begin(where, first=(b'data: {"type":"CUSTOM","name":"hermes.rewound","value":{}}\n\n',))
    play(turn, [TurnFinished()])
    back = await attach(where, f"{turn.id}.0").end()
    own = await post(turn, turn.segments[0]).end()
    assert back.raw == own.raw
    assert back.types == ["RUN_STARTED", "CUSTOM", "RUN_FINISHED"]


# --- readers that fall behind


async def test_a_reader_that_fell_behind_gets_a_snapshot_and_goes_on() -> None:
    where = thread()
    turn = begin(where, limit=20_000)
    play(turn, [MessageStart("m1"), *(MessageChunk(f"word{number} ") for number in range(50))])
    early = f"{turn.id}.20"
    text = "".join(f"word{number} " for number in range(3000))
    play(turn, [MessageChunk(f"word{number} ") for number in range(50, 3000)])
    back = attach(where, early)
    await back.until("TEXT_MESSAGE_START")
    assert back.types[:2] == ["MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START"]
    assert back.frames[0][1]["messages"][-1] == {"id": "m1", "role": "assistant", "content": text}
    play(turn, [MessageChunk("and on."), MessageStop(final=True), TurnFinished()])
    await back.end()
    assert back.types[2:] == ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert back.frames[2][1]["delta"] == "and on."


async def test_a_reader_that_fell_behind_before_a_park_goes_on_with_the_next_run() -> None:
    where = thread()
    turn = begin(where, limit=20_000)
    long = [MessageStart("m0"), *(MessageChunk(f"word{number} ") for number in range(2000)), MessageStop(final=False)]
    play(turn, [*long, *FIRST])
    turn.begin_run(turn.parked_at, "run-2", base=list(BASE))
    play(turn, SECOND)
    back = await attach(where, f"{turn.id}.20").end()
    assert back.types.count("RUN_FINISHED") == 2 and back.types.count("RUN_STARTED") == 1
    assert [event["content"] for _, event in back.frames if event["type"] == "TOOL_CALL_RESULT"] == ["two"]
    assert "All " in [event.get("delta") for _, event in back.frames]


# --- a feed's own life


async def test_a_feed_counts_as_a_reader_and_as_a_watcher_only_while_it_is_there() -> None:
    where = thread()
    turn = begin(where)
    play(turn, FIRST[:3])
    reader = Reader(Feed(where, View(), history=[]).chunks())
    quiet = Reader(Feed(where, View(), history=[], counts=False).chunks())
    await reader.until("REASONING_START")
    await quiet.until("REASONING_START")
    assert (turn.readers, where.watchers) == (1, 2)
    await reader.leave()
    await quiet.leave()
    assert (turn.readers, where.watchers) == (0, 0)


async def test_the_feed_of_a_deleted_thread_ends() -> None:
    where = thread()
    reader = Reader(Feed(where, View(), history=[]).chunks())
    await asyncio.sleep(0)
    where.gone = True
    where.changed.notify()
    await reader.end()
    assert reader.raw == b"" and where.watchers == 0


async def test_once_ends_with_the_turn_or_at_once() -> None:
    where = thread()
    assert (await Reader(Feed(where, View(), history=[], once=True).chunks()).end()).raw == b""
    turn = begin(where)
    reader = Reader(Feed(where, View(), history=[], once=True).chunks())
    play(turn, [TurnFinished()])
    assert (await reader.end()).types == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


def test_the_parser_of_the_console_and_the_terminal_keeps_the_newest_id() -> None:
    parser = SseParser()
    raw = b'id: turn-1.0s\ndata: {"a":1}\n\ndata: {"b":2}\n\nid: turn-1.4\ndata: {"c":3}\n\n'
    assert [frame.id for frame in parser.feed(raw)] == ["turn-1.0s", "turn-1.0s", "turn-1.4"]
