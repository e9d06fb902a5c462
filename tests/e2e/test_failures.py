"""How runs fail: one RUN_ERROR with a code and no secret, or a problem document; never an empty success or a hang."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import history, idle
from tests.e2e.dialect import catalog
from tests.e2e.helpers import Chat, GatedModel, Message, Run, call, hermes, script, unique, wait_until

SECRET = "sk-live-4f9a8c7d6e5b4a3f2e1d0c9b8a7f6e5d"

# Hermes gives up after two tries and waits two seconds between them. A provider that is silent for 1.5 s is too slow.
IMPATIENT: dict[str, Any] = {
    "config": {
        "agent": {"api_max_retries": 2, "auto_recovery_cycles": 0},
        "providers": {"custom": {"request_timeout_seconds": 1.5, "stale_timeout_seconds": 1.5}},
    },
    "env": {"HERMES_STREAM_RETRIES": "0"},
}

# The provider's fault → the code on the wire.
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "401": ({"status": 401, "message": f"Incorrect API key provided: {SECRET}."}, "provider_auth"),
    "403": ({"status": 403, "message": f"No access with {SECRET}"}, "provider_auth"),
    "404": ({"status": 404, "message": "The model does not exist"}, "provider_model"),
    "429": ({"status": 429, "message": f"Slow down, {SECRET}", "retry_after": 0.1}, "provider_rate_limit"),
    "400": ({"status": 400, "message": f"Nothing for Bearer {SECRET} here"}, "provider_refused"),
    "500": ({"status": 500, "message": f"api_key={SECRET} broke us"}, "provider_error"),
    "503": ({"status": 503, "message": "overloaded"}, "provider_error"),
    "hang": ({"hang": 100}, "provider_timeout"),
    "garbage": ({"garbage": True}, "provider_error"),
}


@pytest.fixture(scope="module")
def impatient(model: GatedModel) -> Iterator[Gateway]:
    with Gateway(model, toolsets=("terminal",), **IMPATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def failed(impatient: Gateway) -> dict[str, tuple[Chat, Run]]:
    """All faults at once, since each takes its retries: name → the chat and the run that failed in it."""
    chats = {name: Chat(impatient) for name in FAULTS}
    texts = {name: script({"text": "never said", **fault}, say=name) for name, (fault, _) in FAULTS.items()}
    runs = {name: chat.start(texts[name]) for name, chat in chats.items()}
    return {name: (chats[name], chats[name].keep(run.finish())) for name, run in runs.items()}


@pytest.mark.compat
@pytest.mark.parametrize("name", FAULTS)
def test_a_provider_that_fails(failed: dict[str, tuple[Chat, Run]], name: str) -> None:
    _, run = failed[name]
    run.failed(FAULTS[name][1])
    assert run.types.count("RUN_ERROR") == 1
    assert "RUN_FINISHED" not in run.types
    assert "TEXT_MESSAGE_START" not in run.types
    assert run.end["message"] not in run.notices()
    assert SECRET not in run.raw.decode()
    assert SECRET[8:] not in run.raw.decode()


@pytest.mark.compat
@pytest.mark.parametrize("name", ["401", "500", "hang"])
def test_a_thread_works_again_after_a_failure(failed: dict[str, tuple[Chat, Run]], name: str) -> None:
    chat, _ = failed[name]
    assert chat.say(script({"text": "Well again."})).succeeded().text() == "Well again."
    assert len(chat.sessions()) == 1


def test_a_failure_keeps_what_was_said_before(impatient: Gateway) -> None:
    chat, call_id = Chat(impatient), unique("c")
    run = chat.say(
        script(
            {"text": "I look.", "tools": [call("terminal", {"command": "echo x"}, call_id)]},
            {"status": 401, "message": "no"},
        )
    )
    run.failed("provider_auth")
    assert run.texts() == ["I look."]
    assert call_id in run.results()
    chat.assert_as_transcript()


@pytest.mark.parametrize(
    "fault",
    [{"status": 500}, {"status": 429, "retry_after": 0.1}, {"hang": 100}],
    ids=["500", "429", "hang"],
)
def test_a_provider_that_fails_once_and_then_answers(impatient: Gateway, fault: dict[str, Any]) -> None:
    chat = Chat(impatient)
    run = chat.say(script({"text": "Here it is.", "times": 1, **fault})).succeeded()
    assert run.text() == "Here it is."
    chat.assert_as_transcript()


def test_the_model_refuses(impatient: Gateway) -> None:
    chat = Chat(impatient)
    run = chat.say(script({"text": "I cannot help with that.", "finish": "content_filter"}))
    assert run.end["type"] == "RUN_ERROR"
    assert run.end["message"].strip()


# --- a client that leaves


def test_a_hanging_model_a_client_that_leaves_and_a_new_run(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    mark = unique("hang")
    run = chat.start(script({"hang": 100}, say=mark))
    run.wait(lambda run: "RUN_STARTED" in run.types, "the start")
    wait_until(lambda: any(mark in str(request) for request in model.requests), "the model was asked")
    run.leave()
    again = chat.say(script({"text": "The new answer."})).succeeded()
    assert again.text() == "The new answer."
    assert len(chat.sessions()) == 1


def test_a_turn_that_nobody_reads_is_interrupted_by_the_next_run(gateway: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(gateway), unique("g")
    run = chat.start(script({"text": f"The first part {{gate:{gate}}} and a second part"}))
    run.wait_text(gate)
    run.leave()
    chat.keep(run)
    again = chat.say(script({"text": "The new answer."})).succeeded()
    model.open_gate(gate)
    assert again.texts() == ["The new answer."]
    chat.assert_as_transcript()
    asked = model.requests[-1]["messages"]
    assert any("The first part" in str(message["content"]) for message in asked if message["role"] == "assistant")


def test_a_client_that_leaves_does_not_end_the_turn(gateway: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(gateway), unique("g")
    run = chat.start(script({"text": f"The first part {{gate:{gate}}} and the rest"}))
    run.wait_text(gate)
    run.leave()
    model.open_gate(gate)
    wait_until(
        lambda: any("and the rest" in str(message["content"]) for message in chat.transcript()[1:]),
        "the turn ended without a reader",
    )


# --- a gateway that refuses


@pytest.mark.compat
@pytest.mark.core
def test_pairing(make_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    gateway = make_gateway(env={"AGUI_ALLOWED_USERS": None} | catalog(tmp_path))
    chat = Chat(gateway)
    first = chat.say("let me in").succeeded()
    code = re.search(r"pairing approve agui (\S+)", first.text().replace("`", " "))
    assert code, first.text()
    second = Chat(gateway).say("and me")
    message = second.failed("not_authorized")["message"]
    assert "AGUI_ALLOWED_USERS" in message
    hermes(gateway, "pairing", "approve", "agui", code[1])
    assert chat.say(script({"text": "Welcome."})).succeeded().text() == "Welcome."


# --- start and stop


def _until_answered(gateway: Gateway) -> list[Run]:
    """Runs from the first moment on at which the port answers, one after another, up to the first that streams."""
    starting = threading.Thread(target=gateway.start, daemon=True)
    starting.start()
    runs: list[Run] = []

    def try_once() -> bool:
        run = Chat(gateway).start(script({"text": "Up."}))
        try:
            runs.append(run.finish())
        except httpx.TransportError:
            return False
        return run.status == 200

    wait_until(try_once, "the gateway answers a run", seconds=90)
    starting.join(90)
    return runs


def test_the_start_up_window_is_waited_out(make_gateway: Callable[..., Gateway]) -> None:
    runs = _until_answered(make_gateway(start=False))
    assert [run.status for run in runs] == [200]
    assert runs[0].succeeded().text() == "Up."


def test_the_start_up_window_without_patience(make_gateway: Callable[..., Gateway]) -> None:
    *early, answered = _until_answered(make_gateway(start=False, agui={"start_wait_seconds": 0}))
    assert answered.succeeded().text() == "Up."
    assert early
    for run in early:
        assert run.problem()["code"] == "starting"
        assert run.status == 503
        assert int(run.headers["retry-after"]) > 0


def answers(messages: list[Message]) -> list[str]:
    return [message["content"].strip() for message in messages if message["role"] == "assistant"]


@pytest.mark.compat
@pytest.mark.core
def test_sigterm_in_mid_stream(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway, gate = make_gateway(), unique("g")
    chat = Chat(gateway)
    run = chat.start(script({"text": f"The first part {{gate:{gate}}} never sent"}))
    run.wait_text(gate)
    assert gateway.pid is not None
    os.kill(gateway.pid, signal.SIGTERM)
    run.finish()
    assert run.types.count("RUN_ERROR") + run.types.count("RUN_FINISHED") == 1
    assert run.end.get("code") == "gateway_stopped" or run.end.get("outcome") == {"type": "cancelled"}, run.end
    wait_until(lambda: not gateway.running, "the gateway ended")
    model.open_gate(gate)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", gateway.port))
    gateway.stop()
    gateway.start()
    # By itself the gateway goes on with the cut turn, or sends again what had come (0.22, if that was about to be
    # delivered); then the thread is free, and nothing is in it twice.
    idle(chat)
    chat.keep(run)
    assert chat.say(script({"text": "Back."})).succeeded().texts() == ["Back."]
    assert answers(history(chat)) == answers(chat.transcript())
    assert len(chat.sessions()) == 1
