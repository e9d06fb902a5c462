"""Crew: where what subagents do is told, and that their end always is."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agui_adapter.crew import Crew
from agui_adapter.log import EventLog
from agui_adapter.requests import Requests, new_id
from agui_adapter.session import Principal, Thread, Threads, Turn
from agui_adapter.stream import (
    Request,
    StreamEvent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
)
from tests.scripted import until


class Rig:
    """A thread with real turns, requests and logs; what is told beside turns is kept in `beside`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.requests = Requests(loop, 8)
        self.crew = Crew(loop, self.requests.tell, self._beside)
        self.thread = Threads(ttl_seconds=60).get(Principal("local"), "t1")
        self.beside: list[list[StreamEvent]] = []

    def _beside(self, thread: Thread, events: list[StreamEvent]) -> None:
        self.beside.append(events)

    def begin(self) -> Turn:
        turn = self.thread.begin(EventLog(asyncio.get_running_loop()))
        self.crew.flush(self.thread)
        return turn

    def end(self, turn: Turn) -> None:
        self.thread.end(turn, "success")
        self.crew.flush(self.thread)

    def start(self, name: str = "one") -> None:
        self.crew.started(self.thread, f"session-{name}", f"sa-{name}", "subagent", f"goal {name}", "call-1")


def kinds(turn: Turn) -> list[str]:
    return [type(event).__name__ for event in turn.log.events()]


def newest(turn: Turn, kind: type) -> Any:
    return [event for event in turn.log.events() if isinstance(event, kind)][-1]


async def test_all_in_one_turn() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    rig.crew.spoke("session-one", "Let me look.")
    rig.crew.used("session-one", "terminal", "ls")
    rig.crew.spoke("session-one", "Found")
    rig.crew.spoke("session-one", " it.")
    rig.crew.ended("session-one", "completed", "Found it.", 1.5)
    rig.crew.ended("session-one", "completed", "again", 1.5)  # the hook behind the callback
    rig.end(turn)
    assert kinds(turn) == ["SubagentStarted", *["SubagentProgress"] * 3, "SubagentFinished", "TurnFinished"]
    assert [dict(step) for step in newest(turn, SubagentProgress).steps] == [
        {"kind": "text", "text": "Let me look."},
        {"kind": "tool", "tool": "terminal", "text": "ls"},
        {"kind": "text", "text": "Found it."},
    ]
    end = newest(turn, SubagentFinished)
    assert (end.summary, end.duration, end.subagent.call_id) == ("Found it.", 1.5, "call-1")
    assert rig.beside == []


async def test_a_summary_that_hermes_cut_is_whole_again() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    rig.crew.spoke("session-one", "The answer. " * 100)
    rig.crew.ended("session-one", "completed", ("The answer. " * 100)[:500], 1)
    assert newest(turn, SubagentFinished).summary == ("The answer. " * 100).strip()


async def test_its_end_between_turns_is_told_beside_with_all_it_did() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    rig.end(turn)
    rig.crew.used("session-one", "terminal", "ls")
    threading.Thread(target=rig.crew.ended, args=("session-one", "completed", "done", 1)).start()
    await until(lambda: rig.beside)
    ((progress, end),) = rig.beside
    assert isinstance(progress, SubagentProgress) and len(progress.steps) == 1
    assert isinstance(end, SubagentFinished) and end.summary == "done"
    assert kinds(turn) == ["SubagentStarted", "TurnFinished"]


async def test_a_later_turn_hears_of_it() -> None:
    rig = Rig()
    rig.end(rig.begin())
    rig.start()  # between two turns, as a background task may
    later = rig.begin()
    rig.crew.used("session-one", "terminal", "ls")
    rig.crew.ended("session-one", "completed", "done", 1)
    assert kinds(later) == ["SubagentProgress", "SubagentFinished"]


async def test_nothing_is_written_into_a_turn_that_waits() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    pending = rig.requests.open(turn, Request(new_id("clarify"), "clarify", "Which?"))
    rig.requests.park(pending)
    rig.crew.used("session-one", "terminal", "ls")
    rig.crew.ended("session-one", "completed", "done", 1)
    await asyncio.sleep(0)
    rig.crew.flush(rig.thread)
    assert kinds(turn) == ["SubagentStarted", "RequestOpened", "TurnParked"] and rig.beside == []
    rig.requests.close(pending, "cancelled")
    rig.requests.resumed(pending)
    rig.crew.flush(rig.thread)
    assert kinds(turn)[3:] == ["RequestClosed", "SubagentProgress", "SubagentFinished"]


async def test_the_end_of_a_turn_that_waited_lets_it_out() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    rig.requests.park(rig.requests.open(turn, Request(new_id("clarify"), "clarify", "Which?")))
    rig.crew.ended("session-one", "interrupted", "", 1)
    rig.end(turn)
    await until(lambda: rig.beside)
    ((end,),) = rig.beside
    assert isinstance(end, SubagentFailed) and end.code == "interrupted"


@pytest.mark.parametrize(
    ("status", "error", "kind", "code"),
    [
        ("completed", "", SubagentFinished, ""),
        ("completed", "HTTP 401", SubagentFailed, "error"),
        ("failed", "", SubagentFailed, "failed"),
        ("timeout", "", SubagentFailed, "timeout"),
        ("", "", SubagentFailed, "failed"),
    ],
)
async def test_how_it_ended(status: str, error: str, kind: type, code: str) -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    rig.crew.requested("session-one", "an error that was made good")
    rig.crew.requested("session-one", error)
    rig.crew.ended("session-one", status, "text", 1)
    end = turn.log.events()[-1]
    assert type(end) is kind and getattr(end, "code", "") == code


async def test_a_nested_one_names_its_parent_whose_text_is_not_its_own() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    rig.crew.started_by("session-one", "session-two", "sa-two", "subagent", "inner")
    rig.crew.spoke("session-one", "the inner one speaks here, and Hermes says it is the outer")
    rig.crew.ended("session-two", "completed", "inner done", 1)
    rig.crew.spoke("session-one", "I myself")
    rig.crew.ended("session-one", "completed", "I myself", 1)
    outer, inner = (event.subagent for event in turn.log.events() if isinstance(event, SubagentStarted))
    assert inner.parent is outer and outer.parent is None
    assert [step["text"] for step in newest(turn, SubagentProgress).steps] == ["I myself"]
    rig.crew.started_by("unknown", "session-three", "sa-three", "subagent", "x")
    assert len([event for event in turn.log.events() if isinstance(event, SubagentStarted)]) == 2


async def test_many_steps_are_bounded_and_said_to_be() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    for number in range(230):
        rig.crew.used("session-one", "terminal", f"{number} " + "x" * 1000)
    last = newest(turn, SubagentProgress)
    assert last.left_out + len(last.steps) == 230 and len(last.steps) <= 100
    assert last.steps[-1]["text"].startswith("229") and max(len(step["text"]) for step in last.steps) <= 500


async def test_long_text_becomes_steps_at_word_ends_and_loses_nothing() -> None:
    rig = Rig()
    turn = rig.begin()
    rig.start()
    text = "".join(f"word{number} " for number in range(300))
    for start in range(0, len(text), 7):
        rig.crew.spoke("session-one", text[start : start + 7])
    rig.crew.ended("session-one", "completed", text[:500], 1)
    steps = newest(turn, SubagentProgress).steps
    assert " ".join(step["text"] for step in steps) == text.strip() and len(steps) > 3


async def test_a_thread_that_is_gone_and_a_process_that_ends_hear_nothing() -> None:
    rig = Rig()
    rig.start("one")
    rig.start("two")
    rig.thread.gone = True
    rig.crew.ended("session-one", "completed", "x", 1)
    await asyncio.sleep(0)
    rig.thread.gone = False
    rig.crew.close()
    rig.crew.ended("session-two", "completed", "x", 1)
    await asyncio.sleep(0)
    rig.crew.flush(rig.thread)
    assert rig.beside == []
