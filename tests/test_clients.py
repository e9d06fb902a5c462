"""The wrapper around the official clients, against a small server whose answers are written here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.check_cases import ERROR, FINISH, START, Event, ev, finish, interrupt, run, sse, text
from tests.clients import VERSIONS, RunRecord, Version, node, run_agent

pytestmark = [pytest.mark.node, pytest.mark.skipif(node() is None, reason="Node is not on PATH")]


async def drive(
    version: Version, answers: Sequence[list[Event] | int], runs: list[dict[str, Any]]
) -> tuple[list[RunRecord], list[web.Request], list[dict[str, Any]]]:
    """Run `runs` against a server that gives one of `answers` per request (events, or an HTTP status).

    Each answer that has no terminal event keeps its body open until the client leaves.
    """
    requests: list[web.Request] = []
    bodies: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        answer = answers[len(requests)]
        requests.append(request)
        bodies.append(await request.json())
        if isinstance(answer, int):
            return web.Response(status=answer, text="no")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse(answer).encode())
        if answer[-1]["type"] not in ("RUN_FINISHED", "RUN_ERROR"):
            await asyncio.sleep(30)
        return response

    app = web.Application()
    app.router.add_post("/agui", handle)
    async with TestServer(app, handler_cancellation=True) as server:
        url = str(server.make_url("/agui"))
        records = await asyncio.to_thread(run_agent, version, url, "t", runs, {"X-Test": "yes"})
    return records, requests, bodies


def said(message: str, content: str) -> dict[str, Any]:
    return {"id": message, "role": "user", "content": content}


@pytest.mark.parametrize("version", VERSIONS)
async def test_two_runs_share_one_agent(version: Version) -> None:
    second = [ev("STATE_SNAPSHOT", snapshot={"n": 1}), *text("m2")]
    records, requests, bodies = await drive(
        version,
        [run(text("m1")), run(second)],
        [{"runId": "r1", "messages": [said("u1", "hi")]}, {"runId": "r2", "messages": [said("u2", "more")]}],
    )
    assert [record.failed for record in records] == [None, None]
    assert [record.warnings for record in records] == [[], []]
    assert [event["type"] for event in records[0].events] == [event["type"] for event in run(text("m1"))]
    assert records[0].of_type("TEXT_MESSAGE_CONTENT")[0]["delta"] == "hello"
    assert [message["id"] for message in records[1].messages] == ["u1", "m1", "u2", "m2"]
    assert records[1].state == {"n": 1}
    assert [message["id"] for message in bodies[1]["messages"]] == ["u1", "m1", "u2"]
    assert bodies[0]["runId"] == "r1"
    assert bodies[0]["threadId"] == "t"
    assert bodies[0].get("protocolVersion") == ("1.0" if version == "1" else None)
    assert requests[0].headers["X-Test"] == "yes"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_rejected_stream_and_an_http_error(version: Version) -> None:
    records, _, _ = await drive(version, [[START, *text()[:1], FINISH], 418], [{}, {}])
    assert "text messages are still active" in (records[0].failed or "")
    assert records[0].status is None
    assert records[1].failed
    assert records[1].status == 418


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_run_error_is_no_failure(version: Version) -> None:
    records, _, _ = await drive(version, [run(text(), end=ERROR)], [{}])
    assert records[0].failed is None
    assert records[0].of_type("RUN_ERROR") == [ERROR]


async def test_warnings_are_kept() -> None:
    records, _, _ = await drive("1", [run(ev("META")), run()], [{}, {}])
    assert len(records[0].warnings) == 1
    assert "META" in records[0].warnings[0]
    assert records[1].warnings == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_interrupt_is_answered(version: Version) -> None:
    asked = finish(outcome={"type": "interrupt", "interrupts": [interrupt()]})
    resume = [{"interruptId": "i", "status": "resolved", "payload": {"approved": True}}]
    records, _, bodies = await drive(version, [run(end=asked), run()], [{}, {"resume": resume}])
    assert [each["id"] for each in records[0].interrupts] == ["i"]
    assert records[1].interrupts == []
    assert bodies[1]["resume"] == resume


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_abort_leaves(version: Version) -> None:
    records, _, _ = await drive(version, [[START, *text()[:2]], run()], [{"abortAfter": {"events": 2}}, {}])
    assert records[0].failed is None
    assert [event["type"] for event in records[0].events][:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert records[1].failed is None
    assert [event["type"] for event in records[1].events] == ["RUN_STARTED", "RUN_FINISHED"]
