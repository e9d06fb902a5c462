"""Restarts between turns and within turns: no lost user message, none doubled, ids stable, every stream with an end."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.history import without_reasoning
from tests.e2e.attach import Watcher, history, idle, lines, request, rest, thread_of, trimmed
from tests.e2e.helpers import Chat, GatedModel, Message, Run, call, script, unique, wait_until

Make = Callable[..., Gateway]


def users(messages: list[Message]) -> list[str]:
    return [message["id"] for message in messages if message["role"] == "user"]


def texts_of_users(chat: Chat) -> list[str]:
    """What Hermes's model will be told that the user said, without what Hermes says itself in that place."""
    return [message["content"] for message in chat.transcript() if message["role"] == "user"]


def restarted(gateway: Gateway, *, crash: bool = False) -> None:
    if crash:
        gateway.kill()
    else:
        gateway.stop()
    gateway.start()


@pytest.mark.compat
@pytest.mark.core
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_between_turns(make_gateway: Make, model: GatedModel, crash: bool) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    tools = [call("terminal", {"command": f"echo {word}"}, "same") for word in ("one", "two")]
    step = {"reasoning": "Hm.", "text": "I look.", "tools": tools}
    for number in range(3):
        chat.say(script(step, {"text": f"Answer {number}."}, say=str(number))).succeeded()
        before = history(chat)
        assert trimmed(before) == trimmed(chat.messages)
        restarted(gateway, crash=crash)
        idle(chat)
        after = history(chat)
        assert after[: len(before)] == before
        if crash:  # Hermes may run again what was active lately, also what was over: then it says something more
            assert users(after) == users(before)
            chat.messages = after
        else:
            assert after == before
    run = chat.say(script({"text": "On."}, say="on")).succeeded()
    assert not run.of("MESSAGES_SNAPSHOT") and not run.of("CUSTOM")
    assert len([text for text in texts_of_users(chat) if '"script"' in text]) == 4
    assert trimmed(history(chat)) == trimmed(chat.messages)
    calls = [made["id"] for message in history(chat) for made in message.get("toolCalls") or ()]
    assert len(calls) == len(set(calls)) == 6


def _stands(chat: Chat, model: GatedModel) -> tuple[Run, str]:
    gate = unique("g")
    run = chat.start(script({"text": f"A part {{gate:{gate}}} and the rest."}, say="in the middle"))
    run.wait_text(gate)
    return run, gate


@pytest.mark.compat
def test_stopped_within_a_turn(make_gateway: Make, model: GatedModel) -> None:
    """Every reader gets an end; the message is there, once, under its id; and it goes on."""
    gateway = make_gateway()
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    run, gate = _stands(chat, model)
    watchers = [Watcher(chat) for _ in range(3)]
    for watcher in watchers:
        watcher.wait(lambda w: gate in json.dumps(w.events), "the text so far")
    gateway.stop()
    chat.keep(run.finish())
    assert run.end["type"] in ("RUN_ERROR", "RUN_FINISHED")
    assert run.end.get("outcome", {}).get("type") != "success"
    for watcher in watchers:
        watcher.end()
        assert watcher.types[-1] == run.end["type"]
        assert watcher.types.count("RUN_STARTED") == 1
    gateway.start()
    model.open_gate(gate)
    idle(chat)  # Hermes may go on with the turn by itself
    assert users(history(chat)) == users(chat.messages)
    chat.messages = history(chat)
    chat.say(script({"text": "After."}, say="after")).succeeded()
    assert json.dumps(texts_of_users(chat)).count("in the middle") == 1
    assert trimmed(history(chat)) == trimmed(chat.messages)


@pytest.mark.compat
@pytest.mark.core
def test_killed_within_a_turn(make_gateway: Make, model: GatedModel) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    before = list(chat.messages)
    run, gate = _stands(chat, model)
    position = str(lines(run.raw)[-1].id)
    gateway.kill()
    wait_until(lambda: run.ended, "the broken stream")
    gateway.start()
    model.open_gate(gate)
    idle(chat)
    sent = chat.messages[-1]["id"]
    assert users(history(chat)) == [*users(before), sent]
    assert rest(chat, position) == []  # its log is gone: a reader starts over
    # The same run again does not run again: it says what became of it.
    requests = len(model.requests)
    again = Run(f"{gateway.url}/agui", run.body, {"Accept": "text/event-stream"}).finish()
    assert again.end["type"] in ("RUN_ERROR", "RUN_FINISHED")
    if again.end["type"] == "RUN_ERROR":
        assert again.end["code"] == "interrupted"
    assert len(model.requests) == requests
    # The user sends the message again (it is known, so it is answered where it stands), or goes on.
    chat.messages = [
        *before,
        {"id": sent, "role": "user", "content": script({"text": "At last."}, say="in the middle")},
    ]
    chat.keep(chat.send().finish()).succeeded()
    assert json.dumps(texts_of_users(chat)).count("in the middle") == 1
    assert trimmed(history(chat)) == trimmed(chat.messages)
    chat.say(script({"text": "On."})).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)
    assert len(users(history(chat))) == 3


def test_killed_within_the_first_turn_of_a_thread(make_gateway: Make, model: GatedModel) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    run, gate = _stands(chat, model)
    gateway.kill()
    wait_until(lambda: run.ended, "the broken stream")
    gateway.start()
    model.open_gate(gate)
    idle(chat)
    assert users(history(chat)) == users(chat.messages)
    chat.messages = history(chat)
    chat.say(script({"text": "On."}, say="on")).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)


def test_killed_while_a_tool_runs(make_gateway: Make, model: GatedModel) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    flag = gateway.work_dir / unique("flag")
    wait = {"command": f"touch {flag.name}.began; until [ -e {flag.name} ]; do sleep 0.05; done"}
    run = chat.start(
        script({"text": "I wait.", "tools": [call("terminal", wait, "c-wait")]}, {"text": "Done."}, say="w")
    )
    wait_until(lambda: flag.with_name(f"{flag.name}.began").exists(), "the tool")
    gateway.kill()
    wait_until(lambda: run.ended, "the broken stream")
    flag.touch()
    gateway.start()
    idle(chat)
    messages = history(chat)
    assert users(messages) == users(chat.messages)
    calls = [made["id"] for message in messages for made in message.get("toolCalls") or ()]
    results = [message["toolCallId"] for message in messages if message["role"] == "tool"]
    assert sorted(calls) == sorted(results)  # whatever was kept of it is whole
    chat.messages = messages
    chat.say(script({"text": "On."}, say="on")).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)


@pytest.mark.compat
def test_what_was_accepted_is_known_after_a_restart(make_gateway: Make, model: GatedModel) -> None:
    """Messages that were answered are not input again, also with the index gone: then Hermes's rows name them.

    No snapshot has reasoning in it, so that each client keeps its own: here the old client's has the old ids.
    """
    gateway = make_gateway()
    chat = Chat(gateway)
    chat.messages = [{"id": f"u{number}", "role": "user", "content": f"part {number}"} for number in range(3)]
    chat.keep(chat.send().finish()).succeeded()
    restarted(gateway)
    requests = len(model.requests)
    refused = chat.send().finish()  # nothing new
    assert refused.status == 400 and refused.problem()["code"] == "no_input"
    assert len(model.requests) == requests
    chat.say(script({"text": "On."})).succeeded()
    assert sum("part 0" in str(message["content"]) for message in model.requests[-1]["messages"]) == 1
    gateway.stop()
    for path in gateway.home.glob("agui.db*"):
        path.unlink()
    gateway.start()
    window = Chat(gateway, thread=chat.thread)  # the client's ids are forgotten; it is told those of the rows
    run = window.say(script({"text": "Anew."})).succeeded()
    assert run.of("MESSAGES_SNAPSHOT")
    assert _said(history(window)) == _said(window.messages)
    assert sum("part 0" in str(message["content"]) for message in model.requests[-1]["messages"]) == 1
    chat.say(script({"text": "And the old client."})).succeeded()
    assert _said(history(chat)) == _said(chat.messages)


def _said(messages: list[Message]) -> list[Message]:
    return without_reasoning(trimmed(messages))


def test_lists_and_hostile_ids_survive(make_gateway: Make) -> None:
    gateway = make_gateway()
    chats = [Chat(gateway, thread=f"{name}{unique()}") for name in ("a/b", "🧵", "agent:main:telegram:dm:1", "x" * 900)]
    for number, chat in enumerate(chats):
        chat.say(script({"text": f"Answer {number}."})).succeeded()
    response = request(chats[0], "PATCH", "/agui/threads/" + _quoted(chats[0].thread), json={"title": "First"})
    assert response.status_code == 200, response.text
    restarted(gateway)
    listed = httpx.get(f"{gateway.url}/agui/threads", trust_env=False).json()["threads"]
    assert [one["threadId"] for one in listed] == [chat.thread for chat in reversed(chats)]
    assert listed[-1]["title"] == "First"
    for chat in chats:
        chat.say(script({"text": "Again."})).succeeded()
        found = httpx.get(f"{gateway.url}/agui/threads/{_quoted(chat.thread)}", trust_env=False).json()
        assert found["threadId"] == chat.thread
        assert trimmed(found["messages"]) == trimmed(chat.messages)


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def test_many_threads_within_turns(make_gateway: Make, model: GatedModel) -> None:
    gateway = make_gateway()
    chats = [Chat(gateway) for _ in range(8)]
    for number, chat in enumerate(chats):
        chat.say(script({"text": "Before."}, say=f"b{number}")).succeeded()
    stands = [_stands(chat, model) for chat in chats]
    gateway.kill()
    gateway.start()
    for (run, gate), chat in zip(stands, chats, strict=True):
        wait_until(lambda run=run: run.ended, "the broken stream")
        model.open_gate(gate)
        idle(chat)
        assert users(history(chat)) == users(chat.messages)
        assert thread_of(chat)["status"] == "idle"
    for chat in chats:
        chat.messages = history(chat)
        chat.say(script({"text": "On."}, say="on")).succeeded()
        assert trimmed(history(chat)) == trimmed(chat.messages)
        assert json.dumps(texts_of_users(chat)).count("in the middle") == 1
