"""Streams that show each rule of the checker, good and bad. Used against the checker and against the real clients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One stream. `rules` are what the checker finds for 1.0, `peer_rules` what it finds for 0.0.59 (None: the same).

    `rejected_by` holds the versions of the real client ("1", "0") that reject it, as measured.
    """

    name: str
    frames: str
    rules: frozenset[str]
    peer_rules: frozenset[str]
    rejected_by: str = ""
    state: Any = field(default_factory=dict)
    known_calls: tuple[str, ...] = ()


def sse(events: Sequence[object]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def ev(kind: str, **fields: Any) -> Event:
    return {"type": kind, **fields}


START = ev("RUN_STARTED", threadId="t", runId="r", protocolVersion="1.0")
FINISH = ev("RUN_FINISHED", threadId="t", runId="r")
ERROR = ev("RUN_ERROR", message="broken")


def finish(**fields: Any) -> Event:
    return {**FINISH, **fields}


def started(**fields: Any) -> Event:
    return {**START, **fields}


def text(message: str = "m", **fields: Any) -> list[Event]:
    return [
        ev("TEXT_MESSAGE_START", messageId=message, role="assistant", **fields),
        ev("TEXT_MESSAGE_CONTENT", messageId=message, delta="hello", **fields),
        ev("TEXT_MESSAGE_END", messageId=message, **fields),
    ]


def call(call_id: str = "c", parent: str | None = "p", name: str = "tool", **fields: Any) -> list[Event]:
    start = ev("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, **fields)
    return [
        start if parent is None else {**start, "parentMessageId": parent},
        ev("TOOL_CALL_ARGS", toolCallId=call_id, delta="{}", **fields),
        ev("TOOL_CALL_END", toolCallId=call_id, **fields),
    ]


def result(call_id: str = "c", message: str = "res", content: Any = "ok", **fields: Any) -> Event:
    return ev("TOOL_CALL_RESULT", messageId=message, toolCallId=call_id, content=content, **fields)


def reasoning(message: str = "think") -> list[Event]:
    return [
        ev("REASONING_START", messageId=message),
        ev("REASONING_MESSAGE_START", messageId=message, role="reasoning"),
        ev("REASONING_MESSAGE_CONTENT", messageId=message, delta="hm"),
        ev("REASONING_MESSAGE_END", messageId=message),
        ev("REASONING_END", messageId=message),
    ]


def interrupt(**fields: Any) -> Event:
    return {"id": "i", "reason": "confirmation", **fields}


def run(*events: Event | list[Event], start: Event = START, end: Event | None = FINISH) -> list[Event]:
    """A whole run around `events`, which may be lists."""
    flat: list[Event] = [start]
    for each in events:
        flat += each if isinstance(each, list) else [each]
    return flat if end is None else [*flat, end]


CASES: list[Case] = []


def case(
    name: str,
    stream: str | Sequence[object],
    rules: str = "",
    rejected_by: str = "",
    peer_rules: str | None = None,
    **options: Any,
) -> None:
    frames = stream if isinstance(stream, str) else sse(stream)
    found = frozenset(rules.split())
    older = found if peer_rules is None else frozenset(peer_rules.split())
    CASES.append(Case(name, frames, found, older, rejected_by, **options))


def user(message: str = "u", **fields: Any) -> Event:
    return {"id": message, "role": "user", "content": "hi", **fields}


def image(source: Event, **fields: Any) -> Event:
    return {"type": "image", "source": source, **fields}


URL = {"type": "url", "value": "https://example.org/a.png"}
OPS = [{"op": "add", "path": "/a", "value": 1}]


def snapshot(*messages: Event, **fields: Any) -> Event:
    return ev("MESSAGES_SNAPSHOT", messages=list(messages), **fields)


def activity(message: str = "a", content: Any = None, **fields: Any) -> Event:
    content = {"list": []} if content is None else content
    return ev("ACTIVITY_SNAPSHOT", messageId=message, activityType="plan", content=content, **fields)


def sub(kind: str, subagent: str = "s", **fields: Any) -> Event:
    extra = {"STARTED": {"name": "helper"}, "ERROR": {"message": "broken"}}.get(kind, {})
    return ev(f"SUBAGENT_{kind}", subagentRunId=subagent, **extra, **fields)


# What is fine
case("the smallest run", run())
case("text", run(text()))
case("an empty delta", run(ev("TEXT_MESSAGE_START", messageId="m"), ev("TEXT_MESSAGE_CONTENT", messageId="m", delta=""),
                           ev("TEXT_MESSAGE_END", messageId="m")))  # fmt: skip
case("two messages interleaved", run(text("m1")[:1], text("m2")[:2], text("m1")[1:], text("m2")[2:]))
case("text and tools interleaved", run(text()[:1], call(), text()[1:], result()))
case("parallel calls under one parent", run(call("c1"), call("c2"), result("c1", "r1"), result("c2", "r2"), text()))
case("text, then calls under the same message", run(text("p"), call(), result()))
case("calls, then text under the same message", run(call(), result(), text("p")))
case("reasoning with a span that shares the id", run(reasoning()))
case("a reasoning message without a span", run(reasoning()[1:4]))
case("steps that overlap, one name per owner", run(
    ev("STEP_STARTED", stepName="x"), ev("STEP_STARTED", stepName="x", subagentRunId="s"),
    ev("STEP_STARTED", stepName="y"), ev("STEP_FINISHED", stepName="x"),
    ev("STEP_FINISHED", stepName="x", subagentRunId="s"),
    ev("STEP_FINISHED", stepName="y"),
))  # fmt: skip
case("RUN_ERROR as the first event", [ERROR])
case("RUN_ERROR with everything open", run(text()[:2], call()[:2], ev("STEP_STARTED", stepName="x"),
                                           reasoning()[:3], sub("STARTED"), end=ERROR))  # fmt: skip
case("a late RUN_ERROR", [*run(text()), ERROR])
case("a second run on the thread", [*run(text()), *run(text("m2"), start=started(runId="r2"), end=finish(runId="r2"))])
case("a run after an error", [*run(text(), end=ERROR), *run(start=started(runId="r2"), end=finish(runId="r2"))])
case("state", run(ev("STATE_SNAPSHOT", snapshot={"a": [1]}), ev("STATE_DELTA", delta=[
    {"op": "add", "path": "/a/-", "value": None}, {"op": "test", "path": "/a/0", "value": 1.0, "comment": "legal"},
    {"op": "move", "from": "/a/0", "path": "/b~1c"}, {"op": "copy", "from": "/b~1c", "path": "/d"},
    {"op": "replace", "path": "/d", "value": 2}, {"op": "remove", "path": "/a/0"},
    {"op": "replace", "path": "", "value": {}},
])))  # fmt: skip
case("a delta on the client's own state", run(ev("STATE_DELTA", delta=[{"op": "replace", "path": "/x", "value": 2}])),
     state={"x": 1})  # fmt: skip
case("a null state", run(ev("STATE_SNAPSHOT", snapshot=None)))
case("activity", run(activity(), ev("ACTIVITY_DELTA", messageId="a", activityType="plan", patch=[
    {"op": "add", "path": "/list/-", "value": "line"}]), activity(replace=False)))  # fmt: skip
case("custom and raw with null payloads", run(ev("CUSTOM", name="hermes.x", value=None), ev("RAW", event=None)))
case("usage, metadata and timestamps", run(text(metadata={"k": None}, timestamp=1_700_000_000_000), end=finish(
    result=0,
    usage=[{"provider": "p", "model": "m", "inputTokens": 3, "outputTokens": 2, "totalTokens": 5,
            "reasoningTokens": 1}],
)))  # fmt: skip
case("an interrupt on a tool call", run(call(), end=finish(outcome={"type": "interrupt", "interrupts": [
    interrupt(toolCallId="c", message="May I?", expiresAt="2030-01-01T00:00:00Z", responseSchema={"type": "object"}),
]})))  # fmt: skip
case("the result of a call of an earlier run", run(result("old")), known_calls=("old",))
case("an encrypted value", run(reasoning(), ev("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="think",
                                               encryptedValue="x")))  # fmt: skip
case("subagents", run(
    sub("STARTED"), text("m1", subagentRunId="s"), sub("STARTED", "s2", parentSubagentRunId="s"),
    sub("FINISHED", "s2", outcome={"type": "suspended", "interruptIds": ["i"]}), sub("FINISHED", result={"a": 1}),
    sub("STARTED", "s3"), sub("ERROR", "s3", code="x"),
))  # fmt: skip
case("attribution alone", run(text("m1", subagentRunId="s"), call(subagentRunId="s")))
case("an untagged continuation of a tagged item", run(text("m1", subagentRunId="s")[:1], text("m1")[1:]))
case("a messages snapshot", run(snapshot(
    user(), {"id": "p", "role": "assistant", "toolCalls": [
        {"id": "c", "type": "function", "function": {"name": "tool", "arguments": "{}"}}]},
    {"id": "res", "role": "tool", "toolCallId": "c", "content": "ok"},
    user("u2", content=[{"type": "text", "text": "see"}, image(URL)]),
    {"id": "z", "role": "reasoning", "content": "hm"}), text()))  # fmt: skip
case("an echoed input", run(start=started(input={
    "threadId": "t", "runId": "r", "messages": [user()], "tools": [], "context": [], "state": None})))  # fmt: skip
case("chunks of text", run(
    ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"), ev("TEXT_MESSAGE_CHUNK", delta="b"),
    ev("RAW", event={}), activity(), ev("TEXT_MESSAGE_CHUNK", messageId="m", role="assistant", delta="c"),
    ev("TEXT_MESSAGE_CHUNK", metadata={"k": 1}),
))  # fmt: skip
case("chunks of calls and reasoning", run(
    ev("REASONING_MESSAGE_CHUNK", messageId="z", delta="hm"), ev("REASONING_MESSAGE_CHUNK", delta=""),
    ev("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="tool", parentMessageId="p", delta="{"),
    ev("TOOL_CALL_CHUNK", delta="}"), result(),
    ev("TEXT_MESSAGE_CHUNK", messageId="m1", delta="x", subagentRunId="s"), ev("TEXT_MESSAGE_CHUNK", delta="y"),
))  # fmt: skip
case("chunks of two lanes", run(
    ev("TEXT_MESSAGE_CHUNK", messageId="m1", delta="x"),
    ev("TEXT_MESSAGE_CHUNK", messageId="m2", delta="y", subagentRunId="s"),
    ev("TEXT_MESSAGE_CHUNK", delta="to the parent"), ev("CUSTOM", name="hermes.x", value=1),
    ev("TEXT_MESSAGE_CHUNK", messageId="m2", delta="still open"),
))  # fmt: skip
case("comments, ids, retries, no space, multi-line data", ": hello\nretry: 100\n\nid: 1\nevent: message\n"
     + sse([START])[:-1].replace("data: ", "data:") + "\n: keep-alive\n\ndata: {\ndata:"
     + json.dumps(FINISH)[1:] + "\n\n")  # fmt: skip
case("a last frame without a blank line", sse(run(text())).rstrip("\n"))
case("a carriage return inside a string, escaped", run(ev("CUSTOM", name="hermes.x", value="a\r\nb\u2028")))

# Transport
case("not JSON", sse([START]) + "data: {oops\n\n" + sse([FINISH]), "not-json", "10")
case("frames without a blank line between them", sse([START]).rstrip("\n") + "\n" + sse([FINISH]),
     "not-json empty-stream", "10")  # fmt: skip
case(
    "NaN",
    sse([START]) + 'data: {"type":"CUSTOM","name":"hermes.x","value":NaN}\n\n' + sse([FINISH]),
    "not-a-number",
    "10",
)
case("an array", sse([START, [1], FINISH]), "not-object", "10")
case("null", sse([START, None, FINISH]), "not-object", "10")
case("[DONE]", sse([START, FINISH]) + "data: [DONE]\n\n", "done-marker", "10")
case("an empty data line", sse([START]) + "data:\n\n" + sse([FINISH]), "empty-data", "10")
case("CRLF", sse(run(text())).replace("\n", "\r\n"), "cr-framing", "10")
case("a line that is no SSE field", sse([START]) + "hello\n\n" + sse([FINISH]), "sse-field")
case("an integer too large", sse([START]) + 'data: {"type":"CUSTOM","name":"hermes.x","value":9007199254740993}\n\n'
     + sse([FINISH]), "unsafe-int")  # fmt: skip
case("half a surrogate pair", run(ev("CUSTOM", name="hermes.x", value="\ud800")), "lone-surrogate")
case("a frame of 11 MB", run(ev("CUSTOM", name="hermes.x", value="x" * 11 * 1024 * 1024)), "frame-too-big", "1")

# Shape
case("no type", [START, {"messageId": "m"}, FINISH], "no-type", "10")
case("an empty type", [START, {"type": ""}, FINISH], "no-type", "10")
case("a type that is a number", [START, {"type": 3}, FINISH], "no-type", "10")
case("an unknown event type", run(ev("META", name="x")), "unknown-event", "0")
case("an unknown event type, first", [ev("META", name="x"), *run()], "unknown-event", "0")
case("a THINKING event", run(ev("THINKING_START"), ev("THINKING_END")), "removed-event")
case("a binary part", run(snapshot(user(content=[
    {"type": "binary", "mimeType": "image/png", "url": "https://x.example"}]))), "removed-part")  # fmt: skip
case("a missing field", run(ev("TEXT_MESSAGE_START")), "missing-field", "10")
case("snake_case", run({"type": "TEXT_MESSAGE_START", "message_id": "m"}), "missing-field unknown-field", "10")
case("a missing snapshot", run(ev("STATE_SNAPSHOT")), "missing-field", "1")
case("a missing value", run(ev("CUSTOM", name="hermes.x")), "missing-field", "1")
case("a delta that is a number", run(text()[:1], ev("TEXT_MESSAGE_CONTENT", messageId="m", delta=1), text()[2:]),
     "wrong-type", "10")  # fmt: skip
case("a fractional timestamp", run(ev("CUSTOM", name="hermes.x", value=1, timestamp=1.5)), "wrong-type", "1")
case("an integral timestamp written as a float", run(ev("CUSTOM", name="hermes.x", value=1, timestamp=2.0)))
case("a timestamp beyond 2^53", run(ev("CUSTOM", name="hermes.x", value=1, timestamp=2.0**60)), "wrong-type", "1")
case("a boolean that is a string", run(activity(replace="false")), "wrong-type", "10")
case("the role tool on a text message", run(ev("TEXT_MESSAGE_START", messageId="m", role="tool"), text()[1:]),
     "wrong-type", "10")  # fmt: skip
case("reasoning with the role assistant", run(ev("REASONING_MESSAGE_START", messageId="z", role="assistant"),
     ev("REASONING_MESSAGE_END", messageId="z")), "wrong-type not-open", "10")  # fmt: skip
case("reasoning without a role", run(ev("REASONING_MESSAGE_START", messageId="z"),
     ev("REASONING_MESSAGE_END", messageId="z")), "missing-field not-open", "10")  # fmt: skip
case("an unknown subtype of an encrypted value", run(reasoning(), ev(
    "REASONING_ENCRYPTED_VALUE", subtype="span", entityId="think", encryptedValue="x")),
    "wrong-type", "10")  # fmt: skip
case("metadata that is a list", run(text(metadata=[])), "wrong-type", "10")
for _name, _event in {
    "name": ev("TEXT_MESSAGE_START", messageId="m", name=None),
    "metadata": ev("TEXT_MESSAGE_START", messageId="m", metadata=None),
    "timestamp": ev("TEXT_MESSAGE_START", messageId="m", timestamp=None),
    "subagentRunId": ev("TEXT_MESSAGE_START", messageId="m", subagentRunId=None),
    "role": ev("TEXT_MESSAGE_START", messageId="m", role=None),
}.items():
    case(f"null {_name}", run(_event, text()[1:]), "null", "10")
case("null code", run(end={**ERROR, "code": None}), "null", "10")
case("null parentRunId", run(start=started(parentRunId=None)), "null", "10")
case("null protocolVersion", run(start=started(protocolVersion=None)), "null version", "1", peer_rules="null")
case("null usage", run(end=finish(usage=None)), "null", "10")
case("null encryptedValue in a snapshot", run(snapshot(user(encryptedValue=None))), "null", "10")
case(
    "null content of an assistant message",
    run(snapshot({"id": "a", "role": "assistant", "content": None})),
    "null",
    "10",
)
case("null metadata of a text part", run(snapshot(user(content=[{"type": "text", "text": "x", "metadata": None}]))),
     "null", "1")  # fmt: skip
case("null rawEvent", run(text(rawEvent=None)), "null-converted")
case("null result", run(end=finish(result=None)), "null-converted")
case("null outcome", run(end=finish(outcome=None)), "null-converted")
case("null parentMessageId", run({**call(parent=None)[0], "parentMessageId": None}, call()[1:]), "null-converted")
case("null parentMessageId of a chunk", run(
    ev("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="tool", parentMessageId=None)), "null-converted")  # fmt: skip
case("null result of a subagent", run(sub("STARTED"), sub("FINISHED", result=None)), "null-converted")
case("null outcome of a subagent", run(sub("STARTED"), sub("FINISHED", outcome=None)), "null", "10")
case("null metadata of an image", run(snapshot(user(content=[image(URL, metadata=None)]))), "null-converted")
case("nulls in an echoed input", run(start=started(input={
    "threadId": "t", "runId": "r", "messages": [], "context": [], "forwardedProps": None,
    "tools": [{"name": "x", "description": "", "parameters": None}],
    "resume": [{"interruptId": "i", "status": "resolved", "payload": None}]})), "null-converted")  # fmt: skip
case("an unknown field", run(text(colour="red")), "unknown-field")
case("an unknown field named like a JavaScript method", run(text(constructor=1)), "unknown-field")
case("an unknown field in usage", run(end=finish(usage=[{"tokens": 1}])), "unknown-field")
case(
    "an unknown field in an outcome",
    run(end=finish(outcome={"type": "success", "interrupts": []})),
    "unknown-field",
    "0",
)
case("an unknown role", run(snapshot(user(), {"id": "x", "role": "critic", "content": "no"})), "unknown-member", "0")
case("an unknown part", run(snapshot(user(content=[{"type": "smell", "text": "x"}]))), "unknown-member", "0")
case("an unknown source", run(snapshot(user(content=[image({"type": "disk", "value": "x"})]))), "unknown-member", "0")
for _name, _delta, _rejected in [
    ("that is an object", {}, "10"),
    ("with a bad pointer", [{"op": "add", "path": "a", "value": 1}], "1"),
    ("with a bad escape", [{"op": "add", "path": "/a~2", "value": 1}], "1"),
    ("whose pointer is a number", [{"op": "remove", "path": 3}], "1"),
    ("without a value", [{"op": "add", "path": "/a"}], "1"),
    ("without a from", [{"op": "move", "path": "/a"}], "1"),
    ("with an unknown op", [{"op": "append", "path": "/a", "value": 1}], ""),
    ("of strings", ["add"], "1"),
]:
    case(f"a patch {_name}", run(ev("STATE_DELTA", delta=_delta)), "json-patch", _rejected)
case("an activity patch that is null", run(
    activity(), ev("ACTIVITY_DELTA", messageId="a", activityType="plan", patch=None)), "json-patch", "10")  # fmt: skip
case("activity content that is a list", run(activity(content=[])), "activity-content", "10")
case("activity content that is a string", run(activity(content="x")), "activity-content", "10")
case("an outcome that is a string", run(end=finish(outcome="success")), "outcome", "10")
case("an unknown outcome", run(end=finish(outcome={"type": "error"})), "outcome", "0")
case("no interrupts", run(end=finish(outcome={"type": "interrupt", "interrupts": []})), "outcome", "10")
case("an interrupt without a reason", run(end=finish(outcome={"type": "interrupt", "interrupts": [{"id": "i"}]})),
     "outcome", "10")  # fmt: skip
case("a responseSchema that is true", run(end=finish(outcome={"type": "interrupt", "interrupts": [
    interrupt(responseSchema=True)]})), "outcome", "10")  # fmt: skip
case(
    "an unknown outcome of a subagent", run(sub("STARTED"), sub("FINISHED", outcome={"type": "tired"})), "outcome", "0"
)
case("usage that is an object", run(end=finish(usage={"inputTokens": 1})), "usage", "10")
case("usage with a negative count", run(end=finish(usage=[{"inputTokens": -1}])), "usage", "10")
case("usage with a fraction", run(end={**ERROR, "usage": [{"inputTokens": 1.5}]}), "usage", "10")

# Runs
case("no RUN_STARTED", [*text(), FINISH], "first-event", "10")
case("CUSTOM before RUN_STARTED", [ev("CUSTOM", name="hermes.x", value=1), *run()], "first-event run-active", "10")
case("RUN_STARTED in a run", [START, *run(start=started(runId="r2"), end=finish(runId="r2"))], "run-active", "10")
case("an event after RUN_ERROR", [*run(end=ERROR), ev("CUSTOM", name="hermes.x", value=1)], "after-error", "10")
case("a second RUN_ERROR", [*run(end=ERROR), ERROR], "after-error", "10")
case("RUN_FINISHED after RUN_ERROR", [*run(end=ERROR), FINISH], "after-error", "10")
case("a second RUN_FINISHED", [*run(), FINISH], "after-finish", "10")
case("state after RUN_FINISHED", [*run(), ev("STATE_SNAPSHOT", snapshot={})], "after-finish", "10")
case("CUSTOM after RUN_FINISHED", [*run(), ev("CUSTOM", name="hermes.x", value=1)], "after-finish", "10")
case("no terminal event", run(text(), end=None), "truncated")
case("cut within a message", run(text()[:2], end=None), "truncated")
case("nothing", "", "empty-stream")
case("only comments", ": keep-alive\n\n: keep-alive\n\n", "empty-stream")
case("RUN_FINISHED of another run", run(end=finish(runId="other")), "wrong-run")
case("RUN_FINISHED of another thread", run(end=finish(threadId="other")), "wrong-thread")
case("a second run on another thread", [*run(), *run(
    start=started(threadId="t2", runId="r2"), end=finish(threadId="t2", runId="r2"))], "wrong-thread")  # fmt: skip
case("an echoed input of another run", run(start=started(input={
    "threadId": "t2", "runId": "r2", "messages": [], "tools": [], "context": []})),
    "wrong-run wrong-thread")  # fmt: skip
case("a run id twice", [*run(), *run()], "run-id-reused")
case("no version", run(start=ev("RUN_STARTED", threadId="t", runId="r")), "version", peer_rules="")
case("a newer version", run(start=started(protocolVersion="1.1")), "version")
case("a version that cannot be read", run(start=started(protocolVersion="1.0.0")), "version")
case("an older version", run(start=started(protocolVersion="0.9")))
case("an empty error", run(end={**ERROR, "message": ""}), "empty-error")

# What is open
case("a text message started twice", run(text()[:1], text()), "start-open", "10")
case("a tool call started twice", run(call()[:1], call()), "start-open", "10")
case("a reasoning message started twice", run(reasoning()[1:2], reasoning()[1:4]), "start-open", "1")
case("a reasoning span started twice", run(reasoning()[:1], reasoning()), "start-open", "1")
case("a step started twice", run(ev("STEP_STARTED", stepName="x"), ev("STEP_STARTED", stepName="x"),
                                 ev("STEP_FINISHED", stepName="x")), "start-open", "10")  # fmt: skip
case("text without a start", run(text()[1:2]), "not-open", "10")
case("text after its end", run(text(), text()[1:2]), "not-open", "10")
case("an end without a start", run(text()[2:]), "not-open", "10")
case("arguments without a start", run(call()[1:2]), "not-open", "10")
case("a call's end without a start", run(call()[2:]), "not-open", "10")
case("a call's end twice", run(call(), call()[2:]), "not-open", "10")
case("reasoning without a start", run(reasoning()[2:3]), "not-open", "1")
case("a reasoning message's end without a start", run(reasoning()[3:4]), "not-open", "1")
case("a reasoning span's end without a start", run(reasoning()[4:]), "not-open", "1")
case("a step finished without a start", run(ev("STEP_FINISHED", stepName="x")), "not-open", "10")
case("an open text message at the end", run(text()[:2]), "open-at-finish", "10")
case("an open tool call at the end", run(call()[:2]), "open-at-finish", "10")
case("an open step at the end", run(ev("STEP_STARTED", stepName="x")), "open-at-finish", "10")
case("an open reasoning message at the end", run(reasoning()[:3], reasoning()[4:]), "open-at-finish", "1")
case("an open reasoning span at the end", run(reasoning()[:4]), "open-at-finish", "1")
case("an open subagent at the end", run(sub("STARTED")), "open-at-finish", "10")
case("a step finished by another", run(
    ev("STEP_STARTED", stepName="x"), ev("STEP_FINISHED", stepName="x", subagentRunId="s")),
    "step-owner open-at-finish", "10")  # fmt: skip

# Subagents
case("a continuation by another subagent", run(text(subagentRunId="s")[:1], text(subagentRunId="s2")[1:2], text()[2:]),
     "attribution", "10")  # fmt: skip
case("a tagged continuation of the parent's message", run(text()[:1], text(subagentRunId="s")[1:]), "attribution", "10")
case(
    "a call under another owner's message",
    run(text("p", subagentRunId="s"), call(subagentRunId="s2")),
    "attribution",
    "10",
)
case("a message reopened by another", run(text(subagentRunId="s"), text(subagentRunId="s2")),
     "attribution message-reopened", "10")  # fmt: skip
case("a snapshot's message reopened by another", run(snapshot({"id": "m", "role": "assistant", "content": ""}),
     text(subagentRunId="s")), "attribution", "10")  # fmt: skip
case("an encrypted value of another", run(text(subagentRunId="s"), ev("REASONING_ENCRYPTED_VALUE", subtype="message",
     entityId="m", encryptedValue="x", subagentRunId="s2")), "attribution", "10")  # fmt: skip
case("an activity's delta by another", run(activity(), ev(
    "ACTIVITY_DELTA", messageId="a", activityType="plan", patch=[], subagentRunId="s")),
    "attribution", "10")  # fmt: skip
case("a subagent started twice", run(sub("STARTED"), sub("STARTED"), sub("FINISHED")), "subagent-restarted", "10")
case("a subagent restarted", run(sub("STARTED"), sub("FINISHED"), sub("STARTED"), sub("FINISHED")),
     "subagent-restarted", "10")  # fmt: skip
case("a subagent that ends unstarted", run(sub("FINISHED")), "subagent-not-open", "10")
case("a subagent that ends twice", run(sub("STARTED"), sub("FINISHED"), sub("ERROR")), "subagent-not-open", "10")
case("an unknown parent", run(sub("STARTED", parentSubagentRunId="x"), sub("FINISHED")), "subagent-parent", "10")
case("a subagent announced late", run(text(subagentRunId="s"), sub("STARTED"), sub("FINISHED")), "subagent-late")
case("an event of an ended subagent", run(sub("STARTED"), sub("FINISHED"), text(subagentRunId="s")), "subagent-ended")

# Chunks
case("a first text chunk without id", run(ev("TEXT_MESSAGE_CHUNK", delta="x")), "chunk-first", "10")
case("a first tool chunk without name", run(ev("TOOL_CALL_CHUNK", toolCallId="c", delta="x")), "chunk-first", "10")
case("a first reasoning chunk without id", run(ev("REASONING_MESSAGE_CHUNK", delta="x")), "chunk-first", "10")
for _name, _between in {
    "CUSTOM": ev("CUSTOM", name="hermes.x", value=1),
    "STATE_SNAPSHOT": ev("STATE_SNAPSHOT", snapshot={}),
    "STEP_STARTED": ev("STEP_STARTED", stepName="x"),
}.items():
    case(f"a chunk without id after {_name}", run(
        ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"), _between, ev("TEXT_MESSAGE_CHUNK", delta="b"), end=ERROR),
        "chunk-first", "10")  # fmt: skip
case("tool chunks that alternate without name", run(
    ev("TOOL_CALL_CHUNK", toolCallId="c1", toolCallName="x", parentMessageId="p"),
    ev("TOOL_CALL_CHUNK", toolCallId="c2", toolCallName="x", parentMessageId="p"),
    ev("TOOL_CALL_CHUNK", toolCallId="c1", delta="{}")), "chunk-first", "10")  # fmt: skip
case("a chunk with another role", run(ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"),
     ev("TEXT_MESSAGE_CHUNK", role="user", delta="b")), "chunk-mismatch", "1")  # fmt: skip
case("a chunk with another parent", run(
    ev("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="x", parentMessageId="p"),
    ev("TOOL_CALL_CHUNK", parentMessageId="p2", delta="{}")), "chunk-mismatch", "1")  # fmt: skip
case("an ambiguous chunk", run(
    ev("TEXT_MESSAGE_CHUNK", messageId="m1", delta="a", subagentRunId="s1"),
    ev("TEXT_MESSAGE_CHUNK", messageId="m2", delta="b", subagentRunId="s2"),
    ev("TEXT_MESSAGE_CHUNK", delta="c")), "chunk-ambiguous", "10")  # fmt: skip
case("a chunk of another subagent", run(
    ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a", subagentRunId="s"),
    ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="b", subagentRunId="s2")), "attribution", "10")  # fmt: skip
case(
    "a chunk, then an explicit end",
    run(ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"), text()[2:]),
    "chunk-mixed",
    "10",
)
case("an explicit start, then a chunk", run(text()[:1], ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a")),
     "chunk-mixed", "10")  # fmt: skip
case("chunks cut at the end", run(ev("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"), end=None), "truncated")

# What the client builds
case("a message started again", run(text(), text()), "message-reopened")
case("text on the user's message", run(snapshot(user("m")), text()), "id-shared")
case("a tool call started again", run(call(), call()), "call-reopened")
case("a tool call of an earlier run started again", run(call()), "call-reopened", known_calls=("c",))
case("a tool call under another name", run(call(), call(name="other")), "call-reopened call-renamed")
case("parallel calls without a parent", run(call("c1", None), call("c2", None)), "calls-without-parent")
case("calls without a parent, one after another", run(call("c1", None), result("c1", "r1"), call("c2", None)))
case("a user's message as parent", run(snapshot(user("p")), call()), "parent-role")
case("a result for an unknown call", run(result("x")), "result-unknown-call")
case("a result before the end", run(call()[:2], result(), call()[2:]), "result-before-end")
case("a result twice", run(call(), result(), result(message="res2")), "result-twice")
case("a result with a message's id", run(call(), result(message="p")), "id-shared")
case("reasoning with a text's id", run(text("x"), reasoning("x")), "id-shared")
case("text with an activity's id", run(activity("m"), text()), "activity-id")
case("reasoning with an activity's id", run(activity("m"), reasoning("m")), "activity-id")
case("an activity with a text's id", run(text(), activity("m")), "activity-id")
case("an activity's delta on a text", run(text(), ev("ACTIVITY_DELTA", messageId="m", activityType="plan", patch=[])),
     "activity-id")  # fmt: skip
case("a snapshot without the open message", run(text()[:2], snapshot(), text()[1:]), "snapshot-drops-open")
case("a snapshot without the open call", run(call()[:2], snapshot(), call()[1:]), "snapshot-drops-open")
case("a snapshot without the open reasoning, but another", run(
    reasoning()[1:3], snapshot({"id": "z", "role": "reasoning", "content": ""}), reasoning()[2:4]),
    "snapshot-drops-open")  # fmt: skip
case("a snapshot in reasoning", run(reasoning()[1:3], snapshot(), reasoning()[2:4]))
case("a snapshot with the open message", run(
    text()[:2], snapshot({"id": "m", "role": "assistant", "content": "hello"}), text()[1:]))  # fmt: skip
case("a snapshot with an id twice", run(snapshot(user(), user())), "snapshot-duplicate-id")
case("an encrypted value for nothing", run(ev("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="x",
                                              encryptedValue="x")), "encrypted-unknown")  # fmt: skip
for _name, _ops, _state in [
    ("replaces what is not there", [{"op": "replace", "path": "/a", "value": 1}], {}),
    ("removes what is not there", [{"op": "remove", "path": "/a"}], {}),
    ("has no parent", [{"op": "add", "path": "/a/b", "value": 1}], {}),
    ("goes beyond the end", [{"op": "add", "path": "/a/2", "value": 1}], {"a": [1]}),
    ("has a negative index", [{"op": "replace", "path": "/a/-1", "value": 1}], {"a": [1]}),
    ("has a padded index", [{"op": "replace", "path": "/a/00", "value": 1}], {"a": [1]}),
    ("replaces the end", [{"op": "replace", "path": "/a/-", "value": 1}], {"a": [1]}),
    ("has a name for an index", [{"op": "add", "path": "/a/x", "value": 1}], {"a": [1]}),
    ("fails its test", [{"op": "test", "path": "/a", "value": 2}], {"a": 1}),
    ("tests true against 1", [{"op": "test", "path": "/a", "value": True}], {"a": 1}),
    ("moves what is not there", [{"op": "move", "from": "/a", "path": "/b"}], {}),
    ("copies what is not there", [{"op": "copy", "from": "/a", "path": "/b"}], {}),
    ("writes the prototype", [{"op": "add", "path": "/__proto__/x", "value": 1}], {}),
    ("meets a null state", [{"op": "add", "path": "/a", "value": 1}], None),
    ("meets a string state", [{"op": "add", "path": "/a", "value": 1}], "text"),
    ("fails in its second operation", [*OPS, {"op": "remove", "path": "/b"}], {}),
]:
    case(
        f"a delta that {_name}",
        run(ev("STATE_SNAPSHOT", snapshot=_state), ev("STATE_DELTA", delta=_ops)),
        "state-delta",
    )
case("a delta after a failed one", run(
    ev("STATE_DELTA", delta=[*OPS, {"op": "remove", "path": "/b"}]),
    ev("STATE_DELTA", delta=[{"op": "remove", "path": "/a"}])), "state-delta")  # fmt: skip
case("an activity's delta that fails", run(activity(), ev("ACTIVITY_DELTA", messageId="a", activityType="plan", patch=[
    {"op": "remove", "path": "/x"}])), "activity-delta")  # fmt: skip
case("an activity that becomes a list", run(activity(), ev("ACTIVITY_DELTA", messageId="a", activityType="plan", patch=[
    {"op": "replace", "path": "", "value": []}])), "activity-delta")  # fmt: skip
case("an activity's delta first", run(ev("ACTIVITY_DELTA", messageId="a", activityType="plan", patch=[])),
     "activity-delta-first")  # fmt: skip

# How a run ends
case("two interrupts with one id", run(end=finish(outcome={
    "type": "interrupt", "interrupts": [interrupt(), interrupt()]})), "interrupt-duplicate")  # fmt: skip
case("an interrupt for an unknown call", run(end=finish(outcome={"type": "interrupt", "interrupts": [
    interrupt(toolCallId="x")]})), "interrupt-call")  # fmt: skip
case("an interrupt for a call of an earlier run", run(end=finish(outcome={"type": "interrupt", "interrupts": [
    interrupt(toolCallId="x")]})), known_calls=("x",))  # fmt: skip
case("an expiry that is no date", run(end=finish(outcome={"type": "interrupt", "interrupts": [
    interrupt(expiresAt="tomorrow")]})), "interrupt-expiry")  # fmt: skip


def pending(*calls: str) -> Event:
    return finish(outcome={"type": "success", "pendingToolCallIds": list(calls)})


case(
    "pending calls",
    run(call("c1"), call("c2"), call("c3"), result("c2"), end=pending("c1", "c3")),
    "",
    "0",
    "peer-pending",
)
case("pending calls with one of an earlier run", run(call(), end=pending("old", "c")), "", "0", "peer-pending",
     known_calls=("old",))  # fmt: skip
case("a pending call that nobody made", run(end=pending("x")), "pending-calls", "0", "pending-calls peer-pending")
case("a pending call that is answered", run(call(), result(), call("d"), end=pending("c", "d")), "pending-calls", "0",
     "pending-calls peer-pending")  # fmt: skip
case(
    "a pending call left out",
    run(call(), call("d"), end=pending("c")),
    "pending-calls",
    "0",
    "pending-calls peer-pending",
)
case("pending calls out of order", run(call(), call("d"), end=pending("d", "c")), "pending-calls", "0",
     "pending-calls peer-pending")  # fmt: skip
case("cancelled", run(text(), end=finish(outcome={"type": "cancelled"})), "", "0", "peer-cancelled")
case("cancelled with a result", run(end=finish(outcome={"type": "cancelled"}, result=1)), "cancelled-result", "0",
     "cancelled-result peer-cancelled")  # fmt: skip
case(
    "a total that is no sum",
    run(end=finish(usage=[{"inputTokens": 1, "outputTokens": 2, "totalTokens": 4}])),
    "usage-sum",
)
case("a part larger than its whole", run(end=finish(usage=[{"inputTokens": 1, "cachedInputTokens": 2}])), "usage-sum")
case("a model twice", run(end=finish(usage=[{"model": "m"}, {"model": "m"}])), "usage-duplicate")

# An older peer
case("a result of parts", run(call(), result(content=[{"type": "text", "text": "x"}])), "", "0", "peer-parts")
case("a tool message of parts", run(snapshot({"id": "x", "role": "tool", "toolCallId": "c", "content": []})), "", "0",
     "peer-parts")  # fmt: skip
case("a file source", run(snapshot(user(content=[image({"type": "file", "value": "x"})]))), "", "0", "peer-file-source")
case("an echoed input without tools", run(start=started(input={
    "threadId": "t", "runId": "r", "messages": [user()]})), "", "0", "peer-input")  # fmt: skip
