"""Hypothesis strategies: any sequence of StreamEvents, with ids and texts as hostile as they come.

Knows the vocabulary (`agui_adapter.stream`) and no wire. `PREFIX` and `CLIENT_IDS` name the ids that a translator must
not collide with: those it mints itself and those that the client brought.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agui_adapter.stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    InnerToolCall,
    InnerToolResult,
    LongTool,
    LongToolHint,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    PlanChanged,
    ReasoningChunk,
    ReasoningSealed,
    ReasoningStart,
    ReasoningStop,
    Request,
    RequestClosed,
    RequestOpened,
    StateChanged,
    StepStarted,
    StreamEvent,
    Subagent,
    SubagentFailed,
    SubagentFinished,
    SubagentProgress,
    SubagentStarted,
    ToolCall,
    ToolCallChunk,
    ToolCallFinished,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)

PREFIX = "turn-1"
BASE: list[dict[str, Any]] = [
    {"id": "u1", "role": "user", "content": "first"},
    {
        "id": "a1",
        "role": "assistant",
        "content": "calling",
        "toolCalls": [{"id": "old-call", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"id": "t1", "role": "tool", "toolCallId": "old-call", "content": "done"},
    {"id": "r1", "role": "reasoning", "content": "because"},
    {"id": "u2", "role": "user", "content": [{"type": "text", "text": "again"}]},
]

ids = st.sampled_from(
    [
        *("", "a", "b", "c", "d", "a-inner", "a-span", "\x00", " ", "x" * 300),
        *("\ud800", "\udfff", "\ufffd"),  # all three look the same on the wire
        *("u1", "a1", "t1", "r1", "u2", "old-call", "old-call-inner"),
        *(f"{PREFIX}{mark}{letter}{number}" for mark in ".-" for letter in "mrcta" for number in (1, 2)),
    ]
)
plain_ids = st.sampled_from(["m1", "m2", "m3", "c1", "c2", "c3"])
"""Ids as the tap makes them: enough of them to meet often."""

_alphabet = st.characters(codec=None, exclude_categories=())
texts = st.one_of(
    st.sampled_from(
        [
            *("", " ", "\n\n", "Hello", "\r\n", "data: x\n\n", "\u2028\u2029\x85", "\x00\x1b[31m", '"\\', "\ufeff"),
            *("👋", "\ud83d", "\udc4b", "x\ud83d", "\udc4bx", "\ud83d\ud83d", "é"),
        ]
    ),
    st.text(_alphabet, max_size=12),
)
names = st.one_of(st.sampled_from(["terminal", "read_file", "", "made up\n"]), texts)
seconds = st.one_of(st.floats(0, 1e6), st.sampled_from([float("nan"), float("inf"), -1.0]))
indexes = st.integers(0, 3)
counts = st.one_of(st.none(), st.integers(0, 1000), st.sampled_from([-1, 0, 2**53, 2**70]))

_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), texts, st.sampled_from([2**53, 2**64, b"x", object, {1, 2}])
)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(st.one_of(texts, st.integers()), _values, max_size=3)


_json_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
keys = st.one_of(
    st.sampled_from(["a", "b", "/", "~", "~1", "~0", "a/b~c", "", " ", "0", "1", "-", "é", "hermes", "constructor"]),
    st.text(st.characters(codec="utf-8"), max_size=4),
)
json_values = st.recursive(
    _json_leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)
"""Any JSON, with keys that a pointer has to escape."""
plans = st.lists(
    st.fixed_dictionaries({"id": texts, "content": texts, "status": st.sampled_from(["pending", "completed"])}),
    max_size=4,
)


def _requests(some_ids: st.SearchStrategy[str]) -> st.SearchStrategy[Request]:
    return st.builds(
        Request,
        id=some_ids,
        kind=st.sampled_from(["approval", "clarify", "confirm", "client_tool"]),
        message=texts,
        call_id=some_ids,
        choices=st.lists(texts, max_size=3).map(tuple),
        free_text=st.booleans(),
        expires_at=st.sampled_from([0.0, 1.0, 2e9, 1e300, float("nan")]),
        detail=objects,
    )


def _subagents(some_ids: st.SearchStrategy[str]) -> st.SearchStrategy[Subagent]:
    """With parents that were announced, that were not, that have ended, or that look like the subagent itself."""
    return st.recursive(
        st.builds(Subagent, some_ids, names, texts, st.none(), some_ids),
        lambda parents: st.builds(Subagent, some_ids, names, texts, parents, some_ids),
        max_leaves=3,
    )


_steps = st.lists(
    st.one_of(
        st.fixed_dictionaries({"kind": st.just("tool"), "tool": names, "text": texts}),
        st.fixed_dictionaries({"kind": st.sampled_from(["text", "refused"]), "text": texts}),
    ),
    max_size=4,
).map(tuple)


def _events(some_ids: st.SearchStrategy[str]) -> st.SearchStrategy[StreamEvent]:
    """Every kind but the two that end a run."""
    return st.one_of(
        st.builds(MessageStart, some_ids),
        st.builds(MessageChunk, texts),
        st.builds(MessageChunk, texts),
        st.builds(MessageStop, st.booleans()),
        st.builds(
            Attachment,
            message_id=some_ids,
            file_id=texts,
            url=texts,
            name=texts,
            mime=texts,
            size=st.integers(0, 2**60),
            kind=st.sampled_from(["image", "audio", "video", "document"]),
            caption=texts,
        ),
        st.builds(Commentary, texts),
        st.builds(ReasoningStart, some_ids),
        st.builds(ReasoningChunk, texts),
        st.just(ReasoningStop()),
        st.builds(ToolCallChunk, names, preview=st.none(), args=st.one_of(st.none(), objects), index=indexes),
        st.builds(ToolCallFinished, names, duration=seconds, ok=st.booleans(), index=indexes),
        st.builds(
            ToolCall,
            tool_name=names,
            index=indexes,
            call_id=some_ids,
            arguments=st.one_of(st.sampled_from(["", "{}", '{"a": 12345678901234567890}', "{broken"]), texts),
            message_id=some_ids,
            client=st.booleans(),
        ),
        st.builds(
            ToolResult,
            tool_name=names,
            duration=seconds,
            ok=st.booleans(),
            index=indexes,
            call_id=some_ids,
            content=texts,
            message_id=some_ids,
            status=st.sampled_from(["ok", "error", "blocked", "skipped", "cancelled"]),
            cut=st.sampled_from([0, 0, 7]),
            client=st.booleans(),
        ),
        st.builds(InnerToolCall, some_ids, some_ids, names, texts),
        st.builds(InnerToolResult, some_ids, some_ids, texts, st.booleans(), seconds, st.sampled_from([0, 7])),
        st.builds(LongToolHint, names, seconds),
        st.builds(LongTool, names, seconds, some_ids),
        st.builds(ReasoningSealed, some_ids, texts),
        st.builds(StepStarted, st.integers(1, 3)),
        st.builds(SubagentStarted, _subagents(some_ids)),
        st.builds(SubagentProgress, _subagents(some_ids), _steps, indexes),
        st.builds(SubagentFinished, _subagents(some_ids), texts, seconds),
        st.builds(SubagentFailed, _subagents(some_ids), texts, names, seconds),
        st.builds(GatewayNotice, names, texts, objects),
        # What a user said meanwhile, told by the tap in the middle of a turn.
        st.builds(
            lambda message_id, text: GatewayNotice("further_turn", "", {"messageId": message_id, "text": text}),
            some_ids,
            texts,
        ),
        st.builds(Usage, names, names, counts, counts, counts, counts, counts),
        st.builds(MessageRevised, some_ids, texts),
        st.builds(StateChanged, json_values, dropped=st.booleans()),
        st.builds(PlanChanged, some_ids, plans.map(tuple)),
        st.builds(RequestOpened, _requests(some_ids), st.booleans()),
        st.builds(RequestClosed, some_ids, st.sampled_from(["answered", "expired", "cancelled"]), texts),
    )


ends: st.SearchStrategy[StreamEvent] = st.one_of(
    st.builds(TurnFinished, st.sampled_from(["success", "cancelled", "failed"]), texts, texts),
    st.builds(TurnParked, st.lists(_requests(ids), min_size=1, max_size=3).map(tuple)),
)
scripts = st.one_of(st.lists(_events(ids), max_size=30), st.lists(_events(plain_ids), max_size=30))
"""A turn without its end."""
