"""The tap, by scenarios: what the seam calls in the order that Hermes does, and what the client has in the end.

Each scenario also goes through the translator and the checker, and every announced call has exactly one result.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agui_adapter.check import check_text
from agui_adapter.events import AguiStream
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread, Turn
from agui_adapter.stream import (
    Commentary,
    GatewayNotice,
    InnerToolCall,
    InnerToolResult,
    LongTool,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
    StepStarted,
    StreamEvent,
    ToolCall,
    ToolCallChunk,
    ToolResult,
    TurnFinished,
    Usage,
)
from agui_adapter.tap import Call, Tap, squash, without_thinking
from tests.reducer import decode, reduce, told

TOOLS = frozenset({"terminal", "read_file", "todo"})


def new_thread() -> Thread:
    return Thread(Principal("local"), "t", "local.t")


def new_tap(thread: Thread | None = None, *, max_result_chars: int = 1000) -> Tap:
    thread = thread or new_thread()
    turn = thread.begin(EventLog(asyncio.new_event_loop()))
    return Tap(turn, max_result_chars=max_result_chars)


@pytest.fixture
def tap() -> Iterator[Tap]:
    """A tap in an agent turn; whatever the test did with it must be a clean stream."""
    made = new_tap()
    made.begin()
    yield made
    messages(made)


def events(tap: Tap) -> list[StreamEvent]:
    return [event for _, event in tap.turn.log.take().events]


def messages(tap: Tap) -> list[dict[str, Any]]:
    """End the turn; the messages that a client holds then."""
    tap.stop()
    tap.turn.finish("success")
    script = events(tap)
    announced = Counter(event.call_id for event in script if isinstance(event, ToolCall))
    answered = Counter(event.call_id for event in script if isinstance(event, ToolResult))
    assert announced == answered and set(announced.values()) <= {1}
    stream = AguiStream("t", "r", prefix=tap.turn.id)
    frames = stream.start() + [frame for event in script for frame in stream.feed(event)]
    findings = check_text(b"".join(frames).decode(), sse=True)
    assert not findings, findings
    built = told(reduce(decode(frames)))
    assert built == stream.messages()
    return built


def plain(tap: Tap) -> list[Any]:
    """The client's messages as (role, what it says), calls as (name, arguments): without the ids."""
    short: list[Any] = []
    for message in messages(tap):
        if message["role"] == "tool":
            short.append(("tool", message["content"]))
            continue
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("toolCalls", ())]
        short.append(("assistant", message.get("content", ""), *calls))
    return short


def kinds(tap: Tap) -> list[str]:
    return [type(event).__name__ for event in events(tap)]


# -- text ----------------------------------------------------------------------------------------------------------


def test_a_plain_answer(tap: Tap) -> None:
    for piece in ("Hel", "lo", " there"):
        tap.text(piece)
    tap.answered("Hello there", [], Usage("p", "m", 1, 2))
    tap.final("Hello there")
    tap.end(completed=True, interrupted=False)
    tap.answer("Hello there")
    assert kinds(tap) == ["MessageStart", *["MessageChunk"] * 3, "Usage", "MessageStop"]
    assert plain(tap) == [("assistant", "Hello there")]


def test_reasoning_then_text(tap: Tap) -> None:
    tap.reason("let me ")
    tap.reason("think")
    tap.reason("")
    tap.text("Done")
    tap.answered("<think>let me think</think>Done", [], None)
    tap.final("Done")
    assert kinds(tap) == [
        *("ReasoningStart", "ReasoningChunk", "ReasoningChunk", "ReasoningStop"),
        *("MessageStart", "MessageChunk", "MessageStop"),
    ]
    assert plain(tap) == [("assistant", "Done")]


def test_reasoning_in_mid_text_is_a_stretch_of_its_own(tap: Tap) -> None:
    tap.text("Before")
    tap.reason("hm")
    tap.text("\n\nafter")
    tap.final("Before\n\nafter")
    assert kinds(tap)[:8] == [
        *("MessageStart", "MessageChunk", "MessageStop"),
        *("ReasoningStart", "ReasoningChunk", "ReasoningStop"),
        *("MessageStart", "MessageChunk"),
    ]
    assert plain(tap) == [("assistant", "Before"), ("assistant", "after")]


def test_text_tools_text(tap: Tap) -> None:
    calls = [Call("c1", "terminal", '{"command": "ls"}'), Call("c2", "read_file", "")]
    tap.text("Looking")
    tap.answered("Looking", calls, None)
    tap.committed(calls)
    tap.result("c2", "read_file", "two", duration=0.5)
    tap.result("c1", "terminal", "one", status="error")
    tap.next_request([("terminal", '{"command": "ls"}', "one"), ("read_file", "", "two")], TOOLS)
    tap.text("\n\nFound it")
    tap.answered("Found it", [], None)
    tap.final("Found it")
    results = [event for event in events(tap) if isinstance(event, ToolResult)]
    assert [(r.call_id, r.content, r.ok, r.status, r.duration) for r in results] == [
        ("c2", "two", True, "ok", 0.5),
        ("c1", "one", False, "error", 0.0),
    ]
    assert plain(tap) == [
        ("assistant", "Looking", ("terminal", '{"command": "ls"}'), ("read_file", "{}")),
        ("tool", "two"),
        ("tool", "one"),
        ("assistant", "Found it"),
    ]


def test_calls_without_text_share_a_message(tap: Tap) -> None:
    calls = [Call("c1", "terminal", "{}"), Call("c2", "terminal", "{}")]
    tap.answered("", calls, None)
    tap.committed(calls)
    made = [event for event in events(tap) if isinstance(event, ToolCall)]
    assert len({event.message_id for event in made}) == 1 and made[0].message_id
    assert [event.index for event in made] == [0, 1]


def test_an_interim_comment_that_was_not_streamed(tap: Tap) -> None:
    call = Call("c1", "terminal", "{}")
    tap.answered("Checking", [call], None)
    tap.interim("Checking", already_streamed=False)
    tap.committed([call])
    tap.result("c1", "terminal", "x")
    tap.text("Answer")
    tap.final("Answer")
    assert Commentary("Checking") in events(tap)
    assert plain(tap) == [("assistant", "Checking", ("terminal", "{}")), ("tool", "x"), ("assistant", "Answer")]


def test_an_interim_comment_that_was_streamed_is_not_doubled(tap: Tap) -> None:
    call = Call("c1", "terminal", "{}")
    tap.text("Checking")
    tap.answered("Checking", [call], None)
    tap.interim("Checking", already_streamed=True)
    tap.committed([call])
    assert plain(tap)[0] == ("assistant", "Checking", ("terminal", "{}"))
    assert not any(isinstance(event, Commentary) for event in events(tap))


def test_a_provider_that_does_not_stream(tap: Tap) -> None:
    tap.answered("All at once", [], None)
    tap.final("All at once")
    assert plain(tap) == [("assistant", "All at once")]


def test_a_step_that_does_not_stream(tap: Tap) -> None:
    call = Call("c1", "terminal", "{}")
    tap.answered("Looking", [call], None)
    tap.committed([call])
    tap.result("c1", "terminal", "x")
    tap.answered("Done", [], None)
    tap.final("Done")
    assert plain(tap) == [("assistant", "Looking", ("terminal", "{}")), ("tool", "x"), ("assistant", "Done")]


def test_outer_blank_lines_are_no_difference(tap: Tap) -> None:
    tap.text("\n\nHello \n")
    tap.final("Hello")
    assert plain(tap) == [("assistant", "Hello \n")]
    assert not any(isinstance(event, MessageRevised) for event in events(tap))


class TestTheFinalTextDiffers:
    def test_a_longer_one_is_one_more_delta(self, tap: Tap) -> None:
        tap.text("Hello")
        tap.answered("Hello", [], None)
        tap.final("Hello\n\n-- footer")
        assert events(tap)[1:3] == [MessageChunk("Hello"), MessageChunk("\n\n-- footer")]
        assert plain(tap) == [("assistant", "Hello\n\n-- footer")]

    def test_another_one_revises_the_message(self, tap: Tap) -> None:
        tap.text("Hello secret")
        tap.final("Hello ******")
        (revised,) = [event for event in events(tap) if isinstance(event, MessageRevised)]
        assert revised.text == "Hello ******"
        assert plain(tap) == [("assistant", "Hello ******")]

    def test_an_empty_one_takes_it_back(self, tap: Tap) -> None:
        tap.text("never mind")
        tap.final("")
        assert plain(tap) == []

    def test_of_several_messages_the_last_one_stays(self, tap: Tap) -> None:
        tap.text("one")
        tap.reason("hm")
        tap.text("two")
        tap.final("three")
        assert plain(tap) == [("assistant", "three")]


# -- requests made again -------------------------------------------------------------------------------------------


def test_a_dropped_request_that_is_made_again(tap: Tap) -> None:
    """Malformed arguments: Hermes asks again, the text streams again, the history keeps it once."""
    call = Call("c1", "terminal", '{"command": "ls"}')
    for _ in range(3):
        tap.text("Let me look")
        tap.next_request([], TOOLS)
        tap.text("\n\n")
    tap.answered("Let me look", [call], None)
    tap.committed([call])
    tap.result("c1", "terminal", "x")
    tap.text("Done")
    tap.final("Done")
    assert plain(tap) == [
        ("assistant", "Let me look", ("terminal", '{"command": "ls"}')),
        ("tool", "x"),
        ("assistant", "Done"),
    ]


def test_a_recovered_stream_joins_without_white_space(tap: Tap) -> None:
    tap.text("The answer is ")
    tap.text("forty-two")
    tap.final("The answer isforty-two")
    assert plain(tap) == [("assistant", "The answer is forty-two")]


class TestContinuedAnswers:
    def test_the_rest_goes_on_in_the_same_message(self, tap: Tap) -> None:
        tap.text("First half")
        tap.text_kept("First half")
        tap.next_request([], TOOLS)
        tap.text(" second half")
        tap.final("First half second half")
        assert plain(tap) == [("assistant", "First half second half")]

    def test_its_blank_lines_are_the_answers_own(self, tap: Tap) -> None:
        tap.text("First half")
        tap.text_kept("First half")
        tap.text("\n\n")
        tap.text("Second half")
        tap.notice("notice", "as it streams")
        streamed = "".join(event.text for event in tap.turn.log.events() if isinstance(event, MessageChunk))
        assert streamed == "First half\n\nSecond half"

    def test_a_last_part_alone_is_no_difference_either(self, tap: Tap) -> None:
        tap.text("First half")
        tap.text_kept("First half")
        tap.text(" second half")
        tap.text_kept(" second half")
        tap.text(" third")
        tap.final("First half second half third")
        assert plain(tap) == [("assistant", "First half second half third")]

    def test_only_the_continuation_is_revised(self, tap: Tap) -> None:
        tap.text("First half")
        tap.text_kept("First half")
        tap.text(" wrong")
        tap.final("First half right")
        assert plain(tap) == [("assistant", "First half right")]

    def test_a_text_that_was_changed_altogether(self, tap: Tap) -> None:
        tap.text("First half")
        tap.text_kept("First half")
        tap.text(" second half")
        tap.final("[redacted]")
        assert plain(tap) == [("assistant", "[redacted]")]


def test_a_failed_turn_takes_back_what_is_not_in_the_history(tap: Tap) -> None:
    for _ in range(2):
        tap.text("Let me look")
        tap.next_request([], TOOLS)
    tap.drop_uncommitted([])
    assert plain(tap) == []


def test_a_failed_turn_keeps_what_is_in_the_history(tap: Tap) -> None:
    tap.text("Half an answ")
    tap.drop_uncommitted(["Half an answ"])
    assert plain(tap) == [("assistant", "Half an answ")]


# -- odd calls -----------------------------------------------------------------------------------------------------


def test_a_step_of_names_that_do_not_exist(tap: Tap) -> None:
    """It enters the history without being committed; the next iteration tells what the model got."""
    calls = [Call("c1", "lookup", "{}"), Call("c2", "guess", '{"a": 1}')]
    tap.text("Trying")
    tap.answered("Trying", calls, None)
    tap.next_request([("lookup", "{}", "Tool 'lookup' does not exist."), ("guess", '{"a": 1}', None)], TOOLS)
    tap.text("Sorry")
    tap.final("Sorry")
    assert plain(tap) == [
        ("assistant", "Trying", ("lookup", "{}"), ("guess", '{"a": 1}')),
        ("tool", "Tool 'lookup' does not exist."),
        ("tool", "error"),
        ("assistant", "Sorry"),
    ]
    assert all(event.status == "error" for event in events(tap) if isinstance(event, ToolResult))


def test_the_same_wrong_step_twice_is_two_steps(tap: Tap) -> None:
    for number in (1, 2):
        tap.answered("", [Call(f"c{number}", "lookup", "{}")], None)
        tap.next_request([("lookup", "{}", "No such tool.")], TOOLS)
    assert [call["id"] for message in messages(tap) for call in message.get("toolCalls", ())] == ["c1", "c2"]


def test_a_mixed_step_keeps_the_models_order(tap: Tap) -> None:
    good, bad, last = Call("c1", "terminal", "{}"), Call("c2", "lookup", "{}"), Call("c3", "todo", "{}")
    tap.answered("", [good, bad, last], None)
    tap.committed([good, last], [(bad, "No such tool.")])
    tap.result("c1", "terminal", "one")
    tap.result("c3", "todo", "three")
    assert plain(tap) == [
        ("assistant", "", ("terminal", "{}"), ("lookup", "{}"), ("todo", "{}")),
        ("tool", "No such tool."),
        ("tool", "one"),
        ("tool", "three"),
    ]


def test_a_mixed_step_without_ids(tap: Tap) -> None:
    """The refused call is told from the good one by what it is, not by an id that both lack."""
    bad, good = Call("", "lookup", "{}"), Call("", "terminal", '{"a": 1}')
    tap.answered("", [bad, good], None)
    tap.committed([good], [(bad, "No such tool.")])
    tap.result("", "terminal", "fine")
    assert plain(tap) == [
        ("assistant", "", ("lookup", "{}"), ("terminal", '{"a": 1}')),
        ("tool", "No such tool."),
        ("tool", "fine"),
    ]
    by_call = {event.call_id: event.content for event in events(tap) if isinstance(event, ToolResult)}
    names = {event.call_id: event.tool_name for event in events(tap) if isinstance(event, ToolCall)}
    assert {names[call]: content for call, content in by_call.items()} == {
        "lookup": "No such tool.",
        "terminal": "fine",
    }


def test_calls_in_the_models_order_though_some_lack_an_id(tap: Tap) -> None:
    calls = [Call("", "terminal", "1"), Call("b", "read_file", "2"), Call("", "todo", "3")]
    tap.answered("", calls, None)
    tap.committed(calls)
    assert [event.tool_name for event in events(tap) if isinstance(event, ToolCall)] == [
        "terminal",
        "read_file",
        "todo",
    ]


def test_missing_and_repeated_ids_within_a_step(tap: Tap) -> None:
    calls = [Call("", "terminal", "1"), Call("x", "read_file", "2"), Call("x", "todo", "3"), Call("", "todo", "4")]
    tap.answered("", calls, None)
    tap.committed(calls)
    tap.result("", "todo", "of todo 4")
    tap.result("x", "todo", "of todo 3")
    tap.result("x", "read_file", "of read_file")
    tap.result("", "terminal", "of terminal")
    made = [event for event in events(tap) if isinstance(event, ToolCall)]
    ids = [event.call_id for event in made]
    assert len(set(ids)) == 4 and "" not in ids and ids[1] == "x"
    contents = {event.call_id: event.content for event in events(tap) if isinstance(event, ToolResult)}
    assert [contents[call] for call in ids] == ["of terminal", "of read_file", "of todo 3", "of todo 4"]


def test_an_id_repeated_across_steps_and_turns_is_mapped() -> None:
    thread = new_thread()
    seen: list[str] = []
    for turn in range(2):
        tap = new_tap(thread)
        tap.begin()
        for step in range(2):
            call = Call("call_0", "terminal", "{}")
            tap.answered("", [call], None)
            tap.committed([call])
            tap.result("call_0", "terminal", f"{turn}.{step}")
        results = [event for event in events(tap) if isinstance(event, ToolResult)]
        assert [event.content for event in results] == [f"{turn}.0", f"{turn}.1"]
        seen += [event.call_id for event in results]
        messages(tap)
    assert len(set(seen)) == 4 and seen[0] == "call_0"


def test_blocked_skipped_and_cancelled_calls_are_closed(tap: Tap) -> None:
    calls = [Call(f"c{number}", "terminal", "{}") for number in range(4)]
    tap.answered("", calls, None)
    tap.committed(calls)
    tap.result("c0", "terminal", "Blocked by the guard.", status="blocked")
    tap.result("c0", "terminal", "late", status="ok")
    tap.result("c1", "terminal", "done")
    tap.results({"c1": "done", "c2": "Skipped: the user stopped."})
    tap.stop()
    closed = [(e.call_id, e.status, e.ok) for e in events(tap) if isinstance(e, ToolResult)]
    assert closed == [
        ("c0", "blocked", False),
        ("c1", "ok", True),
        ("c2", "skipped", False),
        ("c3", "cancelled", False),
    ]


def test_a_call_of_an_earlier_step_is_not_forgotten(tap: Tap) -> None:
    for name in ("c1", "c2"):
        tap.answered("", [Call(name, "terminal", "{}")], None)
        tap.committed([Call(name, "terminal", "{}")])
    tap.result("c2", "terminal", "two")
    tap.stop()
    closed = {event.call_id: event.status for event in events(tap) if isinstance(event, ToolResult)}
    assert closed == {"c1": "cancelled", "c2": "ok"}


def test_the_next_request_closes_what_ended_nowhere(tap: Tap) -> None:
    calls = [Call("c1", "terminal", "{}"), Call("c2", "terminal", "{bad")]
    tap.answered("", calls, None)
    tap.committed(calls)
    tap.result("c1", "terminal", "one")
    tap.next_request([("terminal", "{}", "one"), ("terminal", "{bad", "Invalid JSON.")], TOOLS)
    contents = {event.call_id: event.content for event in events(tap) if isinstance(event, ToolResult)}
    assert contents == {"c1": "one", "c2": "Invalid JSON."}


def test_a_long_result_is_cut_and_says_so() -> None:
    tap = new_tap(max_result_chars=10)
    tap.begin()
    tap.committed([Call("c1", "terminal", "{}")])
    tap.result("c1", "terminal", "x" * 25)
    (result,) = [event for event in events(tap) if isinstance(event, ToolResult)]
    assert (result.content, result.cut) == ("x" * 10, 15)
    assert plain(tap)[-1] == ("tool", "x" * 10 + "\n[cut: 15 more characters]")


def test_a_server_call_behind_a_clients_is_announced_when_it_runs(tap: Tap) -> None:
    calls = [Call("c1", "read_file", "{}"), Call("c2", "pick", "{}", client=True), Call("c3", "terminal", "{}")]
    tap.answered("", calls, None)
    tap.committed(calls)
    announced = [event.call_id for event in events(tap) if isinstance(event, ToolCall)]
    assert announced == ["c1", "c2"]
    tap.result("c2", "pick", "red")
    tap.starts("c3")
    assert [event.call_id for event in events(tap) if isinstance(event, ToolCall)] == ["c1", "c2", "c3"]


# -- beside the answer ---------------------------------------------------------------------------------------------


def test_inner_calls(tap: Tap) -> None:
    tap.committed([Call("call_0", "execute_code", "{}")])
    first = tap.inner_call("call_0", "read_file", '{"path": "a"}')
    second = tap.inner_call("call_0", "terminal", "{}")
    tap.inner_result("call_0", second, "boom", False, 0.25)
    tap.inner_result("call_0", first, "x" * 1200, True, 0.5)
    tap.result("call_0", "execute_code", "done")
    inner = [event for event in events(tap) if isinstance(event, (InnerToolCall, InnerToolResult))]
    assert inner == [
        InnerToolCall("call_0", first, "read_file", '{"path": "a"}'),
        InnerToolCall("call_0", second, "terminal", "{}"),
        InnerToolResult("call_0", second, "boom", False, 0.25),
        InnerToolResult("call_0", first, "x" * 1000, True, 0.5, 200),
    ]
    assert first != second


def test_inner_calls_hang_on_the_id_on_the_wire() -> None:
    thread = new_thread()
    thread.call_ids.add("call_0")
    tap = new_tap(thread)
    tap.begin()
    tap.committed([Call("call_0", "execute_code", "{}")])
    tap.inner_call("call_0", "terminal", "{}")
    (call,) = [event for event in events(tap) if isinstance(event, ToolCall)]
    (inner,) = [event for event in events(tap) if isinstance(event, InnerToolCall)]
    assert inner.parent_call_id == call.call_id != "call_0"


def test_notices_are_no_text(tap: Tap) -> None:
    tap.text("Hel")
    tap.notice("notice", "No home channel is set")
    tap.notice("notice", "  ")
    tap.text("lo")
    tap.final("Hello")
    assert [event for event in events(tap) if isinstance(event, GatewayNotice)] == [
        GatewayNotice("notice", "No home channel is set")
    ]
    assert plain(tap) == [("assistant", "Hello")]


def test_what_the_gateway_added_to_the_answer_is_a_notice(tap: Tap) -> None:
    tap.text("Hello")
    tap.final("Hello")
    tap.answer("Hello")
    tap.answer("💾 saved\n\nHello\n\n— 12 tokens")
    assert [event for event in events(tap) if isinstance(event, GatewayNotice)] == [
        GatewayNotice("footer", "💾 saved\n— 12 tokens")
    ]
    assert plain(tap) == [("assistant", "Hello")]


def test_an_answer_that_no_hook_told_of_is_said(tap: Tap) -> None:
    tap.answer("Only the gateway knows this")
    assert plain(tap) == [("assistant", "Only the gateway knows this")]


def test_two_agent_turns_in_one_cycle(tap: Tap) -> None:
    """Text steered too late is run by the gateway itself as another turn."""
    tap.text("First")
    tap.final("First")
    tap.end(completed=True, interrupted=False)
    tap.answer("First")
    tap.begin()
    assert (tap.agent_turns, tap.open_turns, tap.completed) == (2, 1, False)
    tap.text("Second")
    tap.final("Second")
    tap.end(completed=True, interrupted=False)
    tap.answer("Second")
    assert plain(tap) == [("assistant", "First"), ("assistant", "Second")]


def test_an_agent_turn_that_broke_off_leaves_nothing_open_for_the_next(tap: Tap) -> None:
    tap.text("Half")
    tap.begin()
    tap.text("Whole")
    tap.final("Whole")
    tap.committed([Call("c1", "terminal", "{}")])
    tap.reason("hm")
    tap.begin()
    tap.reason("again")
    assert kinds(tap).count("ReasoningStart") == kinds(tap).count("ReasoningStop") + 1 == 2
    assert [event.status for event in events(tap) if isinstance(event, ToolResult)] == ["cancelled"]
    assert [each[1] for each in plain(tap) if each[0] == "assistant"] == ["Half", "Whole", ""]


def test_nothing_is_written_after_stop() -> None:
    tap = new_tap()
    tap.begin()
    tap.text("Half")
    tap.committed([Call("c1", "terminal", "{}")])
    tap.stop()
    written = events(tap)
    tap.text("late")
    tap.reason("late")
    tap.interim("late", already_streamed=False)
    tap.commentary("late")
    tap.reply("late")
    tap.plain_call(ToolCallChunk("terminal"))
    tap.notice("notice", "late")
    tap.answered("late", [Call("c2", "terminal", "{}")], Usage("p", "m", 1, 1))
    tap.committed([Call("c2", "terminal", "{}")], [(Call("c3", "x", "{}"), "no")])
    tap.next_request([("terminal", "{}", "late")], TOOLS)
    tap.text_kept("late")
    tap.starts("c2")
    tap.result("c1", "terminal", "late")
    tap.results({"c1": "late"})
    tap.inner_result("c1", tap.inner_call("c1", "terminal", "{}"), "late", True, 0.0)
    tap.final("late")
    tap.answer("late")
    tap.drop_uncommitted([])
    tap.begin()
    tap.stop()
    assert events(tap) == written
    messages(tap)


# -- Hermes's own stream events ------------------------------------------------------------------------------------


def test_commentary_that_was_streamed_is_not_doubled(tap: Tap) -> None:
    tap.text("Checking the logs")
    tap.commentary("Checking  the logs\n")
    tap.commentary("\n")
    tap.commentary("Something else")
    assert plain(tap) == [("assistant", "Checking the logs"), ("assistant", "Something else")]


def test_plain_calls_get_ids_and_an_end() -> None:
    tap = new_tap()
    tap.text("Looking")
    tap.plain_call(ToolCallChunk("terminal", args={"command": "ls"}))
    tap.plain_call(ToolCallChunk("terminal", args={"path": object}))
    made = [event for event in events(tap) if isinstance(event, ToolCall)]
    assert len({event.call_id for event in made}) == 2
    assert json.loads(made[0].arguments) == {"command": "ls"}
    tap.reply("Done")
    assert tap.spoke
    assert plain(tap)[-1] == ("assistant", "Done")


def test_a_notice_alone_is_no_speech() -> None:
    tap = new_tap()
    tap.notice("notice", "hm")
    assert not tap.spoke


# -- many threads --------------------------------------------------------------------------------------------------


def test_results_of_concurrent_tools_and_text_come_from_several_threads(tap: Tap) -> None:
    calls = [Call(f"c{number}", "terminal", "{}") for number in range(16)]
    tap.answered("", calls, None)
    tap.committed(calls)
    start = threading.Barrier(17)

    def finish(call: Call) -> None:
        start.wait()
        inner = tap.inner_call(call.id, "read_file", "{}")
        tap.inner_result(call.id, inner, "x", True, 0.0)
        tap.result(call.id, call.name, call.id)
        tap.result(call.id, call.name, "twice")

    def talk() -> None:
        start.wait()
        for number in range(200):
            tap.text(f"{number} ")

    threads = [threading.Thread(target=finish, args=(call,)) for call in calls] + [threading.Thread(target=talk)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = {event.call_id: event.content for event in events(tap) if isinstance(event, ToolResult)}
    assert results == {call.id: call.id for call in calls}
    said = "".join(event.text for event in events(tap) if isinstance(event, MessageChunk))
    assert said == "".join(f"{number} " for number in range(200))


def test_helpers() -> None:
    assert squash(" a\n\tb ") == "ab"
    assert without_thinking("<think>a\nb</think>c<reasoning>d") == "c"


def test_the_words_used_here_are_the_vocabulary() -> None:
    """A turn by hand, so that the tests above can be read against the events."""
    tap = new_tap()
    tap.begin()
    tap.reason("why")
    tap.text("Hi")
    tap.stop()
    start, *_ = [event for event in events(tap) if isinstance(event, ReasoningStart)]
    message, *_ = [event for event in events(tap) if isinstance(event, MessageStart)]
    assert events(tap) == [start, ReasoningChunk("why"), ReasoningStop(), message, MessageChunk("Hi")]
    tap.turn.finish("success")
    assert events(tap)[-1] == TurnFinished()
    assert MessageStop(final=False) not in events(tap)  # the end of the turn closes what is open
    assert isinstance(tap.turn, Turn)


# -- further turns -------------------------------------------------------------------------------------------------


def test_a_text_that_came_too_late_is_the_users_message_between_two_answers(tap: Tap) -> None:
    tap.turn.steered_ids = {"What of it": "mine"}
    for question, answer in (("", "One."), ("And now?", "Two."), ("What of it\nand that", "Three.")):
        if question:
            tap.begin(question)
        tap.text(answer)
        tap.final(answer)
        tap.end(completed=True, interrupted=False)
    notices = [event for event in events(tap) if isinstance(event, GatewayNotice)]
    assert [(one.kind, one.extra["text"], one.extra["resend"]) for one in notices] == [
        ("further_turn", "And now?", False),
        ("further_turn", "What of it\nand that", False),
    ]
    ids = [one.extra["messageId"] for one in notices]
    assert ids[1] == "mine" and ids == tap.late_inputs
    told = messages(tap)
    assert [(m["role"], m["content"]) for m in told] == [
        ("assistant", "One."),
        ("user", "And now?"),
        ("assistant", "Two."),
        ("user", "What of it\nand that"),
        ("assistant", "Three."),
    ]
    assert [m["id"] for m in told if m["role"] == "user"] == ids


def test_what_hermes_itself_reports_between_two_answers_is_nobodys_message(tap: Tap) -> None:
    tap.text("One.")
    tap.final("One.")
    tap.begin("[ASYNC DELEGATION COMPLETE]", aside=True)
    tap.text("Two.")
    tap.final("Two.")
    assert [(m["role"], m["content"]) for m in messages(tap)] == [("assistant", "One."), ("assistant", "Two.")]
    assert tap.late_inputs == [] and not [event for event in events(tap) if isinstance(event, GatewayNotice)]


def test_a_client_that_sent_the_late_text_itself_has_it_once(tap: Tap) -> None:
    tap.turn.steered_ids = {"late": "mine"}
    tap.text("One.")
    tap.final("One.")
    tap.begin("late")
    stream = AguiStream("t", "r", prefix=tap.turn.id, base=[{"id": "mine", "role": "user", "content": "late"}])
    frames = b"".join(frame for event in events(tap) for frame in stream.feed(event)).decode()
    assert "further_turn" in frames and '"role":"user"' not in frames
    assert [m["id"] for m in stream.messages()].count("mine") == 1


def test_what_has_been_said_is_known_again(tap: Tap) -> None:
    tap.text("An answer.")
    tap.final("An answer.")
    assert tap.has_said("An answer.\n") and not tap.has_said("An answer. And a footer.")


# -- sealed reasoning, steps, long tools ---------------------------------------------------------------------------


def test_sealed_reasoning_goes_with_its_stretch_once_the_step_is_kept(tap: Tap) -> None:
    call = Call("c1", "terminal", "{}")
    tap.reason("I look.")
    tap.answered("", [call], None, sealed="sealed-1")
    assert ReasoningSealed not in map(type, events(tap))  # a step may still be dropped and made again
    tap.committed([call])
    tap.result("c1", "terminal", "x")
    tap.next_request([("terminal", "{}", "x")], TOOLS)
    tap.reason("I know.")
    tap.text("Done.")
    tap.answered("Done.", [], None, sealed="sealed-2")
    tap.final("Done.")
    starts = [event.message_id for event in events(tap) if isinstance(event, ReasoningStart)]
    sealed = [event for event in events(tap) if isinstance(event, ReasoningSealed)]
    assert sealed == [ReasoningSealed(starts[0], "sealed-1"), ReasoningSealed(starts[1], "sealed-2")]


def test_sealed_reasoning_of_a_dropped_step_is_dropped(tap: Tap) -> None:
    tap.reason("I try.")
    tap.answered("", [Call("c1", "terminal", "{broken")], None, sealed="void")
    tap.next_request([], TOOLS)
    tap.reason("Again.")
    tap.text("Done.")
    tap.answered("Done.", [], None)
    tap.final("Done.")
    assert ReasoningSealed not in map(type, events(tap))


def test_sealed_reasoning_without_words_has_no_message_to_go_with(tap: Tap) -> None:
    tap.text("Done.")
    tap.answered("Done.", [], None, sealed="sealed")
    tap.final("Done.")
    assert ReasoningSealed not in map(type, events(tap))


def test_reasoning_that_comes_behind_the_answer_still_gets_its_sealed_form(tap: Tap) -> None:
    tap.text("Done.")
    tap.answered("Done.", [], None, sealed="sealed")
    tap.reason("I thought so.")
    tap.final("Done.")
    assert kinds(tap)[-3:] == ["ReasoningChunk", "ReasoningStop", "ReasoningSealed"]


def test_requests_are_counted_over_all_agent_turns(tap: Tap) -> None:
    tap.begin_request()
    tap.begin_request()
    tap.begin()
    tap.begin_request()
    assert [event.number for event in events(tap) if isinstance(event, StepStarted)] == [1, 2, 3]


def test_only_a_call_that_still_runs_is_told_to_run_long(tap: Tap) -> None:
    call = Call("c1", "terminal", "{}")
    tap.answered("", [call], None)
    tap.committed([call])
    tap.runs_long("c1", "terminal", 20.0)
    tap.result("c1", "terminal", "x")
    tap.runs_long("c1", "terminal", 40.0)
    assert [event for event in events(tap) if isinstance(event, LongTool)] == [LongTool("terminal", 20.0, "c1")]
