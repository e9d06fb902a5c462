"""Dangerous commands: asked as an interrupt, answered by a later run, proved by what the command did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import (
    answer_by_route,
    deletes,
    idle,
    interrupt,
    interrupts,
    open_requests,
    requests_of,
    resume,
    state,
    tool_messages,
    victim,
)
from tests.e2e.dialect import background
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, wait_until


@pytest.fixture
def folder(gateway: Gateway) -> Path:
    return victim(gateway)


@pytest.mark.compat
@pytest.mark.core
def test_it_is_asked_and_waits(chat: Chat, folder: Path) -> None:
    call_id = unique("c")
    run = chat.say(deletes(folder, call_id=call_id))
    asked = interrupt(run)
    assert asked["reason"] == "confirmation"
    assert asked["toolCallId"] == call_id
    assert asked["message"].startswith("Allow this command?")
    assert asked["responseSchema"]["properties"]["choice"]["enum"] == ["once", "session", "always", "deny"]
    assert asked["metadata"]["hermes"]["kind"] == "approval"
    assert asked["metadata"]["hermes"]["command"] == f"rm -rf {folder}"
    assert asked["metadata"]["hermes"]["choices"] == ["once", "session", "always", "deny"]
    assert asked["expiresAt"].endswith("Z")
    assert run.types[-2:] == ["TOOL_CALL_END", "RUN_FINISHED"]
    assert folder.exists()
    assert state(chat)["status"] == "parked"
    assert [one["id"] for one in open_requests(chat)] == [asked["id"]]
    resume(chat, (asked["id"], {"choice": "deny"}))


@pytest.mark.compat
@pytest.mark.parametrize(
    ("payload", "gone"),
    [
        ({"choice": "once"}, True),
        ({"approved": True}, True),
        ("once", True),
        (True, True),
        ({"choice": "deny"}, False),
        ({"approved": False}, False),
        (None, False),  # cancelled
    ],
)
def test_the_answer_decides(chat: Chat, folder: Path, payload: Any, gone: bool) -> None:
    call_id = unique("c")
    asked = interrupt(chat.say(deletes(folder, call_id=call_id)))
    run = resume(chat, (asked["id"], payload)).succeeded()
    assert folder.exists() is not gone
    # The call was announced in the first run: only its result and what follows come now.
    assert "TOOL_CALL_START" not in run.types
    assert list(run.results()) == [call_id]
    assert run.text() == "The end."
    assert ("BLOCKED" in run.results()[call_id]) is not gone
    chat.assert_as_transcript()
    assert open_requests(chat) == []
    idle(chat)


@pytest.mark.compat
def test_a_reason_reaches_the_model(chat: Chat, folder: Path, model: GatedModel) -> None:
    call_id = unique("c")
    asked = interrupt(chat.say(deletes(folder, call_id=call_id)))
    resume(chat, (asked["id"], {"choice": "deny", "reason": "that is the backup"})).succeeded()
    received = tool_messages(requests_of(model, call_id)[-1])
    assert "that is the backup" in received[call_id]
    assert folder.exists()


@pytest.mark.compat
def test_session_holds_for_this_thread_only(gateway: Gateway) -> None:
    chat, other = Chat(gateway), Chat(gateway)
    first, second, third = victim(gateway), victim(gateway), victim(gateway)
    asked = interrupt(chat.say(deletes(first)))
    resume(chat, (asked["id"], {"choice": "session"})).succeeded()
    chat.say(deletes(second)).succeeded()
    assert not first.exists() and not second.exists()
    asked = interrupt(other.say(deletes(third)))
    assert third.exists()
    resume(other, (asked["id"], {"choice": "deny"}))


def test_always_holds_everywhere_and_is_written_down(make_gateway: Any) -> None:
    gateway = make_gateway()
    chat, first, second = Chat(gateway), victim(gateway), victim(gateway)
    asked = interrupt(chat.say(deletes(first)))
    resume(chat, (asked["id"], {"choice": "always"})).succeeded()
    Chat(gateway).say(deletes(second)).succeeded()
    assert not first.exists() and not second.exists()
    assert "recursive delete" in (gateway.home / "config.yaml").read_text()


def test_secrets_in_a_command_are_not_shown(chat: Chat, folder: Path) -> None:
    secret = "sk-" + "a1B2" * 10
    steps = script({"tools": [call("terminal", {"command": f"API_KEY={secret} rm -rf {folder}"}, unique("c"))]})
    asked = interrupt(chat.say(steps))
    assert secret not in json.dumps(asked)
    assert secret not in json.dumps(open_requests(chat))
    resume(chat, (asked["id"], {"choice": "deny"}))


@pytest.mark.compat
@pytest.mark.core
def test_several_in_one_step_come_one_after_the_other(gateway: Gateway, chat: Chat) -> None:
    first, second = victim(gateway), victim(gateway)
    calls = [
        call("terminal", {"command": f"rm -rf {first}"}, unique("c")),
        call("terminal", {"command": f"rm -rf {second}"}, unique("c")),
    ]
    run = chat.say(script({"tools": calls}, {"text": "The end."}))
    asked = interrupt(run)
    assert asked["toolCallId"] == calls[0]["id"]
    assert list(run.calls()) == [calls[0]["id"], calls[1]["id"]]
    run = resume(chat, (asked["id"], {"choice": "deny"}))
    asked = interrupt(run)
    assert asked["toolCallId"] == calls[1]["id"]
    assert list(run.results()) == [calls[0]["id"]]
    run = resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    assert list(run.results()) == [calls[1]["id"]]
    assert first.exists() and not second.exists()
    chat.assert_as_transcript()


def test_a_refused_command_stays_refused_after_the_next_message(chat: Chat, folder: Path) -> None:
    asked = interrupt(chat.say(deletes(folder)))
    resume(chat, (asked["id"], {"choice": "deny"})).succeeded()
    chat.say("and now something else").succeeded()
    assert folder.exists()


def test_an_approved_command_runs_once(gateway: Gateway, chat: Chat) -> None:
    folder, counter = victim(gateway), gateway.work_dir / unique("counter")
    command = f"rm -rf {folder} && echo ran >> {counter}"
    run = chat.say(script({"tools": [call("terminal", {"command": command}, unique("c"))]}, {"text": "ok"}))
    entry = (interrupt(run)["id"], {"choice": "once"})
    resume(chat, entry).succeeded()
    chat.say("and now something else").succeeded()
    resume(chat, entry)
    assert counter.read_text() == "ran\n"


@pytest.mark.compat
@pytest.mark.core
def test_code_asks_too(gateway: Gateway, chat: Chat, folder: Path) -> None:
    """`execute_code` is asked for as a whole, or for the command that it runs, as Hermes has it."""
    code = f"from hermes_tools import terminal\nprint(terminal({'rm -rf ' + str(folder)!r}))"
    call_id = unique("c")
    run = chat.say(script({"tools": [call("execute_code", {"code": code}, call_id)]}, {"text": "The end."}))
    answered = 0
    while run.end.get("outcome", {}).get("type") == "interrupt":
        asked = interrupt(run)
        assert asked["toolCallId"] == call_id
        assert folder.exists()
        run = resume(chat, (asked["id"], {"choice": "once"}))
        answered += 1
    assert answered
    assert not folder.exists()
    assert run.succeeded().text() == "The end."
    chat.assert_as_transcript()


def test_code_that_is_refused_does_nothing(chat: Chat, folder: Path) -> None:
    code = f"import shutil\nshutil.rmtree({str(folder)!r})\nimport os\nos.system('rm -rf {folder}')"
    run = chat.say(script({"tools": [call("execute_code", {"code": code}, unique("c"))]}, {"text": "The end."}))
    resume(chat, (interrupt(run)["id"], {"choice": "deny"})).succeeded()
    assert folder.exists()


@pytest.mark.compat
def test_background_alone_asks(gateway: Gateway, chat: Chat, folder: Path) -> None:
    """`/background` on a thread where nothing else runs."""
    chat.say(background() + deletes(folder, then="background end"))
    asked = wait_until(lambda: open_requests(chat), "the background task asks")[0]
    assert asked["metadata"]["hermes"]["command"] == f"rm -rf {folder}"
    assert folder.exists()
    # The thread is not busy with it: another message is answered, and shows what is open.
    run = chat.say("hello")
    assert [one["id"] for one in interrupts(run)] == [asked["id"]]
    assert [event["value"]["id"] for event in run.of("CUSTOM") if event["name"] == "hermes.request"] == [asked["id"]]
    assert folder.exists()
    resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    wait_until(lambda: not folder.exists(), "the command ran")
    idle(chat)


def test_background_beside_a_turn_is_bound_to_its_own_command(gateway: Gateway, chat: Chat) -> None:
    """Two questions are open at once; the second is answered first."""
    mine, behind = victim(gateway), victim(gateway)
    call_id = unique("c")
    chat.say(background() + deletes(behind, then="background end"))
    wait_until(lambda: open_requests(chat), "the background task asks")
    run = chat.say(deletes(mine, call_id=call_id))
    by_command = {one["metadata"]["hermes"]["command"]: one for one in interrupts(run)}
    assert set(by_command) == {f"rm -rf {mine}", f"rm -rf {behind}"}
    assert by_command[f"rm -rf {mine}"]["toolCallId"] == call_id
    assert "toolCallId" not in by_command[f"rm -rf {behind}"]
    ours, theirs = by_command[f"rm -rf {mine}"]["id"], by_command[f"rm -rf {behind}"]["id"]
    # One of two is no answer: both are told again, and nothing ran.
    run = resume(chat, (ours, {"choice": "deny"}))
    assert {one["id"] for one in interrupts(run)} == {ours, theirs}
    assert mine.exists() and behind.exists()
    assert answer_by_route(chat, ours, {"choice": "deny"}).json()["status"] == "answered"
    wait_until(lambda: state(chat)["status"] != "parked", "the turn goes on")
    assert answer_by_route(chat, theirs, {"choice": "once"}).json()["status"] == "answered"
    wait_until(lambda: not behind.exists(), "the command of the background task ran")
    assert mine.exists()
    idle(chat)


def test_background_question_survives_the_end_of_a_turn(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    """Hermes wakes and refuses every wait of a session when its own turn ends; ours goes on."""
    behind, gate = victim(gateway), unique("g")
    chat.say(background() + script({"first_ms": 300, **json.loads(deletes(behind))["script"][0]}, {"text": "ok"}))
    run = chat.start(script({"text": f"one {{gate:{gate}}} two"}))
    wait_until(lambda: open_requests(chat), "the background task asks")
    run.wait(lambda run: run.of("CUSTOM"), "the question is shown while the turn runs")
    model.open_gate(gate)
    asked = interrupt(chat.keep(run.finish()))
    assert behind.exists()
    assert [one["id"] for one in open_requests(chat)] == [asked["id"]]
    resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    wait_until(lambda: not behind.exists(), "the command ran")


def test_a_subagent_is_refused_and_it_is_said(make_gateway: Any) -> None:
    gateway = make_gateway(toolsets=["terminal", "file", "delegation"])
    chat = Chat(gateway)
    folder = victim(gateway)
    inner = script({"tools": [call("terminal", {"command": f"rm -rf {folder}"}, unique("c"))]}, {"text": "child end"})
    run = chat.say(
        script({"tools": [call("delegate_task", {"goal": inner}, unique("c"))]}, {"text": "The end.", "first_ms": 3000})
    )
    assert run.end["type"] == "RUN_FINISHED", run.end
    assert folder.exists()
    notices = [event["value"] for event in run.of("CUSTOM") if event["name"] == "hermes.notice"]
    assert any(notice["kind"] == "subagent_refused" and f"rm -rf {folder}" in notice["text"] for notice in notices)


@pytest.mark.compat
@pytest.mark.parametrize("lets_all", [False, True], ids=["asked-nothing", "lends-no-right"])
def test_a_subagent_asks_in_nobody_elses_thread(make_gateway: Any, model: GatedModel, lets_all: bool) -> None:
    """Another thread's turn begins before a subagent's command does; its user lets everything through, or not."""
    key = "an-operators-key-of-thirty-two-ch"
    gateway = make_gateway(toolsets=["terminal", "file", "delegation"], env={"AGUI_API_KEY": key})
    chat, other, folder = Chat(gateway), Chat(gateway, key=key), victim(gateway)
    before, beside = unique("g"), unique("g")
    if lets_all:
        other.say("/yolo").succeeded()
    deletion = call("terminal", {"command": f"rm -rf {folder}"}, call_id := unique("c"))
    inner = script({"text": f"I wait {{gate:{before}}} here.", "tools": [deletion]}, {"text": "child end"})
    run = chat.start(script({"tools": [call("delegate_task", {"goal": inner}, unique("c"))]}, {"text": "The end."}))
    wait_until(lambda: model.reached(before), "the subagent begins")
    run_beside = other.start(script({"text": f"I speak {{gate:{beside}}} on."})).wait_text(beside)
    model.open_gate(before)
    told = wait_until(
        lambda: [one for one in requests_of(model, call_id) if call_id in tool_messages(one)], "it was told"
    )
    assert "pending_approval" in tool_messages(told[-1])[call_id]
    assert folder.exists() and open_requests(other) == []
    model.open_gate(beside)
    run.finish().succeeded()
    run_beside.finish().succeeded()
    assert not run_beside.of("CUSTOM")


class Judged(GatedModel):
    """A model that also judges commands for Hermes's smart mode, as it is told."""

    verdict = "ESCALATE"

    def _answer(self, body: dict[str, Any], size: int) -> Any:
        answer = super()._answer(body, size)
        if answer.step.text == "ESCALATE":
            return replace(answer, step=answer.step.model_copy(update={"text": self.verdict}))
        return answer


@pytest.mark.parametrize("verdict", ["APPROVE", "DENY"])
def test_smart_mode_by_its_judge(make_gateway: Any, verdict: str) -> None:
    with Judged() as judge:
        judge.verdict = verdict
        gateway = make_gateway(model=judge, config={"approvals": {"mode": "smart"}})
        chat, folder = Chat(gateway), victim(gateway)
        run = chat.say(deletes(folder))
        if verdict == "APPROVE":
            assert run.succeeded() and not folder.exists()
            return
        # The owner may overrule the judge, for this once.
        asked = interrupt(run)
        assert asked["metadata"]["hermes"]["choices"] == ["once", "deny"] and folder.exists()
        resume(chat, (asked["id"], {"choice": "session"})).failed("invalid_answer")
        resume(chat, (asked["id"], {"choice": "once"})).succeeded()
        assert not folder.exists()


def test_smart_mode_asks_when_its_judge_escalates(make_gateway: Any) -> None:
    gateway = make_gateway(config={"approvals": {"mode": "smart"}})
    chat = Chat(gateway)
    folder = victim(gateway)
    asked = interrupt(chat.say(deletes(folder)))
    resume(chat, (asked["id"], {"choice": "once"})).succeeded()
    assert not folder.exists()


def test_off_asks_nothing(make_gateway: Any) -> None:
    gateway = make_gateway(config={"approvals": {"mode": "off"}})
    folder = victim(gateway)
    Chat(gateway).say(deletes(folder)).succeeded()
    assert not folder.exists()


def test_a_client_without_interrupts_types_its_answer(gateway: Gateway) -> None:
    chat = Chat(gateway, version=None)
    first, second = victim(gateway), victim(gateway)
    chat.say(deletes(first))
    run = chat.say("/approve")
    assert run.succeeded().text() == "The end."
    assert not first.exists()
    chat.say(deletes(second))
    run = chat.say("/deny not that one").succeeded()
    assert second.exists()
    assert "not that one" in next(iter(run.results().values()))
