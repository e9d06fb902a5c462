"""What a request to OpenAI's API asks of the model beside its messages: model, sampling, format, tools. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import AguiError
from ..forwarded import NAMES, Overrides, read_overrides
from .conversation import wrong

MAX_FORMAT = 100_000  # bytes of a response format's schema, about
_SPELLED = {"max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"}


@dataclass(frozen=True)
class Options:
    """``tools``: the client's, in the form of ``tools.read_tools``. ``ignored``: what was left out, by name. ``store``:
    the answer may be read again."""

    model: str
    overrides: Overrides
    tools: tuple[dict[str, Any], ...] = ()
    ignored: tuple[str, ...] = ()
    store: bool = True


def read_options(body: Mapping[str, Any], *, allowed: Collection[str], agent: str) -> Options:
    """Raises AguiError 422 for a value that cannot be. ``agent``: the name of the model that stands for the agent."""
    model = body.get("model")
    if model is not None and not (isinstance(model, str) and len(model) <= 200):
        raise wrong("model", "the name of a model, at most 200 characters")
    asked: dict[str, Any] = {}
    for key, value in body.items():
        name = _SPELLED.get(key, key)
        if name in NAMES and value is not None:
            asked[name] = value
    effort = body.get("reasoning")
    if isinstance(effort, Mapping) and effort.get("effort") is not None:
        asked.setdefault("reasoning_effort", effort["effort"])
    if "model" not in allowed or not model or model == agent:
        asked.pop("model", None)  # any name means the agent, and is no wish for another model
    overrides, ignored = read_overrides(asked, allowed=allowed)
    tools, left_out = _tools(body)
    text = body.get("text")
    form = body.get("response_format", text.get("format") if isinstance(text, Mapping) else None)
    overrides = replace(overrides, response_format=_format(form))
    if body.get("n") not in (None, 1):
        raise wrong("n", "1: the agent gives one answer")
    return Options(model or agent, overrides, tools, (*ignored, *left_out), body.get("store") is not False)


def _format(form: Any) -> dict[str, Any] | None:
    """A response format in the shape of Chat Completions; None for plain text."""
    if form is None or (isinstance(form, Mapping) and form.get("type") == "text"):
        return None
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        inner = form.get("json_schema", {name: value for name, value in form.items() if name != "type"})
        if isinstance(inner, dict) and isinstance(inner.get("name"), str) and isinstance(inner.get("schema"), dict):
            if len(repr(inner)) > MAX_FORMAT:
                raise AguiError(413, "format_too_large", "The schema of response_format is too large.")
            return {"type": "json_schema", "json_schema": inner}
        raise wrong("response_format.json_schema", "an object with name and schema")
    raise wrong("response_format.type", "text, json_object or json_schema")


def _tools(body: Mapping[str, Any]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools is None or choice == "none":
        return (), ()
    if not isinstance(tools, list):
        raise wrong("tools", "a list")
    read: list[dict[str, Any]] = []
    left_out: list[str] = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise wrong(where, "an object")
        if tool.get("type", "function") != "function":  # the provider's own tools: the agent has its own
            left_out.append(f"tools.{str(tool.get('type'))[:40]}")
            continue
        function = tool.get("function", tool)
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise wrong(f"{where}.function.name", "a text")
        description = function.get("description")
        read.append(
            {
                "name": name,
                "description": description if isinstance(description, str) else "",
                "parameters": function.get("parameters"),
            }
        )
    if isinstance(choice, dict | str) and choice not in ("auto", "required"):
        wanted = choice.get("function", choice) if isinstance(choice, dict) else None
        name = wanted.get("name") if isinstance(wanted, dict) else None
        if isinstance(name, str):  # the others are not offered; that it is called cannot be forced on an agent
            read = [tool for tool in read if tool["name"] == name]
    return tuple(read), tuple(left_out)
