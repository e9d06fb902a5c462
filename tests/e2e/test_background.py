"""What Hermes does beside a turn stays out of its stream; what it begins by itself is a turn like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, call, hermes, script, unique, wait_until


@pytest.fixture(scope="module")
def busy(model: GatedModel) -> Iterator[Gateway]:
    """A gateway that reviews its memory after every turn and may delegate."""
    config = {"memory": {"memory_enabled": True, "nudge_interval": 1}}
    with Gateway(model, toolsets=("terminal", "delegation", "memory"), config=config) as running:
        yield running


def _asked(model: GatedModel, mark: str) -> list[dict[str, Any]]:
    """The model's requests whose newest user message holds `mark`."""
    found = []
    for request in model.requests:
        users = [message for message in request["messages"] if message["role"] == "user"]
        if users and mark in json.dumps(users[-1]):
            found.append(request)
    return found


def _quiet(gateway: Gateway) -> None:
    """Nothing of ours failed in this gateway."""
    log = gateway.log_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 1000 :][:4000]


def test_the_memory_review_stays_out_of_the_stream(busy: Gateway, model: GatedModel) -> None:
    chat, gate = Chat(busy), unique("g")
    model.clear()
    chat.say(script({"text": "First answer."})).succeeded()
    # The review quotes the conversation, in a request of its own, with the session's own key.
    wait_until(lambda: _asked(model, "Review the conversation above"), "the review")
    run = chat.start(script({"text": f"before {{gate:{gate}}} after"}))
    run.wait_text(gate)
    wait_until(lambda: "Nothing to save." not in run.text(), "nothing of it here")
    model.open_gate(gate)
    chat.keep(run.finish()).succeeded()
    assert run.text() == f"before {{gate:{gate}}} after"
    assert "Nothing to save." not in run.raw.decode()
    chat.assert_as_transcript()


def test_a_background_task_beside_a_run(busy: Gateway, model: GatedModel) -> None:
    chat, inner, outer, mark = Chat(busy), unique("g"), unique("g"), unique("bg")
    task = script(
        {"text": f"{mark} {{gate:{inner}}} is the result.", "tools": [call("terminal", {"command": "echo x"})]}
    )
    begun = chat.say(f"/background {task}").succeeded()
    assert begun.text().strip()
    wait_until(lambda: model.reached(inner), "the background task runs")
    run = chat.start(script({"reasoning": "hm", "text": f"before {{gate:{outer}}} after"}))
    run.wait_text(outer)
    model.open_gate(inner)
    done = "Background task complete"
    wait_until(lambda: any(done in text for text in run.notices()), "the result, as a notice")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    assert run.texts() == [f"before {{gate:{outer}}} after"]
    assert not run.calls()
    assert len(chat.sessions()) >= 1


def test_a_background_task_that_ends_on_an_idle_thread(busy: Gateway, model: GatedModel) -> None:
    chat, mark = Chat(busy), unique("bg")
    chat.say("/background " + script({"text": f"{mark} is the result."})).succeeded()
    wait_until(lambda: _asked(model, mark), "the background task ran")
    run = chat.say(script({"text": "A normal answer."})).succeeded()
    assert run.texts() == ["A normal answer."]


def test_a_delegated_task_stays_out_of_the_stream(busy: Gateway, model: GatedModel) -> None:
    chat, inner, outer, mark, call_id = Chat(busy), unique("g"), unique("g"), unique("child"), unique("c")
    child = script(
        {
            "text": f"{mark} works {{gate:{inner}}}",
            "tools": [call("terminal", {"command": "echo in the $(printf child)"})],
        },
        {"text": f"{mark} has finished."},
    )
    run = chat.start(
        script(
            {"text": "I delegate.", "tools": [call("delegate_task", {"goal": child}, call_id)]},
            {"text": f"Delegated {{gate:{outer}}} it."},
        )
    )
    run.wait_text(outer)
    wait_until(lambda: model.reached(inner), "the child runs")
    model.open_gate(inner)
    wait_until(lambda: len(_asked(model, mark)) >= 2, "the child's second request")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    assert run.texts() == ["I delegate.", f"Delegated {{gate:{outer}}} it."]
    assert list(run.calls()) == [call_id]
    assert "in the child" not in "".join(run.results().values())
    # The result comes back as a turn that nobody has asked for, and the thread goes on behind it.
    wait_until(lambda: len(chat.transcript()) >= 6, "the turn with the result")
    assert chat.say(script({"text": "Still here."})).succeeded().text() == "Still here."
    assert len(chat.sessions()) == 1
    _quiet(busy)


def test_a_cron_job_stays_out_of_the_stream(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    gateway = make_gateway(start=False, toolsets=("terminal", "cronjob"))
    mark, inner, outer = unique("cron"), unique("g"), unique("g")
    gateway.start()  # writes the home
    gateway.stop()
    job = script({"text": f"{mark} {{gate:{inner}}} done.", "tools": [call("terminal", {"command": "echo cron"})]})
    hermes(gateway, "cron", "create", "every 1m", job, "--deliver", "local")
    path = gateway.home / "cron" / "jobs.json"
    jobs = json.loads(path.read_text())
    for entry in jobs["jobs"]:
        entry["next_run_at"] = entry["created_at"]  # due: the gateway looks as soon as it has started
    path.write_text(json.dumps(jobs))
    gateway.start()
    chat = Chat(gateway)
    run = chat.start(script({"text": f"before {{gate:{outer}}} after"}))
    run.wait_text(outer)
    wait_until(
        lambda: model.reached(inner),
        "the job runs",
    )
    model.open_gate(inner)
    wait_until(lambda: len(_asked(model, mark)) >= 2, "the job's second request")
    model.open_gate(outer)
    chat.keep(run.finish()).succeeded()
    assert run.texts() == [f"before {{gate:{outer}}} after"]
    assert mark not in run.raw.decode()
    assert not run.calls()


def test_a_turn_that_a_crash_cut_is_resumed_by_the_gateway(
    make_gateway: Callable[..., Gateway], model: GatedModel
) -> None:
    gateway = make_gateway(agui={"start_wait_seconds": 60})
    chat, gate, call_id = Chat(gateway), unique("g"), unique("c")
    chat.say(script({"text": "Before the crash."})).succeeded()
    run = chat.start(
        script(
            {"text": "I look.", "tools": [call("terminal", {"command": "echo seen"}, call_id)]},
            {"text": f"cut {{gate:{gate}}} here"},
        )
    )
    run.wait_text(gate)
    gateway.kill()
    with pytest.raises(httpx.TransportError):
        run.finish()
    chat.keep(run)
    model.open_gate(gate)
    model.clear()
    gateway.start()
    wait_until(lambda: _asked(model, "The previous turn was interrupted"), "the gateway resumed the turn by itself")
    answer = wait_until(lambda: chat.transcript()[-1].get("content"), "the resumed turn ended")
    after = chat.say(script({"text": "After the crash."})).succeeded()
    assert after.texts() == ["After the crash."]
    assert len(chat.sessions()) == 1
    assert answer in [message["content"] for message in chat.transcript()]
    assert [message["role"] for message in chat.transcript()].count("user") == 3
    _quiet(gateway)
