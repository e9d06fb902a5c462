"""`hermes-agui chat` as a real process against a small server that plays the protocol's other side, frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def text(message: str, *deltas: str, role: str = "assistant") -> list[dict[str, Any]]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message, "role": role},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": delta} for delta in deltas),
        {"type": "TEXT_MESSAGE_END", "messageId": message},
    ]


def call(name: str, *arguments: str) -> list[dict[str, Any]]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": name},
        *({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": piece} for piece in arguments),
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "fine"},
    ]


def frames(*events: dict[str, Any], end: str = "\n") -> bytes:
    return "".join(f"data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in events).encode()


@dataclass
class Peer:
    """Answers every POST /agui with `chunks`, each written on its own, or with `response`."""

    url: str = ""
    chunks: Iterable[bytes] = ()
    response: web.Response | None = None
    break_off: bool = False
    gate: asyncio.Event | None = None
    """Waited for between two chunks, if there is one."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    feeds: list[list[bytes] | int] = field(default_factory=list)
    """What each `GET /agui/threads/{id}/events` brings, in order: chunks, or a status."""
    positions: list[str] = field(default_factory=list)
    """The `Last-Event-ID` of each of them."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    lose: int = 0
    """So many runs are read and never answered: the connection ends."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    """What the thread asks, as `GET /agui/threads/{id}` lists it."""

    async def thread(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        told = {"threadId": request.match_info["id"], "requests": self.requests, "messages": self.messages}
        return web.json_response(told)

    async def list(self, request: web.Request) -> web.Response:
        return web.json_response({"threads": [{"threadId": one} for one in self.threads]})

    async def feed(self, request: web.Request) -> web.StreamResponse:
        self.positions.append(request.headers.get("Last-Event-ID", ""))
        found = self.feeds.pop(0)
        if isinstance(found, int):
            return web.Response(status=found)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        for chunk in found:
            await stream.write(chunk)
        return stream

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        if self.lose:
            self.lose -= 1
            assert request.transport is not None
            request.transport.abort()
        if self.response is not None:
            return self.response
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        for chunk in self.chunks:
            await stream.write(chunk)
            await (self.gate.wait() if self.gate else asyncio.sleep(0.002))
        if self.break_off:
            assert request.transport is not None
            request.transport.abort()
        return stream


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    app = web.Application()
    app.router.add_post("/agui", peer.answer)
    app.router.add_get("/agui/threads", peer.list)
    app.router.add_get("/agui/threads/{id}", peer.thread)
    app.router.add_get("/agui/threads/{id}/events", peer.feed)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield peer
    await runner.cleanup()


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


async def chat(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Said:
    clean = {k: v for k, v in os.environ.items() if k != "AGUI_API_KEY"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agui_adapter.cli", "chat", *argv),
        env=clean | (env or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert b"Traceback" not in err, err.decode()
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


class TestAnswer:
    async def test_text_is_printed_and_the_thread_is_told(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, *text("m", "Hel", "lo"), FINISHED)]
        said = await chat("hi", "--url", peer.url)
        (body,) = peer.bodies
        assert said == Said(0, "Hello\n", f"thread {body['threadId']}\n")

    async def test_the_request_is_what_the_protocol_asks(self, peer: Peer) -> None:
        from ag_ui.core import RunAgentInput

        peer.chunks = [frames(STARTED, FINISHED)]
        await chat("what is it?", "--url", f"{peer.url}/agui/", "--thread", "t-1")
        parsed = RunAgentInput.model_validate(peer.bodies[0])
        assert parsed.thread_id == "t-1" and parsed.messages[0].content == "what is it?"
        assert peer.headers[0]["Accept"] == "text/event-stream"
        assert "Authorization" not in peer.headers[0]

    async def test_a_given_thread_is_not_repeated(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, *text("m", "Hello\n"), FINISHED)]
        assert await chat("hi", "--url", peer.url, "--thread", "t") == Said(0, "Hello\n", "")

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    async def test_any_cut_and_any_line_end(self, peer: Peer, end: str) -> None:
        stream = b"\xef\xbb\xbf: hello\n\n" + frames(STARTED, *text("m", "né ", "日本 🚀\u2028x"), FINISHED, end=end)
        peer.chunks = [stream[i : i + 3] for i in range(0, len(stream), 3)]
        assert (await chat("hi", "--url", peer.url)).out == "né 日本 🚀\u2028x\n"

    async def test_it_prints_while_it_streams(self, peer: Peer) -> None:
        """The server sends the rest only after the first words have come out of the process."""
        peer.chunks = [frames(STARTED, *text("m", "first")[:2]), frames(*text("m", " last")[1:], FINISHED)]
        peer.gate = asyncio.Event()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agui_adapter.cli", "chat", "hi", "--url", peer.url, "--thread", "t"),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readexactly(5), 30) == b"first"
        peer.gate.set()
        assert await asyncio.wait_for(process.stdout.read(), 30) == b" last\n"
        assert await process.wait() == 0

    async def test_tools_are_one_line_each_beside_the_answer(self, peer: Peer) -> None:
        peer.chunks = [
            frames(
                STARTED, *text("a", "Looking"), *call("terminal", '{"command":', ' "ls"}'), *text("b", "Done"), FINISHED
            )
        ]
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert said == Said(0, "Looking\nDone\n", '· terminal {"command": "ls"}\n')

    async def test_reasoning_only_when_asked_for(self, peer: Peer) -> None:
        thought = [
            {"type": "REASONING_START", "messageId": "r"},
            {"type": "REASONING_MESSAGE_START", "messageId": "r1", "role": "reasoning"},
            {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r1", "delta": "let me "},
            {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r1", "delta": "see"},
            {"type": "REASONING_MESSAGE_END", "messageId": "r1"},
            {"type": "REASONING_END", "messageId": "r"},
        ]
        peer.chunks = [frames(STARTED, *thought, *text("m", "42"), FINISHED)]
        assert await chat("hi", "--url", peer.url, "--thread", "t") == Said(0, "42\n", "")
        assert await chat("hi", "--url", peer.url, "--thread", "t", "--reasoning") == Said(0, "42\n", "> let me see\n")

    async def test_only_the_assistant_speaks(self, peer: Peer) -> None:
        notice = {"type": "CUSTOM", "name": "hermes.notice", "value": {"text": "compacting"}}
        peer.chunks = [frames(STARTED, *text("u", "echo", role="user"), notice, *text("m", "ok"), FINISHED)]
        assert await chat("hi", "--url", peer.url, "--thread", "t") == Said(0, "ok\n", "! compacting\n")

    async def test_a_closing_snapshot_corrects(self, peer: Peer) -> None:
        kept = {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": "right"}]}
        peer.chunks = [frames(STARTED, *text("m", "wrong"), kept, FINISHED)]
        assert (await chat("hi", "--url", peer.url, "--thread", "t")).out == "wrong\nright\n"
        peer.chunks = [frames(STARTED, *text("m", "\n right"), kept, FINISHED)]
        assert (await chat("hi", "--url", peer.url, "--thread", "t")).out == "\n right\n"

    async def test_json_is_one_event_a_line_as_it_came(self, peer: Peer) -> None:
        events = [STARTED, *text("m", "né"), *call("terminal"), FINISHED]
        peer.chunks = [frames(*events)]
        said = await chat("hi", "--url", peer.url, "--json")
        assert [json.loads(line) for line in said.out.splitlines()] == events
        assert (said.code, said.err) == (0, "")

    async def test_standard_input_and_odd_bytes(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, FINISHED)]
        await chat("-", "--url", peer.url, stdin="viele\nZeilen ü".encode(), env={"PYTHONUTF8": "1"})
        await chat(os.fsdecode(b"caf\xe9"), "--url", peer.url)
        assert [body["messages"][0]["content"] for body in peer.bodies] == ["viele\nZeilen ü", "caf\ufffd"]


class TestToken:
    async def test_from_the_argument_or_the_environment(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, FINISHED)]
        await chat("hi", "--url", peer.url, env={"AGUI_API_KEY": "from-env\n"})
        await chat("hi", "--url", peer.url, "--token", "from-argument", env={"AGUI_API_KEY": "from-env"})
        assert [h["Authorization"] for h in peer.headers] == ["Bearer from-env", "Bearer from-argument"]

    async def test_one_that_no_header_can_carry(self, peer: Peer) -> None:
        said = await chat("hi", "--url", peer.url, "--token", "a\nb")
        assert said.code == 1 and "token" in said.err and peer.bodies == []


class TestEnds:
    async def test_run_error(self, peer: Peer) -> None:
        error = {"type": "RUN_ERROR", "message": "the provider said no", "code": "provider_error"}
        peer.chunks = [frames(STARTED, *text("m", "par")[:2], error)]
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert said == Said(1, "par\n", "error: the provider said no (provider_error)\n")

    async def test_an_interrupt_waits_for_an_answer(self, peer: Peer) -> None:
        outcome = {
            "type": "interrupt",
            "interrupts": [{"id": "i", "reason": "tool_call", "message": "Run rm -rf build?"}],
        }
        peer.chunks = [frames(STARTED, FINISHED | {"outcome": outcome})]
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        how = f"  answer with: hermes-agui chat --url {peer.url} --thread t --answer 'TEXT'\n"
        assert said == Said(3, "", "waiting for an answer: Run rm -rf build?\n" + how)

    async def test_a_pending_client_tool_waits_too(self, peer: Peer) -> None:
        outcome = {"type": "success", "pendingToolCallIds": ["c"]}
        peer.chunks = [frames(STARTED, FINISHED | {"outcome": outcome})]
        assert (await chat("hi", "--url", peer.url)).code == 3

    async def test_a_stopped_run_is_not_done(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, FINISHED | {"outcome": {"type": "cancelled"}})]
        assert (await chat("hi", "--url", peer.url, "--thread", "t")) == Said(1, "", "the run was stopped\n")

    @pytest.mark.parametrize("break_off", [False, True], ids=["closed", "reset"])
    async def test_a_stream_that_ends_early(self, peer: Peer, break_off: bool) -> None:
        peer.chunks, peer.break_off = [frames(STARTED, *text("m", "half")[:2])], break_off
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert (said.code, said.out) == (1, "half\n")
        assert said.err.startswith("error: the stream ended before the run did") and "--thread t" in said.err

    async def test_the_last_run_of_a_stream_counts(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, FINISHED, STARTED | {"runId": "r2"}, *text("m", "on")[:2])]
        assert (await chat("hi", "--url", peer.url)).code == 1

    async def test_a_frame_that_is_no_event(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED), b"data: [DONE]\n\n"]
        said = await chat("hi", "--url", peer.url)
        assert said.code == 1 and "'[DONE]'" in said.err


def numbered(*events: dict[str, Any], start: int = 1) -> bytes:
    told = (f"id: t1.{number}\ndata: {json.dumps(event)}\n\n" for number, event in enumerate(events, start))
    return "".join(told).encode()


class TestALostConnection:
    async def test_it_goes_on_behind_the_last_event(self, peer: Peer) -> None:
        opened, piece, rest, end = text("m", "one ", "two")
        peer.chunks, peer.break_off = [numbered(STARTED, opened, piece)], True
        peer.feeds = [503, [numbered(rest, end, FINISHED, STARTED, start=4)]]
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert (said.code, said.out) == (0, "one two\n") and said.err.count("lost") == 1
        assert peer.positions == ["t1.3", "t1.3"] and len(peer.bodies) == 1

    async def test_a_run_that_was_never_answered_is_sent_again_under_its_key(self, peer: Peer) -> None:
        peer.chunks, peer.lose = [frames(STARTED, *text("m", "there"), FINISHED)], 2
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert (said.code, said.out) == (0, "there\n")
        assert len(peer.bodies) == 3 and peer.bodies[0] == peer.bodies[1] == peer.bodies[2]
        assert len({headers["Idempotency-Key"] for headers in peer.headers}) == 1

    async def test_what_was_begun_is_not_sent_again(self, peer: Peer) -> None:
        """A server that does not number its events cannot be asked to go on, and may do everything twice."""
        peer.chunks, peer.break_off = [frames(STARTED)], True
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert said.code == 1 and len(peer.bodies) == 1 and peer.positions == []

    async def test_a_run_that_is_gone_is_told_by_what_the_thread_has_kept(self, peer: Peer) -> None:
        opened, piece, _ = text("m", "half")
        peer.chunks, peer.break_off, peer.feeds = [numbered(STARTED, opened, piece)], True, [[]]
        peer.messages = [{"id": "m", "role": "assistant", "content": "half and the rest"}]
        said = await chat("hi", "--url", peer.url, "--thread", "t")
        assert said.code == 1 and said.out.endswith("half and the rest\n") and "restarted" in said.err

    async def test_an_end_is_an_end(self, peer: Peer) -> None:
        peer.chunks, peer.break_off = [numbered(STARTED, *text("m", "all"), FINISHED)], True
        assert await chat("hi", "--url", peer.url, "--thread", "t") == Said(0, "all\n", "")
        assert peer.positions == []


class TestInput:
    async def test_standard_input_without_a_text(self, peer: Peer) -> None:
        peer.chunks = [frames(STARTED, FINISHED)]
        await chat("--url", peer.url, "--thread", "t", stdin="né\n".encode() + b"\xff")
        assert peer.bodies[0]["messages"][0]["content"] == "né\n\ufffd"

    async def test_continue(self, peer: Peer) -> None:
        peer.chunks, peer.threads = [frames(STARTED, FINISHED)], ["new one", "old"]
        assert (await chat("hi", "--url", peer.url, "--continue")).code == 0
        assert peer.bodies[0]["threadId"] == "new one"
        peer.threads = []
        said = await chat("hi", "--url", peer.url, "--continue")
        assert said.code == 1 and "no thread to continue" in said.err

    async def test_files(self, peer: Peer, tmp_path: Path) -> None:
        from ag_ui.core import RunAgentInput

        (tmp_path / "a.png").write_bytes(b"\x89PNG")
        (tmp_path / "b.txt").write_text("b")
        peer.chunks = [frames(STARTED, FINISHED)]
        files = [part for name in ("a.png", "b.txt") for part in ("--file", str(tmp_path / name))]
        assert (await chat("look", "--url", peer.url, *files)).code == 0
        content = RunAgentInput.model_validate(peer.bodies[0]).messages[0].content
        assert [part.type for part in content] == ["text", "image", "document"]

    @pytest.mark.parametrize(
        "argv",
        [["hi", "--file", "/nonexistent"], ["hi", "--thread", "t", "--continue"], ["--answer", "x", "--file", "y"]],
    )
    async def test_usage(self, argv: list[str]) -> None:
        assert (await chat(*argv)).code == 2


async def test_json_sends_nothing_that_a_terminal_obeys(peer: Peer) -> None:
    event = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "a\x9b31m\x1b[2Jb\x7f"}
    peer.chunks = [frames(STARTED, event, FINISHED)]
    said = await chat("hi", "--url", peer.url, "--json")
    assert json.loads(said.out.splitlines()[1]) == event
    assert not set(said.out) & {"\x1b", "\x9b", "\x7f"}


async def test_a_server_cannot_move_the_cursor_by_its_errors(peer: Peer) -> None:
    peer.response = web.json_response({"detail": "no\x1b[2J\x9bA"}, status=409)
    said = await chat("hi", "--url", peer.url)
    assert said.code == 1 and "no␛[2J�A" in said.err


APPROVAL = {
    "id": "a-1",
    "reason": "confirmation",
    "kind": "approval",
    "message": "Allow?",
    "metadata": {"hermes": {"choices": ["once", "deny"]}},
}
CLARIFY = {"id": "c-1", "reason": "input_required", "kind": "clarify", "message": "Which?"}
CLIENT = {"id": "k-1", "reason": "confirmation", "kind": "client_tool", "message": "Run it."}


class TestAnswers:
    """`--answer`; questions on a terminal are in tests/e2e/test_terminal.py."""

    async def test_the_only_open_question(self, peer: Peer) -> None:
        peer.requests, peer.chunks = [CLIENT, APPROVAL], [frames(STARTED, *text("m", "gone"), FINISHED)]
        said = await chat("--answer", "deny not that", "--thread", "t", "--url", peer.url, "--token", "k")
        assert said == Said(0, "gone\n", "")
        (body,) = peer.bodies
        assert body["threadId"] == "t" and body["messages"] == [] and body["tools"] == []
        payload = {"choice": "deny", "reason": "not that"}
        assert body["resume"] == [{"interruptId": "a-1", "status": "resolved", "payload": payload}]
        assert [headers["Authorization"] for headers in peer.headers] == ["Bearer k"] * 2

    async def test_several_by_name(self, peer: Peer) -> None:
        peer.requests, peer.chunks = [APPROVAL, CLARIFY], [frames(STARTED, FINISHED)]
        await chat("--answer", "a-1=once", "--answer", "c-1=a=b", "--thread", "t", "--url", peer.url)
        assert [one["payload"] for one in peer.bodies[0]["resume"]] == [{"choice": "once"}, {"answer": "a=b"}]

    @pytest.mark.parametrize(
        ("requests", "answer", "told"),
        [
            ([], "once", "nothing is asked"),
            ([CLIENT], "once", "nothing is asked"),
            ([APPROVAL], "maybe", "once, deny"),
            ([APPROVAL, CLARIFY], "once", "--answer ID=TEXT"),
        ],
    )
    async def test_what_is_no_answer(self, peer: Peer, requests: list[dict[str, Any]], answer: str, told: str) -> None:
        peer.requests = requests
        said = await chat("--answer", answer, "--thread", "t", "--url", peer.url)
        assert said.code == 1 and told in said.err and peer.bodies == []

    @pytest.mark.parametrize("argv", [["--answer", "x"], ["hi", "--answer", "x", "--thread", "t"]])
    async def test_usage(self, argv: list[str]) -> None:
        assert (await chat(*argv)).code == 2

    async def test_what_came_too_late_is_said(self, peer: Peer) -> None:
        late = {"type": "CUSTOM", "name": "hermes.request_expired", "value": {"id": "a-1"}}
        peer.requests, peer.chunks = [APPROVAL], [frames(STARTED, late, FINISHED)]
        said = await chat("--answer", "once", "--thread", "t", "--url", peer.url)
        assert said.code == 0 and "too late" in said.err

    async def test_it_asks_nobody_without_a_terminal(self, peer: Peer) -> None:
        peer.chunks = [
            frames(STARTED, FINISHED | {"outcome": {"type": "interrupt", "interrupts": [APPROVAL, CLARIFY]}})
        ]
        said = await chat("hi", "--thread", "t", "--url", peer.url, stdin=b"once\nred\n")
        assert said.code == 3 and len(peer.bodies) == 1
        assert "--answer 'a-1=once|deny'" in said.err and "--answer 'c-1=TEXT'" in said.err


class TestRefusals:
    @pytest.mark.parametrize(
        ("response", "sentence"),
        [
            (lambda: web.json_response({"error": {"message": "bad key"}}, status=401), "HTTP 401: bad key"),
            (lambda: web.json_response({"error": "busy", "code": "busy"}, status=409), "HTTP 409: busy"),
            (lambda: web.json_response({"message": "too large"}, status=413), "HTTP 413: too large"),
            (lambda: web.Response(status=503, text="starting"), "HTTP 503: starting"),
            (
                lambda: web.Response(status=502, text="<html>x</html>", content_type="text/html"),
                "HTTP 502: Bad Gateway",
            ),
            (lambda: web.Response(status=500), "HTTP 500: Internal Server Error"),
            (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), "HTTP 302: Found"),
            (lambda: web.json_response({}), "answered with application/json, not with an event stream"),
        ],
    )
    async def test_a_refusal_is_one_sentence(
        self, peer: Peer, response: Callable[[], web.Response], sentence: str
    ) -> None:
        peer.response = response()
        said = await chat("hi", "--url", peer.url)
        assert said.code == 1 and said.out == ""
        assert said.err.startswith("error: ") and sentence in said.err and said.err.count("\n") == 1

    async def test_nobody_listens(self) -> None:
        said = await chat("hi", "--url", "http://127.0.0.1:9")
        assert said == Said(
            1, "", "error: cannot reach http://127.0.0.1:9 (Connection refused); is the gateway running?\n"
        )

    @pytest.mark.parametrize("argv", [["hi", "--url", "nonsense"], ["hi", "--url", "ftp://x"], ["  "], [], ["a", "b"]])
    async def test_usage(self, argv: list[str]) -> None:
        assert (await chat(*argv)).code == 2


def test_it_knows_nothing_of_hermes() -> None:
    code = """if True:
        import sys, agui_adapter.chat.command, agui_adapter.chat.interactive
        heavy = ("gateway", "agent", "tools", "hermes_cli", "ag_ui", "prompt_toolkit", "pydantic")
        print([m for m in sys.modules if m.split(".")[0] in heavy])
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout == "[]\n", result.stderr
