"""What the agent asks and shows: approvals, questions, confirmations, the page's own tools, the plan, usage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.browser.conftest import Console
from tests.e2e.asking import deletes, victim
from tests.e2e.helpers import GatedModel, call, script, unique

pytestmark = pytest.mark.slow  # `make test` drives the chat and a device; `make test-all` these too

Open = Callable[..., Console]


def test_an_approved_command_runs(open_page: Open, gateway: Gateway) -> None:
    console, folder = open_page(), victim(gateway)
    console.say(deletes(folder, then="It is gone."))
    card = console.page.locator("[data-request=approval]")
    card.wait_for()
    assert str(folder) in card.locator(".code").inner_text()
    assert {"Allow once", "Deny"} <= set(card.get_by_role("button").all_inner_texts())
    assert folder.exists()
    card.get_by_role("button", name="Allow once").click()
    console.sees("It is gone.")
    assert not folder.exists()
    assert card.count() == 0


def test_a_denied_command_does_not_run_and_a_reload_keeps_the_question(open_page: Open, gateway: Gateway) -> None:
    console, folder = open_page(), victim(gateway)
    console.say(deletes(folder, then="Then not."))
    card = console.page.locator("[data-request=approval]")
    card.wait_for()
    console.page.reload()
    card.get_by_label("A reason for the agent").fill("it is mine")
    card.get_by_role("button", name="Deny").click()
    console.sees("Then not.")
    assert folder.exists()


def test_a_question_is_answered_in_another_window(open_page: Open, model: GatedModel) -> None:
    console, word = open_page(), unique("word")
    arguments = {"question": "Which one?", "choices": ["the red one", "the blue one"]}
    console.say(script({"tools": [call("clarify", arguments)]}, {"text": "So be it."}))
    first = console.page.locator("[data-request=clarify]")
    first.get_by_text("Which one?").wait_for()
    assert "the red one" in first.get_by_role("button").all_inner_texts()
    other = open_page(f"#/t/{console.thread}")
    second = other.page.locator("[data-request=clarify]")
    second.get_by_label("Your answer").fill(word)
    second.get_by_role("button", name="Answer", exact=True).click()
    other.sees("So be it.")
    console.sees("So be it.")
    assert first.count() == 0
    assert any(word in str(request["messages"][-1]["content"]) for request in model.requests)


def test_an_expired_question_is_shown_as_such(open_page: Open, make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(config={"agent": {"clarify_timeout": 2}})
    console = open_page(url=gateway.url)
    console.say(script({"tools": [call("clarify", {"question": "Still there?"})]}, {"text": "Nobody answered."}))
    console.sees("Nobody answered.")
    closed = console.page.locator("[data-request=closed]")
    closed.get_by_text("expired").wait_for()
    closed.get_by_text("Still there?").wait_for()


def test_a_slash_command_is_confirmed_or_not(open_page: Open) -> None:
    console = open_page()
    card = console.page.locator("[data-request=confirm]")
    console.say("/reload-mcp")
    card.wait_for()
    # The choices that Hermes allows, in words; nobody is asked for a reason that no command reads.
    assert card.get_by_role("button").all_inner_texts() == ["Approve once", "Always approve", "Cancel"]
    assert card.get_by_role("textbox").count() == 0
    assert "mcp" in card.inner_text().lower()
    console.page.reload()
    card.get_by_role("button", name="Cancel").click()
    console.sees("ancelled")
    console.idle()
    console.say("/reload-mcp")
    card.get_by_role("button", name="Approve once").click()
    console.sees("MCP")
    console.idle()
    assert card.count() == 0


def test_the_browser_is_asked_for_a_colour(open_page: Open, model: GatedModel) -> None:
    console = open_page()
    console.say(script({"tools": [call("pick_color", {"question": "For the wall?"})]}, {"text": "A fine colour."}))
    card = console.page.locator("[data-tool=pick_color]")
    card.get_by_text("For the wall?").wait_for()
    card.get_by_label("Colour").fill("#00aa88")
    card.get_by_role("button", name="Use this colour").click()
    console.sees("A fine colour.")
    assert "#00aa88" in str(model.requests[-1]["messages"][-1]["content"])
    card.get_by_text("#00aa88").wait_for()


def test_a_chart_is_drawn_and_answered_by_itself(open_page: Open, model: GatedModel) -> None:
    console = open_page()
    bars = [{"label": "spring", "value": 3}, {"label": "autumn", "value": 7.5}]
    console.say(script({"tools": [call("show_chart", {"title": "Rain", "bars": bars})]}, {"text": "It rained."}))
    console.sees("It rained.")
    chart = console.page.locator("[data-tool=show_chart] svg")
    assert chart.get_attribute("aria-label") == "Rain: spring 3, autumn 7.5"
    assert chart.locator("rect").count() == 2
    console.page.reload()
    console.sees("It rained.")
    assert chart.locator("rect").count() == 2


def test_the_plan_stands_above_the_composer(open_page: Open) -> None:
    console = open_page()
    todos = [
        {"id": "1", "content": "Look around", "status": "completed"},
        {"id": "2", "content": "Do the work", "status": "in_progress"},
    ]
    console.say(script({"tools": [call("todo", {"todos": todos})]}, {"text": "Planned."}))
    console.sees("Planned.")
    plan = console.page.locator(".plan")
    plan.get_by_text("1 of 2").wait_for()
    plan.locator("summary").click()
    assert plan.locator("li").all_inner_texts() == ["Look around", "Do the work"]


def test_model_and_usage_stand_in_the_header(open_page: Open) -> None:
    console = open_page()
    console.say(script({"text": "Counted."}))
    console.sees("Counted.")
    console.page.locator(".header .model", has_text="scripted-1").wait_for()
    assert "in ·" in console.page.locator("[data-usage]").inner_text()
