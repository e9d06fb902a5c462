"""MCP's own programs in Node: the conformance suite, the TypeScript client over HTTP and stdio, the inspector.

They need the packages of tests/mcpjs (`npm ci --prefix tests/mcpjs`), Node 22 among them, which the suite wants.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import deletes, victim
from tests.e2e.helpers import GatedModel, script, unique, wait_until

pytest.importorskip("mcp")

ROOT = Path(__file__).resolve().parents[2]
JS = ROOT / "tests" / "mcpjs"
MODULES = JS / "node_modules"
NODE = str(MODULES / ".bin" / "node")

pytestmark = [
    pytest.mark.node,
    pytest.mark.slow,
    pytest.mark.skipif(not (MODULES / ".package-lock.json").exists(), reason="npm ci --prefix tests/mcpjs was not run"),
    pytest.mark.skipif(shutil.which("node") is None, reason="needs Node"),
]

# The agent does not use its client's model, and a call whose stream breaks is found again by `wait`, not by event ids.
NOT_OFFERED = {"tools-call-sampling", "server-sse-polling"}
# What does not depend on the fixtures that the suite expects of a server, on the agent itself.
GENERAL = {
    *("server-initialize", "logging-set-level", "ping", "completion-complete", "tools-list", "resources-list"),
    *("prompts-list", "server-sse-multiple-streams", "dns-rebinding-protection"),
}


def node(*arguments: str, given: Any = None, timeout: float = 240) -> str:
    done = subprocess.run(
        [NODE, *arguments],
        input=None if given is None else json.dumps(given),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=JS,
        env={**os.environ, "NO_PROXY": "127.0.0.1,localhost"},
    )
    return done.stdout + (done.stderr if done.returncode else "")


def conformance(url: str) -> dict[str, bool]:
    """Scenario → whether it passed."""
    said = node(str(MODULES / ".bin" / "conformance"), "server", "--url", f"{url}/mcp", "--suite", "all")
    lines = [line for line in said.splitlines() if line.startswith(("✓", "✗"))]
    assert lines, said
    return {line[2:].partition(":")[0]: line.startswith("✓") for line in lines}


@pytest.fixture(params=["installed", *filter(None, [os.environ.get("MCP2_PYTHON")])])
def everything(request: pytest.FixtureRequest) -> Iterator[str]:
    """The suite's own fixtures, offered by this project's bridge."""
    python = sys.executable if request.param == "installed" else request.param
    process = subprocess.Popen(
        [python, "-m", "tests.mcp_everything"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        assert process.wait(20) == 0


def test_the_conformance_suite(everything: str) -> None:
    found = conformance(everything)
    assert len(found) >= 32
    assert {name for name, passed in found.items() if not passed} <= NOT_OFFERED


def test_the_conformance_suite_on_the_agent(gateway: Gateway) -> None:
    found = conformance(gateway.url)
    assert {name for name in GENERAL if not found[name]} == set()


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_the_typescript_client(gateway: Gateway, way: str) -> None:
    folder, thread, word = victim(gateway), unique("ts"), unique("word")
    seen = json.loads(
        node(
            "sdk.mjs",
            given={
                "url": gateway.url,
                "command": str(Path(sys.executable).with_name("hermes-agui")) if way == "stdio" else None,
                "thread": thread,
                "first": script({"text": f"Here is {word}."}),
                "second": deletes(folder),
                "elicit": {"choice": "once"},
                "slow": script({"text": "begun " + "x" * 200, "delta_ms": 300, "chunk": 6}),
            },
        )
    )
    assert seen["server"]["name"] == "hermes-agui" and seen["instructions"] and len(seen["tools"]) == 11
    assert seen["first"]["structuredContent"]["text"] == f"Here is {word}." and word in seen["progress"]
    assert seen["second"]["structuredContent"]["status"] == "done" and not folder.exists()
    assert str(folder) in seen["asked"][0]
    assert f"hermes://threads/{thread}" in seen["updated"] and word in seen["transcript"]
    assert "delegate" in seen["prompts"] and "enough" in seen["cancelled"]
    address = f"{gateway.url}/agui/threads/{thread}-slow"
    wait_until(lambda: httpx.get(address, trust_env=False).json()["status"] == "idle", "the cancelled turn ended")


def test_the_inspector(gateway: Gateway, model: GatedModel) -> None:
    inspector = [str(MODULES / ".bin" / "mcp-inspector"), "--cli", f"{gateway.url}/mcp", "--transport", "http"]
    tools = json.loads(node(*inspector, "--method", "tools/list"))["tools"]
    assert "ask" in [tool["name"] for tool in tools]
    word = unique("word")
    answer = json.loads(
        node(*inspector, "--method", "tools/call", "--tool-name", "ask", "--tool-arg", f"message={word}")
    )
    assert answer["structuredContent"]["status"] == "done"
    assert any(word in json.dumps(one["messages"]) for one in model.requests)
    listed = json.loads(node(*inspector, "--method", "resources/list"))["resources"]
    assert answer["structuredContent"]["thread"] in [one["name"] for one in listed]
