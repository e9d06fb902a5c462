"""The translator: any sequence of StreamEvents is a stream that clients accept, and each event is what it should be."""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.check import check_text
from agui_adapter.encode import numbered
from agui_adapter.events import _HANDLERS, HIDDEN, NO_RESULT, AguiStream, View
from agui_adapter.log import EventLog
from agui_adapter.peers import MODERN, OLD, OLDEST, Peer, peer_of
from agui_adapter.stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    InnerToolCall,
    InnerToolResult,
    LongToolHint,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    Outcome,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
    StreamEvent,
    ToolCall,
    ToolCallChunk,
    ToolCallFinished,
    ToolResult,
    TurnFinished,
    Usage,
)
from tests import strategies
from tests.reducer import decode, reduce, told
from tests.strategies import BASE, PREFIX, ends, scripts, texts

VIEWS = [
    View(reasoning, output, steps)
    for reasoning in ("full", "summary", "off")
    for output in ("full", "names", "off")
    for steps in (True, False)
]
TERMINAL = {"RUN_FINISHED", "RUN_ERROR"}

views = st.sampled_from(VIEWS)
peers = st.sampled_from([MODERN, OLD, OLDEST])
bases = st.sampled_from([[], BASE])


def stream(**options: Any) -> AguiStream:
    return AguiStream("thread-1", "run-1", **{"prefix": PREFIX, **options})


def play(made: AguiStream, events: list[StreamEvent]) -> list[bytes]:
    return [*made.start(), *(frame for event in events for frame in made.feed(event))]


def check(frames: list[bytes], peer: Peer, base: list[dict[str, Any]], allowed: tuple[str, ...] = ()) -> None:
    """The sequence checker finds nothing, not even a warning, except what is allowed."""
    calls = [call["id"] for message in base for call in message.get("toolCalls", ())]
    findings = check_text(
        b"".join(frames).decode(),
        sse=True,
        peer="1.0" if peer is MODERN else "0.0.59",
        known_calls=calls,
        thread_id="thread-1",
        run_id="run-1",
    )
    wrong = [str(finding) for finding in findings if finding.rule not in allowed]
    assert not wrong, "\n".join([*wrong, *(frame.decode().strip() for frame in frames)])


class TestAnySequence:
    @given(scripts, ends, peers, views, bases)
    def test_is_accepted_and_ends_once(
        self, script: list[StreamEvent], end: StreamEvent, peer: Peer, view: View, base: list[dict[str, Any]]
    ) -> None:
        made = stream(peer=peer, view=view, base=base)
        frames = play(made, [*script, end])
        events = decode(frames)
        check(frames, peer, base)
        assert made.done
        assert [event["type"] in TERMINAL for event in events] == [False] * (len(events) - 1) + [True]

    @given(scripts, st.text(max_size=5), peers, views)
    def test_that_breaks_off_can_be_failed(self, script: list[StreamEvent], word: str, peer: Peer, view: View) -> None:
        made = stream(peer=peer, view=view)
        frames = [*play(made, script), *made.fail("broken", word)]
        check(frames, peer, [])
        (error,) = [event for event in decode(frames) if event["type"] in TERMINAL]
        assert error["type"] == "RUN_ERROR" and error["code"] == "broken" and error["message"].strip()

    @given(scripts, ends, scripts, views)
    def test_has_nothing_after_its_end(
        self, script: list[StreamEvent], end: StreamEvent, late: list[StreamEvent], view: View
    ) -> None:
        made = stream(view=view)
        play(made, [*script, end])
        assert [made.feed(event) for event in [*late, end]] == [[]] * (len(late) + 1)
        assert made.fail("late", "late") == []
        assert made.resync([*script, end]) == []

    @given(scripts, ends, peers, views, bases)
    def test_leaves_the_client_with_the_messages_that_the_translator_says(
        self, script: list[StreamEvent], end: StreamEvent, peer: Peer, view: View, base: list[dict[str, Any]]
    ) -> None:
        made = stream(peer=peer, view=view, base=base)
        events = decode(play(made, [*script, end]))
        built = reduce(events, base)
        assert told(built) == made.messages()
        # A snapshot must not take what the client alone has: reasoning and activities of this run and of old ones.
        spans = [event["messageId"] for event in events if event["type"] == "REASONING_MESSAGE_START"]
        shown = {event["messageId"] for event in events if event["type"] == "ACTIVITY_SNAPSHOT"}
        old = [message["id"] for message in base if message["role"] == "reasoning"]
        assert [message["id"] for message in built if message["role"] == "reasoning"] == old + spans
        assert {message["id"] for message in built if message["role"] == "activity"} == shown

    @given(scripts, ends, peers, views, bases)
    def test_gives_the_same_bytes_again(
        self, script: list[StreamEvent], end: StreamEvent, peer: Peer, view: View, base: list[dict[str, Any]]
    ) -> None:
        once, twice = (play(stream(peer=peer, view=view, base=base), [*script, end]) for _ in range(2))
        assert once == twice

    @given(scripts, scripts, scripts, ends, peers, views, bases)
    def test_can_be_resynced_anywhere(
        self,
        seen: list[StreamEvent],
        missed: list[StreamEvent],
        rest: list[StreamEvent],
        end: StreamEvent,
        peer: Peer,
        view: View,
        base: list[dict[str, Any]],
    ) -> None:
        undisturbed = stream(peer=peer, view=view, base=base)
        wanted = reduce(decode(play(undisturbed, [*seen, *missed, *rest, end])), base)
        made = stream(peer=peer, view=view, base=base)
        frames = [*play(made, seen), *made.resync([*seen, *missed])]
        for event in [*rest, end]:
            frames += made.feed(event)
        # A message that was being streamed is opened again after its snapshot: clients append, and the checker says so.
        check(frames, peer, base, allowed=("message-reopened",))
        built = reduce(decode(frames), base)
        assert by_id(told(built)) == by_id(told(wanted))
        assert made.messages() == undisturbed.messages()
        activities = [[m for m in each if m["role"] == "activity"] for each in (built, wanted)]
        assert by_id(activities[0]) == by_id(activities[1])

    @given(scripts, scripts, ends, views)
    def test_can_be_resynced_after_its_end(
        self, seen: list[StreamEvent], missed: list[StreamEvent], end: StreamEvent, view: View
    ) -> None:
        made = stream(view=view)
        frames = [*play(made, seen), *made.resync([*seen, *missed, end])]
        check(frames, MODERN, [])
        assert made.done

    @given(scripts, ends)
    def test_every_frame_has_an_id_of_its_own(self, script: list[StreamEvent], end: StreamEvent) -> None:
        made, seen = stream(), [b"turn-1.0s"]
        made.start()
        for number, event in enumerate([*script, end], 1):
            frames = numbered(made.feed(event), b"turn-1", number - 1, number)
            seen += [frame.partition(b"\n")[0].removeprefix(b"id: ") for frame in frames]
            if frames:
                assert seen[-1] == b"turn-1.%d" % number
            decode(frames)
        assert len(set(seen)) == len(seen)

    @given(scripts, st.lists(st.builds(MessageChunk, texts), min_size=3), scripts, ends, st.integers(1, 8))
    def test_is_numbered_alike_however_it_is_read(
        self, script: list[StreamEvent], deltas: list[StreamEvent], rest: list[StreamEvent], end: StreamEvent, size: int
    ) -> None:
        """Deltas that are read together are made into one piece, by another way than one by one."""
        single, together = stream(), stream()
        events = [*script, *deltas, *rest, end]
        wanted = [
            frame
            for number, event in enumerate(events, 1)
            for frame in numbered(single.feed(event), b"turn-1", number - 1, number)
        ]
        kept = [event.text if type(event) is MessageChunk else event for event in events]
        made: list[bytes] = []
        for at in range(0, len(kept), size):
            some = kept[at : at + size]
            together.number(made, some, list(range(at + 1, at + 1 + len(some))), b"turn-1", at)
        assert b"".join(made) == b"".join(wanted)
        assert together.messages() == single.messages()


def by_id(messages: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {message["id"]: message for message in messages}
    assert len(found) == len(messages)
    return found


# -- one by one ----------------------------------------------------------------------------------------------------


def events_of(*events: StreamEvent, **options: Any) -> list[dict[str, Any]]:
    """What the events become, without RUN_STARTED."""
    made = stream(**options)
    return decode([frame for event in events for frame in made.feed(event)])


def short(events: list[dict[str, Any]]) -> list[str]:
    """Kinds with what matters: easy to read in a table."""
    keys = ("messageId", "toolCallId", "parentMessageId", "delta", "content")
    return [" ".join([event["type"], *(str(event[key]) for key in keys if key in event)]) for event in events]


CALL = ToolCall("terminal", call_id="c1", arguments='{"command": "ls"}', message_id="m1")
RESULT = ToolResult("terminal", call_id="c1", content="files", message_id="t1")

TABLE: list[tuple[str, list[StreamEvent], list[str]]] = [
    ("a start alone is nothing", [MessageStart("m1")], []),
    (
        "text opens lazily",
        [MessageStart("m1"), MessageChunk(""), MessageChunk("Hi"), MessageChunk(" you"), MessageStop()],
        [
            "TEXT_MESSAGE_START m1",
            "TEXT_MESSAGE_CONTENT m1 Hi",
            "TEXT_MESSAGE_CONTENT m1  you",
            "TEXT_MESSAGE_END m1",
        ],
    ),
    (
        "text without a start gets a minted id",
        [MessageChunk("Hi"), MessageStop(final=True)],
        ["TEXT_MESSAGE_START turn-1.m1", "TEXT_MESSAGE_CONTENT turn-1.m1 Hi", "TEXT_MESSAGE_END turn-1.m1"],
    ),
    (
        "commentary is a message of its own",
        [MessageStart("m1"), MessageChunk("a"), MessageStart("m2"), Commentary("b"), MessageChunk("c")],
        [
            "TEXT_MESSAGE_START m1",
            "TEXT_MESSAGE_CONTENT m1 a",
            "TEXT_MESSAGE_END m1",
            "TEXT_MESSAGE_START m2",
            "TEXT_MESSAGE_CONTENT m2 b",
            "TEXT_MESSAGE_END m2",
            "TEXT_MESSAGE_START turn-1.m1",
            "TEXT_MESSAGE_CONTENT turn-1.m1 c",
        ],
    ),
    (
        "reasoning closes before text opens",
        [ReasoningStart("r1"), ReasoningChunk("hm"), MessageStart("m1"), MessageChunk("Hi")],
        [
            "REASONING_START r1-span",
            "REASONING_MESSAGE_START r1",
            "REASONING_MESSAGE_CONTENT r1 hm",
            "REASONING_MESSAGE_END r1",
            "REASONING_END r1-span",
            "TEXT_MESSAGE_START m1",
            "TEXT_MESSAGE_CONTENT m1 Hi",
        ],
    ),
    (
        "late reasoning closes the text and is a stretch of its own",
        [MessageStart("m1"), MessageChunk("Hi"), ReasoningChunk("late"), ReasoningStop(), ReasoningStop()],
        [
            "TEXT_MESSAGE_START m1",
            "TEXT_MESSAGE_CONTENT m1 Hi",
            "TEXT_MESSAGE_END m1",
            "REASONING_START turn-1.r1-span",
            "REASONING_MESSAGE_START turn-1.r1",
            "REASONING_MESSAGE_CONTENT turn-1.r1 late",
            "REASONING_MESSAGE_END turn-1.r1",
            "REASONING_END turn-1.r1-span",
        ],
    ),
    (
        "a call closes the text and hangs on its message",
        [MessageStart("m1"), MessageChunk("Hi"), CALL, RESULT],
        [
            "TEXT_MESSAGE_START m1",
            "TEXT_MESSAGE_CONTENT m1 Hi",
            "TEXT_MESSAGE_END m1",
            "TOOL_CALL_START c1 m1",
            'TOOL_CALL_ARGS c1 {"command": "ls"}',
            "TOOL_CALL_END c1",
            "TOOL_CALL_RESULT t1 c1 files",
        ],
    ),
    (
        "text after a tool is a new message",
        [MessageStart("m1"), MessageChunk("a"), CALL, RESULT, MessageChunk("b")],
        [
            "TEXT_MESSAGE_START m1",
            "TEXT_MESSAGE_CONTENT m1 a",
            "TEXT_MESSAGE_END m1",
            "TOOL_CALL_START c1 m1",
            'TOOL_CALL_ARGS c1 {"command": "ls"}',
            "TOOL_CALL_END c1",
            "TOOL_CALL_RESULT t1 c1 files",
            "TEXT_MESSAGE_START turn-1.m1",
            "TEXT_MESSAGE_CONTENT turn-1.m1 b",
        ],
    ),
    (
        "parallel calls share their message",
        [ToolCall("a", call_id="c1", message_id="m9"), ToolCall("b", call_id="c2", message_id="m9")],
        [
            "TOOL_CALL_START c1 m9",
            "TOOL_CALL_ARGS c1 {}",
            "TOOL_CALL_END c1",
            "TOOL_CALL_START c2 m9",
            "TOOL_CALL_ARGS c2 {}",
            "TOOL_CALL_END c2",
        ],
    ),
    (
        "parallel calls without a message share a minted one, the next step's have another",
        [
            *(ToolCall("a", call_id="c1"), ToolCall("b", call_id="c2")),
            *(ToolResult("a", call_id="c1", content="x"), ToolResult("b", call_id="c2", content="y")),
            ToolCall("c", call_id="c3"),
        ],
        [
            *("TOOL_CALL_START c1 turn-1.m1", "TOOL_CALL_ARGS c1 {}", "TOOL_CALL_END c1"),
            *("TOOL_CALL_START c2 turn-1.m1", "TOOL_CALL_ARGS c2 {}", "TOOL_CALL_END c2"),
            *("TOOL_CALL_RESULT turn-1.t1 c1 x", "TOOL_CALL_RESULT turn-1.t2 c2 y"),
            *("TOOL_CALL_START c3 turn-1.m2", "TOOL_CALL_ARGS c3 {}", "TOOL_CALL_END c3"),
        ],
    ),
    (
        "Hermes's own tool events bring no id and no output",
        [
            ToolCallChunk("a", args={"x": 1}, index=1),
            ToolCallChunk("b", index=2),
            ToolCallFinished("b", index=2),
            ToolCallFinished("a", ok=False, index=1),
        ],
        [
            *("TOOL_CALL_START turn-1.c1 turn-1.m1", 'TOOL_CALL_ARGS turn-1.c1 {"x":1}', "TOOL_CALL_END turn-1.c1"),
            *("TOOL_CALL_START turn-1.c2 turn-1.m1", "TOOL_CALL_ARGS turn-1.c2 {}", "TOOL_CALL_END turn-1.c2"),
            *("TOOL_CALL_RESULT turn-1.t1 turn-1.c2 ", "TOOL_CALL_RESULT turn-1.t2 turn-1.c1 failed"),
        ],
    ),
    (
        "a call without an id keeps its arguments, its result its content",
        [ToolCall("a", arguments='{"x": 2}'), ToolResult("a", content="out")],
        [
            "TOOL_CALL_START turn-1.c1 turn-1.m1",
            'TOOL_CALL_ARGS turn-1.c1 {"x": 2}',
            "TOOL_CALL_END turn-1.c1",
            "TOOL_CALL_RESULT turn-1.t1 turn-1.c1 out",
        ],
    ),
    ("a result of an unknown call is nothing", [RESULT], []),
    (
        "a second result is nothing",
        [CALL, RESULT, ToolResult("terminal", call_id="c1", content="again")],
        [
            *("TOOL_CALL_START c1 m1", 'TOOL_CALL_ARGS c1 {"command": "ls"}', "TOOL_CALL_END c1"),
            "TOOL_CALL_RESULT t1 c1 files",
        ],
    ),
    (
        "a cut result says so",
        [CALL, ToolResult("terminal", call_id="c1", content="fil", message_id="t1", cut=2)],
        [
            *("TOOL_CALL_START c1 m1", 'TOOL_CALL_ARGS c1 {"command": "ls"}', "TOOL_CALL_END c1"),
            "TOOL_CALL_RESULT t1 c1 fil\n[cut: 2 more characters]",
        ],
    ),
]


@pytest.mark.parametrize(("events", "wanted"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(events: list[StreamEvent], wanted: list[str]) -> None:
    assert short(events_of(*events)) == wanted


def test_every_kind_of_event_is_translated_and_generated() -> None:
    kinds = {*get_args(StreamEvent), ToolCall, ToolResult}
    assert kinds <= set(_HANDLERS)
    assert kinds <= {value for value in vars(strategies).values() if isinstance(value, type)}


def test_the_start_echoes_the_ids_and_names_our_version() -> None:
    (event,) = decode(AguiStream("t ü", "r").start())
    assert event == {"type": "RUN_STARTED", "threadId": "t ü", "runId": "r", "protocolVersion": "1.0"}


def test_notices_are_custom_events_and_leave_the_text_open() -> None:
    events = events_of(
        MessageStart("m1"),
        MessageChunk("a"),
        GatewayNotice("restart", "Back soon", {"in": 5}),
        LongToolHint("terminal", 30.0),
        MessageChunk("b"),
    )
    assert [event["type"] for event in events[2:4]] == ["CUSTOM", "CUSTOM"]
    assert (events[2]["name"], events[2]["value"]) == (
        "hermes.notice",
        {"kind": "restart", "text": "Back soon", "extra": {"in": 5}},
    )
    assert (events[3]["name"], events[3]["value"]) == ("hermes.long_tool", {"tool": "terminal", "seconds": 30.0})
    assert short(events[4:]) == ["TEXT_MESSAGE_CONTENT m1 b"]


@pytest.mark.parametrize(
    ("outcome", "peer", "wanted"),
    [
        ("success", MODERN, {"type": "success"}),
        ("success", OLD, {"type": "success"}),
        ("cancelled", MODERN, {"type": "cancelled"}),
        ("cancelled", OLD, None),
    ],
)
def test_the_outcome(outcome: Outcome, peer: Peer, wanted: dict[str, Any] | None) -> None:
    (event,) = events_of(TurnFinished(outcome), peer=peer)
    assert event == {"type": "RUN_FINISHED", "threadId": "thread-1", "runId": "run-1"} | (
        {"outcome": wanted} if wanted else {}
    )


def test_a_failure_is_one_error_with_its_code() -> None:
    *closed, event = events_of(MessageChunk("a"), TurnFinished("failed", "provider_auth", "No."))
    assert closed[-1]["type"] == "TEXT_MESSAGE_END"
    assert event == {"type": "RUN_ERROR", "code": "provider_auth", "message": "No."}
    assert events_of(TurnFinished("failed"))[0]["message"] == "The turn failed."


def test_a_version_decides_the_peer() -> None:
    assert [peer_of(version) for version in ("1.0", "2.7", "?", "", None)] == [MODERN, MODERN, MODERN, OLD, OLD]


def test_calls_without_a_result_are_closed_at_the_end() -> None:
    events = events_of(CALL, TurnFinished())
    assert short(events[3:]) == [f"TOOL_CALL_RESULT turn-1.t1 c1 {NO_RESULT}", "RUN_FINISHED"]


class TestUsage:
    def test_is_summed_by_provider_and_model(self) -> None:
        end = events_of(
            Usage("p", "m", 10, 5, 2, 4, 1), Usage("p", "other", 1, 1), Usage("p", "m", 20, 7), TurnFinished()
        )[-1]
        assert end["usage"] == [
            {
                "provider": "p",
                "model": "m",
                "inputTokens": 30,
                "outputTokens": 12,
                "totalTokens": 42,
                "reasoningTokens": 2,
                "cachedInputTokens": 4,
                "cacheWriteInputTokens": 1,
            },
            {"provider": "p", "model": "other", "inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        ]

    def test_comes_with_an_error_too(self) -> None:
        assert events_of(Usage("p", "m", 10, 5), TurnFinished("failed"))[-1]["usage"][0]["totalTokens"] == 15

    def test_absent_is_not_zero(self) -> None:
        assert "usage" not in events_of(TurnFinished())[-1]
        assert events_of(Usage("p", "m", 3), TurnFinished())[-1]["usage"] == [
            {"provider": "p", "model": "m", "inputTokens": 3}
        ]

    def test_nonsense_is_left_out(self) -> None:
        end = events_of(Usage("p", "m", 3, -1, 9, 4, 2**60), TurnFinished())[-1]
        assert end["usage"] == [{"provider": "p", "model": "m", "inputTokens": 3, "reasoningTokens": 9}]


class TestRevised:
    def test_the_snapshot_restates_the_clients_messages(self) -> None:
        events = events_of(
            *(MessageStart("m1"), MessageChunk("void"), MessageStop()),
            *(MessageStart("m2"), MessageChunk("kept"), CALL, RESULT),
            *(MessageStart("m3"), MessageChunk("fin"), MessageRevised("m3", "final"), MessageRevised("m1")),
            TurnFinished(),
            base=BASE,
        )
        assert [event["type"] for event in events[-2:]] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
        assert events[-2]["messages"] == [
            *(message for message in BASE if message["role"] != "reasoning"),
            {"id": "m1", "role": "assistant", "toolCalls": [call]},  # its text is void, its call is not
            {"id": "turn-1.t1", "role": "tool", "toolCallId": "c1", "content": "files"},
            {"id": "m2", "role": "assistant", "content": "kept"},
            {"id": "m3", "role": "assistant", "content": "final"},
        ]

    def test_no_revision_no_snapshot(self) -> None:
        events = events_of(MessageStart("m1"), MessageChunk("a"), MessageRevised("other", "x"), TurnFinished())
        assert "MESSAGES_SNAPSHOT" not in [event["type"] for event in events]

    def test_it_comes_before_an_error_too(self) -> None:
        events = events_of(MessageStart("m1"), MessageChunk("a"), MessageRevised("m1"), TurnFinished("failed"))
        assert [event["type"] for event in events[-2:]] == ["MESSAGES_SNAPSHOT", "RUN_ERROR"]
        assert events[-2]["messages"] == []

    def test_a_tools_result_is_no_message_of_the_model(self) -> None:
        events = events_of(CALL, RESULT, MessageRevised("t1", "changed"), TurnFinished())
        assert "MESSAGES_SNAPSHOT" not in [event["type"] for event in events]


class TestView:
    SCRIPT = (
        ReasoningStart("r1"),
        ReasoningChunk("secret thought"),
        MessageStart("m1"),
        MessageChunk("a"),
        CALL,
        InnerToolCall("c1", "i1", "read_file", '{"path": "/secret"}'),
        InnerToolResult("c1", "i1", "secret inner"),
        ToolResult("terminal", call_id="c1", content="secret output", message_id="t1"),
        MessageStart("m2"),
        MessageChunk("b"),
        TurnFinished(),
    )

    def test_full(self) -> None:
        shown = json.dumps(events_of(*self.SCRIPT))
        assert all(word in shown for word in ("secret thought", "secret output", "secret inner", "/secret", "ls"))

    def test_names(self) -> None:
        events = events_of(*self.SCRIPT, view=View(tool_output="names"))
        shown = json.dumps(events)
        assert "terminal" in shown and "read_file" in shown
        assert not any(word in shown for word in ("secret output", "secret inner", "/secret", '"ls'))
        assert [e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT"] == [HIDDEN]
        assert [e["delta"] for e in events if e["type"] == "TOOL_CALL_ARGS"] == ["{}"]

    def test_off(self) -> None:
        events = events_of(*self.SCRIPT, view=View(tool_output="off"))
        assert not any(event["type"].startswith(("TOOL_", "ACTIVITY_")) for event in events)
        texts = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
        assert texts == ["m1", "m2"]

    def test_without_reasoning(self) -> None:
        events = events_of(*self.SCRIPT, view=View(reasoning="off"))
        assert not any(event["type"].startswith("REASONING_") for event in events)


class TestInnerCalls:
    def test_are_one_activity_of_their_call(self) -> None:
        events = events_of(
            CALL,
            InnerToolCall("c1", "i1", "read_file", '{"path": "a"}'),
            InnerToolCall("c1", "i2", "terminal"),
            InnerToolResult("c1", "i2", "boom", ok=False, duration=1.23456),
            InnerToolResult("c1", "i1", "text", cut=3),
            InnerToolResult("c1", "i9", "nobody's"),
            RESULT,
        )
        activity = [message for message in reduce(events) if message["role"] == "activity"]
        assert activity == [
            {
                "id": "c1-inner",
                "role": "activity",
                "activityType": "hermes.inner_tools",
                "content": {
                    "toolCallId": "c1",
                    "calls": [
                        {
                            "id": "i1",
                            "name": "read_file",
                            "arguments": '{"path": "a"}',
                            "status": "ok",
                            "seconds": 0.0,
                            "result": "text\n[cut: 3 more characters]",
                        },
                        {
                            "id": "i2",
                            "name": "terminal",
                            "arguments": "{}",
                            "status": "error",
                            "seconds": 1.235,
                            "result": "boom",
                        },
                    ],
                },
            }
        ]

    def test_a_repeated_id_does_not_shift_the_others(self) -> None:
        events = events_of(
            *(InnerToolCall("c1", name, "f") for name in ("i1", "i1", "i2")),
            InnerToolResult("c1", "i2", "two"),
        )
        (activity,) = reduce(events)
        assert [call.get("result") for call in activity["content"]["calls"]] == [None, None, "two"]


class TestIds:
    def test_the_clients_ids_are_never_taken(self) -> None:
        events = events_of(
            MessageStart("u1"),
            MessageChunk("a"),
            ToolCall("f", call_id="old-call", message_id="u1"),
            ToolResult("f", call_id="old-call", content="x", message_id="u1"),
            base=BASE,
        )
        assert short(events) == [
            "TEXT_MESSAGE_START turn-1.m1",
            "TEXT_MESSAGE_CONTENT turn-1.m1 a",
            "TEXT_MESSAGE_END turn-1.m1",
            "TOOL_CALL_START turn-1.c1 turn-1.m1",
            "TOOL_CALL_ARGS turn-1.c1 {}",
            "TOOL_CALL_END turn-1.c1",
            "TOOL_CALL_RESULT turn-1.t1 turn-1.c1 x",
        ]

    def test_ids_that_look_the_same_on_the_wire_stay_apart(self) -> None:
        events = events_of(
            *(MessageStart("\ud800"), MessageChunk("a"), MessageStart("\udfff"), MessageChunk("b"), TurnFinished())
        )
        started = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
        assert len(set(started)) == 2

    def test_minted_ids_never_meet_the_taps(self) -> None:
        """The tap mints `turn-1-m1` and the like; a text that brings no id must not take one of those first."""
        events = events_of(MessageChunk("a"), MessageStart("turn-1-m1"), MessageChunk("b"))
        started = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
        assert started == ["turn-1.m1", "turn-1-m1"]

    def test_an_event_is_given_no_id_of_the_form_of_those_that_are_minted(self) -> None:
        """Else it would have another one behind a resync, which mints a further id where reasoning goes on."""
        events = [ReasoningStart(""), ReasoningChunk("a"), Attachment("turn-1.r2", "f", "/f", "f")]
        whole, cut = (stream(view=View(reasoning="full")) for _ in range(2))
        play(whole, events)
        cut.resync(events[:1])
        for event in events[1:]:
            cut.feed(event)
        assert whole.messages() == cut.messages() != []


class TestText:
    @pytest.mark.parametrize("kind", [MessageChunk, ReasoningChunk])
    def test_a_character_that_two_deltas_share_arrives_whole(self, kind: type[MessageChunk]) -> None:
        events = events_of(kind("x\ud83d"), kind("\udc4by"), kind("\ud83d"), kind("z"), kind("\ud83d"), TurnFinished())
        deltas = [event["delta"] for event in events if event["type"].endswith("_CONTENT")]
        assert "".join(deltas) == "x👋y\ufffdz\ufffd"
        assert "" not in deltas

    @given(st.lists(texts, max_size=8))
    def test_deltas_concatenate_to_the_text(self, pieces: list[str]) -> None:
        events = events_of(*(MessageChunk(piece) for piece in pieces), TurnFinished())
        deltas = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
        whole = "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert "".join(deltas) == whole


async def test_a_merged_log_says_the_same_as_the_whole_one() -> None:
    """A reader that fell behind gets its resync from a log whose old deltas are merged."""
    log = EventLog(asyncio.get_running_loop(), limit_bytes=100_000)
    whole: list[StreamEvent] = [MessageStart("m1")]
    whole += [MessageChunk(f"word {number} ") for number in range(2000)]
    whole += [CALL, RESULT, MessageStart("m2"), MessageChunk("the end")]
    for event in whole:
        log.append(event)
    assert len(log.events()) < len(whole)
    undisturbed, made = stream(), stream()
    play(undisturbed, whole)
    frames = play(made, whole[:100])
    batch = log.take(100)
    assert batch.gap
    frames += made.resync(log.events())
    frames += made.feed(TurnFinished())
    check(frames, MODERN, [], allowed=("message-reopened",))
    undisturbed.feed(TurnFinished())
    assert told(reduce(decode(frames))) == undisturbed.messages()


def test_sealed_reasoning_that_a_reader_missed_is_not_told_without_it() -> None:
    made = stream()
    seen: list[StreamEvent] = [ReasoningStart("r-1"), ReasoningChunk("a"), ReasoningStop()]
    missed: list[StreamEvent] = [ReasoningStart("r-2"), ReasoningChunk("b"), ReasoningStop()]
    play(made, seen)
    made.resync([*seen, *missed])
    told_ = [frame for name in ("r-1", "r-2") for frame in made.feed(ReasoningSealed(name, "x"))]
    assert [event["entityId"] for event in decode(told_)] == ["r-1"]
