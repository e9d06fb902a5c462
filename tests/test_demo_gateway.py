"""The demo's gateway process: what it is given, how it starts and ends. The real one runs with Hermes's api_server."""

import asyncio
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from agui_adapter.demo import gateway as module
from agui_adapter.demo.gateway import Gateway, GatewayError, free_port, merge

UNUSED_MODEL = "http://127.0.0.1:9/v1"
LINUX = sys.platform == "linux"


@pytest.fixture
def make() -> Iterator[Callable[..., Gateway]]:
    """Gateways whose only platform is Hermes's own api_server: no part of this package runs in them."""
    made: list[Gateway] = []

    def make(**options: Any) -> Gateway:
        port = free_port()
        server = {"enabled": True, "extra": {"host": "127.0.0.1", "port": port, "key": "k" * 8 + "-Loopback-Test-01"}}
        config = {"plugins": {"enabled": []}, "agui": None, "platforms": {"api_server": server}}
        options = {"config": config, "ready_url": f"http://127.0.0.1:{port}/health"} | options
        made.append(Gateway(UNUSED_MODEL, **options))
        return made[-1]

    yield make
    for gateway in made:
        gateway.close()


def test_merge_goes_deep_removes_and_leaves_its_input_alone() -> None:
    base = {"a": {"b": 1, "c": [1]}, "d": 2, "e": {"f": 1}}
    merged = merge(base, {"a": {"b": 5, "x": None}, "d": None, "e": 3, "g": {"h": 1}})
    assert merged == {"a": {"b": 5, "c": [1]}, "e": 3, "g": {"h": 1}}
    merged["a"]["c"].append(2)
    assert base["a"] == {"b": 1, "c": [1]}


def test_free_port_goes_on_to_the_next() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError):
            free_port(port)
        assert port < free_port(port, 50) < port + 50


def test_a_port_that_the_system_gives_nobody_else() -> None:
    """A server on port 0 gets another one, and a process that has seeded its generator alike finds another one."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) if LINUX else 49_152
    found = set()
    for _ in range(5):
        random.seed(0)
        found.add(free_port())
    assert max(found) < lowest
    assert len(found) > 1


def test_the_callers_secrets_and_settings_stay_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "OPENAI_API_KEY",
        "HERMES_INFERENCE_MODEL",
        "AGUI_API_KEY",
        "AGUI_ALLOW_ALL_USERS",
        "HTTPS_PROXY",
        "XDG_STATE_HOME",
    ):
        monkeypatch.setenv(name, "of the caller")
    env = Gateway(UNUSED_MODEL, home=tmp_path, env={"AGUI_API_KEY": "given", "LANG": None}).environment()
    assert "of the caller" not in env.values()
    assert env["AGUI_API_KEY"] == "given"
    assert env["AGUI_ALLOWED_USERS"] == "local"
    assert "LANG" not in env
    assert env["HERMES_HOME"] == str(tmp_path)
    assert Path(env["HOME"]).is_relative_to(tmp_path)
    assert env["PATH"] == os.environ["PATH"]


def test_config_has_the_callers_members(tmp_path: Path) -> None:
    gateway = Gateway(
        UNUSED_MODEL,
        home=tmp_path,
        agui={"heartbeat_seconds": 5},
        config={"approvals": {"timeout": 3}},
        toolsets=["todo"],
    )
    config = gateway.config()
    assert config["agui"] == {
        "enabled": True,
        "host": "127.0.0.1",
        "port": gateway.port,
        "requests_per_minute": 0,
        "user_scopes": ["read", "run", "approve", "admin"],
        "heartbeat_seconds": 5,
    }
    assert config["approvals"] == {"mode": "manual", "timeout": 3}
    assert config["platform_toolsets"] == {"agui": ["todo"]}
    assert config["model"]["base_url"] == UNUSED_MODEL


@pytest.mark.e2e
def test_two_at_once_stop_restart_and_kill(make: Callable[..., Gateway], tmp_path: Path) -> None:
    first, second = make(home=tmp_path / "first"), make()
    first.start()
    second.start()
    assert first.running and second.running and first.pid != second.pid
    pid, second_home = first.pid, second.home

    first.stop()
    assert (first.running, first.pid) == (False, None)
    assert not psutil.pid_exists(pid or 0)
    assert second.running, "stopping one leaves the other alone"

    first.start()
    assert first.pid not in (None, pid)
    first.kill()
    assert first.returncode == -9
    second.close()
    assert not second_home.exists()
    first.close()
    assert (tmp_path / "first" / "state.db").exists(), "a home that was given is never removed"
    assert first.log_text().count("Gateway Starting") == 2
    assert not list(first.user_home.iterdir()), "the user's home is not touched"


@pytest.mark.e2e
def test_a_gateway_that_cannot_start_says_why(make: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = make(env={"PYTHONPATH": None, "PYTHONHOME": "/nonexistent"})
    with pytest.raises(GatewayError, match=r"ended with status 1\. Its log ends:\n.*[Pp]ython"):
        gateway.start()
    assert not gateway.running
    assert gateway.returncode == 1


@pytest.mark.e2e
def test_a_gateway_that_never_gets_ready_is_stopped(
    make: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 1.0)
    gateway = make(ready_url=f"http://127.0.0.1:{free_port()}/health")
    with pytest.raises(GatewayError, match="not ready"):
        gateway.start()
    assert not gateway.running
    assert gateway.returncode == -9


@pytest.mark.e2e
def test_a_platform_that_does_not_come_up_is_told_at_once(make: Callable[..., Gateway]) -> None:
    # A bundled platform that has no settings, so that no adapter can be made.
    gateway = make(config={"plugins": {"enabled": []}, "agui": None, "platforms": {"email": {"enabled": True}}})
    begin = time.monotonic()
    with pytest.raises(GatewayError, match="did not come up"):
        gateway.start()
    assert time.monotonic() - begin < 30


class Stranger(BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def stranger(make: Callable[..., Gateway]) -> Iterator[tuple[Gateway, ThreadingHTTPServer]]:
    """A gateway that was not started yet, and a server of somebody else's that has got its port meanwhile."""
    gateway = make()
    port = int(gateway._ready_url.split(":")[2].split("/")[0])
    with ThreadingHTTPServer(("127.0.0.1", port), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield gateway, server
        server.shutdown()
        thread.join()


@pytest.mark.e2e
def test_somebody_elses_answer_is_none(stranger: tuple[Gateway, ThreadingHTTPServer]) -> None:
    gateway, _ = stranger
    with pytest.raises(GatewayError, match=r"(?s)Its log ends:.*in use"):
        gateway.start()
    assert not gateway.running


@pytest.mark.e2e
def test_somebody_else_on_the_port_for_a_moment(
    stranger: tuple[Gateway, ThreadingHTTPServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone before the gateway wants to listen: that is waited for."""
    gateway, server = stranger
    answers = module._answers_200
    seen: list[bool] = []

    def leaves(url: str) -> bool:
        seen.append(answers(url))
        if len(seen) == 1:
            server.shutdown()
            server.server_close()
        return seen[-1]

    monkeypatch.setattr(module, "_answers_200", leaves)
    gateway.start()
    assert seen[0] and len(seen) > 2
    assert gateway.running and module._listens(gateway.pid or 0, server.server_port)


@pytest.mark.e2e
async def test_a_cancelled_start_leaves_nothing(make: Callable[..., Gateway]) -> None:
    gateway = make(ready_url=f"http://127.0.0.1:{free_port()}/health")
    entering = asyncio.create_task(gateway.__aenter__())
    await _until(lambda: gateway.running)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not gateway.running
    assert not gateway.home.exists()


@pytest.mark.e2e
def test_what_the_gateway_started_ends_with_it(make: Callable[..., Gateway], tmp_path: Path) -> None:
    """A child in a session of its own, as Hermes's tools start them, here by way of a hook of the interpreter."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, subprocess, sys\n"
        "if 'gateway' in sys.orig_argv and 'AGUI_TEST' not in os.environ:\n"
        "    os.environ['AGUI_TEST'] = '1'\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    )
    gateway = make(env={"PYTHONPATH": str(tmp_path)})
    gateway.start()
    children = psutil.Process(gateway.pid).children()
    assert len(children) == 1
    gateway.stop()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


async def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


def test_config_is_written_as_json_that_yaml_reads(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = json.dumps(Gateway(UNUSED_MODEL, home=tmp_path).config(), indent=2)
    assert yaml.safe_load(text) == json.loads(text)
