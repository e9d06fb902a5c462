"""What a model has to say to this Hermes, where versions differ. Told by the tools' own schemas, never by a number."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.e2e.helpers import call


@cache
def many_questions() -> bool:
    """Whether one call of `clarify` may ask several questions."""
    from tools.clarify_tool import CLARIFY_SCHEMA

    return "questions" in CLARIFY_SCHEMA["parameters"]["properties"]


def catalog(folder: Path) -> dict[str, str]:
    """The environment of a Hermes whose package came without its catalogs of words (the repackaged 0.22): a gateway
    would say `gateway.pairing.code_reply` and no code. Empty where they are there, or nothing needs them."""
    try:
        from agent.i18n import _locales_dir
    except ImportError:
        return {}
    if (_locales_dir() / "en.yaml").is_file():
        return {}
    words = {"gateway": {"pairing": {"code_reply": "Ask the operator for `{approve_cmd}`."}}}
    (folder / "en.yaml").write_text(json.dumps(words))
    return {"HERMES_BUNDLED_LOCALES": str(folder)}


def todo_name() -> str:
    """The tool that keeps the agent's plan: `todo`, and from 0.22 on `todo_list`."""
    from tools.todo_tool import TODO_SCHEMA

    return str(TODO_SCHEMA["name"])


def retires_cards() -> bool:
    """Whether the gateway tells an adapter that a question which it asked for it is over (`retire_clarify_card`)."""
    found = find_spec("gateway.run_turn_runner")
    return found is not None and "retire_clarify_card" in Path(str(found.origin)).read_text()


def approval_transports() -> bool:
    """Whether a plugin may offer another way for approvals, which the operator can choose for all platforms."""
    from hermes_cli.plugins import PluginContext

    return hasattr(PluginContext, "register_approval_transport")


def steered_role() -> str:
    """Whose message the model sees a steered text in: a tool's result, and from 0.22 on a row of its own."""
    from agent import prompt_builder

    return "user" if hasattr(prompt_builder, "steer_user_row") else "tool"


def background() -> str:
    """The beginning of a message that starts a background task: `/background`, and from 0.22 on `/bg`."""
    from hermes_cli.commands import COMMAND_REGISTRY

    names = {name for one in COMMAND_REGISTRY for name in (one.name, *one.aliases)}
    return "/background " if "background" in names else "/bg "


def clarify(question: str, choices: list[str] | None = None, call_id: str | None = "") -> dict[str, Any]:
    """A call of `clarify` that asks one question; from 0.22 on it takes a list of them."""
    arguments: dict[str, Any] = {"question": question} | ({"choices": choices} if choices else {})
    if many_questions():
        arguments = {"questions": [arguments]}
    return call("clarify", arguments, call_id)


def offered(choices: list[str]) -> list[str]:
    """The choices as Hermes puts them to the user; from 0.22 on the first of several is recommended."""
    from tools import clarify_tool

    mark = getattr(clarify_tool, "mark_recommended", None)
    return choices if mark is None else list(mark(choices))


def search(query: str, call_id: str | None = "") -> dict[str, Any]:
    """A call of `tool_search`; from 0.22 on it takes several queries."""
    from tools.tool_search import bridge_tool_schemas

    several = "queries" in str(bridge_tool_schemas(1))
    return call("tool_search", {"queries": [query]} if several else {"query": query}, call_id)
