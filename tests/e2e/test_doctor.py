"""`hermes-agui doctor` beside a real gateway, and `hermes gateway setup` with a person's answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import query

KEY = "doctor-e2e-key-0123456789"


def command(gateway: Gateway, *arguments: str, module: str = "agui_adapter.cli", typed: str = "") -> Any:
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        env=gateway.environment(),
        cwd=gateway.work_dir,
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def examined(gateway: Gateway, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = command(gateway, "doctor", "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, {one["check"]: one for one in json.loads(done.stdout)["findings"]}


def test_a_good_gateway_and_the_same_one_stopped(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY})
    code, found = examined(gateway)
    assert code == 0, found
    assert found["run"]["level"] == "ok" and "first text after" in found["run"]["text"]
    for check in ("plugin", "settings", "who", "approvals", "stream", "model", "gateway", "load"):
        assert found[check]["level"] == "ok", found[check]
    assert KEY not in json.dumps(found)
    assert not query(gateway, "SELECT id FROM sessions WHERE chat_id LIKE '%doctor-%'")  # it left nothing
    done = command(gateway, "agui", "doctor", "--no-run", module="hermes_cli.main")
    assert done.returncode == 0 and "✓ gateway" in done.stdout, done.stdout + done.stderr
    gateway.stop()
    code, found = examined(gateway)
    assert code == 1 and found["gateway"]["level"] == "error" and "nothing listens" in found["gateway"]["text"]


@pytest.mark.slow
def test_a_caller_that_is_not_allowed(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_ALLOWED_USERS": None})
    code, found = examined(gateway)
    assert code == 0 and found["who"]["level"] == "note"
    assert found["run"]["level"] == "warning" and "hermes pairing list" in found["run"]["do"]


def test_wrong_settings_and_a_plugin_that_is_not_enabled(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(start=False, agui={"prot": 1}, config={"plugins": {"enabled": []}})
    gateway._write_home()
    code, found = examined(gateway)
    assert code == 1 and found["plugin"]["level"] == found["settings"]["level"] == "error"
    assert "did you mean port" in found["settings"]["text"]


SETUP = """
import builtins, sys
answers = iter(sys.argv[1:])
builtins.input = lambda *_: next(answers)
from gateway_plugins.agui import interactive_setup
interactive_setup()
"""


def test_setup(make_gateway: Callable[..., Gateway]) -> None:
    """Behaviour goes into config.yaml, the key into .env, and what was there stays."""
    gateway = make_gateway(start=False)
    gateway._write_home()
    env = gateway.environment() | {"AGUI_ALLOWED_USERS": ""}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SETUP, "8777", "n", "y", "y"],
        env={name: value for name, value in env.items() if name != "AGUI_ALLOWED_USERS"},
        cwd=gateway.work_dir,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    config = yaml.safe_load((gateway.home / "config.yaml").read_text())
    assert config["agui"] | {"enabled": True, "host": "127.0.0.1", "port": 8777} == config["agui"]
    assert config["model"]["default"] == "scripted-1"
    secrets = dict(line.split("=", 1) for line in (gateway.home / ".env").read_text().splitlines() if "=" in line)
    assert len(secrets["AGUI_API_KEY"]) == 48 and secrets["AGUI_ALLOWED_USERS"] == "local"
    assert secrets["AGUI_API_KEY"] not in done.stdout + (gateway.home / "config.yaml").read_text()
    if os.name == "posix":
        assert (gateway.home / ".env").stat().st_mode & 0o077 == 0
