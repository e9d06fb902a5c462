"""History over HTTP: the list of threads, and a thread's messages equal to what its client holds, whatever happened."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import history, idle, request, rest, thread_of, trimmed
from tests.e2e.helpers import Chat, GatedModel, Message, call, query, script, unique, wait_until

KEY = "an-operators-key-of-thirty-two-ch"


def same(chat: Chat) -> dict[str, Any]:
    """The thread has exactly what its client holds: ids, order, contents."""
    thread = thread_of(chat)
    assert trimmed(thread["messages"]) == trimmed(chat.messages)
    return thread


@pytest.fixture(scope="module")
def own(model: GatedModel) -> Iterator[Gateway]:
    """A gateway for lists: nobody else's threads, and an operator's key."""
    with Gateway(model, env={"AGUI_API_KEY": KEY}) as running:
        yield running


def listed(gateway: Gateway, key: str | None = None, **query: Any) -> dict[str, Any]:
    response = request(Chat(gateway, key=key), "GET", "/agui/threads", params=query)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


# --- one thread


def test_text_tools_and_reasoning(gateway: Gateway) -> None:
    chat = Chat(gateway)
    chat.say(script({"reasoning": "Let me think.", "text": "First answer."})).succeeded()
    step = {
        "reasoning": "Two things.",
        "text": "I do two things.",
        "tools": [call("terminal", {"command": "echo one"}), call("read_file", {"path": "no.such"})],
    }
    chat.say(script(step, {"tools": [call("summon_dragon", {})]}, {"reasoning": "Well.", "text": "Done."})).succeeded()
    thread = same(chat)
    assert [message["role"] for message in thread["messages"]] == [
        *("user", "reasoning", "assistant"),
        *("user", "reasoning", "assistant", "tool", "tool", "assistant", "tool", "reasoning", "assistant"),
    ]
    assert thread["status"] == "idle" and thread["turn"] is None and thread["requests"] == []
    assert thread["usage"]


def test_ids_that_a_provider_repeats_or_omits(gateway: Gateway) -> None:
    chat = Chat(gateway)
    for _ in range(2):  # and again in the next turn
        step = {"tools": [call("terminal", {"command": "echo a"}, "same"), call("read_file", {"path": "x"}, "same")]}
        steps = (step, {"tools": [call("terminal", {"command": "echo b"}, None)]}, {"text": "Done."})
        chat.say(script(*steps)).succeeded()
        thread = same(chat)
    calls = [made["id"] for message in thread["messages"] for made in message.get("toolCalls") or ()]
    assert len(calls) == len(set(calls)) == 6
    assert not any("no result" in message["content"] for message in thread["messages"] if message["role"] == "tool")


def test_a_bridged_tool_shows_the_tool_that_it_reaches(gateway: Gateway) -> None:
    chat = Chat(gateway)
    bridge = call("tool_call", {"name": "probe_echo", "arguments": {"word": "hi"}})
    chat.say(script({"tools": [bridge]}, {"text": "Echoed."})).succeeded()
    (made,) = [made for message in same(chat)["messages"] for made in message.get("toolCalls") or ()]
    assert made["function"] == {"name": "probe_echo", "arguments": '{"word": "hi"}'}


@pytest.mark.parametrize(
    "steps",
    [
        ({"text": "Please APPEND something."},),
        ({"text": "Please REPLACE this."},),
        ({"text": "Half of an ", "finish": "length"}, {"text": "answer."}),
        ({"text": "one two three four", "cut": 10, "times": 1}, {"text": "five"}),
        ({"text": "I look. ", "tools": [call("terminal", {"command": "ls"})], "cut": 20, "times": 1}, {"text": "S."}),
        ({"text": "<think>hidden</think>Visible"},),
        ({"text": "\n\n  spaces around  \n\n"},),
        ({"tools": [call("terminal", {"command": "echo x"})]}, {"text": ""}, {"text": "After an empty answer."}),
        ({"tools": [call("terminal", '{"command": "ec{broken:1}ho x"}')]}, {"text": "Repaired."}),
        ({"text": "All at once.", "nostream": True},),
    ],
    ids=["append", "replace", "length", "cut", "cut-call", "think", "spaces", "empty", "broken", "nostream"],
)  # fmt: skip
def test_what_the_history_keeps_otherwise_is_shown_as_it_was_said(gateway: Gateway, steps: Any) -> None:
    chat = Chat(gateway)
    chat.say(script(*steps)).succeeded()
    same(chat)
    chat.say(script({"text": "Next."})).succeeded()
    same(chat)


def test_commands_and_failures(gateway: Gateway) -> None:
    chat = Chat(gateway)
    chat.say("/help").succeeded()
    same(chat)
    chat.say(script({"text": "Between."})).succeeded()
    chat.say("/status").succeeded()
    chat.say(script({"status": 401, "message": "no such key"}, say="x")).failed("provider_auth")
    same(chat)
    chat.say(script({"text": "After."})).succeeded()
    assert [message["role"] for message in same(chat)["messages"]] == [
        *("user", "assistant", "user", "assistant", "user", "assistant", "user", "user", "assistant")
    ]


def test_a_stopped_turn(gateway: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(gateway), unique("g")
    run = chat.start(script({"text": f"A part {{gate:{gate}}} and the rest."}))
    run.wait_text(gate)
    assert request(chat, "POST", "/stop").json()["stopped"] is True
    chat.keep(run.finish())
    model.open_gate(gate)
    same(chat)
    assert not any("nterrupted" in str(message.get("content")) for message in history(chat))
    chat.say(script({"text": "After."})).succeeded()
    same(chat)


def test_a_turn_that_runs(gateway: Gateway, model: GatedModel) -> None:
    """What GET gives and what comes behind its `lastEventId` make the whole, wherever the turn is."""
    chat, gates = Chat(gateway), [unique("g") for _ in range(3)]
    chat.say(script({"text": "Before."})).succeeded()
    steps = (
        {"reasoning": f"Hm {{gate:{gates[0]}}} hm.", "text": f"I {{gate:{gates[1]}}} look.",
         "tools": [call("terminal", {"command": "echo x"})]},
        {"reasoning": "Well.", "text": f"All {{gate:{gates[2]}}} done."},
    )  # fmt: skip
    run = chat.start(script(*steps))
    sent = list(chat.messages)
    seen = []
    for gate, where in zip(gates, (run.reasoning, run.text, run.text), strict=True):
        wait_until(lambda gate=gate, where=where: gate in where(), "the gate")
        thread = thread_of(chat)
        assert thread["status"] == "running"
        assert thread["messages"][: len(sent)] == sent
        seen.append(thread)
        model.open_gate(gate)
    chat.keep(run.finish().succeeded())
    final = same(chat)["messages"]
    for thread in seen:
        assert _with_rest(thread["messages"], chat, thread["turn"]["lastEventId"]) == trimmed(final)


def _with_rest(messages: list[Message], chat: Chat, after: str) -> list[Message]:
    """A page's reducer: messages, and the events behind them applied one by one."""
    held = [dict(message) for message in messages]
    by_id = {message["id"]: message for message in held}
    for line in rest(chat, after):
        event = line.event
        kind, message_id = event["type"], event.get("messageId", "")
        if kind in ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START"):
            by_id[message_id] = {"id": message_id, "role": event["role"], "content": ""}
            held.append(by_id[message_id])
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            by_id[message_id]["content"] = by_id[message_id].get("content", "") + event["delta"]
        elif kind == "TOOL_CALL_START":
            made = {"id": event["toolCallId"], "type": "function", "function": {"name": event["toolCallName"]}}
            by_id[event["parentMessageId"]].setdefault("toolCalls", []).append(made)
            by_id[event["toolCallId"]] = made
        elif kind == "TOOL_CALL_ARGS":
            by_id[event["toolCallId"]]["function"]["arguments"] = event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            held.append({"id": message_id, "role": "tool"} | {key: event[key] for key in ("toolCallId", "content")})
        else:
            assert kind != "MESSAGES_SNAPSHOT"
    return trimmed(held)


def test_looking_while_turns_come_and_go(gateway: Gateway) -> None:
    """A turn's end, its record and a look at it may meet in any order: nothing is ever there twice, or missing."""
    chat, stop = Chat(gateway), threading.Event()
    looks: list[list[str]] = []

    def look() -> None:
        while not stop.is_set():
            looks.append([message["id"] for message in history(chat)])

    chat.say(script({"text": "First."})).succeeded()
    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for number in range(8):
            step = {"text": f"Look {number}.", "tools": [call("terminal", {"command": f"echo {number}"})]}
            chat.say(script(step, {"text": f"Answer {number}."}, say=str(number))).succeeded()
            same(chat)
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    whole = [message["id"] for message in chat.messages]
    assert len(looks) > 20
    for ids in looks:
        assert ids == whole[: len(ids)]


TOOL = {"name": "get_color", "description": "The colour of the page.", "parameters": {"type": "object"}}


def test_a_turn_that_waits_for_the_clients_own_tools(gateway: Gateway) -> None:
    chat = Chat(gateway)
    step = {"text": "I ask the page.", "tools": [call("get_color", {}), call("get_color", {"again": True})]}
    run = chat.say(script(step, {"text": "It is red."}), tools=[TOOL])
    thread = same(chat)
    assert thread["status"] == "parked"
    assert [asked["kind"] for asked in thread["requests"]] == ["client_tool"] * 2
    for call_id in run.calls():
        chat.messages.append(
            {"id": unique("answer"), "role": "tool", "toolCallId": call_id, "content": f"red {call_id}"}
        )
    chat.keep(chat.send(tools=[TOOL]).finish()).succeeded()
    thread = same(chat)
    assert thread["status"] == "idle" and thread["requests"] == []
    assert history(chat)[2]["id"].startswith("answer-")  # the client's own message


def test_a_turn_that_waits_for_an_approval(gateway: Gateway) -> None:
    chat = Chat(gateway)
    target = gateway.work_dir / unique("dir")
    target.mkdir()
    run = chat.say(script({"text": "I remove it.", "tools": [call("terminal", {"command": f"rm -r {target.name}"})]}))
    (asked,) = run.end["outcome"]["interrupts"]
    thread = same(chat)
    assert thread["status"] == "parked"
    assert [one["id"] for one in thread["requests"]] == [asked["id"]]
    resume = [{"interruptId": asked["id"], "status": "resolved", "payload": {"choice": "once"}}]
    chat.keep(chat.send(resume=resume).finish()).succeeded()
    assert not target.exists()
    same(chat)


def test_an_answer_that_was_typed_stays_in_sight(gateway: Gateway) -> None:
    """It went to the agent as a tool's result; what the user wrote is shown all the same, and nobody is corrected."""
    chat = Chat(gateway)
    ask = {"tools": [call("clarify", {"question": "Which?", "choices": ["a", "b"]})]}
    chat.say(script(ask, {"reasoning": "b, then.", "text": "I take b."}))
    assert same(chat)["status"] == "parked"
    chat.say("b, please").succeeded()
    assert "b, please" in [message["content"] for message in same(chat)["messages"] if message["role"] == "user"]
    run = chat.say(script({"text": "On."})).succeeded()
    assert not run.of("MESSAGES_SNAPSHOT")
    same(chat)


def test_what_the_operator_hides_is_hidden_in_the_past_too(make_gateway: Callable[..., Gateway]) -> None:
    look = {"reasoning": "secret thought", "text": "I look.", "tools": [call("terminal", {"command": "echo s3cr3t"})]}
    steps = (look, {"text": "Done."})
    for setting in ("names", "off"):
        gateway = make_gateway(agui={"tool_output": setting, "reasoning": "off"})
        chat = Chat(gateway)
        chat.say(script(*steps)).succeeded()
        thread = same(chat)
        shown = json.dumps(thread["messages"][1:])
        assert "s3cr3t" not in shown and "secret thought" not in shown
        assert ("terminal" in shown) is (setting == "names")
        other = Chat(gateway, thread=chat.thread)  # its next run is told the past
        run = other.say(script({"text": "More."})).succeeded()
        told = json.dumps([event["messages"][1:] for event in run.of("MESSAGES_SNAPSHOT")])
        assert "I look." in told and "s3cr3t" not in told
        gateway.close()


def test_ids_are_the_same_after_a_restart(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    step = {"reasoning": "Hm.", "text": "I look.", "tools": [call("terminal", {"command": "echo x"}, "same")] * 2}
    chat.say(script(step, {"text": "Done."})).succeeded()
    chat.say("/help").succeeded()
    before = same(chat)["messages"]
    gateway.stop()
    gateway.start()
    assert history(chat) == before
    run = chat.say(script({"text": "Next."})).succeeded()
    assert not run.of("MESSAGES_SNAPSHOT")  # nothing to tell it
    same(chat)


def test_a_foreign_thread_is_one_that_does_not_exist(own: Gateway) -> None:
    chat = Chat(own)
    chat.say(script({"text": "Mine."})).succeeded()
    stranger, nobody = Chat(own, thread=chat.thread, key=KEY), Chat(own, thread=unique("never"), key=KEY)
    for method, path in (
        ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/events"), ("POST", "/stop"), ("POST", "/steer"),
        ("POST", "/requests/approval-1"),
    ):  # fmt: skip
        body = {"title": "x", "text": "x"} if method in ("PATCH", "POST") else None
        refused, absent = (request(one, method, path, json=body) for one in (stranger, nobody))
        assert refused.status_code == absent.status_code == 404, (method, path)
        assert refused.json() == absent.json()
    same(chat)


# --- compaction


def _long(chat: Chat, turns: int = 8) -> list[str]:
    """A conversation with something to sum up. Every second turn says the same; one has a tool."""
    answers = []
    for number in range(turns):
        answers.append(f"Answer {number}.")
        tools = {"tools": [call("terminal", {"command": f"echo {number}"})]}
        steps = [tools, {"text": answers[-1]}] if number == 2 else [{"text": answers[-1]}]
        chat.say(script(*steps, say="the same again" if number % 2 else f"turn {number}")).succeeded()
    return answers


COMPRESSION = {"protect_first_n": 1, "protect_last_n": 2, "threshold": 0.5}


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "rotating"])
def test_compaction_shows_everything_once(
    model: GatedModel, make_gateway: Callable[..., Gateway], in_place: bool
) -> None:
    gateway = make_gateway(config={"compression": COMPRESSION | {"in_place": in_place}})
    chat = Chat(gateway)
    answers = _long(chat)
    for _ in range(2):
        before = same(chat)["messages"]
        reply = chat.say("/compress").succeeded().text()
        assert "ompress" in reply
        summaries = _summaries(chat)
        assert summaries, f"nothing was summed up: {reply}"
        assert trimmed(history(chat)) == trimmed([*before, *chat.messages[-2:]])
        chat.say(script({"text": "Answer 1."}, say="the same again")).succeeded()  # as was said before
        same(chat)
        last = json.dumps(model.requests[-1]["messages"])
        assert "CONTEXT COMPACTION" in last
        assert any(answer not in last for answer in answers), "the model has all of it still"
        _long(chat, 4)
        same(chat)
    assert (len(chat.sessions()) == 1) is in_place
    shown = json.dumps(history(chat))
    assert "CONTEXT COMPACTION" not in shown and "Summary" not in shown
    gateway.stop()
    gateway.start()
    same(chat)


def _summaries(chat: Chat) -> list[Any]:
    marks = ",".join("?" * len(chat.sessions()))
    sql = (
        f"SELECT id FROM messages WHERE session_id IN ({marks}) AND content LIKE '%CONTEXT COMPACTION%' AND active = 1"
    )
    return query(chat.gateway, sql, *chat.sessions())


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "rotating"])
def test_regenerating_and_editing_behind_a_compaction(
    model: GatedModel, make_gateway: Callable[..., Gateway], in_place: bool
) -> None:
    gateway = make_gateway(config={"compression": COMPRESSION | {"in_place": in_place}})
    chat = Chat(gateway)
    _long(chat)
    whole = list(chat.messages)
    chat.say("/compress").succeeded()
    command = chat.messages[-2:]
    # The last turn is in the agent's memory as a copy: it can be answered again.
    users = [index for index, message in enumerate(whole) if message["role"] == "user"]
    chat.messages = whole[: users[-1] + 1]
    run = chat.keep(chat.send().finish()).succeeded()
    assert [event["name"] for event in run.of("CUSTOM")] == ["hermes.rewound"]
    same(chat)
    assert command[0] not in history(chat)
    # The middle is in no memory any more.
    chat.messages = whole[: users[3] + 1]
    refused = chat.send().finish()
    assert refused.status == 409 and refused.problem()["code"] == "cannot_rewind"
    assert "new thread" in refused.problem()["detail"]
    chat.messages = trimmed(history(chat))
    chat.say(script({"text": "On it goes."})).succeeded()
    same(chat)


def test_compaction_in_the_middle_of_a_turn(model: GatedModel, make_gateway: Callable[..., Gateway]) -> None:
    """A turn that outgrows the context is compacted while it runs; its own messages are shown once, and so are all."""
    gateway = make_gateway(config={"model": {"context_length": 64_000}, "compression": COMPRESSION})
    chat = Chat(gateway)
    for number in range(8):
        chat.say(script({"text": f"Answer {number}. " + "x" * 8000}, say="the same again")).succeeded()
    usage = {"prompt_tokens": 60_000, "completion_tokens": 10, "total_tokens": 60_010}
    tool = {"text": "I look.", "tools": [call("terminal", {"command": "echo big"})], "usage": usage}
    chat.say(script(tool, tool, {"text": "Done."}, say="the big one")).succeeded()
    wait_until(lambda: _summaries(chat), "a compaction")
    same(chat)
    chat.say(script({"text": "Next."})).succeeded()
    same(chat)


# --- the list


def test_the_list(own: Gateway, model: GatedModel) -> None:
    for one in listed(own)["threads"]:
        request(Chat(own, thread=one["threadId"]), "DELETE")
    chats = [Chat(own) for _ in range(5)]
    words = [unique("word").replace("-", "") for _ in chats]
    for chat, word in zip(chats, words, strict=True):
        chat.say(script({"text": f"Hello {word}."})).succeeded()
        time.sleep(0.01)  # times of their own
    whole = listed(own)
    assert whole["total"] == 5 and whole["next"] is None
    assert [one["threadId"] for one in whole["threads"]] == [chat.thread for chat in reversed(chats)]
    first = whole["threads"][0]
    assert first["status"] == "idle" and first["messageCount"] == 2 and first["archived"] is False
    now = time.time() * 1000
    assert all(now - 600_000 < one["createdAt"] <= one["updatedAt"] <= now + 1000 for one in whole["threads"])

    # pages, with a thread that moves to the front between two of them
    page = listed(own, limit=2)
    assert [one["threadId"] for one in page["threads"]] == [chats[4].thread, chats[3].thread]
    seen = [one["threadId"] for one in page["threads"]]
    chats[0].say(script({"text": "In front."})).succeeded()
    while page["next"] is not None:
        page = listed(own, limit=2, before=page["next"])
        seen += [one["threadId"] for one in page["threads"]]
    assert len(seen) == len(set(seen)) and set(seen) | {chats[0].thread} == {chat.thread for chat in chats}
    assert listed(own)["threads"][0]["threadId"] == chats[0].thread

    # search: by message, by title, by odd words
    assert [one["threadId"] for one in listed(own, q=words[2])["threads"]] == [chats[2].thread]
    assert listed(own, q=words[2].upper())["total"] == 1
    assert request(chats[3], "PATCH", json={"title": "Of elephants"}).json()["title"] == "Of elephants"
    assert [one["threadId"] for one in listed(own, q="elephant")["threads"]] == [chats[3].thread]
    for odd in ('"', "'", "*", "(", "a AND", "-", "NEAR(", "%", "ü", "\\", ":", "x" * 500):
        assert listed(own, q=odd)["total"] >= 0
    assert listed(own, q="nobody-said-this")["total"] == 0

    # renamed and put aside, also for the next start
    assert request(chats[1], "PATCH", json={"archived": True}).json()["archived"] is True
    assert chats[1].thread not in [one["threadId"] for one in listed(own)["threads"]]
    assert [one["threadId"] for one in listed(own, archived=1)["threads"]] == [chats[1].thread]
    assert thread_of(chats[1])["archived"] is True
    request(chats[1], "PATCH", json={"archived": False})
    assert listed(own)["total"] == 5

    # another principal has its own
    owner = Chat(own, key=KEY)
    owner.say(script({"text": f"Hello {words[0]}."})).succeeded()
    assert [one["threadId"] for one in listed(own, key=KEY)["threads"]] == [owner.thread]
    assert [one["threadId"] for one in listed(own, key=KEY, q=words[0])["threads"]] == [owner.thread]
    assert owner.thread not in [one["threadId"] for one in listed(own)["threads"]]

    # deleted: from here, from Hermes, and from nobody else
    assert request(chats[2], "DELETE").json()["deleted"] is True
    assert request(chats[2], "GET").status_code == 404
    assert listed(own)["total"] == 4
    assert query(own, "SELECT COUNT(*) FROM messages WHERE content LIKE ?", f"%{words[2]}%") == [(0,)]
    again = Chat(own, thread=chats[2].thread)
    again.say(script({"text": "Quite new."})).succeeded()
    assert [message["role"] for message in same(again)["messages"]] == ["user", "assistant"]
    assert words[2] not in json.dumps(model.requests[-1])


def test_the_list_says_what_runs_and_what_waits(own: Gateway, model: GatedModel) -> None:
    gate = unique("g")
    running, waiting = Chat(own), Chat(own)
    run = running.start(script({"text": f"On {{gate:{gate}}} it."}))
    run.wait_text(gate)
    waiting.say(script({"tools": [call("clarify", {"question": "Which?", "choices": ["a", "b"]})]}))
    status = {one["threadId"]: one["status"] for one in listed(own)["threads"]}
    assert (status[running.thread], status[waiting.thread]) == ("running", "parked")
    model.open_gate(gate)
    run.finish().succeeded()
    request(waiting, "POST", "/stop")
    idle(waiting)


@pytest.mark.parametrize(
    "params", [{"limit": "0x"}, {"limit": "-1"}, {"limit": "201"}, {"before": "x"}, {"limit": "1.5"}, {"limit": "²"}]
)
def test_wrong_pages_are_refused(own: Gateway, params: dict[str, str]) -> None:
    response = request(Chat(own), "GET", "/agui/threads", params=params)
    assert response.status_code == 422 and response.json()["code"] == "invalid_input"


# --- long threads


def test_two_thousand_messages(own: Gateway, model: GatedModel) -> None:
    """Served within a sane time, and others are served meanwhile."""
    chat, other = Chat(own), Chat(own)
    other.say(script({"text": "Warm."})).succeeded()
    for number in range(1000):
        chat.messages.append({"id": f"u{number}", "role": "user", "content": f"question {number}"})
        chat.messages.append({"id": f"a{number}", "role": "assistant", "content": f"answer {number} " + "x" * 500})
    chat.say(script({"text": "That was long."})).succeeded()
    assert len(history(chat)) == 2002
    began = time.monotonic()
    same(chat)
    assert time.monotonic() - began < 5
    began = time.monotonic()
    chat.say(script({"text": "And on."})).succeeded()
    assert time.monotonic() - began < 10
    # The loop lives while such threads are read: health answers in between.
    threads = [threading.Thread(target=history, args=(chat,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert httpx.get(f"{own.url}/health", trust_env=False).status_code == 200
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 2.5
