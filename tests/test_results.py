"""What a stretch of a turn came to: events folded into a whole."""

from __future__ import annotations

from agui_adapter.results import collect
from agui_adapter.stream import (
    Attachment,
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageRevised,
    MessageStart,
    ReasoningChunk,
    ReasoningStart,
    Request,
    RequestClosed,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)


def test_the_answer_is_what_was_said_behind_the_servers_own_tools() -> None:
    result = collect(
        [
            MessageStart("m1"),
            MessageChunk("Let me "),
            MessageChunk("look."),
            ToolCall("terminal", call_id="c1", arguments='{"a":1}', message_id="m1"),
            ToolResult("terminal", call_id="c1", content="out", status="error", cut=3),
            Usage("p", "m", 10, 5, reasoning_tokens=2, cached_input_tokens=4),
            MessageStart("m2"),
            MessageChunk("It is "),
            MessageChunk("done.\n"),
            Usage("p", "m2", 20, None),
            TurnFinished(),
        ]
    )
    assert result.text == "It is done."
    assert [(one.id, one.text, one.calls) for one in result.messages] == [
        ("m1", "Let me look.", ["c1"]),
        ("m2", "It is done.\n", []),
    ]
    (call,) = result.calls
    assert (call.name, call.arguments, call.result, call.status, call.cut) == ("terminal", '{"a":1}', "out", "error", 3)
    tokens = result.tokens
    assert (tokens.input, tokens.output, tokens.total, tokens.reasoning, tokens.cached) == (30, 5, 35, 2, 4)
    assert (tokens.model, tokens.calls, result.outcome) == ("m2", 2, "success")


def test_without_a_word_behind_the_tools_all_that_was_said_is_the_answer() -> None:
    result = collect([MessageStart("m1"), MessageChunk("Done soon."), ToolCall("x", call_id="c", message_id="m1")])
    assert (result.text, result.outcome) == ("Done soon.", "running")


def test_parked_on_a_client_tool_the_answer_is_what_was_said_with_the_call() -> None:
    request = Request("q1", "client_tool", call_id="c2")
    events = [
        MessageStart("m1"),
        MessageChunk("Server first."),
        ToolCall("terminal", call_id="c1", message_id="m1"),
        ToolResult("terminal", call_id="c1", content="1"),
        MessageStart("m2"),
        MessageChunk("Now yours."),
        ToolCall("chart", call_id="c2", message_id="m2", client=True),
        TurnParked((request,)),
    ]
    result = collect(events)
    assert (result.outcome, result.text, [call.id for call in result.open_calls]) == ("parked", "Now yours.", ["c2"])
    again = collect([*events, RequestClosed("q1", "answered"), TurnFinished("failed", "x", "why")])
    assert (again.outcome, again.code, again.message, again.requests) == ("failed", "x", "why", ())
    assert collect([*events, RequestClosed("q1", "answered")]).outcome == "running"


def test_a_stretch_behind_a_wait_brings_results_of_calls_before_it() -> None:
    result = collect([ToolResult("chart", call_id="c2", content="seen", client=True), TurnFinished()])
    assert [(call.id, call.name, call.result) for call in result.calls] == [("c2", "chart", "seen")]


def test_corrections_complete_texts_files_and_reasoning() -> None:
    file = Attachment("m3", "f", "http://h/files/1", "a.png", kind="image", caption="A")
    result = collect(
        [
            ReasoningStart("r1"),
            ReasoningChunk("hm"),
            ReasoningStart("r2"),
            ReasoningChunk("so"),
            MessageStart("m1"),
            MessageChunk("void"),
            MessageRevised("m1", ""),
            MessageStart("m2"),
            Commentary("Whole."),
            GatewayNotice("notice", "beside"),
            file,
            TurnFinished("cancelled"),
        ]
    )
    assert result.reasoning == "hm\n\nso"
    assert result.text == "Whole.\n\n![a.png](http://h/files/1)\n\nA"
    assert (result.attachments, [one.text for one in result.notices]) == ([file], ["beside"])
    assert result.outcome == "cancelled"
