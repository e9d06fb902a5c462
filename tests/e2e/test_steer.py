"""`POST …/steer`: a text reaches the model in mid-turn or is run as a further turn; never twice, never quietly lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.dialect import steered_role
from tests.e2e.helpers import Chat, GatedModel, Run, call, plain, query, script, unique, wait_until

TOOL = {"name": "ask_browser", "description": "Asks.", "parameters": {"type": "object", "properties": {}}}


def address(chat: Chat, rest: str = "") -> str:
    return f"{chat.gateway.url}/agui/threads/{chat.thread}{rest}"


def steer(chat: Chat, text: str) -> httpx.Response:
    return httpx.post(address(chat, "/steer"), json={"text": text}, timeout=30)


def history(chat: Chat) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = httpx.get(address(chat), timeout=30).json()["messages"]
    return messages


def notices(run: Run, kind: str) -> list[dict[str, Any]]:
    return [e["value"] for e in run.of("CUSTOM") if e["name"] == "hermes.notice" and e["value"]["kind"] == kind]


def in_a_tool(chat: Chat, *after: dict[str, Any]) -> tuple[Run, Any]:
    """A run whose tool waits for a file, and that file."""
    flag = chat.gateway.work_dir / unique("flag")
    command = f"until [ -e {flag.name} ]; do sleep 0.05; done; echo ready"
    run = chat.start(script({"text": "I work.", "tools": [call("terminal", {"command": command})]}, *after))
    return run.wait(lambda run: run.calls(), "the tool call"), flag


@pytest.mark.compat
@pytest.mark.core
def test_a_text_reaches_the_model_with_the_next_tool_result(gateway: Gateway, model: GatedModel) -> None:
    chat, mark, more = Chat(gateway), unique("steer"), unique("steer")
    run, flag = in_a_tool(chat, {"text": "Done."})
    answer = steer(chat, f"Please think of {mark}")
    assert answer.status_code == 202
    assert answer.json() == {"threadId": chat.thread, "turnId": answer.json()["turnId"], "steered": True}
    assert steer(chat, f"and of {more}").status_code == 202
    flag.touch()
    chat.keep(run.finish()).succeeded()
    request = next(one for one in reversed(model.requests) if mark in json.dumps(one))
    told = request["messages"][-1]
    assert told["role"] == steered_role() and "OUT-OF-BAND USER MESSAGE" in told["content"]
    assert mark in told["content"] and more in told["content"]
    assert run.texts() == ["I work.", "Done."]
    assert not notices(run, "further_turn") and not notices(run, "steer_not_taken")
    # It is part of the result for the model; for people it is no message of its own.
    assert [m["role"] for m in history(chat)] == ["user", "assistant", "tool", "assistant"]
    assert plain(chat.messages) == plain(history(chat))


@pytest.mark.compat
def test_a_text_that_comes_too_late_is_run_as_a_further_turn(gateway: Gateway, model: GatedModel) -> None:
    chat, gate, mark = Chat(gateway), unique("g"), unique("late")
    run = chat.start(script({"text": f"The {{gate:{gate}}} first answer."})).wait_text(gate)
    late = script({"text": "The second answer."}, say=mark)
    assert steer(chat, late).status_code == 202
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    (notice,) = notices(run, "further_turn")
    assert "do not send it again" in notice["text"]
    message_id = notice["extra"].pop("messageId")
    assert notice["extra"] == {"text": late, "resend": False}
    # It stands as the user's message between the two answers, with the id that the history has for it.
    assert [m["role"] for m in chat.messages] == ["user", "assistant", "user", "assistant"]
    assert chat.messages[2] == {"id": message_id, "role": "user", "content": late}
    assert [m["content"] for m in chat.messages[1::2]] == [f"The {{gate:{gate}}} first answer.", "The second answer."]
    assert run.types.count("RUN_FINISHED") == 1
    assert not any("first answer" in text for text in run.notices())  # the gateway sends it once more, unmarked
    assert history(chat) == chat.messages
    rows = query(gateway, "SELECT role FROM messages WHERE content LIKE ?", f"%{mark}%")
    assert rows == [("user",)]
    # The client, which has it in its messages now, goes on: nothing is sent twice, taken back or corrected.
    after = chat.say(script({"text": "The third answer."})).succeeded()
    assert after.texts() == ["The third answer."] and not after.of("MESSAGES_SNAPSHOT")
    assert history(chat) == chat.messages
    # It can be answered again as any other.
    del chat.messages[3:]
    again = chat.keep(chat.send().finish()).succeeded()
    assert again.texts() == ["The second answer."]
    assert history(chat) == chat.messages and len(chat.messages) == 4
    assert query(gateway, "SELECT role FROM messages WHERE content LIKE ? AND active = 1", f"%{mark}%") == rows


def test_an_older_client_can_read_a_further_turn(gateway: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(gateway, version=None), unique("g")
    run = chat.start(script({"text": f"The {{gate:{gate}}} first answer."})).wait_text(gate)
    assert steer(chat, script({"text": "The second answer."})).status_code == 202
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert [m["role"] for m in chat.messages] == ["user", "assistant", "user", "assistant"]
    assert history(chat) == chat.messages


def test_a_late_text_keeps_the_id_that_its_client_gave_it(gateway: Gateway, model: GatedModel) -> None:
    chat, gate, mine = Chat(gateway), unique("g"), unique("mine")
    run = chat.start(script({"text": f"The {{gate:{gate}}} first answer."})).wait_text(gate)
    body = {"text": script({"text": "The second answer."}), "messageId": mine}
    assert httpx.post(address(chat, "/steer"), json={**body, "messageId": 1}).status_code == 422
    assert httpx.post(address(chat, "/steer"), json=body).status_code == 202
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert [m["id"] for m in chat.messages if m["role"] == "user"][1] == mine
    assert history(chat) == chat.messages


def test_a_run_that_is_steered_too_late_is_a_message_once(
    model: GatedModel, make_gateway: Callable[..., Gateway]
) -> None:
    chat = Chat(make_gateway(agui={"busy": "steer"}))
    gate = unique("g")
    run = chat.start(script({"text": f"The {{gate:{gate}}} first answer."})).wait_text(gate)
    other = Chat(chat.gateway, thread=chat.thread, messages=list(chat.messages))
    second = other.start(script({"text": "The second answer."}))
    wait_until(lambda: second.frames, "the second run began")
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    # Not checked: who joins in mid-text is told the beginning as a snapshot, and the same message goes on.
    wait_until(lambda: second.ended, "the second run ended")
    other.keep(second).succeeded()
    told = [(m["id"], m["role"]) for m in history(chat)]
    assert [(m["id"], m["role"]) for m in chat.messages] == told and len(told) == 4
    assert sorted((m["id"], m["role"]) for m in other.messages) == sorted(told)
    assert chat.messages[2]["id"] == second.body["messages"][-1]["id"]


def test_nothing_is_steered_into_a_thread_that_does_not_run(gateway: Gateway) -> None:
    chat = Chat(gateway)
    assert steer(chat, "hello").status_code == 404
    chat.say(script({"text": "Hi."})).succeeded()
    refused = steer(chat, "hello")
    assert refused.status_code == 409
    assert refused.json()["code"] == "run_not_accepting_steer"
    assert steer(chat, "  ").status_code == 422
    assert len(history(chat)) == 2


def test_nothing_is_steered_into_a_turn_that_waits(gateway: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(gateway), unique("never")
    steps = script({"tools": [call("ask_browser", {}, unique("call"))]}, {"text": "It said yes."})
    chat.say(steps, tools=[TOOL])
    refused = steer(chat, mark)
    assert refused.status_code == 409
    assert refused.json()["code"] == "run_not_accepting_steer"
    chat.messages.append({"id": unique("t"), "role": "tool", "toolCallId": chat.calls[-1], "content": "yes"})
    assert chat.keep(chat.send(tools=[TOOL]).finish()).succeeded().text() == "It said yes."
    assert mark not in json.dumps(model.requests[-1])


def test_a_command_is_no_steer(gateway: Gateway, model: GatedModel) -> None:
    """Steered too late, Hermes would throw it away without a word."""
    chat, gate = Chat(gateway), unique("g")
    run = chat.start(script({"text": f"An {{gate:{gate}}} answer."})).wait_text(gate)
    refused = steer(chat, "/new")
    assert refused.status_code == 422
    assert refused.json()["code"] == "command_not_steerable"
    assert steer(chat, "/etc/hosts is the file").status_code == 202
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert len(notices(run, "further_turn")) == 1


def test_a_stop_takes_the_steered_text_with_it_and_says_so(gateway: Gateway, model: GatedModel) -> None:
    chat, gate, mark = Chat(gateway), unique("g"), unique("late")
    run = chat.start(script({"text": f"The {{gate:{gate}}} first answer."})).wait_text(gate)
    assert steer(chat, f"Consider {mark}").status_code == 202
    assert httpx.post(address(chat, "/stop"), timeout=60).json()["stopped"] is True
    chat.keep(run.finish())
    assert run.end["outcome"] == {"type": "cancelled"}
    assert [notice["extra"]["text"] for notice in notices(run, "steer_not_taken")] == [f"Consider {mark}"]
    assert not notices(run, "further_turn")
    model.open_gate(gate)
    chat.say(script({"text": "I list.", "tools": [call("terminal", {"command": "echo x"})]}, {"text": "Listed."}))
    wait_until(lambda: mark not in json.dumps(model.requests[-1]), "no later turn has the text", 5)
    assert mark not in json.dumps(history(chat))
    assert query(gateway, "SELECT COUNT(*) FROM messages WHERE content LIKE ?", f"%{mark}%") == [(0,)]
