"""Runs, `/chat` and a session's chat over real sockets, with a scripted source of events in the agent's place."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.requests import Answer, new_id
from agui_adapter.session import Turn
from agui_adapter.sse import SseEvent, SseParser
from agui_adapter.stream import (
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageStart,
    MessageStop,
    ReasoningChunk,
    ReasoningStart,
    ReasoningStop,
    Request,
    ToolCall,
    ToolResult,
    TurnFinished,
    Usage,
)
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, Step, serving, until

KEY = "0123456789abcdef-key"
HELLO: list[Step] = [
    MessageStart("m1"),
    MessageChunk("Hel"),
    MessageChunk("lo"),
    Usage("p", "m", 10, 5),
    TurnFinished(),
]
FULL: list[Step] = [
    ReasoningStart("r"),
    ReasoningChunk("I thi"),
    ReasoningChunk("nk."),
    ReasoningStop(),
    MessageStart("m1"),
    MessageChunk("I look."),
    MessageStop(),
    ToolCall("terminal", call_id="c1", arguments='{"command": "ls"}', message_id="m1"),
    ToolResult("terminal", call_id="c1", content="a file", message_id="t1", duration=0.5),
    Usage("p", "m", 10, 5),
    MessageStart("m2"),
    MessageChunk("One file."),
    Usage("p", "m", 20, 7),
    TurnFinished(),
]


class Client:
    """A caller of one server."""

    def __init__(self, adapter: ScriptedAdapter, url: str, http: aiohttp.ClientSession) -> None:
        self.adapter, self.url, self.http = adapter, url, http

    async def ask(self, method: str, path: str, body: Any = None, *, key: str = "", **headers: str) -> Any:
        """Status and JSON."""
        if key:
            headers["Authorization"] = f"Bearer {key}"
        async with self.http.request(method, f"{self.url}{path}", json=body, headers=headers) as response:
            self.headers = response.headers
            return response.status, await response.json(content_type=None)

    async def run(self, body: dict[str, Any] | None = None, **headers: str) -> str:
        """Start a run; its id."""
        status, told = await self.ask("POST", "/v1/runs", body or {"input": "Hello"}, **headers)
        assert status == 202, told
        return str(told["run_id"])

    async def status(self, run_id: str) -> dict[str, Any]:
        status, told = await self.ask("GET", f"/v1/runs/{run_id}")
        assert status == 200, told
        return told  # type: ignore[no-any-return]

    async def reaches(self, run_id: str, wanted: str, member: str = "status") -> dict[str, Any]:
        """Poll until a member of its status is this."""
        async with asyncio.timeout(PATIENCE):
            while True:
                told = await self.status(run_id)
                if told[member] == wanted:
                    return told
                await asyncio.sleep(0.01)

    async def read(self, path: str, body: Any = None, **headers: str) -> list[SseEvent]:
        """A whole stream."""
        method = "GET" if body is None else "POST"
        async with self.http.request(method, f"{self.url}{path}", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            self.headers = response.headers
            return SseParser().feed(await response.read())

    async def events(self, run_id: str, after: str = "") -> list[dict[str, Any]]:
        headers = {"Last-Event-ID": after} if after else {}
        return [
            {**json.loads(one.data), "id": one.id} for one in await self.read(f"/v1/runs/{run_id}/events", **headers)
        ]

    def turn(self) -> Turn:
        return self.adapter.submitted[-1]


@asynccontextmanager
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **extra: Any) -> AsyncIterator[Client]:
    timeout = aiohttp.ClientTimeout(total=2 * PATIENCE)
    async with (
        serving(extra, tmp_path, monkeypatch, key=KEY) as (adapter, url),
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        yield Client(adapter, url, http)


@pytest.fixture
async def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    async with client(tmp_path, monkeypatch) as one:
        yield one


def told(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs between two readings."""
    return [{name: value for name, value in one.items() if name not in ("timestamp", "ts")} for one in events]


def asks(kind: str, **about: Any) -> Step:
    """A turn that waits for an answer, then says it."""

    def step(turn: Turn) -> None:
        request = Request(new_id(kind), kind, "Well?", **about)  # type: ignore[arg-type]
        adapter = step.adapter  # type: ignore[attr-defined]
        pending = adapter.requests.open(turn, request)
        adapter.requests.park(pending)
        assert pending.event.wait(PATIENCE), "nobody answered"
        answer = pending.answer or Answer()
        turn.append(MessageStart("m9"))
        turn.append(MessageChunk(f"[{pending.closed}: {answer.choice or answer.text or answer.error}]"))

    return step


def script(door: Client, *steps: Step) -> None:
    for step in steps:
        if callable(step):
            step.adapter = door.adapter  # type: ignore[attr-defined]
    door.adapter.script = list(steps)


# --- starting and looking


async def test_a_run_is_accepted_goes_on_and_can_be_looked_at(door: Client) -> None:
    gate = Gate()
    script(door, MessageStart("m1"), MessageChunk("Hel"), gate, *HELLO[2:])
    status, told_now = await door.ask("POST", "/v1/runs", {"input": "Hello", "session_id": "s"})
    run_id = told_now["run_id"]
    assert status == 202 and door.headers["Location"] == f"/v1/runs/{run_id}" and run_id.startswith("run_")
    assert told_now["object"] == "hermes.run" and told_now["session_id"] == "s" and told_now["status"] == "running"
    now = await door.reaches(run_id, "Hel", "output")
    assert now["status"] == "running" and now["requests"] == [] and now["created_at"] == told_now["created_at"]
    gate.open()
    done = await door.reaches(run_id, "completed")
    assert done["output"] == "Hello" and done["session_id"] == "s" and "error" not in done
    assert done["usage"] == {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


async def test_its_events_are_the_lifecycle_that_api_server_tells(door: Client) -> None:
    script(door, *FULL)
    run_id = await door.run()
    await door.reaches(run_id, "completed")
    events = await door.events(run_id)
    assert [one["event"] for one in events] == [
        "reasoning.available",
        "message.delta",
        "tool.started",
        "tool.completed",
        "message.delta",
        "run.completed",
    ]
    assert all(one["run_id"] == run_id and one["timestamp"] > 1_600_000_000 for one in events)
    thought, said, started, completed, answer, end = events
    assert thought["text"] == "I think." and said["delta"] == "I look." and answer["delta"] == "One file."
    assert (started["tool"], started["call_id"], started["arguments"]) == ("terminal", "c1", '{"command": "ls"}')
    assert (completed["tool"], completed["output"], completed["error"], completed["duration"]) == (
        "terminal",
        "a file",
        False,
        0.5,
    )
    assert end["output"] == "One file." and end["usage"]["total_tokens"] == 42 and "pending_steer" not in end


async def test_events_go_on_where_a_stream_broke_off_for_every_reader(door: Client) -> None:
    gate = Gate()
    script(door, *FULL[:6], gate, *FULL[6:])
    run_id = await door.run()
    readers = [asyncio.create_task(door.events(run_id)) for _ in range(3)]
    await until(lambda: door.adapter.submitted[-1].readers == 4)  # and the run itself
    gate.open()
    first, *others = [told(await one) for one in readers]
    assert others == [first, first]
    for place, one in enumerate(first):
        assert told(await door.events(run_id, after=one["id"])) == first[place + 1 :]
    query = await door.read(f"/v1/runs/{run_id}/events?after={first[0]['id']}", **{"Last-Event-ID": first[2]["id"]})
    assert len(query) == len(first) - 1
    for made_up in ("x", f"{door.turn().id}.99999", "turn-0.1", f"{door.turn().id}.-1"):
        assert told(await door.events(run_id, after=made_up)) == first


async def test_a_run_that_nobody_reads_goes_on(door: Client) -> None:
    gate = Gate()
    script(door, *HELLO[:2], gate, *HELLO[2:])
    run_id = await door.run()
    reader = asyncio.create_task(door.events(run_id))
    await until(lambda: door.turn().readers == 2)
    reader.cancel()
    await until(lambda: door.turn().readers == 1)  # the run itself
    gate.open()
    assert (await door.reaches(run_id, "completed"))["output"] == "Hello"


@pytest.mark.parametrize(
    ("end", "status", "event"),
    [
        (TurnFinished("failed", "provider_auth", "No key."), "failed", "run.failed"),
        (TurnFinished("cancelled"), "cancelled", "run.cancelled"),
    ],
)
async def test_other_ends(door: Client, end: TurnFinished, status: str, event: str) -> None:
    script(door, *HELLO[:3], end)
    run_id = await door.run()
    done = await door.reaches(run_id, status)
    last = (await door.events(run_id))[-1]
    assert last["event"] == event and done["output"] == "Hello"
    if status == "failed":
        assert done["error"] == {"code": "provider_auth", "message": "No key."}
        assert (last["code"], last["error"]) == ("provider_auth", "No key.")


async def test_a_run_goes_on_with_a_session_and_takes_messages(door: Client) -> None:
    script(door, *HELLO)
    run_id = await door.run({"input": "Hello"})
    assert (await door.reaches(run_id, "completed"))["session_id"] == run_id
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Two"}]
    history = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "1"}]
    body = {"input": messages, "conversation_history": history, "session_id": "s", "instructions": "Be kind."}
    await door.reaches(await door.run(body), "completed")
    turn = door.turn()
    assert turn.text == "Two" and turn.thread.thread_id == "s"
    assert turn.thread.system == "Be kind." and "Be short." in turn.context
    _, listed = await door.ask("GET", "/api/sessions/s/messages")
    assert [one["content"] for one in listed["data"]][:2] == ["One", "1"]


async def test_what_is_no_run(door: Client) -> None:
    for body, status, code in (
        ({}, 422, "invalid_input"),
        ({"input": 1}, 422, "invalid_input"),
        ({"input": ""}, 400, "no_input"),
        ({"input": []}, 422, "invalid_input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, 400, "no_input"),
        ({"input": "x", "session_id": ""}, 422, "invalid_input"),
        ({"input": "x", "conversation_history": [1]}, 422, "invalid_input"),
        ({"input": "x", "previous_response_id": "resp_1"}, 422, "invalid_input"),
    ):
        got, told_error = await door.ask("POST", "/v1/runs", body)
        assert (got, told_error["error"]["code"]) == (status, code), body
    assert not hasattr(door.adapter, "submitted")


async def test_a_busy_session_refuses_or_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(tmp_path, monkeypatch) as door:
        gate = Gate()
        script(door, *HELLO[:2], gate, *HELLO[2:])
        first = await door.run({"input": "1", "session_id": "s"})
        reader = asyncio.create_task(door.events(first))
        await until(lambda: door.turn().readers)
        status, refused = await door.ask("POST", "/v1/runs", {"input": "2", "session_id": "s"})
        assert (status, refused["error"]["code"]) == (409, "thread_busy")
        gate.open()
        await reader


async def test_a_queued_run_says_so_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(tmp_path, monkeypatch, busy="queue") as door:
        gate = Gate()
        script(door, *HELLO[:2], gate, *HELLO[2:])
        first = await door.run({"input": "1", "session_id": "s"})
        reader = asyncio.create_task(door.events(first))
        await until(lambda: door.turn().readers)
        second = await door.run({"input": "2", "session_id": "s"})
        third = await door.run({"input": "3", "session_id": "s"})
        assert (await door.status(second))["status"] == "queued" == (await door.status(third))["status"]
        status, refused = await door.ask("POST", f"/v1/runs/{second}/steer", {"text": "x"})
        assert (status, refused["error"]["code"]) == (409, "run_not_accepting_steer")
        waiting = asyncio.create_task(door.events(second))
        assert await door.ask("POST", f"/v1/runs/{third}/stop") == (200, {"run_id": third, "status": "cancelled"})
        gate.open()
        await reader
        assert (await waiting)[-1]["event"] == "run.completed"
        assert (await door.status(second))["output"] == "Hello"
        assert (await door.status(third))["status"] == "cancelled" and len(door.adapter.submitted) == 2
        assert [one["event"] for one in await door.events(third)] == ["run.cancelled"]


async def test_the_same_key_is_the_same_run(door: Client) -> None:
    script(door, *HELLO)
    both = await asyncio.gather(*(door.run({"input": "x"}, **{"Idempotency-Key": "k"}) for _ in range(4)))
    assert len(set(both)) == 1 and len(door.adapter.submitted) == 1
    status, refused = await door.ask("POST", "/v1/runs", {"input": "y"}, **{"Idempotency-Key": "k"})
    assert (status, refused["error"]["code"]) == (409, "idempotency_conflict")


async def test_a_key_of_a_run_that_could_not_begin_can_be_used_again(door: Client) -> None:
    gate = Gate()
    script(door, *HELLO[:2], gate, *HELLO[2:])
    first = await door.run({"input": "1", "session_id": "s"})
    reader = asyncio.create_task(door.events(first))
    await until(lambda: door.turn().readers)
    body, headers = {"input": "2", "session_id": "s"}, {"Idempotency-Key": "k"}
    both = await asyncio.gather(*(door.ask("POST", "/v1/runs", body, **headers) for _ in range(2)))
    assert [(status, told["error"]["code"]) for status, told in both] == [(409, "thread_busy")] * 2
    gate.open()
    await reader
    assert (await door.reaches(await door.run(body, **headers), "completed"))["output"] == "Hello"


async def test_a_run_keeps_no_log_that_nobody_else_keeps(door: Client) -> None:
    script(door, *HELLO)
    run_id = await door.run()
    await door.reaches(run_id, "completed")
    gone = weakref.ref(door.turn())
    door.adapter.submitted.clear()
    door.adapter.threads.sweep(time.monotonic() + 10**6)
    await until(lambda: gc.collect() >= 0 and gone() is None)  # the archive's worker may still write its record
    assert (await door.status(run_id))["status"] == "completed"
    status, refused = await door.ask("GET", f"/v1/runs/{run_id}/events")
    assert (status, refused["error"]["code"]) == (409, "run_over")


# --- waiting


async def test_a_run_waits_for_an_approval(door: Client) -> None:
    detail = {"command": "rm x", "description": "deletes"}
    script(door, *HELLO[:3], asks("approval", choices=("once", "deny"), detail=detail), TurnFinished())
    run_id = await door.run()
    (request,) = (await door.reaches(run_id, "waiting"))["requests"]
    assert request["kind"] == "approval" and request["choices"] == ["once", "deny"] and request["detail"] == detail
    where = f"/v1/runs/{run_id}"
    reader = asyncio.create_task(door.events(run_id))
    status, refused = await door.ask("POST", f"{where}/steer", {"text": "x"})
    assert (status, refused["error"]["code"]) == (409, "run_not_accepting_steer")
    for wrong, code, expected in (
        ({"choice": "perhaps"}, "invalid_answer", 422),
        ({"choice": "always"}, "invalid_answer", 422),
        ({}, "invalid_input", 422),
        ({"choice": "once", "request_id": "approval-0"}, "no_such_request", 404),
    ):
        status, refused = await door.ask("POST", f"{where}/approval", wrong)
        assert (status, refused["error"]["code"]) == (expected, code), wrong
    status, done = await door.ask("POST", f"{where}/approval", {"choice": "approve"})
    assert (status, done) == (
        200,
        {"object": "hermes.run.approval_response", "run_id": run_id, "choice": "once", "resolved": 1},
    )
    events = await reader
    names = [one["event"] for one in events if one["event"] != "message.delta"]
    assert names == ["approval.request", "run.waiting", "approval.responded", "run.completed"]
    asked = next(one for one in events if one["event"] == "approval.request")
    assert asked["command"] == "rm x" and asked["request_id"] == request["id"]
    assert (await door.status(run_id))["output"].endswith("[answered: once]")
    status, refused = await door.ask("POST", f"{where}/approval", {"choice": "once"})
    assert (status, refused["error"]["code"]) == (409, "approval_not_pending")


async def test_a_run_waits_for_an_answer(door: Client) -> None:
    script(door, asks("clarify", choices=("red", "blue"), free_text=True), TurnFinished())
    run_id = await door.run()
    await door.reaches(run_id, "waiting")
    where = f"/v1/runs/{run_id}"
    status, refused = await door.ask("POST", f"{where}/answer", {"answer": " "})
    assert (status, refused["error"]["code"]) == (422, "invalid_answer")
    status, done = await door.ask("POST", f"{where}/answer", {"answer": "green"})
    assert status == 200 and done["status"] == "answered"
    assert (await door.reaches(run_id, "completed"))["output"] == "[answered: green]"
    status, refused = await door.ask("POST", f"{where}/answer", {"answer": "green"})
    assert (status, refused["error"]["code"]) == (409, "nothing_to_answer")


async def test_a_client_tools_result_is_an_answer(door: Client) -> None:
    script(door, asks("client_tool", call_id="call-1"), TurnFinished())
    run_id = await door.run()
    (request,) = (await door.reaches(run_id, "waiting"))["requests"]
    assert request["call_id"] == "call-1"
    where = f"/v1/runs/{run_id}/answer"
    status, refused = await door.ask("POST", where, {"call_id": "call-2", "content": "x"})
    assert (status, refused["error"]["code"]) == (404, "no_such_request")
    status, done = await door.ask("POST", where, {"call_id": "call-1", "content": "42"})
    assert status == 200 and done["request_id"] == request["id"]
    assert (await door.reaches(run_id, "completed"))["output"] == "[answered: 42]"


# --- steer and stop


async def test_steering_is_told_and_what_came_too_late_too(door: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    taken: list[str] = []
    monkeypatch.setattr(door.adapter, "steer", lambda turn, text, message_id="": taken.append(text) or True)
    further = GatewayNotice("further_turn", "It came too late.", {"messageId": "u", "text": "Hurry", "resend": False})
    script(door, *HELLO[:3], gate, further, MessageStart("m2"), MessageChunk("Yes."), TurnFinished())
    run_id = await door.run()
    status, done = await door.ask("POST", f"/v1/runs/{run_id}/steer", {"text": "Hurry"})
    assert (status, done["steered"], done["status"]) == (200, True, "running") and taken == ["Hurry"]
    for wrong in ({}, {"text": ""}, {"text": 1}):
        assert (await door.ask("POST", f"/v1/runs/{run_id}/steer", wrong))[0] == 422, wrong
    gate.open()
    done = await door.reaches(run_id, "completed")
    assert (done["pending_steer"], done["pending_steer_action"]) == ("Hurry", "ran_as_further_turn")
    events = await door.events(run_id)
    assert [one["text"] for one in events if one["event"] == "run.steered"] == ["Hurry"]
    assert events[-1]["pending_steer"] == "Hurry" and events[-1]["pending_steer_action"] == "ran_as_further_turn"
    status, refused = await door.ask("POST", f"/v1/runs/{run_id}/steer", {"text": "x"})
    assert (status, refused["error"]["code"]) == (409, "run_not_accepting_steer")


async def test_text_that_nobody_has_run_is_given_back(door: Client) -> None:
    lost = GatewayNotice("steer_not_taken", "The turn ended.", {"text": "Hurry"})
    script(door, *HELLO[:3], lost, TurnFinished("cancelled"))
    done = await door.reaches(await door.run(), "cancelled")
    assert (done["pending_steer"], done["pending_steer_action"]) == ("Hurry", "not_run")


async def test_a_run_is_stopped(door: Client) -> None:
    script(door, *HELLO[:2])  # without an end: it runs until somebody stops it
    run_id = await door.run()
    status, done = await door.ask("POST", f"/v1/runs/{run_id}/stop")
    assert (status, done) == (200, {"run_id": run_id, "status": "stopping"})
    await door.reaches(run_id, "cancelled")
    assert (await door.ask("POST", f"/v1/runs/{run_id}/stop"))[1] == {"run_id": run_id, "status": "cancelled"}
    assert (await door.events(run_id))[-1]["event"] == "run.cancelled"


async def test_a_run_that_is_being_stopped_takes_no_text(door: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    script(door, *HELLO[:2], gate, TurnFinished("cancelled"))
    monkeypatch.setattr(door.adapter, "interrupt", lambda turn, reason="": setattr(turn, "stopping", True) or True)
    run_id = await door.run()
    await door.ask("POST", f"/v1/runs/{run_id}/stop")
    await door.reaches(run_id, "stopping")
    status, refused = await door.ask("POST", f"/v1/runs/{run_id}/steer", {"text": "x"})
    assert (status, refused["error"]["code"]) == (409, "run_not_accepting_steer")
    gate.open()
    await door.reaches(run_id, "cancelled")


# --- whose


async def test_anothers_run_is_nobodys(door: Client) -> None:
    script(door, asks("approval", choices=("once", "deny")), TurnFinished())
    run_id = await door.run()
    await door.reaches(run_id, "waiting")
    for method, rest, body in (
        ("GET", "", None),
        ("GET", "/events", None),
        ("POST", "/approval", {"choice": "once"}),
        ("POST", "/answer", {"answer": "x"}),
        ("POST", "/steer", {"text": "x"}),
        ("POST", "/stop", None),
    ):
        mine = await door.ask(method, f"/v1/runs/run_0{rest}", body)
        theirs = await door.ask(method, f"/v1/runs/{run_id}{rest}", body, key=KEY)
        assert mine == theirs and mine[0] == 404 and mine[1]["error"]["code"] == "run_not_found", rest
    assert (await door.status(run_id))["status"] == "waiting"


# --- hidden


async def test_a_run_shows_what_the_operator_lets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(tmp_path, monkeypatch, tool_output="names", reasoning="off") as door:
        script(door, *FULL)
        run_id = await door.run()
        await door.reaches(run_id, "completed")
        text = json.dumps(await door.events(run_id))
        assert "terminal" in text and "a file" not in text and '\\"command\\"' not in text and "I think" not in text
        stream = "".join(one.data for one in await door.read("/chat/stream", {"message": "x"}))
        assert (
            "terminal" in stream
            and "a file" not in stream
            and '\\"command\\"' not in stream
            and "I think" not in stream
        )


# --- /chat


async def test_the_shortest_request(door: Client) -> None:
    script(door, *FULL)
    status, answer = await door.ask("POST", "/chat", {"message": "Hello"})
    assert status == 200 and answer["response"] == "One file." and answer["status"] == "completed"
    assert answer["session_id"] is None and answer["requests"] == [] and answer["usage"]["total_tokens"] == 42
    assert door.turn().one_shot and door.turn().text == "Hello"
    assert (await door.ask("GET", "/api/sessions"))[1]["total"] == 0  # it leaves no session behind
    for wrong in ({}, {"message": ""}, {"message": " "}, {"message": 1}, {"message": "x", "mesage": "y"}):
        assert (await door.ask("POST", "/chat", wrong))[0] == 422, wrong


async def test_a_chat_with_a_session_and_with_what_was_said(door: Client) -> None:
    script(door, *HELLO)
    status, answer = await door.ask("POST", "/chat", {"message": "Hello", "session_id": "s"})
    assert status == 200 and answer["session_id"] == "s" == door.headers["X-Hermes-Session-Id"]
    assert answer["run_id"] == door.headers["X-Hermes-Run-Id"] and not door.turn().one_shot
    history = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello, Ada."}]
    status, answer = await door.ask("POST", "/chat", {"message": "My name?", "history": history})
    assert status == 200 and door.turn().text == "My name?"
    key = door.adapter.key_of(door.turn().thread)
    assert key  # the seeded conversation is Hermes's


async def test_a_chat_that_fails_is_an_error(door: Client) -> None:
    script(door, TurnFinished("failed", "provider_rate_limit", "Slow down."))
    status, problem = await door.ask("POST", "/chat", {"message": "Hello"})
    assert (status, problem["code"], problem["detail"]) == (429, "provider_rate_limit", "Slow down.")


async def test_a_chat_that_waits_says_for_what(door: Client) -> None:
    script(door, asks("clarify", free_text=True), TurnFinished())
    status, answer = await door.ask("POST", "/chat", {"message": "Hello", "session_id": "s"})
    assert status == 200 and answer["status"] == "waiting" and answer["response"] == ""
    (request,) = answer["requests"]
    where = f"/api/sessions/s/requests/{request['id']}"
    assert (await door.ask("POST", where, {"answer": "42"}))[0] == 200
    # The turn of any door is a run.
    assert (await door.reaches(answer["run_id"], "completed"))["output"] == "[answered: 42]"


async def test_a_chat_in_the_cores_own_words(door: Client) -> None:
    script(door, *FULL[:1], Commentary("Now."), *FULL[1:])
    stream = await door.read("/chat/stream", {"message": "Hello"})
    lines = [json.loads(one.data) for one in stream]
    assert [line["event"] for line in lines] == [
        *("ReasoningStart", "Commentary", "ReasoningChunk", "ReasoningChunk", "ReasoningStop", "MessageStart"),
        *("MessageChunk", "MessageStop", "ToolCall", "ToolResult", "Usage", "MessageStart", "MessageChunk", "Usage"),
        "TurnFinished",
    ]
    assert lines[8]["arguments"] == '{"command": "ls"}' and lines[9]["content"] == "a file"
    assert all(one.event == "message" and one.id for one in stream)


# --- a session's chat


async def test_a_sessions_chat(door: Client) -> None:
    script(door, *FULL)
    assert (await door.ask("POST", "/api/sessions/s/chat", {"message": "x"}))[1]["code"] == "session_not_found"
    assert (await door.ask("POST", "/api/sessions", {"id": "s"}))[0] == 201
    status, answer = await door.ask("POST", "/api/sessions/s/chat", {"message": "Hello"})
    assert status == 200 and answer["message"] == {"role": "assistant", "content": "One file."}
    assert answer["object"] == "hermes.session.chat.completion" and answer["session_id"] == "s"
    assert "survivor_user_row_ids" not in answer and answer["usage"]["output_tokens"] == 12
    parts = [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]
    assert (await door.ask("POST", "/api/sessions/s/chat", {"input": parts}))[0] == 200
    assert door.turn().text == "One\nTwo"
    for wrong in ({}, {"message": ""}, {"message": []}, {"message": [{"type": "x"}]}, {"message": "x", "other": 1}):
        assert (await door.ask("POST", "/api/sessions/s/chat", wrong))[0] == 422, wrong
    left_over = {"message": "x", "truncate_before_user_ordinal": 1}
    status, problem = await door.ask("POST", "/api/sessions/s/chat", left_over)
    assert (status, problem["code"], problem["hermes_code"]) == (422, "truncate_unconfirmed", 4029)
    assert len(door.adapter.submitted) == 2


async def test_a_sessions_chat_streams_api_servers_events(door: Client) -> None:
    script(door, *FULL)
    await door.ask("POST", "/api/sessions", {"id": "s"})
    stream = await door.read("/api/sessions/s/chat/stream", {"message": "Hello"})
    assert [one.event for one in stream] == [
        *("run.started", "reasoning.available", "assistant.delta", "tool.started", "tool.completed"),
        *("assistant.delta", "assistant.completed", "run.completed", "done"),
    ]
    data = [json.loads(one.data) for one in stream]
    assert [one["seq"] for one in data] == list(range(1, len(data) + 1))
    assert {one["session_id"] for one in data} == {"s"} and len({one["run_id"] for one in data}) == 1
    assert data[0]["user_message"] == {"role": "user", "content": "Hello"}
    assert data[-3]["content"] == "One file." == data[-2]["output"]


async def test_a_waiting_sessions_chat_ends_its_stream_with_what_it_waits_for(door: Client) -> None:
    script(door, asks("approval", choices=("once", "deny")), TurnFinished())
    await door.ask("POST", "/api/sessions", {"id": "s"})
    stream = await door.read("/api/sessions/s/chat/stream", {"message": "Hello"})
    assert [one.event for one in stream] == ["run.started", "approval.request", "run.waiting", "done"]
    (request,) = json.loads(stream[2].data)["requests"]
    assert (await door.ask("POST", f"/api/sessions/s/requests/{request['id']}", {"choice": "deny"}))[0] == 200


# --- every route


async def test_the_same_facts_through_every_route(door: Client) -> None:
    """What was said, called and answered is the same, whichever route tells it."""
    facts = {"said": "I look.One file.", "call": ("terminal", '{"command": "ls"}', "c1"), "result": "a file"}

    async def agui() -> dict[str, Any]:
        message = {"id": "u1", "role": "user", "content": "x"}
        body = {"threadId": "a", "runId": "r", "messages": [message], "state": {}, "tools": [], "context": []}
        events = [json.loads(one.data) for one in await door.read("/agui", {**body, "forwardedProps": {}})]
        start = next(one for one in events if one["type"] == "TOOL_CALL_START")
        arguments = "".join(one["delta"] for one in events if one["type"] == "TOOL_CALL_ARGS")
        return {
            "said": "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT"),
            "call": (start["toolCallName"], arguments, start["toolCallId"]),
            "result": next(one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT"),
        }

    async def chat() -> dict[str, Any]:
        events = [json.loads(one.data) for one in await door.read("/chat/stream", {"message": "x"})]
        called = next(one for one in events if one["event"] == "ToolCall")
        return {
            "said": "".join(one["text"] for one in events if one["event"] == "MessageChunk"),
            "call": (called["tool_name"], called["arguments"], called["call_id"]),
            "result": next(one["content"] for one in events if one["event"] == "ToolResult"),
        }

    def lifecycle(events: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        called = next(data for name, data in events if name == "tool.started")
        return {
            "said": "".join(data["delta"] for name, data in events if name.endswith(".delta")),
            "call": (called["tool"], called["arguments"], called["call_id"]),
            "result": next(data["output"] for name, data in events if name == "tool.completed"),
        }

    async def run() -> dict[str, Any]:
        return lifecycle([(one["event"], one) for one in await door.events(await door.run())])

    async def session() -> dict[str, Any]:
        await door.ask("POST", "/api/sessions", {"id": "s"})
        stream = await door.read("/api/sessions/s/chat/stream", {"message": "x"})
        return lifecycle([(one.event, json.loads(one.data)) for one in stream])

    for route in (agui, chat, run, session):
        script(door, *FULL)
        assert await route() == facts, route.__name__
