"""Who leaves and who stops: the detach policy, `POST …/stop`, and what is left of a stopped turn."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, Run, call, query, script, unique, wait_until, write_plugin

GRACE = 1.0
HERMES_WORDS = ("interrupted", "Stopped", "stopped", "waiting for model")


@pytest.fixture(scope="module")
def stopping(model: GatedModel) -> Iterator[Gateway]:
    """A gateway that stops a turn when its last reader has been gone for a second."""
    with Gateway(model, agui={"detach": "stop", "grace_seconds": GRACE}) as running:
        yield running


def address(chat: Chat, rest: str = "") -> str:
    return f"{chat.gateway.url}/agui/threads/{chat.thread}{rest}"


def look(chat: Chat) -> dict[str, Any]:
    """The thread as `GET` gives it."""
    response = httpx.get(address(chat), timeout=30)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def stop(chat: Chat) -> bool:
    response = httpx.post(address(chat, "/stop"), timeout=60)
    assert response.status_code == 200, response.text
    return bool(response.json()["stopped"])


@contextlib.contextmanager
def following(chat: Chat) -> Iterator[Iterator[str]]:
    """A reader of the thread's feed, which has had its first frame already."""
    with httpx.stream("GET", address(chat, "/events"), timeout=60) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data:"))
        next(lines)
        yield lines


def begun(chat: Chat, *, then: str = "") -> tuple[Run, str]:
    """A run that stands in mid-stream, and the gate to open."""
    gate = unique("g")
    run = chat.start(script({"text": f"The first {{gate:{gate}}} answer.{then}"}, say=gate))
    return run.wait_text(gate), gate


def again(chat: Chat, run: Run) -> Run:
    """The same run once more: what the turn said to the client that has left."""
    return chat.send(run_id=run.body["runId"], messages=run.body["messages"]).finish()


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [str(m.get("content") or "") for m in messages if m["role"] == "assistant"]


def assert_only_what_the_model_said(chat: Chat, *said: str) -> None:
    """The history shows of every answer a beginning of what the model said, and none of Hermes's own words."""
    for text in texts(look(chat)["messages"]):
        assert any(one.startswith(text) for one in said), text
        assert not any(word in text for word in HERMES_WORDS), text


# --- detach: stop


def test_a_turn_that_nobody_reads_is_stopped_after_the_grace(stopping: Gateway, model: GatedModel) -> None:
    chat = Chat(stopping)
    run, gate = begun(chat)
    run.leave()
    left = time.monotonic()
    wait_until(lambda: look(chat)["status"] == "idle", "the turn was stopped")
    assert time.monotonic() - left >= GRACE * 0.9
    replayed = again(chat, run)
    assert replayed.end["outcome"] == {"type": "cancelled"}
    assert "answer." not in replayed.text()
    assert_only_what_the_model_said(chat, f"The first {{gate:{gate}}}")
    model.open_gate(gate)
    chat.keep(replayed)
    chat.say(script({"text": "Here again."})).succeeded()


@pytest.mark.parametrize("how", ["feed", "run"])
def test_a_reader_that_comes_back_in_time_keeps_the_turn(stopping: Gateway, model: GatedModel, how: str) -> None:
    chat = Chat(stopping)
    run, gate = begun(chat)
    run.leave()
    if how == "feed":
        with following(chat) as lines:
            time.sleep(GRACE * 2)
            assert look(chat)["status"] == "running"
            model.open_gate(gate)
            end = next(json.loads(line[5:]) for line in lines if "RUN_FINISHED" in line)
    else:
        back = chat.send(run_id=run.body["runId"], messages=run.body["messages"]).wait_text(gate)
        time.sleep(GRACE * 2)
        assert not back.ended
        model.open_gate(gate)
        end = chat.keep(back.finish()).succeeded().end
        chat.assert_as_transcript()
    assert end.get("outcome", {"type": "success"}) == {"type": "success"}
    assert texts(look(chat)["messages"]) == [f"The first {{gate:{gate}}} answer."]


def test_one_reader_of_two_may_leave(stopping: Gateway, model: GatedModel) -> None:
    chat = Chat(stopping)
    run, gate = begun(chat)
    with following(chat):
        pass
    time.sleep(GRACE * 2)
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()


TOOL = {"name": "ask_browser", "description": "Asks.", "parameters": {"type": "object", "properties": {}}}


def test_a_turn_that_waits_is_left_alone_and_an_answer_gives_it_the_grace(stopping: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(stopping), unique("g")
    steps = script({"tools": [call("ask_browser", {}, "call-1")]}, {"text": f"It said {{gate:{gate}}} yes."})
    run = chat.start(steps, tools=[TOOL]).finish()
    assert run.end["outcome"]["pendingToolCallIds"] == ["call-1"]
    time.sleep(GRACE * 2)
    thread = look(chat)
    assert thread["status"] == "parked"
    request = thread["requests"][0]["id"]
    answered = httpx.post(address(chat, f"/requests/{request}"), json={"content": "yes"})
    assert answered.status_code == 200
    wait_until(lambda: model.reached(gate), "the turn goes on")
    wait_until(lambda: look(chat)["status"] == "idle", "the turn was stopped")
    assert_only_what_the_model_said(chat, f"It said {{gate:{gate}}}")
    model.open_gate(gate)


def test_a_turn_that_is_answered_in_a_run_is_read_again(stopping: Gateway) -> None:
    chat = Chat(stopping)
    steps = script({"tools": [call("ask_browser", {}, unique("call"))]}, {"text": "It said yes."})
    chat.say(steps, tools=[TOOL])
    time.sleep(GRACE * 1.5)
    chat.messages.append({"id": unique("t"), "role": "tool", "toolCallId": chat.calls[-1], "content": "yes"})
    run = chat.keep(chat.send(tools=[TOOL]).finish()).succeeded()
    assert run.text() == "It said yes."


# --- detach: continue


def test_by_default_a_turn_goes_on_without_readers(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    chat = Chat(make_gateway(agui={"grace_seconds": 0.2}))
    run, gate = begun(chat)
    run.leave()
    time.sleep(1)
    assert look(chat)["status"] == "running"
    model.open_gate(gate)
    wait_until(lambda: look(chat)["status"] == "idle", "the turn ended")
    chat.keep(again(chat, run).succeeded())
    chat.assert_as_transcript()
    assert texts(look(chat)["messages"]) == [f"The first {{gate:{gate}}} answer."]


@pytest.mark.compat
def test_who_left_and_sends_something_new_stops_the_old_turn(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    run, gate = begun(chat)
    run.leave()
    new = chat.say(script({"text": "The second answer."})).succeeded()
    assert new.texts()[-1] == "The second answer."
    assert again(chat, run).end["outcome"] == {"type": "cancelled"}
    model.open_gate(gate)
    assert_only_what_the_model_said(chat, f"The first {{gate:{gate}}}", "The second answer.")
    assert [m["role"] for m in look(chat)["messages"]].count("user") == 2


# --- stop


@pytest.mark.compat
@pytest.mark.core
def test_stop_ends_a_turn_in_mid_stream(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway)
    run, gate = begun(chat)
    assert stop(chat) is True
    assert look(chat)["status"] == "idle"  # it has ended when the answer comes
    chat.keep(run.finish())
    assert run.end == {**run.end, "type": "RUN_FINISHED", "outcome": {"type": "cancelled"}}
    assert stop(chat) is False
    model.open_gate(gate)
    assert_only_what_the_model_said(chat, f"The first {{gate:{gate}}}")
    before = [m for m in look(chat)["messages"] if m["role"] != "reasoning"]
    following_run = chat.say(script({"text": "Going on."})).succeeded()
    assert following_run.text() == "Going on."
    assert [m for m in look(chat)["messages"] if m["role"] != "reasoning"][: len(before)] == before


def test_an_older_peer_is_not_told_what_it_cannot_read(gateway: Gateway, model: GatedModel) -> None:
    chat = Chat(gateway, version=None)
    run, gate = begun(chat)
    assert stop(chat) is True
    run.finish()
    assert run.end["type"] in ("RUN_FINISHED", "RUN_ERROR")
    assert "outcome" not in run.end
    model.open_gate(gate)


def test_stop_while_a_stop_waits(gateway: Gateway) -> None:
    chat = Chat(gateway)
    run = chat.start(script({"tools": [call("terminal", {"command": "sleep 60"})]}, {"text": "never"}))
    run.wait(lambda run: run.calls(), "the tool call")
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(stop(chat))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 3 and any(answers)
    chat.keep(run.finish())
    assert run.end["outcome"] == {"type": "cancelled"}
    assert list(run.results()) == list(run.calls())
    assert "never" not in run.text()
    assert stop(chat) is False


def test_stop_as_soon_as_the_run_has_begun(gateway: Gateway, model: GatedModel) -> None:
    for _ in range(5):
        chat, mark = Chat(gateway), unique("mark")
        run = chat.start(script({"text": f"A long answer {{gate:{mark}}} it is."}, say=mark))
        run.wait(lambda run: run.frames, "the run began")
        began = time.monotonic()
        stop(chat)
        assert time.monotonic() - began < 8, "it was abandoned, not interrupted"
        chat.keep(run.finish())
        assert run.end["outcome"] == {"type": "cancelled"}
        model.open_gate(mark)
        assert_only_what_the_model_said(chat, f"A long answer {{gate:{mark}}}")
        assert chat.say(script({"text": "Afterwards."})).succeeded().texts()[-1] == "Afterwards."


@pytest.mark.compat
@pytest.mark.core
def test_stop_ends_a_turn_that_waits(gateway: Gateway) -> None:
    chat = Chat(gateway)
    steps = script({"text": "I ask.", "tools": [call("ask_browser", {}, "call-9")]}, {"text": "never"})
    chat.say(steps, tools=[TOOL])
    assert stop(chat) is True
    thread = look(chat)
    assert thread["status"] == "idle" and thread["requests"] == []
    assert texts(thread["messages"]) == ["I ask."]
    assert stop(chat) is False


SLOW_END = """
import time


def slow(**_):
    time.sleep(0.8)


def register(ctx):
    ctx.register_hook("on_session_end", slow)
"""


@pytest.mark.compat
def test_a_stop_that_comes_too_late_does_not_swallow_the_next_message(
    model: GatedModel, make_gateway: Callable[..., Gateway]
) -> None:
    """Hermes forgets an interrupt when a turn's agent is done; one that comes behind that would end the next turn."""
    gateway = make_gateway(config={"plugins": {"enabled": ["slow", "agui"]}}, start=False)
    write_plugin(gateway.home, "slow", SLOW_END)
    gateway.start()
    chat = Chat(gateway)
    for number in range(3):
        run = chat.start(script({"text": f"Answer {number} done."})).wait_text("done.")
        time.sleep(0.3)
        assert not run.ended
        assert stop(chat) is True
        chat.keep(run.finish())
        assert chat.say(script({"text": "Heard."})).succeeded().text() == "Heard."


STUBBORN = """
import json, os, time


def stubborn(args, **_):
    while not os.path.exists(args["flag"]):
        time.sleep(0.02)
    open(args["flag"] + ".done", "w").close()
    return json.dumps({"late": "THE-LATE-RESULT"})


def register(ctx):
    parameters = {"type": "object", "properties": {"flag": {"type": "string"}}}
    schema = {"name": "stubborn", "description": "Hears no interrupt.", "parameters": parameters}
    ctx.register_tool(name="stubborn", toolset="stubborn", schema=schema, handler=stubborn)
"""


def test_late_writes_of_an_abandoned_turn_are_fenced(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(
        agui={"interrupt_wait_seconds": 0.5},
        config={"plugins": {"enabled": ["agui", "stubborn"]}},
        toolsets=["terminal", "stubborn"],
        start=False,
    )
    write_plugin(gateway.home, "stubborn", STUBBORN)
    gateway.start()
    chat, flag = Chat(gateway), gateway.work_dir / "flag"
    chat.say(script({"text": "Hello."})).succeeded()
    steps = script({"text": "I start.", "tools": [call("stubborn", {"flag": str(flag)})]}, {"text": "TOO LATE"})
    run = chat.start(steps)
    run.wait(lambda run: run.calls(), "the tool call")
    began = time.monotonic()
    assert stop(chat) is True
    assert time.monotonic() - began < 8
    chat.keep(run.finish())
    assert run.end["outcome"] == {"type": "cancelled"}
    seen = look(chat)["messages"]
    # Before the tool ends the thread can be used again.
    second = chat.say(script({"text": "Meanwhile."})).succeeded()
    assert second.texts()[-1] == "Meanwhile."
    flag.touch()
    wait_until((flag.parent / "flag.done").exists, "the tool ended at last")
    time.sleep(1)  # the worker that was left behind comes to its end
    third = chat.say(script({"text": "Afterwards."})).succeeded()
    assert third.texts()[-1] == "Afterwards."
    messages = look(chat)["messages"]
    assert messages[: len(seen)] == seen
    assert "THE-LATE-RESULT" not in json.dumps(messages)
    assert texts(messages) == ["Hello.", "I start.", "Meanwhile.", "Afterwards."]
    assert_only_what_the_model_said(chat, "Hello.", "I start.", "Meanwhile.", "Afterwards.")
    assert "TOO LATE" not in json.dumps(query(gateway, "SELECT content FROM messages WHERE role = 'assistant'"))
