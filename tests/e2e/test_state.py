"""Shared state: the client's document and the agent's, through a real gateway and the official clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.sse import SseParser
from agui_adapter.state import bare, same
from tests import clients
from tests.e2e.asking import (
    COLOR,
    asks_client,
    deletes,
    give,
    headers,
    idle,
    interrupt,
    pending,
    requests_of,
    resume,
    state,
    stop,
    tool_messages,
    victim,
)
from tests.e2e.helpers import Chat, GatedModel, Run, call, patched, script, unique, wait_until
from tests.e2e.media import part, png

TOOLS = {"read_app_state", "set_app_state"}


def sets(*changes: dict[str, Any], then: str = "Done.", call_id: str = "", say: str = "") -> str:
    """A script in which the agent changes the state."""
    made = call("set_app_state", {"changes": list(changes)}, call_id or unique("s"))
    return script({"tools": [made]}, {"text": then}, say=say)


def reads(pointer: str | None = None, call_id: str = "", **more: Any) -> str:
    arguments = more if pointer is None else {"pointer": pointer, **more}
    return script({"tools": [call("read_app_state", arguments, call_id or unique("s"))]}, {"text": "Read."})


def states(run: Run) -> list[str]:
    """The state events of a run, by type."""
    return [kind for kind in run.types if kind.startswith("STATE_")]


def after(run: Run, before: Any) -> Any:
    """The client's document after a run that it began with `before`, by a library that is not ours."""
    return patched({} if before is None else before, run.events)


def kept(chat: Chat) -> Any:
    """The thread's document: `GET /agui/threads/{id}`."""
    return state(chat)["state"]


def names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools") or ()]


def newest_user(request: dict[str, Any]) -> str:
    """What the newest user message of a model request says, with what rides along."""
    return str([message["content"] for message in request["messages"] if message["role"] == "user"][-1])


def say(chat: Chat, text: str, document: Any, **more: Any) -> Any:
    """A run with a state; the client's document after it, which is the thread's."""
    run = chat.say(text, state=document, **more).succeeded()
    held = after(run, document)
    assert same(held, kept(chat))
    return held


# --- a client without state


@pytest.mark.parametrize("document", [{}, None, "absent"])
def test_a_client_that_uses_no_state_gets_none(chat: Chat, model: GatedModel, document: Any) -> None:
    """S09: `{}`, null and absent are no state; nothing of it is streamed, told or offered."""
    marker = unique("plain")
    body = {"threadId": chat.thread, "runId": unique("r"), "messages": [{"id": "u", "role": "user", "content": marker}]}
    if document != "absent":
        body["state"] = document
    run = chat.keep(Run(f"{chat.gateway.url}/agui", body, {}).finish()).succeeded()
    assert states(run) == []
    (request,) = requests_of(model, marker)
    assert "State of the application" not in newest_user(request)
    assert not TOOLS & set(names(request))
    assert kept(chat) == {}


@pytest.mark.parametrize("document", [[1, {"a": None}], "text", 7, False, []])
def test_a_state_may_be_any_json(chat: Chat, model: GatedModel, document: Any) -> None:
    marker = unique("any")
    run = chat.say(f"Hello {marker}", state=document).succeeded()
    assert states(run) == [] and kept(chat) == document
    assert json.dumps(document, separators=(",", ":")) in newest_user(requests_of(model, marker)[0])


def test_a_list_takes_changes_and_a_text_is_replaced_whole(chat: Chat) -> None:
    run = chat.say(sets({"pointer": "/-", "value": 2}), state=[1]).succeeded()
    assert states(run) == ["STATE_DELTA"] and after(run, [1]) == [1, 2] == kept(chat)
    run = chat.say(sets({"pointer": "/a", "value": 2}), state="text").succeeded()
    assert states(run) == [] and "neither" in next(iter(run.results().values()))
    run = chat.say(sets({"pointer": "", "value": {"a": 2}}), state="text").succeeded()
    assert states(run)[0] == "STATE_SNAPSHOT" and bare(after(run, "text")) == {"a": 2} == bare(kept(chat))


# --- the agent reads and writes


def test_the_agent_changes_the_state(chat: Chat, model: GatedModel) -> None:
    marker = unique("write")
    text = script(
        {
            "text": "I add it.",
            "tools": [call("set_app_state", {"changes": [{"pointer": "/b/c", "value": marker}]}, "")],
        },
        {"text": "Added."},
    )
    run = chat.say(text, state={"a": 1}).succeeded()
    held = after(run, {"a": 1})
    assert bare(held) == {"a": 1, "b": {"c": marker}}
    assert same(held, kept(chat))
    assert "STATE_SNAPSHOT" not in states(run)  # the client had the document
    patch = next(event["delta"] for event in run.of("STATE_DELTA") if event["delta"][0]["path"] == "/b")
    assert patch == [
        {"op": "add", "path": "/b", "value": {}},
        {"op": "add", "path": "/b/c", "value": marker},
    ]
    # At once: before the call has its result.
    position = run.types.index("TOOL_CALL_RESULT")
    assert any(event.get("delta") == patch for event in run.events[:position])
    (result,) = run.results().values()
    assert json.loads(result) == {"ok": True, "changed": ["/b/c"]}
    # The model was told the state once, and not what it changed itself.
    first, second = requests_of(model, marker)
    assert newest_user(first).count("State of the application") == 1 and '{"a":1}' in newest_user(first)
    assert newest_user(second) == newest_user(first)
    chat.say(f"And now? {marker}", state=held).succeeded()
    assert newest_user(requests_of(model, marker)[-1]) == f"And now? {marker}"


def test_a_change_streams_before_the_turn_ends(chat: Chat, model: GatedModel) -> None:
    gate = unique("gate")
    text = sets({"pointer": "/n", "value": 2}, then=f"before {{gate:{gate}}} after")
    run = chat.start(text, state={"n": 1})
    run.wait(lambda one: any("/n" in str(event) for event in one.of("STATE_DELTA")), "the change")
    assert not run.ended
    wait_until(lambda: model.reached(gate), "the gate")
    assert bare(kept(chat)) == {"n": 2}
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()


HARD = {
    "a/b": {"m~n": None, "": [[]], "~1": True},
    "big": 2**53 - 1,
    "huge": 2**60,
    "float": 1e300,
    "é 👋": ["\u2028", "\\", '"'],
    "constructor": {"toString": 1},
    "list": [1, 2, 3],
}


def test_hard_keys_and_values(chat: Chat, model: GatedModel) -> None:
    marker = unique("hard")
    changes = [
        {"pointer": "/a~1b/m~0n", "value": {"deep/er": None}},
        {"pointer": "/a~1b/~01", "remove": True},
        {"pointer": "/a~1b//0/-", "value": None},
        {"pointer": "/list/1", "remove": True},
        {"pointer": "/list/-", "value": {"x": [1.5, False, ""]}},
        {"pointer": "/constructor/toString", "value": 2},
        {"pointer": "/new~0~1", "value": 2**60},
    ]
    held = say(chat, sets(*changes, say=marker), HARD)
    assert same(
        bare(held),
        {
            **HARD,
            "a/b": {"m~n": {"deep/er": None}, "": [[None]]},
            "list": [1, 3, {"x": [1.5, False, ""]}],
            "constructor": {"toString": 2},
            "new~/": str(2**60),
        },
    )
    # The model gets the client's number as it is.
    assert str(2**60) in newest_user(requests_of(model, marker)[0])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([{"pointer": "/a", "value": 1}, {"pointer": "/gone", "remove": True}], "nothing at /gone"),
        ([{"pointer": "/list/9", "value": 1}], "3 items"),
        ([{"pointer": "no", "value": 1}], "no JSON Pointer"),
        ([{"pointer": "/hermes/todos", "value": []}], "server's own"),
        ([{"pointer": "/__proto__/x", "value": 1}], "cannot be changed"),
        ([{"pointer": "/n/x", "value": 1}], "neither an object nor a list"),
        ([], "Give changes"),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(chat: Chat, changes: list[Any], says: str) -> None:
    document = {"list": [1, 2, 3], "n": 1}
    run = chat.say(sets(*changes), state=document).succeeded()
    (result,) = run.results().values()
    assert says in json.loads(result)["error"]
    assert bare(after(run, document)) == document == bare(kept(chat))


def test_a_large_state(chat: Chat, model: GatedModel) -> None:
    """1 MB goes in and out; the model is told its outline and reads the rest by the tool."""
    marker, one = unique("large"), unique("s")
    document = {"rows": [{"n": n, "text": "x" * 90} for n in range(10_000)], "title": "old", "note": marker}
    assert len(json.dumps(document)) > 1_000_000
    held = say(chat, sets({"pointer": "/rows/9999/text", "value": "last"}, then=marker), document)
    assert held["rows"][9999] == {"n": 9999, "text": "last"}
    told = newest_user(requests_of(model, marker)[0])
    assert "list with 10000 items" in told and "read_app_state" in told and len(told) < 12_000
    held["title"] = "new"
    held = say(chat, reads("/rows/9998", one), held)
    told = newest_user(requests_of(model, one)[0])
    assert '- /title: "new"' in told and len(told) < 12_000
    assert json.loads(tool_messages(requests_of(model, one)[-1])[one])["value"]["n"] == 9998
    pieces = unique("s")
    say(chat, reads(None, pieces), held)
    answer = json.loads(tool_messages(requests_of(model, pieces)[-1])[pieces])
    assert answer["nextOffset"] == 20_000 and answer["members"][0] == "- /rows: list with 10000 items"


def test_too_large_a_state_is_refused(chat: Chat) -> None:
    run = chat.start("Hello", state={"blob": "x" * (5 << 20)}).finish()
    assert run.status == 413 and run.problem()["code"] == "invalid_state"


def test_the_tool_does_not_show_what_is_the_server_s(chat: Chat, model: GatedModel) -> None:
    one = unique("s")
    chat.say(reads(None, one), state={"a": 1}).succeeded()
    assert json.loads(tool_messages(requests_of(model, one)[-1])[one]) == {"pointer": "", "value": {"a": 1}}


# --- who has what


def test_a_client_s_change_in_turn_3_reaches_the_model_in_turn_3(chat: Chat, model: GatedModel) -> None:
    """S12."""
    held: Any = {"n": 1}
    for turn, number in enumerate((1, 1, 3), 1):
        marker = unique(f"turn{turn}")
        held = say(chat, marker, {**held, "n": number})
        told = newest_user(requests_of(model, marker)[-1])
        assert (f'{{"n":{number}}}' in told) is (turn != 2)


def test_a_fresh_client_is_told_right_after_the_start(chat: Chat) -> None:
    """S13."""
    held = say(chat, sets({"pointer": "/n", "value": 2}), {"n": 1})
    for document in ({}, None):
        run = chat.say("Hello again", state=document).succeeded()
        assert run.types[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]
        assert run.events[1]["snapshot"]["n"] == 2
        held = after(run, document)
        assert same(held, kept(chat))
    run = chat.say("And again", state=held).succeeded()
    assert "STATE_SNAPSHOT" not in states(run)  # it has it


def test_a_fresh_client_knows_nothing_but_the_thread(chat: Chat, model: GatedModel) -> None:
    say(chat, "Hello", {"n": 1})
    other, marker = Chat(chat.gateway, chat.thread), unique("fresh")
    run = other.say(sets({"pointer": "/m", "value": 2}, say=marker)).succeeded()
    assert run.types[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"] and "MESSAGES_SNAPSHOT" in run.types
    assert bare(after(run, {})) == {"n": 1, "m": 2}
    assert set(names(requests_of(model, marker)[0])) >= TOOLS


def test_a_client_that_left_in_mid_run_gets_what_it_missed(chat: Chat, model: GatedModel) -> None:
    gate = unique("gate")
    held = say(chat, "Hello", {"n": 1})
    run = chat.start(sets({"pointer": "/n", "value": 2}, then=f"x {{gate:{gate}}} y"), state=held)
    run.wait(lambda one: "/n" in str(one.of("STATE_DELTA")), "the change")
    run.leave()
    model.open_gate(gate)
    idle(chat)
    chat.messages.pop()
    run = chat.say("What now?", state=held).succeeded()
    assert run.events[1]["type"] == "STATE_SNAPSHOT" and run.events[1]["snapshot"]["n"] == 2


def test_two_windows(chat: Chat) -> None:
    """Each that loads the thread has the other's changes, and changes what it has."""
    one = chat
    held = say(one, "Hello", {"n": 1, "color": "red"})
    say(one, sets({"pointer": "/n", "value": 2}), held)
    loaded = state(one)
    two = Chat(chat.gateway, chat.thread, messages=loaded["messages"])
    run = two.say("And I?", state={**loaded["state"], "color": "green"}).succeeded()
    assert "STATE_SNAPSHOT" not in states(run)
    assert bare(kept(two)) == {"n": 2, "color": "green"}
    # A client of one message a request, which has no state: it is told.
    three = Chat(chat.gateway, chat.thread)
    run = three.say(sets({"pointer": "/n", "value": 3})).succeeded()
    assert bare(run.events[1]["snapshot"]) == {"n": 2, "color": "green"}
    assert bare(after(run, {})) == {"n": 3, "color": "green"} == bare(kept(two))
    # A client that is behind answers to what it knows: the rest is taken back, and its document holds.
    run = two.say("And I again?", state={**loaded["state"], "color": "green"}).succeeded()
    assert any(event["name"] == "hermes.rewound" for event in run.of("CUSTOM"))
    assert same(after(run, {**loaded["state"], "color": "green"}), kept(two)) and kept(two)["n"] == 2


def test_after_a_restart(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway()
    chat, marker = Chat(gateway), unique("again")
    held = say(chat, sets({"pointer": "/n", "value": {"deep": [None]}}), {"n": 1})
    gateway.stop()
    gateway.start()
    assert bare(kept(chat)) == {"n": {"deep": [None]}}
    held = say(chat, marker, held)
    assert newest_user(requests_of(model, marker)[-1]) == marker  # the model knows it still
    assert set(names(requests_of(model, marker)[-1])) >= TOOLS
    fresh = Chat(gateway, chat.thread)
    run = fresh.say("Hello").succeeded()
    assert run.events[1]["type"] == "STATE_SNAPSHOT" and bare(run.events[1]["snapshot"]) == bare(held)


def test_the_tools_stay_once_there_was_state(chat: Chat, model: GatedModel) -> None:
    """A change of the tool list costs the provider's prompt cache."""
    first, second, third = (unique(name) for name in ("without", "with", "later"))
    chat.say(first).succeeded()
    chat.say(second, state={"n": 1}).succeeded()
    chat.say(third, state={}, tools=[COLOR]).succeeded()
    before, during, later = (names(requests_of(model, marker)[0]) for marker in (first, second, third))
    assert not TOOLS & set(before)
    assert during == [*before, "read_app_state", "set_app_state"]
    assert later == [*during, COLOR["name"]]


def test_the_names_are_taken(chat: Chat) -> None:
    for name in sorted(TOOLS):
        run = chat.start("Hello", tools=[{"name": name, "description": "mine"}]).finish()
        assert run.status == 422 and run.problem()["code"] == "tool_name_taken"


def test_another_thread_sees_nothing_of_it(chat: Chat, model: GatedModel) -> None:
    secret, marker = unique("secret"), unique("other")
    say(chat, "Hello", {"secret": secret})
    other = Chat(chat.gateway)
    run = other.say(marker).succeeded()
    assert secret not in run.raw.decode() and secret not in json.dumps(requests_of(model, marker))
    assert kept(other) == {}


def test_a_regenerated_answer_has_the_state(chat: Chat, model: GatedModel) -> None:
    """The history was cut, and what the model was told with it."""
    marker = unique("again")
    held = say(chat, marker, {"n": 41})
    chat.messages = chat.messages[:1]
    run = chat.keep(chat.send(state=held).finish()).succeeded()
    assert '{"n":41}' in newest_user(requests_of(model, marker)[-1])
    assert same(after(run, held), kept(chat))


def test_a_command_tells_the_model_nothing_so_the_next_message_does(chat: Chat, model: GatedModel) -> None:
    marker = unique("later")
    chat.say("/usage", state={"n": 1})
    chat.say(marker, state={"n": 1}).succeeded()
    assert '{"n":1}' in newest_user(requests_of(model, marker)[-1])


def test_state_reaches_the_model_beside_images(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    """Hermes drops what a hook says of a message with native images, and keeps what is in the message itself."""
    chat, marker = Chat(make_gateway(config={"model": {"supports_vision": True}})), unique("image")
    context = [{"description": "page", "value": "the second"}]
    for number in (1, 2):
        parts = [{"type": "text", "text": f"{marker} {number}"}, part("image", png(), "image/png")]
        chat.messages.append({"id": unique("u"), "role": "user", "content": parts})
        chat.keep(chat.send(state={"n": number}, context=context).finish()).succeeded()
        content = [one["content"] for one in requests_of(model, marker)[-1]["messages"] if one["role"] == "user"][-1]
        assert isinstance(content, list) and any(one["type"] == "image_url" for one in content), content
        text = "\n".join(one["text"] for one in content if one["type"] == "text")
        assert f'{{"n":{number}}}' in text and ("the second" in text) is (number == 1)
    shown = [message for message in state(chat)["messages"] if message["role"] == "user"]
    assert "State of the application" not in json.dumps(shown)


# --- while a turn waits


def test_state_and_context_that_come_with_an_answer(chat: Chat, model: GatedModel) -> None:
    one = unique("k")
    run = chat.say(asks_client(one), state={"n": 1}, tools=[COLOR])
    assert pending(run) == [one]
    held = after(run, {"n": 1})
    context = [{"description": "page", "value": "the second"}]
    run = give(chat, (one, "red"), state={**held, "n": 2}, context=context).succeeded()
    final = requests_of(model, one)[-1]
    told = json.dumps(final["messages"][-1], ensure_ascii=False)
    assert r"{\"n\":2}" in told and "the second" in told and r"{\"n\":1}" not in told
    held = after(run, {**held, "n": 2})
    assert same(held, kept(chat)) and held["n"] == 2
    marker = unique("next")
    say(chat, marker, held, context=context)
    assert newest_user(requests_of(model, marker)[-1]) == marker


def test_an_answer_with_the_same_state_says_nothing(gateway: Gateway, chat: Chat, model: GatedModel) -> None:
    one = unique("c")
    run = chat.say(deletes(victim(gateway), call_id=one), state={"n": 1})
    asked = interrupt(run)
    held = after(run, {"n": 1})
    run = resume(chat, (asked["id"], True), state=held).succeeded()
    assert "State of the application" not in json.dumps(requests_of(model, one)[-1]["messages"][-1])
    assert "STATE_SNAPSHOT" not in states(run) and same(after(run, held), kept(chat))


def test_the_agent_changes_the_state_behind_a_client_call(chat: Chat, model: GatedModel) -> None:
    client, server = unique("k"), unique("s")
    changes = {"changes": [{"pointer": "/color", "value": "red"}]}
    calls = [call(COLOR["name"], {"q": "x"}, client), call("set_app_state", changes, server)]
    run = chat.say(script({"tools": calls}, {"text": "The end."}), state={"n": 1}, tools=[COLOR])
    assert pending(run) == [client] and bare(kept(chat)) == {"n": 1}
    held = after(run, {"n": 1})
    run = give(chat, (client, "red"), state=held).succeeded()
    assert list(run.calls()) == [server]
    assert bare(after(run, held)) == {"n": 1, "color": "red"}
    chat.assert_as_transcript()


def test_a_stopped_turn_leaves_a_true_document(chat: Chat) -> None:
    calls = [
        call("set_app_state", {"changes": [{"pointer": "/n", "value": 2}]}),
        call("terminal", {"command": "sleep 60"}),
    ]
    run = chat.start(script({"tools": calls}, {"text": "never"}), state={"n": 1})
    run.wait(lambda one: "/n" in str(one.of("STATE_DELTA")) and len(one.calls()) == 2, "the change")
    stop(chat)
    chat.keep(run.finish())
    assert bare(after(run, {"n": 1})) == {"n": 2} == bare(kept(chat))


# --- generative UI


RECIPE = {
    "name": "show_recipe",
    "description": "Shows a recipe.",
    "parameters": {"type": "object", "properties": {"recipe": {"type": "object"}, "note": {"type": "string"}}},
    "metadata": {"hermes": {"writes": "/recipe", "argument": "/recipe"}},
}


def test_a_client_tool_writes_state_as_it_is_announced(chat: Chat, model: GatedModel) -> None:
    one = unique("k")
    arguments = {"recipe": {"title": "soup", "steps": ["a", "b"]}, "note": "hot"}
    run = chat.say(script({"tools": [call("show_recipe", arguments, one)]}, {"text": "Shown."}), tools=[RECIPE])
    assert pending(run) == [one]
    held = after(run, {})
    assert bare(held) == {"recipe": arguments["recipe"]} == bare(kept(chat))
    assert run.types.index("TOOL_CALL_END") < run.types.index("STATE_SNAPSHOT") < run.types.index("RUN_FINISHED")
    run = give(chat, (one, "shown"), state=held, tools=[RECIPE]).succeeded()
    assert "State of the application" not in json.dumps(requests_of(model, one)[-1]["messages"])
    assert set(names(requests_of(model, one)[-1])) >= TOOLS
    assert same(after(run, held), kept(chat))


def test_a_declaration_that_does_not_fit_is_told(chat: Chat) -> None:
    one = unique("k")
    text = script({"tools": [call("show_recipe", {"note": "no recipe"}, one)]}, {"text": "Shown."})
    run = chat.say(text, tools=[RECIPE], state={"n": 1})
    assert pending(run) == [one]
    assert any("nothing at /recipe" in notice for notice in run.notices())
    stop(chat)
    wrong = {**RECIPE, "metadata": {"hermes": {"writes": "recipe"}}}
    assert chat.start("Hello", tools=[wrong]).finish().problem()["code"] == "invalid_tool"


def test_state_that_comes_with_a_steering_run(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    chat, marker = Chat(make_gateway(agui={"busy": "steer"})), unique("steered")
    flag = chat.gateway.work_dir / unique("flag")
    waits = call("terminal", {"command": f"while [ ! -e {flag} ]; do sleep 0.05; done; echo x"})
    run = chat.start(script({"tools": [waits]}, {"text": "Done."}, say=marker), state={"n": 1})
    run.wait(lambda one: one.calls(), "the call")
    other = Chat(chat.gateway, chat.thread, messages=[dict(message) for message in chat.messages])
    second = other.start("look again", state={"n": 2})
    second.wait(lambda one: one.events, "it joins")
    flag.touch()
    run.finish().succeeded()
    second.finish().succeeded()
    assert r"{\"n\":2}" in json.dumps(requests_of(model, marker)[-1]["messages"])
    assert same(after(run, {"n": 1}), kept(chat)) and same(after(second, {"n": 2}), kept(chat))
    assert kept(chat)["n"] == 2


def test_a_branch_has_the_state(chat: Chat) -> None:
    held = say(chat, sets({"pointer": "/n", "value": 2}), {"n": 1})
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/branch"
    made = httpx.post(url, json={}, headers=headers(chat), trust_env=False, timeout=30)
    assert made.status_code == 201, made.text
    branch = Chat(chat.gateway, made.json()["threadId"])
    assert same(bare(kept(branch)), bare(held))
    say(branch, sets({"pointer": "/n", "value": 3}), {})
    assert kept(branch)["n"] == 3 and kept(chat)["n"] == 2


def test_deleting_a_thread_forgets_its_state(chat: Chat) -> None:
    say(chat, "Hello", {"n": 1})
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}"
    assert httpx.delete(url, headers=headers(chat), trust_env=False, timeout=30).status_code == 200
    fresh = Chat(chat.gateway, chat.thread)
    run = fresh.say("Hello").succeeded()
    assert states(run) == [] and kept(fresh) == {}


# --- other readers


def read_feed(chat: Chat, count: int, **params: Any) -> list[dict[str, Any]]:
    """Events of the thread's feed until it has sent `count` terminal ones."""
    events: list[dict[str, Any]] = []
    parser = SseParser()
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/events"
    with httpx.stream("GET", url, params=params, headers=headers(chat), trust_env=False, timeout=60) as response:
        for chunk in response.iter_raw():
            events += [json.loads(frame.data) for frame in parser.feed(chunk)]
            if sum(event["type"] == "RUN_FINISHED" for event in events) >= count:
                break
    return events


def test_a_reader_that_attaches_gets_the_document(chat: Chat, model: GatedModel) -> None:
    gate = unique("gate")
    held = say(chat, "Hello", {"n": 1})
    text = script(
        {
            "text": f"wait {{gate:{gate}}} on",
            "tools": [call("set_app_state", {"changes": [{"pointer": "/n", "value": 2}]})],
        },
        {"text": "Done."},
    )
    run = chat.start(text, state=held)
    run.wait_text("wait")
    body = state(chat)
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/events"
    with httpx.stream("GET", url, params={"once": "1"}, trust_env=False, timeout=60) as response:
        model.open_gate(gate)
        parser = SseParser()
        events = [json.loads(frame.data) for chunk in response.iter_raw() for frame in parser.feed(chunk)]
    chat.keep(run.finish())
    assert [event["type"] for event in events[:2]] == ["RUN_STARTED", "STATE_SNAPSHOT"]
    assert same(patched({}, events), kept(chat)) and kept(chat)["n"] == 2
    # A client that loaded the thread and goes on from its newest event has the document by deltas.
    behind = read_feed(chat, 1, after=body["turn"]["lastEventId"], once="1")
    assert same(patched(body["state"], behind), kept(chat))


def test_the_same_run_again_tells_the_same(chat: Chat) -> None:
    run = chat.start(sets({"pointer": "/n", "value": 2}), state={"n": 1}).finish()
    again = chat.send(run_id=run.body["runId"], state={"n": 1}).finish()
    assert same(after(again, {"n": 1}), after(run, {"n": 1}))
    chat.keep(run)
    assert same(after(run, {"n": 1}), kept(chat))


# --- the official clients


@pytest.mark.node
@pytest.mark.skipif(clients.node() is None, reason="Node is not on PATH")
@pytest.mark.parametrize("version", clients.VERSIONS)
def test_the_official_clients_hold_the_server_s_document(gateway: Gateway, version: clients.Version) -> None:
    chat = Chat(gateway)
    changes = [
        {"pointer": "/a~1b/m~0n", "value": {"x": [None]}},
        {"pointer": "/list/0", "remove": True},
        {"pointer": "/list/-", "value": 2**60},
    ]
    texts = [sets(*changes), "Hello", sets({"pointer": "", "value": {"fresh": True}})]
    first = {"a/b": {"m~n": None}, "list": [1, 2], "huge": 2**60, "é": "👋"}
    runs: list[dict[str, Any]] = [
        {"messages": [{"id": unique("u"), "role": "user", "content": text}]} for text in texts
    ]
    runs[0]["state"] = first
    runs.append({"messages": [{"id": unique("u"), "role": "user", "content": "Lost"}], "state": {}})
    tool = {"name": "show_recipe", "description": "", "metadata": RECIPE["metadata"]}
    last = script({"tools": [call("show_recipe", {"recipe": {"title": "soup"}}, unique("k"))]}, {"text": "."})
    runs.append({"messages": [{"id": unique("u"), "role": "user", "content": last}], "tools": [tool]})
    records = clients.run_agent(version, f"{gateway.url}/agui", chat.thread, runs)
    for record in records:
        assert record.failed is None and record.warnings == []
    wanted = {"a/b": {"m~n": {"x": [None]}}, "list": [2, str(2**60)], "huge": 2**60, "é": "👋"}
    assert same(bare(records[0].state), wanted)  # the huge number is the double that it was there
    assert bare(records[2].state) == {"fresh": True} == bare(records[3].state)
    assert records[4].state["recipe"] == {"title": "soup"}
    assert same(records[-1].state, kept(chat))
    stop(chat)
