"""Which `send` is what, and how the end of a cycle is judged: two tables, as Hermes 0.19 was seen to behave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agui_adapter.cycle import Cycle, classify
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread
from agui_adapter.stream import GatewayNotice, MessageChunk, MessageRevised, StreamEvent, ToolCallChunk
from agui_adapter.tap import Failure

OURS = "turn-ours"


@pytest.mark.parametrize(
    ("what", "reply_to", "notify", "event_id", "unsolicited", "wanted"),
    [
        ("the answer replies to our message", OURS, True, OURS, False, "answer"),
        ("so does a command's reply", OURS, True, OURS, False, "answer"),
        ("/stop's reply replies to /stop", "stop-message", True, OURS, False, "notice"),
        ("a resumed turn replies to nothing", None, True, None, True, "answer"),
        ("a resumed turn that has a message id all the same", None, True, "other", True, "answer"),
        ("a late result on a running turn", None, True, OURS, False, "notice"),
        ("no home channel", None, False, OURS, False, "notice"),
        ("a pairing code", None, False, OURS, False, "notice"),
        ("interim text replies but is not marked", OURS, False, OURS, False, "notice"),
        ("a notice of a resumed turn", None, False, None, True, "notice"),
    ],
)
def test_which_send_is_what(
    what: str, reply_to: str | None, notify: bool, event_id: str | None, unsolicited: bool, wanted: str
) -> None:
    assert classify(what, reply_to, notify, event_id=event_id, unsolicited=unsolicited) == wanted


def new_cycle(*, unsolicited: bool = False) -> Cycle:
    thread = Thread(Principal("local"), "t", "local.t")
    turn = thread.begin(EventLog(asyncio.new_event_loop()), unsolicited=unsolicited)
    return Cycle(turn, max_result_chars=1000)


def answer(cycle: Cycle, text: str) -> None:
    cycle.said(text, cycle.event_id, True)


def notice(cycle: Cycle, text: str) -> None:
    cycle.said(text, None, False)


def success(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.text("Hi")
    cycle.tap.final("Hi")
    cycle.tap.end(completed=True, interrupted=False)
    answer(cycle, "Hi")


def wordless(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.end(completed=True, interrupted=False)


def interrupted(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.end(completed=False, interrupted=True)
    answer(cycle, "Interrupted")


def stopped(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.text("Hal")
    cycle.cancelled = True
    cycle.said("Stopped.", "stop-message", True)


def unauthorized_by_provider(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.failure = Failure("provider_auth", "401")
    answer(cycle, "Your key is wrong.")
    answer(cycle, "Your key is wrong.")


def silent_failure(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.failure = Failure("provider_timeout", "No answer in 60 s")


def truncated(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.text("Let me look")
    answer(cycle, "The response was truncated.")


def broke_off(cycle: Cycle) -> None:
    cycle.tap.begin()


def failed_in_order(cycle: Cycle) -> None:
    silent_failure(cycle)
    cycle.tap.end(completed=False, interrupted=False)


def recovered(cycle: Cycle) -> None:
    silent_failure(cycle)
    cycle.tap.end(completed=True, interrupted=False)
    answer(cycle, "Got there in the end")


def out_of_iterations(cycle: Cycle) -> None:
    cycle.tap.begin()
    cycle.tap.end(completed=False, interrupted=False)
    answer(cycle, "I ran out of steps, here is what I have.")


def second_turn_fails(cycle: Cycle) -> None:
    success(cycle)
    silent_failure(cycle)


def second_turn_succeeds(cycle: Cycle) -> None:
    silent_failure(cycle)
    success(cycle)


def interrupted_then_answered(cycle: Cycle) -> None:
    interrupted(cycle)
    success(cycle)


def command(cycle: Cycle) -> None:
    cycle.command = True
    answer(cycle, "Commands: …")


def pairing_code(cycle: Cycle) -> None:
    cycle.authorized = False
    notice(cycle, "Your pairing code: ABCD")


def silently_refused(cycle: Cycle) -> None:
    cycle.authorized = False


def silently_refused_with_a_notice_of_ours(cycle: Cycle) -> None:
    cycle.authorized = False
    cycle.turn.append(GatewayNotice("skipped_parts", "An image was left out."))


def refused(cycle: Cycle) -> None:
    answer(cycle, "Gateway is shutting down…")


def lost(cycle: Cycle) -> None:
    pass


def crashed(cycle: Cycle) -> None:
    cycle.crashed = True


def crashed_with_words(cycle: Cycle) -> None:
    cycle.crashed = True
    answer(cycle, "Sorry, an error occurred.")


def hermes_own_events(cycle: Cycle) -> None:
    cycle.tap.text("Hi")
    cycle.tap.plain_call(ToolCallChunk("terminal"))
    answer(cycle, "Hi")


@pytest.mark.parametrize(
    ("happens", "wanted"),
    [
        (success, ("success", "", "")),
        (recovered, ("success", "", "")),
        (out_of_iterations, ("success", "", "")),
        (second_turn_succeeds, ("success", "", "")),
        (interrupted_then_answered, ("success", "", "")),
        (command, ("success", "", "")),
        (pairing_code, ("success", "", "")),
        (hermes_own_events, ("success", "", "")),
        (interrupted, ("cancelled", "", "")),
        (stopped, ("cancelled", "", "")),
        (unauthorized_by_provider, ("failed", "provider_auth", "Your key is wrong.")),
        (silent_failure, ("failed", "provider_timeout", "No answer in 60 s")),
        (failed_in_order, ("failed", "provider_timeout", "No answer in 60 s")),
        (second_turn_fails, ("failed", "provider_timeout", "No answer in 60 s")),
        (truncated, ("failed", "incomplete", "The response was truncated.")),
        (broke_off, ("failed", "incomplete", "The agent stopped before it had an answer.")),
        (refused, ("failed", "refused", "Gateway is shutting down…")),
        (crashed_with_words, ("failed", "gateway_error", "Sorry, an error occurred.")),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_verdict(happens: Callable[[Cycle], None], wanted: tuple[str, str, str]) -> None:
    cycle = new_cycle()
    happens(cycle)
    assert cycle.verdict() == wanted


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (silently_refused, "not_authorized"),
        (silently_refused_with_a_notice_of_ours, "not_authorized"),
        (lost, "no_answer"),
        (wordless, "incomplete"),
        (crashed, "gateway_error"),
    ],
)
def test_no_answer_at_all_is_never_a_success(happens: Callable[[Cycle], None], code: str) -> None:
    cycle = new_cycle()
    happens(cycle)
    outcome, found, message = cycle.verdict()
    assert (outcome, found) == ("failed", code) and message.endswith(".")


# -- what is written of it -----------------------------------------------------------------------------------------


def close(cycle: Cycle) -> list[StreamEvent]:
    cycle.close(cycle.verdict()[0])
    return cycle.turn.log.events()


def texts(events: list[StreamEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, MessageChunk)]


def notices(events: list[StreamEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, GatewayNotice)]


def test_the_answer_is_not_said_twice() -> None:
    cycle = new_cycle()
    success(cycle)
    events = close(cycle)
    assert (texts(events), notices(events)) == (["Hi"], [])


def test_what_came_before_the_agent_is_a_notice_and_nothing_is_lost() -> None:
    cycle = new_cycle()
    notice(cycle, "No home channel is set")
    success(cycle)
    notice(cycle, "Session saved")
    events = close(cycle)
    assert (texts(events), notices(events)) == (["Hi"], ["No home channel is set", "Session saved"])


def test_a_notice_alone_waits_for_the_end_and_is_told_even_if_the_agent_says_nothing() -> None:
    cycle = new_cycle()
    notice(cycle, "No home channel is set")
    cycle.tap.begin()
    cycle.tap.end(completed=True, interrupted=False)
    events = close(cycle)
    assert (texts(events), notices(events)) == ([], ["No home channel is set"])


def test_a_commands_reply_is_the_answer() -> None:
    cycle = new_cycle()
    cycle.command = True
    notice(cycle, "First part")
    answer(cycle, "Second part")
    events = close(cycle)
    assert (texts(events), notices(events)) == (["First part", "Second part"], [])


def test_a_pairing_code_is_shown() -> None:
    cycle = new_cycle()
    pairing_code(cycle)
    assert texts(close(cycle)) == ["Your pairing code: ABCD"]


def test_a_refusal_is_an_error_and_no_text() -> None:
    cycle = new_cycle()
    refused(cycle)
    assert close(cycle) == []


def test_the_text_of_a_failed_turn_is_not_its_message() -> None:
    cycle = new_cycle()
    truncated(cycle)
    cycle.close(cycle.verdict()[0], kept=[])
    events = cycle.turn.log.events()
    assert texts(events) == ["Let me look"]
    assert [event.text for event in events if isinstance(event, MessageRevised)] == [""]


def test_stops_reply_is_a_notice() -> None:
    cycle = new_cycle()
    stopped(cycle)
    events = close(cycle)
    assert (texts(events), notices(events)) == (["Hal"], ["Stopped."])


def test_an_unsolicited_turn_has_its_answer() -> None:
    cycle = new_cycle(unsolicited=True)
    cycle.event_id = None
    cycle.tap.begin()
    cycle.tap.text("Back again")
    cycle.tap.final("Back again")
    cycle.tap.end(completed=True, interrupted=False)
    cycle.said("Back again", None, True)
    assert cycle.verdict()[0] == "success"
    events = close(cycle)
    assert (texts(events), notices(events)) == (["Back again"], [])


def test_nothing_of_hermes_own_events_is_doubled() -> None:
    cycle = new_cycle()
    notice(cycle, "No home channel is set")
    cycle.tap.text("Hello")
    cycle.tap.text(" there")
    answer(cycle, "Hello there")
    events = close(cycle)
    assert ("".join(texts(events)), notices(events)) == ("Hello there", ["No home channel is set"])


def test_two_answers_of_a_cycle_are_both_kept() -> None:
    cycle = new_cycle()
    success(cycle)
    cycle.tap.begin()
    cycle.tap.text("And more")
    cycle.tap.final("And more")
    cycle.tap.end(completed=True, interrupted=False)
    answer(cycle, "And more")
    assert cycle.verdict()[0] == "success"
    assert texts(close(cycle)) == ["Hi", "And more"]
