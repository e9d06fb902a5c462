"""Doors to the same scripted answer, read through a plain socket: when did which text arrive?

Time is stamped where bytes come off the socket and frames are parsed after the stream has ended, so that the reader
costs as little as it can. One connection a request, for every door alike. Blocking; any thread.
"""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_TIMEOUT = 120.0  # seconds without a byte


@dataclass(frozen=True)
class Answer:
    """One answer: nanoseconds of the monotonic clock, which all processes of a machine share on Linux.

    ``pieces`` are the text deltas in order, each with the time its last byte arrived.
    """

    asked: int
    pieces: list[tuple[int, str]]
    ended: int

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def first_text(self) -> float:
        """Seconds from before the connection was opened to the first text."""
        return (self.pieces[0][0] - self.asked) / 1e9

    @property
    def rate(self) -> float:
        """Text deltas a second, from the first to the last."""
        return (len(self.pieces) - 1) / max(1e-9, (self.pieces[-1][0] - self.pieces[0][0]) / 1e9)


@dataclass(frozen=True)
class Door:
    """A way to put a question. ``body`` takes (text, thread id), ``text`` picks the delta out of an event."""

    name: str
    port: int
    path: str
    body: Callable[[str, str], dict[str, Any]]
    headers: Callable[[str], Mapping[str, str]]
    text: Callable[[dict[str, Any]], str]

    def ask(self, text: str, thread: str) -> Answer:
        """One streamed answer. Raises RuntimeError when it is refused or has no text."""
        body = json.dumps(self.body(text, thread)).encode()
        headers = {"Content-Type": "application/json", **self.headers(thread)}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        chunks: list[tuple[int, bytes]] = []
        try:
            asked = time.monotonic_ns()
            connection.request("POST", self.path, body, headers)
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{self.name}: {response.status} {response.read()[:500]!r}")
            while data := response.read1(1 << 16):
                chunks.append((time.monotonic_ns(), data))
            ended = time.monotonic_ns()
        finally:
            connection.close()
        answer = Answer(asked, self._pieces(chunks), ended)
        if not answer.pieces:
            raise RuntimeError(f"{self.name}: no text in {b''.join(data for _, data in chunks)[-500:]!r}")
        return answer

    def _pieces(self, chunks: list[tuple[int, bytes]]) -> list[tuple[int, str]]:
        pieces: list[tuple[int, str]] = []
        rest = b""
        for at, data in chunks:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    text = self.text(json.loads(line[6:]))
                    if text:
                        pieces.append((at, text))
        return pieces


def agui(port: int) -> Door:
    """Ours. A message has a fresh id, as from a client that sends its newest message only."""

    def body(text: str, thread: str) -> dict[str, Any]:
        message = {"id": uuid.uuid4().hex, "role": "user", "content": text}
        return {"threadId": thread, "runId": uuid.uuid4().hex, "messages": [message], "protocolVersion": "1.0"}

    def pick(event: dict[str, Any]) -> str:
        return str(event["delta"]) if event["type"] == "TEXT_MESSAGE_CONTENT" else ""

    return Door("AG-UI", port, "/agui", body, lambda thread: {}, pick)


def api_server(port: int, key: str) -> Door:
    """Hermes's own server; a session is continued by its header (gateway/platforms/api_server.py)."""
    return Door(
        "api_server",
        port,
        "/v1/chat/completions",
        _completion,
        lambda thread: {"Authorization": f"Bearer {key}", "X-Hermes-Session-Id": thread},
        _content,
    )


def direct(port: int) -> Door:
    """The model itself, which knows no threads."""
    return Door("model", port, "/v1/chat/completions", _completion, lambda thread: {}, _content)


def _completion(text: str, thread: str) -> dict[str, Any]:
    return {"model": "scripted-1", "stream": True, "messages": [{"role": "user", "content": text}]}


def _content(event: dict[str, Any]) -> str:
    choices = event.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")
