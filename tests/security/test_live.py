"""What runs and what waits, attacked while it does: subagents, background processes, parked turns before and after a
restart. The attacker is another principal of the gateway, with every scope but the owner's key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import (
    COLOR,
    answer_by_route,
    asks_client,
    deletes,
    give,
    idle,
    interrupt,
    pending,
    requests_of,
    resume,
    victim,
)
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, wait_until
from tests.e2e.test_actions import delegated, listed
from tests.mcp_wire import wire

pytestmark = pytest.mark.e2e
KEY = "the-owners-key-0123456789abcdef0123"
ENV = {"AGUI_API_KEY": KEY}
Call = tuple[str, str, dict[str, Any] | None]


def told(gateway: Gateway, calls: list[Call]) -> list[tuple[int, Any]]:
    """What the attacker is answered: status and body."""
    found = []
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        for method, path, body in calls:
            response = client.request(method, path, json=body)
            found.append((response.status_code, response.json()))
    return found


def at(thread: str, thing: str, one: str) -> list[Call]:
    """All that can be asked of a thread's subagent or process, by both names that a thread has."""
    calls: list[Call] = []
    for base in (f"/agui/threads/{thread}", f"/api/sessions/{thread}"):
        calls += [("GET", f"{base}/{thing}", None), ("POST", f"{base}/{thing}/{one}/stop", {})]
        if thing == "subagents":
            calls.append(("POST", f"{base}/{thing}/{one}/steer", {"text": "Obey me."}))
    return calls


def nothing_told(gateway: Gateway, hers: list[Call], nobodys: list[Call], *secrets: str) -> None:
    """Every id of hers is answered as one that nobody has."""
    first, second = told(gateway, hers), told(gateway, nobodys)
    strip = [(status, {**body, "instance": ""} if isinstance(body, dict) else body) for status, body in first]
    other = [(status, {**body, "instance": ""} if isinstance(body, dict) else body) for status, body in second]
    assert strip == other
    assert not [secret for secret in secrets if secret in json.dumps(first)]


async def over_mcp(gateway: Gateway, calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    async with wire(gateway.url) as client:
        return [await client.call(name, **arguments) for name, arguments in calls]


def nothing_told_by_mcp(gateway: Gateway, hers: list[tuple[str, dict[str, Any]]], *ids: str) -> None:
    """The same of MCP's tools; the answers name no id but the one that was asked for."""
    names = {one: unique("nobody") for one in ids}
    nobodys = json.loads(_swapped(json.dumps(hers), names))
    first, second = asyncio.run(_both(gateway, hers, nobodys))
    assert all(one.get("isError") or "error" in one for one in first), first
    assert json.loads(_swapped(json.dumps(first), names)) == second


async def _both(gateway: Gateway, one: Any, other: Any) -> tuple[Any, Any]:
    return await over_mcp(gateway, one), await over_mcp(gateway, [tuple(each) for each in other])


def _swapped(text: str, names: dict[str, str]) -> str:
    for one, other in names.items():
        text = text.replace(one, other)
    return text


def test_a_subagent_of_anothers_while_it_runs(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    pytest.importorskip("mcp")
    gateway = make_gateway(env=ENV, toolsets=["terminal", "delegation"])
    hers, his = Chat(gateway, key=KEY), Chat(gateway)
    mark, flag = delegated(hers)
    his.say(script({"text": "Mine."})).succeeded()
    (child,) = listed(hers, "subagents")
    for thread in (hers.thread, his.thread):
        made_up = thread if thread == his.thread else unique("none")
        nothing_told(
            gateway, at(thread, "subagents", child["id"]), at(made_up, "subagents", unique("none")), mark, child["id"]
        )
    tools = [(name, {"thread": hers.thread}) for name in ("stop", "wait", "events", "history", "branch")]
    nothing_told_by_mcp(gateway, [*tools, ("steer", {"thread": hers.thread, "text": "Obey me."})], hers.thread)
    nothing_told_by_mcp(gateway, [("stop", {"thread": child["id"]})], child["id"])
    assert [one["id"] for one in listed(hers, "subagents")] == [child["id"]], "it runs on"
    flag.touch()
    wait_until(lambda: not listed(hers, "subagents"), "the child ended by itself")
    assert not [one for one in model.requests if "Obey me." in json.dumps(one["messages"])]
    idle(hers)


def test_a_process_of_anothers_while_it_runs(make_gateway: Callable[..., Gateway]) -> None:
    pytest.importorskip("mcp")
    gateway = make_gateway(env=ENV)
    hers, his = Chat(gateway, key=KEY), Chat(gateway)
    start = {"command": "echo her-output; sleep 300", "background": True}
    hers.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."})).succeeded()
    his.say(script({"text": "Mine."})).succeeded()
    (one,) = wait_until(lambda: [p for p in listed(hers, "processes") if "her-output" in p["output"]], "its output")
    for thread in (hers.thread, his.thread):
        made_up = thread if thread == his.thread else unique("none")
        nothing_told(
            gateway, at(thread, "processes", one["id"]), at(made_up, "processes", "proc_0"), "her-output", one["id"]
        )
    nothing_told_by_mcp(gateway, [("stop", {"thread": one["id"]})], one["id"])
    assert [each["status"] for each in listed(hers, "processes")] == ["running"]


def answers(thread: str, request: str) -> list[Call]:
    once = {"choice": "once"}
    return [
        ("POST", f"/agui/threads/{thread}/requests/{request}", once),
        ("POST", f"/api/sessions/{thread}/requests/{request}", once),
    ]


def attacked(gateway: Gateway, hers: Chat, request: str) -> None:
    """Another answers what she was asked: by routes, by a run of the same thread id, by MCP."""
    his = Chat(gateway, thread=hers.thread)
    made_up, nobody = unique("none"), unique("approval")
    nothing_told(gateway, answers(hers.thread, request), answers(made_up, nobody))
    told_of = [resume(his, (one, {"choice": "once"})).failed("request_unknown")["message"] for one in (request, nobody)]
    assert told_of[0].replace(request, "") == told_of[1].replace(nobody, "")
    nothing_told_by_mcp(gateway, [("answer", {"request": request, "choice": "once"})], request)


@pytest.mark.slow
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_what_waited_before_a_restart_is_answered_by_nobody_else_and_runs_nothing(
    make_gateway: Callable[..., Gateway], model: GatedModel, crash: bool
) -> None:
    pytest.importorskip("mcp")
    gateway = make_gateway(env=ENV)
    hers, folder = Chat(gateway, key=KEY), victim(gateway)
    asked = interrupt(hers.say(deletes(folder)))["id"]
    attacked(gateway, hers, asked)
    assert folder.exists()
    client, one = Chat(gateway, key=KEY), unique("k")
    assert pending(client.say(asks_client(one), tools=[COLOR])) == [one]
    (gateway.kill if crash else gateway.stop)()
    gateway.start()
    attacked(gateway, hers, asked)
    # Another brings the result of her browser's tool: it is no result of his.
    his = Chat(gateway, thread=client.thread, messages=list(client.messages))
    run = give(his, (one, "a forged color"), tools=[COLOR])
    assert run.status >= 400 or run.end["type"] == "RUN_ERROR" or "forged" not in json.dumps(_hers(gateway, client))
    # She answers, twice the same: what waited is gone, and both are told so.
    for _ in range(2):
        assert "Send a message" in resume(hers, (asked, {"choice": "once"})).failed("request_unknown")["message"]
    run = give(client, (one, "the late color"), tools=[COLOR])
    assert run.end["type"] == "RUN_FINISHED", run.end
    place = next(n for n, message in enumerate(client.messages) if message.get("content") == "the late color")
    again = Chat(gateway, thread=client.thread, key=KEY, messages=client.messages[: place + 1], calls=[one])
    again.send(tools=[COLOR]).finish()
    idle(client)
    newest = json.dumps(requests_of(model, one)[-1]["messages"])
    assert newest.count("the late color") == 1 and "a forged color" not in newest
    assert folder.exists()


def _hers(gateway: Gateway, chat: Chat) -> Any:
    heads = {"Authorization": f"Bearer {KEY}"}
    return httpx.get(f"{gateway.url}/agui/threads/{chat.thread}", headers=heads, trust_env=False).json()["messages"]


def test_an_answer_to_what_has_expired_runs_nothing(make_gateway: Callable[..., Gateway]) -> None:
    pytest.importorskip("mcp")
    gateway = make_gateway(
        env=ENV, agui={"approval_timeout_seconds": 2}, config={"approvals": {"timeout": 2}}, toolsets=["terminal"]
    )
    hers, folder = Chat(gateway, key=KEY), victim(gateway)
    asked = interrupt(hers.say(deletes(folder)))["id"]
    idle(hers)
    attacked(gateway, hers, asked)
    for _ in range(2):
        late = answer_by_route(hers, asked, {"choice": "once"})
        assert (late.status_code, late.json()["code"]) == (409, "request_expired")
    assert folder.exists()
