"""Hermes's own stream events, sent by Hermes's own dispatcher: taken where nothing better is known, doubled nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway.session_context import clear_session_vars, set_session_vars
from gateway.stream_dispatch import GatewayEventDispatcher

from agui_adapter.adapter import AguiAdapter
from agui_adapter.check import check_text
from agui_adapter.config import load
from agui_adapter.cycle import Cycle
from agui_adapter.events import AguiStream
from agui_adapter.session import Principal, Turn
from agui_adapter.stream import (
    Commentary,
    MessageChunk,
    MessageStart,
    MessageStop,
    ToolCall,
    ToolCallChunk,
    ToolCallFinished,
)
from agui_adapter.tap import Call
from tests.reducer import decode, reduce
from tests.scripted import new_adapter

SINK = object()  # a gateway that streams has a consumer; all that counts is that there is one

SCRIPT = [
    MessageChunk("Let me "),
    MessageChunk("look."),
    MessageStop(final=False),
    Commentary("Let me look."),
    ToolCallChunk("terminal", args={"command": "ls"}, index=0),
    ToolCallChunk("read_file", args={"path": "a"}, index=1),
    ToolCallFinished("terminal", index=0),
    ToolCallFinished("read_file", index=1),
    Commentary("Nearly there."),
    MessageChunk("\n\nFound "),
    MessageChunk("it."),
    MessageStop(final=True),
]


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AguiAdapter:
    made: AguiAdapter = new_adapter(AguiAdapter, {}, tmp_path, monkeypatch)
    return made


class Dispatched:
    """A turn of the adapter and the dispatcher that the gateway would make for it."""

    def __init__(self, adapter: AguiAdapter, turn: Turn) -> None:
        self.adapter, self.turn = adapter, turn
        self.cycle: Cycle = adapter._cycles[turn]
        self.lines: list[Any] = []
        self.dispatcher = GatewayEventDispatcher(adapter, SINK, enqueue_tool_line=self.lines.append)

    async def run(self, work: Callable[[], None]) -> None:
        """On a worker thread with the session's context bound, as the agent runs."""

        def bound() -> None:
            tokens = set_session_vars(platform="agui", session_key=self.cycle.session_key)
            try:
                work()
            finally:
                clear_session_vars(tokens)

        await asyncio.to_thread(bound)

    async def dispatch(self, *events: Any) -> None:
        await self.run(lambda: [self.dispatcher.dispatch(event) for event in events] and None)

    def end(self) -> list[dict[str, Any]]:
        """End the turn as the gateway does; the messages that a client has then."""
        outcome, code, message = self.cycle.verdict()
        self.cycle.close(outcome)
        self.turn.thread.end(self.turn, outcome, code, message)
        stream = AguiStream("t", "r", prefix=self.turn.id)
        frames = stream.start() + [frame for event in self.turn.log.events() for frame in stream.feed(event)]
        findings = check_text(b"".join(frames).decode(), sse=True)
        assert not findings, findings
        self.outcome = outcome
        return reduce(decode(frames))


@pytest.fixture
async def dispatched(adapter: AguiAdapter) -> Dispatched:
    return begin(adapter)


def begin(adapter: AguiAdapter, thread_id: str = "t") -> Dispatched:
    adapter.settings = load({}, {})
    adapter._loop = asyncio.get_running_loop()
    if not hasattr(adapter, "requests"):
        from agui_adapter.requests import Requests

        adapter.requests = Requests(adapter._loop, 10, lambda pending: None)
    thread = adapter.threads.get(Principal("local"), thread_id)
    return Dispatched(adapter, adapter.new_turn(thread, "Hello"))


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant" and message.get("content")]


async def test_text_commentary_and_tool_starts_become_a_clean_stream(dispatched: Dispatched) -> None:
    await dispatched.dispatch(*SCRIPT)
    dispatched.cycle.said("Found it.", dispatched.cycle.event_id, True)
    messages = dispatched.end()
    assert dispatched.outcome == "success"
    assert texts(messages) == ["Let me look.", "Nearly there.", "Found it."]
    calls = [call for message in messages for call in message.get("toolCalls", ())]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        ("terminal", '{"command": "ls"}'),
        ("read_file", '{"path": "a"}'),
    ]
    assert len([message for message in messages if message["role"] == "tool"]) == 2


async def test_ids_are_minted_and_unique(dispatched: Dispatched) -> None:
    await dispatched.dispatch(*SCRIPT)
    events = dispatched.turn.log.events()
    ids = [event.message_id for event in events if isinstance(event, MessageStart)]
    ids += [event.call_id for event in events if isinstance(event, ToolCall)]
    assert len(ids) == len(set(ids)) == 5
    assert all(each.startswith(f"{dispatched.turn.id}-") for each in ids)
    dispatched.end()


async def test_there_is_no_tool_line_to_print(dispatched: Dispatched) -> None:
    await dispatched.dispatch(*SCRIPT)
    assert dispatched.lines == []


async def test_nothing_is_doubled_when_the_tap_is_active_as_well(dispatched: Dispatched) -> None:
    tap, calls = dispatched.cycle.tap, [Call("c1", "terminal", '{"command": "ls"}'), Call("c2", "read_file", "{}")]

    def agent() -> None:
        """Each thing is told twice: by the callbacks that the tap hangs on, and by Hermes's own events."""
        dispatch = dispatched.dispatcher.dispatch
        tap.begin()
        for piece in ("Let me ", "look."):
            tap.text(piece)
            dispatch(MessageChunk(piece))
        tap.answered("Let me look.", calls, None)
        tap.committed(calls)
        for event in SCRIPT[2:6]:
            dispatch(event)
        for call in calls:
            tap.result(call.id, call.name, "out")
            dispatch(ToolCallFinished(call.name))
        for piece in ("\n\nFound ", "it."):
            dispatch(MessageChunk(piece))
            tap.text(piece)
        dispatch(MessageStop(final=True))
        tap.final("Found it.")
        tap.end(completed=True, interrupted=False)

    await dispatched.run(agent)
    dispatched.cycle.said("Found it.", dispatched.cycle.event_id, True)
    messages = dispatched.end()
    assert texts(messages) == ["Let me look.", "Found it."]
    calls_shown = [call["id"] for message in messages for call in message.get("toolCalls", ())]
    assert calls_shown == ["c1", "c2"]
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["out", "out"]


async def test_events_reach_the_turn_of_their_own_session(adapter: AguiAdapter) -> None:
    one, other = begin(adapter, "one"), begin(adapter, "other")
    await asyncio.gather(one.dispatch(MessageChunk("for one")), other.dispatch(MessageChunk("for the other")))
    assert texts(one.end()) == ["for one"]
    assert texts(other.end()) == ["for the other"]


@pytest.fixture
def quiet() -> Iterator[None]:
    tokens = set_session_vars(session_key="")
    yield
    clear_session_vars(tokens)


async def test_events_of_nobodys_session_go_nowhere(dispatched: Dispatched, quiet: None) -> None:
    for event in SCRIPT:
        dispatched.dispatcher.dispatch(event)
    tokens = set_session_vars(session_key="agent:main:telegram:dm:1")
    for event in SCRIPT:
        dispatched.dispatcher.dispatch(event)
    clear_session_vars(tokens)
    assert dispatched.turn.log.events() == []


async def test_late_events_are_ignored(dispatched: Dispatched) -> None:
    await dispatched.dispatch(MessageChunk("Hi"))
    dispatched.end()
    written = dispatched.turn.log.events()
    await dispatched.dispatch(*SCRIPT)
    assert dispatched.turn.log.events() == written
