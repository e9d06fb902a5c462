"""The OpenAPI document: valid, of exactly the routes that are there, with every error code of the sources."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

import agui_adapter
from agui_adapter.config import load
from agui_adapter.error_codes import CODES
from agui_adapter.errors import AguiError
from agui_adapter.openapi import document
from agui_adapter.openapi_page import page
from agui_adapter.operation import Body, Query, operation, operation_of, parsed, queried
from agui_adapter.server import Server
from tests.scripted import serving

SOURCES = Path(agui_adapter.__file__).parent


@pytest.fixture(scope="module")
def app() -> web.Application:
    return Server(None, load({}, {})).application()  # type: ignore[arg-type] (no request is served)


@pytest.fixture(scope="module")
def made(app: web.Application) -> dict[str, Any]:
    return json.loads(json.dumps(document(app)))  # type: ignore[no-any-return]


def operations(made: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, told) for path, methods in made["paths"].items() for method, told in methods.items()]


def test_it_is_valid(made: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(made).validate()


def test_every_route_is_in_it_and_nothing_else(app: web.Application, made: dict[str, Any]) -> None:
    there = {
        (
            re.sub(r"\{([^}:]+):.*\}", r"{\1}", getattr(route.resource, "_orig_path", route.resource.canonical)),
            route.method,
        )
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("HEAD", "*", "OPTIONS")
    }
    assert {(path, method.upper()) for path, method, _ in operations(made)} == there


def test_operations_are_told_apart_and_described(made: dict[str, Any]) -> None:
    names = [told["operationId"] for _, _, told in operations(made)]
    assert len(set(names)) == len(names)
    for path, _, told in operations(made):
        assert told["summary"] and len(told["summary"]) <= 120, path
        assert told["responses"] and all(one["description"] for one in told["responses"].values()), path
        errors = {status for status in told["responses"] if int(status) >= 400}
        assert {"421", "403", "500"} <= errors, path
        assert told.get("security") == [] or "401" in errors, path


def test_every_code_is_in_the_document(made: dict[str, Any]) -> None:
    for code in CODES:
        assert f"`{code}`" in made["info"]["description"], code


# --- the page


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.tags: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "action", "srcset"):
                self.found.append((tag, value or ""))
            if name == "id":
                self.ids.add(value or "")
            assert not name.startswith("on") and name != "style", (tag, name)


def test_the_page_needs_nothing_from_elsewhere(made: dict[str, Any]) -> None:
    links = Links()
    links.feed(page(made))
    assert not links.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert {value for _, value in links.found if not value.startswith("#")} == {"openapi.json"}
    assert {value[1:] for _, value in links.found if value.startswith("#")} <= links.ids
    assert {told["operationId"] for _, _, told in operations(made)} <= links.ids


def test_the_page_takes_no_text_for_markup() -> None:
    app = web.Application()

    @operation("server")
    async def get(request: web.Request) -> web.Response:
        """<script>alert(1)</script> & "so on"."""
        raise NotImplementedError

    app.router.add_get("/x", get)
    text = page(document(app))
    assert "<script>" not in text and "&lt;script&gt;" in text


async def test_both_are_served_to_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving({"require_token": True}, tmp_path, monkeypatch, key="0123456789abcdef-key") as (_, url),
        aiohttp.ClientSession() as http,
    ):
        async with http.get(f"{url}/openapi.json") as response:
            assert response.status == 200 and response.content_type == "application/json"
            assert (await response.json())["openapi"] == "3.1.0"
        async with http.get(f"{url}/docs") as response:
            assert response.status == 200 and response.content_type == "text/html"
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert "<style>" in await response.text()


# --- bodies and queries


class Example(Body):
    name: str
    count: int = 0


class Asked(Query):
    limit: int = 5
    on: bool = False


def test_a_body_is_read_by_its_model() -> None:
    assert parsed(Example, {"name": "x", "count": 2}).count == 2
    for wrong, param in (
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "x", "count": "2"}, "count"),
        ({"name": "x", "count": True}, "count"),
        ({"name": "x", "more": 1}, "more"),
    ):
        with pytest.raises(AguiError) as caught:
            parsed(Example, wrong)
        assert (caught.value.status, caught.value.code) == (422, "invalid_input")
        assert caught.value.members == {"param": param} and caught.value.message.startswith(f"{param}: ")


def test_an_error_never_quotes_what_stood_there() -> None:
    with pytest.raises(AguiError) as caught:
        parsed(Example, {"name": ["sk-secret"]})
    assert "sk-secret" not in caught.value.message


def test_a_query_is_read_by_its_model() -> None:
    from multidict import MultiDict

    assert queried(Asked, MultiDict({"limit": "7", "on": "1", "other": "x"})) == Asked(limit=7, on=True)
    assert queried(Asked, MultiDict({})) == Asked()
    for wrong in ({"limit": "seven"}, {"limit": ""}, {"on": ""}):
        with pytest.raises(AguiError):
            queried(Asked, MultiDict(wrong))


def test_every_handler_says_what_it_takes_and_gives(app: web.Application) -> None:
    silent = {
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("HEAD", "*") and operation_of(route.handler) is None
    }
    assert not silent, "give these handlers an @operation(…)"


def codes_in_the_sources() -> dict[str, set[int]]:
    """Every literal code of an AguiError, with the statuses that stand beside it."""
    found: dict[str, set[int]] = {}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            values = [one.value if isinstance(one, ast.Constant) else None for one in node.args]
            if node.func.id == "AguiError" and len(values) >= 2 and isinstance(values[1], str):
                found.setdefault(values[1], set()).add(values[0])  # type: ignore[arg-type]
            elif node.func.id == "_too_many" and values and isinstance(values[0], str):
                found.setdefault(values[0], set()).add(429)
            elif node.func.id == "bad_request":
                found.setdefault(str(values[1] or "") if len(values) > 1 else "bad_request", set()).add(400)
    return {code: statuses for code, statuses in found.items() if code}


def test_every_code_is_listed_with_its_status() -> None:
    for code, found in codes_in_the_sources().items():
        assert code in CODES, f"{code}: add it to error_codes.py"
        assert {one for one in found if one is not None} <= set(CODES[code][0]), code
    assert {"thread_busy", "invalid_json", "invalid_input"} <= codes_in_the_sources().keys()
