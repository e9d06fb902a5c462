"""Subagents of a real gateway: announced, followed, suspended where a run ends before they do, finished on the feed.

A subagent's goal is its user message, so a goal that is a script makes it do what the test wants.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonpatch
import pytest

from agui_adapter.check import check_events
from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import interrupt
from tests.e2e.attach import Watcher, idle, request
from tests.e2e.helpers import Chat, Event, GatedModel, Run, call, query, script, unique, wait_until

ENDS = ("SUBAGENT_FINISHED", "SUBAGENT_ERROR")
SUSPENDED = {"type": "suspended"}


@pytest.fixture(scope="module")
def delegating(model: GatedModel) -> Iterator[Gateway]:
    """A gateway whose agent may delegate, and whose orchestrators may too."""
    toolsets = ("terminal", "file", "clarify", "delegation")
    with Gateway(model, toolsets=toolsets, config={"delegation": {"max_spawn_depth": 2}}) as running:
        yield running


def delegates(*goals: str, then: str = "It runs.", role: str = "", call_id: str = "") -> str:
    """A script that hands the goals to subagents and answers `then`."""
    arguments: dict[str, Any] = {"goal": goals[0]} if len(goals) == 1 else {"tasks": [{"goal": goal} for goal in goals]}
    if role:
        arguments["role"] = role
    return script({"tools": [call("delegate_task", arguments, call_id or unique("c"))]}, {"text": then})


def activities(events: list[Event]) -> dict[str, Any]:
    """What a client shows in the end, by the subagent's id: snapshots and deltas applied."""
    shown: dict[str, Any] = {}
    for event in events:
        if event.get("activityType") != "hermes.subagent":
            continue
        if event["type"] == "ACTIVITY_SNAPSHOT":
            shown[event["messageId"]] = event["content"]
        else:
            shown[event["messageId"]] = jsonpatch.apply_patch(shown[event["messageId"]], event["patch"])
    return {content["subagentId"]: content for content in shown.values()}


def steps(content: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["kind"], step["text"]) for step in content["steps"]]


def ended(run: Run | Watcher, count: int = 1) -> bool:
    """So many subagents have really ended."""
    return sum(e["type"] in ENDS and e.get("outcome") != SUSPENDED for e in run.events) >= count


def of(events: list[Event], *kinds: str) -> list[Event]:
    return [event for event in events if event["type"] in kinds]


def test_one_that_outlives_its_run_is_suspended_and_finished_on_the_feed(
    delegating: Gateway, model: GatedModel
) -> None:
    chat, gate = Chat(delegating), unique("g")
    chat.say("Hello")
    feed = Watcher(chat)
    goal = script(
        {"text": "I look first.", "tools": [call("terminal", {"command": "echo from-the-child"})]},
        {"text": f"{{gate:{gate}}} The child's answer. " + "It is long. " * 60},
    )
    run = chat.say(delegates(goal, call_id=(call_id := unique("c")))).succeeded()
    (begun,) = run.of("SUBAGENT_STARTED")
    assert begun["name"] == "subagent" and begun["description"] == goal and begun["parentToolCallId"] == call_id
    assert [event["outcome"] for event in run.of(*ENDS)] == [SUSPENDED]
    wait_until(lambda: model.reached(gate), "the child works")
    model.open_gate(gate)
    feed.wait(ended, "its end on the feed")
    feed.runs(3)  # the run that was asked for, the subagent's end, and the turn that Hermes begins with its result
    idle(chat)
    assert not check_events(enumerate(feed.events), peer="1.0")
    subagent = begun["subagentRunId"]
    later = feed.events[len(run.events) :]
    begins = [event for event in of(later, "SUBAGENT_STARTED") if event["subagentRunId"] == subagent]
    (end,) = [event for event in of(later, *ENDS) if event["subagentRunId"] == subagent]
    assert len(begins) == 1 and end["type"] == "SUBAGENT_FINISHED" and end["outcome"] == {"type": "success"}
    assert end["result"].startswith(f"{{gate:{gate}}} The child's answer.") and len(end["result"]) > 600
    content = activities(feed.events)[subagent]
    assert content["status"] == "completed" and content["summary"] == end["result"] and content["toolCallId"] == call_id
    assert steps(content)[:2] == [("text", "I look first."), ("tool", "echo from-the-child")]
    said = "".join(text for kind, text in steps(content)[2:] if kind == "text")
    assert said.replace(" ", "") == end["result"].replace(" ", "")
    # One activity, in one place of the conversation, whichever run told of it.
    assert len({e["messageId"] for e in feed.events if e.get("activityType") == "hermes.subagent"}) == 1
    # Nothing of it is a message of the thread: the next run finds the client's view right.
    chat.messages = [m for m in request(chat, "GET").json()["messages"] if m["role"] != "reasoning"]
    assert "MESSAGES_SNAPSHOT" not in chat.say("And now?").succeeded().types


def test_one_that_ends_while_a_later_turn_runs_is_finished_there(delegating: Gateway, model: GatedModel) -> None:
    chat, gate, outer = Chat(delegating), unique("g"), unique("g")
    first = chat.say(delegates(script({"text": f"{{gate:{gate}}} done"}))).succeeded()
    (begun,) = first.of("SUBAGENT_STARTED")
    run = chat.start(script({"text": f"before {{gate:{outer}}} after"}))
    run.wait_text(outer)
    model.open_gate(gate)
    run.wait(ended, "its end in the later run")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    assert [event["subagentRunId"] for event in run.of("SUBAGENT_STARTED")] == [begun["subagentRunId"]]
    (end,) = run.of(*ENDS)
    assert end["outcome"] == {"type": "success"} and end["result"] == f"{{gate:{gate}}} done"
    assert (
        run.texts()[0].startswith("before") and activities(run.events)[begun["subagentRunId"]]["status"] == "completed"
    )


def test_one_that_ends_while_the_turn_waits_is_told_when_it_goes_on(delegating: Gateway, model: GatedModel) -> None:
    chat, gate, outer = Chat(delegating), unique("g"), unique("g")
    asks = call("clarify", {"question": "Go on?", "choices": ["yes", "no"]}, unique("c"))
    run = chat.say(
        script(
            {"tools": [call("delegate_task", {"goal": script({"text": f"{{gate:{gate}}} done"})}, unique("c"))]},
            {"tools": [asks]},
            {"text": f"{{gate:{outer}}} The end."},
        )
    )
    asked = interrupt(run)
    (begun,) = run.of("SUBAGENT_STARTED")
    assert [event["outcome"] for event in run.of(*ENDS)] == [SUSPENDED]
    model.open_gate(gate)
    wait_until(lambda: request(chat, "GET", "/subagents").json()["subagents"] == [], "the child is through")
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"answer": "yes"}}
    answered = chat.send(resume=[entry])
    answered.wait(ended, "its end in the run that answers")
    model.open_gate(outer)
    chat.keep(answered.finish()).succeeded()
    (end,) = answered.of(*ENDS)
    assert end["subagentRunId"] == begun["subagentRunId"] and end["result"] == f"{{gate:{gate}}} done"


def test_a_client_that_declares_no_version_gets_the_activity_alone(delegating: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(delegating, version=None), unique("g")
    run = chat.start(delegates(script({"text": "child done"}), then=f"{{gate:{gate}}} end"))
    run.wait(lambda r: any(c["status"] == "completed" for c in activities(r.events).values()), "the activity's end")
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert not [kind for kind in run.types if kind.startswith("SUBAGENT")]
    (content,) = activities(run.events).values()
    assert content["summary"] == "child done"


def test_a_batch_is_announced_and_ended_one_by_one(delegating: Gateway, model: GatedModel) -> None:
    chat, slow, outer = Chat(delegating), unique("g"), unique("g")
    goals = [script({"text": "quick"}), script({"text": f"{{gate:{slow}}} slow"})]
    run = chat.start(delegates(*goals, then=f"{{gate:{outer}}} end"))
    run.wait(ended, "the quick one is through")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    begun = {event["subagentRunId"]: event["description"] for event in run.of("SUBAGENT_STARTED")}
    assert sorted(begun.values()) == sorted(goals)
    ends = {begun[event["subagentRunId"]]: event["outcome"] for event in run.of(*ENDS)}
    assert ends == {goals[0]: {"type": "success"}, goals[1]: SUSPENDED}
    model.open_gate(slow)


def test_a_subagents_own_subagent_names_its_parent(delegating: Gateway, model: GatedModel) -> None:
    chat, outer = Chat(delegating), unique("g")
    inner = script({"text": "the grandchild's answer"})
    goal = script({"tools": [call("delegate_task", {"goal": inner}, unique("c"))]}, {"text": "the child's answer"})
    run = chat.start(delegates(goal, role="orchestrator", then=f"{{gate:{outer}}} end"))
    run.wait(lambda r: ended(r, 2), "both are through")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    child, grandchild = run.of("SUBAGENT_STARTED")[:2]  # the result may come in time for a further turn of this run
    assert child["name"] == "orchestrator" and "parentSubagentRunId" not in child
    assert grandchild["parentSubagentRunId"] == child["subagentRunId"] and "parentToolCallId" not in grandchild
    results = {event["subagentRunId"]: event.get("result") for event in run.of(*ENDS)}
    assert results[child["subagentRunId"]] == "the child's answer"
    assert results[grandchild["subagentRunId"]] == "the grandchild's answer"
    texts = [text for kind, text in steps(activities(run.events)[child["subagentRunId"]]) if kind == "text"]
    assert texts == ["the child's answer"]  # Hermes relays the grandchild's text under the child's name


def test_a_refused_command_is_a_step_and_a_notice(delegating: Gateway, model: GatedModel, tmp_path: Any) -> None:
    chat, outer = Chat(delegating), unique("g")
    command = f"rm -rf {tmp_path}"
    goal = script({"tools": [call("terminal", {"command": command})]}, {"text": "refused, then"})
    run = chat.start(delegates(goal, then=f"{{gate:{outer}}} end"))
    run.wait(ended, "the child is through")
    model.open_gate(outer)
    run.finish()
    # Hermes quotes the goal in the result, which may come in time for a further turn of this run; the scripted model
    # then follows it itself, and its own command is asked about.
    request(chat, "POST", "/stop")
    (content,) = activities(run.events).values()
    assert ("refused", command) in steps(content)
    assert any(command in text for text in run.notices()) and tmp_path.exists()


def test_a_provider_that_refuses_a_subagent_is_its_failure(delegating: Gateway, model: GatedModel) -> None:
    """Hermes takes the error's text for the subagent's answer and says `completed`."""
    chat, outer = Chat(delegating), unique("g")
    run = chat.start(delegates(script({"status": 401}), then=f"{{gate:{outer}}} end"))
    run.wait(ended, "the child has failed")
    model.open_gate(outer)
    run.finish()
    (error,) = run.of("SUBAGENT_ERROR")
    assert error["code"] == "error" and "401" in error["message"]
    (content,) = activities(run.events).values()
    assert content["status"] == "error" and "401" in content["error"]


def test_one_that_is_stopped_says_so(delegating: Gateway, model: GatedModel) -> None:
    chat, gate, outer = Chat(delegating), unique("g"), unique("g")
    run = chat.start(delegates(script({"text": f"{{gate:{gate}}} never"}), then=f"{{gate:{outer}}} end"))
    run.wait(lambda r: "SUBAGENT_STARTED" in r.types, "it is announced")
    wait_until(lambda: model.reached(gate), "the child works")
    subagent = run.of("SUBAGENT_STARTED")[0]["subagentRunId"]
    assert request(chat, "POST", f"/subagents/{subagent}/stop").status_code < 300
    run.wait(ended, "its end")
    model.open_gate(gate)
    model.open_gate(outer)
    run.finish()
    (error,) = run.of("SUBAGENT_ERROR")
    assert error["subagentRunId"] == subagent and error["code"] == "interrupted"


def test_one_whose_session_was_compacted_into_another_is_ended_all_the_same(
    make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    """The rotating compaction gives a subagent's session another id in mid-turn, and Hermes's hook tells that one."""
    compression = {"in_place": False, "protect_first_n": 1, "protect_last_n": 2, "threshold": 0.5}
    config = {"model": {"context_length": 64_000}, "compression": compression}
    chat = Chat(make_gateway(toolsets=("terminal", "delegation"), config=config))
    usage = {"prompt_tokens": 60_000, "completion_tokens": 10, "total_tokens": 60_010}
    step = {"text": "word " * 1600, "tools": [call("terminal", {"command": "echo x"})]}
    goal = script(*[step] * 8, step | {"usage": usage}, {"text": "The child's answer."})
    gate = unique("g")
    run = chat.start(delegates(goal, then=f"{{gate:{gate}}} end"), state={"n": 1})
    run.wait(lambda r: "SUBAGENT_STARTED" in r.types, "it is announced")
    wait_until(lambda: rotated(chat), "its session was compacted")
    run.wait(ended, "its end")

    def known() -> list[str]:
        return [fact["status"] for fact in request(chat, "GET").json()["state"]["hermes"]["subagents"].values()]

    wait_until(lambda: known() == ["completed"], "the state says so")
    assert request(chat, "GET", "/subagents").json()["subagents"] == []
    model.open_gate(gate)
    run.finish()
    assert [event["type"] for event in run.of(*ENDS)][:1] == ["SUBAGENT_FINISHED"]


def rotated(chat: Chat) -> bool:
    """Whether a subagent's session ended in a compaction and goes on in another one."""
    return bool(query(chat.gateway, "SELECT 1 FROM sessions WHERE end_reason = 'compression'"))


def test_inline_where_hermes_does_not_run_it_in_the_background(
    make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    """As for a caller without a feed: the call's result comes when the subagent is through; nothing is left open."""
    gateway = make_gateway(toolsets=("terminal", "delegation"), config={"delegation": {"max_concurrent_children": 1}})
    other, gate = Chat(gateway), unique("g")
    other.say(delegates(script({"text": f"{{gate:{gate}}} holds the only place"}))).succeeded()
    wait_until(lambda: model.reached(gate), "the only place is taken")
    chat = Chat(gateway)
    run = chat.say(delegates(script({"text": "inline answer"}), call_id=(call_id := unique("c")))).succeeded()
    model.open_gate(gate)
    (end,) = run.of(*ENDS)
    assert end["outcome"] == {"type": "success"} and end["result"] == "inline answer"
    order = [e["type"] for e in run.events if e.get("toolCallId") == call_id or e["type"].startswith("SUBAGENT")]
    assert order.index("SUBAGENT_FINISHED") < order.index("TOOL_CALL_RESULT")
    assert json.loads(run.results()[call_id])["results"][0]["summary"] == "inline answer"


@pytest.mark.parametrize("shows", ["names", "off"])
def test_what_the_operator_hides_of_tools_is_hidden_of_subagents(
    make_gateway: Callable[..., Gateway], model: GatedModel, shows: str
) -> None:
    gateway = make_gateway(toolsets=("terminal", "delegation"), agui={"tool_output": shows})
    chat, outer, secret = Chat(gateway), unique("g"), unique("secret")
    goal = script({"text": secret, "tools": [call("terminal", {"command": f"echo {secret}"})]}, {"text": f"{secret}!"})
    run = chat.start(delegates(goal, then=f"{{gate:{outer}}} end"))
    wait_until(lambda: model.reached(outer), "the end is near")
    if shows == "names":
        run.wait(ended, "the child is through")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    # A further turn of this run, where the result comes in time for one, follows the goal that Hermes quotes in it.
    assert secret not in run.raw.decode().partition("further_turn")[0]
    (content,) = activities(run.events).values() if shows == "names" else ({"steps": []},)
    assert content["steps"] == ([{"kind": "tool", "tool": "terminal"}] if shows == "names" else [])
    assert [kind for kind in run.types if kind.startswith("SUBAGENT")] == (
        ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"] if shows == "names" else []
    )
