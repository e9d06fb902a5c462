"""StreamEvents → OpenAI's two APIs: the translators alone, on scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agui_adapter.errors import AguiError
from agui_adapter.rest.chunks import DONE, ChatStream, completion
from agui_adapter.rest.response_stream import ResponseStream
from agui_adapter.rest.seen import HIDDEN, Sight
from agui_adapter.results import collect
from agui_adapter.stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    ReasoningChunk,
    ReasoningStart,
    ReasoningStop,
    Request,
    StreamEvent,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)
from tests import strategies

PLAIN = Sight()
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOLS: list[StreamEvent] = [
    GatewayNotice("notice", "beside"),
    ReasoningStart("r1"),
    ReasoningChunk("I think. "),
    ReasoningChunk("More."),
    ReasoningStop(),
    MessageStart("m1"),
    MessageChunk("Look"),
    MessageChunk("ing."),
    MessageStop(final=False),
    ToolCall("terminal", call_id="c1", arguments='{"a": 1}', message_id="m1"),
    ToolResult("terminal", call_id="c1", content="out", message_id="t1"),
    MessageStart("m2"),
    MessageChunk("Done."),
    Usage("p", "m", 10, 5, 2, 4),
    TurnFinished(),
]
PARKED: list[StreamEvent] = [
    MessageStart("m1"),
    MessageChunk("Yours:"),
    MessageStop(final=False),
    ToolCall("chart", call_id="c1", arguments="{}", message_id="m1", client=True),
    ToolCall("chart", call_id="c2", arguments="{}", message_id="m1", client=True),
    TurnParked((Request("q1", "client_tool", call_id="c1"), Request("q2", "client_tool", call_id="c2"))),
]


def chat(events: list[StreamEvent], sight: Sight = PLAIN, *, usage: bool = False) -> list[Any]:
    """The chunks of a stream, each as the SDK takes it; it ends with ``[DONE]`` once."""
    stream = ChatStream("chatcmpl-1", "m", 1, sight, usage=usage)
    frames = stream.start() + [frame for event in events for frame in stream.feed(event)]
    assert frames[-1] == DONE and frames.count(DONE) == 1 and stream.done
    assert stream.feed(MessageChunk("late")) == [] and stream.fail(AguiError(500, "x", "y")) == []
    found = []
    for frame in frames[:-1]:
        data = json.loads(frame.partition(b"data: ")[2])
        if not frame.startswith(b"event:") and "error" not in data:
            ChatCompletionChunk.model_validate(data)
        found.append(data)
    return found


def said(chunks: list[Any]) -> str:
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one.get("choices"))


def plain(events: list[StreamEvent], sight: Sight = PLAIN) -> dict[str, Any]:
    made = completion("chatcmpl-1", "m", 1, collect(events), sight)
    ChatCompletion.model_validate(made)
    return made


def response(events: list[StreamEvent], sight: Sight = PLAIN) -> tuple[list[Any], dict[str, Any]]:
    """The events of a streamed response, each as the SDK takes it, and the response itself."""
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True}
    stream = ResponseStream({**base, "tool_choice": "auto", "tools": []}, sight)
    frames = stream.start() + [frame for event in events for frame in stream.feed(event)]
    assert stream.done and stream.feed(MessageChunk("late")) == []
    found = []
    for frame in filter(None, frames):
        head, _, data = frame.decode().partition("\ndata: ")
        event = json.loads(data)
        assert head == f"event: {event['type']}"
        EVENT.validate_python(event)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    Response.model_validate(stream.response())
    return found, stream.response()


class TestChat:
    def test_the_answer_alone(self) -> None:
        chunks = chat(TOOLS, usage=True)
        assert said(chunks) == "Looking.\n\nDone."
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        assert not any("tool_calls" in json.dumps(one) or "reasoning_content" in json.dumps(one) for one in chunks)
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop" and chunks[-2]["usage"] is None
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == 15
        assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
        whole = plain(TOOLS)
        assert whole["choices"][0]["message"]["content"] == "Done." and whole["usage"] == chunks[-1]["usage"]
        assert "usage" not in chat(TOOLS)[0]

    def test_tools_in_sight(self) -> None:
        chunks = chat(TOOLS, Sight("transparent"))
        (call,) = [one for chunk in chunks for one in chunk["choices"][0]["delta"].get("tool_calls", [])]
        assert (call["id"], call["function"]) == ("c1", {"name": "terminal", "arguments": '{"a": 1}'})
        (result,) = [one for chunk in chunks for one in chunk["choices"][0]["delta"].get("tool_results", [])]
        assert result == {"role": "tool", "tool_call_id": "c1", "content": "out"}
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert [one["role"] for one in plain(TOOLS, Sight("transparent"))["hermes"]["messages"]] == [
            "assistant",
            "tool",
            "assistant",
        ]

    def test_the_operator_hides_them(self) -> None:
        names = json.dumps(chat(TOOLS, Sight("transparent", "names")))
        assert "terminal" in names and HIDDEN in names and '"out"' not in names
        assert "terminal" not in json.dumps(chat(TOOLS, Sight("transparent", "off")))
        assert "terminal" not in json.dumps(plain(TOOLS, Sight("transparent", "off")))
        own = chat(PARKED, Sight("opaque", "off"))
        assert json.dumps(own).count('"chart"') == 2

    def test_progress_as_hermes_tells_it(self) -> None:
        told = [one for one in chat(TOOLS, Sight("progress")) if "toolCallId" in one]
        assert [(one["tool"], one["status"]) for one in told] == [("terminal", "running"), ("terminal", "completed")]

    @pytest.mark.parametrize(
        ("reasoning", "shown"), [("full", "I think. More."), ("summary", "I think. More."), ("off", "")]
    )
    def test_reasoning(self, reasoning: Any, shown: str) -> None:
        sight = Sight(reasons=True, reasoning=reasoning)
        deltas = [one["choices"][0]["delta"].get("reasoning_content", "") for one in chat(TOOLS, sight)]
        assert "".join(deltas) == shown
        assert plain(TOOLS, sight)["choices"][0]["message"].get("reasoning_content", "") == shown
        assert "reasoning_content" not in plain(TOOLS)["choices"][0]["message"]

    def test_calls_of_the_client(self) -> None:
        chunks = chat(PARKED)
        calls = [one for chunk in chunks for one in chunk["choices"][0]["delta"].get("tool_calls", [])]
        assert [(one["index"], one["id"]) for one in calls] == [(0, "c1"), (1, "c2")]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
        (choice,) = plain(PARKED)["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Yours:"
        assert [one["id"] for one in choice["message"]["tool_calls"]] == ["c1", "c2"]
        assert plain(PARKED[3:])["choices"][0]["message"]["content"] is None

    def test_a_question_is_told_in_words(self) -> None:
        asked: list[StreamEvent] = [TurnParked((Request("q", "clarify", "Which one?"),))]
        assert "Which one?" in said(chat(asked)) and "Which one?" in plain(asked)["choices"][0]["message"]["content"]

    def test_failures(self) -> None:
        failed: list[StreamEvent] = [
            MessageStart("m"),
            MessageChunk("x"),
            TurnFinished("failed", "provider_auth", "No."),
        ]
        error = chat(failed)[-1]["error"]
        assert (error["code"], error["message"], error["type"]) == ("provider_auth", "No.", "server_error")
        with pytest.raises(AguiError) as raised:
            plain(failed)
        assert (raised.value.status, raised.value.code) == (502, "provider_auth")
        with pytest.raises(AguiError) as limited:
            plain([TurnFinished("failed", "provider_rate_limit", "Slow.")])
        assert limited.value.status == 429

    def test_texts_that_come_otherwise(self) -> None:
        events: list[StreamEvent] = [
            MessageStart("m1"),
            Commentary("Whole."),
            MessageStart("m2"),
            MessageChunk("Cut"),
            MessageRevised("m2", "Cut and more"),
            Attachment("m3", "f", "http://h/files/1", "a.png", kind="image"),
            MessageRevised("m2", "changed"),
            TurnFinished("cancelled"),
        ]
        assert said(chat(events)) == "Whole.\n\nCut and more\n\n![a.png](http://h/files/1)"

    def test_half_a_surrogate_pair(self) -> None:
        events: list[StreamEvent] = [
            MessageStart("m"),
            MessageChunk("a\ud83d"),
            MessageChunk("\udc4bb"),
            TurnFinished(),
        ]
        assert said(chat(events)) == "a👋b"


class TestResponses:
    def test_the_answer_alone(self) -> None:
        events, made = response(TOOLS)
        assert [item["type"] for item in made["output"]] == ["message", "message"]
        assert [item["content"][0]["text"] for item in made["output"]] == ["Looking.", "Done."]
        assert made["usage"]["total_tokens"] == 15 and made["status"] == "completed"
        assert events[-1]["response"] == made
        added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        assert added == [0, 1]

    def test_everything_in_sight(self) -> None:
        events, made = response(TOOLS, Sight("transparent", reasons=True))
        assert [item["type"] for item in made["output"]] == ["reasoning", "message", "mcp_call", "message"]
        reasoning, _, call, _ = made["output"]
        assert reasoning["summary"] == [{"type": "summary_text", "text": "I think. More."}]
        assert (call["name"], call["arguments"], call["output"], call["status"]) == (
            "terminal",
            '{"a": 1}',
            "out",
            "completed",
        )
        kinds = [event["type"] for event in events]
        assert kinds.index("response.reasoning_summary_text.done") < kinds.index("response.output_text.delta")

    def test_calls_of_the_client(self) -> None:
        events, made = response(PARKED)
        assert [item["type"] for item in made["output"]] == ["message", "function_call", "function_call"]
        assert [item["call_id"] for item in made["output"][1:]] == ["c1", "c2"] and made["status"] == "completed"
        done = [event for event in events if event["type"] == "response.function_call_arguments.done"]
        assert [event["name"] for event in done] == ["chart", "chart"]

    def test_ends(self) -> None:
        events, made = response([MessageStart("m"), MessageChunk("x"), TurnFinished("failed", "provider_auth", "No.")])
        assert events[-1]["type"] == "response.failed" and made["error"]["message"] == "No."
        assert made["output"][0]["content"][0]["text"] == "x"
        events, made = response([TurnFinished("cancelled")])
        assert made["status"] == "cancelled"

    def test_corrections_are_in_the_response(self) -> None:
        _, made = response(
            [MessageStart("m"), MessageChunk("a"), MessageStop(final=False), MessageRevised("m", "b"), TurnFinished()]
        )
        assert made["output"][0]["content"][0]["text"] == "b"

    def test_a_resumed_stream(self) -> None:
        events, _ = response(TOOLS)
        stream = ResponseStream({"id": "resp_1"}, Sight(), after=4)
        frames = [frame for event in TOOLS for frame in stream.feed(event)] if stream.start() == [] else []
        numbers = [json.loads(frame.partition(b"data: ")[2])["sequence_number"] for frame in filter(None, frames)]
        assert numbers == list(range(5, len(events)))


@settings(max_examples=100, deadline=None)
@given(strategies.scripts, strategies.ends)
def test_any_script_ends_once_in_the_form_that_the_sdk_takes(script: list[StreamEvent], end: StreamEvent) -> None:
    sight = Sight("transparent", reasons=True)
    chat([*script, end], sight)
    _, made = response([*script, end], sight)
    assert made["status"] in ("completed", "cancelled", "failed")
    assert all(item["status"] in ("completed", "in_progress", "failed") for item in made["output"])
