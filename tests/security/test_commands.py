"""Commands and approvals at a real gateway: each road by which text becomes a command, tried without the scope."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import answer_by_route, deletes, headers, interrupt, open_requests, resume, victim
from tests.e2e.helpers import Chat, GatedModel, script, unique, write_plugin

KEY = "the-owners-key-0123456789"
PLUGIN = """
def register(ctx):
    ctx.register_command("boom", lambda args: "BOOM", description="A plugin's command.")
"""


@pytest.fixture(scope="module")
def guarded(model: GatedModel) -> Iterator[Gateway]:
    """A gateway whose callers have the scopes that the plugin gives by default."""
    gateway = Gateway(
        model,
        toolsets=["terminal"],
        agui={"user_scopes": ["read", "run", "approve"], "user_commands": ["status", "new", "hello"]},
        env={"AGUI_API_KEY": KEY},
        config={
            "plugins": {"enabled": ["agui", "boom"]},
            "quick_commands": {
                "touch": {"type": "exec", "command": "touch quick-command-ran"},
                "hello": {"type": "exec", "command": "echo hello there"},
                "free": {"type": "alias", "target": "/yolo"},
            },
        },
    )
    write_plugin(gateway.home, "boom", PLUGIN)
    skill = gateway.home / "skills" / "probing" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: probing\ndescription: A skill.\n---\nProbe.\n", "utf-8")
    with gateway as running:
        yield running


def calls_for(model: GatedModel, mark: str) -> int:
    return sum(mark in json.dumps(one["messages"]) for one in model.requests)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "text",
    [
        *(
            "/restart",
            "/RESTART@bot now",
            "restart gateway",
            "Please restart Hermes!",
            "/stop",
            "/model other",
            "/q /restart",
        ),
        *("/touch", "/boom", "/probing do it", "/free", "/nothing-like-it", "/reset\n/restart"),
    ],
)
def test_a_command_without_the_scope_is_refused_and_does_nothing(
    guarded: Gateway, model: GatedModel, text: str
) -> None:
    mark = unique()
    chat = Chat(guarded)
    run = chat.start(f"{text} {mark}" if text.startswith("/") else text).finish()
    problem = run.problem()
    assert (run.status, problem["code"]) == (403, "command_not_allowed"), problem
    assert calls_for(model, mark) == 0 and chat.sessions() == []
    assert not list(guarded.home.rglob("quick-command-ran"))
    assert httpx.get(f"{guarded.url}/health", timeout=30).status_code == 200


@pytest.mark.e2e
def test_what_the_operator_lists_is_everybodys(guarded: Gateway) -> None:
    assert "hello there" in Chat(guarded).say("/hello").succeeded().text()
    assert "Session" in Chat(guarded).say("/status").succeeded().text()
    told = httpx.get(f"{guarded.url}/agui/commands", timeout=30).json()["commands"]
    assert {one["name"] for one in told} == {"status", "new", "hello", "approve", "deny"}
    mine = httpx.get(f"{guarded.url}/agui/commands", headers={"Authorization": f"Bearer {KEY}"}, timeout=30).json()
    assert {"restart", "yolo", "touch", "free", "boom", "probing"} <= {one["name"] for one in mine["commands"]}


@pytest.mark.e2e
@pytest.mark.parametrize("text", [" /yolo", "\n/restart", "/usr/bin/yolo", "//yolo", "／yolo", "\u200b/restart"])
def test_what_only_looks_like_one_reaches_the_model_word_for_word(
    guarded: Gateway, model: GatedModel, text: str
) -> None:
    said = f"{text} {script({'text': 'Read.'}, say=unique())}"
    chat = Chat(guarded)
    assert chat.say(said).succeeded().text() == "Read."
    seen = [message["content"] for one in model.requests for message in one["messages"] if message["role"] == "user"]
    assert said.strip() in [str(one).strip() for one in seen]  # Hermes strips it, as it does every text


@pytest.mark.e2e
@pytest.mark.parametrize("text", ["/yolo", "/free", "/queue /yolo"])
def test_turning_approvals_off_is_the_owners_alone(
    make_gateway: Callable[..., Gateway], model: GatedModel, text: str
) -> None:
    quick = {"free": {"type": "alias", "target": "yolo"}}
    gateway = make_gateway(env={"AGUI_API_KEY": KEY}, config={"quick_commands": quick})
    admin, owner, folder = Chat(gateway), Chat(gateway, key=KEY), victim(gateway)
    problem = admin.start(text).finish().problem()
    assert problem["code"] == "command_not_allowed" and "owner" in problem["detail"]
    asked = interrupt(admin.say(deletes(folder)))
    assert asked["reason"] and folder.exists(), "the approval is still asked"
    resume(admin, (asked["id"], {"choice": "deny"}))
    owner.say(text.removeprefix("/queue ")).succeeded()
    owner.say(deletes(folder)).succeeded()
    assert not folder.exists(), "the owner may"


@pytest.mark.e2e
@pytest.mark.parametrize("text", [" /yolo", "/queue /help"])
def test_retry_makes_no_command_of_what_was_text(make_gateway: Callable[..., Gateway], text: str) -> None:
    """`/retry` hands the newest user message to Hermes again, which has stripped it: " /yolo" would be /yolo then."""
    agui = {"user_scopes": ["read", "run", "approve"], "user_commands": ["retry", "help"]}
    chat, folder = Chat(gateway := make_gateway(agui=agui)), victim(gateway)
    said = f" {text} {script({'text': 'Read.'})}"
    assert chat.say(said).succeeded().text() == "Read."
    refused = chat.start("/retry").finish()
    assert (refused.status, refused.problem()["code"]) == (403, "command_not_allowed")
    asked = interrupt(chat.say(deletes(folder)))
    assert asked["reason"] and folder.exists(), "approvals are asked as before"
    resume(chat, (asked["id"], {"choice": "deny"})).succeeded()
    assert chat.say("/retry").status == 200, "what is no command may be tried again"


@pytest.mark.e2e
class TestApproving:
    def test_no_road_approves_without_the_scope(self, make_gateway: Callable[..., Gateway]) -> None:
        runners = make_gateway(agui={"user_scopes": ["read", "run"]})
        chat, folder = Chat(runners), victim(runners)
        asked = interrupt(chat.say(deletes(folder)))
        for payload in ({"choice": "once"}, {"choice": "always"}, {"approved": True}, "session"):
            run = chat.send(resume=[{"interruptId": asked["id"], "status": "resolved", "payload": payload}]).finish()
            run.failed("scope_missing")
            body = payload if isinstance(payload, dict) else {"choice": payload}
            response = answer_by_route(chat, asked["id"], body)
            assert (response.status_code, response.json()["code"]) == (403, "scope_missing")
        chat.send(forwardedProps={"command": {"resume": "approve"}}).finish()
        for text in ("/approve", "/approve all always"):
            typed = Chat(runners, thread=chat.thread, messages=list(chat.messages)).start(text).finish()
            assert typed.status == 403 and typed.problem()["code"] in ("scope_missing", "command_not_allowed")
        assert folder.exists() and [one["id"] for one in open_requests(chat)] == [asked["id"]]
        resume(chat, (asked["id"], {"choice": "deny"})).succeeded()
        assert folder.exists()

    def test_for_always_needs_admin(self, guarded: Gateway) -> None:
        chat, folder = Chat(guarded), victim(guarded)
        asked = interrupt(chat.say(deletes(folder)))
        response = answer_by_route(chat, asked["id"], {"choice": "always"})
        assert response.status_code == 403 and "`admin`" in response.json()["detail"]
        resume(chat, (asked["id"], {"choice": "once"})).succeeded()
        assert not folder.exists()


@pytest.mark.e2e
def test_a_reader_runs_changes_and_approves_nothing(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"user_scopes": ["read"]}, env={"AGUI_API_KEY": KEY})
    chat = Chat(gateway)
    problem = chat.start("hello").finish().problem()
    assert (problem["status"], problem["code"]) == (403, "scope_missing")
    one = f"/agui/threads/{chat.thread}"
    with httpx.Client(base_url=gateway.url, timeout=30, headers=headers(chat)) as client:
        for method, path in (
            ("PATCH", one), ("DELETE", one), ("POST", f"{one}/stop"), ("POST", f"{one}/steer"),
            ("POST", f"{one}/branch"), ("POST", f"{one}/compress"), ("POST", f"{one}/subagents/x/stop"),
            ("POST", f"{one}/subagents/x/steer"), ("POST", f"{one}/processes/x/stop"),
        ):  # fmt: skip
            response = client.request(method, path, json={})
            assert (response.status_code, response.json()["code"]) == (403, "scope_missing"), path
        assert client.get("/agui/threads").status_code == 200
        assert client.get(one).status_code == 404
    assert not Path(gateway.home, "quick-command-ran").exists()
