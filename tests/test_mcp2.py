"""The MCP door with mcp 2.2, for a Hermes that pins it: the door's own tests again, and 2.x clients on both servers.

mcp 2.2 lies in an environment of its own in front of this one. Hermes 0.19's own MCP features are not used here: they
break with it, which is why the extra `mcp2` never goes beside 0.19.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the package mcp"),
]

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def mcp2(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment in which mcp is 2.2; everything else is this one's."""
    folder = tmp_path_factory.mktemp("mcp2")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "mcp>=2.2,<2.3"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=250)
    if done.returncode:
        pytest.skip(f"mcp 2.2 cannot be installed here: {done.stderr[-300:]}")
    own, ours = (
        subprocess.check_output(
            [one, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
        for one in (python, sys.executable)
    )
    Path(own, "zz-others.pth").write_text(f"{ours}\n{ROOT}\n", "utf-8")
    # Hermes puts its own directory in front of all others when it is imported: mcp 2.2 has to be there before it.
    Path(own, "sitecustomize.py").write_text("import agui_adapter.mcp_door.sdk\n", "utf-8")
    told = "import tests.scripted, agui_adapter.mcp_door.sdk as sdk; print(sdk.VERSION)"
    assert subprocess.check_output([python, "-c", told], text=True, cwd=ROOT).startswith("2.2")
    return python


@contextmanager
def server(python: str, home: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [python, "-m", "tests.mcp_scripted", str(home)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        assert process.wait(60) == 0


def client(python: str, *arguments: str) -> dict[str, Any]:
    """What the 2.x client sees."""
    program = [python, str(ROOT / "tests" / "mcp2_client.py"), *arguments]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_the_doors_own_tests(mcp2: str) -> None:
    command = [mcp2, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_mcp_door.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("its_server", ["1.x", "2.2"])
def test_the_client_of_2_2(mcp2: str, tmp_path: Path, its_server: str, way: str) -> None:
    command = [str(Path(sys.executable).with_name("hermes-agui"))] if way == "stdio" else []
    with server(mcp2 if its_server == "2.2" else sys.executable, tmp_path) as url:
        seen = client(mcp2, url, *command)
    assert seen["version"] == ("2026-07-28" if its_server == "2.2" else "2025-11-25")
    assert len(seen["tools"]) == 11 and seen["told"]["text"] == "Hello"
    assert "Hello" in seen["progress"] and '"t"' in seen["threads"]
