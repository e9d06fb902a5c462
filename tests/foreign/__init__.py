"""Python clients of others that cannot share an environment with Hermes: each gets one of its own under `.compat`."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def interpreter(name: str, requirement: str, *, least: tuple[int, int] = (3, 11)) -> Path:
    """The interpreter of an environment that has the requirement, made when it is not there. Skips the test where no
    Python is new enough."""
    base = sys.executable if sys.version_info >= least else _newer(least)
    if base is None:
        pytest.skip(f"needs Python {least[0]}.{least[1]}")
    folder = ROOT / ".compat" / f"client-{name}"
    folder.parent.mkdir(exist_ok=True)
    python, done = folder / "bin" / "python", folder / ".requirement"
    with (folder.parent / f"client-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != requirement:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([base, "-m", "venv", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
            subprocess.run(pip, check=True, timeout=600)
            done.write_text(requirement)
    return python


def _newer(least: tuple[int, int]) -> str | None:
    for minor in range(least[1], least[1] + 3):
        found = shutil.which(f"python{least[0]}.{minor}")
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    return None
