"""Requests at awkward moments and in awkward forms: nothing waits for ever, and a stranger costs next to nothing."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from gateway.config import Platform
from gateway.session import SessionSource

from agui_adapter.errors import AguiError
from agui_adapter.principal import SCOPES, Principal
from agui_adapter.requests import APPROVE_ONCE, DENY
from agui_adapter.run import Prepared, open_turn
from agui_adapter.session import Thread, Turn
from agui_adapter.stream import MessageChunk, MessageStart, Request, TurnFinished
from tests.scripted import Gate, serving, until

HELLO = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
PACKED = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
MEGABYTE = bytes(1 << 20)


def body(thread: str, run: str) -> dict[str, Any]:
    message = {"id": f"u-{run}", "role": "user", "content": "Hi"}
    return {"threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": [message]}


async def test_a_thread_is_deleted_at_once_though_a_run_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queued run waits for the turn with the thread's lock held; the delete stops that turn, and both end."""
    gate = Gate()
    async with (
        serving({"busy": "queue"}, tmp_path, monkeypatch) as (adapter, url),
        httpx.AsyncClient(base_url=url, timeout=20) as client,
    ):
        adapter.script = [MessageStart("m1"), MessageChunk("Hello"), gate, TurnFinished()]
        first = asyncio.create_task(client.post("/agui", json=body("t1", "r1")))
        await until(lambda: adapter.threads and any(one.current for one in adapter.threads))
        thread = next(one for one in adapter.threads if one.thread_id == "t1")
        await until(lambda: thread.current is not None and thread.current.readers)
        queued = [asyncio.create_task(client.post("/agui", json=body("t1", run))) for run in ("r2", "r3")]
        await until(lambda: thread.lock.locked() and adapter.limits._opening[thread] == 2)
        rewind = {"truncate_before_user_ordinal": 0, "confirm_truncate": True, "confirm_empty_truncate": True}
        assert (await client.post("/api/sessions/t1/rewind", json=rewind)).status_code == 409
        assert (await client.delete("/agui/threads/t1")).json() == {"threadId": "t1", "deleted": True}
        assert '"cancelled"' in (await first).text
        for told in await asyncio.gather(*queued):
            assert "thread_deleted" in told.text and "RUN_FINISHED" not in told.text
        gate.open()
        assert (await client.get("/agui/threads/t1")).status_code == 404
        assert not adapter.limits._opening and adapter.limits.streams.taken == 0
        adapter.script = HELLO
        assert "Hello" in (await client.post("/agui", json=body("t1", "r4"))).text, "its id is free again"


@pytest.mark.parametrize(("action", "code"), [("resume", "thread_busy"), ("branch", "thread_exists")])
async def test_no_session_is_taken_into_a_busy_thread_and_that_is_said_at_once(
    action: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queued run has the thread's lock for as long as the turn before it runs."""
    gate, key = Gate(), "the-owners-key-0123"
    async with (
        serving({"busy": "queue", "observe": True}, tmp_path, monkeypatch, key=key) as (adapter, url),
        httpx.AsyncClient(base_url=url, timeout=20, headers={"Authorization": f"Bearer {key}"}) as client,
    ):
        other = SessionSource(platform=Platform.TELEGRAM, chat_id="7", chat_type="dm", user_id="7")
        adapter.gateway_runner.session_store.get_or_create_session(other)
        (session,) = (await client.get("/agui/sessions")).json()["sessions"]
        adapter.script = [MessageStart("m1"), MessageChunk("Hello"), gate, TurnFinished()]
        first = asyncio.create_task(client.post("/agui", json=body("t1", "r1")))
        await until(lambda: any(one.current is not None and one.current.readers for one in adapter.threads))
        thread = next(one for one in adapter.threads if one.thread_id == "t1")
        queued = asyncio.create_task(client.post("/agui", json=body("t1", "r2")))
        await until(thread.lock.locked)
        told = await client.post(f"/agui/sessions/{session['id']}/{action}", json={"threadId": "t1"})
        assert (told.status_code, told.json()["code"]) == (409, code)
        gate.open()
        for run in await asyncio.gather(first, queued):
            assert "RUN_FINISHED" in run.text


@pytest.mark.parametrize("rule", ["cancel", "refuse"])
async def test_a_new_message_meets_a_turn_that_waits_though_a_run_is_queued(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that was queued while the turn ran has the lock until that ends; nobody need answer what it asks."""
    gate = Gate()
    async with (
        serving({"busy": "queue", "parked": rule}, tmp_path, monkeypatch) as (adapter, url),
        httpx.AsyncClient(base_url=url, timeout=20) as client,
    ):

        def asks(turn: Turn) -> None:
            request = Request("a1", "approval", "?", choices=(APPROVE_ONCE, DENY))
            adapter.requests.park(adapter.requests.open(turn, request))

        adapter.script = [MessageStart("m1"), MessageChunk("Hello"), gate, asks]
        first = asyncio.create_task(client.post("/agui", json=body("t1", "r1")))
        await until(lambda: any(one.current is not None and one.current.readers for one in adapter.threads))
        thread = next(one for one in adapter.threads if one.current is not None)
        adapter.script = HELLO
        queued = asyncio.create_task(client.post("/agui", json=body("t1", "r2")))
        await until(thread.lock.locked)
        gate.open()
        assert '"interrupt"' in (await first).text and not queued.done()
        newer = await client.post("/agui", json=body("t1", "r3"))
        if rule == "refuse":
            assert (newer.status_code, newer.json()["code"]) == (409, "thread_waiting")
            assert (await client.post("/agui/threads/t1/stop", json={})).json()["stopped"]
        else:
            assert "Hello" in newer.text
        assert "Hello" in (await queued).text


async def test_a_turn_that_the_gateway_began_by_itself_and_that_waits_holds_up_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a background result has the agent do comes first; but where it asks, the message need not wait for that."""
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        began: list[Turn] = []

        def begins(thread: Thread) -> bool:
            if not began:
                began.append(adapter.new_turn(thread, "late", unsolicited=True))
                request = Request("a1", "approval", "?", choices=(APPROVE_ONCE, DENY))
                adapter.requests.park(adapter.requests.open(began[0], request))
            return False

        monkeypatch.setattr(adapter, "gateway_begins", begins)
        async with asyncio.timeout(20):
            turn, _, _ = await open_turn(adapter, adapter.threads.get(USER, "t1"), "Hi", ids=["u1"])
        assert began[0].done.is_set() and turn.thread.current is turn
        adapter.interrupt(turn)


def bomb(megabytes: int) -> bytes:
    """A gzip body of a thousandth of its size; it never ends."""
    packer = zlib.compressobj(9, wbits=31)
    begin = packer.compress(MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + (packer.compress(MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)) * megabytes


async def test_nothing_is_unpacked_for_a_stranger_nor_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[float] = []

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            held.append(time.perf_counter() - began)

    packed = bomb(1000)
    async with (
        serving({"require_token": True}, tmp_path, monkeypatch, key="the-owners-key-0123") as (_, url),
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        await client.get("/health")
        watching = asyncio.create_task(watch())
        for path, key, status in (
            ("/agui", "", 401),
            ("/nothing", "", 404),
            ("/agui", "the-owners-key-0123", 413),
            ("/mcp", "the-owners-key-0123", 413),
        ):
            headers = PACKED | ({"Authorization": f"Bearer {key}"} if key else {})
            assert (await client.post(path, content=packed, headers=headers)).status_code == status
        watching.cancel()
    assert max(held) < 1, "seconds, where the loop unpacks a gigabyte"


@pytest.mark.parametrize(
    ("encoding", "packed", "status"),
    [
        ("gzip", lambda raw: zlib.compress(raw, wbits=31), 200),
        ("x-gzip", lambda raw: zlib.compress(raw, wbits=31), 200),
        ("deflate", zlib.compress, 200),
        ("identity", bytes, 200),
        ("gzip", lambda raw: zlib.compress(raw, wbits=31)[:-4], 400),
        ("gzip", lambda raw: zlib.compress(raw, wbits=31) + b"more", 400),
        ("gzip", bytes, 400),
        ("br", bytes, 400),
        ("gzip, gzip", bytes, 400),
    ],
)
async def test_what_encodings_are_read(
    encoding: str, packed: Any, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = HELLO
        raw = json.dumps(body("t1", "r1")).encode()
        told = await client.post("/agui", content=packed(raw), headers=PACKED | {"Content-Encoding": encoding})
        assert told.status_code == status
        assert status == 200 or told.json()["code"] == "bad_request"


async def test_a_head_of_a_stream_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no body that could end: the next request on its connection would never be answered."""
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = HELLO
        await client.post("/agui", json=body("t1", "r1"))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for method, path in (("HEAD", "/agui/threads/t1/events"), ("GET", "/health")):
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200") and b"text/event-stream" in head
            await reader.readuntil(b'"status":"ok"')
        writer.close()
        assert adapter.limits.streams.taken == 0


async def test_who_leaves_before_the_answer_begins_is_no_error_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: object) -> web.StreamResponse:
        raise ConnectionResetError("Cannot write to closing transport")

    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        told = await adapter._server._errors(make_mocked_request("POST", "/agui"), gone)
        assert told.status == 499


OWNER = Principal("owner", trusted=True, scopes=SCOPES)
USER = Principal("local", scopes=frozenset(("read", "run", "approve")))


async def test_what_was_said_before_makes_no_command_of_a_new_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A door that has no commands may have said it; it is taken back with the newer message that is joined with it."""
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):

        async def taken_back() -> Prepared:
            return Prepared(again=[{"id": "u0", "role": "user", "content": "/restart"}])

        thread = adapter.threads.get(OWNER, "t1")
        turn, _, _ = await open_turn(adapter, thread, "now", prepare=taken_back, ids=["u1"], commands=OWNER)
        assert (turn.text, turn.commands) == ("/restart\n\nnow", False)
        adapter.interrupt(turn)


async def test_an_update_that_asks_while_a_run_waits_for_its_thread_gets_no_answer_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        thread = adapter.threads.get(USER, "t1")

        async def update_asks() -> Prepared:
            adapter.gateway_runner._update_prompt_pending = {adapter.key_of(thread): True}
            return Prepared()

        with pytest.raises(AguiError) as caught:
            await open_turn(adapter, thread, "y", prepare=update_asks, ids=["u1"], commands=USER)
        assert caught.value.code == "gateway_asks" and thread.current is None
