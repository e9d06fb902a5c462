"""Where the time to the first text goes: samples of the gateway's stacks while new threads are answered (py-spy)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from .report import Table
from .rig import Rig, script

# A frame in one of these files says whose work a sample is, the outermost of them first.
_PARTS = (
    ("this project", ("agui_adapter/", "gateway_plugins/")),
    ("building the agent (Hermes)", ("agent/agent_init.py",)),
    ("the model call and its HTTP client (Hermes)", ("agent/chat_completion_helpers.py",)),
    ("the agent's loop (Hermes)", ("agent/", "run_agent.py")),
    ("the gateway's pipeline (Hermes)", ("gateway/", "hermes_state.py", "hermes_cli/")),
)
_IDLE = ("wait (threading.py", "select (selectors.py", "_worker (concurrent/futures/thread.py")


def measure(rig: Rig, threads: int) -> Table | None:
    """``threads`` new ones, one after another. None where py-spy is not installed or may not look."""
    # Of the environment that the bench runs in, which need not be an activated one.
    spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    pid = rig.gateway.pid
    if spy is None or pid is None:
        return None
    door = rig.doors["agui"]
    door.ask(script("warm"), f"bench-{uuid.uuid4().hex}")
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "stacks"
        command = [
            spy,
            "record",
            "--pid",
            str(pid),
            "--rate",
            "100",
            "--format",
            "raw",
            "--nonblocking",
            "-o",
            str(out),
        ]
        process = subprocess.Popen([*command, "-d", "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)  # it says nowhere that it has begun
        for _ in range(threads):
            door.ask(script("one two three"), f"bench-{uuid.uuid4().hex}")
        process.send_signal(signal.SIGINT)
        process.wait(60)
        if not out.exists():
            return None
        counted = count(out.read_text())
    total = sum(counted.values())
    rows: list[tuple[str | float, ...]] = [(name, 100 * counted[name] / total) for name, _ in _PARTS]
    rows.append(("other", 100 * counted["other"] / total))
    note = (
        f"{total} samples of threads at work, while {threads} new threads were answered. A sample is this project's "
        "when any frame of its stack is; the rest is told apart by the file of its frames."
    )
    return Table("Where the time of a new thread goes", ("", "% of samples"), rows, note)


def count(stacks: str) -> Counter[str]:
    """Samples by whose they are, of py-spy's raw format: frames joined by `;`, a blank, a number."""
    counted: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, number = line.rpartition(" ")
        frames = stack.split(";")
        if any(idle in frames[-1] for idle in _IDLE):
            continue
        whose = (name for name, files in _PARTS if any(f"({file}" in frame for frame in frames for file in files))
        counted[next(whose, "other")] += int(number)
    return counted
