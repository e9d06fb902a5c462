"""Requests as AG-UI interrupts."""

from __future__ import annotations

import pytest
from ag_ui.core import Interrupt

from agui_adapter.interrupts import describe, interrupt, interrupts, is_human, iso, response_schema
from agui_adapter.stream import Request, RequestKind

APPROVAL = Request(
    "a-1",
    "approval",
    "Allow this command?",
    "call-1",
    ("once", "deny"),
    expires_at=1_000_000_000.5,
    detail={"command": "rm x", "description": "delete"},
)
CLARIFY = Request("c-1", "clarify", "Which?", "call-2", ("red", "blue"), free_text=True)
CONFIRM = Request("s-1", "confirm", "Reload?", choices=("once", "always", "cancel"), detail={"text": "It costs."})
CLIENT = Request("k-1", "client_tool", "Run it in the client.", "call-3", detail={"tool": "get_color"})


def test_an_approval() -> None:
    assert interrupt(APPROVAL) == {
        "id": "a-1",
        "reason": "confirmation",  # CopilotKit makes up a tool result for `tool_call`
        "message": "Allow this command?",
        "toolCallId": "call-1",
        "expiresAt": "2001-09-09T01:46:40.500Z",
        "responseSchema": {
            "type": "object",
            "properties": {
                "choice": {"type": "string", "enum": ["once", "deny"]},
                "reason": {"type": "string", "description": "Why, for the agent; optional."},
            },
            "required": ["choice"],
        },
        "metadata": {
            "hermes": {"kind": "approval", "choices": ["once", "deny"], "command": "rm x", "description": "delete"}
        },
    }


def test_a_question_may_be_answered_freely() -> None:
    made = interrupt(CLARIFY)
    assert made["reason"] == "input_required" and "expiresAt" not in made
    assert made["responseSchema"] == {
        "type": "object",
        "properties": {"answer": {"type": "string", "minLength": 1, "examples": ["red", "blue"]}},
        "required": ["answer"],
    }
    closed = Request("c", "clarify", "Which?", choices=("red",))
    assert response_schema(closed)["properties"]["answer"] == {"type": "string", "minLength": 1, "enum": ["red"]}


def test_a_confirmation_has_no_call() -> None:
    made = interrupt(CONFIRM)
    assert made["reason"] == "confirmation" and "toolCallId" not in made
    assert made["metadata"]["hermes"]["text"] == "It costs."


def test_only_people_are_interrupted() -> None:
    assert [made["id"] for made in interrupts([APPROVAL, CLIENT, CLARIFY, CONFIRM])] == ["a-1", "c-1", "s-1"]
    assert [is_human(one) for one in (APPROVAL, CLARIFY, CONFIRM, CLIENT)] == [True, True, True, False]


@pytest.mark.parametrize("one", [APPROVAL, CLARIFY, CONFIRM])
def test_the_protocols_own_model_takes_them(one: Request) -> None:
    made = interrupt(one)
    assert Interrupt.model_validate(made).model_dump(by_alias=True, exclude_none=True) == made


def test_doors_list_client_calls_too() -> None:
    made = describe(CLIENT)
    assert made["kind"] == "client_tool" and made["toolCallId"] == "call-3"
    assert set(made["responseSchema"]["properties"]) == {"content", "error"}
    assert describe(APPROVAL) == interrupt(APPROVAL) | {"kind": "approval"}


@pytest.mark.parametrize("kind", ["approval", "confirm"])
def test_the_schema_offers_what_may_be_answered(kind: RequestKind) -> None:
    asked = Request("x", kind, choices=("once", "no"))
    assert response_schema(asked)["properties"]["choice"]["enum"] == ["once", "no"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, ""), (-1, ""), (1e18, ""), (0.001, "1970-01-01T00:00:00.001Z"), (1_800_000_000, "2027-01-15T08:00:00.000Z")],
)
def test_times(seconds: float, text: str) -> None:
    assert iso(seconds) == text
