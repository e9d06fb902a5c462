"""The seam: what a client asked of one turn (`forwarded.Overrides`), set on its agent and taken back after it.

Written for 0.19.0. The gateway gives the agent its reasoning and request settings anew before each turn (run.py,
run_sync), so they are set in the turn's first hook; model and token limit are the agent's own and are put back.
Worker thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_constants import parse_reasoning_effort

from ..forwarded import Overrides

# The APIs whose requests take `agent.request_overrides` word for word (agent/transports); the others drop them.
_SAMPLED = ("chat_completions", "codex_responses")


def override(agent: Any, wanted: Overrides) -> tuple[Callable[[], None], tuple[str, ...]]:
    """Set what is wanted. Returns what takes it back, and the names that this agent's API does not take."""
    changed: list[tuple[str, Any, Any]] = []

    def put(name: str, value: Any) -> None:
        changed.append((name, value, getattr(agent, name, None)))
        setattr(agent, name, value)

    if wanted.model is not None:
        put("model", wanted.model)
    if wanted.max_tokens is not None:
        put("max_tokens", wanted.max_tokens)
    if wanted.reasoning_effort is not None:
        put("reasoning_config", parse_reasoning_effort(wanted.reasoning_effort))
    sampling = {name: getattr(wanted, name) for name in ("temperature", "top_p") if getattr(wanted, name) is not None}
    mode = getattr(agent, "api_mode", "chat_completions")
    taken = mode in _SAMPLED
    if wanted.response_format is not None:
        sampling |= _format(wanted.response_format, mode)
    if sampling and taken:
        put("request_overrides", {**(getattr(agent, "request_overrides", None) or {}), **sampling})

    names = ["response_format" if name == "text" else name for name in sampling]

    def take_back() -> None:
        for name, value, before in reversed(changed):
            if getattr(agent, name, None) is value or getattr(agent, name, None) == value:
                setattr(agent, name, before)
        changed.clear()

    return take_back, () if taken else tuple(names)


def _format(wanted: dict[str, Any], mode: str) -> dict[str, Any]:
    """The response format as the agent's API takes it."""
    if mode != "codex_responses":
        return {"response_format": wanted}
    return {"text": {"format": {"type": wanted["type"], **wanted.get("json_schema", {})}}}
