"""The official AG-UI clients, 1.0.0 and 0.0.59, driven from Python through the Node scripts in `tests/js`.

Knows nothing of the server under test. Needs Node; `ensure_node_modules` installs the packages of the lock file.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

JS = Path(__file__).parent / "js"
Version = Literal["1", "0"]
VERSIONS: tuple[Version, Version] = ("1", "0")


@dataclass(frozen=True)
class RunRecord:
    """One `runAgent` call: what the client delivered, said and kept.

    `failed` is the error text when `runAgent` rejected, `status` the HTTP status if that was the reason.
    `messages`, `state` and `interrupts` are the agent's after the run.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failed: str | None = None
    status: int | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    state: Any = None
    interrupts: list[dict[str, Any]] = field(default_factory=list)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


@dataclass(frozen=True)
class Verdict:
    """What a client made of a recorded stream; `events` are the types that reached a subscriber."""

    accepted: bool
    warnings: list[str]
    events: list[str]
    messages: list[dict[str, Any]]
    state: Any = None
    error: str | None = None


def node() -> str | None:
    """The Node executable, or None."""
    return shutil.which("node")


def ensure_node_modules(folder: Path = JS, timeout: float = 300) -> None:
    """Install a folder's `node_modules` when it is missing or older than the lock file. Safe in parallel processes."""
    stamp = folder / "node_modules" / ".package-lock.json"  # npm writes it last
    lock_file = folder / "package-lock.json"
    with lock_file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.stat().st_mtime >= lock_file.stat().st_mtime:
            return
        npm = shutil.which("npm")
        assert npm, "npm is not on PATH"
        done = subprocess.run(
            [npm, "ci", "--prefix", str(folder), "--no-audit", "--no-fund"],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"npm ci failed:\n{done.stdout}\n{done.stderr}"


def run_agent(
    version: Version,
    url: str,
    thread_id: str,
    runs: Sequence[Mapping[str, Any]],
    headers: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> list[RunRecord]:
    """Run `runs` one after another on one HttpAgent; `timeout` is for all of them, in seconds. Blocks: a server in the
    caller's own event loop needs `asyncio.to_thread`.

    A run is {runId?, messages? (appended), tools?, context?, state?, forwardedProps?, resume?, abortAfter?: {events}},
    and what a page does by itself: merge?, results?, answers? (see the script).
    """
    spec = {"version": version, "url": url, "threadId": thread_id, "runs": list(runs), "headers": dict(headers or {})}
    return records_of(_node("run_agent.mjs", spec, timeout), range(len(runs)))


def records_of(output: str, numbers: range) -> list[RunRecord]:
    """What a script printed for the runs of these numbers."""
    lines = [json.loads(line) for line in output.splitlines()]
    records = []
    for number in numbers:
        mine = [line for line in lines if line["run"] == number]
        failed = next((line for line in mine if "failed" in line), {})
        done = next(line for line in mine if line.get("done"))
        records.append(
            RunRecord(
                events=[line["event"] for line in mine if "event" in line],
                warnings=[line["warning"] for line in mine if "warning" in line],
                failed=failed.get("failed"),
                status=failed.get("status"),
                messages=done["messages"],
                state=done.get("state"),
                interrupts=done["interrupts"],
            )
        )
    return records


def replay(cases: Sequence[Mapping[str, Any]], timeout: float = 60) -> list[Verdict]:
    """The clients' verdicts on recorded streams: {version, frames (SSE text), messages?, state?}, in one process."""
    return [Verdict(**verdict) for verdict in json.loads(_node("replay.mjs", list(cases), timeout))]


def apply_patches(cases: Sequence[Mapping[str, Any]], timeout: float = 60) -> list[dict[str, Any]]:
    """What `fast-json-patch` makes of {document, patches}: {document} or {error} for each."""
    results: list[dict[str, Any]] = json.loads(_node("patch.mjs", list(cases), timeout))
    return results


def _node(script: str, spec: object, timeout: float) -> str:
    executable = node()
    assert executable, "node is not on PATH"
    ensure_node_modules()
    done = subprocess.run(
        [executable, str(JS / script)], input=json.dumps(spec), capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{script} failed:\n{done.stderr}"
    return done.stdout
