"""Titles: what a thread is called tells nobody what others' sessions are called."""

from __future__ import annotations

import re

import pytest

from agui_adapter.hermes.commands import read_command
from agui_adapter.principal import SCOPES, Principal
from agui_adapter.session import Thread
from agui_adapter.titles import following, in_hermes, with_name

USER = Principal("local", scopes=frozenset(("read", "run")))
ADMIN = Principal("owner", trusted=True, scopes=SCOPES)


@pytest.mark.parametrize(
    ("title", "own", "expected"),
    [
        ("Plan", [], "Plan"),
        ("Plan", ["Plan"], "Plan #2"),
        ("Plan #2", ["Plan", "Plan #2"], "Plan #3"),
        ("Plan #2", ["Plan #7", "Plan #x", "Plan 9", "A Plan", "Plan #99999999999"], "Plan #8"),
        ("a.b (c)", ["a.b (c)", "axb (c) #9"], "a.b (c) #2"),
        ("branch", ["branch"], "branch #2"),
    ],
)
def test_copies_are_numbered_among_ones_own(title: str, own: list[str], expected: str) -> None:
    assert following(title, own) == expected


def test_in_hermes_a_title_is_the_threads_own() -> None:
    one, other = (in_hermes(Thread.of(USER, name), "Plan") for name in "ab")
    assert one != other and one == in_hermes(Thread.of(USER, "a"), "Plan")
    assert re.fullmatch(r"Plan \([0-9a-f]{6}\)", one)
    assert in_hermes(Thread.of(ADMIN, "a"), "Plan") == "Plan"
    assert len(in_hermes(Thread.of(USER, "a"), "x" * 200)) == 100


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("/branch", True),
        ("/fork ", True),
        ("/queue /branch", True),
        ("/mine", True),
        ("/branch plan", False),
        ("/new", False),
        ("/title", False),
    ],
)
def test_a_branch_by_command_gets_a_name_that_is_nobodys(text: str, named: bool) -> None:
    command = read_command(text, {"mine": {"type": "alias", "target": "/branch"}})
    assert command is not None
    one, other = with_name(text, command, "Plan"), with_name(text, command, "Plan")
    if not named:
        assert one == text
        return
    assert one != other and re.fullmatch(re.escape(text.strip()) + r" Plan \([0-9a-f]{6}\)", one)
    assert "branch (" in with_name(text, command, "")
