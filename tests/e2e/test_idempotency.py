"""The same run sent twice runs once: by `Idempotency-Key`, and by run id and body; per principal; over a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import history, lines, trimmed
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, wait_until

KEY = "an-operators-key-of-thirty-two-ch"


@pytest.fixture(scope="module")
def keyed(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with an operator's key, in which loopback callers are allowed too."""
    with Gateway(model, env={"AGUI_API_KEY": KEY}) as running:
        yield running


def body(text: str, **members: Any) -> bytes:
    made = {
        "threadId": unique(),
        "runId": unique("r"),
        "protocolVersion": "1.0",
        "messages": [{"id": unique("u"), "role": "user", "content": text}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    return json.dumps(made | members).encode()


def post(gateway: Gateway, raw: bytes, *, key: str = "", token: str = "") -> httpx.Response:
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    headers |= {"Idempotency-Key": key} if key else {}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.post(f"{gateway.url}/agui", content=raw, headers=headers, timeout=60, trust_env=False)


def text_of(raw: bytes) -> str:
    """The answer text of a stream."""
    events = [line.event for line in lines(raw)]
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def asked(model: GatedModel, mark: str) -> int:
    """How often the model was asked with this mark."""
    return sum(mark in json.dumps(request) for request in model.requests)


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "run id"])
def test_the_same_run_again_is_the_same_answer(gateway: Gateway, model: GatedModel, by_key: bool) -> None:
    mark = unique("mark")
    step = {"reasoning": "Hm.", "text": "I look.", "tools": [call("terminal", {"command": "echo x"})]}
    raw, key = body(script(step, {"text": "Done."}, say=mark)), unique("k") if by_key else ""
    first = post(gateway, raw, key=key)
    assert first.status_code == 200 and b'"RUN_FINISHED"' in first.content
    for _ in range(3):
        again = post(gateway, raw, key=key)
        assert again.content == first.content
    assert asked(model, mark) == 2  # the two steps of the one turn


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "run id"])
def test_also_with_what_stood_before_the_turn(gateway: Gateway, model: GatedModel, by_key: bool) -> None:
    """A snapshot or a notice in front is a part of the answer."""
    chat = Chat(gateway)
    for number in range(2):
        chat.say(script({"text": f"Answer {number}."}, say=str(number))).succeeded()
    mark = unique("mark")
    new = {"id": unique("u"), "role": "user", "content": script({"text": "Told."}, say=mark)}
    for messages in ([new], [*chat.messages[:1], {**new, "id": unique("u")}]):
        raw, key = body("", threadId=chat.thread, messages=messages), unique("k") if by_key else ""
        first = post(gateway, raw, key=key)
        assert b"MESSAGES_SNAPSHOT" in first.content
        assert post(gateway, raw, key=key).content == first.content
    assert asked(model, mark) == 2


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "run id"])
def test_at_the_same_time(gateway: Gateway, model: GatedModel, by_key: bool) -> None:
    mark, gate = unique("mark"), unique("g")
    raw, key = body(script({"text": f"One {{gate:{gate}}} answer."}, say=mark)), unique("k") if by_key else ""
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(post, gateway, raw, key=key) for _ in range(8)]
        wait_until(lambda: model.reached(gate), "the one model request")
        late = [pool.submit(post, gateway, raw, key=key) for _ in range(4)]
        model.open_gate(gate)
        contents = {answer.result(60).content for answer in (*answers, *late)}
    assert len(contents) == 1
    assert text_of(contents.pop()).endswith("answer.")
    assert asked(model, mark) == 1


def test_a_key_with_another_body_is_refused(gateway: Gateway, model: GatedModel) -> None:
    mark, key = unique("mark"), unique("k")
    raw = body(script({"text": "One."}, say=mark))
    first = post(gateway, raw, key=key)
    other = json.loads(raw)
    other["messages"][0]["content"] = script({"text": "Other."}, say=mark)
    for changed in (other, json.loads(raw) | {"runId": unique("r")}, json.loads(raw) | {"threadId": unique()}):
        refused = post(gateway, json.dumps(changed).encode(), key=key)
        assert refused.status_code == 409 and refused.json()["code"] == "idempotency_conflict"
        assert refused.json()["detail"]
    assert post(gateway, raw, key=key).content == first.content
    assert asked(model, mark) == 1


def test_a_key_with_another_body_is_refused_while_the_first_runs(gateway: Gateway, model: GatedModel) -> None:
    gate, key = unique("g"), unique("k")
    raw = body(script({"text": f"One {{gate:{gate}}} answer."}))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, gateway, raw, key=key)
        wait_until(lambda: model.reached(gate), "the model")
        refused = post(gateway, body(script({"text": "Other."})), key=key)
        assert refused.status_code == 409 and refused.json()["code"] == "idempotency_conflict"
        model.open_gate(gate)
        assert first.result(60).status_code == 200


def test_a_run_id_with_another_body_is_a_new_run(gateway: Gateway, model: GatedModel) -> None:
    """CopilotKit resumes under the run id that was interrupted."""
    chat, run_id, mark = Chat(gateway), unique("r"), unique("mark")
    for number in range(3):
        chat.say(script({"text": f"Answer {number}."}, say=f"{mark}{number}"), run_id=run_id).succeeded()
    assert asked(model, f"{mark}2") == 1 and len(history(chat)) == 6
    assert trimmed(history(chat)) == trimmed(chat.messages)


def test_a_resume_under_the_same_run_id(gateway: Gateway) -> None:
    chat, run_id = Chat(gateway), unique("r")
    target = gateway.work_dir / unique("dir")
    target.mkdir()
    step = {"tools": [call("terminal", {"command": f"rm -r {target.name}"})]}
    first = chat.say(script(step, {"text": "Gone."}), run_id=run_id)
    (interrupt,) = first.end["outcome"]["interrupts"]
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"choice": "once"}}]
    second = chat.send(run_id=run_id, resume=resume).finish().succeeded()
    again = chat.send(run_id=run_id, resume=resume).finish().succeeded()
    assert again.raw == second.raw
    assert second.text() == "Gone."
    # And the first of them, with its own body, is still the first.
    chat.messages, chat.calls = chat.messages[:1], []
    assert chat.send(run_id=run_id).finish().raw == first.raw


def test_keys_belong_to_a_principal(keyed: Gateway, model: GatedModel) -> None:
    mark, key = unique("mark"), unique("k")
    raw = body(script({"text": "Mine."}, say=mark))
    local, owner = post(keyed, raw, key=key), post(keyed, raw, key=key, token=KEY)
    assert local.status_code == owner.status_code == 200
    assert local.content != owner.content  # two turns, two threads
    assert asked(model, mark) == 2
    other = post(keyed, body(script({"text": "Other."})), key=key, token=KEY)
    assert other.status_code == 409
    assert post(keyed, raw).content != local.content  # without the key the run id counts, and this one has a key's body
    stranger = post(keyed, raw, key=key, token="a-wrong-key-of-some-length")
    assert stranger.status_code == 401


def test_a_refused_run_can_be_sent_again(gateway: Gateway, model: GatedModel) -> None:
    """A key is taken by a run, not by a refusal."""
    gate, key = unique("g"), unique("k")
    chat = Chat(gateway)
    run = chat.start(script({"text": f"Busy {{gate:{gate}}} here."}))
    run.wait_text(gate)
    raw = body(script({"text": "Next."}), threadId=chat.thread)
    assert post(gateway, raw, key=key).status_code == 409
    model.open_gate(gate)
    run.finish().succeeded()
    answered = post(gateway, raw, key=key)
    assert answered.status_code == 200 and text_of(answered.content) == "Next."
    assert post(gateway, raw, key=key).content == answered.content


def test_a_run_whose_client_left_is_found_again(gateway: Gateway, model: GatedModel) -> None:
    """A retry after a broken connection joins the run instead of starting another."""
    chat, gate, mark = Chat(gateway), unique("g"), unique("mark")
    run = chat.start(script({"text": f"Half {{gate:{gate}}} and half."}, say=mark))
    run.wait_text(gate)
    run.leave()
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(post, gateway, json.dumps(run.body, separators=(",", ":")).encode())
        wait_until(lambda: chat and asked(model, mark) == 1, "one request")
        model.open_gate(gate)
        content = again.result(60).content
    assert content.startswith(run.raw)
    assert text_of(content).endswith("and half.") and b'"RUN_FINISHED"' in content
    assert asked(model, mark) == 1


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "run id"])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_after_a_restart(model: GatedModel, make_gateway: Callable[..., Gateway], by_key: bool, crash: bool) -> None:
    """The log is gone; the run is not run again, and its conversation is told."""
    gateway = make_gateway()
    mark = unique("mark")
    raw, key = body(script({"text": "Only once."}, say=mark)), unique("k") if by_key else ""
    first = post(gateway, raw, key=key)
    chat = Chat(gateway, thread=json.loads(raw)["threadId"])
    before = history(chat)
    if crash:
        gateway.kill()
    else:
        gateway.stop()
    gateway.start()
    again = post(gateway, raw, key=key)
    assert again.status_code == 200
    events = [json.loads(line[6:]) for line in again.text.split("\n") if line.startswith("data: ")]
    assert [event["type"] for event in events] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    # Hermes may run again what was active when it crashed, also what was over: then there is more, of its own.
    told = [message for message in events[1]["messages"] if message["role"] != "reasoning"]
    assert told == before if not crash else told[: len(before)] == before
    assert (events[0]["runId"], events[-1]["outcome"]) == (json.loads(raw)["runId"], {"type": "success"})
    kept = history(chat)
    assert sum(message["role"] == "user" for message in kept) == 1 and kept[: len(before)] == before
    if not crash:
        assert asked(model, mark) == 1 and kept == before
    if by_key:
        assert post(gateway, body(script({"text": "Other."})), key=key).status_code == 409
    assert text_of(first.content) == "Only once."


def test_a_failed_run_is_not_a_success_after_a_restart(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    raw = body(script({"status": 401, "message": "no"}, say=unique()))
    assert b'"RUN_ERROR"' in post(gateway, raw).content
    gateway.stop()
    gateway.start()
    again = post(gateway, raw)
    assert b'"RUN_ERROR"' in again.content and b'"RUN_FINISHED"' not in again.content


def test_a_blank_key_is_none(gateway: Gateway) -> None:
    for text in ("One.", "Other."):
        raw = body(script({"text": text}))
        headers = {"Content-Type": "application/json", "Idempotency-Key": ""}
        answer = httpx.post(f"{gateway.url}/agui", content=raw, headers=headers, timeout=60, trust_env=False)
        assert answer.status_code == 200 and text_of(answer.content) == text
