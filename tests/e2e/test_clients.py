"""The official clients, 1.0.0 and 0.0.59, against a real gateway: no warning, no rejected event, the same messages."""

from __future__ import annotations

from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.clients import VERSIONS, RunRecord, Version, node, run_agent
from tests.e2e.helpers import Chat, call, fold, plain, script, unique

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(node() is None, reason="needs Node"),
    pytest.mark.parametrize("version", VERSIONS),
]


def _run(gateway: Gateway, version: Version, *texts: str) -> tuple[list[RunRecord], Chat]:
    """Each text in a run of its own, on one agent. Every run must be clean and its messages as the raw reducer's."""
    chat = Chat(gateway)
    runs = [
        {"runId": unique("r"), "messages": [{"id": unique("u"), "role": "user", "content": text}]} for text in texts
    ]
    records = run_agent(version, f"{gateway.url}/agui", chat.thread, runs)
    for run, record in zip(runs, records, strict=True):
        assert record.failed is None
        assert record.warnings == []
        chat.messages = fold([*chat.messages, *run["messages"]], record.events)
        assert _bare(record.messages) == _bare(chat.messages)
    return records, chat


def _bare(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Members without a value are as good as absent; the content of activities is patched by the client only."""
    kept = []
    for message in messages:
        drop = ("content",) if message["role"] == "activity" else ()
        bare = {key: value for key, value in message.items() if value not in (None, "", []) and key not in drop}
        if set(bare) != {"id", "role"}:  # a message with nothing in it
            kept.append(bare)
    return kept


def test_two_turns_on_one_agent(gateway: Gateway, version: Version) -> None:
    (first, second), chat = _run(gateway, version, script({"text": "First answer."}), script({"text": "Second one."}))
    assert [message["role"] for message in first.messages] == ["user", "assistant"]
    assert [message["role"] for message in second.messages] == ["user", "assistant"] * 2
    assert second.messages[-1]["content"] == "Second one."
    assert len(chat.sessions()) == 1
    chat.assert_as_transcript()


def test_tools(gateway: Gateway, version: Version) -> None:
    ids = [unique("c") for _ in range(3)]
    step = {
        "text": "I do three things.",
        "tools": [
            call("terminal", {"command": "echo one"}, ids[0]),
            call("read_file", {"path": "no.such"}, ids[1]),
            call("summon_dragon", {}, ids[2]),
        ],
    }
    (record, after), chat = _run(gateway, version, script(step, {"text": "Done."}), script({"text": "Next."}))
    assistant = record.messages[1]
    assert assistant["content"] == "I do three things."
    assert [made["id"] for made in assistant["toolCalls"]] == ids
    assert {message["toolCallId"] for message in record.messages if message["role"] == "tool"} == set(ids)
    assert after.messages[-1]["content"] == "Next."
    chat.assert_as_transcript()


def test_tools_without_text(gateway: Gateway, version: Version) -> None:
    steps = [{"tools": [call("terminal", {"command": f"echo {word}"})]} for word in ("one", "two")]
    (record,), chat = _run(gateway, version, script(*steps, {"text": "Done."}))
    assert [message["role"] for message in record.messages] == ["user"] + ["assistant", "tool"] * 2 + ["assistant"]
    chat.assert_as_transcript()


def test_reasoning(gateway: Gateway, version: Version) -> None:
    (first, second), chat = _run(
        gateway, version, script({"reasoning": "Let me think.", "text": "Thought."}), script({"text": "And on."})
    )
    assert [message["role"] for message in first.messages] == ["user", "reasoning", "assistant"]
    assert first.messages[1]["content"] == "Let me think."
    assert second.messages[-1]["content"] == "And on."
    chat.assert_as_transcript()


def test_an_error(gateway: Gateway, version: Version) -> None:
    (failed, after), _ = _run(
        gateway, version, script({"status": 401, "message": "no such key"}), script({"text": "Well again."})
    )
    (error,) = failed.of_type("RUN_ERROR")
    assert error["code"] == "provider_auth"
    assert [message["role"] for message in failed.messages] == ["user"]
    assert after.messages[-1]["content"] == "Well again."


def test_a_correction(gateway: Gateway, version: Version) -> None:
    (record,), _ = _run(gateway, version, script({"text": "Please REPLACE this."}))
    assert plain(record.messages)[1:] == [("assistant", "anothertextbytheprobe", ())]


def test_a_recovered_stream(gateway: Gateway, version: Version) -> None:
    cut = {"text": "I look. ", "tools": [call("terminal", {"command": "echo hi"})], "cut": 20, "times": 1}
    (_,), chat = _run(gateway, version, script(cut, {"text": "Seen."}))
    chat.assert_as_transcript()


def test_a_slash_command(gateway: Gateway, version: Version) -> None:
    (record, after), _ = _run(gateway, version, "/help", script({"text": "Go on."}))
    assert [message["role"] for message in record.messages] == ["user", "assistant"]
    assert "/help" in record.messages[1]["content"]
    assert after.messages[-1]["content"] == "Go on."
