"""The console's files over HTTP: what is served, how it is cached and compressed, and what is there without them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from agui_adapter.errors import AguiError
from agui_adapter.web_routes import BUILT, add_routes

SCRIPT = "console.log('hello');" * 50
FIRST_LOAD_BYTES = 300_000
"""What a browser may have to fetch before the console shows a thread, compressed."""


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except AguiError as error:
        return web.Response(status=error.status, text=error.code)
    return response


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Hermes</title>", "utf-8")
    script = tmp_path / "assets" / "index-abc.js"
    script.write_text(SCRIPT, "utf-8")
    script.with_name("index-abc.js.gz").write_bytes(gzip.compress(SCRIPT.encode()))
    (tmp_path / "secret.txt").write_text("not for anybody", "utf-8")
    return tmp_path


@pytest.fixture
async def client(aiohttp_client: Any, built: Path) -> TestClient[Any, Any]:
    app = web.Application(middlewares=[_errors])
    add_routes(app, None, built)  # type: ignore[arg-type]
    made: TestClient[Any, Any] = await aiohttp_client(app)
    return made


def policy(response: Any) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in response.headers["Content-Security-Policy"].split(";"))
    return {name: value for name, _, value in parts}


async def test_the_page_runs_scripts_of_its_own_origin_only(client: TestClient[Any, Any]) -> None:
    response = await client.get("/")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/html")
    assert response.headers["Cache-Control"] == "no-cache"
    rules = policy(response)
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == rules["style-src"] == "'self'"
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert rules["frame-ancestors"] == "'none'"


async def test_an_asset_is_kept_for_ever(client: TestClient[Any, Any]) -> None:
    response = await client.get("/assets/index-abc.js")
    assert await response.text() == SCRIPT
    assert response.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert "immutable" in response.headers["Cache-Control"]
    assert response.headers["Content-Encoding"] == "gzip"  # the test client takes it


async def test_a_client_that_takes_no_compression_gets_the_file(client: TestClient[Any, Any]) -> None:
    response = await client.get("/assets/index-abc.js", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in response.headers
    assert await response.text() == SCRIPT


@pytest.mark.parametrize(
    "path", ["/assets/nothing.js", "/assets/..%2Fsecret.txt", "/assets/%2e%2e/secret.txt", "/assets/index-abc.js.gz"]
)
async def test_nothing_else_is_served(client: TestClient[Any, Any], path: str) -> None:
    response = await client.get(path)
    assert response.status == 404


async def test_a_file_that_is_built_later_is_found(client: TestClient[Any, Any], built: Path) -> None:
    assert (await client.get("/assets/later.css")).status == 404
    (built / "assets" / "later.css").write_text("a{}", "utf-8")
    assert (await client.get("/assets/later.css")).status == 200


async def test_without_a_build_the_page_says_what_to_do(aiohttp_client: Any, tmp_path: Path) -> None:
    app = web.Application(middlewares=[_errors])
    add_routes(app, None, tmp_path / "nowhere")  # type: ignore[arg-type]
    client = await aiohttp_client(app)
    response = await client.get("/")
    assert response.status == 200
    assert "make web" in await response.text()
    assert policy(response)["script-src"] == "'self'"


@pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="the web console is not built: make web (needs Node)")
def test_the_first_load_is_small() -> None:
    """What `index.html` names, by gzip: the larger of the two that browsers get."""
    page = (BUILT / "index.html").read_text("utf-8")
    first = [path for path in (BUILT / "assets").iterdir() if f"assets/{path.name}" in page]
    assert any(path.suffix == ".js" for path in first)
    size = sum(path.with_name(f"{path.name}.gz").stat().st_size for path in first)
    assert size + (BUILT / "index.html.gz").stat().st_size <= FIRST_LOAD_BYTES
    assert "<script>" not in page and "style=" not in page  # the policy would stop them
