"""The reverse proxies of docs/exposing.md, as they stand there: nginx and Caddy before a real port."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.demo.gateway import free_port
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.scripted import Gate, serving

KEY = "the-owners-key-0123456789abcdef"
DOCS = Path(__file__).parents[2] / "docs" / "exposing.md"


def example(language: str, **changes: str) -> str:
    """A configuration of the docs, with this machine's names."""
    found = re.search(rf"```{language}\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert found is not None
    text = found[1]
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return str(cert), str(key)


def nginx(folder: Path, port: int, behind: int, certificate: tuple[str, str]) -> list[str]:
    server = example(
        "nginx",
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "hermes.example;": "localhost;",
            "/etc/ssl/hermes.example.pem": certificate[0],
            "/etc/ssl/private/hermes.example.key": certificate[1],
            "127.0.0.1:8650": f"127.0.0.1:{behind}",
        },
    )
    paths = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
        f"http {{ access_log off;\n{paths}{server} }}\n"
    )
    return ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]


def caddy(folder: Path, port: int, behind: int, certificate: tuple[str, str]) -> list[str]:
    site = example(
        "caddyfile",
        **{
            "hermes.example {": f"https://localhost:{port} {{\n    tls {certificate[0]} {certificate[1]}",
            "127.0.0.1:8650": f"127.0.0.1:{behind}",
        },
    )
    (folder / "Caddyfile").write_text(f"{{\n    admin off\n    auto_https disable_redirects\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
async def proxied(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[str, str]
) -> AsyncIterator[tuple[Any, str, aiohttp.ClientSession]]:
    make = request.param
    if shutil.which(make.__name__) is None:
        pytest.skip(f"{make.__name__} is not installed")
    extra = {"allowed_hosts": ["localhost"], "device_pairing": "on", "proxy_user_header": "X-Forwarded-User"}
    extra["proxy_addresses"] = ["10.9.9.9"]
    folder, port = tmp_path / "proxy", free_port()
    folder.mkdir()
    async with serving(extra, tmp_path, monkeypatch, key=KEY) as (adapter, _):
        command = make(folder, port, adapter._server.port, certificate)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"HOME": str(folder), "PATH": "/usr/bin:/usr/sbin"},
        )
        trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=certificate[0]))
        try:
            async with aiohttp.ClientSession(connector=trust) as http:
                await answering(http, f"https://localhost:{port}/health", process)
                yield adapter, f"https://localhost:{port}", http
        finally:
            process.terminate()
            await process.wait()


async def answering(http: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(60):
        while True:
            assert process.returncode is None, (await process.stderr.read()).decode() if process.stderr else ""
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def test_only_callers_with_a_token_come_through_and_streams_are_streams(proxied: Any) -> None:
    adapter, url, http = proxied
    async with http.get(f"{url}/agui/threads") as response:
        assert (response.status, (await response.json(content_type=None))["code"]) == (401, "token_needed")
    async with http.get(f"{url}/agui/threads", headers={"X-Forwarded-User": "owner"}) as response:
        assert response.status == 401, "nobody names himself"
    owner = {"Authorization": f"Bearer {KEY}", "Origin": url}
    gate = Gate()
    adapter.script = [MessageStart("m1"), MessageChunk("first"), gate, MessageChunk("second"), TurnFinished()]
    message = {"id": "u1", "role": "user", "content": "x"}
    body = {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": [message]}
    async with asyncio.timeout(60), http.post(f"{url}/agui", json=body, headers=owner) as response:
        assert response.status == 200
        seen = b""
        while b"first" not in seen:
            seen += await response.content.readany()
        assert b"second" not in seen, "the first text came before the second was written"
        gate.open()
        seen += await response.read()
        assert b"second" in seen and b"RUN_FINISHED" in seen
    async with http.get(f"{url}/agui/threads", headers={**owner, "Origin": "https://evil.test"}) as response:
        assert response.status == 403
