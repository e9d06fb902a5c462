"""Storms: many runs at once on one thread, by AG-UI and REST. Each stream ends once, and no message is lost unsaid."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import DEADLINE, Chat, GatedModel, call, script, unique, wait_until

Send = Callable[[httpx.AsyncClient, str, str], Awaitable[str]]
TOOLS = [{"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}]


async def agui(http: httpx.AsyncClient, thread: str, mark: str) -> str:
    """How a run ended: success, cancelled, or the code of its error."""
    message = {"id": f"u-{mark}", "role": "user", "content": script({"text": f"Answer to {mark}."}, say=mark)}
    body = {"threadId": thread, "runId": f"r-{mark}", "protocolVersion": "1.0", "messages": [message]}
    told = await http.post("/agui", json=body)
    if told.status_code != 200:
        assert told.status_code == 429 and told.headers["Retry-After"], told.text
        return str(told.json()["code"])
    events = [json.loads(line[6:]) for line in told.text.splitlines() if line.startswith("data: ")]
    ends = [event for event in events if event["type"] in ("RUN_FINISHED", "RUN_ERROR")]
    assert len(ends) == 1 and events[-1] is ends[0] and events[0]["type"] == "RUN_STARTED", told.text
    (end,) = ends
    return str(end["code"] if end["type"] == "RUN_ERROR" else end.get("outcome", {"type": "success"})["type"])


async def rest(http: httpx.AsyncClient, thread: str, mark: str) -> str:
    asked = script({"text": f"Answer to {mark}."}, say=mark)
    told = await http.post("/v1/runs", json={"input": asked, "session_id": thread})
    if told.status_code != 202:
        assert told.status_code == 429 and told.headers["Retry-After"], told.text
        return str(told.json()["error"]["code"])
    run = f"/v1/runs/{told.json()['run_id']}"
    text = (await http.get(f"{run}/events")).text
    events = [json.loads(line[6:])["event"] for line in text.splitlines() if line.startswith("data: {")]
    assert sum(one in ("run.completed", "run.failed", "run.cancelled") for one in events) == 1, text
    state = (await http.get(run)).json()
    return "success" if state["status"] == "completed" else str((state.get("error") or {}).get("code", state["status"]))


async def storm(url: str, thread: str, sends: dict[str, Send]) -> dict[str, str]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=DEADLINE * 3, limits=limits, trust_env=False) as http:
        ends = await asyncio.gather(*(send(http, thread, mark) for mark, send in sends.items()))
    return dict(zip(sends, ends, strict=True))


def shown(gateway: Gateway, thread: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = httpx.get(f"{gateway.url}/agui/threads/{thread}").json()["messages"]
    return [{"role": one["role"], "content": json.dumps(one.get("content", ""))} for one in found]


def check(gateway: Gateway, thread: str, ends: dict[str, str]) -> Counter[str]:
    """A message is in the history once, with its answer where it got one; or its run ended in an error."""
    messages = shown(gateway, thread)
    for mark, end in ends.items():
        said = sum(one["role"] == "user" and mark in one["content"] for one in messages)
        assert said == (end in ("success", "cancelled")), (mark, end)
        if end == "success":
            assert sum(one["role"] == "assistant" and mark in one["content"] for one in messages) == 1, mark
    log = gateway.log_path.read_text()
    assert "Dropping busy-mode" not in log and "Traceback" not in log
    return Counter(ends.values())


def blow(gateway: Gateway, sends: list[Send], thread: str = "") -> Counter[str]:
    thread = thread or unique()
    return check(gateway, thread, asyncio.run(storm(gateway.url, thread, {unique("m"): send for send in sends})))


@pytest.mark.parametrize(
    "rule", ["interrupt", pytest.param("queue", marks=pytest.mark.slow), pytest.param("steer", marks=pytest.mark.slow)]
)
def test_forty_runs_at_once_on_one_thread(rule: str, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"busy": rule, **({"max_queued_per_principal": 20} if rule == "queue" else {})})
    thread = unique()
    ended = blow(gateway, [agui, rest] * 20, thread)
    if rule == "interrupt":
        assert ended["success"] and ended["success"] + ended["cancelled"] == 40, ended
    elif rule == "queue":
        assert ended["success"] >= 20 and ended["success"] + ended["too_many_queued"] == 40, ended
    else:
        assert ended == {"success": 40}
    assert blow(gateway, [agui], thread) == {"success": 1}, "the thread is free again"


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["interrupt", "queue", "steer"])
@pytest.mark.parametrize("send", [agui, rest])
def test_fifty_runs_at_once_on_one_thread(rule: str, send: Send, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"busy": rule})
    for _ in range(3):
        ended = blow(gateway, [send] * 50)
        assert sum(ended.values()) == ended["success"] + ended["cancelled"] == 50, ended


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["interrupt", "queue", "steer"])
def test_a_storm_on_a_turn_in_the_middle_of_its_work(
    rule: str, make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    """With steer all of them go into that turn: the model reads each, and the history shows each."""
    gateway, gate = make_gateway(agui={"busy": rule}), unique("g")
    chat = Chat(gateway)
    steps = [
        {"text": f"Wait {{gate:{gate}}}.", "tools": [call("terminal", {"command": "echo looked"})]},
        {"text": "So."},
    ]
    first = chat.start(script(*steps, say="first"))
    wait_until(lambda: model.reached(gate), "the first turn works")
    marks = {unique("m"): agui for _ in range(50)}

    async def work() -> dict[str, str]:
        blowing = asyncio.create_task(storm(gateway.url, chat.thread, marks))
        if rule != "interrupt":
            await asyncio.sleep(1)  # most of them came by now; which of them is not what is tested
        model.open_gate(gate)
        return await blowing

    ends = asyncio.run(work())
    first.finish()
    assert first.end["type"] == "RUN_FINISHED"
    assert set(ends.values()) <= {"success", "cancelled"}, ends
    messages = shown(gateway, chat.thread)
    for mark in marks:
        assert sum(one["role"] == "user" and mark in one["content"] for one in messages) == 1, mark
    if rule == "steer":
        assert all(mark in json.dumps(model.requests[-1]) for mark in marks), "the model has read all of them"
