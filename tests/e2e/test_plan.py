"""The agent's plan and what Hermes tells of itself: state under `/hermes`, and an activity that a UI can draw."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import jsonpatch
import pytest

from agui_adapter.demo.gateway import Gateway
from agui_adapter.state import bare, same
from tests import clients
from tests.e2e.asking import COLOR, asks_client, give, headers, idle, requests_of, state, stop
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique, wait_until
from tests.e2e.test_state import after, kept, names, states

ITEMS = [
    {"id": "1", "content": "look", "status": "in_progress"},
    {"id": "2", "content": "write a/b ~ é", "status": "pending"},
]
DONE = [{**ITEMS[0], "status": "completed"}, {**ITEMS[1], "status": "in_progress"}]


def todo(items: list[dict[str, str]], merge: bool = False, call_id: str = "") -> dict[str, Any]:
    return call("todo", {"todos": items, "merge": merge}, call_id or unique("td"))


def plans(*steps: list[dict[str, str]], say: str = "", goes_on: bool = False) -> str:
    """A script in which the agent writes its list once a step, behind the first (or `goes_on`) only what changed."""
    made = [{"tools": [todo(items, merge=goes_on or index > 0)]} for index, items in enumerate(steps)]
    return script(*made, {"text": "Done."}, say=say)


def activity(run: Run, held: dict[str, Any] | None = None) -> dict[str, Any]:
    """Message id → content of the plans that a client holds after a run."""
    held = dict(held or {})
    for event in run.of("ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"):
        assert event["activityType"] == "hermes.plan"
        if event["type"] == "ACTIVITY_SNAPSHOT":
            held[event["messageId"]] = event["content"]
        else:
            held[event["messageId"]] = jsonpatch.apply_patch(held[event["messageId"]], event["patch"])
    return held


# --- the plan


def test_a_plan_is_state_and_an_activity(chat: Chat) -> None:
    run = chat.say(plans(ITEMS, [DONE[0]], [DONE[1]])).succeeded()
    # The tool is shown as any other.
    assert [name for name, _ in run.calls().values()] == ["todo"] * 3 and len(run.results()) == 3
    # A client without state gets the document whole, then what changes.
    held = after(run, {})
    assert states(run)[0] == "STATE_SNAPSHOT" and set(states(run)[1:]) == {"STATE_DELTA"}
    assert held["hermes"]["todos"] == DONE
    assert same(held, kept(chat))
    deltas = [operation for event in run.of("STATE_DELTA") for operation in event["delta"]]
    assert [one["path"] for one in deltas if "todos" in one["path"]] == [
        "/hermes/todos/0/status",
        "/hermes/todos/1/status",
    ]
    # One activity in the run, by deltas as items change, behind the result of its call.
    kinds = [kind for kind in run.types if kind.startswith("ACTIVITY")]
    assert kinds == ["ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "ACTIVITY_DELTA"]
    assert list(activity(run).values()) == [{"todos": DONE}]
    assert run.types.index("TOOL_CALL_RESULT") < run.types.index("ACTIVITY_SNAPSHOT")
    patches = [event["patch"] for event in run.of("ACTIVITY_DELTA")]
    assert patches[0] == [{"op": "replace", "path": "/todos/0/status", "value": "completed"}]


def test_a_later_turn_has_a_plan_of_its_own_and_starts_from_the_state(chat: Chat, model: GatedModel) -> None:
    held = after(chat.say(plans(ITEMS), state={}).succeeded(), {})
    run = chat.say("Hello", state=held).succeeded()
    assert activity(run) == {} and after(run, held)["hermes"]["todos"] == ITEMS
    held = after(run, held)
    marker = unique("later")
    run = chat.say(plans(DONE, say=marker, goes_on=True), state=held).succeeded()
    assert "STATE_SNAPSHOT" not in states(run)
    assert list(activity(run).values()) == [{"todos": DONE}]
    assert same(after(run, held), kept(chat))
    # The model is told nothing of it, and the client's use of state has brought no tools.
    for request in requests_of(model, marker):
        assert "State of the application" not in json.dumps(request["messages"])
        assert "set_app_state" not in names(request)


def test_a_list_that_shrinks_and_grows(chat: Chat) -> None:
    many = [{"id": str(n), "content": f"step {n}", "status": "pending"} for n in range(100)]
    text = script({"tools": [todo(ITEMS)]}, {"tools": [todo(many)]}, {"tools": [todo(DONE[:1])]}, {"text": "."})
    run = chat.say(text).succeeded()
    assert after(run, {})["hermes"]["todos"] == DONE[:1]
    assert list(activity(run).values()) == [{"todos": DONE[:1]}]


def test_reading_the_list_changes_nothing(chat: Chat) -> None:
    chat.say(plans(ITEMS)).succeeded()
    run = chat.say(script({"tools": [call("todo", {})]}, {"text": "Read."}), state=kept(chat)).succeeded()
    assert activity(run) == {}
    assert not [event for event in run.of("STATE_DELTA") if "todos" in json.dumps(event)]


def test_the_plan_beside_the_app_s_state(chat: Chat) -> None:
    run = chat.say(plans(ITEMS, [DONE[0]]), state={"cart": [1]}).succeeded()
    assert "STATE_SNAPSHOT" not in states(run)
    held = after(run, {"cart": [1]})
    assert held["cart"] == [1] and held["hermes"]["todos"][0]["status"] == "completed"
    # An app that writes its document anew loses nothing of it.
    run = chat.say("Hello", state={"cart": [2]}).succeeded()
    assert run.events[1]["type"] == "STATE_SNAPSHOT"
    assert run.events[1]["snapshot"]["cart"] == [2] and run.events[1]["snapshot"]["hermes"]["todos"]


def test_a_plan_across_runs_of_one_turn(chat: Chat) -> None:
    """A turn that waits for the client goes on with the same plan."""
    one = unique("k")
    text = script(
        {"tools": [todo(ITEMS)]},
        {"tools": [call(COLOR["name"], {"q": "x"}, one)]},
        {"tools": [todo([DONE[0]], merge=True)]},
        {"text": "."},
    )
    run = chat.say(text, tools=[COLOR])
    shown, held = activity(run), after(run, {})
    run = give(chat, (one, "red"), state=held).succeeded()
    assert run.of("ACTIVITY_SNAPSHOT")  # a client that comes anew has it too
    assert activity(run, shown) == {next(iter(shown)): {"todos": [DONE[0], ITEMS[1]]}}
    assert same(after(run, held), kept(chat))


def test_after_a_restart_the_plan_is_there(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    chat = Chat(gateway)
    held = after(chat.say(plans(ITEMS)).succeeded(), {})
    gateway.stop()
    gateway.start()
    assert kept(chat)["hermes"]["todos"] == ITEMS
    run = chat.say(plans([DONE[0]], goes_on=True), state=held).succeeded()
    assert after(run, held)["hermes"]["todos"] == [DONE[0], ITEMS[1]]  # Hermes knows its list too
    assert same(after(run, held), kept(chat))


# --- Hermes itself


def test_hermes_tells_of_itself_where_state_is_used(chat: Chat) -> None:
    run = chat.say("Hello", state={"n": 1}).succeeded()
    held = after(run, {"n": 1})
    own = held["hermes"]
    assert own["model"] == "scripted-1" and own["provider"] and own["subagents"] == {} and "title" in own
    assert 0 < own["context"]["usedTokens"] < own["context"]["windowTokens"]
    used = run.end["usage"][0]
    assert own["usage"]["totalTokens"] == own["usage"]["inputTokens"] + own["usage"]["outputTokens"]
    assert (own["usage"]["inputTokens"], own["usage"]["outputTokens"]) == (used["inputTokens"], used["outputTokens"])
    assert same(held, kept(chat))
    run = chat.say("Hello again", state=held).succeeded()
    # Only what changes, once an answer of the model, never for a text delta.
    assert len(run.of("TEXT_MESSAGE_CONTENT")) > 1 and states(run) == ["STATE_DELTA"]
    paths = {operation["path"] for event in run.of("STATE_DELTA") for operation in event["delta"]}
    assert paths <= {
        *(f"/hermes/usage/{name}" for name in ("inputTokens", "outputTokens", "totalTokens", "cachedInputTokens")),
        *("/hermes/context/usedTokens", "/hermes/usage/reasoningTokens"),
    }
    held = after(run, held)
    assert held["hermes"]["usage"]["inputTokens"] == used["inputTokens"] + run.end["usage"][0]["inputTokens"]


def test_a_client_may_ask_for_it(chat: Chat) -> None:
    run = chat.say("Hello", state={"hermes": {}}).succeeded()
    assert after(run, {"hermes": {}})["hermes"]["model"] == "scripted-1"


def test_a_forged_member_is_replaced(chat: Chat, model: GatedModel) -> None:
    marker = unique("forged")
    document = {"n": 1, "hermes": {"model": "made up", "todos": [{"id": marker}]}}
    run = chat.say("Hello", state=document).succeeded()
    held = after(run, document)
    assert held["hermes"]["model"] == "scripted-1" and "todos" not in held["hermes"]
    assert same(held, kept(chat)) and requests_of(model, marker) == []


def test_a_title(chat: Chat) -> None:
    held = after(chat.say("Hello", state={"n": 1}).succeeded(), {"n": 1})
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}"
    title = unique("My title")
    assert httpx.patch(url, json={"title": title}, headers=headers(chat), trust_env=False).status_code == 200
    held = after(chat.say("Hello", state=held).succeeded(), held)
    assert held["hermes"]["title"] == title


@pytest.mark.parametrize(
    ("setting", "quiet", "used", "planned"),
    [("auto", False, True, True), ("always", True, True, True), ("off", False, False, False)],
)
def test_the_setting(
    make_gateway: Callable[..., Gateway], setting: str, quiet: bool, used: bool, planned: bool
) -> None:
    gateway = make_gateway(agui={"hermes_state": setting})
    run = Chat(gateway).say("Hello").succeeded()
    assert ("hermes" in after(run, {})) is quiet
    chat = Chat(gateway)
    run = chat.say("Hello", state={"n": 1}).succeeded()
    assert ("hermes" in after(run, {"n": 1})) is used
    run = Chat(gateway).say(plans(ITEMS)).succeeded()
    assert ("hermes" in after(run, {})) is planned
    if setting == "off":  # then the name is the app's
        run = chat.say("Hello", state={"hermes": "a messenger"}).succeeded()
        assert after(run, {"hermes": "a messenger"}) == {"hermes": "a messenger"} == kept(chat)


def test_tools_that_are_hidden_hide_the_plan(make_gateway: Callable[..., Gateway]) -> None:
    chat = Chat(make_gateway(agui={"tool_output": "names"}))
    run = chat.say(plans(ITEMS), state={"n": 1}).succeeded()
    assert activity(run) == {} and "todos" not in after(run, {"n": 1})["hermes"]
    assert "look" not in run.raw.decode()


def test_subagents(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    """Running ones are in the state with goal and status, and leave it when a later turn begins."""
    gateway = make_gateway(toolsets=["terminal", "todo", "delegation"])
    chat, goal, gate = Chat(gateway), unique("goal"), unique("gate")
    child = script({"text": f"{goal} {{gate:{gate}}} done"})
    text = script({"tools": [call("delegate_task", {"goal": child, "context": goal})]}, {"text": "Delegated."})
    run = chat.say(text, state={"n": 1}).succeeded()
    held = after(run, {"n": 1})
    (name,) = held["hermes"]["subagents"]
    assert held["hermes"]["subagents"][name]["status"] == "running"
    assert goal in held["hermes"]["subagents"][name]["goal"]
    model.open_gate(gate)
    wait_until(lambda: kept(chat)["hermes"]["subagents"].get(name, {}).get("status") != "running", "it is through")
    idle(chat)
    wait_until(lambda: state(chat)["status"] == "idle", "the result was taken")
    run = chat.say("Hello", state=held)
    held = after(run, held)
    assert name not in held["hermes"]["subagents"]
    assert same(held, kept(chat))


# --- the official clients


@pytest.mark.node
@pytest.mark.skipif(clients.node() is None, reason="Node is not on PATH")
@pytest.mark.parametrize("version", clients.VERSIONS)
def test_the_official_clients(gateway: Gateway, version: clients.Version) -> None:
    chat, one = Chat(gateway), unique("k")
    texts = [plans(ITEMS, [DONE[0]]), plans([DONE[1]], goes_on=True), asks_client(one)]
    runs: list[dict[str, Any]] = [
        {"messages": [{"id": unique("u"), "role": "user", "content": text}]} for text in texts
    ]
    runs[2]["tools"] = [COLOR]
    records = clients.run_agent(version, f"{gateway.url}/agui", chat.thread, runs)
    for record in records:
        assert record.failed is None and record.warnings == []
    assert records[0].state["hermes"]["todos"] == [DONE[0], ITEMS[1]]
    assert records[1].state["hermes"]["todos"] == DONE
    assert bare(records[2].state) == {}
    assert same(records[2].state, kept(chat))
    drawn = [message["content"] for message in records[2].messages if message["role"] == "activity"]
    assert drawn == [{"todos": [DONE[0], ITEMS[1]]}, {"todos": DONE}]
    stop(chat)
