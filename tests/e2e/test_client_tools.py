"""Tools that the client executes: offered on one thread, announced with the model's ids, answered by a later run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests import clients
from tests.e2e.asking import (
    COLOR,
    answer_by_route,
    asks_client,
    deletes,
    give,
    idle,
    interrupt,
    open_requests,
    pending,
    requests_of,
    resume,
    state,
    tool_messages,
    victim,
)
from tests.e2e.attach import history, trimmed
from tests.e2e.dialect import todo_name
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique, wait_until

TOOLS = [COLOR]
NAME = COLOR["name"]


def names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request["tools"]]


def ids(count: int) -> list[str]:
    return [unique("k") for _ in range(count)]


# --- the cycle


@pytest.mark.compat
@pytest.mark.core
def test_a_call_is_the_end_of_the_run_and_its_answer_goes_on(chat: Chat, model: GatedModel) -> None:
    (one,) = ids(1)
    run = chat.say(asks_client(one), tools=TOOLS)
    assert pending(run) == [one]
    assert run.calls() == {one: (NAME, json.dumps({"q": one}))}
    assert run.results() == {}
    assert state(chat)["status"] == "parked"
    (asked,) = open_requests(chat)
    assert asked["kind"] == "client_tool" and asked["toolCallId"] == one and asked["expiresAt"]

    run = give(chat, (one, "it is green")).succeeded()
    assert "TOOL_CALL_START" not in run.types and run.results() == {}
    assert run.text() == "The end."
    # Exactly one tool message a call, with what the client sent, word for word.
    assert tool_messages(requests_of(model, one)[-1]) == {one: "it is green"}
    chat.assert_as_transcript()
    idle(chat)


@pytest.mark.parametrize("reverse", [False, True])
def test_several_calls_answered_together(chat: Chat, model: GatedModel, reverse: bool) -> None:
    made = ids(3)
    run = chat.say(asks_client(*made), tools=TOOLS)
    assert pending(run) == made and list(run.calls()) == made
    answers = [(one, f"answer {one}") for one in made]
    give(chat, *(answers[::-1] if reverse else answers)).succeeded()
    assert tool_messages(requests_of(model, made[0])[-1]) == dict(answers)
    assert len(requests_of(model, made[0])) == 2
    chat.assert_as_transcript()


@pytest.mark.compat
@pytest.mark.core
def test_several_calls_answered_one_by_one_in_any_order(chat: Chat, model: GatedModel) -> None:
    made = ids(3)
    chat.say(asks_client(*made), tools=TOOLS)
    assert pending(give(chat, (made[2], "third"))) == made[:2]
    assert pending(give(chat, (made[0], "first"))) == [made[1]]
    assert len(requests_of(model, made[0])) == 1  # the model waits for all of them
    run = give(chat, (made[1], "second")).succeeded()
    assert run.text() == "The end."
    assert tool_messages(requests_of(model, made[0])[-1]) == {made[0]: "first", made[1]: "second", made[2]: "third"}
    chat.assert_as_transcript()


@pytest.mark.compat
def test_a_step_after_the_answer_may_ask_again(chat: Chat, model: GatedModel) -> None:
    one, two = ids(2)
    steps = [{"text": f"step {name}", "tools": [call(NAME, {"q": name}, name)]} for name in (one, two)]
    assert pending(chat.say(script(*steps, {"text": "The end."}), tools=TOOLS)) == [one]
    run = give(chat, (one, "1"))
    assert pending(run) == [two] and run.text() == f"step {two}"
    run = give(chat, (two, "2")).succeeded()
    assert tool_messages(requests_of(model, one)[-1]) == {one: "1", two: "2"}
    chat.assert_as_transcript()


def test_a_failure_behind_the_answer_offers_the_call_no_more(chat: Chat, model: GatedModel) -> None:
    """A client that got an error must not run its tool again; nor does one that sends the same answer again."""
    (one,) = ids(1)
    steps = ({"tools": [call(NAME, {"q": one}, one)]}, {"status": 401, "message": "no"})
    assert pending(chat.say(script(*steps), tools=TOOLS)) == [one]
    run = give(chat, (one, "green"))
    run.failed("provider_auth")
    assert "TOOL_CALL_START" not in run.types and open_requests(chat) == []
    made = len(requests_of(model, one))
    for _ in range(2):
        again = chat.send(tools=TOOLS).finish()
        assert "TOOL_CALL_START" not in again.raw.decode() and "pendingToolCallIds" not in again.raw.decode()
    assert len(requests_of(model, one)) == made
    # The thread goes on, and the model has the call with its answer, once.
    after = script({"text": "Well again."}, say=one)
    assert chat.say(after, tools=TOOLS).succeeded().text() == "Well again."
    assert tool_messages(requests_of(model, one)[-1]) == {one: "green"}


def test_a_call_has_one_id_in_its_events_and_in_a_snapshot(chat: Chat, model: GatedModel) -> None:
    """A step that Hermes asked for again ends with a snapshot; a client that took its call for another would run it
    twice."""
    (one,) = ids(1)
    broken = call(NAME, '{"q": "{broken:1}whole"}', one)
    run = chat.say(script({"text": "I ask.", "tools": [broken]}, {"text": "The end."}), tools=TOOLS)
    assert pending(run) == [one] and list(run.calls()) == [one]
    (snapshot,) = run.of("MESSAGES_SNAPSHOT")
    told = [made["id"] for message in snapshot["messages"] for made in message.get("toolCalls") or ()]
    assert told == [one] and run.types.index("TOOL_CALL_END") < run.types.index("MESSAGES_SNAPSHOT")
    give(chat, (one, "green")).succeeded()
    assert tool_messages(requests_of(model, one)[-1]) == {one: "green"}
    chat.assert_as_transcript()


# --- mixed steps


@pytest.mark.compat
def test_server_calls_before_a_client_call_have_streamed_their_results(chat: Chat, model: GatedModel) -> None:
    server, client = ids(2)
    calls = [call("terminal", {"command": "echo before"}, server), call(NAME, {"q": "x"}, client)]
    run = chat.say(script({"tools": calls}, {"text": "The end."}), tools=TOOLS)
    assert list(run.calls()) == [server, client]
    assert "before" in run.results()[server]
    assert pending(run) == [client]
    give(chat, (client, "red")).succeeded()
    received = tool_messages(requests_of(model, client)[-1])
    assert "before" in received[server] and received[client] == "red"
    chat.assert_as_transcript()


@pytest.mark.compat
def test_server_calls_behind_a_client_call_run_after_its_answer(
    gateway: Gateway, chat: Chat, model: GatedModel
) -> None:
    client, server = ids(2)
    proof = gateway.work_dir / unique("proof")
    calls = [call(NAME, {"q": "x"}, client), call("terminal", {"command": f"echo ran >> {proof}; echo after"}, server)]
    run = chat.say(script({"tools": calls}, {"text": "The end."}), tools=TOOLS)
    assert pending(run) == [client]
    assert not proof.exists()
    run = give(chat, (client, "red")).succeeded()
    assert proof.read_text() == "ran\n"
    assert list(run.calls()) == [server] and "after" in run.results()[server]
    received = tool_messages(requests_of(model, client)[-1])
    assert received[client] == "red" and "after" in received[server]
    assert len(received) == 2


def test_both_orders_at_once(chat: Chat, model: GatedModel) -> None:
    a, b, c, d = ids(4)
    calls = [
        call("terminal", {"command": "echo one"}, a),
        call(NAME, {"q": "x"}, b),
        call("read_file", {"path": "no-such-file"}, c),
        call(NAME, {"q": "y"}, d),
    ]
    run = chat.say(script({"tools": calls}, {"text": "The end."}), tools=TOOLS)
    assert pending(run) == [b, d]
    assert list(run.results()) == [a]
    run = give(chat, (b, "red"))  # the read runs now, then the second client call is waited for
    assert pending(run) == [d]
    run = give(chat, (d, "blue")).succeeded()
    received = tool_messages(requests_of(model, b)[-1])
    assert list(received) == [a, b, c, d]
    assert received[b] == "red" and received[d] == "blue"
    # The client holds one step, as Hermes does, though its parts came in three runs.
    (step,) = [one for one in chat.messages if one.get("toolCalls")]
    assert {one["id"] for one in step["toolCalls"]} == {a, b, c, d}
    assert [one["role"] for one in chat.messages] == ["user", "assistant", *["tool"] * 4, "assistant"]
    chat.say("and then?", tools=TOOLS).succeeded()
    assert tool_messages(requests_of(model, b)[-1]) == received


@pytest.mark.compat
@pytest.mark.core
def test_an_approval_and_a_client_call_in_one_step(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    client, server = ids(2)
    folder = victim(gateway)
    calls = [call(NAME, {"q": "x"}, client), call("terminal", {"command": f"rm -rf {folder}"}, server)]
    run = chat.say(script({"tools": calls}, {"text": "The end."}), tools=TOOLS)
    assert pending(run) == [client]
    run = give(chat, (client, "red"))
    asked = interrupt(run)
    assert asked["toolCallId"] == server and folder.exists()
    run = resume(chat, (asked["id"], {"choice": "once"}), tools=TOOLS).succeeded()
    assert not folder.exists()
    assert tool_messages(requests_of(model, client)[-1])[client] == "red"


def test_an_approval_before_a_client_call(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    """The run that asks for the approval announces the client's call too, and both may be answered at once."""
    server, client = ids(2)
    folder = victim(gateway)
    calls = [call("terminal", {"command": f"rm -rf {folder}"}, server), call(NAME, {"q": "x"}, client)]
    run = chat.say(script({"tools": calls}, {"text": "The end."}), tools=TOOLS)
    asked = interrupt(run)
    assert list(run.calls()) == [server, client]
    run = give(chat, (client, "red"), resume=[{"interruptId": asked["id"], "status": "resolved", "payload": True}])
    run.succeeded()
    assert not folder.exists()
    received = tool_messages(requests_of(model, client)[-1])
    assert received[client] == "red" and set(received) == {server, client}
    chat.assert_as_transcript()


# --- what the client gives


@pytest.mark.compat
def test_an_error_reaches_the_model(chat: Chat, model: GatedModel) -> None:
    (one,) = ids(1)
    chat.say(asks_client(one), tools=TOOLS)
    give(chat, (one, "half of it"), error="the user said no").succeeded()
    received = json.loads(tool_messages(requests_of(model, one)[-1])[one])
    assert received == {"error": "the user said no", "content": "half of it"}
    assert trimmed(history(chat)) == trimmed(chat.messages)  # a reload shows it as it was sent


def test_parts_reach_the_model(chat: Chat, model: GatedModel) -> None:
    (one,) = ids(1)
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    chat.say(asks_client(one), tools=TOOLS)
    parts = [
        {"type": "text", "text": "look at this"},
        {"type": "image", "source": {"type": "data", "value": pixel, "mimeType": "image/png"}},
    ]
    give(chat, (one, parts)).succeeded()
    received = json.dumps(requests_of(model, one)[-1]["messages"])
    assert "look at this" in received
    # A model that takes images gets it, another one its text: Hermes decides by the model.
    assert received.count("look at this") == 1


def test_parts_are_shown_as_they_were_sent(chat: Chat) -> None:
    (one,) = ids(1)
    chat.say(asks_client(one), tools=TOOLS)
    parts = [
        {"type": "text", "text": "look at this"},
        {"type": "image", "source": {"type": "url", "value": "https://pictures.example/a.png"}},
    ]
    give(chat, (one, parts)).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)
    assert not chat.say(script({"text": "On."})).succeeded().of("MESSAGES_SNAPSHOT")


@pytest.mark.parametrize("content", ["", " ", "é🌐\u2028\n\t:", " a\n\n b\n", "x" * 20_000, '{"a": [1, 2]}'])
def test_content_is_given_word_for_word(chat: Chat, model: GatedModel, content: str) -> None:
    (one,) = ids(1)
    chat.say(asks_client(one), tools=TOOLS)
    give(chat, (one, content)).succeeded()
    assert next(m["content"] for m in chat.transcript() if m["role"] == "tool") == content
    # Hermes strips the outer blanks of every message that it sends to a model (conversation_loop.py).
    assert tool_messages(requests_of(model, one)[-1])[one] == content.strip()


def test_arguments_go_through_unchanged(chat: Chat) -> None:
    (one,) = ids(1)
    raw = '{ "q":  "caf\\u00e9", "n": 1.50, "deep": {"a": [null, true]} }'
    run = chat.say(script({"tools": [call(NAME, raw, one)]}, {"text": "ok"}), tools=TOOLS)
    assert run.calls()[one] == (NAME, raw)
    give(chat, (one, "x")).succeeded()


# --- the model's tool list


@pytest.mark.compat
def test_the_same_tools_are_there_after_the_answer_and_nowhere_else(
    gateway: Gateway, chat: Chat, model: GatedModel
) -> None:
    (one,) = ids(1)
    chat.say(asks_client(one), tools=TOOLS)
    say = unique("other")
    Chat(gateway).say(say).succeeded()
    give(chat, (one, "red")).succeeded()
    before, after = requests_of(model, one)
    assert names(before).count(NAME) == 1
    assert before["tools"] == after["tools"]
    assert before["tools"][-1] == {"type": "function", "function": COLOR}
    (other,) = requests_of(model, say)
    assert NAME not in names(other)
    assert other["tools"] == before["tools"][:-1]


def test_a_changed_list_changes_nothing_else(chat: Chat, model: GatedModel) -> None:
    marker = unique("m")
    second = {**COLOR, "name": "get_size"}
    changed = {**COLOR, "description": "Asks something else."}
    for tools in ([COLOR], [COLOR, second], [second, changed], []):
        chat.say(marker, tools=tools).succeeded()
    seen = requests_of(model, marker)
    assert [names(one)[-2:] for one in seen][1:3] == [[NAME, "get_size"], ["get_size", NAME]]
    assert seen[2]["tools"][-1]["function"]["description"] == "Asks something else."
    own = [json.dumps([t for t in one["tools"] if not t["function"]["name"].startswith("get_")]) for one in seen]
    assert len(set(own)) == 1
    assert len({json.dumps(one["messages"][0]) for one in seen}) == 1
    assert json.dumps(seen[3]["tools"]) == own[0]


def test_two_threads_use_the_same_name_at_once(gateway: Gateway, model: GatedModel) -> None:
    chats, made = [Chat(gateway), Chat(gateway)], ids(2)
    tools = [{**COLOR, "description": f"of {one}"} for one in made]
    for chat, one, tool in zip(chats, made, tools, strict=True):
        assert pending(chat.say(asks_client(one), tools=[tool])) == [one]
    # Another thread's call id is as unknown as a made-up one, whoever sends it.
    foreign = [*chats[0].messages, {"id": unique("tm"), "role": "tool", "toolCallId": made[1], "content": "stolen"}]
    Chat(gateway, thread=chats[0].thread, messages=foreign).send(tools=[tools[0]]).finish()
    assert open_requests(chats[1])
    for chat, one, tool in zip(chats, made, tools, strict=True):
        if open_requests(chat):
            give(chat, (one, f"for {one}"), tools=[tool])
    assert tool_messages(requests_of(model, made[1])[-1]) == {made[1]: f"for {made[1]}"}
    for one, tool in zip(made, tools, strict=True):
        for request in requests_of(model, one):
            if request["messages"][1]["content"].count(made[0]) and one == made[1]:
                continue
            described = [t["function"]["description"] for t in request["tools"] if t["function"]["name"] == NAME]
            assert described == [tool["description"]]


def test_a_reload_of_mcp_in_mid_turn_keeps_them(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    one, two = ids(2)
    chat.say(asks_client(one, two), tools=TOOLS)
    other = Chat(gateway)
    asked = interrupt(other.say("/reload-mcp"))
    resume(other, (asked["id"], {"choice": "once"})).succeeded()
    assert pending(give(chat, (one, "red"))) == [two]
    give(chat, (two, "blue")).succeeded()
    before, after = requests_of(model, one)
    assert before["tools"] == after["tools"]
    assert tool_messages(after) == {one: "red", two: "blue"}


def test_a_turn_without_tools_does_not_have_those_of_the_one_before(chat: Chat, model: GatedModel) -> None:
    marker = unique("m")
    chat.say(f"{marker} one", tools=TOOLS).succeeded()
    chat.say(script({"tools": [call(NAME, {"q": "x"}, unique("k"))]}, {"text": "ok"}, say=marker)).succeeded()
    assert NAME not in names(requests_of(model, marker)[-1])


# --- names


@pytest.mark.compat
@pytest.mark.parametrize("name", ["terminal", "read_file", "todo", "web_search", "delegate_task", "tool_call"])
def test_a_server_tool_is_never_shadowed(chat: Chat, model: GatedModel, name: str) -> None:
    name = todo_name() if name == "todo" else name
    marker = unique("m")
    run = chat.start(marker, tools=[{**COLOR, "name": name}]).finish()
    assert run.status == 422 and run.problem()["code"] == "tool_name_taken"
    assert name in run.problem()["detail"]
    assert requests_of(model, marker) == []


@pytest.mark.parametrize("warmup", [True, False])
def test_nor_by_the_first_request_of_a_process(
    make_gateway: Callable[..., Gateway], model: GatedModel, warmup: bool
) -> None:
    marker = unique("m")
    gateway = make_gateway(agui={"warmup": warmup})
    run = Chat(gateway).start(marker, tools=[{**COLOR, "name": "terminal"}]).finish()
    assert run.status == 422 and run.problem()["code"] == "tool_name_taken"
    assert requests_of(model, marker) == []


def test_a_plugins_tool_is_a_server_tool(chat: Chat) -> None:
    run = chat.start("x", tools=[{**COLOR, "name": "probe_echo"}]).finish()
    assert run.problem()["code"] == "tool_name_taken"


@pytest.mark.parametrize(
    "tools",
    [[{**COLOR, "name": "a b"}], [COLOR, COLOR], [{**COLOR, "name": ""}], [{**COLOR, "name": "x" * 65}]],
)
def test_bad_names_are_refused(chat: Chat, tools: list[Any]) -> None:
    run = chat.start("x", tools=tools).finish()
    assert run.status == 422 and run.problem()["code"] == "invalid_tool"


# --- state and context


@pytest.mark.parametrize("kind", ["client", "approval"])
def test_what_changed_while_waiting_reaches_the_model(
    gateway: Gateway, chat: Chat, model: GatedModel, kind: str
) -> None:
    (one,) = ids(1)
    marker = unique("page")
    first = [{"description": "page", "value": "start"}]
    changed = {"context": [{"description": "page", "value": marker}], "state": {"cart": [marker]}}
    if kind == "client":
        chat.say(asks_client(one), tools=TOOLS, context=first)
        give(chat, (one, "red"), **changed).succeeded()
    else:
        asked = interrupt(chat.say(deletes(victim(gateway), call_id=one), context=first))
        resume(chat, (asked["id"], True), **changed).succeeded()
    before, after = requests_of(model, one)
    assert marker not in json.dumps(before) and '"start"' not in json.dumps(after["messages"][-1])
    result = next(m for m in after["messages"] if m["role"] == "tool")
    assert json.dumps(result).count(marker) == 2  # the page, and the state
    assert len([m for m in after["messages"] if m["role"] == "user"]) == 1


def test_what_did_not_change_is_not_said_again(chat: Chat, model: GatedModel) -> None:
    (one,) = ids(1)
    context = [{"description": "page", "value": unique("page")}]
    chat.say(asks_client(one), tools=TOOLS, context=context)
    give(chat, (one, "red"), context=context).succeeded()
    assert json.dumps(requests_of(model, one)[-1]).count(context[0]["value"]) == 1


# --- the official clients


@pytest.mark.node
@pytest.mark.parametrize("version", clients.VERSIONS)
def test_the_official_client(gateway: Gateway, model: GatedModel, version: clients.Version) -> None:
    (one,) = ids(1)
    runs = [
        {"messages": [{"id": unique("u"), "role": "user", "content": asks_client(one)}], "tools": TOOLS},
        {"messages": [{"id": unique("tm"), "role": "tool", "toolCallId": one, "content": "red"}], "tools": TOOLS},
    ]
    first, second = clients.run_agent(version, f"{gateway.url}/agui", unique(), runs)
    for record in (first, second):
        assert record.failed is None and record.warnings == [], record
    outcome = first.of_type("RUN_FINISHED")[0].get("outcome", {})
    assert outcome.get("pendingToolCallIds") == ([one] if version == "1" else None)
    assert first.messages[-1]["toolCalls"][0]["id"] == one
    assert [m["role"] for m in second.messages] == ["user", "assistant", "tool", "assistant"]
    assert second.messages[-1]["content"] == "The end."
    assert tool_messages(requests_of(model, one)[-1]) == {one: "red"}


# --- other doors


def test_the_route_answers(chat: Chat, model: GatedModel) -> None:
    one, two = ids(2)
    chat.say(asks_client(one, two), tools=TOOLS)
    by_call = {asked["toolCallId"]: asked["id"] for asked in open_requests(chat)}
    for bad in ({}, {"content": 5}, {"error": 5}, {"content": [], "error": ""}):
        assert answer_by_route(chat, by_call[one], bad).status_code == 422
    assert answer_by_route(chat, by_call[one], {"content": "red"}).json()["status"] == "answered"
    assert answer_by_route(chat, by_call[one], {"content": "red"}).json()["status"] == "repeated"
    refused = answer_by_route(chat, by_call[one], {"content": "blue"})
    assert refused.status_code == 409 and refused.json()["code"] == "request_answered"
    assert answer_by_route(chat, by_call[two], {"error": "no"}).status_code == 200
    wait_until(lambda: len(requests_of(model, one)) == 2, "the turn went on with nobody reading")
    received = tool_messages(requests_of(model, one)[-1])
    assert received[one] == "red" and "no" in received[two]
    idle(chat)


def test_the_route_wants_json(chat: Chat) -> None:
    (one,) = ids(1)
    chat.say(asks_client(one), tools=TOOLS)
    (asked,) = open_requests(chat)
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/requests/{asked['id']}"
    assert httpx.post(url, content=b"{}", trust_env=False).status_code == 415
    for body in (b"", b"[]", b"{"):
        answered = httpx.post(url, content=body, headers={"content-type": "application/json"}, trust_env=False)
        assert answered.status_code == 400
    assert httpx.post(f"{url}x", json={"content": "x"}, trust_env=False).status_code == 404
    give(chat, (one, "red")).succeeded()


def test_a_call_of_a_client_tool_inside_code_is_refused(chat: Chat) -> None:
    """Code calls server tools only; a client's tool is no module function there."""
    code = "import hermes_tools\nprint(hasattr(hermes_tools, 'get_color'))"
    run: Run = chat.say(
        script({"tools": [call("execute_code", {"code": code}, unique("c"))]}, {"text": "ok"}), tools=TOOLS
    )
    if run.end.get("outcome", {}).get("type") == "interrupt":
        run = resume(chat, (interrupt(run)["id"], True), tools=TOOLS)
    assert "False" in next(iter(run.results().values()))
