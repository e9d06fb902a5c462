"""Strangers at a real gateway: Hermes's own rules let them in or not, and its own commands change that at once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, script, unique

pytestmark = pytest.mark.e2e


def hermes(gateway: Gateway, *words: str) -> str:
    """Run a command of Hermes's beside the running gateway, as its operator does."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_cli.main", *words],
        env=gateway.environment(),
        cwd=gateway.work_dir,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_strangers_and_tokens(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_ALLOWED_USERS": None})
    # Nobody is let in: not this machine's caller, not a device.
    device = Chat(gateway, key=unique("device") + "x" * 32)
    refused = device.say("hello").succeeded().text()
    code = re.search(r"`([A-Z0-9]{8})`", refused)
    assert code is not None and "hermes pairing approve agui" in refused
    assert Chat(gateway, key=device.key).say("again").end["type"] == "RUN_ERROR"
    assert "pairing code" in Chat(gateway).say("hello").succeeded().text()

    # Two devices at most may ask, and what is over does nothing.
    second = Chat(gateway, key=unique("second") + "y" * 32)
    second.say("hello").succeeded()
    third = Chat(gateway, key=unique("third") + "z" * 32).start("hello").finish()
    assert (third.status, third.problem()["code"]) == (429, "too_many_devices")
    assert int(third.headers["Retry-After"]) >= 60

    # The operator lets the first one in: at once, and nobody else.
    hermes(gateway, "pairing", "approve", "agui", code[1])
    assert device.say(script({"text": "Welcome."})).succeeded().text() == "Welcome."
    assert Chat(gateway, key=second.key).say("hello").end["type"] == "RUN_ERROR"

    # A named token is let in by being made, and out by being revoked, while the gateway runs.
    token = hermes(gateway, "agui", "token", "create", "phone", "--scope", "read", "--scope", "run").strip()
    phone = Chat(gateway, key=token)
    assert phone.say(script({"text": "Hello phone."})).succeeded().text() == "Hello phone."
    assert phone.start("/restart").finish().problem()["code"] == "command_not_allowed"
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{gateway.url}/agui/threads/{phone.thread}", headers=headers, timeout=30).status_code == 200
    other = {"Authorization": f"Bearer {device.key}"}
    assert httpx.get(f"{gateway.url}/agui/threads/{phone.thread}", headers=other, timeout=30).status_code == 404
    assert token not in hermes(gateway, "agui", "token", "list")
    hermes(gateway, "agui", "token", "revoke", "phone")
    assert phone.start("hello").finish().status == 401
    log = gateway.log_path.read_text("utf-8", "replace")
    assert token not in log and str(device.key) not in log
