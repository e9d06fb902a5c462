"""Which peer gets which shape: the table, and that the translator keeps to it in both directions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from agui_adapter.events import AguiStream
from agui_adapter.peers import MODERN, OLD, OLDEST, UNDECLARED, Peer, peer_of, readable
from agui_adapter.stream import (
    Request,
    StateChanged,
    StreamEvent,
    Subagent,
    SubagentFinished,
    SubagentStarted,
    ToolCall,
    TurnFinished,
    TurnParked,
)
from tests.reducer import decode

CLIENT = Request("call", "client_tool", call_id="c1")
QUESTION = Request("q1", "clarify", "Which color?", choices=("red", "blue"), free_text=True)
APPROVAL = Request("a1", "approval", "Allow this?", choices=("once", "deny"), detail={"command": "rm x"})
CONFIRM = Request("k1", "confirm", "Reset?", choices=("once", "always", "cancel"), detail={"text": "It is gone then."})


def events_of(peer: Peer, *events: StreamEvent, base: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    stream = AguiStream("t", "r", prefix="turn", peer=peer, base=base or [])
    return decode([frame for event in events for frame in stream.feed(event)])


@pytest.mark.parametrize(
    ("version", "undeclared", "wanted"),
    [
        *[(version, "0.0.53", MODERN) for version in ("1.0", "1.1", "2.7", "10.0", "?", "next")],
        *[(version, "0.0.59", OLD) for version in (None, "", "0.0.59", "0.9", "0.1")],
        *[(version, "0.0.53", OLDEST) for version in (None, "", "0.0.53")],
        (None, "0.0.45", UNDECLARED["0.0.45"]),
    ],
)
def test_a_version_decides_the_peer(version: str | None, undeclared: str, wanted: Peer) -> None:
    assert peer_of(version, undeclared) == wanted


def test_by_default_an_undeclared_client_is_the_one_in_wide_use() -> None:
    assert peer_of(None) is OLD and UNDECLARED["0.0.59"] is OLD


SHAPES = (
    "cancelled_outcome",
    "pending_tool_calls",
    "part_results",
    "file_sources",
    "subagents",
    "bare_deltas",
    "interrupts",
)


def test_the_table() -> None:
    table = {name: [getattr(peer, name) for peer in (MODERN, OLD, OLDEST)] for name in SHAPES}
    assert table == {
        "cancelled_outcome": [True, False, False],
        "pending_tool_calls": [True, False, False],
        "part_results": [True, False, False],
        "file_sources": [True, False, False],
        "subagents": [True, False, False],
        "bare_deltas": [True, False, False],
        "interrupts": [True, True, False],
    }


@pytest.mark.parametrize("peer", [MODERN, OLD, OLDEST])
class TestEachShape:
    def test_cancelled(self, peer: Peer) -> None:
        (end,) = events_of(peer, TurnFinished("cancelled"))
        assert (end.get("outcome") == {"type": "cancelled"}) is peer.cancelled_outcome
        assert peer.cancelled_outcome or "outcome" not in end

    def test_pending_calls(self, peer: Peer) -> None:
        call = ToolCall("pick", call_id="c1", message_id="m1", client=True)
        end = events_of(peer, call, TurnParked((CLIENT,)))[-1]
        assert (end["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}) is peer.pending_tool_calls
        assert peer.pending_tool_calls or end["outcome"] == {"type": "success"}

    def test_subagents(self, peer: Peer) -> None:
        one = Subagent("s1", "subagent", "goal")
        events = events_of(peer, SubagentStarted(one), SubagentFinished(one, "done"), TurnFinished())
        announced = [event["type"] for event in events if event["type"].startswith("SUBAGENT")]
        assert announced == (["SUBAGENT_STARTED", "SUBAGENT_FINISHED"] if peer.subagents else [])
        assert [event["type"] for event in events if event["type"].startswith("ACTIVITY")]

    def test_state(self, peer: Peer) -> None:
        """Each run of an old peer begins its changes with the whole document: it is all that such a run is kept as."""
        documents: list[dict[str, Any]] = [{"a": {"b": n}} for n in range(3)]
        stream = AguiStream("t", "r", prefix="turn", peer=peer, state=documents[0])
        events = [
            StateChanged(after, ({"op": "replace", "path": "/a/b", "value": after["a"]["b"]},), before)
            for before, after in pairwise(documents)
        ]
        told = decode([frame for event in events for frame in stream.feed(event)])
        assert [event["type"] for event in told] == [
            "STATE_DELTA" if peer.bare_deltas else "STATE_SNAPSHOT",
            "STATE_DELTA",
        ]
        assert peer.bare_deltas or told[0]["snapshot"] == documents[1]

    def test_questions(self, peer: Peer) -> None:
        events = events_of(peer, TurnParked((QUESTION,)))
        assert events[-1]["outcome"]["type"] == "interrupt"
        words = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
        custom = [event["value"] for event in events if event["type"] == "CUSTOM"]
        assert bool(words) is bool(custom) is not peer.interrupts
        assert peer.interrupts or custom == events[-1]["outcome"]["interrupts"]

    def test_parts(self, peer: Peer) -> None:
        text = {"type": "text", "text": "seen"}
        image = {"type": "image", "source": {"type": "data", "value": "eA==", "mimeType": "image/png"}}
        handle = {"type": "document", "source": {"type": "file", "value": "file-1"}}
        base = [
            {"id": "u1", "role": "user", "content": [text, image, handle]},
            {"id": "u2", "role": "user", "content": [handle]},
            {"id": "a1", "role": "assistant", "content": "x"},
            {"id": "t1", "role": "tool", "toolCallId": "c", "content": [text, image, text]},
        ]
        stream = AguiStream("t", "r", prefix="turn", peer=peer, base=base)
        (told,) = decode(stream.snapshot())
        contents = [message["content"] for message in told["messages"]]
        if peer is MODERN:
            assert contents == [message["content"] for message in base]
        else:
            assert contents == [[text, image], "", "x", "seen\nseen"]
        assert readable(stream.messages(), MODERN) == base


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        (QUESTION, ["Which color?", "- red", "- blue", "next message"]),
        (APPROVAL, ["Allow this?", "rm x", "/approve, /deny"]),
        (CONFIRM, ["Reset?", "It is gone then.", "/approve, /always or /cancel"]),
    ],
)
def test_a_question_in_words_says_what_may_be_typed(request_: Request, parts: list[str]) -> None:
    events = events_of(OLDEST, TurnParked((request_,)))
    (words,) = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert [part for part in parts if part not in words] == []


def test_a_call_that_only_the_client_runs_is_not_asked_in_words() -> None:
    events = events_of(OLDEST, ToolCall("pick", call_id="c1", message_id="m1", client=True), TurnParked((CLIENT,)))
    assert not [event for event in events if event["type"] in ("TEXT_MESSAGE_START", "CUSTOM")]
