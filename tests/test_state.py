"""The shared state: its rules, and that what is streamed makes the client's document equal to the server's.

Replayed three times: with a Python patch library, the checker's own, and `fast-json-patch`, which the clients use.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.check import check_events
from agui_adapter.check.patch import apply_patch
from agui_adapter.document import Document
from agui_adapter.errors import AguiError
from agui_adapter.events import AguiStream
from agui_adapter.state import (
    MAX_BYTES,
    MAX_OPERATIONS,
    StateError,
    agree,
    bare,
    bounds,
    change,
    diff,
    edit,
    for_clients,
    pointer_of,
    read,
    remove,
    same,
    tokens,
    wire,
)
from agui_adapter.state_text import (
    MAX_CHARS,
    MAX_READ_CHARS,
    STATE_TOOL_NAMES,
    STATE_TOOLS,
    answer_read,
    changes_of,
    told,
)
from agui_adapter.store import Store
from agui_adapter.stream import PlanChanged, StateChanged, StreamEvent, TurnFinished
from agui_adapter.tools import ClientTool, read_tools
from tests.clients import apply_patches, node
from tests.reducer import decode, reduce
from tests.strategies import json_values, keys

# -- pointers ------------------------------------------------------------------------------------------------------


@given(st.lists(keys, max_size=5))
def test_a_pointer_names_its_members(members: list[str]) -> None:
    assert tokens(pointer_of(members)) == members


@pytest.mark.parametrize("pointer", ["a", "/~", "/~2", "a/b", "/a~", "/" + "/x" * 60])
def test_what_is_no_pointer(pointer: str) -> None:
    with pytest.raises(StateError):
        tokens(pointer)


DOCUMENT = {"a/b": {"m~n": [1, {"x": None}]}, "": {"": "empty"}, "list": [[0], 1]}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/a~1b/m~0n/1/x", None),
        ("/a~1b/m~0n/0", 1),
        ("//", "empty"),
        ("/list/0/0", 0),
    ],
)
def test_reading(pointer: str, value: Any) -> None:
    assert read(DOCUMENT, pointer) == value


@pytest.mark.parametrize("pointer", ["/c", "/list/2", "/list/01", "/list/-", "/list/x", "/list/1/0", "/a~1b/m~0n/1/y"])
def test_nothing_there(pointer: str) -> None:
    with pytest.raises(StateError, match="nothing"):
        read(DOCUMENT, pointer)


# -- changes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "pointer", "value", "after", "operations"),
    [
        ({}, "/a", 1, {"a": 1}, [("add", "/a")]),
        ({"a": 1}, "/a", None, {"a": None}, [("replace", "/a")]),
        ({"a": None}, "/a", 2, {"a": 2}, [("replace", "/a")]),
        ({}, "/a/b/c", 1, {"a": {"b": {"c": 1}}}, [("add", "/a"), ("add", "/a/b"), ("add", "/a/b/c")]),
        ({"l": [1]}, "/l/-", 2, {"l": [1, 2]}, [("add", "/l/-")]),
        ({"l": [1]}, "/l/1", 2, {"l": [1, 2]}, [("add", "/l/-")]),
        ({"l": [1]}, "/l/0", 2, {"l": [2]}, [("replace", "/l/0")]),
        ({"l": [{}]}, "/l/0/x", 2, {"l": [{"x": 2}]}, [("add", "/l/0/x")]),
        ({"k/~": 1}, "/k~1~0", 2, {"k/~": 2}, [("replace", "/k~1~0")]),
        ([1], "/-", 2, [1, 2], [("add", "/-")]),
        (None, "/a", 1, {"a": 1}, [("replace", ""), ("add", "/a")]),
        ("text", "", {"a": 1}, {"a": 1}, [("replace", "")]),
        ({"a": 1, "hermes": 2}, "", {"b": 1, "hermes": 3}, {"b": 1, "hermes": 2}, [("replace", "")]),
        ({}, "/n", 2**53, {"n": str(2**53)}, [("add", "/n")]),
        ({}, "/n", float("nan"), {"n": None}, [("add", "/n")]),
        ({}, "/s", "\ud800", {"s": "\ufffd"}, [("add", "/s")]),
    ],
)
def test_a_change(state: Any, pointer: str, value: Any, after: Any, operations: list[tuple[str, str]]) -> None:
    before = copy.deepcopy(state)
    changed, patch = change(state, pointer, value)
    assert changed == after
    assert [(one["op"], one["path"]) for one in patch] == operations
    assert state == before  # never in place
    assert apply_patch(before, patch) == after


@pytest.mark.parametrize(
    ("state", "pointer", "value"),
    [
        ({}, "a", 1),
        ({"a": 1}, "/a/b", 1),
        ({"l": [1]}, "/l/2", 1),
        ({"l": [1]}, "/l/x", 1),
        ({"l": [1]}, "/l/-/a", 1),
        ({}, "/hermes", 1),
        ({}, "/hermes/todos", []),
        ({"hermes": {}}, "", [1]),
        ({}, "/__proto__/x", 1),
        ({}, "/a/constructor/prototype", 1),
        ({}, "/blob", "x" * MAX_BYTES),
        ("text", "/a", 1),
    ],
)
def test_a_change_that_cannot_be(state: Any, pointer: str, value: Any) -> None:
    before = copy.deepcopy(state)
    with pytest.raises(StateError):
        change(state, pointer, value)
    assert state == before


def test_removing() -> None:
    state = {"a": {"b": 1, "c": 2}, "l": [1, 2, 3], "hermes": {"x": 1}}
    assert remove(state, "/a/b")[0] == {"a": {"c": 2}, "l": [1, 2, 3], "hermes": {"x": 1}}
    assert remove(state, "/l/1")[0]["l"] == [1, 3]
    assert remove(state, "")[0] == {"hermes": {"x": 1}}
    for pointer in ("/nothing", "/l/3", "/l/-", "/hermes/x"):
        with pytest.raises(StateError):
            remove(state, pointer)


def test_changes_are_made_together_or_not_at_all() -> None:
    state = {"a": 1}
    assert edit(state, [("/b", False, 2), ("/a", True, None)])[0] == {"b": 2}
    with pytest.raises(StateError):
        edit(state, [("/b", False, 2), ("/c", True, None)])
    assert state == {"a": 1}


@given(json_values, json_values)
def test_a_difference_makes_one_of_the_other(before: Any, after: Any) -> None:
    kept = copy.deepcopy(before)
    patch = diff(before, after)
    assert same(apply_patch(before, patch), after)
    assert before == kept
    assert bool(patch) != same(before, after)


def test_a_difference_is_small() -> None:
    before = {"todos": [{"id": str(n), "status": "pending"} for n in range(9)]}
    after = copy.deepcopy(before)
    after["todos"][4]["status"] = "completed"
    after["todos"].append({"id": "9", "status": "pending"})
    assert diff(before, after) == [
        {"op": "replace", "path": "/todos/4/status", "value": "completed"},
        {"op": "add", "path": "/todos/-", "value": {"id": "9", "status": "pending"}},
    ]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        ([1], [True], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        (2**53 + 1, float(2**53), True),
        (2**53 + 1, 2**53, True),
        ("1", 1, False),
        ([], {}, False),
    ],
)
def test_equality_is_the_client_s(left: Any, right: Any, equal: bool) -> None:
    assert same(left, right) is equal and same(right, left) is equal


def test_large_integers_go_out_as_javascript_has_them() -> None:
    state = {"n": 2**60 + 1, "l": [2**53, True, 1]}
    assert json.loads(wire(state), parse_int=int)["n"] == float(2**60)
    assert b"1152921504606846977" not in wire(state)
    assert json.loads(wire(state)) == json.loads(json.dumps(for_clients(state)))
    assert for_clients({"a": 1}) == {"a": 1}


# -- who has what --------------------------------------------------------------------------------------------------

H = {"hermes": {"model": "m"}}


@pytest.mark.parametrize(
    ("client", "server", "behind", "held", "tell"),
    [
        (None, None, False, None, False),  # S09: absent, null and {} are no state
        ({}, None, False, None, False),
        ({"a": 1}, None, False, {"a": 1}, False),
        ([1], None, False, [1], False),
        ("text", None, False, "text", False),
        (0, None, False, 0, False),
        ([], {"a": 1}, False, [], False),
        (None, {"a": 1}, False, {"a": 1}, True),  # S13: a client that has lost it is told
        ({}, {"a": 1}, False, {"a": 1}, True),
        ({}, {"a": 1, **H}, False, {"a": 1, **H}, True),
        ({}, H, False, H, True),
        ({"a": 1}, {"a": 1}, False, {"a": 1}, False),
        ({"a": 1}, {"a": True}, False, {"a": 1}, False),  # 1 is not true
        ({"a": 1, **H}, {"a": 1, **H}, False, {"a": 1, **H}, False),
        ({"a": 1}, {"a": 1, **H}, False, {"a": 1, **H}, True),
        ({"a": 2, **H}, {"a": 1, **H}, False, {"a": 2, **H}, False),  # S12: a client's change wins
        ({"a": 2}, {"a": 1, **H}, False, {"a": 2, **H}, True),
        ({"a": 2, "hermes": "forged"}, {"a": 1, **H}, False, {"a": 2, **H}, True),
        ({"a": 2, "hermes": "forged"}, None, False, {"a": 2}, True),
        ({"a": 0, **H}, {"a": 1, **H}, True, {"a": 1, **H}, True),
        ([1], {"a": 1, **H}, False, [1], False),
        ({"hermes": {}}, None, False, {}, True),  # how a client asks for it
    ],
)
def test_what_holds_when_a_run_begins(client: Any, server: Any, behind: bool, held: Any, tell: bool) -> None:
    agreed = agree(client, server, behind=behind)
    assert same(agreed[0], held) and agreed[1] is tell


def test_without_our_member_the_name_is_the_app_s() -> None:
    state = {"hermes": "a messenger"}
    assert agree(state, None, reserved=False) == (state, False)


def test_bounds_of_a_client_s_document() -> None:
    deep: Any = 1
    for _ in range(101):
        deep = {"a": deep}
    assert bounds(deep)[0] == 422 and bounds(deep)[1]
    assert bounds({"a": "x" * MAX_BYTES})[0] == 413
    assert bounds({"a": "x" * (1 << 20)})[1] == "" and bounds(None)[1] == ""


# -- what the model sees -------------------------------------------------------------------------------------------


def test_the_model_is_told_context_and_state_without_ours() -> None:
    text = told("The context.", {"cart": [1, None], **H}, None, changed=True)
    assert text.startswith("The context.\n\n") and text.endswith('{"cart":[1,null]}') and "hermes" not in text
    assert told("The context.", {"cart": 1}, None, changed=False) == "The context."
    assert told("", {"cart": 1}, None, changed=False) == ""
    assert "no state any more" in told("", H, {"cart": 1}, changed=True)


def test_a_large_state_is_told_as_an_outline() -> None:
    before = {"rows": ["x" * 100] * 10_000, "a/b": 1, "title": "old"}
    state = {**before, "title": "new"}
    text = told("c" * 9000, state, before, changed=True)
    assert len(text) <= MAX_CHARS
    assert "- /a~1b: 1" in text and "- /rows: list with 10000 items" in text and "read_app_state" in text
    assert '- /title: "new"' in text and "ccc" in text
    many = {f"member {number} {'x' * 400}": "y" * 5000 for number in range(200)}
    assert len(told("", many, None, changed=True)) <= MAX_CHARS


def test_a_large_state_can_be_read_whole() -> None:
    state = {"rows": [{"n": number, "text": "é" * 50} for number in range(500)], **H}
    answer = json.loads(answer_read(state, {}))
    assert answer["members"] == ["- /rows: list with 500 items"]
    text = answer["json"]
    while "nextOffset" in answer:
        answer = json.loads(answer_read(state, {"offset": answer["nextOffset"]}))
        assert len(answer["json"]) <= MAX_READ_CHARS
        text += answer["json"]
    assert json.loads(text) == bare(state)
    assert json.loads(answer_read(state, {"pointer": "/rows/7/n"})) == {"pointer": "/rows/7/n", "value": 7}


@pytest.mark.parametrize("args", [{"pointer": "/x"}, {"pointer": "x"}, {"pointer": 1}, {"offset": -1}, {"offset": "1"}])
def test_reading_what_is_not_there_is_an_error(args: Any) -> None:
    assert json.loads(answer_read({"a": 1}, args))["error"]
    assert json.loads(answer_read(None, {})) == {"pointer": "", "value": {}}


def test_arguments_of_a_change() -> None:
    wanted = [("/a", False, 1), ("/b", True, None)]
    assert changes_of({"changes": [{"pointer": "/a", "value": 1}, {"pointer": "/b", "remove": True}]}) == wanted
    assert changes_of({"pointer": "/a", "value": None}) == [("/a", False, None)]
    for wrong in ({}, [], None, {"changes": []}, {"changes": [{"pointer": "/a"}]}, {"changes": [1]}, {"value": 1}):
        with pytest.raises(StateError):
            changes_of(wrong)


def test_the_tools_are_the_server_s() -> None:
    assert {tool.name for tool in STATE_TOOLS} == STATE_TOOL_NAMES
    for name in STATE_TOOL_NAMES:
        with pytest.raises(AguiError, match="rename"):
            read_tools([{"name": name, "description": ""}], STATE_TOOL_NAMES)


@pytest.mark.parametrize(
    ("metadata", "writes"),
    [
        (None, ()),
        ({"other": 1}, ()),
        ({"hermes": {}}, ()),
        ({"hermes": {"writes": "/recipe"}}, (("/recipe", ""),)),
        ({"hermes": {"writes": "/recipe", "argument": "/r"}}, (("/recipe", "/r"),)),
        (
            {"hermes": {"writes": ["/all", {"pointer": "/recipe", "argument": "/r"}]}},
            (("/all", ""), ("/recipe", "/r")),
        ),
    ],
)
def test_a_tool_declares_what_it_writes(metadata: Any, writes: Any) -> None:
    (tool,) = read_tools([{"name": "t", "description": "", "metadata": metadata}], ())
    assert tool.writes == writes


@pytest.mark.parametrize("own", [{"writes": "x"}, {"writes": ""}, {"writes": "/hermes/x"}, {"writes": 1}])
def test_a_wrong_declaration_is_refused(own: Any) -> None:
    with pytest.raises(AguiError) as caught:
        read_tools([{"name": "t", "description": "", "metadata": {"hermes": own}}], ())
    assert caught.value.code == "invalid_tool"


# -- the document --------------------------------------------------------------------------------------------------


@dataclass
class FakeTurn:
    """As much of a turn as a document needs."""

    state: Any = None
    state_now: Any = None
    events: list[StreamEvent] = field(default_factory=list)
    client_tools: tuple[ClientTool, ...] = ()

    def append(self, event: StreamEvent) -> int:
        self.events.append(event)
        return len(self.events)


def begin(document: Document, client: Any = None, **more: Any) -> tuple[Any, bool, Any]:
    """A run begins: what holds, whether the client is told, and its turn."""
    state, tell = document.adopt(client, **more)
    return state, tell, FakeTurn(document.value, document.value)


def done(document: Document) -> None:
    """The run's client has read it to its end."""
    document.read_to_end(document.version)


def test_a_client_s_change_in_turn_3_reaches_the_model_in_turn_3() -> None:
    document = Document()
    for number in (1, 1, 3, 1):
        knew = document.value == {"n": number}
        begin(document, {"n": number})
        news = document.news("")
        assert news == ("" if knew else f'State of the application the user sees, as JSON: {{"n":{number}}}')
        document.model_knows()
        done(document)


def test_the_model_is_not_told_what_it_changed_itself() -> None:
    document = Document()
    _, _, turn = begin(document, {"n": 1})
    assert document.news("")
    document.model_knows()
    document.edit(turn, [("/m", False, 2)])
    assert document.news("") == ""
    assert turn.events == [StateChanged({"n": 1, "m": 2}, ({"op": "add", "path": "/m", "value": 2},), {"n": 1}, 36)]
    done(document)
    begin(document, {"n": 1, "m": 2})
    assert document.news("") == ""
    document.model_forgot()
    assert '{"n":1,"m":2}' in document.news("")


def test_a_model_that_was_not_told_is_told_although_it_changed_something() -> None:
    document = Document()
    _, _, turn = begin(document, {"n": 1})
    document.edit(turn, [("/m", False, 2)])  # it could not know /n
    assert '"n":1' in document.news("")


def test_a_client_that_left_in_mid_run_has_changed_nothing() -> None:
    document = Document()
    _, _, turn = begin(document, {"n": 1})
    document.edit(turn, [("/n", False, 2)])  # its reader is gone: not read to the end
    assert begin(document, {"n": 1})[:2] == ({"n": 2}, True)
    done(document)
    # A client that has read all of it says what it says on purpose.
    assert begin(document, {"n": 1})[:2] == ({"n": 1}, False)


def test_a_second_window_that_is_behind_has_changed_nothing_either() -> None:
    document = Document()
    begin(document, {"n": 1})
    done(document)
    _, _, turn = begin(document, {"n": 1})
    document.edit(turn, [("/n", False, 2)])
    done(document)
    assert begin(document, {"n": 1}, behind=True)[:2] == ({"n": 2}, True)
    assert begin(document, {"n": 7}, behind=True)[:2] == ({"n": 7}, False)  # nobody gave it that


def test_our_member_needs_a_document() -> None:
    document, turn = Document(), FakeTurn()
    document.own(turn, lambda mine: {**mine, "model": "m"})
    assert document.value is None and turn.events == []
    document.own(turn, lambda mine: {**mine, "todos": []}, force=True)
    assert document.value == {"hermes": {"todos": []}}
    document.own(turn, lambda mine: {**mine, "todos": []}, force=True)
    assert len(turn.events) == 1  # by deltas only when it changes
    for other in ([1], "text", 0):
        document = Document()
        begin(document, other)
        document.own(turn, lambda mine: {**mine, "model": "m"}, force=True)
        assert document.value == other
    document = Document()
    document.reserved = False
    begin(document, {"hermes": "mine"})
    document.own(turn, lambda mine: {**mine, "model": "m"}, force=True)
    assert document.value == {"hermes": "mine"}


def test_a_change_that_nobody_could_be_told_is_told_whole_by_the_next() -> None:
    document = Document()
    state, _, turn = begin(document, {"n": 1})
    stream = AguiStream("t", "r", state=state)
    document.own(None, lambda mine: {"silent": 1})
    document.own(turn, lambda mine: {**mine, "loud": 1})
    events = decode(frame for event in turn.events for frame in stream.feed(event))
    assert [event["type"] for event in events] == ["STATE_SNAPSHOT"]
    assert events[0]["snapshot"] == document.value == {"n": 1, "hermes": {"silent": 1, "loud": 1}}


def test_it_outlives_the_process(tmp_path: Any) -> None:
    store = Store(tmp_path / "agui.db")
    store.open()
    assert store.state("chat") == (None, "", False)
    document = Document()
    _, _, turn = begin(document, {"n": 2**60, "é/~": None})
    document.own(turn, lambda mine: {"todos": [1], "subagents": {"s": {"status": "running"}}})
    document.use()
    document.model_knows()
    kept = document.keep()
    assert kept is not None and document.keep() is None
    store.set_state("chat", *kept)
    again = Document()
    again.load(*store.state("chat"))
    assert again.value == {"n": 2**60, "é/~": None, "hermes": {"todos": [1]}}
    assert again.offered and again.news("") == ""
    store.delete_thread("chat")
    assert store.state("chat") == (None, "", False)


# -- replays -------------------------------------------------------------------------------------------------------


@st.composite
def edits(draw: st.DrawFn) -> tuple[Any, list[StreamEvent], Any, list[dict[str, Any]]]:
    """A thread: a client's document, changes of every kind; the log, the document in the end and the stream."""
    client = draw(st.one_of(st.none(), st.just({}), json_values, st.dictionaries(keys, json_values, max_size=4)))
    document = Document()
    state, tell, turn = begin(document, client)
    stream = AguiStream("t", "r", state=state)
    frames = [*stream.start(), *(stream.state_snapshot(state) if tell else [])]
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.integers(0, 3)) == 0:
            own = draw(st.dictionaries(keys, json_values, max_size=3))
            document.own(turn, lambda mine, own=own: own, force=draw(st.booleans()))  # type: ignore[misc]
            continue
        pointer, value = [], bare(document.value)
        while isinstance(value, (dict, list)) and value and draw(st.integers(0, 4)):
            member = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
            pointer.append(str(member))
            value = value[member]
        if draw(st.booleans()):
            pointer.append(draw(keys))
        gone = draw(st.integers(0, 4)) == 0
        try:
            document.edit(turn, [(pointer_of(pointer), gone, draw(json_values))])
        except StateError:
            continue
    for event in [*turn.events, TurnFinished()]:
        frames += stream.feed(event)
    return client, turn.events, document.value, decode(frames)


def documents(client: Any, events: list[dict[str, Any]], patch: Any) -> Any:
    """The client's document after a stream."""
    state = {} if client is None else client
    for event in events:
        if event["type"] == "STATE_SNAPSHOT":
            state = event["snapshot"]
        elif event["type"] == "STATE_DELTA":
            state = patch(state, event["delta"])
    return state


@given(edits())
def test_a_replay_gives_the_server_s_document(case: Any) -> None:
    client, _, held, events = case
    held = {} if held is None else held
    assert same(documents(client, events, apply_patch), held)
    library = documents(client, events, lambda state, delta: jsonpatch.apply_patch(state, delta))
    assert same(library, held)
    findings = check_events(
        [(number, event) for number, event in enumerate(events, 1)], state={} if client is None else client
    )
    assert not [finding for finding in findings if finding.severity == "error"], findings
    if len(events) > 2:
        assert [event["type"] for event in events[1:-1]].count("STATE_SNAPSHOT") <= len(events)


@pytest.mark.node
@pytest.mark.skipif(node() is None, reason="Node is not on PATH")
def test_the_clients_library_gives_it_too() -> None:
    cases: list[Any] = []

    @given(edits())
    def collect(case: Any) -> None:
        cases.append(case)

    collect()
    sent = []
    for client, _, _, events in cases:
        patches = [
            [{"op": "replace", "path": "", "value": event["snapshot"]}]
            if event["type"] == "STATE_SNAPSHOT"
            else event["delta"]
            for event in events
            if event["type"].startswith("STATE_")
        ]
        sent.append({"document": {} if client is None else client, "patches": patches})
    for (_, _, held, events), got in zip(cases, apply_patches(sent), strict=True):
        assert "error" not in got, (got, events)
        assert same(got["document"], {} if held is None else held), events


def test_many_operations_are_told_whole() -> None:
    document = Document()
    state, _, turn = begin(document, {})
    state, _, turn = begin(document, {"n": 0})
    document.edit(turn, [(f"/k{number}", False, number) for number in range(MAX_OPERATIONS + 1)])
    stream = AguiStream("t", "r", state=state)
    (event,) = decode(frame for one in turn.events for frame in stream.feed(one))
    assert event["type"] == "STATE_SNAPSHOT" and event["snapshot"] == document.value


def test_state_may_stand_within_a_text_and_after_a_gap() -> None:
    """Deltas do not close what is open; a reader that fell behind gets the document as it is."""
    from agui_adapter.stream import MessageChunk, MessageStart

    document = Document()
    state, _, turn = begin(document, {"n": 0})
    turn.append(MessageStart("m"))
    turn.append(MessageChunk("one "))
    document.edit(turn, [("/n", False, 1)])
    turn.append(PlanChanged("p", ({"id": "1", "content": "c", "status": "pending"},)))
    turn.append(MessageChunk("two"))
    stream = AguiStream("t", "r", state=state)
    frames = [*stream.start(), *(frame for event in turn.events for frame in stream.feed(event))]
    kinds = [event["type"] for event in decode(frames)]
    assert kinds == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "STATE_DELTA", "ACTIVITY_SNAPSHOT"),
        "TEXT_MESSAGE_CONTENT",
    ]
    late = AguiStream("t", "r", state=state)
    frames = [*late.start(), *late.resync(turn.events), *late.feed(TurnFinished())]
    events = decode(frames)
    assert documents({"n": 0}, events, apply_patch) == {"n": 1}
    assert [m["role"] for m in reduce(events)] == ["assistant", "activity"]
    findings = check_events([(number, event) for number, event in enumerate(events, 1)], state={"n": 0})
    assert {finding.rule for finding in findings} <= {"message-reopened"}  # how a text goes on behind a snapshot


# -- the plan ------------------------------------------------------------------------------------------------------


def test_a_plan_is_an_activity_that_changes_by_items() -> None:
    items = [{"id": str(n), "content": f"step {n}", "status": "pending"} for n in range(3)]
    changed = [items[0] | {"status": "completed"}, *items[1:]]
    stream = AguiStream("t", "r")
    frames = [*stream.start()]
    for plan in (items, items, changed, [*changed, {"id": "3", "content": "more", "status": "pending"}]):
        frames += stream.feed(PlanChanged("turn-1-plan", tuple(plan)))
    events = decode([*frames, *stream.feed(TurnFinished())])
    assert [event["type"] for event in events[1:-1]] == ["ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "ACTIVITY_DELTA"]
    assert events[2]["patch"] == [{"op": "replace", "path": "/todos/0/status", "value": "completed"}]
    assert {event["activityType"] for event in events[1:-1]} == {"hermes.plan"}
    (activity,) = reduce(events)
    assert [item["id"] for item in activity["content"]["todos"]] == ["0", "1", "2", "3"]
    assert not check_events([(number, event) for number, event in enumerate(events, 1)])
