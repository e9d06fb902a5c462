"""Branch, compress, usage, subagents, background processes and commands: each as Hermes does it, for the owner only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, call, plain, query, script, unique, wait_until

KEY = "an-operators-key-of-thirty-two-ch"
WORDS = "word " * 200


@pytest.fixture(scope="module")
def acting(model: GatedModel) -> Iterator[Gateway]:
    """A gateway with two principals, delegation, and a command of the operator's own."""
    with Gateway(
        model,
        toolsets=["terminal", "file", "delegation"],
        env={"AGUI_API_KEY": KEY},
        config={"quick_commands": {"greet": {"type": "exec", "command": "echo SECRET-COMMAND"}}},
    ) as running:
        yield running


def ask(chat: Chat, method: str, rest: str = "", body: dict[str, Any] | None = None) -> httpx.Response:
    """A request on the chat's thread, as its principal."""
    headers = {} if chat.key is None else {"Authorization": f"Bearer {chat.key}"}
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}{rest}"
    return httpx.request(method, url, json=body, headers=headers, timeout=60)


def look(chat: Chat) -> dict[str, Any]:
    response = ask(chat, "GET")
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def listed(chat: Chat, what: str) -> list[dict[str, Any]]:
    response = ask(chat, "GET", f"/{what}")
    assert response.status_code == 200, response.text
    made: list[dict[str, Any]] = response.json()[what]
    return made


def commands(gateway: Gateway, key: str | None = None) -> dict[str, dict[str, Any]]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    response = httpx.get(f"{gateway.url}/agui/commands", headers=headers, timeout=30)
    assert response.status_code == 200, response.text
    return {one["name"]: one for one in response.json()["commands"]}


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json().get("code", "")


def talked(gateway: Gateway) -> Chat:
    """A thread with a tool call and two exchanges."""
    chat = Chat(gateway)
    steps = script({"text": "I look.", "tools": [call("terminal", {"command": "echo a"})]}, {"text": "One."})
    chat.say(steps, context=[{"description": "page", "value": "home"}]).succeeded()
    chat.say(script({"text": "Two."})).succeeded()
    return chat


# --- branch


def test_a_branch_is_a_thread_of_its_own_with_the_same_past(acting: Gateway, model: GatedModel) -> None:
    chat = talked(acting)
    before = look(chat)
    made = ask(chat, "POST", "/branch", {"title": f"Another way {chat.thread}"})
    assert made.status_code == 201, made.text
    told = made.json()
    assert told["title"] == f"Another way {chat.thread}" and told["branchedFrom"] == chat.thread
    branch = Chat(acting, thread=told["threadId"], messages=list(chat.messages), calls=list(chat.calls))
    assert look(branch)["messages"] == before["messages"] == chat.messages
    assert look(branch)["title"] == told["title"]
    # The original's session is where it was, and Hermes knows what was branched from what.
    assert chat.sessions() != branch.sessions() and len(branch.sessions()) == 1
    parents = query(acting, "SELECT parent_session_id, model_config FROM sessions WHERE id = ?", branch.sessions()[0])
    assert parents[0][0] == chat.sessions()[0] and json.loads(parents[0][1])["_branched_from"] == chat.sessions()[0]
    # Both go on, each for itself; the branch replays the past byte for byte, so the provider's cache stays warm.
    past = [request for request in model.requests if "Two." in json.dumps(request["messages"][-1])][-1]["messages"]
    run = branch.say(script({"text": "In the branch."})).succeeded()
    assert not run.of("MESSAGES_SNAPSHOT") and run.text() == "In the branch."
    assert model.requests[-1]["messages"][1 : len(past)] == past[1:]
    chat.say(script({"text": "In the original."})).succeeded()
    for one, said, not_said in ((branch, "branch", "original"), (chat, "original", "branch")):
        history = look(one)["messages"]
        assert history == one.messages
        assert f"In the {said}." in json.dumps(history) and f"In the {not_said}." not in json.dumps(history)
        one.assert_as_transcript()
    listing = httpx.get(f"{acting.url}/agui/threads?limit=200", timeout=30).json()["threads"]
    assert {chat.thread, branch.thread} <= {one["threadId"] for one in listing}


def test_a_branch_can_be_edited_like_the_original(acting: Gateway, model: GatedModel) -> None:
    chat = talked(acting)
    name = unique("br")
    assert ask(chat, "POST", "/branch", {"threadId": name}).json()["threadId"] == name
    branch = Chat(acting, thread=name, messages=chat.messages[:4])
    again = branch.say(script({"text": "Two, otherwise."})).succeeded()
    assert again.text() == "Two, otherwise."
    assert look(branch)["messages"] == branch.messages
    assert [m["content"] for m in look(chat)["messages"]][-1] == "Two."
    assert '"Two."' not in json.dumps(model.requests[-1]["messages"])


def test_a_branch_survives_a_restart(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    chat = talked(gateway)
    branch = Chat(gateway, thread=ask(chat, "POST", "/branch").json()["threadId"])
    before = look(branch)
    assert before["messages"] == chat.messages and before["title"]
    gateway.stop()
    gateway.start()
    assert look(branch)["messages"] == before["messages"] and look(branch)["title"] == before["title"]
    branch.messages = list(chat.messages)
    assert not branch.say(script({"text": "On."})).succeeded().of("MESSAGES_SNAPSHOT")
    assert look(branch)["messages"] == branch.messages


def test_what_cannot_be_branched(acting: Gateway, model: GatedModel) -> None:
    chat, gate = talked(acting), unique("g")
    assert code(ask(Chat(acting), "POST", "/branch")) == (404, "no_such_thread")
    assert code(ask(chat, "POST", "/branch", {"threadId": chat.thread})) == (409, "thread_exists")
    assert code(ask(chat, "POST", "/branch", {"threadId": talked(acting).thread})) == (409, "thread_exists")
    for body in ({"threadId": ""}, {"threadId": 1}, {"title": " "}, {"title": "x" * 201}, {"threadId": "x" * 5000}):
        assert code(ask(chat, "POST", "/branch", body)) == (422, "invalid_input"), body
    run = chat.start(script({"text": f"An {{gate:{gate}}} answer."})).wait_text(gate)
    assert code(ask(chat, "POST", "/branch")) == (409, "thread_busy")
    model.open_gate(gate)
    run.finish()
    command = Chat(acting)
    command.say("/help").succeeded()
    assert ask(command, "POST", "/branch").status_code in (201, 409)


# --- compress


def long_talk(gateway: Gateway) -> Chat:
    chat = talked(gateway)
    for number in range(6):
        chat.say(script({"text": f"Answer {number}: {WORDS}."})).succeeded()
    return chat


def counted(chat: Chat) -> int:
    """How many messages the list of threads tells of it."""
    threads = httpx.get(f"{chat.gateway.url}/agui/threads", trust_env=False).json()["threads"]
    (count,) = (one["messageCount"] for one in threads if one["threadId"] == chat.thread)
    return int(count)


def test_compress_shortens_what_the_model_gets_and_nothing_that_people_see(acting: Gateway, model: GatedModel) -> None:
    chat = long_talk(acting)
    seen, size = look(chat)["messages"], len(model.requests[-1]["messages"])
    done = ask(chat, "POST", "/compress", {"focus": "the answers"})
    assert done.status_code == 200, done.text
    assert done.json()["compressed"] is True
    assert re.search(r"Compressed: 18 → \d+ messages", done.json()["text"]) and "the answers" in done.json()["text"]
    assert look(chat)["messages"] == seen
    assert counted(chat) == counted(chat) == len(seen)  # the second time from memory
    run = chat.say(script({"text": "After it."})).succeeded()
    assert counted(chat) == len(seen) + 2
    assert len(model.requests[-1]["messages"]) < size
    assert "CONTEXT COMPACTION" in json.dumps(model.requests[-1]["messages"])
    assert not run.of("MESSAGES_SNAPSHOT")
    assert look(chat)["messages"][: len(seen)] == seen and len(look(chat)["messages"]) == len(seen) + 2
    assert plain(look(chat)["messages"]) == plain(chat.messages)


def test_a_branch_of_a_compressed_thread_shows_all_of_it(acting: Gateway, model: GatedModel) -> None:
    chat = long_talk(acting)
    assert ask(chat, "POST", "/compress").json()["compressed"] is True
    chat.say(script({"text": "After it."})).succeeded()
    branch = Chat(acting, thread=ask(chat, "POST", "/branch").json()["threadId"])
    assert look(branch)["messages"] == look(chat)["messages"]
    past = model.requests[-1]["messages"]
    branch.messages = list(chat.messages)
    branch.say(script({"text": "In the branch."})).succeeded()
    assert model.requests[-1]["messages"][1 : len(past)] == past[1:]
    assert plain(look(branch)["messages"]) == plain(branch.messages)


def test_what_cannot_be_compressed(acting: Gateway, model: GatedModel) -> None:
    assert code(ask(Chat(acting), "POST", "/compress")) == (404, "no_such_thread")
    chat, gate = Chat(acting), unique("g")
    run = chat.start(script({"text": f"An {{gate:{gate}}} answer."})).wait_text(gate)
    assert code(ask(chat, "POST", "/compress")) == (409, "thread_busy")
    model.open_gate(gate)
    chat.keep(run.finish())
    assert code(ask(chat, "POST", "/compress", {"focus": 1})) == (422, "invalid_input")
    short = ask(chat, "POST", "/compress").json()
    assert short["compressed"] is False and short["text"]


# --- usage


def test_a_thread_tells_its_usage(acting: Gateway) -> None:
    chat = Chat(acting)
    chat.say(script({"text": "One.", "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}}))
    chat.say(script({"text": "Two.", "usage": {"prompt_tokens": 1200, "completion_tokens": 30, "total_tokens": 1230}}))
    usage = look(chat)["usage"]
    assert usage["model"] == "scripted-1" and usage["modelCalls"] == 2
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (2200, 50, 2250)
    assert usage["context"] == {"usedTokens": 1200, "maxTokens": 128000, "fill": 0.0094}
    assert "cost" not in usage  # nobody knows what a scripted model costs


# --- subagents


def delegated(chat: Chat) -> tuple[str, Any]:
    """A child of the thread that stands in a tool until the file is there; its mark, and the file."""
    mark, flag = unique("child"), chat.gateway.work_dir / unique("flag")
    command = f"until [ -e {flag.name} ]; do sleep 0.05; done"
    child = script({"text": mark, "tools": [call("terminal", {"command": command})]}, {"text": f"{mark} is done."})
    steps = script({"text": "I delegate.", "tools": [call("delegate_task", {"goal": child})]}, {"text": "Delegated."})
    chat.say(steps).succeeded()
    wait_until(lambda: any(one["toolCount"] for one in listed(chat, "subagents")), "the child's tool runs")
    return mark, flag


def test_running_subagents_are_listed_and_steered(acting: Gateway, model: GatedModel) -> None:
    chat, other = Chat(acting), talked(acting)
    mark, flag = delegated(chat)
    (child,) = listed(chat, "subagents")
    assert mark in child["goal"] and child["lastTool"] == "terminal" and child["status"] == "running"
    assert child["model"] == "scripted-1" and child["startedAt"] > 1_600_000_000_000
    assert listed(other, "subagents") == []
    for what, body in (("stop", None), ("steer", {"text": "x"})):
        assert code(ask(other, "POST", f"/subagents/{child['id']}/{what}", body)) == (404, "no_such_subagent")
    assert code(ask(chat, "POST", f"/subagents/{child['id']}/steer", {"text": ""})) == (422, "invalid_input")
    steered = ask(chat, "POST", f"/subagents/{child['id']}/steer", {"text": f"Hurry, {mark}-hint"})
    assert steered.status_code == 202
    flag.touch()
    wait_until(lambda: not listed(chat, "subagents"), "the child ended")
    assert any(f"{mark}-hint" in json.dumps(one["messages"][-1]) for one in model.requests)
    wait_until(lambda: f"{mark} is done." in json.dumps(look(chat)["messages"]), "its result came back")


def test_a_running_subagent_is_stopped(acting: Gateway) -> None:
    chat = Chat(acting)
    _, flag = delegated(chat)
    (child,) = listed(chat, "subagents")
    assert ask(chat, "POST", f"/subagents/{child['id']}/stop").status_code == 202
    wait_until(lambda: not listed(chat, "subagents"), "the child ended")
    assert not flag.exists()
    assert code(ask(chat, "POST", f"/subagents/{child['id']}/stop")) == (404, "no_such_subagent")
    assert code(ask(chat, "POST", f"/subagents/{child['id']}/steer", {"text": "x"})) == (404, "no_such_subagent")


# --- processes


def test_background_processes_are_listed_and_stopped(acting: Gateway) -> None:
    chat, other = Chat(acting), talked(acting)
    start = {"command": "echo begun; sleep 300", "background": True}
    chat.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."})).succeeded()
    process = wait_until(lambda: [p for p in listed(chat, "processes") if "begun" in p["output"]], "the output")[0]
    assert process["status"] == "running" and process["command"] == start["command"]
    assert listed(other, "processes") == []
    assert code(ask(other, "POST", f"/processes/{process['id']}/stop")) == (404, "no_such_process")
    assert listed(chat, "processes")[0]["status"] == "running"
    stopped = ask(chat, "POST", f"/processes/{process['id']}/stop")
    assert stopped.status_code == 200
    assert stopped.json() == {"processId": process["id"], "stopped": True, "output": stopped.json()["output"]}
    assert stopped.json()["output"].endswith("begun\n")
    assert listed(chat, "processes")[0]["status"] == "exited"
    assert ask(chat, "POST", f"/processes/{process['id']}/stop").json()["stopped"] is False
    assert code(ask(chat, "POST", "/processes/proc_000/stop")) == (404, "no_such_process")


def test_what_tools_do_is_hidden_where_the_operator_says_so(make_gateway: Callable[..., Gateway]) -> None:
    chat = Chat(make_gateway(agui={"tool_output": "names"}))
    start = {"command": "echo HIDDEN-WORD; sleep 300", "background": True}
    chat.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."})).succeeded()
    (process,) = listed(chat, "processes")
    stopped = ask(chat, "POST", f"/processes/{process['id']}/stop")
    assert stopped.json() == {"processId": process["id"], "stopped": True}
    assert "HIDDEN-WORD" not in json.dumps(process)


# --- commands


def test_commands_are_hermes_own(acting: Gateway) -> None:
    from hermes_cli.commands import COMMAND_REGISTRY

    told = commands(acting)
    for one in COMMAND_REGISTRY:
        if one.cli_only and not one.gateway_config_gate:
            assert one.name not in told
        elif one.name == "yolo":
            assert one.name not in told, "that is the owner's alone"
        elif not one.cli_only:
            assert told[one.name]["description"] == one.description
            assert told[one.name]["arguments"] == one.args_hint
    assert told["new"]["aliases"] == ["reset"]
    assert told["greet"]["kind"] == "quick" and "SECRET-COMMAND" not in json.dumps(told)


def test_commands_follow_the_operators_access_rules(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(
        agui={"allow_admin_from": ["owner"], "user_allowed_commands": ["/compress", "usage"]},
        env={"AGUI_API_KEY": KEY},
        config={"quick_commands": {"greet": {"type": "exec", "command": "echo hi"}}},
    )
    mine = {name for name, one in commands(gateway).items() if one["kind"] != "skill"}
    assert mine == {"compress", "usage", "help", "whoami"}
    assert {"branch", "new", "greet"} <= commands(gateway, KEY).keys()
    chat = talked(gateway)
    assert code(ask(chat, "POST", "/branch")) == (403, "not_allowed")
    assert ask(chat, "POST", "/compress").status_code == 200
    admin = Chat(gateway, key=KEY)
    admin.say(script({"text": "Hello."})).succeeded()
    assert ask(admin, "POST", "/branch").status_code == 201


def test_who_may_not_talk_may_use_no_command(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY, "AGUI_ALLOWED_USERS": None})
    assert commands(gateway) == {}
    assert "help" in commands(gateway, KEY)


# --- everybody else


def test_another_principals_thread_is_nobodys(acting: Gateway) -> None:
    mine = talked(acting)
    start = {"command": "sleep 300", "background": True}
    mine.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."})).succeeded()
    process = listed(mine, "processes")[0]["id"]
    theirs = Chat(acting, thread=mine.thread, key=KEY)
    for method, rest, body in (
        ("GET", "", None),
        ("POST", "/branch", {}),
        ("POST", "/compress", {}),
        ("POST", "/stop", None),
        ("POST", "/steer", {"text": "x"}),
        ("GET", "/subagents", None),
        ("POST", "/subagents/sa-0-00000000/stop", None),
        ("POST", "/subagents/sa-0-00000000/steer", {"text": "x"}),
        ("GET", "/processes", None),
        ("POST", f"/processes/{process}/stop", None),
    ):
        assert code(ask(theirs, method, rest, body)) == (404, "no_such_thread"), rest
    # Nor by a thread of the same id that they have themselves.
    theirs.say(script({"text": "Theirs."})).succeeded()
    assert listed(theirs, "processes") == []
    assert code(ask(theirs, "POST", f"/processes/{process}/stop")) == (404, "no_such_process")
    assert ask(mine, "POST", f"/processes/{process}/stop").json()["stopped"] is True
    stranger = {"Authorization": "Bearer a-wrong-key-of-some-length"}
    assert httpx.get(f"{acting.url}/agui/commands", headers=stranger, timeout=30).status_code == 401
