"""Threads and sessions: who continues what, hostile ids, a busy thread, keys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway, free_port
from agui_adapter.hermes.versions import is_before_lineages
from tests.e2e.helpers import Chat, GatedModel, Run, call, plain, script, unique, wait_until

KEY = "an-operators-key-of-thirty-two-ch"


@pytest.fixture(scope="module")
def keyed(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with an operator's key, in which loopback callers are allowed too."""
    with Gateway(model, env={"AGUI_API_KEY": KEY}) as running:
        yield running


@pytest.mark.compat
@pytest.mark.core
def test_a_thread_continues_its_session_with_a_warm_cache(gateway: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(gateway), unique("mark")
    chat.say(script({"text": "First answer."}, say=mark)).succeeded()
    chat.say(script({"text": "Second answer."}, say="2")).succeeded()
    chat.say(script({"text": "Third answer."}, say="3")).succeeded()
    assert len(chat.sessions()) == 1
    first, second, third = [request for request in model.requests if mark in json.dumps(request)]
    # What a provider caches is a prefix: the system prompt, the tools and the earlier messages, byte for byte.
    assert json.dumps(first["tools"]) == json.dumps(second["tools"]) == json.dumps(third["tools"])
    for earlier, later in ((first, second), (second, third)):
        begin = [_read(message) for message in earlier["messages"]]
        assert json.dumps([_read(message) for message in later["messages"][: len(begin)]]) == json.dumps(begin)
    roles = [message["role"] for message in third["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert third["messages"][2]["content"] == "First answer."
    chat.assert_as_transcript()


def _read(message: dict[str, Any]) -> dict[str, Any]:
    """What a model reads of a message: all of it. Before 0.18 Hermes sends the time of the newest one along, in a
    member that is none of the API's."""
    return {name: value for name, value in message.items() if name != "timestamp" or not is_before_lineages()}


def test_a_client_that_sends_only_its_newest_message_continues_too(gateway: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(gateway), unique("mark")
    chat.say(script({"text": "One."}, say=mark)).succeeded()
    chat.messages = []
    chat.say(script({"text": "Two."})).succeeded()
    assert len(chat.sessions()) == 1
    assert mark in json.dumps(model.requests[-1])


def test_another_thread_is_another_session(gateway: Gateway, model: GatedModel) -> None:
    one, other, mark = Chat(gateway), Chat(gateway), unique("mark")
    one.say(script({"text": "One."}, say=mark)).succeeded()
    other.say(script({"text": "Other."})).succeeded()
    assert set(one.sessions()).isdisjoint(other.sessions())
    assert mark not in json.dumps(model.requests[-1])


@pytest.mark.compat
@pytest.mark.core
def test_another_principal_is_another_session(keyed: Gateway, model: GatedModel) -> None:
    thread, mark = unique(), unique("mark")
    local = Chat(keyed, thread=thread)
    owner = Chat(keyed, thread=thread, key=KEY)
    local.say(script({"text": "For local."}, say=mark)).succeeded()
    owner.say(script({"text": "For the owner."})).succeeded()
    assert mark not in json.dumps(model.requests[-1])
    assert len(local.sessions()) == len(owner.sessions()) == 1
    assert local.sessions() != owner.sessions()
    owner.assert_as_transcript()


HOSTILE = (
    "x" * 1000,
    "x" * 999 + "y",
    "agent:main:telegram:dm:1",
    "agent:main:agui:dm:local.other",
    "../../etc/passwd",
    "a/b",
    "a:b",
    "a.b",
    "a b",
    "a\nb",
    "A",
    "a",
    "local.a",
    "_a",
    "🧵🌐",
    "Å",
    "A\u030a",
    "'; DROP TABLE sessions; --",
    "%2e%2e%2f",
    "null",
    "/help",
)


def test_hostile_thread_ids_work_and_do_not_collide(gateway: Gateway) -> None:
    salt = unique()
    chats = [Chat(gateway, thread=f"{name}{salt}" if len(name) < 900 else name) for name in HOSTILE]
    answers = [f"Answer {number}." for number in range(len(chats))]
    pairs = list(zip(chats, answers, strict=True))
    for some in (pairs[:12], pairs[12:]):  # as many at once as one caller may have (agui.max_turns_per_principal)
        runs = [chat.start(script({"text": answer})) for chat, answer in some]
        for (chat, answer), run in zip(some, runs, strict=True):
            chat.keep(run.finish()).succeeded()
            assert run.text() == answer
            assert run.end["threadId"] == chat.thread
            chat.assert_as_transcript()
    sessions = [session for chat in chats for session in chat.sessions()]
    assert len(sessions) == len(set(sessions)) == len(chats)


def test_threads_run_at_the_same_time(gateway: Gateway, model: GatedModel) -> None:
    gates = [unique("g") for _ in range(12)]
    chats = [Chat(gateway) for _ in gates]
    runs = [
        chat.start(script({"text": f"before {{gate:{gate}}} after"})) for chat, gate in zip(chats, gates, strict=True)
    ]
    for run, gate in zip(runs, gates, strict=True):
        run.wait_text(gate)
    for gate in gates:
        model.open_gate(gate)
    for chat, run in zip(chats, runs, strict=True):
        chat.keep(run.finish()).succeeded()
        chat.assert_as_transcript()


# --- a busy thread


def _busy(chat: Chat, model: GatedModel) -> tuple[Run, str]:
    """A run that stands in mid-stream, and the gate to open."""
    gate = unique("g")
    run = chat.start(script({"text": f"The first {{gate:{gate}}} answer."}, say=gate))
    return run.wait_text(gate), gate


def _second(chat: Chat, text: str, **more: object) -> Run:
    """A run on the same thread from another tab, which holds other messages."""
    return Chat(chat.gateway, thread=chat.thread, key=chat.key).start(text, **more)


@pytest.mark.compat
def test_a_busy_thread_refuses_while_it_is_read(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    run, gate = _busy(chat, model)
    refused = _second(chat, script({"text": "never"})).finish()
    assert refused.status == 409
    assert refused.problem()["code"] == "thread_busy"
    assert not run.ended
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    chat.assert_as_transcript()
    chat.say(script({"text": "Free again."})).succeeded()


@pytest.mark.parametrize("apart", (0.0, 0.004, 0.012))
def test_several_new_runs_at_once_on_a_thread(gateway: Gateway, apart: float) -> None:
    """One of them is answered; no other takes the turn away before its own reader is there."""
    chat = Chat(gateway)
    runs = []
    for number in range(8):
        runs.append(_second(chat, script({"text": f"Answer {number}."})))
        time.sleep(apart)  # the next may come at any moment of the one before
    for run in runs:
        run.finish()
    answered = [run for run in runs if run.status == 200]
    assert answered
    for run in runs:
        if run.status != 200:
            assert run.problem()["code"] == "thread_busy"
    for run in answered:
        run.succeeded()


def test_a_busy_thread_queues(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    chat = Chat(make_gateway(agui={"busy": "queue"}))
    run, gate = _busy(chat, model)
    queued = _second(chat, script({"text": "The second answer."}))
    queued_too = _second(chat, script({"text": "The third answer."}))
    model.open_gate(gate)
    assert run.finish().succeeded().text() == f"The first {{gate:{gate}}} answer."
    assert queued.finish().succeeded().text() == "The second answer."
    assert queued_too.finish().succeeded().text() == "The third answer."
    assert len(chat.transcript()) == 6


def test_a_run_that_waits_for_its_thread_is_not_silent(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    """Headers and heartbeats come while it waits; what goes wrong then is told in the stream, and leaving ends it."""
    chat = Chat(make_gateway(agui={"busy": "queue", "heartbeat_seconds": 0.4, "shorter_list": "refuse"}))
    run, gate = _busy(chat, model)
    queued = _second(chat, script({"text": "The second answer."}))
    wait_until(lambda: queued.raw.count(b": keep-alive") >= 2, "heartbeats come")
    assert queued.status == 200 and not queued.types
    gone = _second(chat, script({"text": "Never said."}))
    wait_until(lambda: gone.raw.count(b": keep-alive") >= 1, "it waits too")
    gone.leave()
    model.open_gate(gate)
    assert run.finish().succeeded().text() == f"The first {{gate:{gate}}} answer."
    assert queued.finish().succeeded().text() == "The second answer."
    _second(chat, script({"text": "The third answer."})).finish().succeeded()
    said = [one["content"] for one in chat.transcript() if one["role"] == "assistant"]
    assert said[1:] == ["The second answer.", "The third answer."]

    chat = Chat(chat.gateway)
    chat.say(script({"text": "Before."})).succeeded()
    behind = Chat(chat.gateway, thread=chat.thread)
    behind.messages = list(chat.messages)
    run, gate = _busy(chat, model)
    queued = behind.start(script({"text": "Never said."}))
    wait_until(lambda: queued.raw.count(b": keep-alive") >= 1, "it waits")
    model.open_gate(gate)
    run.finish().succeeded()
    queued.finish()
    assert queued.types == ["RUN_STARTED", "RUN_ERROR"] and queued.end["code"] == "history_behind"


@pytest.fixture(scope="module")
def interrupting(model: GatedModel) -> Iterator[Gateway]:
    with Gateway(model, agui={"busy": "interrupt"}) as running:
        yield running


@pytest.mark.parametrize("version", ["1.0", None])
def test_a_busy_thread_is_interrupted(interrupting: Gateway, model: GatedModel, version: str | None) -> None:
    chat = Chat(interrupting, version=version)
    run, gate = _busy(chat, model)
    second = _second(chat, script({"text": "The second answer."})).finish()
    assert second.succeeded().text() == "The second answer."
    chat.keep(run.finish())
    assert run.end["type"] == "RUN_FINISHED"
    assert run.end.get("outcome") == ({"type": "cancelled"} if version else None)
    assert "answer." not in run.text()
    model.open_gate(gate)
    assert chat.transcript()[1]["content"] == run.text().strip()


def test_calls_that_an_interrupt_skips_are_closed(interrupting: Gateway) -> None:
    chat, ids = Chat(interrupting), [unique("c") for _ in range(3)]
    wait = call("terminal", {"command": "sleep 60"}, ids[0])
    rest = [call("terminal", {"command": f"echo {one}"}, one) for one in ids[1:]]
    run = chat.start(script({"text": "I work.", "tools": [wait, *rest]}, {"text": "never"}))
    run.wait(lambda run: len(run.calls()) == 3, "the calls")
    second = _second(chat, script({"text": "The second answer."})).finish()
    assert second.succeeded().text() == "The second answer."
    chat.keep(run.finish())
    assert run.end["outcome"] == {"type": "cancelled"}
    assert list(run.results()) == ids
    transcript = chat.transcript()
    assert plain(chat.messages) == plain(transcript[: len(chat.messages)])


def test_a_busy_thread_is_steered(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"busy": "steer"})
    chat, mark = Chat(gateway), unique("steer")
    flag = gateway.work_dir / unique("flag")
    wait = {"command": f"until [ -e {flag.name} ]; do sleep 0.05; done"}
    run = chat.start(script({"text": "I work.", "tools": [{"name": "terminal", "arguments": wait}]}, {"text": "Done."}))
    run.wait(lambda run: run.calls(), "the tool call")
    steered = _second(chat, f"Please think of {mark}")
    wait_until(lambda: steered.frames or steered.ended, "the second run began")
    flag.touch()
    run.finish().succeeded()
    steered.finish().succeeded()
    assert run.texts()[-1] == "Done."
    assert steered.texts() == ["Done."]
    snapshot = next(event["messages"] for event in steered.of("MESSAGES_SNAPSHOT"))
    assert [message["role"] for message in snapshot] == ["user", "assistant"]
    assert snapshot[1]["content"] == "I work." and len(snapshot[1]["toolCalls"]) == 1
    assert mark in json.dumps(model.requests[-1])
    assert len(chat.sessions()) == 1


# --- keys and addresses


def test_the_key(keyed: Gateway) -> None:
    wrong = Chat(keyed, key="a-wrong-key-of-some-length").say("hello")
    assert wrong.status == 401
    assert wrong.problem()["code"] == "invalid_token"
    assert wrong.headers["www-authenticate"] == "Bearer"
    assert KEY not in wrong.raw.decode()
    right = Chat(keyed, key=KEY).say(script({"text": "Owner."})).succeeded()
    assert right.text() == "Owner."


def test_the_owner_needs_no_allowlist(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY, "AGUI_ALLOWED_USERS": None})
    assert Chat(gateway, key=KEY).say(script({"text": "Owner."})).succeeded().text() == "Owner."


def test_a_key_is_demanded_when_the_operator_says_so(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY}, agui={"require_token": True})
    refused = Chat(gateway).say("hello")
    assert refused.status == 401
    assert refused.problem()["code"] == "token_needed"
    Chat(gateway, key=KEY).say(script({"text": "In."})).succeeded()


def test_no_bind_beyond_loopback_without_a_key(make_gateway: Callable[..., Gateway]) -> None:
    """The plugin stays off with a clear line; the gateway and its other platforms live."""
    port = free_port()
    other = {"enabled": True, "extra": {"host": "127.0.0.1", "port": port, "key": "k" * 8 + "-Loopback-Test-01"}}
    gateway = make_gateway(
        agui={"host": "0.0.0.0"},
        config={"platforms": {"api_server": other}},
        ready_url=f"http://127.0.0.1:{port}/health",
        start=False,
    )
    gateway.start()
    line = wait_until(
        lambda: next((line for line in gateway.log_text().splitlines() if "agui.host" in line), ""), "the log line"
    )
    assert "AGUI_API_KEY" in line and "0.0.0.0" in line
    assert gateway.running
    assert free_port(gateway.port) == gateway.port
