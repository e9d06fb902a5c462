"""`forwardedProps`: what is read of them, allowed, refused, and told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agui_adapter.errors import AguiError
from agui_adapter.forwarded import EFFORTS, NAMES, Forwarded, Overrides, read_forwarded

ALL = {"model": " m-2 ", "reasoningEffort": "HIGH", "temperature": 0, "topP": 1, "maxTokens": 5}


def read(props: Any, allowed: tuple[str, ...] = NAMES, forward: bool = False) -> Forwarded:
    return read_forwarded(props, allowed=allowed, forward=forward)


@pytest.mark.parametrize("props", [None, {}, [], "x", 1, {"model": None}, {"anything": {"else": 1}}], ids=repr)
def test_nothing_asked(props: Any) -> None:
    assert read(props) == Forwarded() and not read(props).overrides


def test_every_override_in_both_spellings() -> None:
    wanted = Overrides("m-2", "high", 0.0, 1.0, 5)
    assert read(ALL).overrides == wanted and wanted
    snake = {"model": "m-2", "reasoning_effort": "high", "temperature": 0.0, "top_p": 1.0, "max_tokens": 5}
    assert read(snake).overrides == wanted


def test_what_is_not_allowed_is_named_and_not_even_checked() -> None:
    made = read({"model": "m", "temperature": "hot", "top_p": 0.5}, allowed=("top_p",))
    assert made.overrides == Overrides(top_p=0.5) and made.ignored == ("model", "temperature")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("model", ["", "  ", 1, True, "x" * 201, "a\nb"]),
        ("reasoning_effort", ["", "hard", 3, True]),
        ("temperature", [-0.1, 2.1, "1", True, float("nan"), float("inf")]),
        ("top_p", [-1, 1.5, "x", False]),
        ("max_tokens", [0, -1, 1.5, "5", True, 10**9]),
    ],
)
def test_values_that_cannot_be(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(AguiError) as caught:
            read({name: value})
        assert caught.value.status == 422 and f"forwardedProps.{name}" in caught.value.message


def test_efforts_are_hermes_own() -> None:
    constants = pytest.importorskip("hermes_constants")
    assert set(EFFORTS) == {"none", *constants.VALID_REASONING_EFFORTS}
    assert all(constants.parse_reasoning_effort(effort) for effort in EFFORTS)


@pytest.mark.parametrize("answer", [True, None, "yes", {"choice": "once"}], ids=repr)
def test_an_older_clients_answer(answer: Any) -> None:
    made = read({"command": {"resume": answer, "interruptEvent": {}}})
    assert made.asks_resume and made.resume == answer


@pytest.mark.parametrize("command", [None, {}, {"update": 1}, "resume", []], ids=repr)
def test_no_answer(command: Any) -> None:
    assert not read({"command": command}).asks_resume


def test_the_rest_is_context_only_where_it_is_wanted() -> None:
    props = {**ALL, "tenant": "acme", "ids": [1, 2], "command": {"resume": 1}}
    assert read(props).context == ""
    assert json.loads(read(props, forward=True).context) == {"tenant": "acme", "ids": [1, 2]}
    assert read(ALL, forward=True).context == ""
    long = read({"x": "y" * 100_000}, forward=True).context
    assert len(long) < 5000 and long.endswith("[cut: too long]")
