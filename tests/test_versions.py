"""What differs between versions of Hermes, asked of the one that is installed. `make test-compat` asks the others."""

from __future__ import annotations

import types
from typing import Any

import pytest

from agui_adapter.hermes import versions


def adapter(*, without: str = "") -> Any:
    """Something with all that an adapter and its runner must have, but for one thing."""
    names = [name for name in versions._RUNNER if name != without]
    made = types.SimpleNamespace(**{name: None for name in versions._ADAPTER if name != without})
    made.gateway_runner = types.SimpleNamespace(**{name: None for name in names})
    if without != "pairing_store":
        made.gateway_runner.pairing_store = None
    return made


def test_this_hermes_fits() -> None:
    assert versions.misfit(adapter()) == ""


@pytest.mark.parametrize("name", [*versions._RUNNER, "pairing_store", *versions._ADAPTER])
def test_what_is_missing_is_named_with_what_to_do(name: str) -> None:
    told = versions.misfit(adapter(without=name))
    assert name in told and versions.version() in told and "hermes update" in told and "pip install -U" in told


def test_a_module_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_MODULES", (("tools.gone", ("thing",)), ("tools.interrupt", ("gone",))))
    told = versions.misfit(adapter())
    assert "tools.gone.thing" in told and "tools.interrupt.gone" in told


def test_a_hook_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_cli import plugins

    monkeypatch.setattr(plugins, "VALID_HOOKS", plugins.VALID_HOOKS - {"post_tool_call"})
    assert "hook post_tool_call" in versions.misfit(adapter())


def test_a_gateway_that_never_told_its_runner() -> None:
    """As before 0.19 with an adapter that does not declare `gateway_runner`."""
    assert "gateway._agent_cache" in versions.misfit(types.SimpleNamespace())


def test_approvals_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.approvals("_get_approval_timeout")() > 0
    monkeypatch.setattr(versions, "_APPROVALS", ("tools.gone", "tools.approval"))
    assert versions.approvals("resolve_gateway_approval")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        versions.approvals("nothing_like_it")


def test_the_session_of_a_key_before_there_was_a_call_for_it() -> None:
    import threading

    class Store:
        _lock = threading.Lock()
        _entries = types.MappingProxyType({"k": types.SimpleNamespace(session_id="s")})

        def _ensure_loaded_locked(self) -> None:
            assert self._lock.locked()

    assert versions.session_id_of(Store(), "k") == "s"
    assert versions.session_id_of(Store(), "other") is None


@pytest.mark.parametrize(
    ("text", "asks"),
    [("📬 No home channel is set for Agui. Type /sethome", True), ("", False), ("No home channel is set", False)],
)
def test_the_question_for_a_home_channel(text: str, asks: bool) -> None:
    assert versions.asks_for_home(text) is asks


def test_a_steered_text_in_a_row_of_its_own_is_none_of_the_conversation() -> None:
    from agui_adapter.hermes.history import _row

    row = {"id": 1, "session_id": "s", "role": "user", "content": "[OUT-OF-BAND …] go left", "display_kind": "steer"}
    assert _row(row).aside and not _row(row | {"display_kind": None}).aside


def test_a_row_as_clients_see_it() -> None:
    from agui_adapter.hermes.history import _row

    secret = "ghp_" + "a1B2" * 9
    call = {"id": "c", "function": {"name": "terminal", "arguments": f'{{"command": "echo {secret}"}}'}}
    spoken = {"id": 1, "session_id": "s", "role": "assistant", "content": "Look.", "tool_calls": [call]}
    made = _row(spoken | {"reasoning": f"It is {secret}."}, str.upper)
    assert made.content == "LOOK." and made.live == ("s", 1)
    assert made.reasoning.startswith("It is ") and secret not in made.reasoning + str(made.calls)
    assert "echo" in made.calls[0]["function"]["arguments"]
    result = {"id": 2, "session_id": "s", "role": "tool", "content": f"token {secret}", "tool_call_id": "c"}
    assert secret not in _row(result, str).content and _row(result, str).content.startswith("token ")
    assert _row(result).content == f"token {secret}", "whole, for who counts"
    said = {"id": 3, "session_id": "s", "role": "user", "content": f"token {secret}"}
    assert _row(said, str.upper).content == f"token {secret}"
    assert _row(said | {"compacted": 1, "active": 0}).live == ("", 0), "in no memory any more"
    assert _row(said | {"compacted": 1}).live == ("s", 3)
