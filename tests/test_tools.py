"""Client tools: what is taken, and what the model gets of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agui_adapter.errors import AguiError
from agui_adapter.tools import ClientTool, content_of, read_tools

TOOL = {"name": "get_color", "description": "Asks.", "parameters": {"type": "object", "properties": {"q": {}}}}


def test_a_tool_is_offered_as_it_came() -> None:
    (tool,) = read_tools([TOOL], {"terminal"})
    assert tool.definition() == {"type": "function", "function": TOOL}


@pytest.mark.parametrize("parameters", [{}, {"parameters": None}])
def test_no_parameters_are_an_empty_object(parameters: dict[str, Any]) -> None:
    (tool,) = read_tools([{"name": "x", "description": "", **parameters}], ())
    assert tool == ClientTool("x", "", {"type": "object", "properties": {}})
    # One tool's schema is no other's.
    assert tool.parameters is not read_tools([{"name": "x", "description": ""}], ())[0].parameters


def test_order_is_kept_and_none_are_none() -> None:
    names = ["b", "a", "c"]
    assert [tool.name for tool in read_tools([{**TOOL, "name": name} for name in names], ())] == names
    assert read_tools(None, ()) == read_tools([], ()) == ()


@pytest.mark.parametrize("name", ["a", "A-1_b", "x" * 64])
def test_names_that_every_provider_takes(name: str) -> None:
    assert read_tools([{**TOOL, "name": name}], ())[0].name == name


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "é", "x" * 65, "a\n", "a/b", "__proto__!"])
def test_other_names(name: str) -> None:
    with pytest.raises(AguiError) as refused:
        read_tools([{**TOOL, "name": name}], ())
    assert (refused.value.status, refused.value.code) == (422, "invalid_tool")


def test_a_name_of_the_servers_is_never_taken() -> None:
    with pytest.raises(AguiError) as refused:
        read_tools([{**TOOL, "name": "terminal"}], frozenset({"terminal"}))
    assert refused.value.code == "tool_name_taken" and "'terminal'" in refused.value.message


@pytest.mark.parametrize("parameters", [[], "x", True, 5])
def test_parameters_are_a_schema_object(parameters: Any) -> None:
    with pytest.raises(AguiError):
        read_tools([{**TOOL, "parameters": parameters}], ())


def test_twice_and_too_many() -> None:
    with pytest.raises(AguiError, match="twice"):
        read_tools([TOOL, TOOL], ())
    many = [{**TOOL, "name": f"t{number}"} for number in range(129)]
    assert len(read_tools(many[:-1], ())) == 128
    with pytest.raises(AguiError) as refused:
        read_tools(many, ())
    assert (refused.value.status, refused.value.code) == (413, "too_many_tools")


def test_the_size_of_all_definitions_together() -> None:
    tools = [{**TOOL, "name": f"t{number}", "description": "x" * 500} for number in range(2)]
    assert len(read_tools(tools, (), most_bytes=2000)) == 2
    with pytest.raises(AguiError) as refused:
        read_tools(tools, (), most_bytes=1000)
    assert (refused.value.status, refused.value.code) == (413, "tools_too_large")


PNG = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
LINK = {"type": "image", "source": {"type": "url", "value": "https://example.org/a.png"}}


@pytest.mark.parametrize(
    ("text", "error", "parts", "whole", "images"),
    [
        ("red", "", [], "red", []),
        ("", "", [], "", []),
        (" a\n", "", [], " a\n", []),
        ("", "", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb", []),
        ("", "", [PNG], "", ["data:image/png;base64,aGk="]),
        ("", "", [{"type": "text", "text": "a"}, LINK], "a", ["https://example.org/a.png"]),
        ("", "", [{"type": "audio", "source": {"type": "url", "value": "x"}}], "[a part of type audio", []),
        ("", "", [{"type": "image", "source": {"type": "file", "value": "x"}}], "[a part of type image", []),
    ],
)
def test_what_the_model_gets(text: str, error: str, parts: list[Any], whole: str, images: list[str]) -> None:
    made, shown = content_of(text, error, parts)
    assert made == whole or (whole.startswith("[") and made.startswith(whole))
    assert [one["image_url"]["url"] for one in shown] == images


def test_an_error_is_told_with_what_there_is() -> None:
    assert json.loads(content_of("", "no", [])[0]) == {"error": "no"}
    assert json.loads(content_of("half", "nö", [])[0]) == {"error": "nö", "content": "half"}
    assert "nö" in content_of("half", "nö", [])[0]
