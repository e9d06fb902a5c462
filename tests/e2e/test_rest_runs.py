"""`/v1/runs`, `/chat` and a session's chat against the real gateway: approvals really run, a restart forgets no run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.sse import SseParser
from tests.e2e.helpers import DEADLINE, Chat, GatedModel, call, script, unique, wait_until
from tests.e2e.rest import KEY, ask, ok, refused

TOOL = {
    "type": "function",
    "function": {
        "name": "ask_page",
        "description": "Asks the page.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def served(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with two principals, where dangerous commands are asked for."""
    with Gateway(
        model, toolsets=["terminal", "clarify"], env={"AGUI_API_KEY": KEY}, config={"approvals": {"mode": "manual"}}
    ) as running:
        yield running


def start(gateway: Gateway, *steps: dict[str, Any], **body: Any) -> str:
    return str(ok(ask(gateway, "POST", "/v1/runs", {"input": script(*steps), **body}), 202)["run_id"])


def status(gateway: Gateway, run_id: str) -> dict[str, Any]:
    told: dict[str, Any] = ok(ask(gateway, "GET", f"/v1/runs/{run_id}"))
    return told


def reaches(gateway: Gateway, run_id: str, wanted: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        told = status(gateway, run_id)
        return told if told["status"] == wanted else None

    found: dict[str, Any] = wait_until(look, f"the run is {wanted}")
    return found


def events(gateway: Gateway, path: str, body: Any = None) -> list[tuple[str, dict[str, Any]]]:
    """A whole stream: the event's name and its data."""
    made, parser = [], SseParser()
    method = "GET" if body is None else "POST"
    with httpx.stream(method, f"{gateway.url}{path}", json=body, timeout=2 * DEADLINE) as response:
        assert response.status_code == 200
        for chunk in response.iter_raw():
            made += [(one.event, json.loads(one.data)) for one in parser.feed(chunk)]
    return made


def test_a_run_uses_tools_and_is_a_session_of_its_own(served: Gateway) -> None:
    steps = {"text": "I look.", "tools": [call("terminal", {"command": "echo here"}, "call-1")]}, {"text": "Seen."}
    run_id = start(served, *steps)
    told = [data for _, data in events(served, f"/v1/runs/{run_id}/events")]
    names = [one["event"] for one in told if one["event"] != "message.delta"]
    assert names == ["tool.started", "tool.completed", "run.completed"]
    completed = next(one for one in told if one["event"] == "tool.completed")
    assert completed["call_id"] == "call-1" and "here" in completed["output"] and not completed["error"]
    assert told[-1]["output"] == "Seen." and told[-1]["usage"]["total_tokens"] > 0
    done = status(served, run_id)
    assert done["status"] == "completed" and done["output"] == "Seen." and done["session_id"] == run_id
    again = start(served, {"text": "And more."}, session_id=run_id)
    reaches(served, again, "completed")
    messages = ok(ask(served, "GET", f"/api/sessions/{run_id}/messages"))["data"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_text_is_never_a_command(served: Gateway) -> None:
    run_id = str(ok(ask(served, "POST", "/v1/runs", {"input": "/yolo"}), 202)["run_id"])
    reaches(served, run_id, "completed")
    target = served.work_dir / unique("dir")
    target.mkdir()
    asked = start(served, {"tools": [call("terminal", {"command": f"rm -r {target.name}"})]}, session_id=run_id)
    assert reaches(served, asked, "waiting")["requests"][0]["kind"] == "approval"
    ok(ask(served, "POST", f"/v1/runs/{asked}/approval", {"choice": "deny"}))
    reaches(served, asked, "completed")
    assert target.exists()


@pytest.mark.parametrize("choice", ["once", "deny"])
def test_an_approval_decides_whether_it_runs(served: Gateway, choice: str) -> None:
    target = served.work_dir / unique("dir")
    target.mkdir()
    run_id = start(served, {"tools": [call("terminal", {"command": f"rm -r {target.name}"})]}, {"text": "Done."})
    (request,) = reaches(served, run_id, "waiting")["requests"]
    assert "rm -r" in request["detail"]["command"]
    done = ok(ask(served, "POST", f"/v1/runs/{run_id}/approval", {"choice": choice, "reason": "because"}))
    assert done["resolved"] == 1 and done["choice"] == choice
    assert reaches(served, run_id, "completed")["output"] == "Done."
    assert target.exists() is (choice == "deny")


def test_a_question_and_a_tool_of_the_caller(served: Gateway, model: GatedModel) -> None:
    run_id = start(served, {"tools": [call("clarify", {"question": "Which?", "choices": ["a", "b"]})]}, {"text": "Ok."})
    assert reaches(served, run_id, "waiting")["requests"][0]["choices"] == ["a", "b"]
    ok(ask(served, "POST", f"/v1/runs/{run_id}/answer", {"answer": "b"}))
    assert reaches(served, run_id, "completed")["output"] == "Ok."
    mark = unique("page")
    run_id = start(served, {"tools": [call("ask_page", {"what": "x"}, "call-9")]}, {"text": "Thanks."}, tools=[TOOL])
    (request,) = reaches(served, run_id, "waiting")["requests"]
    assert (request["kind"], request["call_id"]) == ("client_tool", "call-9")
    ok(ask(served, "POST", f"/v1/runs/{run_id}/answer", {"call_id": "call-9", "content": mark}))
    assert reaches(served, run_id, "completed")["output"] == "Thanks."
    assert any(mark in json.dumps(one["messages"][-1]) for one in model.requests)


def test_a_text_reaches_the_model_or_is_told_as_pending(served: Gateway, model: GatedModel) -> None:
    flag, mark = served.work_dir / unique("flag"), unique("hint")
    wait = {"command": f"until [ -e {flag.name} ]; do sleep 0.05; done"}
    run_id = start(served, {"tools": [call("terminal", wait)]}, {"text": "Done."})
    wait_until(lambda: "last_event_id" in status(served, run_id), "it runs")
    where = f"/v1/runs/{run_id}/steer"
    wait_until(lambda: ask(served, "POST", where, {"text": f"Think of {mark}"}).status_code == 200, "it takes the text")
    flag.touch()
    done = reaches(served, run_id, "completed")
    assert "pending_steer" not in done
    assert any(mark in json.dumps(one["messages"][-1]) for one in model.requests)
    assert refused(ask(served, "POST", where, {"text": "x"})) == (409, "run_not_accepting_steer")

    gate, late = unique("g"), script({"text": "The second answer."}, say=unique("late"))
    run_id = start(served, {"text": f"The {{gate:{gate}}} first answer."})
    wait_until(lambda: model.reached(gate), "the model stands at the gate")
    ok(ask(served, "POST", f"/v1/runs/{run_id}/steer", {"text": late}))
    model.open_gate(gate)
    done = reaches(served, run_id, "completed")
    assert done["pending_steer"] == late and done["pending_steer_action"] == "ran_as_further_turn"
    assert done["output"].endswith("The second answer.")


def test_a_run_is_stopped_in_mid_stream(served: Gateway, model: GatedModel) -> None:
    gate = unique("g")
    run_id = start(served, {"text": f"A {{gate:{gate}}} long answer."})
    wait_until(lambda: model.reached(gate), "the model stands at the gate")
    assert ok(ask(served, "POST", f"/v1/runs/{run_id}/stop"))["status"] == "stopping"
    # The gate stays shut: an answer that is whole before Hermes looks whether it is interrupted is a completed one.
    reaches(served, run_id, "cancelled")
    model.open_gate(gate)


def test_a_run_that_nobody_reads_is_not_ended_by_the_next(served: Gateway, model: GatedModel) -> None:
    gate = unique("g")
    run_id = start(served, {"text": f"A {{gate:{gate}}} long answer."})
    wait_until(lambda: model.reached(gate), "the model stands at the gate")
    again = ask(served, "POST", "/v1/runs", {"input": "Hello?", "session_id": status(served, run_id)["session_id"]})
    assert refused(again) == (409, "thread_busy")
    model.open_gate(gate)
    assert "long answer." in reaches(served, run_id, "completed")["output"]


def test_many_read_one_run_while_it_goes_on(served: Gateway, model: GatedModel) -> None:
    gate = unique("g")
    run_id = start(served, {"text": f"One {{gate:{gate}}} two."})
    heard: list[list[Any]] = []

    def read() -> None:
        heard.append([data["delta"] for name, data in events(served, f"/v1/runs/{run_id}/events") if "delta" in data])

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    wait_until(lambda: model.reached(gate), "the model stands at the gate")
    model.open_gate(gate)
    for reader in readers:
        reader.join(DEADLINE)
    assert len(heard) == 4 and {"".join(one) for one in heard} == {f"One {{gate:{gate}}} two."}


def test_a_restart_forgets_no_run(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    run_id = start(gateway, {"text": "I look.", "tools": [call("terminal", {"command": "echo a"})]}, {"text": "Done."})
    before = reaches(gateway, run_id, "completed")
    gateway.stop()
    gateway.start()
    after = status(gateway, run_id)
    assert (after["status"], after["output"], after["session_id"]) == ("completed", "Done.", before["session_id"])
    assert abs(after["created_at"] - before["created_at"]) < DEADLINE
    assert refused(ask(gateway, "GET", f"/v1/runs/{run_id}/events")) == (409, "run_over")
    assert refused(ask(gateway, "POST", f"/v1/runs/{run_id}/approval", {"choice": "once"})) == (409, "run_over")
    assert refused(ask(gateway, "POST", f"/v1/runs/{run_id}/steer", {"text": "x"})) == (409, "run_not_accepting_steer")
    assert ok(ask(gateway, "POST", f"/v1/runs/{run_id}/stop"))["status"] == "completed"
    ok(ask(gateway, "DELETE", f"/api/sessions/{run_id}"))
    assert refused(ask(gateway, "GET", f"/v1/runs/{run_id}")) == (404, "run_not_found")


# --- /chat


def test_the_shortest_request_and_its_stream(served: Gateway, model: GatedModel) -> None:
    said = ok(ask(served, "POST", "/chat", {"message": script({"text": "Hello."})}))
    assert said["response"] == "Hello." and said["status"] == "completed" and said["session_id"] is None
    history = [{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello, Ada."}]
    ok(ask(served, "POST", "/chat", {"message": script({"text": "Ada."}), "history": history}))
    assert [m["content"] for m in model.requests[-1]["messages"][1:3]] == ["I am Ada.", "Hello, Ada."]
    steps = {"text": "I look.", "tools": [call("terminal", {"command": "echo a"})]}, {"text": "Seen."}
    told = [data for _, data in events(served, "/chat/stream", {"message": script(*steps)})]
    kinds = [one["event"] for one in told]
    assert kinds[-1] == "TurnFinished" and told[-1]["outcome"] == "success" and "ToolResult" in kinds
    assert "".join(one["text"] for one in told if one["event"] == "MessageChunk").endswith("Seen.")


def test_nobody_is_asked_in_a_chat_that_is_complete_in_itself(served: Gateway) -> None:
    target = served.work_dir / unique("dir")
    target.mkdir()
    steps = {"tools": [call("terminal", {"command": f"rm -r {target.name}"})]}, {"text": "I may not."}
    assert ok(ask(served, "POST", "/chat", {"message": script(*steps)}))["response"] == "I may not."
    assert target.exists()


def test_a_provider_that_fails_is_an_error(served: Gateway) -> None:
    failing = script({"status": 401})
    told = ask(served, "POST", "/chat", {"message": failing})
    assert refused(told) == (502, "provider_auth")
    run_id = str(ok(ask(served, "POST", "/v1/runs", {"input": failing}), 202)["run_id"])
    assert reaches(served, run_id, "failed")["error"]["code"] == "provider_auth"


# --- a session's chat


def test_a_session_is_talked_to_edited_and_streamed(served: Gateway) -> None:
    name = unique("s")
    ok(ask(served, "POST", "/api/sessions", {"id": name}), 201)
    where = f"/api/sessions/{name}"
    first = ok(ask(served, "POST", f"{where}/chat", {"message": script({"text": "One."})}))
    assert first["message"]["content"] == "One." and first["status"] == "completed"
    ok(ask(served, "POST", f"{where}/chat", {"message": script({"text": "Two."})}))
    rows = [m["row_id"] for m in ok(ask(served, "GET", f"{where}/messages"))["data"] if m["role"] == "user"]
    edit = {"message": script({"text": "Two, again."}), "truncate_before_row_id": rows[1], "confirm_truncate": True}
    edited = ok(ask(served, "POST", f"{where}/chat", edit))
    assert edited["message"]["content"] == "Two, again." and edited["survivor_user_row_ids"] == rows[:1]
    told = events(served, f"{where}/chat/stream", {"message": script({"text": "Three."})})
    assert told[0][0] == "run.started" and told[-1][0] == "done" and told[-2][0] == "run.completed"
    assert "".join(data["delta"] for name, data in told if name == "assistant.delta") == "Three."
    texts = [m["content"] for m in ok(ask(served, "GET", f"{where}/messages"))["data"] if m["role"] == "assistant"]
    assert texts == ["One.", "Two, again.", "Three."]
    # The same conversation through the main door.
    chat = Chat(served, thread=name)
    assert chat.say(script({"text": "Four."})).succeeded().text() == "Four."


def test_a_refused_edit_takes_nothing_back(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway, gate = make_gateway(agui={"max_turns_per_principal": 1}), unique("g")
    chat = Chat(gateway)
    for answer in ("One.", "Two."):
        chat.say(script({"text": answer})).succeeded()
    where = f"/api/sessions/{chat.thread}"
    before = ok(ask(gateway, "GET", f"{where}/messages"))["data"]
    rows = [message["row_id"] for message in before if message["role"] == "user"]
    other = Chat(gateway).start(script({"text": f"{{gate:{gate}}}"}))
    wait_until(lambda: model.reached(gate), "the other turn runs")
    edit = {"message": script({"text": "Again."}), "truncate_before_row_id": rows[1], "confirm_truncate": True}
    for way in ("chat", "chat/stream"):
        assert refused(ask(gateway, "POST", f"{where}/{way}", edit)) == (429, "too_many_turns")
    assert ok(ask(gateway, "GET", f"{where}/messages"))["data"] == before
    model.open_gate(gate)
    other.finish().succeeded()
    edited = ok(ask(gateway, "POST", f"{where}/chat", edit))
    assert edited["message"]["content"] == "Again." and edited["survivor_user_row_ids"] == rows[:1]
