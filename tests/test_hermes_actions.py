"""The fourth part of the seam, where it is pure: whose child is whose, what is copied, what is a command."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gateway", reason="needs hermes-agent==0.19.0")

from tools import delegate_tool

from agui_adapter.hermes.actions import Actions, _copied, is_command


class _Child:
    """What Hermes keeps of a running child: the session and the subagent that made it."""

    def __init__(self, session_id: str, parent: str, maker: str | None = None) -> None:
        self.session_id, self._parent_session_id, self.maker = session_id, parent, maker
        self.steered: list[str] = []
        self.interrupted = 0

    def steer(self, text: str) -> bool:
        self.steered.append(text)
        return True

    def interrupt(self, message: str) -> None:
        self.interrupted += 1


@pytest.fixture
def children() -> Iterator[dict[str, _Child]]:
    """A child of session `mine`, its own child, and a child of another session; in Hermes's registry."""
    made = {
        "sa-mine": _Child("child-1-compacted", "mine"),
        "sa-deep": _Child("child-2", "child-1", "sa-mine"),
        "sa-other": _Child("child-3", "other"),
        "sa-lost": _Child("child-4", "child-5", "sa-loop"),
        "sa-loop": _Child("child-5", "child-4", "sa-lost"),
        "sa-left": _Child("child-6", "child-7", "sa-gone"),
    }
    for started, (name, child) in enumerate(made.items()):
        record = {"subagent_id": name, "parent_id": child.maker, "goal": name, "started_at": float(started)}
        delegate_tool._register_subagent(record | {"status": "running", "agent": child})
    yield made
    for name in made:
        delegate_tool._unregister_subagent(name)


ACTIONS = Actions(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]


def test_children_and_their_children_belong_to_the_session_that_made_them(children: dict[str, _Child]) -> None:
    assert [one["id"] for one in ACTIONS.subagents(["mine"])] == ["sa-mine", "sa-deep"]
    assert [one["id"] for one in ACTIONS.subagents(["before", "other"])] == ["sa-other"]
    assert ACTIONS.subagents([]) == ACTIONS.subagents([""]) == []


def test_nobody_elses_child_is_reached(children: dict[str, _Child]) -> None:
    assert ACTIONS.steer_subagent(["mine"], "sa-deep", "hello") and children["sa-deep"].steered == ["hello"]
    assert ACTIONS.stop_subagent(["mine"], "sa-mine") and children["sa-mine"].interrupted == 1
    for name in ("sa-other", "sa-lost", "sa-loop", "sa-left", "sa-unknown", ""):
        assert not ACTIONS.steer_subagent(["mine"], name, "hello")
        assert not ACTIONS.stop_subagent(["mine"], name)
    assert not children["sa-other"].steered and not children["sa-other"].interrupted


def test_what_is_stored_as_json_is_copied_as_what_it_is() -> None:
    row: dict[str, Any] = {
        "id": 7,
        "session_id": "old",
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c"}],
        "reasoning_details": '[{"type": "text"}]',
        "codex_message_items": "not json",
        "token_count": 5,
        "active": 0,
        "compacted": 1,
        "timestamp": 12.5,
        "api_content": None,
    }
    assert _copied(row) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c"}],
        "reasoning_details": [{"type": "text"}],
        "timestamp": 12.5,
    }


@pytest.mark.parametrize("text", ["/new", " /STOP now", "/reset", "/bg do it"])
def test_commands(text: str) -> None:
    assert is_command(text)


@pytest.mark.parametrize("text", ["", "  ", "/", "new", "/etc/hosts is it", "a /new", "//new"])
def test_what_is_no_command(text: str) -> None:
    assert not is_command(text)
