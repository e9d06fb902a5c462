"""Which requests a run answers: everything is matched and checked before anything is given."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agui_adapter.answers import Answers, collect, late_text, nothing_open, tool_answer, typed_answer
from agui_adapter.errors import AguiError
from agui_adapter.inputs import RunInput, parse
from agui_adapter.log import EventLog
from agui_adapter.requests import Answer, Pending, Requests
from agui_adapter.session import SCOPES, Principal, Thread, Turn
from agui_adapter.stream import Request

APPROVAL = ("once", "session", "always", "deny")
LOCAL = Principal("local", scopes=SCOPES)


class World:
    """A thread with a turn that waits."""

    def __init__(self) -> None:
        self.requests = Requests(asyncio.get_running_loop(), 8)
        self.thread = Thread(LOCAL, "t", "local.t")
        self.turn: Turn = self.thread.begin(EventLog(asyncio.get_running_loop()))

    def approval(self, name: str, *, parks: bool = True) -> Pending:
        asked = Request(name, "approval", call_id=f"call-{name}", choices=APPROVAL)
        pending = self.requests.open(self.turn, asked, parks=parks)
        if parks:
            self.requests.park(pending)
        return pending

    def client(self, call_id: str) -> Pending:
        asked = Request(f"request-{call_id}", "client_tool", call_id=call_id)
        pending = self.requests.open(self.turn, asked)
        self.requests.park(pending)
        return pending

    def collect(self, asked: RunInput) -> Answers:
        return collect(self.requests, self.thread, asked, LOCAL)


@pytest.fixture
async def world() -> World:
    return World()


def run(*messages: dict[str, Any], **more: Any) -> RunInput:
    for number, message in enumerate(messages):
        message.setdefault("id", f"m{number}")
    body = {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": list(messages), **more}
    return parse(json.dumps(body).encode(), max_messages=100)


def calls(*call_ids: str, name: str = "get_color") -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}} for one in call_ids]
    return {"role": "assistant", "toolCalls": made}


def result(call_id: str, content: Any = "red", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "toolCallId": call_id, "content": content, **more}


def yes(name: str, payload: Any = True, status: str = "resolved") -> dict[str, Any]:
    return {"interruptId": name, "status": status, "payload": payload}


async def test_resume_entries_and_tool_messages_together(world: World) -> None:
    approval, client = world.approval("a"), world.client("k")
    found = world.collect(run(calls("k"), result("k"), resume=[yes("a", {"choice": "deny", "reason": "no"})]))
    assert found.pairs == [(approval, Answer(choice="deny", text="no")), (client, Answer(text="red"))]
    assert found.fresh == found.pairs and found.message_ids == ["m1"]
    assert not found.unknown and not found.uncovered
    assert approval.closed is client.closed is None  # nothing is given yet


async def test_one_wrong_payload_stops_all(world: World) -> None:
    world.approval("a"), world.client("k")
    with pytest.raises(AguiError) as refused:
        world.collect(run(calls("k"), result("k"), resume=[yes("a", {"approved": "maybe"})]))
    assert refused.value.code == "invalid_answer"
    assert len(world.requests.open_requests(world.turn)) == 2


async def test_cancelled_is_no(world: World) -> None:
    world.approval("a")
    ((_, answer),) = world.collect(run(resume=[yes("a", status="cancelled")])).pairs
    assert answer.choice == "deny"


async def test_unknown_ids_and_those_of_another_thread(world: World) -> None:
    other = World()
    foreign, client = other.approval("a"), world.client("k")
    found = world.collect(run(resume=[yes("a"), yes("nothing"), yes(client.request.id)]))
    # A client's call is answered by its tool message, never by a payload.
    assert found.unknown == ["a", "nothing", client.request.id] and not found.pairs
    assert foreign.closed is None
    error = nothing_open()
    assert (error.status, error.code) == (409, "request_unknown") and "Send a message" in error.message
    assert world.collect(run(calls("x"), result("x"))).pairs == []


async def test_all_that_was_asked_must_be_answered(world: World) -> None:
    first, second = world.approval("a"), world.approval("b")
    found = world.collect(run(resume=[yes("a")]))
    assert found.uncovered == (first.request, second.request)  # and all of them are told again
    assert not world.collect(run(resume=[yes("a"), yes("b")])).uncovered
    assert not world.collect(run()).uncovered


async def test_client_calls_may_be_answered_one_by_one(world: World) -> None:
    world.client("k1"), world.client("k2")
    found = world.collect(run(calls("k1", "k2"), result("k2")))
    assert [pending.request.call_id for pending, _ in found.pairs] == ["k2"] and not found.uncovered


async def test_what_no_client_was_told_needs_no_answer(world: World) -> None:
    told = world.approval("told", parks=False)
    own = world.approval("own")
    world.approval("later", parks=False)  # beside the turn, when its last run had ended
    assert world.collect(run(resume=[yes("own")])).uncovered == (told.request, own.request)
    assert not world.collect(run(resume=[yes("own"), yes("told")])).uncovered
    assert not world.collect(run(resume=[yes("own"), yes("told"), yes("later")])).uncovered


async def test_closed_ones_are_matched_but_not_fresh(world: World) -> None:
    first, second = world.client("k1"), world.client("k2")
    world.requests.answer(first, Answer(text="red"), LOCAL)
    found = world.collect(run(calls("k1", "k2"), result("k1"), result("k2", "blue")))
    assert [pending for pending, _ in found.pairs] == [first, second]
    assert found.fresh == [(second, Answer(text="blue"))]


async def test_a_made_up_result_of_a_servers_call_is_no_answer(world: World) -> None:
    """CopilotKit adds one for an interrupt of reason `tool_call`; the resume entry is the answer."""
    approval = world.approval("a")
    made_up = result("call-a", '{"approved": true}')
    found = world.collect(run(calls("call-a", name="terminal"), made_up, resume=[yes("a", False)]))
    assert found.pairs == [(approval, Answer(choice="deny"))] and found.message_ids == []


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (result("k", "red"), Answer(text="red")),
        (result("k", ""), Answer()),
        (result("k", "half", error="no"), Answer(text="half", error="no")),
        (result("k", [{"type": "text", "text": "a"}]), Answer(parts=({"type": "text", "text": "a"},))),
    ],
)
def test_a_tool_message_as_an_answer(message: dict[str, Any], answer: Answer) -> None:
    assert tool_answer(message) == answer


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        ("approval", "/approve", Answer(choice="once")),
        ("approval", " /APPROVE Session ", Answer(choice="session")),
        ("approval", "/approve for ever", None),
        ("approval", "/deny", Answer(choice="deny")),
        ("approval", "/deny not that one", Answer(choice="deny", text="not that one")),
        ("approval", "yes", None),
        ("approval", "/approved", None),
        ("approval", "", None),
        ("confirm", "/approve", Answer(choice="once")),
        ("confirm", "/always", Answer(choice="always")),
        ("confirm", "/cancel", Answer(choice="cancel")),
        ("confirm", "/deny", None),
        ("clarify", "the green one", Answer(text="the green one")),
        ("client_tool", "/approve", None),
    ],
)
def test_what_is_typed(kind: Any, text: str, answer: Answer | None) -> None:
    choices = {"approval": APPROVAL, "confirm": ("once", "always", "cancel")}.get(kind, ())
    asked = Request("x", kind, choices=choices, free_text=True)
    assert typed_answer(asked, text) == answer
    assert typed_answer(asked, text, commands_only=True) == (None if kind == "clarify" else answer)


def test_a_choice_that_is_not_offered_is_not_typed() -> None:
    assert typed_answer(Request("x", "approval", choices=("once", "deny")), "/approve always") is None


def test_a_late_result_is_marked() -> None:
    asked = run(calls("k"), result("k", "red"), result("unheard of", "blue", error="no"))
    assert late_text(asked, asked.messages[1]) == "[Late result of the client tool get_color, call k]\nred"
    other = late_text(asked, asked.messages[2])
    assert other.startswith("[Late result of the client tool unknown, call unheard of]\n") and "blue" in other
