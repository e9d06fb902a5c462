"""CopilotKit from Python: its runtime as a child process in front of agents, and a page with its core that talks to it.

Knows nothing of the server under test. Needs Node 20; `tests/copilotkit` has a lock file of its own, since the packages
are large. Nothing in these processes can reach another machine, and an attempt fails the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.clients import RunRecord, ensure_node_modules, node, records_of

COPILOTKIT = Path(__file__).parent / "copilotkit"
INSTALL_SECONDS = 900
START_SECONDS = 60


def usable() -> bool:
    """Node is there, and as new as these packages want it."""
    executable = node()
    if executable is None:
        return False
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=30).stdout
    return int(version.lstrip("v").partition(".")[0] or 0) >= 20


def _command(script: str) -> list[str]:
    executable = node()
    assert executable, "node is not on PATH"
    ensure_node_modules(COPILOTKIT, INSTALL_SECONDS)
    return [executable, "--import", (COPILOTKIT / "offline.mjs").as_uri(), str(COPILOTKIT / script)]


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return kept | {"COPILOTKIT_TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "1"}


class Runtime:
    """A running CopilotKit runtime. Context manager; one thread.

    `agents`: name → {url, headers?, tools?: tool name → `Tool.metadata` that the runtime adds}. `said` is what it has
    printed since it was up: nothing, as long as nothing went wrong.
    """

    def __init__(self, agents: Mapping[str, Mapping[str, Any]]) -> None:
        self._agents = dict(agents)
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.said: list[str] = []

    def __enter__(self) -> Self:
        command = [*_command("runtime.mjs"), json.dumps({"agents": self._agents})]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(),
        )
        timer = threading.Timer(START_SECONDS, self._process.kill)
        timer.start()
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            if line.startswith('{"url":'):
                self.url = json.loads(line)["url"]
                break
            lines.append(line)
        timer.cancel()
        assert self.url, f"the runtime did not start:\n{''.join(lines)}"
        self.said = lines
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        return self

    def _listen(self, output: Any) -> None:
        for line in output:
            self.said.append(line)

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


def talk(
    runtime: Runtime, agent: str, thread_id: str, turns: Sequence[Mapping[str, Any]], timeout: float = 90
) -> list[RunRecord]:
    """A new page that opens the thread and has these turns on it. The first record is what the thread had.

    A turn is {messages?, merge?, tools?, results?, answers?, context?, forwardedProps?}; the page's core runs the agent
    as often as the turn needs. Blocks.
    """
    spec = {"runtimeUrl": runtime.url, "agent": agent, "threadId": thread_id, "turns": list(turns)}
    done = subprocess.run(
        _command("talk.mjs"),
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        timeout=timeout,
        env=_environment(),
    )
    assert done.returncode == 0, f"talk.mjs failed:\n{done.stdout}\n{done.stderr}\n{''.join(runtime.said)}"
    assert done.stderr == "", done.stderr
    return records_of(done.stdout, range(-1, len(turns)))
