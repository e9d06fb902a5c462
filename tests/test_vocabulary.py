"""Every StreamEvent has a form on the core's own wire, the form is stable, and it shows what the operator lets it."""

from __future__ import annotations

import dataclasses
import json
import typing

import pytest

from agui_adapter import stream
from agui_adapter.encode import dumps
from agui_adapter.events import HIDDEN, View
from agui_adapter.shown import Shown
from agui_adapter.stream import (
    InnerToolCall,
    InnerToolResult,
    MessageChunk,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
    Request,
    RequestOpened,
    StateChanged,
    StepStarted,
    StreamEvent,
    Subagent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
    ToolCall,
    ToolCallChunk,
    ToolResult,
    TurnFinished,
    TurnParked,
)
from agui_adapter.vocabulary import KINDS, told


def every_event() -> set[type]:
    """The classes of the union and those of them that say more."""
    union = set(typing.get_args(stream.StreamEvent))
    named = [getattr(stream, name) for name in stream.__all__]
    return union | {one for one in named if isinstance(one, type) and any(issubclass(one, base) for base in union)}


def example(kind: type) -> StreamEvent:
    values: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = {"subagent": Subagent("s", "n"), "request": Request("r", "approval")}.get(
                field.name, "x"
            )
    return typing.cast(StreamEvent, kind(**values))


@pytest.mark.parametrize("kind", sorted(every_event(), key=lambda one: one.__name__), ids=lambda one: one.__name__)
def test_every_event_has_a_form(kind: type) -> None:
    made = json.loads(dumps(told(example(kind))))
    assert made["event"] == KINDS[kind]
    hidden = {"before", "size", "dropped"} if kind is StateChanged else set()
    assert set(made) == {"event"} | {field.name for field in dataclasses.fields(kind)} - hidden


def test_kinds_are_these_and_no_others() -> None:
    assert set(KINDS) == every_event()
    assert len(set(KINDS.values())) == len(KINDS)
    # What clients were told once stays: a renamed class must not rename its kind.
    assert " ".join(sorted(KINDS.values())) == (
        "Attachment Commentary GatewayNotice InnerToolCall InnerToolResult LongTool LongToolHint MessageChunk "
        "MessageRevised MessageStart MessageStop PlanChanged ReasoningChunk ReasoningSealed ReasoningStart "
        "ReasoningStop RequestClosed RequestOpened StateChanged StepStarted SubagentFailed SubagentFinished "
        "SubagentProgress SubagentStarted ToolCall ToolCallChunk ToolCallFinished ToolResult TurnFinished TurnParked "
        "Usage"
    )


def test_what_is_nested_is_plain() -> None:
    request = Request("r", "approval", "Allow?", choices=("once", "deny"), detail={"command": "rm x\ud800"})
    assert told(TurnParked((request,))) == {
        "event": "TurnParked",
        "requests": [
            {
                "id": "r",
                "kind": "approval",
                "message": "Allow?",
                "call_id": "",
                "choices": ["once", "deny"],
                "free_text": False,
                "expires_at": 0.0,
                "detail": {"command": "rm x\ufffd"},
            }
        ],
    }
    assert told(RequestOpened(request))["request"]["choices"] == ["once", "deny"]
    child = Subagent("s2", "child", parent=Subagent("s1", "parent"))
    assert told(SubagentStarted(child))["subagent"]["parent"]["id"] == "s1"
    assert told(StateChanged({"n": 2**60}, ({"op": "add"},)))["state"] == {"n": float(2**60)}


CALL = ToolCall("terminal", preview="ls", args={"a": 1}, call_id="c", arguments='{"a": 1}', message_id="m")
RESULT = ToolResult("terminal", call_id="c", content="secret", cut=3)
CHILD = Subagent("s", "n", "a goal", Subagent("p", "n", "its goal"))


def seen(view: View, *events: StreamEvent) -> list[StreamEvent]:
    shown = Shown(view)
    return [one for event in events for one in shown.of(event)]


def test_all_is_shown_where_nothing_is_hidden() -> None:
    events = [example(kind) for kind in every_event() if kind is not StepStarted]
    assert seen(View(), *events) == events
    assert seen(View(steps=True), StepStarted(1)) == [StepStarted(1)] and seen(View(), StepStarted(1)) == []


def test_names_of_tools_alone() -> None:
    made = json.dumps(
        [told(one) for one in seen(View(tool_output="names"), CALL, RESULT, ToolCallChunk("t", "secret"))]
    )
    assert (
        "terminal" in made and HIDDEN in made and "secret" not in made and '"ls"' not in made and "a goal" not in made
    )
    inner = seen(
        View(tool_output="names"), InnerToolCall("c", "i", "read", "secret"), InnerToolResult("c", "i", "secret")
    )
    assert "secret" not in json.dumps([told(one) for one in inner]) and len(inner) == 2
    steps = ({"kind": "tool", "tool": "read", "text": "secret"}, {"kind": "text", "text": "secret"})
    children = [
        SubagentStarted(CHILD),
        SubagentProgress(CHILD, steps),
        SubagentFinished(CHILD, "secret"),
        SubagentFailed(CHILD, "secret"),
    ]
    text = json.dumps([told(one) for one in seen(View(tool_output="names"), *children)])
    assert '"read"' in text and "secret" not in text and 'goal": "a' not in text and "its goal" not in text


def test_no_tools_at_all() -> None:
    events = [CALL, RESULT, ToolCallChunk("t"), InnerToolCall("c", "i", "read"), SubagentStarted(CHILD), TurnFinished()]
    assert seen(View(tool_output="off"), *events) == [TurnFinished()]


@pytest.mark.parametrize("shows", ["names", "off"])
def test_a_clients_own_tools_are_its_own(shows: typing.Literal["names", "off"]) -> None:
    mine = dataclasses.replace(CALL, client=True), dataclasses.replace(RESULT, client=True)
    assert seen(View(tool_output=shows), *mine) == list(mine)


def test_reasoning() -> None:
    text = "I shall look at the files first. Then I shall think about the rest of it."
    stretch = [ReasoningStart("r"), *(ReasoningChunk(f"{piece} ") for piece in text.split(" ")), ReasoningStop()]
    sealed = ReasoningSealed("r", "opaque")
    assert seen(View(reasoning="off"), *stretch, sealed, MessageChunk("x")) == [MessageChunk("x")]
    short = seen(View(reasoning="summary"), *stretch, sealed, *stretch)
    told_text = ["".join(one.text for one in short if isinstance(one, ReasoningChunk))]
    assert told_text == ["I shall look at the files first." * 2] and sealed not in short
    cut = [ReasoningStart("r"), ReasoningChunk("Hm"), ReasoningStop()]
    assert seen(View(reasoning="summary"), *cut) == cut
