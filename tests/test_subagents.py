"""Subagents on the wire, run by run: what the property tests in test_events do not say."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from agui_adapter.check import check_events
from agui_adapter.events import AguiStream, View
from agui_adapter.stream import (
    MessageChunk,
    MessageStart,
    StreamEvent,
    Subagent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
    ToolCall,
    TurnFinished,
)
from tests.reducer import decode

ALL = View()
CALL = ToolCall("delegate_task", call_id="c1", arguments="{}", message_id="m1")
ONE = Subagent("s1", "subagent", "the goal", None, "c1")
INNER = Subagent("s2", "subagent", "inner", ONE)
TOOL = {"kind": "tool", "tool": "terminal", "text": "ls secret"}
TEXT = {"kind": "text", "text": "secret words"}


def run(*events: StreamEvent, view: View = ALL, base: Any = ()) -> list[dict[str, Any]]:
    stream = AguiStream("t", "r", prefix="turn", view=view, base=base)
    frames = [*stream.start(), *(frame for event in events for frame in stream.feed(event))]
    made = decode(frames)
    assert not check_events(enumerate(made), peer="1.0")
    return made


def subagents(events: list[dict[str, Any]]) -> list[str]:
    shown = []
    for event in events:
        if event["type"].startswith("SUBAGENT"):
            how = event.get("outcome", {}).get("type", "") if event["type"] == "SUBAGENT_FINISHED" else ""
            shown.append(
                " ".join(x for x in (event["type"].removeprefix("SUBAGENT_"), event["subagentRunId"], how) if x)
            )
    return shown


def activity(events: list[dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for event in events:
        if event["type"] == "ACTIVITY_SNAPSHOT":
            content = event["content"]
        elif event["type"] == "ACTIVITY_DELTA":
            content = jsonpatch.apply_patch(content, event["patch"])
    return content


def test_one_run() -> None:
    events = run(
        CALL, SubagentStarted(ONE), SubagentProgress(ONE, (TOOL,)), SubagentFinished(ONE, "done", 2), TurnFinished()
    )
    assert subagents(events) == ["STARTED s1", "FINISHED s1 success"]
    (started,) = [event for event in events if event["type"] == "SUBAGENT_STARTED"]
    assert started["parentToolCallId"] == "c1" and started["description"] == "the goal"
    assert activity(events) == {
        "subagentId": "s1",
        "name": "subagent",
        "goal": "the goal",
        "toolCallId": "c1",
        "status": "completed",
        "steps": [TOOL],
        "stepsLeftOut": 0,
        "summary": "done",
        "seconds": 2,
    }


def test_it_may_speak_while_a_message_is_open() -> None:
    events = run(MessageStart("m1"), MessageChunk("a"), SubagentStarted(ONE), MessageChunk("b"), TurnFinished())
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["a", "b"]
    assert sum(event["type"] == "TEXT_MESSAGE_START" for event in events) == 1


def test_a_later_run_announces_it_anew_and_shows_it_in_the_same_place() -> None:
    first = run(CALL, SubagentStarted(ONE), TurnFinished())
    later = run(SubagentProgress(ONE, (TEXT, TOOL)), SubagentFailed(ONE, "boom", "timeout", 1), TurnFinished())
    assert subagents(first) == ["STARTED s1", "FINISHED s1 suspended"]
    assert subagents(later) == ["STARTED s1", "ERROR s1"]
    ids = {event["messageId"] for event in first + later if event["type"].startswith("ACTIVITY")}
    assert ids == {"s1-activity"} and activity(later)["steps"] == [TEXT, TOOL]
    assert activity(later)["status"] == "timeout" and activity(later)["error"] == "boom"
    # The call is not this run's: a client that has it not is told no id.
    (started,) = [event for event in later if event["type"] == "SUBAGENT_STARTED"]
    assert "parentToolCallId" not in started


def test_a_client_that_sends_activities_back_keeps_its_place() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "delegate_task", "arguments": "{}"}}]
    base = [
        {"id": "m1", "role": "assistant", "toolCalls": calls},
        {"id": "s1-activity", "role": "activity", "activityType": "hermes.subagent", "content": {}},
    ]
    events = run(SubagentFinished(ONE, "done"), TurnFinished(), base=base)
    assert [event["messageId"] for event in events if event["type"].startswith("ACTIVITY")] == ["s1-activity"]
    (started,) = [event for event in events if event["type"] == "SUBAGENT_STARTED"]
    assert started["parentToolCallId"] == "c1"


def test_a_nested_one_brings_its_parent() -> None:
    events = run(SubagentProgress(INNER, (TOOL,)), TurnFinished())
    assert subagents(events) == ["STARTED s1", "STARTED s2", "FINISHED s2 suspended", "FINISHED s1 suspended"]


def test_nothing_follows_its_end() -> None:
    events = run(SubagentFinished(ONE, "done"), SubagentProgress(ONE, (TOOL,)), SubagentStarted(ONE), TurnFinished())
    assert subagents(events) == ["STARTED s1", "FINISHED s1 success"] and activity(events)["steps"] == []


def test_a_failed_run_leaves_none_open() -> None:
    events = run(SubagentStarted(ONE), TurnFinished("failed", "x", "y"))
    assert subagents(events) == ["STARTED s1", "FINISHED s1 suspended"] and events[-1]["type"] == "RUN_ERROR"


@pytest.mark.parametrize("shows", ["names", "off"])
def test_what_is_hidden(shows: Any) -> None:
    secret = Subagent("s1", "subagent", "secret goal", None, "c1")
    events = run(
        *(CALL, SubagentStarted(secret), SubagentProgress(secret, (TEXT, TOOL))),
        *(SubagentFailed(secret, "secret error", "failed"), TurnFinished()),
        view=View(tool_output=shows),
    )
    assert "secret" not in str(events)
    assert subagents(events) == ([] if shows == "off" else ["STARTED s1", "ERROR s1"])
    assert activity(events).get("steps") == (None if shows == "off" else [{"kind": "tool", "tool": "terminal"}])


def test_many_changes_come_as_a_snapshot() -> None:
    many = tuple({"kind": "text", "text": str(number)} for number in range(100))
    events = run(SubagentStarted(ONE), SubagentProgress(ONE, many, 7), TurnFinished())
    assert [e["type"] for e in events if e["type"].startswith("ACTIVITY")] == ["ACTIVITY_SNAPSHOT"] * 2
    assert len(activity(events)["steps"]) == 100 and activity(events)["stepsLeftOut"] == 7


def test_a_reader_that_fell_behind_is_told_what_runs_now() -> None:
    third = Subagent("s3", "subagent", "third", INNER)
    seen: list[StreamEvent] = [SubagentStarted(ONE)]
    missed: list[StreamEvent] = [
        *(SubagentStarted(INNER), SubagentFinished(INNER, "x"), SubagentStarted(third), SubagentFinished(ONE, "y")),
    ]
    stream = AguiStream("t", "r", prefix="turn")
    frames = [*stream.start(), *(frame for event in seen for frame in stream.feed(event))]
    frames += [*stream.resync([*seen, *missed]), *stream.feed(TurnFinished())]
    events = decode(frames)
    assert not check_events(enumerate(events), peer="1.0")
    # The second began and ended unseen: it is not announced, and the third names no parent that is not known.
    assert subagents(events) == ["STARTED s1", "STARTED s3", "FINISHED s1 success", "FINISHED s3 suspended"]
    assert not any("parentSubagentRunId" in event for event in events)
