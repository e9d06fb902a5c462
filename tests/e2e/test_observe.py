"""Other platforms' sessions: listed, watched without their noticing, copied into a thread, taken over in one.

The other platform is real: a plugin of the same gateway (`wire_platform`), in three kinds.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e import wire_platform
from tests.e2e.helpers import Chat, Event, GatedModel, call, fold, script, unique, wait_until
from tests.e2e.wire_platform import PLATFORMS, Wire

KEY = "an-operators-key-of-thirty-two-ch"
AUTH = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def watched(model: GatedModel) -> Iterator[tuple[Gateway, dict[str, Wire]]]:
    """A gateway with the other platforms that may be observed."""
    gateway = Gateway(
        model,
        **wire_platform.options(env={"AGUI_API_KEY": KEY}, agui={"observe": True, "shared_request_seconds": 2}),
    )
    wires = wire_platform.install(gateway)
    with gateway:
        yield gateway, wires


def get(gateway: Gateway, path: str, status: int = 200, **headers: str) -> Any:
    answer = httpx.get(f"{gateway.url}{path}", headers=headers or AUTH, timeout=30)
    assert answer.status_code == status, answer.text
    return answer.json()


def post(gateway: Gateway, path: str, body: dict[str, Any] | None = None, status: int = 200) -> Any:
    answer = httpx.post(f"{gateway.url}{path}", json=body or {}, headers=AUTH, timeout=30)
    assert answer.status_code == status, answer.text
    return answer.json()


def session_of(gateway: Gateway, chat: str) -> str:
    """The id of the session of a chat, once the gateway has it."""

    def look() -> str:
        found = get(gateway, f"/agui/sessions?q={chat}")["sessions"]
        return str(found[0]["id"]) if found else ""

    return str(wait_until(look, f"the session of {chat}"))


class Watcher:
    """Reads a session's events on a thread of its own."""

    def __init__(self, gateway: Gateway, session: str, query: str = "") -> None:
        self.events: list[Event] = []
        self._url = f"{gateway.url}/agui/sessions/{session}/events{query}"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._response: httpx.Response | None = None
        self.opened = threading.Event()
        self._thread.start()
        assert self.opened.wait(30)

    def _read(self) -> None:
        try:
            with httpx.stream("GET", self._url, headers=AUTH, timeout=60) as response:
                assert response.status_code == 200
                self._response = response
                self.opened.set()
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        self.events.append(json.loads(line[5:]))
        except httpx.HTTPError:
            pass

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]

    def text(self) -> str:
        return "".join(event["delta"] for event in self.of("TEXT_MESSAGE_CONTENT"))

    def wait(self, count: int = 1) -> list[Event]:
        """Until this many turns have ended."""
        wait_until(lambda: len(self.of("RUN_FINISHED")) + len(self.of("RUN_ERROR")) >= count, "the end of the turn")
        return self.events

    def close(self) -> None:
        if self._response is not None:
            self._response.close()


def piece(word: str, gate: str) -> str:
    """A text that arrives as one delta, behind which the model waits for the gate."""
    return f"{word} {{gate:{gate}}}".rjust(60, ".")


def talk(gates: list[str]) -> str:
    """Reasoning, text in two deltas with a tool call, and an answer in two."""
    first = {"text": piece("one", gates[0]) + piece("two", gates[1]), "reasoning": "Let me think.", "chunk": 60}
    last = {"text": piece("three", gates[2]) + piece("four", gates[3]), "chunk": 60}
    return script(first | {"tools": [call("terminal", {"command": "sleep 1; echo said"}, "call-1")]}, last)


# --- watching changes nothing


def record(wire: Wire, model: GatedModel, watch: Callable[[str], None]) -> dict[str, list[Any]]:
    """What the platform was told to show in one conversation, with names that do not depend on the run.

    Each text comes as one delta between two gates: of several, the edits made would depend on the gateway's clock.
    """
    chat, gates = unique("c"), [unique("g") for _ in range(4)]
    wire.say(chat, talk(gates))
    for index, gate in enumerate(gates):
        wait_until(lambda gate=gate: model.reached(gate), gate)
        if index == 0:
            watch(chat)
        if wire.name == "wirelive":
            wire.wait(chat, gate)
        model.open_gate(gate)
    wire.wait(chat, "four")
    gate = unique("g")
    wire.say(chat, script({"text": piece("again", gate), "chunk": 60}), "in-2")
    wait_until(lambda: model.reached(gate), gate)
    if wire.name == "wirelive":
        wire.wait(chat, gate)
    model.open_gate(gate)
    # The end of a turn shows in its last edit or send; the second one's has no cursor.
    wait_until(
        lambda: any("again" in str(row) and "▉" not in str(row) for row in wire.sent(chat)), f"the end on {wire.name}"
    )
    text = json.dumps(wire.sent(chat), ensure_ascii=False)
    for index, name in enumerate([chat, *gates, gate]):
        text = text.replace(name, f"name{index}")
    return apart(json.loads(text))


def apart(rows: list[list[Any]]) -> dict[str, list[Any]]:
    """What was said, and the lines of running tools, each in order: the gateway sends them from two tasks, so their
    order, and how often it repeats a tool's line, depend on the clock."""
    found: dict[str, list[Any]] = {"said": [], "tools": []}
    names: dict[str, str] = {}
    for kind, message_id, content, *more in rows:
        if kind == "send":
            names[message_id] = f"{'tool' if content.startswith('💻') else 'text'}{len(found['said'])}"
        name = names[message_id]
        if name.startswith("tool"):
            if content not in found["tools"]:
                found["tools"].append(content)
        else:
            found["said"].append([kind, name, content, *more])
    return found


def test_a_watched_platform_shows_what_it_shows_unwatched(
    watched: tuple[Gateway, dict[str, Wire]], make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    """Byte for byte, on a platform that streams, one that could edit but does not stream, one that cannot edit."""
    gateway, wires = watched
    plain = make_gateway(**wire_platform.options(env={"AGUI_API_KEY": KEY}), start=False)
    unwatched = wire_platform.install(plain)
    plain.start()
    watchers: list[Watcher] = []

    def join(chat: str) -> None:
        session = session_of(gateway, chat)
        watchers.extend(Watcher(gateway, session) for _ in range(3))

    for name in PLATFORMS:
        without = record(unwatched[name], model, lambda chat: None)
        possible = record(wires[name], model, lambda chat: None)
        begun = len(watchers)
        during = record(wires[name], model, join)
        assert possible == without, f"{name}: the setting alone"
        assert during == without, f"{name}: with three watchers"
        for watcher in watchers[begun:]:
            watcher.wait(2)
            assert "one" in watcher.text() and "again" in watcher.text()
            watcher.close()


# --- what a watcher sees


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_turn_is_watched_live(watched: tuple[Gateway, dict[str, Wire]], model: GatedModel, platform: str) -> None:
    gateway, wires = watched
    wire, chat, gates = wires[platform], unique("c"), [unique("g") for _ in range(4)]
    wire.say(chat, talk(gates))
    wait_until(lambda: model.reached(gates[0]), "the first piece")
    session = session_of(gateway, chat)
    assert get(gateway, f"/agui/sessions/{session}")["status"] == "running"
    watcher = Watcher(gateway, session)
    if platform == "wirelive":  # text comes piece by piece only where the platform itself streams
        wait_until(lambda: gates[0] in watcher.text(), "the first piece, live")
        assert gates[1] not in watcher.text()
    model.open_gate(gates[0])
    model.open_gate(gates[1])
    wait_until(lambda: model.reached(gates[2]), "the second step")
    wait_until(lambda: watcher.of("TOOL_CALL_RESULT"), "the tool's result, while the turn runs")
    model.open_gate(gates[2])
    model.open_gate(gates[3])
    watcher.wait()
    assert watcher.events[0]["type"] == "RUN_STARTED"
    assert watcher.events[-1] == {**watcher.events[-1], "type": "RUN_FINISHED", "outcome": {"type": "success"}}
    held = fold([], watcher.events)
    kinds = [message["role"] for message in held]
    assert kinds == ["user", "reasoning", "assistant", "tool", "assistant"]
    assert held[2]["toolCalls"][0]["id"] == "call-1"
    assert json.loads(held[3]["content"])["output"] == "said"
    # A reload shows the same messages under the same ids.
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    assert get(gateway, f"/agui/sessions/{session}")["messages"] == held
    # The next turn comes on the same feed, with what its user said.
    wire.say(chat, script({"text": "A second answer."}), "in-2")
    watcher.wait(2)
    held = fold([], watcher.events)
    assert [message["role"] for message in held[5:]] == ["user", "assistant"]
    assert held[-1]["content"] == "A second answer."
    watcher.close()


def test_a_watcher_that_comes_back_goes_on_where_it_was(
    watched: tuple[Gateway, dict[str, Wire]], model: GatedModel
) -> None:
    gateway, wires = watched
    wire, chat, gates = wires["wirelive"], unique("c"), [unique("g") for _ in range(4)]
    wire.say(chat, talk(gates))
    for gate in gates:
        model.open_gate(gate)
    wire.wait(chat, "four")
    session = session_of(gateway, chat)
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    gate = unique("g")
    wire.say(chat, script({"text": f"before {{gate:{gate}}} after"}), "in-2")
    wait_until(lambda: model.reached(gate), gate)
    event_id = get(gateway, f"/agui/sessions/{session}")["turn"]["lastEventId"]
    watcher = Watcher(gateway, session, f"?after={event_id}&once=1")
    model.open_gate(gate)
    watcher.wait()
    assert watcher.text().endswith("after") and "before" not in watcher.text()


def test_a_failed_turn_ends_for_its_watcher(watched: tuple[Gateway, dict[str, Wire]], model: GatedModel) -> None:
    gateway, wires = watched
    wire, chat = wires["wireplain"], unique("c")
    wire.say(chat, script({"text": "Hello."}))
    wire.wait(chat, "Hello.")
    watcher = Watcher(gateway, session_of(gateway, chat))
    wire.say(chat, script({"text": "never", "status": 401, "message": "no"}), "in-2")
    watcher.wait()
    assert watcher.events[-1]["type"] == "RUN_ERROR"
    assert watcher.events[-1]["code"] == "provider_auth"
    watcher.close()


def test_a_stopped_turn_is_cancelled_for_its_watcher(
    watched: tuple[Gateway, dict[str, Wire]], model: GatedModel
) -> None:
    gateway, wires = watched
    wire, chat, gate = wires["wireplain"], unique("c"), unique("g")
    wire.say(chat, script({"text": f"Endless {{gate:{gate}}}"}))
    wait_until(lambda: model.reached(gate), gate)
    watcher = Watcher(gateway, session_of(gateway, chat))
    wire.say(chat, "/stop", "in-2")
    watcher.wait()
    assert watcher.events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    assert watcher.events[-1].get("outcome") != {"type": "success"}
    model.open_gate(gate)
    watcher.close()


def test_watching_a_thread_of_this_platform_is_no_reading(
    watched: tuple[Gateway, dict[str, Wire]], model: GatedModel
) -> None:
    """A turn that nobody reads gives way to a new message; somebody who watches it does not keep it."""
    gateway, _ = watched
    chat, gate = Chat(gateway), unique("g")
    run = chat.start(script({"text": f"Unread {{gate:{gate}}} answer."}))
    run.wait_text(gate)
    found = get(gateway, "/agui/sessions?platform=agui")["sessions"]
    session = next(one["id"] for one in found if one["status"] == "running")
    watcher = Watcher(gateway, session)
    wait_until(lambda: gate in watcher.text(), "the watcher")
    run.leave()
    answer = Chat(gateway, thread=chat.thread).say(script({"text": "At once."})).succeeded()
    assert answer.text() == "At once."
    model.open_gate(gate)
    watcher.wait(2)
    assert "At once." in watcher.text()
    watcher.close()


# --- who may


def test_only_the_owner_and_only_with_the_setting(
    watched: tuple[Gateway, dict[str, Wire]], gateway: Gateway, model: GatedModel
) -> None:
    observed, wires = watched
    chat = unique("c")
    wires["wireplain"].say(chat, script({"text": "Hello."}))
    wires["wireplain"].wait(chat, "Hello.")
    session = session_of(observed, chat)
    for path in ("/agui/sessions", f"/agui/sessions/{session}", f"/agui/sessions/{session}/events"):
        assert httpx.get(f"{observed.url}{path}").status_code == 404  # a loopback caller without the key
        assert httpx.get(f"{gateway.url}{path}").status_code == 404  # the setting is off
    for path in ("branch", "resume"):
        assert httpx.post(f"{observed.url}/agui/sessions/{session}/{path}", json={}).status_code == 404
    assert httpx.get(f"{observed.url}/agui/sessions", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert get(observed, "/agui/sessions/unknown", 404)["code"] == "no_such_session"


def test_the_list(watched: tuple[Gateway, dict[str, Wire]], model: GatedModel) -> None:
    gateway, wires = watched
    chats = [unique("c") for _ in range(3)]
    for chat in chats:
        wires["wireedit"].say(chat, script({"text": f"Hello {chat}."}), name=f"Room {chat}")
        wires["wireedit"].wait(chat, f"Hello {chat}.")
    everything = get(gateway, "/agui/sessions?platform=wireedit&limit=2")
    assert [one["chatName"] for one in everything["sessions"]] == [f"Room {chat}" for chat in (chats[2], chats[1])]
    following = get(gateway, f"/agui/sessions?platform=wireedit&limit=2&before={everything['next']}")
    assert following["sessions"][0]["chatName"] == f"Room {chats[0]}"
    wait_until(lambda: get(gateway, f"/agui/sessions?q={chats[0]}")["sessions"][0]["status"] == "idle", "the end")
    one = get(gateway, f"/agui/sessions?q={chats[0]}")["sessions"][0]
    assert (one["platform"], one["chatType"], one["userName"], one["messageCount"] >= 2) == (
        "wireedit",
        "dm",
        "Uma",
        True,
    )
    assert one["updatedAt"] >= one["createdAt"] > 1_600_000_000_000
    assert re.fullmatch(r"[0-9a-f]{32}", one["id"]) and chats[0] not in one["id"]


# --- branch and resume


def test_a_session_is_branched_into_a_thread(watched: tuple[Gateway, dict[str, Wire]], model: GatedModel) -> None:
    gateway, wires = watched
    wire, chat, mark = wires["wireplain"], unique("c"), unique("mark")
    wire.say(chat, script({"text": "First answer."}, say=mark))
    wire.wait(chat, "First answer.")
    session = session_of(gateway, chat)
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    made = post(gateway, f"/agui/sessions/{session}/branch", {"title": f"Copy of {mark}"}, 201)
    assert made["title"] == f"Copy of {mark}"
    assert [message["role"] for message in made["messages"]] == ["user", "assistant"]
    thread = Chat(gateway, thread=made["threadId"], key=KEY, messages=made["messages"])
    thread.say(script({"text": "In the branch."})).succeeded()
    assert mark in json.dumps(model.requests[-1])
    # The original is as it was, and goes its own way.
    assert len(get(gateway, f"/agui/sessions/{session}")["messages"]) == 2
    wire.say(chat, script({"text": "In the chat."}), "in-2")
    wire.wait(chat, "In the chat.")
    assert "In the branch." not in json.dumps(model.requests[-1])
    taken = post(gateway, f"/agui/sessions/{session}/branch", {"threadId": made["threadId"]}, 409)
    assert taken["code"] == "thread_exists"


def test_a_session_is_resumed_in_a_thread_and_both_go_on(
    watched: tuple[Gateway, dict[str, Wire]], model: GatedModel
) -> None:
    gateway, wires = watched
    wire, chat, mark = wires["wireplain"], unique("c"), unique("mark")
    wire.say(chat, script({"text": "Said in the chat."}, say=mark))
    wire.wait(chat, "Said in the chat.")
    session = session_of(gateway, chat)
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    made = post(gateway, f"/agui/sessions/{session}/resume", {"threadId": unique()})
    assert [one["id"] for one in made["sharedWith"]] == [session]
    assert chat in made["notice"] and "waits" in made["notice"] and "2 seconds" in made["notice"]
    thread = Chat(gateway, thread=made["threadId"], key=KEY, messages=made["messages"])
    thread.say(script({"text": "Said in the thread."}, say="from the web")).succeeded()
    assert mark in json.dumps(model.requests[-1])
    # The chat's agent knows what was said on the web, and the thread what is said in the chat.
    wire.say(chat, script({"text": "Back in the chat."}, say="back"), "in-2")
    wire.wait(chat, "Back in the chat.")
    asked = json.dumps(model.requests[-1])
    assert "Said in the thread." in asked and "from the web" in asked
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    run = thread.say(script({"text": "And on."}, say="more")).succeeded()
    assert "Back in the chat." in json.dumps(model.requests[-1])
    # What the client did not know came as a snapshot first; nothing was taken back.
    assert "MESSAGES_SNAPSHOT" in run.types and not [e for e in run.of("CUSTOM") if e["name"] == "hermes.rewound"]
    texts = [message["content"] for message in thread.messages if message["role"] == "assistant"]
    assert texts == ["Said in the chat.", "Said in the thread.", "Back in the chat.", "And on."]
    shown = get(gateway, f"/agui/threads/{thread.thread}")["messages"]
    assert [message["id"] for message in shown] == [message["id"] for message in thread.messages]


def test_the_other_chat_waits_and_requests_expire_soon(
    watched: tuple[Gateway, dict[str, Wire]], model: GatedModel
) -> None:
    gateway, wires = watched
    wire, chat = wires["wireplain"], unique("c")
    wire.say(chat, script({"text": "Hello."}))
    wire.wait(chat, "Hello.")
    session = session_of(gateway, chat)
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    made = post(gateway, f"/agui/sessions/{session}/resume")
    thread = Chat(gateway, thread=made["threadId"], key=KEY, messages=made["messages"])
    tools = [{"name": "pick", "description": "Asks.", "parameters": {"type": "object", "properties": {}}}]
    run = thread.say(script({"tools": [call("pick", {})]}, {"text": "Nobody answered."}), tools=tools)
    assert run.end["type"] == "RUN_FINISHED"
    wire.say(chat, script({"text": "After the thread."}), "in-2")
    # The thread's turn goes on without an answer after two seconds, and then the chat has its turn.
    rows = wire.wait(chat, "After the thread.")
    assert rows
    texts = [m.get("content") for m in get(gateway, f"/agui/threads/{thread.thread}")["messages"]]
    assert texts.index("Nobody answered.") < texts.index("After the thread.")


def test_a_busy_session_is_told_of(watched: tuple[Gateway, dict[str, Wire]], model: GatedModel) -> None:
    gateway, wires = watched
    wire, chat, gate = wires["wireplain"], unique("c"), unique("g")
    wire.say(chat, script({"text": "Hello."}))
    wire.wait(chat, "Hello.")
    session = session_of(gateway, chat)
    wait_until(lambda: get(gateway, f"/agui/sessions/{session}")["status"] == "idle", "the end")
    made = post(gateway, f"/agui/sessions/{session}/resume")
    wire.say(chat, script({"text": f"Long {{gate:{gate}}}"}), "in-2")
    wait_until(lambda: model.reached(gate), gate)
    thread = Chat(gateway, thread=made["threadId"], key=KEY, messages=made["messages"])
    run = thread.start(script({"text": "Next."}))
    run.wait(lambda run: any("other chat" in text for text in run.notices()), "the notice")
    model.open_gate(gate)
    thread.keep(run.finish()).succeeded()
    assert run.text() == "Next."
    assert thread.say(script({"text": "Then."})).succeeded().text() == "Then."
    kept = get(gateway, f"/agui/threads/{thread.thread}")["messages"]
    assert [m["content"] for m in kept if m["role"] == "assistant"] == [
        "Hello.",
        f"Long {{gate:{gate}}}",
        "Next.",
        "Then.",
    ]
