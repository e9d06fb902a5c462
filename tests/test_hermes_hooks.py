"""The seam's hooks, where they are pure: which subagent is meant, whatever its session is called by now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gateway", reason="needs hermes-agent==0.19.0")

from agent.context_compressor import _DB_PERSISTED_MARKER
from run_agent import _EPHEMERAL_SCAFFOLDING_FLAGS

from agui_adapter.crew import Crew
from agui_adapter.hermes import hooks
from agui_adapter.hermes.objects import is_kept
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Threads
from agui_adapter.stream import GatewayNotice, SubagentFinished, SubagentProgress, SubagentStarted
from agui_adapter.tap import Tap


async def test_a_subagent_whose_session_is_compacted_into_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn keeps its id: what it does, whom it makes and its end are its own; nothing of it stays."""
    loop = asyncio.get_running_loop()
    turn = Threads(ttl_seconds=60).get(Principal("local"), "t1").begin(EventLog(loop))
    bridge: Any = SimpleNamespace(crew=Crew(loop, lambda turn, event: turn.append(event), lambda thread, events: None))
    attachment = hooks._Attachment(bridge, Tap(turn, max_result_chars=1000), SimpleNamespace(), "turn-1")
    monkeypatch.setitem(hooks._attached, "turn-1", attachment)
    child = {"child_session_id": "child", "child_subagent_id": "sa-1", "child_goal": "look"}
    hooks.on_hook("subagent_start", {"parent_turn_id": "turn-1", **child})
    hooks.on_hook("pre_llm_call", {"session_id": "child", "turn_id": "turn-child"})
    refused = {"result": '{"status": "pending_approval"}', "args": {"command": "rm -r x"}}
    hooks.on_hook("post_tool_call", {"turn_id": "turn-child", "session_id": "child-2", **refused})
    made = {"child_session_id": "grandchild", "child_subagent_id": "sa-2", "child_goal": "dig"}
    by = {"parent_turn_id": "turn-child", "parent_session_id": "child-2", "parent_subagent_id": "sa-1"}
    hooks.on_hook("subagent_start", {**by, **made})
    for session in ("grandchild", "child"):
        attachment.progress(
            "subagent.complete", None, "", None, child_session_id=session, status="completed", summary="x"
        )
    hooks.on_hook("subagent_stop", {"child_session_id": "child-2", "child_status": "completed"})
    assert hooks._children == {}
    events = [event for event in turn.log.events() if not isinstance(event, GatewayNotice)]
    assert [type(event) for event in events] == [
        *(SubagentStarted, SubagentProgress, SubagentStarted),
        *(SubagentFinished, SubagentFinished),
    ]
    first, step, second = events[0], events[1], events[2]
    assert isinstance(step, SubagentProgress) and step.steps[-1] == {"kind": "refused", "text": "rm -r x"}
    assert isinstance(first, SubagentStarted) and isinstance(second, SubagentStarted)
    assert second.subagent.parent is first.subagent


KEPT = {_DB_PERSISTED_MARKER: True}


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([], True),
        ([{"role": "user", **KEPT}, {"role": "assistant", **KEPT}], True),
        ([{"role": "user", **KEPT}, {"role": "assistant"}], False),
        ([{"role": "user"}], False),
        *(
            [[{"role": "assistant", **KEPT}, {"role": "user", flag: True}], True]
            for flag in _EPHEMERAL_SCAFFOLDING_FLAGS
        ),
    ],
)
def test_what_hermes_has_written(messages: list[dict[str, Any]], kept: bool) -> None:
    """By the marks of the Hermes that is installed; what it never writes says nothing."""
    assert is_kept(SimpleNamespace(_session_messages=messages)) == kept
