"""The port itself: hosts, origins, content types, addresses, headers, errors, and what it refuses to be opened with."""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter import auth
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.scripted import ScriptedAdapter, new_adapter, serving

KEY = "the-owners-key-0123456789abcdef"
APP = "https://app.example"
Opened = tuple[Any, str, aiohttp.ClientSession]


@pytest.fixture
async def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    extra = {"cors_origins": [APP], "requests_per_minute": 0, "failures_per_minute": 0}
    async with serving(extra, tmp_path, monkeypatch, key=KEY) as (adapter, url), aiohttp.ClientSession() as http:
        yield adapter, url, http


def body(thread: str = "t") -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "content": "x"}
    return {"threadId": thread, "runId": "r", "protocolVersion": "1.0", "messages": [message]}


async def code(response: aiohttp.ClientResponse) -> tuple[int, str]:
    found = await response.json(content_type=None)
    return response.status, found.get("code") or found["error"]["code"]


def every_route(adapter: Any) -> list[tuple[str, str]]:
    found = []
    for route in adapter._server._runner.app.router.routes():
        path = route.resource.canonical if route.resource is not None else ""
        methods = ("GET", "POST", "DELETE") if route.method == "*" else (route.method,)
        found += [(method, path.replace("{", "").replace("}", "")) for method in methods if method != "HEAD"]
    assert len(found) > 30
    return found


class TestHostsAndOrigins:
    """X06, X07, X09, X10, X11: who rebinds a name, and which pages may call."""

    async def test_a_foreign_host_is_refused_on_every_route(self, door: Opened) -> None:
        adapter, url, http = door
        for method, path in every_route(adapter):
            async with http.request(method, url + path, headers={"Host": "evil.test"}) as response:
                assert response.status == 421, f"{method} {path}"

    async def test_a_foreign_page_is_refused_on_every_route(self, door: Opened) -> None:
        adapter, url, http = door
        for method, path in every_route(adapter):
            for origin in ("https://evil.test", "null", f"{APP}.evil.test", "http://app.example"):
                async with http.request(method, url + path, headers={"Origin": origin}) as response:
                    assert response.status == 403, f"{method} {path} {origin}"
                    assert "Access-Control-Allow-Origin" not in response.headers

    async def test_a_listed_page_may_read_streams_errors_and_preflights(self, door: Opened) -> None:
        adapter, url, http = door
        adapter.script = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
        origin = {"Origin": APP}
        preflight = {**origin, "Access-Control-Request-Method": "POST"}
        for method, path, headers in (
            ("POST", "/agui", origin),
            ("GET", "/agui/threads", origin),
            ("GET", "/nothing-here", origin),
            ("GET", "/agui/threads/nobodys", origin),
            ("OPTIONS", "/agui", preflight),
        ):
            sent = body() if method == "POST" else None
            async with http.request(method, url + path, json=sent, headers=headers) as response:
                assert response.headers["Access-Control-Allow-Origin"] == APP, path
                assert "Origin" in response.headers["Vary"]
                assert "Access-Control-Allow-Credentials" not in response.headers
                if method == "OPTIONS":
                    allowed = response.headers["Access-Control-Allow-Headers"]
                    assert "Authorization" in allowed and "Last-Event-ID" in allowed and "*" not in allowed

    async def test_a_listed_page_needs_a_token_and_nothing_between(self, door: Opened) -> None:
        """X11: what a page's own `fetch` sends, with the answer's headers that let it read the stream."""
        adapter, url, http = door
        adapter.script = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
        for token, status in ((KEY, 200), ("wrong", 401)):
            headers = {"Origin": APP, "Sec-Fetch-Site": "cross-site", "Authorization": f"Bearer {token}"}
            async with http.post(f"{url}/agui", json=body(), headers=headers) as response:
                assert response.status == status and response.headers["Access-Control-Allow-Origin"] == APP
                assert ("Hello" in await response.text()) == (status == 200)
        assert [turn.thread.principal.id for turn in adapter.submitted] == ["owner"]

    async def test_every_header_of_ours_may_be_sent_or_read_by_a_page(self, door: Opened) -> None:
        """X10: those that the sources name, so that a new one is not forgotten."""
        _, url, http = door
        preflight = {"Origin": APP, "Access-Control-Request-Method": "POST"}
        async with http.options(f"{url}/agui", headers=preflight) as response:
            named = {one.strip().lower() for one in response.headers["Access-Control-Allow-Headers"].split(",")}
            named |= {one.strip().lower() for one in response.headers["Access-Control-Expose-Headers"].split(",")}
        package = Path(auth.__file__).parent
        sources = "".join(path.read_text("utf-8") for path in package.rglob("*.py") if "demo" not in path.parts)
        ours = set(re.findall(r'"((?:X-Hermes|X-Session|Mcp|Idempotency|Last-Event)-[A-Za-z-]+)"', sources))
        assert {"Idempotency-Key", "Mcp-Session-Id", "X-Hermes-Session-Id", "Last-Event-ID"} <= ours
        assert {one.lower() for one in ours} <= named

    async def test_a_proxys_name_is_served_where_the_operator_lists_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """X07: no other name, and the same origin under that name."""
        extra = {"allowed_hosts": ["hermes.example"]}
        owner = {"Authorization": f"Bearer {KEY}"}
        async with serving(extra, tmp_path, monkeypatch, key=KEY) as (_, url), aiohttp.ClientSession() as http:
            for host, origin, status in (
                ("hermes.example", "https://hermes.example", 200),
                ("hermes.example", "https://evil.test", 403),
                ("evil.test", "https://hermes.example", 421),
                ("hermes.example.evil.test", "https://hermes.example", 421),
            ):
                headers = {**owner, "Host": host, "Origin": origin}
                async with http.get(f"{url}/agui/threads", headers=headers) as response:
                    assert response.status == status, (host, origin)


class TestBodiesAndAddresses:
    """X12, and I12 of a request's form."""

    async def test_a_body_that_a_page_can_send_unasked_is_refused_on_every_route(self, door: Opened) -> None:
        adapter, url, http = door
        for method, path in every_route(adapter):
            if method not in ("POST", "PATCH", "DELETE", "PUT"):
                continue
            for kind in ("text/plain", "text/plain; x=application/json", "application/x-www-form-urlencoded", ""):
                headers = {"Content-Type": kind, "Authorization": f"Bearer {KEY}"}
                async with http.request(method, url + path, data=b'{"a": 1}', headers=headers) as response:
                    assert response.status == 415, f"{method} {path} {kind!r}"

    @pytest.mark.parametrize("name", ["token", "access_token", "api_key", "key", "KEY"])
    async def test_no_token_in_an_address(self, door: Opened, name: str) -> None:
        _, url, http = door
        for path in ("/agui/threads", "/health", "/files/" + "a" * 32, "/nothing"):
            async with http.get(f"{url}{path}?{name}={KEY}") as response:
                assert await code(response) == (400, "token_in_address")


class TestWhatIsSaid:
    """X13, X16: headers of every response, and errors."""

    async def test_every_response_has_the_headers(self, door: Opened) -> None:
        adapter, url, http = door
        adapter.script = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
        for method, path in [*every_route(adapter), ("GET", "/nothing"), ("OPTIONS", "/agui")]:
            sent, headers = None, {"Authorization": "Bearer wrong"}  # most are refused, which is quick
            if (method, path) == ("POST", "/agui"):
                sent, headers = body(), {}
            try:
                limit = aiohttp.ClientTimeout(20)
                async with http.request(method, url + path, json=sent, headers=headers, timeout=limit) as response:
                    assert response.headers["X-Content-Type-Options"] == "nosniff", path
                    assert response.headers["Referrer-Policy"] == "no-referrer", path
                    assert "Content-Security-Policy" in response.headers, path
                    assert "no-" in response.headers["Cache-Control"] or "private" in response.headers["Cache-Control"]
                    assert response.headers["X-Frame-Options"] == "DENY", path
            except TimeoutError:
                pytest.fail(f"{method} {path} does not answer")

    async def test_an_error_inside_tells_nothing(
        self, door: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        adapter, url, http = door

        async def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"a stack with {KEY} in /home/someone/secret.py")

        monkeypatch.setattr(adapter, "known_thread", broken)
        async with http.get(f"{url}/agui/threads/x") as response:
            text = await response.text()
            assert response.status == 500
        assert KEY not in text and "Traceback" not in text and "/home" not in text and "RuntimeError" not in text

    async def test_keys_are_compared_in_constant_time(self, door: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
        """X14."""
        compared: list[Any] = []

        def spy(one: Any, other: Any) -> bool:
            compared.append(other)
            return hmac.compare_digest(one, other)

        monkeypatch.setattr(auth, "hmac", type("Spied", (), {"compare_digest": staticmethod(spy)}))
        _, url, http = door
        for token, status in ((KEY, 200), (KEY[:-1] + "x", 401), ("short", 401)):
            async with http.get(f"{url}/agui/threads", headers={"Authorization": f"Bearer {token}"}) as response:
                assert response.status == status or token != "short"
        assert compared == [KEY.encode()] * 3

    async def test_no_line_of_the_log_has_the_key(self, door: Opened, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        _, url, http = door
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"Authorization": f"Bearer {KEY}x"}, {"Origin": KEY}):
            async with http.get(f"{url}/agui/threads", headers=headers) as response:
                await response.read()
        assert KEY not in caplog.text


class TestOpening:
    """What the server refuses to start with: then the port stays closed, and the gateway's other platforms live."""

    @pytest.mark.parametrize(
        ("extra", "environ"),
        [
            ({"host": "0.0.0.0"}, {}),
            ({"host": "0.0.0.0"}, {"AGUI_API_KEY": "short"}),
            ({"host": "0.0.0.0"}, {"AGUI_API_KEY": KEY, "AGUI_ALLOW_ALL_USERS": "true"}),
            ({"host": "0.0.0.0"}, {"AGUI_API_KEY": KEY, "GATEWAY_ALLOW_ALL_USERS": "1"}),
            ({"host": "0.0.0.0"}, {"AGUI_API_KEY": KEY, "AGUI_ALLOWED_USERS": "ana,*"}),
            ({"host": "0.0.0.0"}, {"AGUI_API_KEY": KEY, "GATEWAY_ALLOWED_USERS": "*"}),
            ({"cors_origins": ["*"]}, {}),
            ({"require_token": True}, {}),
            ({"api_key": KEY}, {}),
            ({"tls_cert": "/nowhere.pem", "tls_key": "/nowhere.key"}, {}),
        ],
    )
    async def test_it_does_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], environ: dict[str, str]
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        adapter = new_adapter(ScriptedAdapter, {"port": port, "warmup": False, **extra}, tmp_path, monkeypatch)
        monkeypatch.delenv("GATEWAY_ALLOWED_USERS", raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        assert not await adapter.connect()
        assert adapter.fatal_error_message and not adapter.fatal_error_retryable
        assert KEY not in adapter.fatal_error_message
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
