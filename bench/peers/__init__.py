"""Other AG-UI servers on the same synthetic turn, each in an environment of its own: events a second, and bytes.

They are installed from the registry on first use, into `.bench` at the root; one that cannot be installed is named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..report import Bound, Table

_ROOT = Path(__file__).parent.parent.parent
_INSTALL_SECONDS, _RUN_SECONDS = 600, 600


@dataclass(frozen=True)
class Peer:
    """A script beside this file and what it needs."""

    name: str
    script: str
    packages: tuple[str, ...]


PEERS = (
    Peer("pydantic-ai", "pydantic_ai_peer.py", ("pydantic-ai-slim[ag-ui]",)),
    Peer("ag-ui-langgraph", "langgraph_peer.py", ("ag-ui-langgraph", "fastapi")),
    Peer("ag_ui_strands", "strands_peer.py", ("ag_ui_strands",)),
    Peer("agent-framework-ag-ui", "agent_framework_peer.py", ("agent-framework-ag-ui",)),
)


def measure(deltas: int, rounds: int, peers: tuple[Peer, ...] = PEERS) -> Table:
    """``deltas`` in each of the turn's two texts."""
    found = [_run(sys.executable, "hermes_agui_peer.py", deltas, rounds)]
    rows: list[tuple[str | float, ...]] = []
    for peer in peers:
        try:
            found.append(_run(_environment(peer), peer.script, deltas, rounds))
        except (OSError, subprocess.SubprocessError) as error:
            rows.append((peer.name, "did not run", f"{type(error).__name__}", "", "", ""))
    ours = found[0]
    bounds = []
    for one in found:
        rate, net = one["texts"] / one["seconds"], one["texts"] / max(1e-9, one["seconds"] - one["alone"])
        rows.append(
            (f"{one['peer']} {one['version']}", rate, net, str(one["events"]), str(one["bytes"]), net / _net(ours))
        )
        if one is not ours:
            bounds.append(Bound(f"events/s of {one['peer']} ÷ ours", net / _net(ours), 1.0))
    return Table(
        "Other AG-UI servers on the same turn",
        ("", "text events per CPU second", "without its framework", "events", "bytes", "÷ ours"),
        rows,
        f"A turn of two texts of {deltas} deltas and a tool call between them, in one process and without a socket, by "
        f"CPU time; best of {rounds} rounds. The third column subtracts what the peer's framework needs alone for the "
        "same turn; ours has none to subtract (the turn's log, its reader, the translator, the encoder).",
        bounds,
    )


def _net(one: dict[str, Any]) -> float:
    return float(one["texts"] / max(1e-9, one["seconds"] - one["alone"]))


def _environment(peer: Peer) -> str:
    """The interpreter of the peer's environment, made when it is not there."""
    place = _ROOT / ".bench" / peer.name
    python = place / "bin" / "python"
    if not (place / ".done").exists():
        venv.create(place, clear=True, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
        subprocess.run(command, check=True, timeout=_INSTALL_SECONDS, stdout=sys.stderr)
        (place / ".done").touch()
    return str(python)


def _run(python: str, script: str, deltas: int, rounds: int) -> dict[str, Any]:
    command = [python, str(Path(__file__).parent / script), str(deltas), str(rounds)]
    environment = {**os.environ, "LANGSMITH_TRACING": "false", "OTEL_SDK_DISABLED": "true"}
    done = subprocess.run(command, check=True, timeout=_RUN_SECONDS, stdout=subprocess.PIPE, env=environment, cwd=_ROOT)
    result: dict[str, Any] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    if result["texts"] != 2 * deltas:
        raise RuntimeError(f"{script}: {result['texts']} text events of {2 * deltas}")
    return result
