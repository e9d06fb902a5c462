"""`make bench` runs from end to end; what it measures is not judged here."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("hermes_cli") is None, reason="needs hermes-agent==0.19.0"),
]


def test_quick_bench_fills_every_table(tmp_path: Path) -> None:
    # A process left behind would keep standard error open, and this call would time out.
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (data,) = tmp_path.glob("*.json")
    result = json.loads(data.read_text())
    titles = [table["title"] for table in result["tables"]]
    # py-spy is in the extra `bench` only; the console has to be built, and needs Chromium.
    optional = {"Where the time of a new thread goes", "The web console"}
    assert [title for title in titles if title not in optional] == [
        "Time to first text",
        "A whole chat completion",
        "Added delay, callback to client",
        "Deltas per second in total",
        "What the adapter costs a turn",
        "Beside turns that wait",
        "Memory of the gateway",
        "CPU per delta in the serving process",
        "Fan-out and replay",
        "Other AG-UI servers on the same turn",
    ]
    for table in result["tables"]:
        assert table["rows"]
        assert all(len(row) == len(table["head"]) for row in table["rows"])
        assert all(sample > 0 for samples in table["samples"].values() for sample in samples), table["title"]
    # Of many streams there may be none: so few deltas can end before all of them go on.
    names = [bound["name"] for bound in result["bounds"] if not bound["name"].startswith(("added delay of", "console"))]
    assert names == [
        "new thread, first text, AG-UI ÷ api_server (means)",
        "same thread, first text, AG-UI ÷ api_server (means)",
        "new conversation, whole completion, /v1 ÷ api_server (means)",
        "same conversation, whole completion, /v1 ÷ api_server (means)",
        "added delay at 50 deltas/s, median",
        "added delay at 50 deltas/s, p99",
        "tokens/s of a turn ÷ no-op adapter",
        "memory of an idle stream",
        "memory of a parked turn beyond Hermes's agent",
        "CPU per delta ÷ bare writer, 1 at 50 deltas/s",
        "CPU per delta ÷ bare writer, 10 at 50 deltas/s",
        "CPU per delta, 1 saturated",
        "CPU per delta, 10 saturated",
        "replay, events/s",
    ]
    of_console = sum(bound["name"].startswith("console") for bound in result["bounds"])
    assert of_console == (2 if "The web console" in titles else 0)
    page = data.with_suffix(".md").read_text()
    assert page.count("| holds |") + page.count("| DOES NOT HOLD |") == len(result["bounds"])
