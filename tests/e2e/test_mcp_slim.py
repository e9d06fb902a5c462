"""MCP over SLIM: a node on loopback, `hermes-agui mcp --slim` on one side of it, an MCP client on the other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway, free_port
from tests.e2e.asking import deletes, victim
from tests.e2e.helpers import GatedModel, call, script, unique, wait_until

pytest.importorskip("slim_mcp", reason="needs the extra `slim`, which pins mcp 1.26.0")

import slim_bindings
from mcp import ClientSession, types
from slim_mcp import create_client_streams, create_local_app

pytestmark = pytest.mark.slow

SECRET = "a-shared-secret-of-more-than-thirty-two"
ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).with_name("hermes-agui"))


@pytest.fixture
def node() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.slim_node", str(port)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        while line := process.stdout.readline():  # the node's own log comes there too
            if line.strip() == "up":
                break
        else:
            pytest.fail("the SLIM node did not come up")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def serve(node: str, gateway: Gateway, tmp_path: Path) -> Iterator[Callable[[], str]]:
    made: list[subprocess.Popen[bytes]] = []
    log = tmp_path / "slim.log"

    def start() -> str:
        name = f"org/test/{unique('agent')}"
        with log.open("ab") as out:
            made.append(
                subprocess.Popen(
                    [COMMAND, "mcp", "--slim", node, "--name", name, "--url", gateway.url],
                    env={**os.environ, "SLIM_SHARED_SECRET": SECRET},
                    stdout=out,
                    stderr=out,
                )
            )
        wait_until(lambda: f"as {name}" in log.read_text("utf-8", "replace"), "it serves")
        return name

    try:
        yield start
    finally:
        for process in made:
            process.terminate()
            assert process.wait(20) == 0


async def test_a_client_on_the_far_side(
    serve: Callable[[], str], node: str, gateway: Gateway, model: GatedModel
) -> None:
    name, folder, heard = serve(), victim(gateway), []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"choice": "once"})

    me = slim_bindings.Name("org", "test", unique("client"))
    config = slim_bindings.new_insecure_client_config(node)
    app, connection = await create_local_app(me, config, shared_secret=SECRET)
    destination = slim_bindings.Name(*name.split("/"))
    await app.set_route_async(destination, connection)
    async with asyncio.timeout(120):
        async with (
            create_client_streams(app, destination) as (read, write),
            ClientSession(read, write, elicitation_callback=elicit) as session,
        ):
            assert (await session.initialize()).serverInfo.name == "hermes-agui"
            assert len((await session.list_tools()).tools) == 11
            task = script(
                {"text": "Look.", "tools": [call("terminal", {"command": "echo far-away"})]}, {"text": "Done."}
            )
            found = await session.call_tool("ask", {"message": task}, progress_callback=progress)
            assert found.structuredContent["text"] == "Done."
            assert "far-away" in found.structuredContent["tool_calls"][0]["result"]
            assert "Look." in "".join(heard)
            found = await session.call_tool("ask", {"message": deletes(folder)})
            assert found.structuredContent["status"] == "done" and not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "secret", "sentence"),
    [
        (["--name", "agent"], SECRET, "--name org/ns/agent"),
        (["--name", "a/b/c"], "short", "SLIM_SHARED_SECRET"),
    ],
)
def test_what_is_missing_is_said(arguments: list[str], secret: str, sentence: str) -> None:
    done = subprocess.run(
        [COMMAND, "mcp", "--slim", "http://127.0.0.1:1", *arguments],
        env={**os.environ, "SLIM_SHARED_SECRET": secret},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and sentence in done.stderr and "short" not in done.stderr
