"""The body of `POST /agui`: tolerated or refused with a sentence, never anything else."""

from __future__ import annotations

import json
import logging
import string
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.check import check_text
from agui_adapter.errors import AguiError
from agui_adapter.events import AguiStream
from agui_adapter.inputs import RunInput, has_media, new_input, parse
from agui_adapter.peers import MODERN, OLD
from agui_adapter.state_text import MAX_CHARS
from agui_adapter.stream import MessageChunk, MessageRevised, MessageStart, TurnFinished

USER = {"id": "u1", "role": "user", "content": "Hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def body(*messages: Any, **members: Any) -> bytes:
    return json.dumps({"threadId": "t", "runId": "r", "messages": list(messages or [USER]), **members}).encode()


def read(raw: bytes, max_messages: int = 5000) -> RunInput:
    return parse(raw, max_messages=max_messages)


def refused(raw: bytes, max_messages: int = 5000) -> tuple[int, str, str]:
    with pytest.raises(AguiError) as caught:
        read(raw, max_messages)
    error = caught.value
    assert error.message.strip() and error.message.endswith((".", ")")) and len(error.message) < 600
    return error.status, error.code, error.message


# -- tolerated -----------------------------------------------------------------------------------------------------


def test_the_smallest_body() -> None:
    asked = read(b'{"threadId":"t","runId":"r","messages":[]}')
    assert (asked.thread_id, asked.run_id, asked.messages, asked.context) == ("t", "r", [], "")
    assert asked.peer == OLD and asked.left_out == ()


def test_what_the_official_client_sends() -> None:
    asked = read(body(USER, protocolVersion="1.0", state={}, tools=[], context=[], forwardedProps={}))
    assert asked.peer == MODERN and asked.messages == [USER]


@pytest.mark.parametrize("version", ["1.0", "1.7", "9.9", "banana"])
def test_any_declared_version_is_served_as_modern(version: str) -> None:
    assert read(body(protocolVersion=version)).peer == MODERN


@pytest.mark.parametrize("state", [{}, None, {"a": 1}, [], 0, "", "text", [1, {"deep": [None]}]])
def test_any_state(state: Any) -> None:
    assert read(body(state=state)).messages == [USER]


@pytest.mark.parametrize(
    "name", ["state", "tools", "context", "forwardedProps", "resume", "protocolVersion", "parentRunId"]
)
def test_null_is_absent(name: str) -> None:
    assert read(body(**{name: None})) == read(body())


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ({**USER, "name": None, "metadata": None, "encryptedValue": None}, USER),
        (
            {"id": "a", "role": "assistant", "content": None, "toolCalls": [{**CALL, "metadata": None}]},
            {"id": "a", "role": "assistant", "toolCalls": [CALL]},
        ),
        ({"id": "a", "role": "assistant", "toolCalls": None}, {"id": "a", "role": "assistant"}),
        (
            {"id": "t", "role": "tool", "toolCallId": "c1", "content": "x", "error": None},
            {"id": "t", "role": "tool", "toolCallId": "c1", "content": "x"},
        ),
        ({**USER, "createdAt": "now", "tool_call_id": 5, "subagentRunId": "s"}, {**USER, "subagentRunId": "s"}),
        (
            {"id": "u", "role": "user", "content": [{"type": "text", "text": "x", "metadata": None, "extra": 1}]},
            {"id": "u", "role": "user", "content": [{"type": "text", "text": "x"}]},
        ),
    ],
)
def test_nulls_and_unknown_members_are_dropped(message: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert read(body(message)).messages == [wanted]


def test_unknown_members_anywhere_are_no_error() -> None:
    raw = body(
        {**USER, "new": 1},
        shiny={"x": 1},
        tools=[{"name": "f", "description": "d", "parameters": {"type": "object"}, "color": "red"}],
        context=[{"description": "d", "value": "v", "weight": 2}],
        resume=[{"interruptId": "i", "status": "resolved", "hurry": True}],
    )
    asked = read(raw)
    assert asked.tools == [{"name": "f", "description": "d", "parameters": {"type": "object"}}]
    assert asked.resume == [{"interruptId": "i", "status": "resolved"}]
    assert asked.context.endswith("d: v")


@pytest.mark.parametrize("role", ["foo", "", "function", "User", "developer\n"])
def test_unknown_roles_are_dropped(role: str) -> None:
    asked = read(body({"id": "x", "role": role, "content": {"any": "thing"}}, USER))
    assert asked.messages == [USER] and asked.left_out == (f"role {role}",)


def test_every_known_role_is_kept() -> None:
    messages = [
        {"id": "1", "role": "developer", "content": "d"},
        {"id": "2", "role": "system", "content": "s"},
        {"id": "3", "role": "user", "content": "u"},
        {"id": "4", "role": "reasoning", "content": "r", "encryptedValue": "e"},
        {"id": "5", "role": "assistant", "content": "a", "toolCalls": [CALL]},
        {"id": "6", "role": "tool", "toolCallId": "c1", "content": [{"type": "text", "text": "x"}]},
        {"id": "7", "role": "activity", "activityType": "plan", "content": {"x": None}},
        USER,
    ]
    assert read(body(*messages)).messages == messages


@pytest.mark.parametrize(
    ("part", "left_out"),
    [
        ({"type": "hologram", "data": 5}, "part hologram"),
        ({"type": "image", "source": {"type": "telepathy", "value": "x"}}, "source telepathy"),
        ({"type": "binary", "mimeType": "image/png", "id": "f1"}, "binary part by id"),
    ],
)
def test_unknown_parts_and_sources_are_dropped(part: dict[str, Any], left_out: str) -> None:
    asked = read(body({"id": "u", "role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}))
    assert asked.messages[0]["content"] == [{"type": "text", "text": "What is it?"}]
    assert asked.left_out == (left_out,)


def test_every_known_source_is_kept() -> None:
    parts = [
        {"type": "image", "source": {"type": "data", "value": "eA==", "mimeType": "image/png"}, "id": "p"},
        {"type": "document", "source": {"type": "url", "value": "https://x.test/a"}, "metadata": {"filename": "a"}},
        {"type": "audio", "source": {"type": "file", "value": "handle", "provider": "p"}},
    ]
    assert read(body({"id": "u", "role": "user", "content": parts})).messages[0]["content"] == parts


@pytest.mark.parametrize(
    ("binary", "wanted"),
    [
        (
            {"mimeType": "image/png", "data": "eA=="},
            {"type": "image", "source": {"type": "data", "value": "eA==", "mimeType": "image/png"}},
        ),
        (
            {"mimeType": "application/pdf", "url": "https://x.test/a.pdf", "filename": "a.pdf"},
            {
                "type": "document",
                "source": {"type": "url", "value": "https://x.test/a.pdf", "mimeType": "application/pdf"},
                "metadata": {"filename": "a.pdf"},
            },
        ),
        (
            {"data": "eA=="},
            {"type": "document", "source": {"type": "data", "value": "eA==", "mimeType": "application/octet-stream"}},
        ),
    ],
)
def test_binary_parts_of_old_clients_are_upgraded(binary: dict[str, Any], wanted: dict[str, Any]) -> None:
    asked = read(body({"id": "u", "role": "user", "content": [{"type": "binary", **binary}]}))
    assert asked.messages[0]["content"] == [wanted]


def test_an_unknown_resume_status_is_dropped() -> None:
    asked = read(body(resume=[{"interruptId": "i", "status": "maybe"}, {"interruptId": "j", "status": "cancelled"}]))
    assert asked.resume == [{"interruptId": "j", "status": "cancelled"}]


def test_ten_thousand_messages() -> None:
    messages = [{"id": f"m{number}", "role": "user", "content": "x" * 20} for number in range(10_000)]
    assert len(read(body(*messages), max_messages=10_000).messages) == 10_000
    assert refused(body(*messages), max_messages=9_999)[:2] == (413, "too_many_messages")


def test_what_is_left_out_cannot_forge_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hermes_agui"):
        read(body({"id": "x", "role": "a\nERROR root: pwned " + "z" * 5000}, USER))
    assert caplog.messages and "\n" not in caplog.messages[0] and len(caplog.messages[0]) < 600


# -- refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"nonsense", b'{"threadId": "t"', b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b'{"a":' * 3000],
    ids=["empty", "cut", "word", "cut object", "not utf-8", "NaN", "deep list", "deep object"],
)
def test_not_json(raw: bytes) -> None:
    assert refused(raw)[:2] == (400, "invalid_json")


@pytest.mark.parametrize("raw", [b"null", b"[]", b'"text"', b"5", b"true"])
def test_not_an_object(raw: bytes) -> None:
    assert refused(raw)[:2] == (400, "invalid_input")


@pytest.mark.parametrize("where", [{"state": "\ud800"}, {"threadId": "\udfff"}, {"context": [{"\ud800": 1}]}])
def test_lone_surrogates(where: dict[str, Any]) -> None:
    assert refused(body(**where))[0] == 400


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ({"threadId": None}, "threadId"),
        ({"threadId": 5}, "threadId"),
        ({"threadId": ""}, "threadId"),
        ({"threadId": " \n\t"}, "threadId"),
        ({"threadId": "x" * 1025}, "threadId"),
        ({"runId": ""}, "runId"),
        ({"runId": ["r"]}, "runId"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages.0"),
        ({"messages": [None]}, "messages.0"),
        ({"messages": [{"id": "u", "role": "user"}]}, "content"),
        ({"messages": [{"id": "u", "role": "user", "content": 5}]}, "content"),
        ({"messages": [{"id": 5, "role": "user", "content": "x"}]}, "id"),
        ({"messages": [{"role": "user", "content": "x"}]}, "id"),
        ({"messages": [{"id": "u", "role": ["user"], "content": "x"}]}, "messages.0"),
        ({"messages": [{"id": "u", "role": "user", "content": [5]}]}, "content"),
        ({"messages": [{"id": "u", "role": "user", "content": [{"type": "text"}]}]}, "text"),
        ({"messages": [{"id": "u", "role": "user", "content": [{"type": "image"}]}]}, "source"),
        ({"messages": [{"id": "a", "role": "assistant", "toolCalls": [{"id": "c"}]}]}, "toolCalls"),
        ({"messages": [{"id": "t", "role": "tool", "content": "x"}]}, "toolCallId"),
        ({"tools": [{"name": "f"}]}, "description"),
        ({"tools": "f"}, "tools"),
        ({"context": [{"description": "d", "value": 5}]}, "value"),
        ({"context": {"a": "b"}}, "context"),
        ({"resume": [{"status": "resolved"}]}, "interruptId"),
        ({"protocolVersion": 1.0}, "protocolVersion"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_a_wrong_type_is_named(members: dict[str, Any], word: str) -> None:
    status, code, sentence = refused(orjson.dumps({"threadId": "t", "runId": "r", "messages": [USER]} | members))
    assert (status, code) == (422, "invalid_input")
    assert word in sentence


def test_snake_case_is_not_the_protocol() -> None:
    assert refused(b'{"thread_id":"t","run_id":"r","messages":[]}')[:2] == (422, "invalid_input")


@pytest.mark.parametrize(
    "members",
    [
        {"context": [1] * 20_000},
        {"tools": [1] * 20_000},
        {"resume": [1] * 20_000},
        {"messages": [{**USER, "content": [1] * 20_000}]},
    ],
)
def test_a_huge_list_of_nonsense_is_refused_early(members: dict[str, Any]) -> None:
    assert refused(body(**members))[:2] == (413, "too_many_items")


def test_a_sentence_is_short_whatever_was_sent() -> None:
    long = "x" * 100_000
    refused(body({"id": "u", "role": "user", "content": [{"type": "image", "source": {"type": [long]}}]}))
    refused(body(resume=[{"interruptId": {long: 1}, "status": "resolved"}]))


# -- what is new ---------------------------------------------------------------------------------------------------


def user(message_id: str, content: Any) -> dict[str, Any]:
    return {"id": message_id, "role": "user", "content": content}


ASSISTANT = {"id": "a1", "role": "assistant", "content": "Hi"}


def test_trailing_user_messages_are_the_input() -> None:
    new = new_input([user("u1", "old"), ASSISTANT, user("u2", "one"), user("u3", "two")], {"u1"})
    assert (new.text, new.ids) == ("one\n\ntwo", ["u2", "u3"])


def test_accepted_ids_are_not_input_again() -> None:
    new = new_input([user("u1", "first"), user("u2", "second")], {"u1"})
    assert (new.text, new.ids) == ("second", ["u2"])


def test_the_same_text_under_another_id_is_new() -> None:
    assert new_input([user("u1", "again"), ASSISTANT, user("u2", "again")], {"u1"}).ids == ["u2"]


def test_reasoning_and_activities_at_the_end_are_skipped() -> None:
    tail = [{"id": "r", "role": "reasoning", "content": ""}, {"id": "x", "role": "activity", "content": {}}]
    assert new_input([user("u1", "Hello"), *tail], ()).text == "Hello"


def test_text_parts_become_text_and_the_message_keeps_the_rest() -> None:
    image = {"type": "image", "source": {"type": "url", "value": "https://a.test/b.png"}}
    parts = [{"type": "text", "text": "look"}, image, {"type": "text", "text": "here"}]
    new = new_input([user("u1", parts)], ())
    assert (new.text, new.messages) == ("look\nhere", [user("u1", parts)])
    assert has_media(new.messages)
    assert not has_media([user("u1", "look"), user("u2", parts[:1])])


def test_an_image_alone_is_input() -> None:
    parts = [{"type": "image", "source": {"type": "url", "value": "https://a.test/b.png"}}]
    new = new_input([user("u1", parts)], ())
    assert (new.text, new.ids) == ("", ["u1"])


def test_the_same_messages_again_are_to_be_answered_again() -> None:
    new = new_input([user("u1", "one"), user("u2", "two")], {"u1", "u2"})
    assert (new.text, new.ids) == ("one\n\ntwo", ["u1", "u2"])


@pytest.mark.parametrize(
    ("messages", "accepted", "status", "code"),
    [
        ([], (), 400, "no_input"),
        ([user("u1", "Hello"), ASSISTANT], (), 400, "no_input"),
        ([{"id": "s", "role": "system", "content": "be nice"}], (), 400, "no_input"),
        ([user("u1", "")], (), 400, "no_input"),
        ([user("u1", " \n")], (), 400, "no_input"),
        ([user("u1", [])], (), 400, "no_input"),
        ([user("u1", "x"), {"id": "t", "role": "tool", "toolCallId": "c", "content": "x"}], (), 409, "no_open_call"),
    ],
)
def test_nothing_to_do_is_an_error_that_says_so(
    messages: list[dict[str, Any]], accepted: tuple[str, ...], status: int, code: str
) -> None:
    with pytest.raises(AguiError) as caught:
        new_input(messages, accepted)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert caught.value.message.endswith(".")


def test_context_is_bounded() -> None:
    entries = [{"description": f"d{number}", "value": "v" * 3000} for number in range(5)]
    text = read(body(context=entries)).context
    assert "d0: vvv" in text and len(text) <= MAX_CHARS and text.endswith("[cut: too long]")


@pytest.mark.parametrize(
    ("state", "read_as"),
    [({}, {}), (None, None), ([1], [1]), ("text", "text"), ({"n": 2**60, "a": None}, {"n": 2**60, "a": None})],
)
def test_state_is_any_json(state: Any, read_as: Any) -> None:
    assert read(body(state=state)).state == read_as


def test_no_state_is_none() -> None:
    assert read(body()).state is None


def test_state_has_bounds() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"a": deep}
    with pytest.raises(AguiError) as caught:
        parse(body(state=deep), max_messages=10, max_depth=1000)  # agui.max_json_depth lets it through
    assert (caught.value.status, caught.value.code) == (422, "invalid_state")
    assert read(body(state={"blob": "x" * (1 << 20)})).state
    with pytest.raises(AguiError) as caught:
        read(body(state={"blob": "x" * (5 << 20)}))
    assert (caught.value.status, caught.value.code) == (413, "invalid_state")


# -- anything ------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63),
        st.floats(),
        st.text(string.printable + "é👋", max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["id", "role", "content", "type", "text", "source", "value", "toolCalls", "name", "x"]),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=20,
)
messages_of_any_kind = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(values, st.text(max_size=5)),
        "role": st.one_of(
            st.sampled_from(["user", "assistant", "tool", "system", "developer", "reasoning", "activity", "foo"]),
            values,
        ),
        "content": values,
        "toolCalls": values,
        "toolCallId": values,
        "activityType": values,
        "metadata": values,
        "name": values,
    },
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "threadId": st.one_of(st.text(max_size=5), values),
        "runId": st.one_of(st.text(max_size=5), values),
        "messages": st.one_of(st.lists(st.one_of(messages_of_any_kind, values), max_size=4), values),
        "tools": values,
        "context": values,
        "state": values,
        "resume": values,
        "protocolVersion": values,
        "forwardedProps": values,
        "parentRunId": values,
        "x": values,
    },
)


@given(st.one_of(bodies, values))
def test_any_json_is_read_or_refused(value: Any) -> None:
    read_or_refuse(json.dumps(value).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    read_or_refuse(raw)


def read_or_refuse(raw: bytes) -> None:
    try:
        asked = read(raw)
        new_input(asked.messages, {"u1"})
    except AguiError as error:
        assert 400 <= error.status < 500 and error.code and error.message.strip()


@given(st.lists(messages_of_any_kind, max_size=5))
def test_what_is_read_can_be_restated(some: list[dict[str, Any]]) -> None:
    """A snapshot of the client's own messages must not kill the client: no nulls, nothing unknown."""
    for number, message in enumerate(some):
        message["id"] = f"m{number}"
    try:
        asked = read(json.dumps({"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": some}).encode())
    except AguiError:
        return
    stream = AguiStream("t", "r", prefix="x", base=asked.messages)
    frames = stream.start()
    for event in (MessageStart("z"), MessageChunk("a"), MessageRevised("z", "b"), TurnFinished()):
        frames += stream.feed(event)
    allowed = ("unsafe-int",)  # the client's own numbers, in its own metadata
    findings = [each for each in check_text(b"".join(frames).decode(), sse=True) if each.rule not in allowed]
    assert not findings, findings
