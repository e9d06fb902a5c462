"""What goes on beside the answer: subagents with a word and a stop of their own, processes, calls inside of code,
compression."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from tests.browser.conftest import Console
from tests.e2e.helpers import GatedModel, call, script, unique, wait_until

pytestmark = pytest.mark.slow  # `make test` drives the chat and a device; `make test-all` these too

Open = Callable[..., Console]


def delegated(console: Console, model: GatedModel) -> tuple[str, str]:
    """A subagent of the open thread that stands in mid-answer until the gate opens; the gate, and its mark."""
    gate, mark = unique("g"), unique("child")
    work = call("terminal", {"command": "echo hi"})
    goal = script({"text": f"I work. {{gate:{gate}}}", "tools": [work]}, {"text": f"{mark} is done."})
    console.say(script({"tools": [call("delegate_task", {"goal": goal})]}, {"text": "It is on its way."}))
    console.sees("It is on its way.")
    wait_until(lambda: model.reached(gate), "the subagent works")
    console.page.locator(".subagent summary").click()
    return gate, mark


def test_a_subagent_is_told_something(open_page: Open, model: GatedModel) -> None:
    console, word = open_page(), unique("hurry")
    gate, mark = delegated(console, model)
    card = console.page.locator(".subagent")
    box = card.get_by_placeholder("Tell it something")
    box.fill(word)
    box.press("Enter")
    card.get_by_text("Told.").wait_for()
    assert box.input_value() == ""
    model.open_gate(gate)
    wait_until(lambda: any(word in str(one["messages"][-1]) for one in model.requests), "the subagent hears it")
    card.get_by_text(f"{mark} is done.", exact=True).last.wait_for()
    assert card.get_by_role("button", name="Stop subagent").count() == 0


def test_a_subagent_is_stopped_and_the_rest_goes_on(open_page: Open, model: GatedModel) -> None:
    console = open_page()
    gate, _ = delegated(console, model)
    card = console.page.locator(".subagent")
    card.get_by_role("button", name="Stop subagent").click()
    card.get_by_text("Stopping.").wait_for()
    model.open_gate(gate)
    wait_until(lambda: card.locator(".tool-status").inner_text().strip() != "running", "the subagent has ended")
    console.say(script({"text": "Still here."}))
    console.sees("Still here.")


def test_background_processes_are_listed_and_stopped(open_page: Open) -> None:
    console = open_page()
    page = console.page
    start = {"command": "echo begun; sleep 300", "background": True}
    console.say(script({"tools": [call("terminal", start)]}, {"text": "It runs."}))
    console.sees("It runs.")
    page.get_by_role("button", name="Processes (1)").click()
    dialog = page.get_by_role("dialog", name="Background processes")
    dialog.get_by_text(start["command"]).wait_for()
    dialog.locator(".code", has_text="begun").wait_for()  # its words, as they come
    dialog.get_by_role("button", name="Stop").click()
    dialog.get_by_text("exit code").wait_for()
    assert dialog.get_by_role("button", name="Stop").count() == 0
    (process,) = httpx.get(f"{console.url}/agui/threads/{console.thread}/processes", trust_env=False).json()[
        "processes"
    ]
    assert process["status"] == "exited"
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="detached")
    page.get_by_role("button", name="Processes (1)").click()  # it can be opened again
    dialog.wait_for()


def test_calls_inside_of_code_are_shown(open_page: Open) -> None:
    console = open_page()
    code = "from hermes_tools import terminal\nprint(terminal('echo from inside')['output'])"
    console.say(script({"tools": [call("execute_code", {"code": code})]}, {"text": "It ran."}))
    console.page.locator("[data-request=approval]").get_by_role("button", name="Allow once").click()
    console.sees("It ran.")
    card = console.page.locator(".tool[data-tool=execute_code]")
    card.locator("summary").click()
    inner = card.locator(".inner li")
    assert inner.locator("code").inner_text() == "terminal"
    assert "echo from inside" in inner.inner_text()
    assert inner.locator(".dot.done").count() == 1


def test_a_result_is_shown_while_the_turn_goes_on(open_page: Open, model: GatedModel) -> None:
    console, gate = open_page(), unique("g")
    command = call("terminal", {"command": "echo early"})
    console.say(script({"tools": [command]}, {"text": f"Later {{gate:{gate}}} on."}))
    wait_until(lambda: model.reached(gate), "the model waits")
    card = console.page.locator(".tool.done")
    card.locator("summary").click()
    card.locator(".code").last.get_by_text("early").wait_for()
    console.page.locator(".working").wait_for()
    model.open_gate(gate)
    console.sees("on.")
    card.locator(".code").last.get_by_text("early").wait_for()  # still open


def test_a_thread_is_compressed_by_the_menu_and_by_the_command(open_page: Open, model: GatedModel) -> None:
    console, words = open_page(), "a few words that fill the context, " * 40
    for number in range(10):
        console.say(script({"text": f"Answer {number}: {words}"}))
        console.sees(f"Answer {number}:")
        console.idle()
    page, size = console.page, len(model.requests[-1]["messages"])
    page.locator(".threads li.current .menu summary").click()
    page.get_by_role("button", name="Compress").click()
    page.locator(".sidebar [role=status]", has_text="Compressed:").wait_for(timeout=60_000)
    assert len(console.answers()) == 10  # nothing that a person sees is gone
    console.say(script({"text": "After it."}))
    console.sees("After it.")
    console.idle()
    assert len(model.requests[-1]["messages"]) < size
    assert "CONTEXT COMPACTION" in json.dumps(model.requests[-1]["messages"])
    page.locator(".sidebar [role=status]").get_by_role("button", name="Dismiss").click()
    assert page.locator(".sidebar [role=status]").count() == 0
    console.say("/compress")
    page.locator(".message.assistant", has_text="ompress").last.wait_for(timeout=60_000)
    console.idle()
    page.reload()
    console.sees("After it.")
    assert sum(text.startswith("Answer ") for text in console.answers()) == 10
