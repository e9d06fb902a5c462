"""What one run shows of a turn: text, reasoning, tools, corrections, and that it equals what Hermes keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import history, trimmed
from tests.e2e.dialect import search as search_call
from tests.e2e.helpers import Chat, GatedModel, call, script, unique

# --- text and reasoning


def _hermes() -> str:
    try:
        return version("hermes-agent")
    except PackageNotFoundError:
        return ""


@pytest.fixture(autouse=True)
def a_reload_shows_the_same(chat: Chat) -> Iterator[None]:
    """Whatever was streamed and however it was corrected: the thread's messages are those that its client holds."""
    yield
    if chat.messages and _hermes() == "0.19.0":  # the reference; others are tried with what is marked `compat` alone
        assert trimmed(history(chat)) == trimmed(chat.messages)


@pytest.mark.compat
@pytest.mark.core
def test_deltas_come_before_the_model_has_ended(chat: Chat, model: GatedModel) -> None:
    gate = unique("g")
    run = chat.start(script({"text": f"one two {{gate:{gate}}} three four"}))
    run.wait(lambda run: gate in run.text(), "the text up to the gate")
    assert model.reached(gate)
    assert run.text() == f"one two {{gate:{gate}}} "
    assert len(run.of("TEXT_MESSAGE_CONTENT")) == 3
    assert "TEXT_MESSAGE_END" not in run.types
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert [event["delta"] for event in run.of("TEXT_MESSAGE_CONTENT")][3:] == ["three ", "four"]
    chat.assert_as_transcript()


@pytest.mark.compat
@pytest.mark.core
def test_reasoning_streams_before_text_and_is_closed_by_it(chat: Chat, model: GatedModel) -> None:
    gate = unique("g")
    run = chat.start(script({"reasoning": f"hm, {{gate:{gate}}} yes", "text": "The answer."}))
    run.wait(lambda run: gate in run.reasoning(), "reasoning up to the gate")
    assert run.types[:3] == ["RUN_STARTED", "REASONING_START", "REASONING_MESSAGE_START"]
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert run.reasoning() == f"hm, {{gate:{gate}}} yes"
    assert run.types.index("REASONING_END") < run.types.index("TEXT_MESSAGE_START")
    assert run.texts() == ["The answer."]
    chat.assert_as_transcript()


def test_a_run_names_its_thread_and_itself(chat: Chat) -> None:
    run = chat.say("hello", run_id="my run/1").succeeded()
    assert run.events[0] == {
        "type": "RUN_STARTED",
        "threadId": chat.thread,
        "runId": "my run/1",
        "protocolVersion": "1.0",
    }
    assert run.end["threadId"] == chat.thread
    assert run.end["runId"] == "my run/1"


def test_every_event_has_an_id_of_its_own(chat: Chat) -> None:
    run = chat.say(script({"text": "one two", "tools": [call("terminal", {"command": "echo x"})]})).succeeded()
    ids = [frame.id for frame in run.frames]
    assert len(set(ids)) == len(ids) and "" not in ids
    assert len({one.rpartition(".")[0] for one in ids}) == 1
    # An event of the turn that became several frames: the earlier ones count from the position before it.
    text = run.types.index("TEXT_MESSAGE_CONTENT")
    assert run.types[text - 1] == "TEXT_MESSAGE_START" and ids[text - 1].endswith("-1")


@pytest.mark.compat
@pytest.mark.core
def test_usage_is_on_the_terminal_event(chat: Chat) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    details = usage | {
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    run = chat.say(
        script(
            {"text": "look", "tools": [call("read_file", {"path": "none.txt"})], "usage": usage},
            {"text": "end", "usage": details},
        )
    ).succeeded()
    assert run.end["usage"] == [
        {
            "provider": "custom",
            "model": "scripted-1",
            "inputTokens": 200,
            "outputTokens": 20,
            "totalTokens": 220,
            "cachedInputTokens": 60,
        }
        | ({"reasoningTokens": 4} if _counts_reasoning(details) else {})
    ]


def _counts_reasoning(usage: dict[str, Any]) -> bool:
    """Whether this Hermes reads the reasoning tokens of chat completions; before 0.18 it does not."""
    from agent.usage_pricing import normalize_usage
    from openai.types import CompletionUsage

    return bool(normalize_usage(CompletionUsage.model_validate(usage), api_mode="chat_completions").reasoning_tokens)


@pytest.mark.compat
@pytest.mark.core
def test_text_survives_as_it_is(chat: Chat) -> None:
    text = "a\n\n  b  \n```py\nx = '<b>'\n```\n€ 🌐 \u2028 ‮ end"
    run = chat.say(script({"text": text, "chunk": 1})).succeeded()
    assert run.text() == text
    chat.assert_as_transcript()


def test_inline_thinking_is_not_part_of_the_answer(chat: Chat) -> None:
    run = chat.say(script({"text": "<think>secret plan</think>The answer.", "chunk": 3})).succeeded()
    assert "secret" not in run.text()
    assert run.text().strip() == "The answer."


# --- tools


@pytest.mark.compat
def test_each_tool_step_begins_a_new_message(chat: Chat) -> None:
    run = chat.say(
        script(
            {"text": "First I look.", "tools": [call("terminal", {"command": "echo alpha"}, unique("c"))]},
            {"text": "Then again.", "tools": [call("terminal", {"command": "echo beta"}, unique("c"))]},
            {"text": "All done."},
        )
    ).succeeded()
    assert run.texts() == ["First I look.", "Then again.", "All done."]
    starts = run.of("TEXT_MESSAGE_START", "TOOL_CALL_START", "TOOL_CALL_RESULT")
    assert [event["type"].split("_")[0] for event in starts] == ["TEXT", "TOOL", "TOOL"] * 2 + ["TEXT"]
    texts = [event["messageId"] for event in run.of("TEXT_MESSAGE_START")]
    assert len(set(texts)) == 3
    assert [event["parentMessageId"] for event in run.of("TOOL_CALL_START")] == texts[:2]
    chat.assert_as_transcript()


@pytest.mark.compat
@pytest.mark.core
def test_a_call_has_the_models_id_full_arguments_and_full_result(chat: Chat) -> None:
    call_id = unique("call")
    command = "printf '%s' " + "ä" * 3000
    run = chat.say(script({"tools": [call("terminal", {"command": command}, call_id)]}, {"text": "ok"})).succeeded()
    name, arguments = run.calls()[call_id]
    assert name == "terminal"
    assert json.loads(arguments) == {"command": command}
    assert json.loads(run.results()[call_id])["output"] == "ä" * 3000
    chat.assert_as_transcript()


def test_a_call_without_arguments_has_an_empty_object(chat: Chat) -> None:
    call_id = unique("c")
    run = chat.say(script({"tools": [call("todo", "", call_id)]}, {"text": "ok"})).succeeded()
    assert run.calls()[call_id] == ("todo", "{}")
    assert call_id in run.results()
    chat.assert_as_transcript()


@pytest.mark.compat
def test_a_result_is_there_before_the_next_tool_ends(chat: Chat, gateway: Gateway) -> None:
    first, second = unique("c"), unique("c")
    flag = gateway.work_dir / unique("flag")
    run = chat.start(
        script(
            {
                "tools": [
                    call("terminal", {"command": "echo one"}, first),
                    call("terminal", {"command": f"until [ -e {flag.name} ]; do sleep 0.05; done; echo two"}, second),
                ]
            },
            {"text": "both"},
        )
    )
    run.wait(lambda run: first in run.results(), "the first result while the second call runs")
    assert second not in run.results()
    flag.touch()
    chat.keep(run.finish()).succeeded()
    assert list(run.results()) == [first, second]
    assert len({event["parentMessageId"] for event in run.of("TOOL_CALL_START")}) == 1
    chat.assert_as_transcript()


@pytest.mark.compat
@pytest.mark.core
def test_concurrent_calls_of_one_step(chat: Chat, gateway: Gateway) -> None:
    names = [unique("file") for _ in range(4)]
    for name in names:
        (gateway.work_dir / name).write_text(f"content of {name}\n")
    ids = [unique("c") for _ in names]
    step = {"tools": [call("read_file", {"path": name}, one) for name, one in zip(names, ids, strict=True)]}
    run = chat.say(script(step, {"text": "read"})).succeeded()
    assert list(run.calls()) == ids
    assert set(run.results()) == set(ids)
    for name, one in zip(names, ids, strict=True):
        assert name in run.results()[one]
    assert len({event["parentMessageId"] for event in run.of("TOOL_CALL_START")}) == 1
    chat.assert_as_transcript()


@pytest.mark.compat
def test_a_tool_found_through_tool_search_shows_its_own_name(chat: Chat, model: GatedModel) -> None:
    search, echo = unique("c"), unique("c")
    run = chat.say(
        script(
            {"tools": [search_call("repeat a word", search)]},
            {"tools": [call("tool_call", {"name": "probe_echo", "arguments": {"word": "kumquat"}}, echo)]},
            {"text": "found"},
        )
    ).succeeded()
    offered = {tool["function"]["name"] for tool in model.requests[-1]["tools"]}
    assert "tool_call" in offered and "probe_echo" not in offered
    assert run.calls()[search][0] == "tool_search"
    assert "probe_echo" in run.results()[search]
    assert run.calls()[echo][0] == "probe_echo"
    assert json.loads(run.calls()[echo][1]) == {"word": "kumquat"}
    assert json.loads(run.results()[echo]) == {"echo": "kumquat"}


@pytest.mark.compat
def test_a_call_that_another_plugin_blocks(chat: Chat) -> None:
    blocked, allowed = unique("c"), unique("c")
    run = chat.say(
        script(
            {
                "text": "Two.",
                "tools": [
                    call("terminal", {"command": "echo FORBIDDEN"}, blocked),
                    call("terminal", {"command": "echo fine"}, allowed),
                ],
            },
            {"text": "after"},
        )
    ).succeeded()
    assert "the probe forbids this" in run.results()[blocked]
    assert "fine" in run.results()[allowed]
    assert list(run.calls()) == [blocked, allowed]
    chat.assert_as_transcript()


def test_blocked_calls_of_a_concurrent_step(chat: Chat) -> None:
    ids = [unique("c") for _ in range(3)]
    paths = ["a.txt", "FORBIDDEN.txt", "b.txt"]
    step = {"tools": [call("read_file", {"path": path}, one) for path, one in zip(paths, ids, strict=True)]}
    run = chat.say(script(step, {"text": "after"})).succeeded()
    assert "the probe forbids this" in run.results()[ids[1]]
    assert set(run.results()) == set(ids)
    chat.assert_as_transcript()


def test_tools_that_fail(chat: Chat, model: GatedModel) -> None:
    missing, broken, status = unique("c"), unique("c"), unique("c")
    run = chat.say(
        script(
            {"tools": [call("read_file", {"path": "there/is/no.such"}, missing)]},
            {"tools": [call("tool_call", {"name": "probe_fail", "arguments": {}}, broken)]},
            {"tools": [call("terminal", {"command": "exit 3"}, status)]},
            {"text": "three failures"},
        )
    ).succeeded()
    assert "error" in run.results()[missing]
    assert "the probe tool broke" in run.results()[broken]
    assert json.loads(run.results()[status])["exit_code"] == 3
    assert run.texts() == ["three failures"]
    # No call is left without a result, which providers refuse in the next request.
    chat.say(script({"text": "On."})).succeeded()
    results = [message["tool_call_id"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert results == [missing, broken, status]


@pytest.mark.parametrize("arguments", ["[1]", '"text"', "42", "null"])
def test_arguments_that_are_json_but_no_object(chat: Chat, arguments: str) -> None:
    call_id = unique("c")
    run = chat.say(script({"text": "try", "tools": [call("terminal", arguments, call_id)]}, {"text": "so"})).succeeded()
    assert call_id in run.calls()
    assert call_id in run.results()
    chat.assert_as_transcript()


@pytest.mark.compat
def test_a_made_up_tool_name_alone(chat: Chat) -> None:
    call_id = unique("c")
    run = chat.say(
        script({"text": "I try.", "tools": [call("summon_dragon", {"size": 3}, call_id)]}, {"text": "No dragon."})
    ).succeeded()
    assert run.calls()[call_id] == ("summon_dragon", '{"size": 3}')
    assert "summon_dragon" in run.results()[call_id]
    assert run.texts() == ["I try.", "No dragon."]
    chat.assert_as_transcript()


def test_made_up_names_in_two_steps_in_a_row(chat: Chat) -> None:
    first, second = unique("c"), unique("c")
    run = chat.say(
        script(
            {"tools": [call("summon_dragon", {}, first)]},
            {"tools": [call("summon_dragon", {}, second)]},
            {"text": "No."},
        )
    ).succeeded()
    assert set(run.results()) == {first, second}
    chat.assert_as_transcript()


def test_a_made_up_tool_name_among_real_ones(chat: Chat) -> None:
    good, bad, last = unique("c"), unique("c"), unique("c")
    run = chat.say(
        script(
            {
                "text": "Mixed.",
                "tools": [
                    call("terminal", {"command": "echo real"}, good),
                    call("summon_dragon", {}, bad),
                    call("summon_dragon", {}, unique("dup")),
                    call("terminal", {"command": "echo too"}, last),
                ],
            },
            {"text": "after"},
        )
    ).succeeded()
    assert "real" in run.results()[good]
    assert "summon_dragon" in run.results()[bad]
    assert "too" in run.results()[last]
    chat.assert_as_transcript()


def test_a_tool_name_that_hermes_repairs(chat: Chat) -> None:
    call_id = unique("c")
    run = chat.say(script({"tools": [call("Terminal", {"command": "echo hi"}, call_id)]}, {"text": "ok"})).succeeded()
    assert run.calls()[call_id][0] == "terminal"
    assert "hi" in run.results()[call_id]
    chat.assert_as_transcript()


def test_the_same_call_twice_in_a_step(chat: Chat) -> None:
    first, second = unique("c"), unique("c")
    twice = [call("terminal", {"command": "echo once"}, one) for one in (first, second)]
    run = chat.say(script({"tools": twice}, {"text": "ok"})).succeeded()
    assert list(run.calls()) == [first]
    assert list(run.results()) == [first]
    chat.assert_as_transcript()


def test_a_provider_that_repeats_call_ids(chat: Chat) -> None:
    steps = [{"tools": [call("terminal", {"command": f"echo {word}"}, "call_0")]} for word in ("one", "two")]
    run = chat.say(script(*steps, {"text": "ok"})).succeeded()
    assert len(run.calls()) == 2
    assert ["one" in result or "two" in result for result in run.results().values()] == [True, True]
    again = chat.say(script(steps[0], {"text": "again"})).succeeded()
    assert not set(again.calls()) & set(run.calls())
    chat.assert_as_transcript(ids=False)


def test_a_provider_that_repeats_an_id_within_a_step(chat: Chat) -> None:
    twice = [call("terminal", {"command": f"echo {word}"}, "call_x") for word in ("one", "two")]
    run = chat.say(script({"tools": twice}, {"text": "ok"})).succeeded()
    assert len(run.calls()) == len(run.results()) >= 1
    chat.assert_as_transcript(ids=False)


def test_a_provider_that_leaves_call_ids_out(chat: Chat) -> None:
    two = [call("terminal", {"command": f"echo {word}"}, None) for word in ("one", "two")]
    run = chat.say(script({"tools": two}, {"text": "ok"})).succeeded()
    assert len(run.calls()) == 2
    assert all(call_id for call_id in run.calls())
    one, two = run.results().values()
    assert "one" in one and "two" in two
    chat.assert_as_transcript(ids=False)


# --- providers that stream little or nothing


@pytest.mark.parametrize("how", ["one chunk", "refuses to stream"])
def test_a_provider_that_does_not_stream(chat: Chat, how: str) -> None:
    """One sends all in one chunk. The other says "not supported": Hermes then asks for whole answers."""
    call_id = unique("c")
    first: dict[str, Any] = {"text": "A remark first.", "tools": [call("terminal", {"command": "echo x"}, call_id)]}
    if how == "one chunk":
        first["nostream"] = True
    else:
        first |= {"status": 500, "message": "stream is not supported here", "times": 1}
    run = chat.say(script(first, {"text": "The whole answer.", "nostream": True})).succeeded()
    assert run.texts() == ["A remark first.", "The whole answer."]
    order = [kind for kind in run.types if kind in ("TEXT_MESSAGE_START", "TOOL_CALL_START", "TOOL_CALL_RESULT")]
    assert order == ["TEXT_MESSAGE_START", "TOOL_CALL_START", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START"]
    chat.assert_as_transcript()


# --- what changes after it was streamed


@pytest.mark.compat
def test_text_that_another_plugin_extends(chat: Chat) -> None:
    run = chat.say(script({"text": "Please APPEND here."})).succeeded()
    assert chat.messages[-1]["content"] == "Please APPEND here.\n\n-- added by the probe"
    assert run.text().startswith("Please APPEND here.")


def test_text_that_another_plugin_replaces(chat: Chat) -> None:
    run = chat.say(script({"text": "Please REPLACE this."})).succeeded()
    assert run.text() == "Please REPLACE this."
    assert run.types[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert chat.messages[-1]["content"] == "another text by the probe"
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]


@pytest.mark.compat
@pytest.mark.core
def test_a_stream_cut_in_mid_text_is_a_success(chat: Chat) -> None:
    run = chat.say(script({"text": "one two three four", "cut": 8}, {"text": "three four"})).succeeded()
    assert run.text().count("one") == 1
    chat.assert_as_transcript()


def test_a_stream_cut_in_a_mid_tool_call_is_a_success(chat: Chat) -> None:
    call_id = unique("c")
    cut = {"text": "I look. ", "tools": [call("terminal", {"command": "echo recovered"}, call_id)]}
    run = chat.say(script(cut | {"cut": 20, "times": 1}, {"text": "Seen."})).succeeded()
    assert "recovered" in run.results()[call_id]
    chat.assert_as_transcript()


def test_a_stream_that_is_cut_for_good_in_mid_tool_call(chat: Chat) -> None:
    cut = {"text": "I look. ", "tools": [call("terminal", {"command": "echo never"}, unique("c"))], "cut": 20}
    run = chat.say(script(cut, {"text": "Never mind."}))
    run.succeeded()
    chat.assert_as_transcript()


def test_arguments_that_are_no_json_are_asked_for_again(chat: Chat) -> None:
    """Hermes makes the request again without a word in its history; the client ends up with what the history has."""
    call_id = unique("c")
    broken = call("terminal", '{"command": "echo {broken:2}whole"}', call_id)
    run = chat.say(script({"text": "I will write it.", "tools": [broken]}, {"text": "Done."})).succeeded()
    assert run.text().count("I will write it.") == 3
    assert run.calls() == {call_id: ("terminal", '{"command": "echo whole"}')}
    assert run.types[-2] == "MESSAGES_SNAPSHOT"
    chat.assert_as_transcript()


def test_arguments_that_are_never_json_are_a_failure(chat: Chat) -> None:
    broken = {"text": "I will write it.", "tools": [call("terminal", '{"command": "echo hi', unique("c"))]}
    run = chat.say(script(broken, {"text": "Done."}))
    assert "truncated" in run.failed("incomplete")["message"]
    assert not run.calls()
    chat.assert_as_transcript()
    chat.say(script({"text": "Something else."})).succeeded()
    chat.assert_as_transcript()


def test_an_answer_that_hit_the_token_limit_is_continued(chat: Chat) -> None:
    run = chat.say(script({"text": "first half, ", "finish": "length"}, {"text": "second half"})).succeeded()
    assert run.text().replace("\n", "") == "first half, second half"
    chat.assert_as_transcript()


def test_an_empty_answer_after_a_tool_is_asked_again(chat: Chat) -> None:
    call_id = unique("c")
    run = chat.say(
        script(
            {"text": "I look.", "tools": [call("terminal", {"command": "echo x"}, call_id)]},
            {"text": ""},
            {"text": "There."},
        )
    ).succeeded()
    assert run.texts()[-1] == "There."


# --- beside the answer


@pytest.mark.compat
@pytest.mark.parametrize("command", ["/help", "/status", "/commands"])
def test_the_reply_to_a_slash_command(chat: Chat, model: GatedModel, command: str) -> None:
    run = chat.say(command).succeeded()
    assert run.text().strip()
    assert len(run.texts()) == 1
    assert not run.notices()
    assert "usage" not in run.end


@pytest.mark.compat
def test_nothing_but_the_answer_in_a_new_thread(chat: Chat) -> None:
    """Hermes greets every new chat with a hint about home channels, which is not for a browser."""
    run = chat.say(script({"text": "Just the answer."})).succeeded()
    assert run.text() == "Just the answer."
    assert not run.notices()


def test_an_undeclared_peer_is_served_too(gateway: Gateway) -> None:
    chat = Chat(gateway, version=None)
    run = chat.say(
        script({"reasoning": "hm", "text": "a", "tools": [call("terminal", {"command": "echo x"})]}, {"text": "b"})
    )
    run.succeeded()
    chat.assert_as_transcript()


# --- settings


@pytest.fixture(scope="module")
def small(model: GatedModel) -> Any:
    """A gateway that shows less: short results, no reasoning, text gathered. Nothing has to be approved in it."""
    agui = {"max_tool_result_chars": 200, "reasoning": "off", "merge_ms": 30}
    config = {"approvals": {"mode": "off"}}
    with Gateway(model, agui=agui, config=config, toolsets=("terminal", "code_execution")) as running:
        yield running


def test_a_long_result_is_cut_and_marked(small: Gateway, model: GatedModel) -> None:
    chat, call_id = Chat(small), unique("c")
    long = call("terminal", {"command": "seq 1 2000"}, call_id)
    run = chat.say(script({"reasoning": "hm", "tools": [long]}, {"text": "one two three"})).succeeded()
    shown = run.results()[call_id]
    assert 200 < len(shown) < 300 and "[cut: " in shown
    result = next(message for message in model.requests[-1]["messages"] if message["role"] == "tool")
    assert "2000" in result["content"]
    assert not run.reasoning()
    assert run.text() == "one two three"
    assert len(run.of("TEXT_MESSAGE_CONTENT")) < 3


@pytest.mark.compat
def test_calls_that_running_code_makes(small: Gateway) -> None:
    chat = Chat(small)
    call_id = unique("c")
    code = "from hermes_tools import terminal\nprint(terminal('echo from inside')['output'])"
    run = chat.say(script({"tools": [call("execute_code", {"code": code}, call_id)]}, {"text": "ran"})).succeeded()
    assert "from inside" in run.results()[call_id]
    assert list(run.calls()) == [call_id]
    snapshot, *deltas = run.of("ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA")
    assert snapshot["content"]["toolCallId"] == call_id
    inner = snapshot["content"]["calls"][0]
    assert inner["name"] == "terminal"
    assert json.loads(inner["arguments"])["command"] == "echo from inside"
    patched = {patch["path"]: patch["value"] for delta in deltas for patch in delta["patch"]}
    assert patched["/calls/0/status"] == "ok"
    assert "from inside" in patched["/calls/0/result"]
