"""The terminal door: one message in, the answer printed as it streams, questions asked where somebody can answer.

An ordinary AG-UI client over HTTP: it knows nothing of Hermes and imports none of it. It offers no client tools.
Exit codes: 0 done, 1 failed, 2 usage, 3 the run waits for an answer (an approval, a question, a client's tool).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import shlex
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any, TextIO
from urllib.parse import quote

import aiohttp

from agui_adapter import chat_ask
from agui_adapter.sse import SseParser

DEFAULT_URL = "http://127.0.0.1:8650"
DONE, FAILED, USAGE, WAITING = 0, 1, 2, 3

# Quiet streams carry a heartbeat (agui.heartbeat_seconds, at most 300): twice that means that the server is gone.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=600)


class ChatError(Exception):
    """The run failed; the text is one sentence for the user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `hermes-agui chat`."""
    parser.add_argument("text", nargs="?", default="", help="what to say; - reads it from standard input")
    parser.add_argument("--thread", metavar="T", help="continue this thread (default: a new one)")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="A",
        help="answer what the thread asks instead of saying something: a choice and a reason, or a text; "
        "ID=A where several things are open",
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the server (default %(default)s)")
    parser.add_argument(
        "--token",
        help="bearer key (default: AGUI_API_KEY of the environment, which other users of a machine cannot see)",
    )
    parser.add_argument("--json", action="store_true", help="print every event as one line of JSON instead of the text")
    parser.add_argument("--reasoning", action="store_true", help="show the model's reasoning too")


def run(args: argparse.Namespace) -> int:
    """Send, print, return the exit code. Runs its own event loop."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    text = sys.stdin.read() if args.text == "-" else args.text
    # Bytes of the command line that are not UTF-8 arrive as lone surrogates, which are no valid JSON text.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if args.answer and (text or args.thread is None):
        print("hermes-agui chat: --answer goes with --thread and without a text", file=sys.stderr)
        return USAGE
    if not text.strip() and not args.answer:
        print("hermes-agui chat: the text is empty", file=sys.stderr)
        return USAGE
    thread = args.thread or str(uuid.uuid4())
    screen = Screen(sys.stdout, sys.stderr, reasoning=args.reasoning, raw=args.json)
    asks = args.text != "-" and not args.json and sys.stdin.isatty()
    try:
        code = _run(args.url, _token(args.token), thread, text, args.answer, screen, asks=asks)
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        print(f"hermes-agui chat: --url {args.url!r} is not an http address", file=sys.stderr)
        return USAGE
    except ChatError as error:
        screen.end_line()
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    if args.thread is None and not args.json:
        screen.remark(f"thread {thread}")
    return code


def _run(url: str, token: str | None, thread: str, text: str, answers: list[str], screen: Screen, *, asks: bool) -> int:
    """Runs of one thread, until there is nothing (more) to answer here."""
    message = {"id": str(uuid.uuid4()), "role": "user", "content": text}
    body: dict[str, Any] = {"messages": [] if answers else [message]}
    if answers:
        asked = [one for one in asyncio.run(_open(url, token, thread)) if one.get("kind") != "client_tool"]
        try:
            body["resume"] = chat_ask.given(asked, answers)
        except ValueError as error:
            raise ChatError(str(error)) from None
    while True:
        body |= {"threadId": thread, "runId": str(uuid.uuid4()), "protocolVersion": "1.0"}
        body |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
        code = asyncio.run(_converse(url, token, body, screen))
        if not screen.interrupts:
            return code
        resume = chat_ask.ask(screen.interrupts, screen.say, screen.ask) if asks else None
        if resume is None:
            here = f" --url {shlex.quote(url)}" if url != DEFAULT_URL else ""
            for line in chat_ask.later(screen.interrupts, f"hermes-agui chat{here} --thread {shlex.quote(thread)}"):
                screen.say(line)
            return code
        body = {"messages": [], "resume": resume}


def _token(given: str | None) -> str | None:
    token = (given or os.environ.get("AGUI_API_KEY") or "").strip()
    if not token.isascii() or not token.isprintable():
        raise ChatError("the token holds characters that no HTTP header can carry")
    return token or None


async def _converse(url: str, token: str | None, body: dict[str, Any], screen: Screen) -> int:
    async for event, data in _events(url, token, body):
        screen.show(event, data)
    screen.end_line()
    if screen.code is None:
        raise ChatError(
            "the stream ended before the run did; the agent may still be at work: "
            f"ask again with --thread {body['threadId']}"
        )
    return screen.code


async def _open(url: str, token: str | None, thread: str) -> list[dict[str, Any]]:
    """What the thread asks now. Raises `ChatError`."""
    base = url.rstrip("/").removesuffix("/agui")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(f"{base}/agui/threads/{quote(thread, safe='')}", headers=headers) as response,
        ):
            if response.status != 200:
                raise ChatError(_refusal(response, await response.content.read(65536)))
            found = (await response.json(content_type=None)).get("requests")
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise
    except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError, AttributeError) as error:
        raise ChatError(f"{base} did not answer ({type(error).__name__}); is the gateway running?") from None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


async def _events(url: str, token: str | None, body: dict[str, Any]) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """POST and read the answer: each event with the text it came as. Raises `ChatError`."""
    base = url.rstrip("/")
    endpoint = base if base.endswith("/agui") else f"{base}/agui"
    headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {token}"} if token else {})
    parser = SseParser()
    begun = False
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.post(endpoint, json=body, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ChatError(_refusal(response, await response.content.read(65536)))
            if response.content_type != "text/event-stream":
                raise ChatError(f"{endpoint} answered with {response.content_type}, not with an event stream")
            begun = True
            async for chunk in response.content.iter_any():
                for frame in parser.feed(chunk):
                    yield _decode(frame.data), frame.data
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
        raise ChatError(f"cannot reach {base} ({reason}); is the gateway running?") from None
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        # A stream that breaks is one that ends early: the caller says what that means.
        if not begun:
            raise ChatError(f"{base} did not answer ({type(error).__name__}); is the gateway running?") from None


def _decode(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise ChatError(f"the server sent something that is no AG-UI event: {text[:80]!r}")
    return event


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    sentence = found if isinstance(found, str) and found else text if not text.startswith("<") else ""
    return f"HTTP {response.status}: {sentence[:500] or response.reason or 'no reason given'}"


class Screen:
    """What a person sees of a run: the answer on `out`, everything about it on `err`. Keeps the exit code so far."""

    def __init__(self, out: TextIO, err: TextIO, *, reasoning: bool = False, raw: bool = False) -> None:
        self.code: int | None = None
        """None until the run ended."""
        self.interrupts: list[dict[str, Any]] = []
        """What the run that ended last asks."""
        self._out, self._err = out, err
        self._reasoning, self._raw = reasoning, raw
        self._dim = err.isatty() and "NO_COLOR" not in os.environ
        self._message: str | None = None
        self._said: list[str] = []
        self._hidden: set[str] = set()
        self._calls: dict[str, list[str]] = {}
        self._thought: list[str] = []
        self._open_line = False

    def show(self, event: dict[str, Any], data: str) -> None:
        """Print one event; `data` is its text on the wire."""
        if self._raw:
            print(data if "\n" not in data else json.dumps(event), file=self._out, flush=True)
        kind = event["type"]
        match kind:
            case "RUN_STARTED":
                self.code, self.interrupts = None, []
            case "RUN_FINISHED":
                self._finished(event.get("outcome") or {})
            case "RUN_ERROR":
                self.end_line()
                code = f" ({event['code']})" if event.get("code") else ""
                print(f"error: {event.get('message') or 'the run failed'}{code}", file=self._err, flush=True)
                self.code = FAILED
            case _ if not self._raw:
                self._progress(kind, event)

    def remark(self, text: str) -> None:
        """One quiet line on `err`."""
        self.end_line()
        line = " ".join(text.split())
        line = line if len(line) <= 160 else line[:159] + "…"
        print(f"\x1b[2m{line}\x1b[0m" if self._dim else line, file=self._err, flush=True)

    def say(self, text: str) -> None:
        """One line on `err`, as it is."""
        self.end_line()
        print(text, file=self._err, flush=True)

    def ask(self, prompt: str) -> str:
        """Show a prompt on `err` and read a line. Raises EOFError where the input ends."""
        print(prompt, end="", file=self._err, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=self._err)
            raise EOFError
        return line

    def end_line(self) -> None:
        """Finish a line of the answer that is still open."""
        if self._open_line:
            self._write("\n")

    def _progress(self, kind: str, event: dict[str, Any]) -> None:
        message, delta = str(event.get("messageId", "")), event.get("delta")
        match kind:
            case "TEXT_MESSAGE_START" if event.get("role", "assistant") != "assistant":
                self._hidden.add(message)
            case "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK" if isinstance(delta, str) and delta:
                if message not in self._hidden:
                    self._text(message or self._message or "", delta)
            case "TOOL_CALL_START":
                self._calls[str(event.get("toolCallId"))] = [str(event.get("toolCallName")), " "]
            case "TOOL_CALL_ARGS" if isinstance(delta, str):
                self._calls.get(str(event.get("toolCallId")), []).append(delta)
            case "TOOL_CALL_END":
                self.remark("· " + "".join(self._calls.pop(str(event.get("toolCallId")), ["a tool"])))
            case "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_CHUNK" if isinstance(delta, str):
                self._thought.append(delta)
            case "REASONING_MESSAGE_END" | "REASONING_END" if self._thought:
                thought = "".join(self._thought)
                self._thought.clear()
                if self._reasoning:
                    for line in thought.splitlines():
                        self.remark(f"> {line}")
            case "MESSAGES_SNAPSHOT":
                self._correct(event.get("messages"))
            case "CUSTOM" if event.get("name") == "hermes.request_expired":
                self.remark("! the answer came too late: the time for it was over")
            case "CUSTOM" if str(event.get("name", "")).startswith("hermes."):
                value = event.get("value")
                said = value if isinstance(value, str) else value.get("text") if isinstance(value, dict) else None
                if isinstance(said, str) and said.strip():
                    self.remark(f"! {said}")

    def _text(self, message: str, delta: str) -> None:
        if self._message is not None and message != self._message:
            self.end_line()
            self._said.clear()
        self._message = message
        self._said.append(delta)
        self._write(delta)

    def _correct(self, messages: Any) -> None:
        """A closing snapshot tells what the transcript kept; say so where that is not what was printed."""
        last = messages[-1] if isinstance(messages, list) and messages else None
        text = last.get("content") if isinstance(last, dict) and last.get("role") == "assistant" else None
        if self._said and isinstance(text, str) and "".join(text.split()) != "".join("".join(self._said).split()):
            self.remark("! the answer was corrected:")
            self._said = [text]
            self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._open_line = not text.endswith("\n")

    def _finished(self, outcome: dict[str, Any]) -> None:
        self.end_line()
        if outcome.get("type") == "interrupt":
            self.interrupts = [one for one in outcome.get("interrupts") or [{}] if isinstance(one, dict)]
            self.code = WAITING
        elif outcome.get("pendingToolCallIds"):
            print("waiting for a tool that another client of this thread runs", file=self._err, flush=True)
            self.code = WAITING
        elif outcome.get("type") == "cancelled":
            print("the run was stopped", file=self._err, flush=True)
            self.code = FAILED
        else:
            self.code = DONE
