"""A raw AG-UI client for the end-to-end tests, and what they compare its result with.

Every stream that ends is checked for the peer that the run declared, and folded into the message list that a client
would hold. `transcript` is the same conversation as Hermes's own database keeps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import httpx
import jsonpatch
from ag_ui_validate.pytest_plugin import validate_agui

from agui_adapter.check import check_text
from agui_adapter.demo import wire
from agui_adapter.demo.gateway import Gateway
from agui_adapter.demo.model import BackgroundModel
from agui_adapter.demo.script import turn_of
from agui_adapter.session import chat_id_for
from agui_adapter.sse import SseParser

Event = dict[str, Any]
Message = dict[str, Any]

DEADLINE = 60.0
"""Seconds that anything here may take before the test fails; nothing waits for time itself."""

_GATE = re.compile(r"\{gate:(\S+?)\}")
_SCRIPT = '{"script":'
_BROKEN = re.compile(r"\{broken:(\d+)\}")


class GatedModel(BackgroundModel):
    """A scripted model that stops in mid-stream behind a word `{gate:NAME}` until the test opens that gate.

    What the client has by then arrived before the model's answer ended: that needs no clock. Arguments with
    `{broken:N}` in them end there in the first N answers and are whole, without the mark, in later ones.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._reached: set[str] = set()
        self._opened: set[str] = set()

    def _answer(self, body: dict[str, Any], size: int) -> wire.Answer:
        answer = super()._answer(body | {"messages": [_newest_script(message) for message in body["messages"]]}, size)
        tools = []
        for tool in answer.step.tools:
            arguments = tool.arguments_text()
            mark = _BROKEN.search(arguments)
            if mark is not None:
                broken = self._count(turn_of(body["messages"]).fault_key()) <= int(mark[1])
                arguments = arguments[: mark.start()] if broken else _BROKEN.sub("", arguments)
                tool = tool.model_copy(update={"arguments": arguments})
            tools.append(tool)
        return replace(answer, step=answer.step.model_copy(update={"tools": tools}))

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Request bodies, oldest first, without those for titles: Hermes before 0.19 cannot be told to make none."""
        return [body for body in super().requests if "descriptive title" not in str(body["messages"][0]["content"])]

    def reached(self, gate: str) -> bool:
        """The model has sent everything up to this gate."""
        return gate in self._reached

    def open_gate(self, gate: str) -> None:
        """Let the model go on. Any thread."""
        self._opened.add(gate)

    async def _whole(self, request: Any, answer: wire.Answer) -> Any:
        for gate in _GATE.findall(answer.step.text):  # an answer in one piece stands before its gate
            await self._pass(gate)
        return await super()._whole(request, answer)

    async def _write_paced(self, response: Any, answer: wire.Answer, pieces: list[dict[str, Any]]) -> None:
        begin = 0
        for index, piece in enumerate(pieces):
            for gate in _GATE.findall(piece.get("content") or piece.get("reasoning_content") or ""):
                await super()._write_paced(response, answer, pieces[begin : index + 1])
                begin = index + 1
                await self._pass(gate)
        await super()._write_paced(response, answer, pieces[begin:])

    async def _pass(self, gate: str) -> None:
        self._reached.add(gate)
        deadline = time.monotonic() + DEADLINE
        while gate not in self._opened and time.monotonic() < deadline:  # noqa: ASYNC110 (another thread opens)
            await asyncio.sleep(0.005)


def _newest_script(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its last script only: Hermes joins a user message that was never answered with the next one."""
    content = message.get("content")
    if message.get("role") == "user" and isinstance(content, str) and content.count(_SCRIPT) > 1:
        return message | {"content": content[content.rindex(_SCRIPT) :]}
    return message


def script(*steps: dict[str, Any], say: str = "") -> str:
    """A user message that makes the scripted model follow `steps`; `say` makes it unlike others."""
    return json.dumps({"script": list(steps), **({"say": say} if say else {})}, ensure_ascii=False)


def call(name: str, arguments: dict[str, Any] | str, call_id: str | None = "") -> dict[str, Any]:
    """A tool call in a step; `call_id` None leaves the id out on the wire, "" lets the model mint one."""
    made: dict[str, Any] = {"name": name, "arguments": arguments}
    return made if call_id == "" else {**made, "id": call_id}


def unique(prefix: str = "t") -> str:
    """An id that nobody else uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """Poll until `condition` is true and return its value; fail, naming `what`, when the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)


@dataclass(frozen=True)
class Frame:
    """One SSE frame; `id` is the newest id on the stream up to it."""

    id: str
    event: Event


class Run:
    """One `POST /agui`, read on a thread of its own. `finish()` waits for its end and checks the stream."""

    def __init__(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.body = body
        self.status = 0
        self.headers: httpx.Headers = httpx.Headers()
        self.raw = b""
        self.frames: list[Frame] = []
        self.error: BaseException | None = None
        self._url = url
        self._request_headers = headers
        self._known: list[str] = []
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._main, name="agui-run", daemon=True)
        self._thread.start()

    # --- the thread

    def _main(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            with contextlib.suppress(asyncio.CancelledError):
                await self._read()

        try:
            asyncio.run(main())
        except BaseException as error:
            self.error = error
        with self._changed:
            self._changed.notify_all()

    async def _read(self) -> None:
        parser = SseParser()
        timeout = httpx.Timeout(DEADLINE, read=DEADLINE * 2)
        async with (
            httpx.AsyncClient(timeout=timeout, trust_env=False) as client,
            client.stream("POST", self._url, json=self.body, headers=self._request_headers) as response,
        ):
            with self._changed:
                self.status, self.headers = response.status_code, response.headers
                self._changed.notify_all()
            async for chunk in response.aiter_raw():
                with self._changed:
                    self.raw += chunk
                    if self.status == 200:
                        self.frames += [Frame(frame.id, json.loads(frame.data)) for frame in parser.feed(chunk)]
                    self._changed.notify_all()

    # --- for the test

    def wait(self, condition: Callable[[Run], Any], what: str = "condition", seconds: float = DEADLINE) -> Self:
        """Until `condition(run)` holds. Fails when the stream ended first or the time is up."""
        with self._changed:
            held = self._changed.wait_for(lambda: condition(self) or not self._thread.is_alive(), seconds)
            assert held and condition(self), f"{what}: not before the end of the stream\n{self.text()}\n{self.events}"
        return self

    def wait_text(self, part: str, seconds: float = DEADLINE) -> Self:
        """Until `part` has arrived as answer text."""
        return self.wait(lambda run: part in run.text(), f"text {part!r}", seconds)

    def leave(self) -> None:
        """Close the connection, as a browser tab does. What was read stays."""
        wait_until(lambda: self._loop is not None and self._task is not None, "the request was sent")
        assert self._loop is not None and self._task is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """The response body has ended, or the connection broke."""
        return not self._thread.is_alive()

    def finish(self, seconds: float = DEADLINE * 2) -> Self:
        """Wait for the end and check the stream (only streams: another status than 200 is the test's to judge)."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the stream is still open after {seconds:g} s: {self.events[-5:]}"
        if self.error is not None:
            raise self.error
        if self.status == 200:
            self.check()
        return self

    def check(self) -> None:
        """No finding, error or warning, for the peer that was declared; an undeclared one may be either."""
        assert self.headers["content-type"].startswith("text/event-stream")
        peers = ("1.0",) if "protocolVersion" in self.body else ("0.0.59", "1.0")
        for peer in peers:
            findings = check_text(
                self.raw.decode(),
                sse=True,
                peer=peer,  # type: ignore[arg-type]
                known_calls=self._known,
                thread_id=self.body["threadId"],
                run_id=self.body["runId"],
                state={} if self.body.get("state") is None else self.body["state"],
            )
            assert not findings, "\n".join([f"peer {peer}:", *map(str, findings), self.raw.decode()])
        validated(self.events)

    @property
    def events(self) -> list[Event]:
        return [frame.event for frame in self.frames]

    @property
    def types(self) -> list[str]:
        return [frame.event["type"] for frame in self.frames]

    def of(self, *types: str) -> list[Event]:
        """Events of these types, in order."""
        return [event for event in self.events if event["type"] in types]

    def text(self) -> str:
        """Every text delta, joined."""
        return "".join(event["delta"] for event in self.of("TEXT_MESSAGE_CONTENT"))

    def texts(self) -> list[str]:
        """The text of each message, in order of its start; what was streamed, before any snapshot."""
        found: dict[str, str] = {}
        for event in self.of("TEXT_MESSAGE_CONTENT"):
            found[event["messageId"]] = found.get(event["messageId"], "") + event["delta"]
        return list(found.values())

    def reasoning(self) -> str:
        return "".join(event["delta"] for event in self.of("REASONING_MESSAGE_CONTENT"))

    def calls(self) -> dict[str, tuple[str, str]]:
        """Call id → (name, arguments text)."""
        made = {event["toolCallId"]: [event["toolCallName"], ""] for event in self.of("TOOL_CALL_START")}
        for event in self.of("TOOL_CALL_ARGS"):
            made[event["toolCallId"]][1] += event["delta"]
        return {call_id: (name, arguments) for call_id, (name, arguments) in made.items()}

    def results(self) -> dict[str, str]:
        """Call id → content of its result."""
        return {event["toolCallId"]: event["content"] for event in self.of("TOOL_CALL_RESULT")}

    def notices(self) -> list[str]:
        """Texts that came beside the answer."""
        return [event["value"]["text"] for event in self.of("CUSTOM") if event["name"] == "hermes.notice"]

    @property
    def end(self) -> Event:
        """The terminal event."""
        return self.events[-1]

    def succeeded(self) -> Self:
        """Assert that the run is a success, and return it."""
        assert self.status == 200, self.raw.decode()
        assert self.end["type"] == "RUN_FINISHED", self.end
        assert self.end.get("outcome", {"type": "success"}) == {"type": "success"}, self.end
        return self

    def failed(self, code: str) -> Event:
        """Assert one RUN_ERROR of this code, after a RUN_STARTED with HTTP 200, and return it."""
        assert self.status == 200, self.raw.decode()
        assert self.types[0] == "RUN_STARTED"
        assert self.end["type"] == "RUN_ERROR", self.end
        assert self.end["code"] == code, self.end
        assert self.end["message"].strip()
        return self.end

    def problem(self) -> dict[str, Any]:
        """The problem document of a refused request."""
        assert self.status >= 400, self.raw.decode()
        assert self.headers["content-type"].startswith("application/problem+json")
        made: dict[str, Any] = json.loads(self.raw)
        return made


@dataclass
class Chat:
    """A thread as a client holds it: its messages grow by what it says and by what each run streams."""

    gateway: Gateway
    thread: str = field(default_factory=unique)
    version: str | None = "1.0"
    key: str | None = None
    messages: list[Message] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def start(self, text: str, *, message_id: str = "", run_id: str = "", **more: Any) -> Run:
        """Send a user message and return the run, which is being read. `more` are members of the body."""
        self.messages.append({"id": message_id or unique("u"), "role": "user", "content": text})
        return self.send(run_id=run_id, **more)

    def send(self, *, run_id: str = "", **more: Any) -> Run:
        """As `start`, with no other message than those that the thread has: a run that answers, or a repeated one."""
        body = {"threadId": self.thread, "runId": run_id or unique("r"), "messages": self.messages}
        body |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}} | more
        if self.version is not None:
            body["protocolVersion"] = self.version
        headers = {"Accept": "text/event-stream"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        run = Run(f"{self.gateway.url}/agui", json.loads(json.dumps(body)), headers)
        run._known = list(self.calls)
        return run

    def say(self, text: str, **more: Any) -> Run:
        """Send a user message, wait for the end of the run, check it, keep its messages."""
        return self.keep(self.start(text, **more).finish())

    def keep(self, run: Run) -> Run:
        """Fold a finished run into the messages."""
        if run.status == 200:
            self.messages = fold(self.messages, run.events)
            self.calls += list(run.calls())
        return run

    @property
    def principal(self) -> str:
        return "local" if self.key is None else "owner"

    @property
    def chat_id(self) -> str:
        return chat_id_for(self.principal, self.thread)

    def sessions(self) -> list[str]:
        """Ids of the Hermes sessions of this thread, oldest first."""
        index = self.gateway.home / "sessions" / "sessions.json"
        if not query(self.gateway, "SELECT 1 FROM pragma_table_info('sessions') WHERE name = 'chat_id'"):
            told = json.loads(index.read_text()) if index.exists() else {}  # before Hermes 0.18
            return [one["session_id"] for key, one in told.items() if key.endswith(f":{self.chat_id}")]
        rows = query(self.gateway, "SELECT id FROM sessions WHERE chat_id = ? ORDER BY started_at", self.chat_id)
        return [row[0] for row in rows]

    def transcript(self) -> list[Message]:
        """The conversation as Hermes keeps it, in the client's form, without what Hermes said to the model itself."""
        messages: list[Message] = []
        for session in self.sessions():
            for role, content, calls, call_id in query(
                self.gateway,
                "SELECT role, content, tool_calls, tool_call_id FROM messages"
                " WHERE session_id = ? AND active = 1 ORDER BY id",
                session,
            ):
                if role == "tool":
                    messages.append({"role": "tool", "toolCallId": call_id, "content": content or ""})
                elif role == "assistant":
                    message: Message = {"role": "assistant", "content": content or ""}
                    if calls and calls != "null":
                        message["toolCalls"] = [
                            {"id": made["id"], "function": made["function"]} for made in json.loads(calls)
                        ]
                    messages.append(message)
                elif role == "user" and content and not content.startswith(_HERMES_ITSELF):
                    messages.append({"role": "user", "content": content})
        return messages

    def assert_as_transcript(self, *, ids: bool = True) -> None:
        """The client holds what Hermes holds: same messages, same calls, same results, nothing twice.

        `ids` False: call ids may differ, since a provider repeated or left them out.
        """
        assert plain(self.messages, ids=ids) == plain(self.transcript(), ids=ids)


_HERMES_ITSELF = ("[System:", "You just executed tool calls but returned an")


def plain(messages: Sequence[Message], *, ids: bool = True) -> list[tuple[Any, ...]]:
    """What counts of a message list: no ids of messages, no reasoning, no white space at the seams.

    Text without calls that follows text without calls is one piece: a cut answer that was continued is two messages
    for Hermes and may be one for the client.
    """
    made: list[tuple[Any, ...]] = []
    order: dict[str, int] = {}  # of the newest step's calls: results of concurrent calls come in any order
    for message in messages:
        role = message["role"]
        if role == "tool":
            call_id = message["toolCallId"] if ids else ""
            index, place = order.get(call_id, 0), len(made)
            while place and made[place - 1][0] == "tool" and made[place - 1][-1] > index:
                place -= 1
            made.insert(place, ("tool", call_id, message["content"], index))
        elif role == "user":
            made.append(("user", message["content"]))
        elif role == "assistant":
            items = message.get("toolCalls") or ()
            order = {item["id"]: index for index, item in enumerate(items)}
            calls = tuple(
                (item["id"] if ids else "", item["function"]["name"], _arguments(item["function"]["arguments"]))
                for item in items
            )
            text = re.sub(r"\s+", "", message.get("content") or "")
            if not text and not calls:
                continue
            if made and made[-1][0] == "assistant" and not made[-1][2]:
                made[-1] = ("assistant", made[-1][1] + text, calls)
            else:
                made.append(("assistant", text, calls))
    return made


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def fold(messages: Sequence[Message], events: Sequence[Event]) -> list[Message]:
    """The message list that a client builds (`@ag-ui/client` 1.0, `apply`); `test_clients` compares it with theirs."""
    held: list[Message] = [dict(message) for message in messages]

    def find(message_id: str) -> Message | None:
        return next((message for message in held if message["id"] == message_id), None)

    def opened(message_id: str, role: str, **more: Any) -> Message:
        message = find(message_id)
        if message is None:
            message = {"id": message_id, "role": role, **more}
            held.append(message)
        return message

    calls: dict[str, dict[str, Any]] = {}
    for event in events:
        kind = event["type"]
        if kind == "TEXT_MESSAGE_START":
            opened(event["messageId"], event.get("role", "assistant"), content="")
        elif kind == "REASONING_MESSAGE_START":
            opened(event["messageId"], "reasoning", content="")
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            message = find(event["messageId"])
            if message is not None:
                message["content"] = (message.get("content") or "") + event["delta"]
        elif kind == "TOOL_CALL_START":
            parent = opened(event.get("parentMessageId") or event["toolCallId"], "assistant")
            made = {
                "id": event["toolCallId"],
                "type": "function",
                "function": {"name": event["toolCallName"], "arguments": ""},
            }
            parent["toolCalls"] = [*parent.get("toolCalls", []), made]
            calls[event["toolCallId"]] = made
        elif kind == "TOOL_CALL_ARGS":
            calls[event["toolCallId"]]["function"]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            result = {
                "id": event["messageId"],
                "toolCallId": event["toolCallId"],
                "role": "tool",
                "content": event["content"],
            }
            held.insert(_result_place(held, event["toolCallId"]), result)
        elif kind == "MESSAGES_SNAPSHOT":
            held = _snapshot(held, event["messages"])
        elif kind == "ACTIVITY_SNAPSHOT":
            message = opened(event["messageId"], "activity")
            message |= {"activityType": event["activityType"], "content": event["content"]}
    return held


def _result_place(held: list[Message], call_id: str) -> int:
    """Behind the assistant message of the call and the results that are there already."""
    for index, message in enumerate(held):
        if any(item["id"] == call_id for item in message.get("toolCalls") or ()):
            place = index + 1
            while place < len(held) and held[place]["role"] == "tool":
                place += 1
            return place
    return len(held)


def _snapshot(held: list[Message], snapshot: list[Message]) -> list[Message]:
    """Same ids are replaced in place, unknown ones appended; local ones go, but for roles that it does not hold."""
    fresh = {message["id"]: message for message in snapshot}
    own = {role for role in ("activity", "reasoning") if not any(message["role"] == role for message in snapshot)}
    kept = [fresh.get(message["id"], message) for message in held if message["id"] in fresh or message["role"] in own]
    there = {message["id"] for message in kept}
    return kept + [message for message in snapshot if message["id"] not in there]


def patched(held: Any, events: Sequence[Event]) -> Any:
    """The state of a client that had `held` before these events, by a library that is not ours."""
    for event in events:
        if event["type"] == "STATE_SNAPSHOT":
            held = event["snapshot"]
        elif event["type"] == "STATE_DELTA":
            held = jsonpatch.apply_patch(held, event["delta"])
    return held


# Rules of ag-ui-validate 0.4.0 that are older than AG-UI 1.0: an error may come late (005), and a result may belong to
# a call of an earlier run (207).
_VALIDATE_OFF = {"AGUI005": "off", "AGUI207": "off"}


def validated(events: Sequence[Event]) -> None:
    """Assert that ag-ui-validate, which is not ours, finds no error and warns of nothing in a stream."""
    report = validate_agui([json.dumps(event) for event in events], severity_overrides=_VALIDATE_OFF)
    bad = [one for one in report.diagnostics if one.severity != "info"]
    assert not bad, "\n".join([*map(str, bad), json.dumps(list(events))])


class Lenient(Gateway):
    """A gateway one of whose platforms fails, which is what is looked at: ready when its address answers."""

    def _wait_ready(self) -> None:
        def answers() -> bool:
            try:
                return httpx.get(self._ready_url, trust_env=False, timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, "the address answers")


def hermes(gateway: Gateway, *arguments: str, fails: bool = False, **env: str) -> str:
    """Run `hermes …` as a process of its own, with the gateway's home; what it wrote."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_cli.main", *arguments],
        env=gateway.environment() | env,
        cwd=gateway.work_dir,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + (done.stderr if fails else "")


def query(gateway: Gateway, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of Hermes's own database, read beside the running gateway."""
    path = gateway.home / "state.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as database:
        return database.execute(sql, values).fetchall()


def write_plugin(home: Path, name: str, source: str) -> None:
    """A directory plugin for a gateway that has not started yet; its name belongs into `plugins.enabled` too."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("plugin.yaml").write_text(f"name: {name}\nversion: 0.0.1\ndescription: for a test\n", "utf-8")
    folder.joinpath("__init__.py").write_text(source, "utf-8")
