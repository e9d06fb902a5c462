"""Attach, observe, resume: a reader that is cut anywhere and comes back has what an undisturbed one saw.

The kill matrix is one long turn with text, reasoning, tools, a parked request and whatever else a turn shows, read by
everybody at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.clients import VERSIONS, Version, node, run_agent
from tests.e2e.attach import Line, Watcher, following, history, lines, request, rest, thread_of, trimmed
from tests.e2e.helpers import Chat, GatedModel, call, fold, patched, script, unique, wait_until
from tests.e2e.media import png

END = ("RUN_FINISHED", "RUN_ERROR")


def positions(frames: list[Line]) -> list[str]:
    return [line.id for line in frames if line.id is not None]


def behind(frames: list[Line], event_id: str) -> list[Line]:
    """The frames behind the one with this id."""
    index = next(index for index, line in enumerate(frames) if line.id == event_id)
    return frames[index + 1 :]


# --- the kill matrix


class Chain:
    """A reader that is cut after every single event and comes back at once, from the turn's beginning to its end."""

    def __init__(self, chat: Chat, after: str) -> None:
        self.lines: list[Line] = []
        self.cuts = 0
        self._chat, self._after = chat, after

    def read(self, ends: int) -> Chain:
        """Until so many runs have ended."""
        while sum(line.event["type"] in END for line in self.lines) < ends:
            with following(self._chat, self._after) as frames:
                line = next(frames)
            assert line.id is not None, line.event
            self.lines.append(line)
            self._after = line.id
            self.cuts += 1
        return self


@dataclass
class Matrix:
    """A turn that is over, and what its readers saw of it."""

    chat: Chat
    chain: Chain
    watcher: Watcher
    whole: list[Line]


@pytest.fixture(scope="module")
def wide(model: GatedModel) -> Iterator[Gateway]:
    """A gateway that shows all it can."""
    toolsets = ("terminal", "file", "todo", "clarify", "code_execution")
    with Gateway(model, toolsets=toolsets, agui={"steps": True, "long_tool_seconds": 0.3}) as running:
        yield running


@pytest.fixture(scope="module")
def matrix(wide: Gateway, model: GatedModel) -> Iterator[Matrix]:
    """One turn: reasoning, text, two tools, a dangerous one that waits for a yes, changes of the state, a plan, code
    that waits for a yes and makes calls, a slow tool, more text and a file; and all its readers."""
    chat = Chat(wide)
    chat.say(script({"reasoning": "First.", "text": "Before."}), state={"n": 1}).succeeded()
    target = wide.work_dir / unique("dir")
    target.mkdir()
    picture = wide.work_dir / f"{unique('red')}.png"
    picture.write_bytes(png((255, 0, 0)))
    tools = [
        call("terminal", {"command": "echo one"}),
        call("read_file", {"path": "no.such"}),
        call("terminal", {"command": f"rm -r {target.name}"}),
    ]
    inside = [
        call("set_app_state", {"changes": [{"pointer": "/n", "value": 2}]}),
        call("todo", {"todos": [{"id": "1", "content": "Look", "status": "in_progress"}]}),
        call("todo", {"todos": [{"id": "1", "content": "Look", "status": "completed"}]}),
        call("execute_code", {"code": "from hermes_tools import terminal\nprint(terminal('echo inner'))"}),
        call("terminal", {"command": "sleep 1; echo slow"}),
    ]
    gate = unique("g")
    steps = (
        {"reasoning": "I think about it.", "text": "I do three things.", "tools": tools, "delta_ms": 15},
        {"tools": inside},
        {"reasoning": "Nearly.", "text": f"All three are done, and {{gate:{gate}}} here is what came of it.\n"
         f"MEDIA:{picture}", "delta_ms": 15},
    )  # fmt: skip
    held = thread_of(chat)["state"]
    run = chat.start(script(*steps), state=held)
    run.wait(lambda run: run.frames, "the run began")
    watcher = Watcher(chat)
    chain, runs = Chain(chat, run.frames[0].id), [run]
    for count in (1, 2):  # the deletion is asked about, and running code is
        chain.read(count)
        chat.keep(run.finish())
        (asked,) = run.end["outcome"]["interrupts"]
        held = patched(held, run.events)
        resume = [{"interruptId": asked["id"], "status": "resolved", "payload": {"choice": "once"}}]
        run = chat.send(resume=resume, state=held)
        runs.append(run)
    run.wait_text(gate)
    model.open_gate(gate)
    chain.read(3)
    chat.keep(run.finish()).succeeded()
    watcher.runs(3)
    assert not target.exists()
    yield Matrix(chat, chain, watcher, [line for run in runs for line in lines(run.raw)])


KINDS = {
    *("RUN_STARTED", "RUN_FINISHED", "STEP_STARTED", "STEP_FINISHED", "CUSTOM"),
    *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
    *("REASONING_MESSAGE_END", "REASONING_END"),
    *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
    *("STATE_DELTA", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"),
}


def test_the_turn_has_all_that_matters(matrix: Matrix) -> None:
    """Every kind of event but errors, snapshots (for readers that know less) and subagents': those are in test_feed."""
    types = [line.event["type"] for line in matrix.whole]
    assert set(types) == KINDS
    assert types.count("TOOL_CALL_START") == types.count("TOOL_CALL_RESULT") == 8
    assert types.count("REASONING_START") == 2 and types.count("TEXT_MESSAGE_START") == 3
    assert [line.event.get("outcome", {}).get("type") for line in matrix.whole if line.event["type"] in END] == [
        *("interrupt", "interrupt", "success"),
    ]
    shown = {line.event["activityType"] for line in matrix.whole if line.event["type"] == "ACTIVITY_SNAPSHOT"}
    assert shown == {"hermes.plan", "hermes.inner_tools", "hermes.attachment"}
    assert len(set(positions(matrix.whole))) == len(matrix.whole) > 60
    assert trimmed(history(matrix.chat)) == trimmed(matrix.chat.messages)


@pytest.mark.compat
@pytest.mark.core
def test_cut_after_every_single_event_while_it_runs(matrix: Matrix) -> None:
    assert matrix.chain.cuts == len(matrix.whole) - 1
    assert matrix.chain.lines == matrix.whole[1:]  # it began behind the first frame


def test_a_cut_after_every_single_event_can_be_mended_later(matrix: Matrix) -> None:
    """From each position to the turn's end, by header and by query."""
    for number, event_id in enumerate(positions(matrix.whole)):
        got = rest(matrix.chat, event_id) if number % 2 else rest(matrix.chat, after=event_id)
        assert got == behind(matrix.whole, event_id), event_id


@pytest.mark.compat
def test_a_reader_that_came_in_the_middle_has_the_same_messages(matrix: Matrix) -> None:
    """It had told nothing: it gets state and conversation, then everything of all runs, with the same ids."""
    events = matrix.watcher.events
    assert [event["type"] for event in events[:3]] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]
    assert [event["type"] for event in events].count("MESSAGES_SNAPSHOT") == 1
    assert trimmed(fold([], events)) == trimmed(matrix.chat.messages)
    assert [events[0], *events[3:]] == [line.event for line in matrix.whole]
    assert patched(None, events) == thread_of(matrix.chat)["state"]


@pytest.mark.compat
@pytest.mark.parametrize("count", [1, 2, 5, 9, 14, 20])
def test_the_posts_own_connection_cut_after_any_frame(gateway: Gateway, count: int) -> None:
    chat = Chat(gateway)
    step = {"reasoning": "Hm, hm.", "text": "I look around.", "tools": [call("terminal", {"command": "echo x"})]}
    run = chat.start(script(step | {"delta_ms": 10}, {"text": "That was all of it.", "delta_ms": 10}))
    run.wait(lambda run: len(run.frames) >= count, "frames")
    run.leave()
    seen = lines(run.raw)  # whole frames only
    rest_of_it = rest(chat, str(seen[-1].id))
    wait_until(lambda: thread_of(chat)["status"] == "idle", "the end")
    whole = rest(chat, positions(seen)[0])
    assert [*seen[1:], *rest_of_it] == whole
    chat.messages = fold(chat.messages, [line.event for line in (*seen, *rest_of_it)])
    assert trimmed(history(chat)) == trimmed(chat.messages)
    chat.say(script({"text": "On."})).succeeded()
    assert trimmed(history(chat)) == trimmed(chat.messages)


def test_a_cut_inside_a_frame_is_mended_too(gateway: Gateway) -> None:
    """Bytes stop anywhere: what was no whole frame does not count."""
    chat = Chat(gateway)
    run = chat.say(script({"text": "Some words to cut."})).succeeded()
    whole = lines(run.raw)
    for cut in range(0, len(run.raw), 37):
        seen = lines(run.raw[:cut])
        if seen:
            assert rest(chat, str(seen[-1].id)) == behind(whole, str(seen[-1].id))


# --- behind, later, gone


def test_a_reader_that_fell_behind_gets_a_snapshot_and_goes_on(
    model: GatedModel, make_gateway: Callable[..., Gateway]
) -> None:
    chat, gate = Chat(make_gateway(agui={"log_bytes_per_turn": 65536})), unique("g")
    text = "".join(f"word{number} " for number in range(6000))
    run = chat.start(script({"text": f"{text}{{gate:{gate}}} and the end."}))
    run.wait_text("word50 ")
    early = str(next(frame.id for frame in run.frames if frame.event["type"] == "TEXT_MESSAGE_CONTENT"))
    run.wait_text(gate)
    late = Watcher(chat, early, once="1").wait(lambda w: "MESSAGES_SNAPSHOT" in w.types, "the snapshot")
    model.open_gate(gate)
    chat.keep(run.finish().succeeded())
    late.end()
    assert late.types[0] == "MESSAGES_SNAPSHOT" and late.types[-1] == "RUN_FINISHED"
    assert late.events[0]["messages"][-1]["content"].startswith(text)
    assert len(late.types) < 2000
    after = fold(chat.messages[:1], late.events)
    assert trimmed(after) == trimmed(chat.messages)
    # And once it is over.
    assert trimmed(fold(chat.messages[:1], [line.event for line in rest(chat, early)])) == trimmed(chat.messages)


def test_a_finished_turn_is_replayed_for_its_time_and_not_after(make_gateway: Callable[..., Gateway]) -> None:
    """After that a reader gets the conversation, and what comes next."""
    chat = Chat(make_gateway(agui={"turn_ttl_seconds": 1}))
    run = chat.say(script({"text": "Soon forgotten."})).succeeded()
    first = str(run.frames[0].id)
    assert [line.event for line in rest(chat, first)] == run.events[1:]

    def gone() -> bool:
        return rest(chat, first) == []

    wait_until(gone, "the turn was forgotten", 90)
    watcher = Watcher(chat, first)
    chat.say(script({"text": "Later."})).succeeded()
    watcher.runs(1)
    assert watcher.types[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert trimmed(fold([], watcher.events)) == trimmed(chat.messages) == trimmed(history(chat))


@pytest.mark.parametrize(
    "after", ["", "x", "turn-0.1", "turn-0.1s", ".", "1", "a" * 500, "turn-x.99999999999999999999"]
)
def test_a_position_that_nobody_knows_starts_over(gateway: Gateway, after: str) -> None:
    chat = Chat(gateway)
    chat.say(script({"text": "There."})).succeeded()
    assert rest(chat, after=after) == []  # idle, and once
    watcher = Watcher(chat, after)
    chat.say(script({"text": "Next."})).succeeded()
    watcher.runs(1)
    assert trimmed(fold([], watcher.events)) == trimmed(chat.messages)


def test_a_position_of_another_thread_is_none(gateway: Gateway) -> None:
    one, other = Chat(gateway), Chat(gateway)
    run = one.say(script({"text": "Mine."})).succeeded()
    other.say(script({"text": "Other."})).succeeded()
    assert rest(other, str(run.frames[0].id)) == []


# --- many windows


def test_ten_windows_on_one_thread(gateway: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(gateway), unique("g")
    chat.say(script({"text": "Before."})).succeeded()
    idle = [Watcher(chat) for _ in range(5)]
    run = chat.start(script({"reasoning": "Hm.", "text": f"Half {{gate:{gate}}} and half."}, say="for ten"))
    run.wait_text(gate)
    late = [Watcher(chat) for _ in range(5)]
    for watcher in late:
        watcher.wait(lambda w: gate in json.dumps(w.events), "the text so far")
    model.open_gate(gate)
    chat.keep(run.finish().succeeded())
    for watcher in (*idle, *late):
        watcher.runs(1)
        assert trimmed(fold([], watcher.events)) == trimmed(chat.messages)
        own = [event for event in watcher.events if event["type"] != "MESSAGES_SNAPSHOT"]
        assert own == run.events
    # One of them writes: all see it, with what it said.
    writer = Chat(gateway, thread=chat.thread, messages=fold([], idle[0].events))
    writer.say(script({"tools": [call("terminal", {"command": "echo x"})]}, {"text": "From a window."})).succeeded()
    for watcher in (*idle, *late):
        watcher.runs(2)
        assert trimmed(fold([], watcher.events)) == trimmed(writer.messages) == trimmed(history(writer))


def test_a_window_sees_another_one_going_back(gateway: Gateway) -> None:
    chat = Chat(gateway)
    for number in range(3):
        chat.say(script({"text": f"Answer {number}."}, say=str(number))).succeeded()
    watcher = Watcher(chat)
    chat.say(script({"text": "Answer 3."})).succeeded()
    watcher.runs(1)
    chat.messages = chat.messages[:3]  # the second question again
    chat.keep(chat.send().finish()).succeeded()
    watcher.runs(2)
    assert trimmed(fold([], watcher.events)) == trimmed(chat.messages) == trimmed(history(chat))
    assert "hermes.rewound" in [event.get("name") for event in watcher.events]


def test_a_window_sees_an_answer_that_another_one_gave(gateway: Gateway) -> None:
    """Also the client tool's result, which its own client is never sent."""
    tool = {"name": "get_color", "description": "The colour of the page.", "parameters": {"type": "object"}}
    chat = Chat(gateway)
    watcher = Watcher(_known(chat))
    run = chat.say(script({"tools": [call("get_color", {})]}, {"text": "It is red."}), tools=[tool])
    watcher.runs(1)
    (call_id,) = run.calls()
    chat.messages.append({"id": unique("answer"), "role": "tool", "toolCallId": call_id, "content": "red"})
    chat.keep(chat.send(tools=[tool]).finish()).succeeded()
    watcher.runs(2)
    assert trimmed(fold([], watcher.events)) == trimmed(chat.messages)


def _known(chat: Chat) -> Chat:
    """A feed is there only for a thread that was used."""
    chat.say(script({"text": "Before."})).succeeded()
    return chat


def test_the_feed_of_a_thread_that_is_deleted_ends(gateway: Gateway) -> None:
    chat = Chat(gateway)
    watcher = Watcher(_known(chat))
    assert request(chat, "DELETE").status_code == 200
    watcher.end()
    assert watcher.error is None and watcher.lines == []


# --- the official clients


@pytest.mark.node
@pytest.mark.skipif(node() is None, reason="needs Node")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_official_clients_list_after_a_reload_equals_the_one_before(
    gateway: Gateway, model: GatedModel, version: Version
) -> None:
    """A page that reloads: a fresh agent, seeded with GET's messages, goes on without a warning or a correction."""
    chat = Chat(gateway)
    look = {
        "reasoning": "Hm.",
        "text": "I look.",
        "tools": [call("terminal", {"command": f"echo {n}"}) for n in (1, 2)],
    }
    texts = (
        script(look, {"text": "Done."}),
        "/help",
        script({"text": "Half of an ", "finish": "length"}, {"text": "answer."}),
    )
    runs = [{"messages": [{"id": unique("u"), "role": "user", "content": text}]} for text in texts]
    before = run_agent(version, f"{gateway.url}/agui", chat.thread, runs)
    held = before[-1].messages
    assert all(record.failed is None and record.warnings == [] for record in before)
    loaded = history(chat)
    assert trimmed(_told(loaded)) == trimmed(_told(held))
    more = {"id": unique("u"), "role": "user", "content": script({"text": "After the reload."})}
    (after,) = run_agent(version, f"{gateway.url}/agui", chat.thread, [{"messages": [*loaded, more]}])
    assert after.failed is None and after.warnings == []
    assert not after.of_type("MESSAGES_SNAPSHOT") and not after.of_type("CUSTOM")
    assert _told(after.messages)[: len(_told(loaded))] == _told(loaded)
    assert trimmed(_told(after.messages)) == trimmed(_told(history(chat)))
    seen = [message["role"] for message in model.requests[-1]["messages"] if message["role"] != "system"]
    assert seen[-1] == "user" and seen.count("tool") == 2


@pytest.mark.node
@pytest.mark.skipif(node() is None, reason="needs Node")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_official_client_that_knows_less_is_told_in_the_right_order(gateway: Gateway, version: Version) -> None:
    chat = Chat(gateway)
    chat.say(script({"reasoning": "Hm.", "text": "One."}, say="1")).succeeded()
    chat.say(script({"text": "Two."}, say="2")).succeeded()
    more = {"id": unique("u"), "role": "user", "content": script({"text": "Three."})}
    for held in ([], chat.messages[:1], chat.messages[:3]):
        thread = Chat(gateway)
        thread.say(script({"text": "One."}, say="1"), message_id="u1").succeeded()
        thread.say(script({"text": "Two."}, say="2"), message_id="u2").succeeded()
        mine = thread.messages[: len(held) and len(held) + 1][-2:] if held else []
        (after,) = run_agent(version, f"{gateway.url}/agui", thread.thread, [{"messages": [*mine, more]}])
        assert after.failed is None and after.warnings == []
        assert [m["id"] for m in _told(after.messages)] == [m["id"] for m in history(thread)]


def _told(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    """Members without a value are as good as absent; reasoning is a client's own."""
    return [
        {key: value for key, value in message.items() if value not in (None, "", [])}
        for message in messages
        if message["role"] not in ("reasoning", "activity")
    ]


# --- how long things take


def test_attaching_to_a_long_turn_is_quick(gateway: Gateway) -> None:
    chat = Chat(gateway)
    text = "".join(f"w{number} " for number in range(20_000))
    run = chat.say(script({"text": text})).succeeded()
    ids = positions(lines(run.raw))
    for event_id in (ids[0], ids[len(ids) // 2], ids[-2]):
        began = time.monotonic()
        got = rest(chat, event_id)
        assert time.monotonic() - began < 10
        assert got[-1].event["type"] == "RUN_FINISHED"
