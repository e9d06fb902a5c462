"""How the terminal shows a question and reads its answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from agui_adapter.chat import ask as chat_ask
from agui_adapter.interrupts import interrupt
from agui_adapter.requests import read_answer
from agui_adapter.stream import Request

APPROVAL = Request(
    "a",
    "approval",
    "Allow this command?",
    choices=("once", "session", "always", "deny"),
    detail={"command": "rm -rf x\nrm -rf y"},
)
SHORT = Request("b", "approval", "Allow?", choices=("once", "deny"))
CONFIRM = Request("s", "confirm", "Reload?", choices=("once", "always", "cancel"), detail={"text": "It costs."})
CLARIFY = Request("c", "clarify", "Which?", choices=("red", "blue"), free_text=True)
OPEN = Request("o", "clarify", "What?", free_text=True)


@pytest.mark.parametrize(
    ("asked", "line", "payload"),
    [
        (APPROVAL, "once\n", {"choice": "once"}),
        (APPROVAL, "o", {"choice": "once"}),
        (APPROVAL, "Y", {"choice": "once"}),
        (APPROVAL, "no", {"choice": "deny"}),
        (APPROVAL, " deny  that is the backup ", {"choice": "deny", "reason": "that is the backup"}),
        (APPROVAL, "ALW", {"choice": "always"}),
        (APPROVAL, "", None),
        (APPROVAL, "maybe", None),
        (SHORT, "session", None),
        (CONFIRM, "c", {"choice": "cancel"}),
        (CONFIRM, "n", {"choice": "cancel"}),
        (CLARIFY, "2", {"answer": "blue"}),
        (CLARIFY, "3", {"answer": "3"}),
        (CLARIFY, "green ", {"answer": "green"}),
        (CLARIFY, "  ", None),
        (OPEN, "1", {"answer": "1"}),
    ],
)
def test_a_line_is_an_answer(asked: Request, line: str, payload: Any) -> None:
    made = interrupt(asked)
    assert chat_ask.read(made, line) == payload
    if payload is not None:
        read_answer(asked, payload)  # and the server takes it


def test_what_is_shown() -> None:
    assert chat_ask.question(interrupt(APPROVAL)) == ["? Allow this command?", "    rm -rf x", "    rm -rf y"]
    assert chat_ask.question(interrupt(CONFIRM)) == ["? Reload?", "    It costs."]
    assert chat_ask.question(interrupt(CLARIFY)) == ["? Which?", "  1) red", "  2) blue"]
    assert "once, session, always, deny" in chat_ask.prompt(interrupt(APPROVAL))
    assert "number" in chat_ask.prompt(interrupt(CLARIFY)) and "number" not in chat_ask.prompt(interrupt(OPEN))


def test_it_asks_until_it_has_an_answer() -> None:
    lines = iter(["", "what?", "deny no", "red"])
    shown: list[str] = []
    answers = chat_ask.ask([interrupt(APPROVAL), interrupt(CLARIFY)], shown.append, lambda prompt: next(lines))
    assert answers == [
        {"interruptId": "a", "status": "resolved", "payload": {"choice": "deny", "reason": "no"}},
        {"interruptId": "c", "status": "resolved", "payload": {"answer": "red"}},
    ]
    assert "? Which?" in shown


def test_the_end_of_the_input_answers_nothing() -> None:
    def lines() -> Iterator[str]:
        yield "once"
        raise EOFError

    typed = lines()
    assert chat_ask.ask([interrupt(APPROVAL), interrupt(OPEN)], lambda _: None, lambda _: next(typed)) is None


def test_an_interrupt_is_the_callers() -> None:
    def pressed(prompt: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat_ask.ask([interrupt(OPEN)], lambda _: None, pressed)


def test_what_is_to_be_pasted_holds_no_words_of_the_model() -> None:
    sly = Request("c'$(id)", "clarify", "Which?", choices=("'; touch /tmp/x; '",), free_text=True)
    lines = chat_ask.later([interrupt(sly), interrupt(SHORT)], "chat")
    (pasted, _) = [line for line in lines if "--answer" in line]
    assert shlex.split(pasted)[-2:] == ["--answer", "c'$(id)=TEXT"]


def test_how_to_answer_later() -> None:
    (*shown, one) = chat_ask.later([interrupt(SHORT)], "chat --thread t")
    assert shown == ["waiting for an answer: Allow?"]
    assert one == "  answer with: chat --thread t --answer 'once|deny'"
    both = chat_ask.later([interrupt(SHORT), interrupt(OPEN)], "chat")
    assert [line for line in both if "--answer" in line] == [
        "  answer with: chat --answer 'b=once|deny'",
        "  answer with: chat --answer 'o=TEXT'",
    ]


@pytest.mark.parametrize("odd", [{}, {"id": 5}, {"metadata": []}, {"metadata": {"hermes": {"choices": "x"}}}])
def test_a_server_of_another_kind_is_no_crash(odd: dict[str, Any]) -> None:
    assert chat_ask.question(odd) and chat_ask.later([odd], "chat")
    assert chat_ask.read(odd, "yes") == {"answer": "yes"}
