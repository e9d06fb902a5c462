"""Rows as messages, what a run's messages ask for, transcripts, and which message is which row: all pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.history import (
    Fact,
    Message,
    Row,
    Sight,
    Told,
    as_json,
    from_json,
    messages_of,
    seen_by,
    visible,
    without_reasoning,
)
from agui_adapter.pairing import Streamed, pair
from agui_adapter.reconcile import Plan, known_beginning, plan, snapshot_of, transcript

# --- makers


def call(call_id: str, name: str = "terminal", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def row(number: int, role: str, content: str = "", *calls: dict[str, Any], **more: Any) -> Row:
    return Row(number, more.pop("session_id", "s"), role, content, calls, **{"timestamp": float(number)} | more)


def user(message_id: str, content: Any = "") -> Message:
    return {"id": message_id, "role": "user", "content": content or message_id}


def said(message_id: str, content: str = "", *calls: dict[str, Any]) -> Message:
    message: Message = {"id": message_id, "role": "assistant"}
    if content:
        message["content"] = content
    if calls:
        message["toolCalls"] = list(calls)
    return message


def result(message_id: str, call_id: str, content: str = "out") -> Message:
    return {"id": message_id, "role": "tool", "toolCallId": call_id, "content": content}


def shown(rows: Sequence[Row]) -> list[int]:
    return [one.id for one in visible(rows)]


# --- visible


def test_without_compaction_every_row_is_seen() -> None:
    rows = [row(1, "user", "hi"), row(2, "assistant", "hi"), row(3, "user", "hi"), row(4, "assistant", "hi")]
    assert shown(rows) == [1, 2, 3, 4]
    assert [one.live for one in visible(rows)] == [("s", number) for number in (1, 2, 3, 4)]


def test_rows_of_one_time_are_no_copies_of_each_other() -> None:
    """An import gives all its rows the same time."""
    rows = [row(number, "user", "continue", timestamp=7.0) for number in (1, 2, 3)]
    assert shown(rows) == [1, 2, 3]


def test_a_rewound_row_is_gone_and_so_are_words_of_hermes() -> None:
    rows = [row(1, "user", "a"), row(2, "user", "[System: go on]", aside=True), row(3, "user", "b", taken_back=True)]
    assert shown(rows) == [1]


def _conversation(turns: int = 6) -> list[Row]:
    """User and assistant by turns; every second user says the same."""
    rows = []
    for turn in range(turns):
        rows.append(row(2 * turn + 1, "user", "continue" if turn % 2 else f"question {turn}", archived=True))
        rows.append(row(2 * turn + 2, "assistant", f"answer {turn}", archived=True))
    return rows


def _compacted(old: Sequence[Row], *, head: int, tail: int, first_id: int, kept_times: bool, at: float) -> list[Row]:
    """What in-place compaction writes: copies of the first few, a summary, copies of the newest."""
    batch = [*old[:head], None, *old[len(old) - tail :]]
    made = []
    for number, one in enumerate(batch, first_id):
        if one is None:
            made.append(row(number, "assistant", "", summary=True, timestamp=at))
        else:
            time = one.timestamp if kept_times else at + 1e-6 * (number - first_id)
            made.append(row(number, one.role, one.content, *one.calls, call_id=one.call_id, timestamp=time))
    return made


@pytest.mark.parametrize("kept_times", [True, False])
@pytest.mark.parametrize("head", [0, 1, 3])
@pytest.mark.parametrize("tail", [1, 4, 5])
def test_in_place_compaction_shows_everything_once(kept_times: bool, head: int, tail: int) -> None:
    old = _conversation()
    batch = _compacted(old, head=head, tail=tail, first_id=100, kept_times=kept_times, at=100.0)
    new = [row(200, "user", "continue"), row(201, "assistant", "answer 0")]  # says what others said before
    seen = visible([*old, *batch, *new])
    assert [one.id for one in seen] == [*(one.id for one in old), 200, 201]
    live = {one.id: one.live[1] for one in seen}
    assert [live[one.id] for one in old[len(old) - tail :]] == [one.id for one in batch[head + 1 :]]
    assert [live[one.id] for one in old[:head]] == [one.id for one in batch[:head]]
    assert all(live[one.id] == 0 for one in old[head : len(old) - tail])
    assert (live[200], live[201]) == (200, 201)


@pytest.mark.parametrize("kept_times", [True, False])
def test_compaction_twice(kept_times: bool) -> None:
    old = _conversation()
    first = _compacted(old, head=2, tail=4, first_id=100, kept_times=kept_times, at=100.0)
    archived = [row(one.id, one.role, one.content, archived=True, summary=one.summary, timestamp=one.timestamp)
                for one in first]  # fmt: skip
    between = [row(200, "user", "continue", archived=True), row(201, "assistant", "between", archived=True)]
    live = [one for one in (*archived, *between) if not one.summary]
    second = _compacted(live, head=2, tail=3, first_id=300, kept_times=kept_times, at=300.0)
    rows = [*old, *archived, *between, *second, row(400, "user", "continue"), row(401, "assistant", "after")]
    assert shown(rows) == [*(one.id for one in old), 200, 201, 400, 401]


def test_compaction_by_rotation_shows_everything_once() -> None:
    old = [row(n, one.role, one.content) for n, one in enumerate(_conversation(), 1)]
    batch = [row(100 + n, one.role, one.content, session_id="t", timestamp=100.0 + n) for n, one in enumerate(old[:3])]
    batch += [row(110, "user", "", session_id="t", summary=True)]
    batch += [row(120 + n, one.role, one.content, session_id="t", timestamp=120.0 + n) for n, one in enumerate(old[8:])]
    new = [row(200, "user", "continue", session_id="t"), row(201, "assistant", "answer 5", session_id="t")]
    assert shown([*old, *batch, *new]) == [*(one.id for one in old), 200, 201]


def test_the_message_that_a_compaction_came_before_is_seen_although_its_batch_wrote_it() -> None:
    """Compaction at a turn's start writes the new user message as the last of its batch, with no original."""
    old = _conversation()
    batch = _compacted(old, head=1, tail=2, first_id=100, kept_times=False, at=100.0)
    rows = [*old, *batch, row(110, "user", "the new one", timestamp=100.0), row(111, "assistant", "yes")]
    assert shown(rows) == [*(one.id for one in old), 110, 111]


def test_a_summary_that_was_merged_into_a_message_hides_only_itself() -> None:
    old = _conversation()
    merged = row(100, "user", "continue", summary=True, timestamp=100.0)  # its own content, without the summary
    rows = [*old, merged, row(101, "assistant", old[-1].content, timestamp=100.0), row(102, "user", "more")]
    assert shown(rows) == [*(one.id for one in old), 102]
    fresh = row(100, "user", "never said before", summary=True, timestamp=100.0)
    assert shown([*old, fresh, row(101, "assistant", "yes")])[-2:] == [100, 101]


def test_copies_of_tool_steps_are_known_although_their_results_were_shortened() -> None:
    old = [
        row(1, "user", "go", archived=True),
        row(2, "assistant", "", call("c1", arguments='{"long": "…"}'), archived=True),
        row(3, "tool", "a very long result", call_id="c1", archived=True),
        row(4, "assistant", "done", archived=True),
    ]
    copies = [
        row(11, "assistant", "", call("c1"), timestamp=10.0),
        row(12, "tool", "[shortened]", call_id="c1", timestamp=10.0),
        row(13, "assistant", "done", timestamp=10.0),
    ]
    seen = visible([*old, row(10, "user", "", summary=True), *copies])
    assert [one.id for one in seen] == [1, 2, 3, 4]
    assert seen[2].content == "a very long result"
    assert [one.live[1] for one in seen] == [0, 11, 12, 13]


def test_a_rewind_behind_a_compaction_takes_the_originals_with_the_copies() -> None:
    old = _conversation()
    batch = _compacted(old, head=0, tail=4, first_id=100, kept_times=False, at=100.0)
    back = [row(one.id, one.role, one.content, timestamp=one.timestamp, taken_back=True) for one in batch[-2:]]
    rows = [*old, *batch[:-2], *back, row(200, "user", "again"), row(201, "assistant", "yes")]
    assert shown(rows) == [*(one.id for one in old[:-2]), 200, 201]


ROWS = st.lists(
    st.builds(
        lambda role, content, calls, call_id, flags, session, time: (
            role,
            content,
            calls,
            call_id,
            flags,
            session,
            time,
        ),
        st.sampled_from(["user", "assistant", "tool"]),
        st.sampled_from(["", "a", "b", "continue"]),
        st.lists(st.sampled_from(["c1", "c2", ""]), max_size=2),
        st.sampled_from(["c1", "c2", ""]),
        st.sampled_from(["", "", "archived", "summary", "taken_back", "aside"]),
        st.sampled_from(["s", "s", "t"]),
        st.sampled_from([0.0, 1.0, 2.0]),
    ),
    max_size=25,
)


def _rows(drawn: list[Any]) -> list[Row]:
    made = []
    for number, (role, content, calls, call_id, flag, session, time) in enumerate(
        sorted(drawn, key=lambda one: one[5])
    ):
        more: dict[str, Any] = {flag: True} if flag else {}
        own = [call(one) for one in calls] if role == "assistant" else []
        made.append(row(number + 1, role, content, *own, call_id=call_id, session_id=session, timestamp=time, **more))
    return made


@given(ROWS)
def test_visible_never_raises_adds_or_reorders(drawn: list[Any]) -> None:
    rows = _rows(drawn)
    seen = shown(rows)
    assert seen == sorted(set(seen))
    gone = {one.id for one in rows if one.taken_back or one.aside or (one.summary and not one.content)}
    assert not gone & set(seen)


@given(ROWS, st.dictionaries(st.integers(1, 25), st.sampled_from(["m1", "m2", "x"])))
def test_messages_are_always_such_as_a_client_takes(drawn: list[Any], ids: dict[int, str]) -> None:
    made = messages_of(visible(_rows(drawn)), Told(ids=ids))
    calls = [one["id"] for message in made for one in message.get("toolCalls") or ()]
    answered = [message["toolCallId"] for message in made if message["role"] == "tool"]
    assert len(calls) == len(set(calls)), "a call id comes twice"
    assert sorted(calls) == sorted(answered), "a call without its result, or a result without its call"
    for message in made:
        assert None not in message.values()
        if message["role"] == "assistant":
            assert message.get("content") or message.get("toolCalls")


# --- messages_of


def test_ids_inputs_reasoning_and_pairs() -> None:
    rows = [
        row(1, "user", "one\n\ntwo"),
        row(2, "assistant", "I look.", call("c1"), call("c2"), reasoning="hm"),
        row(3, "tool", "r1", call_id="c1"),
        row(4, "tool", "r2", call_id="c2"),
        row(5, "assistant", "Done.", reasoning="well"),
    ]
    told = Told(
        ids={1: "u1", 2: "m1", 3: "t1", 4: "t2", 5: "m2"},
        inputs={1: [user("u1", "one"), user("u2", "two")]},
        facts={2: Fact(reasoning="r1"), 5: Fact(reasoning="r2")},
    )
    assert messages_of(rows, told) == [
        user("u1", "one"),
        user("u2", "two"),
        {"id": "r1", "role": "reasoning", "content": "hm"},
        said("m1", "I look.", call("c1"), call("c2")),
        result("t1", "c1", "r1"),
        result("t2", "c2", "r2"),
        {"id": "r2", "role": "reasoning", "content": "well"},
        said("m2", "Done."),
    ]


def test_rows_that_nobody_remembers_get_ids_of_their_own() -> None:
    rows = [row(7, "user", "hi"), row(8, "assistant", "ho", reasoning="hm")]
    assert messages_of(rows, Told()) == [
        user("row-7", "hi"),
        {"id": "row-8-reasoning", "role": "reasoning", "content": "hm"},
        said("row-8", "ho"),
    ]


def test_reasoning_that_was_never_streamed_is_not_shown_later() -> None:
    assert messages_of([row(1, "assistant", "ho", reasoning="hm")], Told(ids={1: "m1"})) == [said("m1", "ho")]


def test_a_call_without_a_result_gets_one_and_a_stray_result_goes() -> None:
    rows = [
        row(1, "assistant", "", call("c1")),
        row(2, "tool", "stray", call_id="c9"),
        row(3, "user", "next"),
        row(4, "tool", "too late", call_id="c1"),
    ]
    assert messages_of(rows, Told()) == [
        said("row-1", "", call("c1")),
        result("c1-missing", "c1", "[no result]"),
        user("row-3", "next"),
    ]


def test_ids_that_a_provider_repeats_or_leaves_out() -> None:
    rows = [
        row(1, "assistant", "", call("same"), call("same")),
        row(2, "tool", "first", call_id="same"),
        row(3, "tool", "second", call_id="same"),
        row(4, "assistant", "", call("same")),
        row(5, "tool", "third", call_id="same"),
        row(6, "assistant", "", call("made-by-hermes")),
        row(7, "tool", "fourth", call_id=""),
    ]
    told = Told(facts={1: Fact(calls=("same", "x")), 4: Fact(calls=("y",)), 6: Fact(calls=("z",))})
    made = messages_of(rows, told)
    results = {m["toolCallId"]: m["content"] for m in made if m["role"] == "tool"}
    assert results == {"same": "first", "x": "second", "y": "third", "z": "fourth"}
    unknown = messages_of(rows, Told())
    results = {m["toolCallId"]: m["content"] for m in unknown if m["role"] == "tool"}
    assert list(results.values()) == ["first", "second", "third", "fourth"]


def test_a_cut_answer_is_one_message_and_what_was_said_wins() -> None:
    rows = [
        row(1, "assistant", "Half of an"),
        row(2, "user", "[System: go on]", aside=True),
        row(3, "assistant", "answer."),
    ]
    ids = {1: "m1", 3: "m1"}
    plain = messages_of(visible(rows), Told(ids=ids))
    assert plain == [said("m1", "Half of ananswer.")]
    facts = {1: Fact(text="Half of an answer."), 3: Fact(text="")}
    assert messages_of(visible(rows), Told(ids=ids, facts=facts)) == [said("m1", "Half of an answer.")]


@pytest.mark.parametrize(("outcome", "is_shown"), [("success", True), ("cancelled", False), ("failed", False)])
def test_hermes_own_words_for_a_stopped_turn_are_no_answer(outcome: str, is_shown: bool) -> None:
    made = messages_of([row(1, "assistant", "Operation interrupted.")], Told(outcomes={1: outcome}))
    assert bool(made) is is_shown
    kept = messages_of([row(1, "assistant", "A part")], Told(ids={1: "m1"}, outcomes={1: outcome}))
    assert kept == [said("m1", "A part")]


# --- what a client may see

SEEN = [
    {"id": "r1", "role": "reasoning", "content": "hm"},
    said("m1", "I look.", call("c1", arguments='{"a": 1}'), call("client", arguments='{"b": 2}')),
    result("t1", "c1", "secret"),
    result("t2", "client", "mine"),
    said("m2", "", call("c2", arguments='{"a": 1}')),
    result("t3", "c2", "secret"),
    said("m3", "Done."),
]


def test_sight_full_shows_all() -> None:
    assert seen_by(SEEN, Sight(), {"client"}) == SEEN


def test_sight_names_hides_arguments_and_results_but_the_clients_own() -> None:
    made = seen_by(SEEN, Sight(reasoning="off", tool_output="names"), {"client"})
    assert "secret" not in json.dumps(made) and '"a"' not in json.dumps(made)
    assert [one["role"] for one in made] == ["assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert made[0]["toolCalls"][1] == call("client", arguments='{"b": 2}')
    assert made[2]["content"] == "mine"


def test_sight_off_hides_calls_and_what_is_empty_then() -> None:
    made = seen_by(SEEN, Sight(tool_output="off"), {"client"})
    assert [one["id"] for one in made] == ["r1", "m1", "t2", "m3"]
    assert [one["id"] for one in made[1]["toolCalls"]] == ["client"]


def test_sight_summary_shows_the_beginning_of_reasoning() -> None:
    thought = {"id": "r1", "role": "reasoning", "content": "**Looking**\n\nsecret"}
    empty = {"id": "r2", "role": "reasoning", "content": " "}
    made = seen_by([thought, empty, said("m1", "x")], Sight(reasoning="summary"), set())
    assert [one["content"] for one in made] == ["**Looking**", "x"]


def test_long_results_are_cut_as_in_the_stream() -> None:
    made = seen_by([said("m1", "", call("c1")), result("t1", "c1", "x" * 300)], Sight(max_chars=200), set())
    assert made[1]["content"] == "x" * 200 + "\n[cut: 100 more characters]"


@pytest.mark.parametrize(
    "fact",
    [Fact(), Fact(text=""), Fact(text="a"), Fact(calls=["x", "y"]), Fact(client=["c"], reasoning="r", text="täxt")],
)
def test_facts_survive_the_store(fact: Fact) -> None:
    assert from_json(as_json(fact)) == fact or as_json(fact) == ""


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", '{"unknown": 1}', "7"])
def test_an_unreadable_fact_says_nothing(broken: str) -> None:
    assert from_json(broken) == Fact()


# --- plan

HISTORY = [
    user("u1"),
    said("a1", "A1"),
    user("u2"),
    {"id": "r2", "role": "reasoning", "content": "hm"},
    said("a2", "A2", call("c")),
    result("t2", "c"),
    said("b2", "B2"),
    user("u3"),
    said("a3", "A3"),
]
KNOWN = {message["id"]: message for message in HISTORY}


def _client(ids: str) -> list[Message]:
    """Known ids as in the history; `x…` are a client's own: `xu` from a user, `xa` an assistant's, `xs` a system's."""
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return [KNOWN.get(one) or {"id": one, "role": roles[one[1]], "content": one} for one in ids.split()]


@pytest.mark.parametrize(
    ("client", "new", "expected"),
    [
        # the usual: all there is, and a new message
        ("u1 a1 u2 r2 a2 t2 b2 u3 a3 xu", "xu", Plan()),
        ("u1 a1 u2 a2 t2 b2 u3 a3 xu", "xu", Plan()),  # a client may drop reasoning
        ("xs u1 a1 u2 a2 t2 b2 u3 a3 xu", "xu", Plan()),
        # only its newest message
        ("xu", "xu", Plan(snapshot=True)),
        ("xs xu", "xu", Plan(snapshot=True)),
        # knows less of the past, but its end
        ("u3 a3 xu", "xu", Plan(snapshot=True)),
        ("u1 a1 u3 a3 xu", "xu", Plan(snapshot=True)),
        # has not the end of the last turn
        ("u1 a1 u2 a2 t2 b2 u3 xu", "xu", Plan(snapshot=True)),
        # regenerate: the same message again
        ("u1 a1 u2 a2 t2 b2 u3", "u3", Plan("rewind", "u3")),
        ("u1 a1 u2", "u2", Plan("rewind", "u2")),
        ("u1", "u1", Plan("rewind", "u1")),
        ("u3", "u3", Plan("rewind", "u3", snapshot=True)),  # and it sends no history at all
        # edited: another message in its place
        ("u1 a1 u2 a2 t2 b2 xu", "xu", Plan("rewind", "u3")),
        ("u1 a1 xu", "xu", Plan("rewind", "u2")),
        ("u1 xu", "xu", Plan("rewind", "u2", snapshot=True)),
        # holds what nobody knows
        ("u1 a1 u2 a2 t2 b2 u3 a3 xu1 xa1 xu", "xu", Plan(snapshot=True)),
        ("u1 a1 xu1 xa1 xu", "xu", Plan("rewind", "u2", snapshot=True)),
        # in another order: Hermes's is the truth
        ("a1 u1 u2 a2 t2 b2 a3 u3 xu", "xu", Plan()),
    ],
)
def test_plan(client: str, new: str, expected: Plan) -> None:
    assert plan(_client(client), new.split(), HISTORY, seen=True) == expected


@pytest.mark.parametrize(
    ("client", "seen", "expected"),
    [
        ("xu", False, Plan()),
        ("xs xu", False, Plan()),
        ("xu1 xa1 xu", False, Plan("seed")),
        ("xa1 xu", False, Plan("seed")),
        # /new: the thread was used, and its past is gone on purpose
        ("xu", True, Plan()),
        ("xu1 xa1 xu", True, Plan(snapshot=True)),
    ],
)
def test_plan_without_a_history(client: str, seen: bool, expected: Plan) -> None:
    assert plan(_client(client), ["xu"], [], seen=seen) == expected


MESSAGES = st.lists(
    st.sampled_from(
        [
            *HISTORY,
            *({"id": f"x{n}", "role": role, "content": "x"} for n, role in enumerate(("user", "assistant", "system"))),
            result("xt", "nobody"),
            {"id": "xact", "role": "activity", "activityType": "t", "content": {}},
        ]
    ),
    max_size=12,
)


@given(MESSAGES, MESSAGES, st.sets(st.sampled_from(["u1", "u2", "u3", "x0"])), st.booleans())
def test_any_client_list_against_any_history(
    client: list[Message], history: list[Message], new: set[str], seen: bool
) -> None:
    before = json.dumps([client, history])
    made = plan(client, new, history, seen=seen)
    assert made == plan(client, new, history, seen=seen)
    assert json.dumps([client, history]) == before
    if made.action == "rewind":
        assert next(message["role"] for message in history if message["id"] == made.rewind_to) == "user"
    if made.action == "seed":
        assert not history and not seen
    wanted = snapshot_of(client, new, history)
    assert all(message["role"] != "reasoning" for message in wanted)
    first = known_beginning(client, wanted)
    held = client
    for snapshot in (first, wanted):
        if snapshot is not None:
            held = _applied(held, snapshot)
    if len({message["id"] for message in wanted}) == len(wanted) and len({m["id"] for m in client}) == len(client):
        ids = [message["id"] for message in held if message["role"] not in ("reasoning", "activity")]
        assert first is None or ids == [message["id"] for message in wanted]
        assert sorted(ids) == sorted(message["id"] for message in wanted)


def _applied(held: list[Message], snapshot: list[Message]) -> list[Message]:
    """As `@ag-ui/client` applies a MESSAGES_SNAPSHOT: ids it knows stay in place, the rest is appended."""
    fresh = {message["id"] for message in snapshot}
    kept = [one for one in held if one["id"] in fresh or one["role"] in ("reasoning", "activity")]
    have = {one["id"] for one in kept}
    return kept + [one for one in snapshot if one["id"] not in have]


def test_a_snapshot_keeps_the_clients_instructions_and_its_new_message() -> None:
    client = _client("xs u1 a1 xu1 xa1 xu")
    wanted = snapshot_of(client, ["xu"], HISTORY)
    assert [m["id"] for m in wanted] == ["xs", *(m["id"] for m in without_reasoning(HISTORY)), "xu"]
    # u2… belong before xu, which the client has: it is taken from it first, and comes back behind them.
    assert [m["id"] for m in known_beginning(client, wanted) or []] == ["xs", "u1", "a1"]
    assert known_beginning(_client("u1 a1"), _client("u1 a1 u2 a2")) is None


# --- transcript


def test_a_conversation_that_was_brought_in_is_paired_and_repaired() -> None:
    messages = [
        {"id": "s", "role": "system", "content": "Be brief."},
        user("u1", [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "url", "value": "x"}}]),
        said(
            "a1", "I look.", call("c1", arguments="{bad"), call("c2", arguments="[]"), call("c3", arguments='{"a":1}')
        ),
        result("t3", "c3", "three"),
        result("t1", "c1", "one"),
        {"id": "t9", "role": "tool", "toolCallId": "c9", "content": "of nobody"},
        {"id": "r", "role": "reasoning", "content": "hm"},
        said("a2", ""),
        said("a3", "", call("c1")),  # the id of another call
        said("a4", "Done.", call("c4")),
        {"id": "t4", "role": "tool", "toolCallId": "c4", "content": "", "error": "broke"},
    ]
    rows = transcript(messages)
    assert [(one["role"], one["wire_id"]) for one in rows] == [
        ("user", "u1"),
        ("assistant", "a1"),
        ("tool", "t1"),
        ("tool", "c2-missing"),
        ("tool", "t3"),
        ("assistant", "a4"),
        ("tool", "t4"),
    ]
    assert rows[0]["content"] == "look\n[image]"
    assert [one["function"]["arguments"] for one in rows[1]["tool_calls"]] == ["{}", "{}", '{"a":1}']
    assert rows[2]["content"] == "one" and rows[4]["content"] == "three"
    assert "no result" in rows[3]["content"]
    assert json.loads(rows[6]["content"]) == {"error": "broke", "content": ""}


TALK = st.lists(
    st.one_of(
        st.builds(user, st.uuids().map(str), st.text(max_size=5)),
        st.builds(
            lambda message_id, text, calls: said(message_id, text, *(call(*one) for one in calls)),
            st.uuids().map(str),
            st.text(max_size=5),
            st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3), st.text(max_size=5)), max_size=3),
        ),
        st.builds(result, st.uuids().map(str), st.sampled_from("abcd"), st.text(max_size=5)),
        st.just({"id": "s", "role": "system", "content": "x"}),
    ),
    max_size=12,
)


@given(TALK)
def test_a_transcript_pairs_every_call(messages: list[Message]) -> None:
    rows = transcript(messages)
    waiting: list[str] = []
    seen: list[str] = []
    for one in rows:
        if one["role"] == "tool":
            assert one["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = [made["id"] for made in one.get("tool_calls") or ()]
        seen += waiting
        for made in one.get("tool_calls") or ():
            assert isinstance(json.loads(made["function"]["arguments"]), dict)
    assert not waiting
    assert len(seen) == len(set(seen))
    assert [one["wire_id"] for one in rows if one["role"] == "user"] == [
        m["id"] for m in messages if m["role"] == "user"
    ]


# --- pair


def test_a_turn_with_text_tools_and_reasoning() -> None:
    rows = [
        row(1, "user", "go"),
        row(2, "assistant", "I look.", call("c1"), call("c2")),
        row(3, "tool", "r1", call_id="c1"),
        row(4, "tool", "r2", call_id="c2"),
        row(5, "assistant", "Done."),
    ]
    messages = [
        said("m1", "I look. ", call("c1"), call("c2")),
        result("t2", "c2"),
        result("t1", "c1"),
        said("m2", "Done."),
    ]
    found = pair(rows, Streamed(messages, {"m1": "r1", "m2": "r2"}, {"c2"}), ["u1", "u2"])
    assert found.ids == {1: "u1", 2: "m1", 3: "t1", 4: "t2", 5: "m2"}
    assert found.facts == {2: Fact(client=["c2"], reasoning="r1"), 5: Fact(reasoning="r2")}


def test_repeated_and_missing_call_ids_are_paired_by_order() -> None:
    rows = [
        row(1, "assistant", "", call("same"), call("same")),
        row(2, "tool", "1", call_id="same"),
        row(3, "tool", "2", call_id="same"),
        row(4, "assistant", "", call("same")),
        row(5, "tool", "3", call_id="same"),
        row(6, "assistant", "", call("made")),
        row(7, "tool", "4", call_id=""),
    ]
    messages = [
        said("m1", "", call("same"), call("x")),
        result("t1", "same"),
        result("t2", "x"),
        said("m2", "", call("y")),
        result("t3", "y"),
        said("m3", "", call("z")),
        result("t4", "z"),
    ]
    found = pair(rows, Streamed(messages), [])
    assert found.ids == {1: "m1", 2: "t1", 3: "t2", 4: "m2", 5: "t3", 6: "m3", 7: "t4"}
    assert {number: fact.calls for number, fact in found.facts.items()} == {1: ["same", "x"], 4: ["y"], 6: ["z"]}


def test_texts_that_repeat_in_a_turn_stay_in_order() -> None:
    rows = [row(1, "assistant", "ok", call("c1")), row(2, "tool", "", call_id="c1"), row(3, "assistant", "ok")]
    found = pair(rows, Streamed([said("m1", "ok", call("c1")), result("t1", "c1"), said("m2", "ok")]), [])
    assert found.ids == {1: "m1", 2: "t1", 3: "m2"}


@pytest.mark.parametrize(
    ("history", "streamed", "kept"),
    [
        ("The answer.", "The answer.\n", None),
        ("The answer.", "The answer.\n\n-- a footer", "The answer.\n\n-- a footer"),
        ("One text", "Quite another", "Quite another"),
    ],
)
def test_what_a_plugin_made_of_an_answer_is_kept(history: str, streamed: str, kept: str | None) -> None:
    found = pair([row(1, "assistant", history)], Streamed([said("m1", streamed)]), [])
    assert found.ids == {1: "m1"}
    assert found.facts.get(1, Fact()).text == kept


def test_a_cut_answer_that_went_on() -> None:
    rows = [
        row(1, "assistant", "Half of an"),
        row(2, "user", "[System: go on]", aside=True),
        row(3, "assistant", "answer."),
    ]
    found = pair(rows, Streamed([said("m1", "Half of an answer.")], {"m1": "r1"}), [])
    assert found.ids == {1: "m1", 3: "m1"}
    assert found.facts == {1: Fact(reasoning="r1", text="Half of an answer."), 3: Fact(text="")}


@pytest.mark.parametrize("calls", [(), (call("c1"),)], ids=["text", "calls"])
def test_an_answer_that_thinking_interrupted_is_several_messages(calls: tuple[dict[str, Any], ...]) -> None:
    """Hermes keeps one text and one reasoning of a request; a client was told each stretch in its place."""
    rows = [
        row(1, "user", "go"),
        row(2, "assistant", "one two\n\nthree four", *calls, reasoning="Hm. Aha. So."),
        *([row(3, "tool", "out", call_id="c1")] if calls else []),
        row(4, "assistant", "The end."),
    ]
    messages = [
        said("m1", "one "),
        said("m2", "two "),
        said("m3", "three four", *calls),
        *([result("t1", "c1")] if calls else []),
        said("m4", "The end."),
    ]
    streamed = Streamed(messages, {"m2": "r1", "m3": "r2"}, (), {"r1": "Hm. ", "r2": "Aha. So."})
    found = pair(rows, streamed, ["u1"])
    assert found.ids == {1: "u1", 2: "m3", **({3: "t1"} if calls else {}), 4: "m4"}
    kept = Told(ids=found.ids, facts={number: from_json(as_json(fact)) for number, fact in found.facts.items()})
    made = messages_of(rows, kept)
    thoughts = [{"id": f"r{n}", "role": "reasoning", "content": text} for n, text in ((1, "Hm. "), (2, "Aha. So."))]
    plain = [{**message, "content": message.get("content", "").strip()} for message in made]
    assert plain == [
        user("u1", "go"),
        *(said("m1", "one"), {**thoughts[0], "content": "Hm."}, said("m2", "two"), thoughts[1]),
        *({**message, "content": message["content"].strip()} for message in messages[2:]),
    ]


def test_a_clients_result_is_kept_as_it_was_sent() -> None:
    rows = [
        row(1, "assistant", "", call("c1"), call("c2"), call("c3")),
        row(2, "tool", '{"error": "no", "content": "half"}', call_id="c1"),
        row(3, "tool", "look", call_id="c2"),
        row(4, "tool", "plain", call_id="c3"),
    ]
    messages = [
        said("m1", "", call("c1"), call("c2"), call("c3")),
        {**result("t1", "c1", "half"), "error": "no"},
        {**result("t2", "c2"), "content": [{"type": "text", "text": "look"}]},
        result("t3", "c3", "plain"),
    ]
    found = pair(rows, Streamed(messages), [])
    facts = {number: from_json(as_json(fact)) for number, fact in found.facts.items()}
    assert set(facts) == {2, 3} and messages_of(rows, Told(ids=found.ids, facts=facts)) == messages


def test_hermes_words_for_a_stopped_turn_are_not_taken_for_the_text_that_was_streamed() -> None:
    rows = [row(1, "user", "go"), row(2, "assistant", "Operation interrupted.")]
    found = pair(rows, Streamed([said("m1", "A part of")]), ["u1"], whole=False)
    assert found.ids == {1: "u1"}


def test_a_message_that_came_too_late_to_be_steered_has_its_own_row() -> None:
    rows = [row(1, "user", "a"), row(2, "assistant", "A"), row(3, "user", "b"), row(4, "assistant", "B")]
    streamed = Streamed([said("m1", "A"), user("late", "b"), said("m2", "B")])
    assert pair(rows, streamed, ["u1"]).ids == {1: "u1", 2: "m1", 3: "late", 4: "m2"}


@given(ROWS, st.integers(0, 3), st.booleans())
def test_pairing_never_raises_and_gives_only_ids_that_were_streamed(drawn: list[Any], shift: int, whole: bool) -> None:
    rows = _rows(drawn)
    streamed = messages_of(visible(rows), Told())[shift:]
    found = pair(rows, Streamed(streamed), ["u1"], whole=whole)
    assert set(found.ids.values()) <= {message["id"] for message in streamed} | {"u1"}
    by_id = {one.id: one for one in rows}
    told = [message_id for fact in found.facts.values() for message_id, *_ in fact.before]
    assert len(set(told)) == len(told) and not set(told) & set(found.ids.values())
    for number, fact in found.facts.items():
        assert len(fact.calls) in (0, len(by_id[number].calls))
