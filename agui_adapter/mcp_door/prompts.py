"""Prompts: how to give this agent a task, and one for each of its skills. Their texts are for the client's model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..hermes.actions import Actions
from ..session import Principal
from . import sdk
from .desk import Desk, Json

if TYPE_CHECKING:
    from .sdk import Call

_TASK = {"name": "task", "description": "What the agent should do.", "required": True}
_DELEGATE = {
    "name": "delegate",
    "title": "Give the Hermes agent a task",
    "description": "Have the Hermes agent do something, and report what it did.",
    "arguments": [_TASK],
}
_HOW = (
    "Call the tool `ask` of this server with that task as `message`. It knows nothing of our conversation: add the "
    "facts, names and paths that it needs. If it answers `needs_answer`, show me what it asks before you call `answer`."
)


async def _skills(desk: Desk, principal: Principal) -> dict[str, Json]:
    """The agent's skills that this caller may use, by prompt name."""
    await desk.ready()
    actions = Actions(desk.adapter.gateway_runner, desk.adapter.archive.sessions)
    source = desk.adapter.source_of(desk.adapter.threads.of(principal, ""))
    commands = await asyncio.to_thread(actions.commands, source)
    return {f"skill-{one['name']}": one for one in commands if one["kind"] == "skill"}


async def listed(desk: Desk, call: Call) -> Json:
    """``prompts/list``."""
    found: list[Json] = [_DELEGATE]
    for name, skill in (await _skills(desk, call.caller.principal)).items():
        found.append(
            {
                "name": name,
                "title": f"Hermes skill: {skill['name']}",
                "description": skill["description"],
                "arguments": [_TASK],
            }
        )
    return {"prompts": found}


async def get(desk: Desk, call: Call) -> Json:
    """``prompts/get``."""
    name, task = call.params["name"], (call.params.get("arguments") or {}).get("task", "").strip()
    if name == "delegate":
        description, text = _DELEGATE["description"], f"Have the Hermes agent do this: {task}\n\n{_HOW}"
    else:
        skill = (await _skills(desk, call.caller.principal)).get(name)
        if skill is None:
            raise sdk.error(sdk.INVALID_PARAMS, f"There is no prompt {name!r}; `prompts/list` lists them.")
        description = skill["description"]
        text = f"Have the Hermes agent do this with its skill `{skill['name']}`: {task}\n\n{_HOW}"
        text += f" Say in the message that it should use its skill `{skill['name']}`."
    if not task:
        raise sdk.error(sdk.INVALID_PARAMS, "This prompt needs the argument `task`.")
    return {
        "description": description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }
