"""The main door over a real socket, without an agent: what comes in, what goes out, who is let in."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.check import check_text
from agui_adapter.stream import (
    Commentary,
    GatewayNotice,
    InnerToolCall,
    InnerToolResult,
    MessageChunk,
    MessageRevised,
    MessageStart,
    ReasoningChunk,
    ReasoningStart,
    ToolCall,
    ToolResult,
    TurnFinished,
    Usage,
)
from tests.reducer import reduce, told
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, Step, serving, until

KEY = "0123456789abcdef-key"
HELLO: list[Step] = [MessageStart("m1"), MessageChunk("Hel"), MessageChunk("lo"), TurnFinished()]
EVERYTHING: list[Step] = [
    GatewayNotice("notice", "No home channel is set"),
    ReasoningStart("r1"),
    ReasoningChunk("hm"),
    MessageStart("m1"),
    MessageChunk("Looking\r\n\u2028"),
    ToolCall("execute_code", call_id="c1", arguments='{"code": "x"}', message_id="m1"),
    ToolCall("terminal", call_id="c2", message_id="m1"),
    InnerToolCall("c1", "i1", "read_file"),
    InnerToolResult("c1", "i1", "inner"),
    ToolResult("terminal", call_id="c2", content="\x1b[31mred\ud800", message_id="t2"),
    ToolResult("execute_code", call_id="c1", content="out", message_id="t1"),
    Commentary("So:"),
    MessageStart("m2"),
    MessageChunk("👋 wrong"),
    MessageRevised("m2", "👋 right"),
    Usage("p", "m", 10, 5),
    TurnFinished(),
]


class Door:
    """A client of the served adapter."""

    def __init__(self, adapter: ScriptedAdapter, url: str, http: aiohttp.ClientSession) -> None:
        self.adapter, self.url, self.http = adapter, url, http
        self._runs = 0

    def body(self, thread: str = "t", text: str = "Hello", **members: Any) -> dict[str, Any]:
        self._runs += 1
        message = {"id": f"u{self._runs}", "role": "user", "content": text}
        return {
            "threadId": thread,
            "runId": f"r{self._runs}",
            "protocolVersion": "1.0",
            "messages": [message],
            **members,
        }

    def post(self, body: Any = None, **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if body is None:
            body = self.body()
        if isinstance(body, bytes):
            options = {"data": body, "headers": {"Content-Type": "application/json"}, **options}
        else:
            options = {"json": body, **options}
        return self.http.post(f"{self.url}/agui", **options)

    async def refused(self, status: int, code: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """The request is refused with this status and code: a problem document with a sentence, and nothing ran."""
        before = len(getattr(self.adapter, "submitted", []))
        async with self.post(body, **options) as response:
            problem = await self.problem(response, status, code)
        assert len(getattr(self.adapter, "submitted", [])) == before
        return problem

    async def problem(self, response: aiohttp.ClientResponse, status: int, code: str) -> dict[str, Any]:
        text = await response.text()
        assert (response.status, response.content_type) == (status, "application/problem+json"), text
        problem: dict[str, Any] = json.loads(text)
        assert (problem["status"], problem["code"]) == (status, code), text
        assert problem["detail"].strip() and problem["title"] and "Traceback" not in text and "/work" not in text
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return problem

    async def run(self, body: Any = None, **options: Any) -> list[dict[str, Any]]:
        """The events of a whole run, as strict as the checker."""
        body = body or self.body()
        async with asyncio.timeout(PATIENCE), self.post(body, **options) as response:
            assert response.status == 200, await response.text()
            assert response.headers["Content-Type"] == "text/event-stream"
            text = (await response.read()).decode()
        findings = check_text(text, sse=True, thread_id=body["threadId"], run_id=body["runId"])
        assert not findings, "\n".join([*map(str, findings), text])
        return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]


@pytest.fixture
async def open_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., AbstractAsyncContextManager[Door]]]:
    @asynccontextmanager
    async def opened(*, key: str = "", **extra: Any) -> AsyncIterator[Door]:
        async with serving(extra, tmp_path, monkeypatch, key=key) as (adapter, url):
            adapter.script = HELLO
            # Every request on a connection of its own: an error in mid-upload closes it.
            connector = aiohttp.TCPConnector(force_close=True)
            async with aiohttp.ClientSession(connector=connector) as http:
                yield Door(adapter, url, http)

    yield opened


@pytest.fixture
async def door(open_door: Callable[..., AbstractAsyncContextManager[Door]]) -> AsyncIterator[Door]:
    async with open_door() as made:
        yield made


Open = Callable[..., AbstractAsyncContextManager[Door]]


class TestARun:
    async def test_a_script_comes_out_as_a_stream(self, door: Door) -> None:
        events = await door.run()
        assert [event["type"] for event in events] == [
            *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT"),
            *("TEXT_MESSAGE_END", "RUN_FINISHED"),
        ]

    async def test_every_kind_of_event_passes(self, door: Door) -> None:
        door.adapter.script = EVERYTHING
        body = door.body()
        events = await door.run(body)
        messages = told(reduce(events, body["messages"]))
        assert [message.get("content") for message in messages] == [
            *("Hello", "Looking\r\n\u2028", "\x1b[31mred\ufffd", "out", "So:", "👋 right")
        ]

    @pytest.mark.parametrize("merge_ms", [0, 30])
    async def test_merging_changes_the_frames_and_not_the_text(self, open_door: Open, merge_ms: int) -> None:
        async with open_door(merge_ms=merge_ms) as door:
            door.adapter.script = [MessageStart("m1"), *[MessageChunk(f"{n} ") for n in range(500)], TurnFinished()]
            events = await door.run()
            deltas = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
            assert "".join(deltas) == "".join(f"{n} " for n in range(500))

    async def test_headers_of_a_stream(self, door: Door) -> None:
        async with door.post() as response:
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Cache-Control"] == "no-cache, no-transform"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "Content-Encoding" not in response.headers
            await response.read()

    async def test_a_failure_is_a_run_error_on_a_200(self, door: Door) -> None:
        door.adapter.script = [TurnFinished("failed", "provider_auth", "The key is wrong.")]
        events = await door.run()
        assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
        assert events[1]["code"] == "provider_auth"

    async def test_a_translator_that_fails_is_a_run_error_too(
        self, door: Door, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from agui_adapter.events import _HANDLERS

        def broken(*_: Any) -> None:
            raise ZeroDivisionError("secret detail")

        monkeypatch.setitem(_HANDLERS, ReasoningChunk, broken)
        door.adapter.script = [MessageStart("m1"), MessageChunk("a"), ReasoningChunk("b"), TurnFinished()]
        events = await door.run()
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "internal")
        assert "secret detail" not in json.dumps(events)

    async def test_unknown_members_are_tolerated(self, door: Door) -> None:
        message = {"id": "u", "role": "user", "content": "Hi", "createdAt": 5, "name": None}
        odd = {"id": "x", "role": "robot", "content": [1]}
        await door.run(door.body(messages=[odd, message], shiny=True, state=None, tools=None, context=None))

    async def test_the_id_line_names_turn_and_position(self, door: Door) -> None:
        async with door.post() as response:
            text = (await response.read()).decode()
        (turn,) = door.adapter.submitted
        ids = [line[4:] for line in text.split("\n") if line.startswith("id: ")]
        # The run's own beginning, then each frame: the position behind an event, and before it for the others.
        assert ids == [f"{turn.id}.{position}" for position in ("0s", "1-1", 2, 3, "3-1", 4)]

    async def test_a_content_type_of_todays_client(self, door: Door) -> None:
        """`content-type` given by the user comes out of fetch as both values."""
        raw = json.dumps(door.body()).encode()
        async with door.post(raw, headers={"Content-Type": "text/plain, application/json"}) as response:
            assert response.status == 200
            await response.read()


class TestBadInput:
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"{",
            b"not json",
            b"\xff\xfe\x00",
            b"[" * 5000,
            b'{"x": NaN}',
            b'"\\ud800"',
            b'{"threadId": "\xed\xa0\x80"}',
        ],
    )
    async def test_not_json(self, door: Door, raw: bytes) -> None:
        await door.refused(400, "invalid_json", raw)

    @pytest.mark.parametrize("raw", [b"null", b"[]", b"5", b'"x"'])
    async def test_not_an_object(self, door: Door, raw: bytes) -> None:
        await door.refused(400, "invalid_input", raw)

    @pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data", "application/xml", ""])
    async def test_wrong_content_type(self, door: Door, content_type: str) -> None:
        raw = json.dumps(door.body()).encode()
        await door.refused(415, "not_json", raw, headers={"Content-Type": content_type})

    @pytest.mark.parametrize(
        "members",
        [
            *(
                {"threadId": 5},
                {"threadId": ""},
                {"threadId": None},
                {"runId": []},
                {"messages": {}},
                {"messages": [5]},
            ),
            *({"tools": "x"}, {"context": [{"description": 1}]}, {"resume": [{}]}, {"protocolVersion": 1}),
            {"messages": [{"id": "u", "role": "user"}]},
            {"tools": [{"name": "terminal", "description": "mine"}]},
        ],
        ids=json.dumps,
    )
    async def test_wrong_values(self, door: Door, members: dict[str, Any]) -> None:
        async with door.post({**door.body(), **members}) as response:
            assert response.status == 422
            problem = await response.json(content_type="application/problem+json")
            assert problem["detail"].endswith((".", ")"))
        assert not getattr(door.adapter, "submitted", [])

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [{"id": "u", "role": "user", "content": "  "}],
            [{"id": "u", "role": "user", "content": []}],
            [{"id": "s", "role": "system", "content": "be nice"}],
        ],
        ids=json.dumps,
    )
    async def test_nothing_to_do(self, door: Door, messages: list[dict[str, Any]]) -> None:
        await door.refused(400, "no_input", door.body(messages=messages))

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_a_body_over_the_limit(self, open_door: Open, chunked: bool) -> None:
        async with open_door(max_body_bytes=10_000) as door:
            raw = json.dumps(door.body(text="x" * 20_000)).encode()

            async def pieces() -> AsyncIterator[bytes]:
                for start in range(0, len(raw), 1000):
                    yield raw[start : start + 1000]

            headers = {"Content-Type": "application/json"}
            problem = await door.refused(413, "body_too_large", raw, data=pieces() if chunked else raw, headers=headers)
            assert "10000" in problem["detail"]

    async def test_thirty_megabytes_are_refused_and_the_server_goes_on(self, door: Door) -> None:
        door_limit = door.adapter.settings.max_body_bytes  # type: ignore[union-attr]
        raw = json.dumps(door.body(text="x" * (door_limit + 1000))).encode()
        await door.refused(413, "body_too_large", raw)
        await door.run()

    async def test_a_body_that_is_not_what_its_encoding_says(self, door: Door) -> None:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        async with door.post(b"this is no gzip", headers=headers) as response:
            assert 400 <= response.status < 500
            assert "Traceback" not in await response.text()
        await door.run()

    async def test_a_compressed_body_is_read_and_bounded(self, open_door: Open) -> None:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        async with open_door(max_body_bytes=50_000) as door:
            async with door.post(gzip.compress(json.dumps(door.body()).encode()), headers=headers) as response:
                assert response.status == 200
                await response.read()
            bomb = gzip.compress(json.dumps(door.body(text="x" * 5_000_000)).encode())
            async with door.post(bomb, headers=headers) as response:
                assert response.status == 413

    async def test_other_methods_and_addresses(self, door: Door) -> None:
        async with door.http.get(f"{door.url}/agui") as response:
            await door.problem(response, 405, "method_not_allowed")
            assert "POST" in response.headers["Allow"]
        async with door.http.get(f"{door.url}/nothing") as response:
            await door.problem(response, 404, "not_found")

    async def test_not_ready_is_a_503_that_says_when(self, open_door: Open) -> None:
        async with open_door(start_wait_seconds=0) as door:
            door.adapter.started = False
            async with door.post() as response:
                await door.problem(response, 503, "starting")
                assert int(response.headers["Retry-After"]) > 0
            async with door.http.get(f"{door.url}/health") as response:
                assert (response.status, (await response.json())["status"]) == (503, "starting")
            door.adapter.started = True
            async with door.http.get(f"{door.url}/health") as response:
                assert response.status == 200

    async def test_the_start_is_waited_out(self, door: Door) -> None:
        door.adapter.started = False
        waiting = asyncio.create_task(door.run())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        door.adapter.started = True
        assert (await waiting)[-1]["type"] == "RUN_FINISHED"

    async def test_a_gateway_that_stops_takes_nothing_new(self, door: Door) -> None:
        door.adapter.gateway_runner._draining = True
        async with door.post() as response:
            await door.problem(response, 503, "stopping")
            assert "Retry-After" in response.headers


class TestReaders:
    async def test_silence_is_broken_by_comments(self, open_door: Open) -> None:
        gate = Gate()
        async with open_door(heartbeat_seconds=0.1) as door:
            door.adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, MessageChunk("b"), TurnFinished()]
            async with asyncio.timeout(PATIENCE), door.post() as response:
                text = b""
                while text.count(b": keep-alive\n\n") < 3:
                    text += await response.content.readany()
                gate.open()
                text += await response.content.read()
        assert not check_text(text.decode(), sse=True)
        assert text.index(b'"delta":"a"') < text.index(b": keep-alive") < text.index(b'"delta":"b"')

    async def test_silence_before_the_first_token_too(self, open_door: Open) -> None:
        gate = Gate()
        async with open_door(heartbeat_seconds=0.1) as door:
            door.adapter.script = [gate, *HELLO]
            async with asyncio.timeout(PATIENCE), door.post() as response:
                text = b""
                while b": keep-alive\n\n" not in text:
                    text += await response.content.readany()
                gate.open()
                await response.read()

    async def test_a_client_that_leaves_is_no_reader_any_more(self, door: Door) -> None:
        gate = Gate()
        door.adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, MessageChunk("b"), TurnFinished()]
        response = await door.post().__aenter__()
        await response.content.readany()
        (turn,) = door.adapter.submitted
        await until(lambda: turn.readers == 1)
        response.close()
        await until(lambda: turn.readers == 0)
        assert not turn.done.is_set()  # its going stops nothing
        gate.open()
        await until(turn.done.is_set)
        assert MessageChunk("b") in [event for _, event in turn.log.take().events]
        assert not turn.log._waiters and not door.adapter._server._streams  # type: ignore[union-attr]

    async def test_a_client_that_leaves_in_mid_flood(self, door: Door) -> None:
        """Its socket is full when it goes: the writer is waiting in a write, not for an event."""
        gate = Gate()
        flood: list[Step] = [MessageChunk("x" * 50_000) for _ in range(200)]
        door.adapter.script = [MessageStart("m1"), *flood, gate, TurnFinished()]
        response = await door.post().__aenter__()
        (turn,) = door.adapter.submitted
        await until(lambda: turn.log.last >= 201)
        assert turn.readers == 1
        response.close()
        await until(lambda: turn.readers == 0)
        gate.open()
        await until(turn.done.is_set)

    async def test_a_slow_reader_gets_everything(self, open_door: Open) -> None:
        """It falls behind until the log has merged what it has not read; a snapshot brings it up."""
        async with open_door(log_bytes_per_turn=65_536) as door:
            pieces = [f"{number:05d} " + "y" * 500 for number in range(8_000)]
            door.adapter.script = [MessageStart("m1"), *map(MessageChunk, pieces), TurnFinished()]
            body = door.body()
            async with asyncio.timeout(PATIENCE), door.post(body) as response:
                await response.content.read(2000)
                (turn,) = door.adapter.submitted
                await until(turn.done.is_set)
                text = (await response.content.read()).decode()
            text = text[text.index("\n\n") + 2 :]
            events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
            assert "MESSAGES_SNAPSHOT" in [event["type"] for event in events]
            started = {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}
            messages = reduce([started, *events], body["messages"])
            # What was read before is not here, and does not matter: the snapshot has it.
            assert messages[-1] == {"id": "m1", "role": "assistant", "content": "".join(pieces)}
            assert events[-1]["type"] == "RUN_FINISHED"

    async def test_the_log_is_read_to_its_end_by_a_late_reader(self, door: Door) -> None:
        """The script is over before the first read."""
        door.adapter.script = [*HELLO[:-1], TurnFinished()]
        for _ in range(20):
            assert (await door.run(door.body(thread=f"t{_}")))[-1]["type"] == "RUN_FINISHED"


class TestABusyThread:
    async def test_409_while_it_is_read(self, door: Door) -> None:
        gate = Gate()
        door.adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, TurnFinished()]
        async with door.post() as response:
            await response.content.readany()
            await door.refused(409, "thread_busy", door.body())
            gate.open()
            text = (await response.content.read()).decode()
        assert "RUN_FINISHED" in text
        door.adapter.script = HELLO
        await door.run()

    async def test_another_thread_is_not_busy(self, door: Door) -> None:
        gate = Gate()
        door.adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, TurnFinished()]
        async with door.post() as response:
            await response.content.readany()
            door.adapter.script = HELLO
            await door.run(door.body(thread="other"))
            gate.open()
            await response.read()

    async def test_a_turn_that_nobody_reads_gives_way(self, door: Door) -> None:
        door.adapter.script = [MessageStart("m1"), MessageChunk("a")]  # runs until it is interrupted
        response = await door.post().__aenter__()
        await response.content.readany()
        (turn,) = door.adapter.submitted
        response.close()
        await until(lambda: turn.readers == 0)
        door.adapter.script = HELLO
        assert (await door.run())[-1]["outcome"] == {"type": "success"}
        assert turn.log.events()[-1] == TurnFinished("cancelled")

    async def test_queue(self, open_door: Open) -> None:
        gate = Gate()
        async with open_door(busy="queue") as door:
            door.adapter.script = [MessageStart("m1"), MessageChunk("a"), gate, TurnFinished()]
            async with door.post() as response:
                await response.content.readany()
                door.adapter.script = HELLO
                second = asyncio.create_task(door.run())
                await asyncio.sleep(0.05)
                assert not second.done() and len(door.adapter.submitted) == 1
                gate.open()
                await response.read()
                assert (await second)[-1]["type"] == "RUN_FINISHED"

    async def test_interrupt(self, open_door: Open) -> None:
        async with open_door(busy="interrupt") as door:
            door.adapter.script = [MessageStart("m1"), MessageChunk("a")]
            async with door.post() as response:
                await response.content.readany()
                door.adapter.script = HELLO
                await door.run()
                assert '"cancelled"' in (await response.content.read()).decode()

    async def test_a_shutdown_ends_every_stream(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving({}, tmp_path, monkeypatch) as (adapter, url), aiohttp.ClientSession() as http:
            adapter.script = [MessageStart("m1"), MessageChunk("a")]
            door = Door(adapter, url, http)
            response = await door.post().__aenter__()
            await response.content.readany()
            await adapter.disconnect()
            rest = (await response.content.read()).decode()
            assert '"RUN_ERROR"' in rest and "gateway_stopped" in rest
            response.close()
            with pytest.raises(aiohttp.ClientConnectionError):
                await door.post().__aenter__()


class TestWhoComesIn:
    async def test_cross_origin(self, open_door: Open) -> None:
        origin = "https://app.example"
        async with open_door(cors_origins=[origin]) as door:
            async with door.post(headers={"Origin": origin}) as response:
                assert response.status == 200
                assert response.headers["Access-Control-Allow-Origin"] == origin
                assert response.headers["Vary"] == "Origin"
                await response.read()
            preflight = {
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
            }
            async with door.http.options(f"{door.url}/agui", headers=preflight) as response:
                assert response.status == 204
                assert response.headers["Access-Control-Allow-Origin"] == origin
                assert "POST" in response.headers["Access-Control-Allow-Methods"]
                allowed = response.headers["Access-Control-Allow-Headers"].lower()
                assert all(name in allowed for name in preflight["Access-Control-Request-Headers"].split(", "))
            # A page can only read why it was refused if the refusal has the header too.
            async with door.post(b"{", headers={"Origin": origin, "Content-Type": "application/json"}) as response:
                await door.problem(response, 400, "invalid_json")
                assert response.headers["Access-Control-Allow-Origin"] == origin

    @pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://[", "http://localhost:1"])
    async def test_a_foreign_origin(self, door: Door, origin: str) -> None:
        await door.refused(403, "unknown_origin", headers={"Origin": origin})
        async with door.http.options(f"{door.url}/agui", headers={"Origin": origin}) as response:
            assert response.status == 403
            assert "Access-Control-Allow-Origin" not in response.headers

    async def test_the_same_origin(self, door: Door) -> None:
        await door.run(headers={"Origin": door.url})

    @pytest.mark.parametrize("host", ["evil.test", "localhost.evil.test:80", "evil@127.0.0.1", "0.0.0.0"])
    async def test_a_foreign_host(self, door: Door, host: str) -> None:
        await door.refused(421, "unknown_host", headers={"Host": host})
        async with door.http.get(f"{door.url}/health", headers={"Host": host}) as response:
            await door.problem(response, 421, "unknown_host")

    @pytest.mark.parametrize(
        "authorization", ["Bearer wrong", "Bearer", "Basic b3duZXI6eA==", f"Token {KEY}", "Bearer \xff"]
    )
    async def test_a_wrong_token(self, open_door: Open, authorization: str) -> None:
        async with open_door(key=KEY) as door:
            problem = await door.refused(401, "invalid_token", headers={"Authorization": authorization})
            assert KEY not in json.dumps(problem)

    async def test_a_token_is_asked_for(self, open_door: Open) -> None:
        async with open_door(key=KEY, require_token=True) as door:
            async with door.post() as response:
                await door.problem(response, 401, "token_needed")
                assert response.headers["WWW-Authenticate"] == "Bearer"
            await door.run(headers={"Authorization": f"Bearer {KEY}"})
            async with door.http.get(f"{door.url}/health") as response:
                assert response.status == 200  # liveness needs none

    async def test_two_principals_never_share_a_thread(self, open_door: Open) -> None:
        async with open_door(key=KEY) as door:
            await door.run(door.body(thread="same"))
            await door.run(door.body(thread="same"), headers={"Authorization": f"Bearer {KEY}"})
            local, owner = door.adapter.submitted
            assert local.thread is not owner.thread
            assert (local.thread.principal.id, owner.thread.principal.id) == ("local", "owner")
            assert local.thread.chat_id != owner.thread.chat_id

    async def test_strange_thread_ids_are_threads_like_any_other(self, door: Door) -> None:
        for thread in ("../../etc", "a:b:c", "agent:main:telegram:dm:1", "x" * 1024, "é👋", "\x00", "a/b?c#d"):
            await door.run(door.body(thread=thread))
        assert len({turn.thread.chat_id for turn in door.adapter.submitted}) == 7
