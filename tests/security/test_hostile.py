"""Requests that are made to break something: no gateway is needed to see that they do not."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.door import Ask, Door
from agui_adapter.secrets_hold import SecretsHold
from agui_adapter.session import Principal, Turn
from agui_adapter.stream import MessageChunk, MessageStart, Request, TurnFinished
from tests.mcp_wire import wire
from tests.scripted import Gate, serving, until

HELLO = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
SECRET = "agui_not-for-any-log-0123456789"


def part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "token",
    [
        part(b'{"alg": ["RS256"]}').encode() + b".e30.c2ln",
        part(b'{"alg": {}}').encode() + b".e30.c2ln",
        part(b"[" * 4000).encode() + b".e30.c2ln",
        b"\xff\xfe.e30.c2ln",
    ],
    ids=["an algorithm that is a list", "one that is an object", "a header without end", "no text"],
)
async def test_what_is_no_json_web_token_is_refused_in_order(
    token: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("jwt")
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "a", "n": "AQAB", "e": "AQAB"}]}))
    extra = {"jwt_keys": str(keys), "jwt_issuer": "https://issuer.test", "jwt_audience": "agui"}
    async with serving(extra, tmp_path, monkeypatch) as (_, url), httpx.AsyncClient(base_url=url) as client:
        told = await client.get("/agui/threads", headers=[(b"Authorization", b"Bearer " + token)])
        assert (told.status_code, told.json()["code"]) == (401, "invalid_token")
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {SECRET}\x01",
        f"Authorization : Bearer {SECRET}",
        f"Authorization: Bearer {SECRET * 300}",
    ],
    ids=["a control character", "a blank before the colon", "too long"],
)
async def test_a_request_that_cannot_be_read_leaves_no_token_in_the_log(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving({}, tmp_path, monkeypatch) as (_, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"GET /agui/threads HTTP/1.1\r\nHost: 127.0.0.1\r\n{line}\r\n\r\n".encode())
        assert b" 400 " in await reader.readline()
        writer.close()
    told = [one for one in caplog.records if one.name == "hermes_agui.http"]
    assert told and all(one.levelno == logging.INFO for one in told)
    assert SECRET not in caplog.text


async def test_a_page_that_is_nested_without_end_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({}, tmp_path, monkeypatch) as (_, url), httpx.AsyncClient(base_url=url) as client:
        told = await client.get("/agui/threads", params={"before": part(b"[" * 4002)})
        assert (told.status_code, told.json()["code"]) == (422, "invalid_input")


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_request_names_breaks_no_header_of_its_answer(
    stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "a\r\nX-Evil: yes"
    asked = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": evil}], "stream": stream}
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = HELLO
        for path, body in (
            ("/v1/responses", {"input": "Hi", "conversation": evil, "stream": stream}),
            ("/v1/chat/completions", asked),
        ):
            told = await client.post(path, json=body)
            assert told.status_code == 200 and "X-Evil" not in told.headers
            assert "Hello" in told.text


async def test_stored_responses_go_with_all_else_of_a_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = HELLO
        made = (await client.post("/v1/responses", json={"input": "Hi"})).json()["id"]
        key = (await adapter.archive.run(lambda: adapter.archive.store.hidden_of("local")))[0]
        put_away: list[tuple[list[str], bool]] = []
        monkeypatch.setattr(adapter.archive.sessions, "put_away", lambda keys, *, keep: put_away.append((keys, keep)))
        for thread in list(adapter.threads):  # as a restart, or the sweep, leaves them
            adapter.threads.drop(thread)
        assert (await client.delete("/agui/threads?all=1")).status_code == 200
        assert put_away == [([key], False)]
        assert (await client.get(f"/v1/responses/{made}")).status_code == 404


async def test_nothing_is_kept_for_those_who_are_not_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}, image]}]}
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = HELLO
        kept = tmp_path / "agui_files"
        adapter.gateway_runner._is_user_authorized = lambda source: False
        told = await client.post("/api/sessions", json={"id": "s1"})
        assert (told.status_code, told.json()["code"]) == (403, "not_authorized")
        assert (await client.post("/v1/chat/completions", json=asked)).status_code == 200  # the gateway would refuse
        assert not list(kept.iterdir()) and "base64" not in str(adapter.submitted[-1].inputs)
        adapter.gateway_runner._is_user_authorized = lambda source: True
        assert (await client.post("/api/sessions", json={"id": "s1"})).status_code == 201
        assert (await client.post("/v1/chat/completions", json=asked)).status_code == 200
        assert len(list(kept.iterdir())) == 1


async def test_mcp_copies_no_thread_for_those_who_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    async with serving({"user_commands": ["status"]}, tmp_path, monkeypatch) as (adapter, url), wire(url) as client:
        adapter.script = HELLO
        thread = (await client.call("ask", message="Hi"))["structuredContent"]["thread"]
        told = await client.call("branch", thread=thread)
        assert told["isError"] and "[command_not_allowed]" in told["content"][0]["text"]


def question(turn: Turn) -> None:
    adapter: Any = question.adapter  # type: ignore[attr-defined]
    pending = adapter.requests.open(turn, Request("q1", "clarify", "Which?", free_text=True), seconds=60)
    adapter.requests.park(pending)
    adapter.requests.wait(pending, lambda: "", 0.05)


async def test_a_command_is_not_steered_into_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hermes throws it away where it comes too late, so nobody may be told that it was taken."""
    gate = Gate()
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        steered: list[str] = []
        monkeypatch.setattr(adapter, "steer", lambda turn, text, name="": steered.append(text) or True)  # type: ignore[func-returns-value]
        question.adapter = adapter  # type: ignore[attr-defined]
        adapter.script = [MessageStart("m1"), question, gate, TurnFinished()]
        door, local = Door(adapter), Principal("local")
        reader = await door.open(local, "t1", Ask("Hi"))
        await until(lambda: adapter.requests.parked(reader.turn))
        assert not door.steer(reader.turn, "/help me") and not door.steer(reader.turn, " /clear the table")
        assert door.steer(reader.turn, "/usr/bin is full") and steered == ["/usr/bin is full"]
        adapter.script = HELLO
        body = {
            "threadId": "t1",
            "runId": "r1",
            "messages": [{"id": "u2", "role": "user", "content": "/status"}],
            "resume": [{"interruptId": "q1", "status": "resolved", "payload": {"answer": "this"}}],
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
        }
        sent = asyncio.create_task(client.post("/agui", json=body))
        await until(lambda: not adapter.requests.open_requests(reader.turn))
        gate.open()
        assert "Hello" in (await sent).text
        assert steered == ["/usr/bin is full"] and adapter.submitted[-1].text == "/status"


@pytest.mark.parametrize("run", ["a", "1", "ab.", "key"])
def test_a_long_line_costs_no_more_than_its_length(run: str) -> None:
    began = time.perf_counter()
    hold = SecretsHold(lambda text: text)
    text = "+ " + run * (200_000 // len(run))
    assert hold.feed(text) + hold.rest() == text
    assert time.perf_counter() - began < 5  # minutes, where each character begins a search of its own


def test_an_address_with_a_secret_waits_behind_a_long_word() -> None:
    hold = SecretsHold(lambda text: text.replace("hunter2", "***"))
    shown = [hold.feed(f"see {'x' * 200}https://me:hun"), hold.feed("ter2@host/"), hold.rest()]
    assert "hunter2" not in "".join(shown) and "hun" not in shown[0]
