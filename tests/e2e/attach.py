"""Threads over HTTP, for the tests; event feeds that are read frame by frame and cut anywhere."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import httpx

from tests.e2e.helpers import DEADLINE, Chat, Event, Message, wait_until

_TIMEOUT = httpx.Timeout(DEADLINE)


@dataclass(frozen=True)
class Line:
    """One SSE frame as it stands on the wire; `id` is its own, None where it has none."""

    id: str | None
    event: Event


def request(chat: Chat, method: str, path: str = "", **options: Any) -> httpx.Response:
    """One request about the chat's thread, or with `path` beginning with `/agui` about any."""
    headers = options.pop("headers", {}) | ({"Authorization": f"Bearer {chat.key}"} if chat.key else {})
    address = path if path.startswith("/agui") else f"/agui/threads/{chat.thread}{path}"
    with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
        return client.request(method, chat.gateway.url + address, headers=headers, **options)


def thread_of(chat: Chat) -> dict[str, Any]:
    """The thread as GET gives it."""
    response = request(chat, "GET")
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def history(chat: Chat) -> list[Message]:
    """Its messages."""
    made: list[Message] = thread_of(chat)["messages"]
    return made


def trimmed(messages: list[Message]) -> list[Message]:
    """Without white space at the ends of texts, which Hermes's history does not keep, and without activities; results
    of a step in the order of their calls, for a client has them in the order in which they came."""
    calls = [made["id"] for message in messages for made in message.get("toolCalls") or ()]
    order = {call_id: index for index, call_id in enumerate(calls)}
    kept: list[Message] = []
    for message in messages:
        if message["role"] == "activity":
            continue
        if isinstance(message.get("content"), str):
            message = {**message, "content": message["content"].strip()}
        place = len(kept)
        if message["role"] == "tool":
            mine = order.get(message["toolCallId"], 0)
            while place and kept[place - 1]["role"] == "tool" and order.get(kept[place - 1]["toolCallId"], 0) > mine:
                place -= 1
        kept.insert(place, message)
    return kept


def lines(raw: bytes) -> list[Line]:
    """The whole frames of a stream, comments left out."""
    made = []
    for block in raw.decode("utf-8", "replace").split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if "data" in fields:
            made.append(Line(fields.get("id"), json.loads(fields["data"])))
    return made


@contextlib.contextmanager
def following(chat: Chat, after: str = "", **query: str) -> Iterator[Iterator[Line]]:
    """The event feed, frame by frame as it comes; leaving the context cuts the connection."""
    headers = {"Last-Event-ID": after} if after else {}
    if chat.key:
        headers["Authorization"] = f"Bearer {chat.key}"
    url = f"{chat.gateway.url}/agui/threads/{chat.thread}/events"
    with (
        httpx.Client(timeout=_TIMEOUT, trust_env=False) as client,
        client.stream("GET", url, params=query, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()

        def read() -> Iterator[Line]:
            raw = b""
            for chunk in response.iter_raw():
                raw += chunk
                whole, found, raw = raw.rpartition(b"\n\n")
                yield from lines(whole + found)

        yield read()


def rest(chat: Chat, after: str = "", **query: str) -> list[Line]:
    """Everything from a position on until the turn is over."""
    with following(chat, after, once="1", **query) as frames:
        return list(frames)


class Watcher:
    """A reader of the event feed on a thread of its own, until `leave` or the stream's end."""

    def __init__(self, chat: Chat, after: str = "", **query: str) -> None:
        self.lines: list[Line] = []
        self.error: BaseException | None = None
        self.ended = False
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._open = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(chat, after, query), daemon=True)
        self._thread.start()
        assert self._open.wait(DEADLINE)

    def _read(self, chat: Chat, after: str, query: dict[str, str]) -> None:
        try:
            with following(chat, after, **query) as frames:
                self._open.set()
                for line in frames:
                    with self._changed:
                        self.lines.append(line)
                        self._changed.notify_all()
                    if self._stop.is_set():
                        return
        except BaseException as error:
            self.error = error
        finally:
            self._open.set()
            with self._changed:
                self.ended = True
                self._changed.notify_all()

    @property
    def events(self) -> list[Event]:
        return [line.event for line in self.lines]

    @property
    def types(self) -> list[str]:
        return [line.event["type"] for line in self.lines]

    def wait(self, condition: Callable[[Self], Any], what: str = "condition") -> Self:
        """Until the condition holds."""
        with self._changed:
            held = self._changed.wait_for(lambda: condition(self) or self.ended, DEADLINE)
            assert held and condition(self), f"{what}: {self.types} {self.error}"
        return self

    def runs(self, count: int) -> Self:
        """Until so many runs have ended."""
        return self.wait(lambda w: sum(kind in ("RUN_FINISHED", "RUN_ERROR") for kind in w.types) >= count, "runs")

    def end(self) -> Self:
        """Until the server ends the stream."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        return self


def idle(chat: Chat) -> None:
    """Until nothing runs on the thread."""
    wait_until(lambda: thread_of(chat)["status"] == "idle", "the thread is idle")
