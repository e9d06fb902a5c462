"""Providers, tools and workers that fail (the provider's plain errors are in e2e/test_failures)."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import state
from tests.e2e.helpers import Chat, GatedModel, call, script, unique, wait_until
from tests.faults.invariants import consistent, ended_once, unharmed


def test_a_provider_that_hangs(faulty: Gateway) -> None:
    with unharmed(faulty):
        chat = Chat(faulty)
        run = ended_once(chat.start(script({"hang": 100})))
        run.failed("provider_timeout")
        consistent(chat, run)


def test_a_provider_that_dribbles(faulty: Gateway) -> None:
    """Slower than any one wait, but never silent: it is waited for. (No credential begins with a j.)"""
    with unharmed(faulty):
        chat = Chat(faulty)
        run = ended_once(chat.start(script({"text": "jklmnopq", "chunk": 1, "delta_ms": 400})))
        assert run.succeeded().text() == "jklmnopq"
        assert len(run.of("TEXT_MESSAGE_CONTENT")) == 8  # each as it came
        consistent(chat, run)


def test_a_provider_that_sends_garbage(faulty: Gateway) -> None:
    with unharmed(faulty):
        chat = Chat(faulty)
        run = ended_once(chat.start(script({"text": "never said", "garbage": True})))
        assert run.end["type"] == "RUN_ERROR" and run.text() == ""
        consistent(chat, run)


@pytest.mark.parametrize("cut", [0, 1, 9], ids=["at once", "in the first word", "in the middle"])
def test_a_provider_that_closes_in_the_middle_of_a_chunk(faulty: Gateway, cut: int) -> None:
    """Once: Hermes goes on, and nothing is there twice. For ever: an error, and what was kept is what is shown."""
    with unharmed(faulty):
        chat = Chat(faulty)
        run = ended_once(chat.start(script({"text": "one two three four", "cut": cut, "times": 1}, {"text": " five"})))
        consistent(chat, run)
        broken = Chat(faulty)
        run = ended_once(broken.start(script({"text": "one two three four", "cut": cut})))
        consistent(broken, run)


def test_a_result_of_ten_megabytes(faulty: Gateway) -> None:
    with unharmed(faulty):
        chat, call_id = Chat(faulty), unique("c")
        memory = psutil.Process(faulty.pid).memory_info().rss
        tool = call("faulty_big", {"size": 10_000_000}, call_id)
        run = ended_once(chat.start(script({"tools": [tool]}, {"text": "That was long."}))).succeeded()
        content = run.results()[call_id]
        assert len(content) < 200_000 and len(run.raw) < 1_000_000
        assert run.text() == "That was long."
        chat.keep(run)
        assert chat.say(script({"text": "Still here."})).succeeded().text() == "Still here."
        # What the log, the stream and the store hold of it: none of them keeps the whole.
        assert psutil.Process(faulty.pid).memory_info().rss < memory + 200_000_000


@pytest.mark.parametrize("where", ["tool", "hook"])
def test_a_worker_that_dies(faulty: Gateway, where: str) -> None:
    """By what is no Exception: no handler of Hermes's or ours catches it, and still the stream has its end."""
    with unharmed(faulty):
        chat = Chat(faulty)
        if where == "tool":
            text = script({"text": "I try. ", "tools": [call("faulty_dies", {}, unique("c"))]}, {"text": "Survived."})
        else:
            text = script({"text": "Survived."}, say="HOOK-DIES")
        began = time.monotonic()
        run = ended_once(chat.start(text))
        assert time.monotonic() - began < 30
        chat.keep(run)
        wait_until(lambda: state(chat)["status"] == "idle", "the thread is free")
        assert chat.say(script({"text": "Still here."})).succeeded().texts()[-1] == "Still here."


def test_a_turn_that_waits_asks_for_nothing(faulty: Gateway, model: GatedModel) -> None:
    """No loop of Hermes's own beside it: those for typing are sometimes left behind, and then poll for ever."""
    gate, chat = unique("g"), Chat(faulty)
    run = chat.start(script({"text": f"A {{gate:{gate}}} long answer."}))
    wait_until(lambda: model.reached(gate), "the model stands at the gate")
    tasks = json.loads(Chat(faulty).say("/count-all").succeeded().text())["tasks"]
    model.open_gate(gate)
    ended_once(run).succeeded()
    assert "BasePlatformAdapter._process_message_background" in tasks
    assert not [one for one in tasks if "typing" in one]
