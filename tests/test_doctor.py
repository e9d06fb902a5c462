"""The doctor's findings: each trouble is named, and each finding but a good one says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agui_adapter import __version__, cli, doctor
from agui_adapter.config import load
from agui_adapter.doctor import installed, live
from agui_adapter.doctor.findings import Finding

KEY = "doctor-test-key-0123456789"


def by_check(findings: Any) -> dict[str, Finding]:
    made = {}
    for one in findings:
        assert one.do or one.level == "ok", f"{one} says nothing to do"
        made[one.check] = one
    return made


class TestInstalled:
    def test_this_environment(self) -> None:
        found = by_check(installed.packages())
        assert found["python"].level == found["hermes"].level == "ok"
        assert "0.19.0" in found["hermes"].text and __version__ in found["hermes"].text

    def test_mcp_2_beside_hermes_0_19(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installed, "_version", lambda name: {"mcp": "2.2.0", "pydantic": "2.13.4"}.get(name, ""))
        found = by_check(installed.pins("0.19.0"))
        assert found["mcp"].level == "error" and "mcp>=1.26,<2" in found["mcp"].do
        assert "mcp 2.2.0 (Hermes pins 1.26.0)" in found["pins"].text
        assert "mcp" not in by_check(installed.pins("0.22.0"))

    def test_no_hermes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installed, "_version", lambda name: "")
        assert by_check(installed.packages())["hermes"].level == "error"
        assert [one.check for one in doctor.examine(live=False)] == ["python", "hermes"]

    def test_another_hermes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installed, "_version", lambda name: "0.22.0" if name == "hermes-agent" else "")
        assert by_check(installed.packages())["hermes"].level == "warning"

    @pytest.mark.parametrize(
        ("config", "check", "level"),
        [
            ({"plugins": {"enabled": ["agui"]}}, "plugin", "ok"),
            ({"plugins": {"enabled": ["irc"]}}, "plugin", "error"),
            ({}, "plugin", "error"),
            ({"plugins": {"enabled": ["agui"]}, "agui": {"enabled": False}}, "enabled", "error"),
        ],
    )
    def test_the_plugin(self, config: dict[str, Any], check: str, level: str) -> None:
        assert by_check(installed.plugin(config, []))[check].level == level

    def test_missing_packages(self) -> None:
        assert "orjson" in by_check(installed.plugin({}, ["orjson"]))["packages"].text

    def test_settings(self) -> None:
        found, told = installed.settings({"port": 8651}, {})
        assert found is not None and found.port == 8651 and by_check(told)["settings"].level == "ok"
        found, told = installed.settings({"prot": 1}, {})
        assert found is None and "did you mean port" in by_check(told)["settings"].text

    @pytest.mark.parametrize(
        ("extra", "environ", "level"),
        [
            ({}, {"AGUI_ALLOWED_USERS": "local"}, "ok"),
            ({}, {"AGUI_API_KEY": KEY}, "ok"),
            ({}, {}, "note"),
            ({}, {"GATEWAY_ALLOW_ALL_USERS": "true"}, "warning"),
        ],
    )
    def test_who_may_come(self, extra: dict[str, Any], environ: dict[str, str], level: str) -> None:
        assert by_check(installed.who(load(extra, environ), environ))["who"].level == level

    def test_everybody_from_everywhere_is_refused(self) -> None:
        environ = {"AGUI_API_KEY": KEY, "AGUI_ALLOW_ALL_USERS": "1"}
        found, told = installed.settings({"host": "0.0.0.0"}, environ)
        assert found is None and "AGUI_ALLOW_ALL_USERS" in by_check(told)["settings"].text
        assert KEY not in str(told)

    @pytest.mark.parametrize(
        ("config", "seconds", "check", "level"),
        [
            ({"approvals": {"mode": "manual"}}, 60, "approvals", "ok"),
            ({"approvals": {"mode": "off"}}, 60, "approvals", "warning"),
            ({}, 0, "approvals", "error"),
            ({}, 60, "drain", "note"),
            ({"agent": {"restart_drain_timeout": 30}}, 60, "drain", "ok"),
            ({"gateway": {"proxy_url": "http://x"}}, 60, "stream", "warning"),
            ({"model": {"openai_runtime": "codex_app_server"}}, 60, "stream", "warning"),
            ({}, 60, "stream", "ok"),
        ],
    )
    def test_hermes_own_settings(self, config: dict[str, Any], seconds: float, check: str, level: str) -> None:
        assert by_check(installed.hermes(config, load({}, {}), seconds))[check].level == level


Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve() -> Any:
    """A server that answers every address with one status and body."""
    servers: list[TestServer] = []

    async def make(status: int = 200, body: Any = None) -> str:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(body if body is not None else {}, status=status)

        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("")).rstrip("/")

    yield make
    for server in servers:
        await server.close()


class TestLive:
    @pytest.mark.parametrize(("status", "level"), [(200, "ok"), (401, "error"), (503, "error"), (404, "ok")])
    async def test_the_models_server(self, serve: Serve, status: int, level: str) -> None:
        config = {"model": {"base_url": await serve(status), "api_key": KEY, "default": "m"}}
        found = await live.model(config)
        assert found.level == level and KEY not in str(found)

    async def test_a_model_that_is_not_there(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            base = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        assert (await live.model({"model": {"base_url": base}})).level == "error"
        assert (await live.model({"model": {"default": "x"}})).level == "note"
        assert (await live.model({"model": "x"})).level == "note"

    async def test_what_listens_at_the_port(self, serve: Serve) -> None:
        ready, found = await live.server(await serve(200, {"status": "ok", "version": __version__}))
        assert ready and found.level == "ok"
        ready, found = await live.server(await serve(200, {"status": "ok", "version": "0.0.1"}))
        assert ready and found.level == "warning" and "0.0.1" in found.text
        ready, found = await live.server(await serve(503, {"status": "starting", "version": __version__}))
        assert not ready and found.level == "warning"
        ready, found = await live.server(await serve(200, {"another": "program"}))
        assert not ready and found.level == "error" and "agui.port" in found.do

    async def test_nothing_and_no_http(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
        ready, found = await live.server(f"http://127.0.0.1:{port}")
        assert not ready and "nothing listens" in found.text

    @pytest.mark.parametrize(
        ("sessions", "level"),
        [
            ({"sessions": {"stored": True, "turnsLost": 3}}, ""),
            ({"sessions": {"stored": False, "turnsLost": 3}}, "error"),
            ({}, ""),
        ],
    )
    async def test_turns_that_hermes_could_not_store(self, serve: Serve, sessions: dict[str, Any], level: str) -> None:
        """Only while it cannot; a gateway of an earlier version does not say."""
        counts = {"turns": {"running": 0, "most": 2}, "parked": {"turns": 0, "most": 2}, "streams": {"open": 0}}
        url = await serve(200, {"store": {"onDisk": True}, "untappable": "", **counts, **sessions})
        found = by_check(await live.details(url, KEY))
        assert found["load"].level == "ok" and (found["sessions"].level if level else "sessions" not in found)

    async def test_a_run_that_is_refused(self, serve: Serve) -> None:
        found = await live.round_trip(await serve(401, {"code": "token_needed", "detail": "A token is needed."}), "")
        assert found.level == "error" and "AGUI_API_KEY" in found.do


class TestCommand:
    def test_findings_and_exit_code(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        findings = [Finding("a", "ok", "fine"), Finding("b", "warning", "so so", "do this")]
        monkeypatch.setattr(doctor, "examine", lambda **_: findings)
        assert cli.main(["doctor"]) == 0
        printed = capsys.readouterr()
        assert "✓ a: fine" in printed.out and "→ do this" in printed.out and "Nothing is wrong" in printed.err
        findings.append(Finding("c", "error", "broken", "do that"))
        assert cli.main(["doctor", "--json"]) == 1
        made = json.loads(capsys.readouterr().out)
        assert made["ok"] is False and made["findings"][2] == {
            "check": "c",
            "level": "error",
            "text": "broken",
            "do": "do that",
        }
