"""Questions of the agent (`clarify`) and confirmations of slash commands, as interrupts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests import clients
from tests.e2e.asking import (
    answer_by_route,
    deletes,
    idle,
    interrupt,
    open_requests,
    requests_of,
    resume,
    state,
    stop,
    tool_messages,
    victim,
)
from tests.e2e.dialect import clarify, many_questions, offered
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, wait_until


def asks(call_id: str, choices: list[str] | None = None, then: str = "Thanks.") -> str:
    return script({"text": "A question.", "tools": [clarify("Which one?", choices, call_id)]}, {"text": then})


# --- clarify


@pytest.mark.compat
@pytest.mark.core
def test_choices_are_offered_and_one_is_taken(chat: Chat, model: GatedModel) -> None:
    one = unique("c")
    run = chat.say(asks(one, ["red", "blue"]))
    asked = interrupt(run)
    assert asked["reason"] == "input_required" and asked["message"] == "Which one?" and asked["toolCallId"] == one
    assert asked["metadata"]["hermes"]["choices"] == offered(["red", "blue"])
    assert asked["responseSchema"]["properties"]["answer"]["examples"] == offered(["red", "blue"])
    assert run.types[-2:] == ["TOOL_CALL_END", "RUN_FINISHED"]
    run = resume(chat, (asked["id"], {"answer": "blue"})).succeeded()
    assert run.text() == "Thanks." and list(run.results()) == [one] and "TOOL_CALL_START" not in run.types
    assert "blue" in tool_messages(requests_of(model, one)[-1])[one]
    chat.assert_as_transcript()


@pytest.mark.compat
@pytest.mark.core
@pytest.mark.parametrize("payload", [{"answer": "something else"}, "something else", {"text": "something else"}])
def test_free_text(chat: Chat, model: GatedModel, payload: Any) -> None:
    one = unique("c")
    asked = interrupt(chat.say(asks(one)))
    resume(chat, (asked["id"], payload)).succeeded()
    assert "something else" in tool_messages(requests_of(model, one)[-1])[one]


@pytest.mark.compat
def test_a_typed_message_is_the_answer(chat: Chat, model: GatedModel) -> None:
    one = unique("c")
    interrupt(chat.say(asks(one, ["red", "blue"])))
    run = chat.say("the green one").succeeded()
    assert run.text() == "Thanks."
    assert "the green one" in tool_messages(requests_of(model, one)[-1])[one]
    assert len([m for m in requests_of(model, one)[-1]["messages"] if m["role"] == "user"]) == 1
    chat.say("and another message").succeeded()


@pytest.mark.compat
def test_several_questions_of_one_call(chat: Chat, model: GatedModel) -> None:
    if not many_questions():
        pytest.skip("a call asks one question before Hermes 0.22")
    one = unique("c")
    asked = [{"question": "First?"}, {"question": "Which?", "choices": ["red", "blue"], "multi_select": True}]
    run = chat.say(script({"tools": [call("clarify", {"questions": asked}, one)]}, {"text": "Thanks."}))
    assert interrupt(run)["message"] == "First?"
    run = resume(chat, (interrupt(run)["id"], {"answer": "yes"}))
    assert interrupt(run)["message"] == "Which?" and interrupt(run)["metadata"]["hermes"]["multiSelect"] is True
    run = resume(chat, (interrupt(run)["id"], {"answer": '["red", "blue"]'})).succeeded()
    told = json.loads(tool_messages(requests_of(model, one)[-1])[one])
    assert [each["user_response"] for each in told["responses"]] == ["yes", ["red", "blue"]]
    assert run.text() == "Thanks." and told["outcome"] == "submitted"


@pytest.mark.compat
def test_closing_the_question_is_told(chat: Chat, model: GatedModel) -> None:
    one = unique("c")
    asked = interrupt(chat.say(asks(one)))
    resume(chat, (asked["id"], None)).succeeded()
    assert "closed the question" in tool_messages(requests_of(model, one)[-1])[one]


@pytest.mark.parametrize(
    "payload", [{"answer": ""}, {"answer": "  "}, {"answer": 5}, {}, [], 5, True, {"answer": None}]
)
def test_no_answer_is_refused_and_the_question_stays(chat: Chat, payload: Any) -> None:
    asked = interrupt(chat.say(asks(unique("c"))))
    assert "stays open" in resume(chat, (asked["id"], payload)).failed("invalid_answer")["message"]
    assert [one["id"] for one in open_requests(chat)] == [asked["id"]]
    resume(chat, (asked["id"], {"answer": "now"})).succeeded()


@pytest.mark.compat
def test_a_time_limit_is_told_to_the_model(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(config={"agent": {"clarify_timeout": 1}})
    chat, one = Chat(gateway), unique("c")
    asked = interrupt(chat.say(asks(one)))
    idle(chat)
    assert "did not respond" in tool_messages(requests_of(model, one)[-1])[one]
    run = resume(chat, (asked["id"], {"answer": "late"}))
    (custom,) = [event for event in run.of("CUSTOM") if event["name"] == "hermes.request_expired"]
    assert custom["value"]["id"] == asked["id"]
    assert run.succeeded().text() == "Thanks."  # what came while nobody read
    chat.assert_as_transcript()


def test_no_limit_is_no_limit(make_gateway: Callable[..., Gateway]) -> None:
    """`agent.clarify_timeout: 0` expires at once in Hermes 0.19, though it is documented as no limit."""
    gateway = make_gateway(config={"agent": {"clarify_timeout": 0}})
    chat = Chat(gateway)
    asked = interrupt(chat.say(asks(unique("c"))))
    assert "expiresAt" not in asked
    assert state(chat)["status"] == "parked"
    resume(chat, (asked["id"], {"answer": "there"})).succeeded()


# --- slash confirmations


@pytest.mark.compat
@pytest.mark.core
def test_a_confirmation_runs_what_was_confirmed(chat: Chat, model: GatedModel) -> None:
    run = chat.say("/reload-mcp")
    asked = interrupt(run)
    assert asked["reason"] == "confirmation" and asked["metadata"]["hermes"]["kind"] == "confirm"
    assert asked["metadata"]["hermes"]["choices"] == ["once", "always", "cancel"]
    assert asked["metadata"]["hermes"]["text"] and "toolCallId" not in asked and asked["expiresAt"]
    assert state(chat)["status"] == "parked"
    run = resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    assert "mcp" in run.text().lower()
    idle(chat)
    asked = interrupt(chat.say("/reload-mcp"))  # once means once
    assert "ancel" in resume(chat, (asked["id"], {"choice": "cancel"})).succeeded().text()


@pytest.mark.compat
@pytest.mark.parametrize("payload", [None, {"approved": False}, "cancel"])
def test_a_confirmation_refused(chat: Chat, payload: Any) -> None:
    asked = interrupt(chat.say("/reload-mcp"))
    run = resume(chat, (asked["id"], payload)).succeeded()
    assert "ancel" in run.text()


def test_always_is_not_asked_again(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    asked = interrupt(chat.say("/reload-mcp"))
    resume(chat, (asked["id"], {"choice": "always"})).succeeded()
    chat.say("/reload-mcp").succeeded()


def test_a_typed_confirmation(gateway: Gateway) -> None:
    chat = Chat(gateway, version=None)
    interrupt(chat.say("/reload-mcp"))
    assert "MCP" in chat.say("/approve").succeeded().text()
    interrupt(chat.say("/reload-mcp"))
    assert "ancel" in chat.say("/cancel").succeeded().text()


def test_a_new_message_drops_a_confirmation(chat: Chat) -> None:
    asked = interrupt(chat.say("/reload-mcp"))
    assert chat.say("count to 3").succeeded().text() == "1 2 3"
    assert open_requests(chat) == []
    resume(chat, (asked["id"], {"choice": "once"})).failed("request_cancelled")


def test_an_answer_and_a_new_message_at_once(chat: Chat) -> None:
    """What cannot go to a running turn begins a turn of its own: it is not lost."""
    asked = interrupt(chat.say("/reload-mcp"))
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"choice": "cancel"}}
    run = chat.say("count to 4", resume=[entry]).succeeded()
    assert run.text() == "1 2 3 4"
    assert open_requests(chat) == []


def test_stop_drops_a_confirmation(chat: Chat) -> None:
    interrupt(chat.say("/reload-mcp"))
    assert stop(chat)["stopped"] is True
    assert state(chat)["status"] == "idle" and open_requests(chat) == []
    chat.say("count to 3").succeeded()


def test_the_route_answers_all_kinds(gateway: Gateway, model: GatedModel) -> None:
    one = unique("c")
    chat = Chat(gateway)
    asked = interrupt(chat.say(asks(one)))
    assert answer_by_route(chat, asked["id"], {"nothing": 1}).status_code == 422
    assert answer_by_route(chat, asked["id"], {"answer": "by route"}).json()["status"] == "answered"
    wait_until(lambda: len(requests_of(model, one)) == 2, "the turn goes on")
    assert "by route" in tool_messages(requests_of(model, one)[-1])[one]
    idle(chat)
    asked = interrupt(chat.say("/reload-mcp"))
    assert answer_by_route(chat, asked["id"], {"choice": "cancel"}).json()["status"] == "answered"
    idle(chat)
    folder = victim(gateway)
    asked = interrupt(chat.say(deletes(folder)))
    assert answer_by_route(chat, asked["id"], {"status": "cancelled"}).json()["status"] == "answered"
    idle(chat)
    assert folder.exists()


# --- the official clients


@pytest.mark.node
@pytest.mark.parametrize("version", clients.VERSIONS)
def test_the_official_clients_know_all_kinds(gateway: Gateway, version: clients.Version) -> None:
    """An interrupt's id is not known before the run, so each conversation is two calls of the client."""
    folder = victim(gateway)
    for text, payload, answer in (
        (deletes(folder), {"choice": "once"}, "The end."),
        (asks(unique("c"), ["red", "blue"]), {"answer": "blue"}, "Thanks."),
        ("/reload-mcp", {"choice": "cancel"}, "ancel"),
    ):
        thread, url = unique(), f"{gateway.url}/agui"
        said = {"id": unique("u"), "role": "user", "content": text}
        (first,) = clients.run_agent(version, url, thread, [{"messages": [said]}])
        assert first.failed is None and first.warnings == [], first
        (asked,) = first.of_type("RUN_FINISHED")[0]["outcome"]["interrupts"]
        entry = {"interruptId": asked["id"], "status": "resolved", "payload": payload}
        (second,) = clients.run_agent(version, url, thread, [{"messages": first.messages, "resume": [entry]}])
        assert second.failed is None and second.warnings == [], second
        assert second.of_type("RUN_ERROR") == []
        assert answer in second.messages[-1]["content"]
    assert not folder.exists()
