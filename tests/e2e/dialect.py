"""What a model has to say to this Hermes, where versions differ. Told by the tools' own schemas, never by a number."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.e2e.helpers import call


@cache
def _many_questions() -> bool:
    from tools.clarify_tool import CLARIFY_SCHEMA

    return "questions" in CLARIFY_SCHEMA["parameters"]["properties"]


def clarify(question: str, choices: list[str] | None = None, call_id: str | None = "") -> dict[str, Any]:
    """A call of `clarify` that asks one question; from 0.22 on it takes a list of them."""
    arguments: dict[str, Any] = {"question": question} | ({"choices": choices} if choices else {})
    if _many_questions():
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
