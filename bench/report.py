"""Numbers to tables: percentiles, bounds, the machine, a Markdown page and a JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("hermes-agui", "hermes-agent", "aiohttp", "ag-ui-protocol", "orjson", "pydantic", "openai", "httpx")


@dataclass(frozen=True)
class Bound:
    """A promise and what was measured: a value not above the limit, or with ``least`` not below it."""

    name: str
    value: float
    limit: float
    unit: str = "×"
    least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.least else self.value <= self.limit


@dataclass(frozen=True)
class Table:
    """One measurement: rows of cells (text, or numbers shown with three digits), and a note on how to read it."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str | float, ...]]
    note: str
    bounds: list[Bound] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered) + 0.5) - 1))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def machine() -> dict[str, str]:
    """What the numbers belong to."""
    facts = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": f"{os.cpu_count()} × {_cpu_name()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for name in _PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    return facts


def page(tables: Sequence[Table], facts: dict[str, str], when: str) -> str:
    """Everything as Markdown."""
    parts = [f"# Bench, {when}\n", "; ".join(f"{name} {value}" for name, value in facts.items()) + "\n"]
    return "\n".join([*parts, *map(section, tables), bounds_of(tables)])


def section(table: Table) -> str:
    """One table as Markdown."""
    lines = [f"## {table.title}", "", _row(table.head), _row(["---"] * len(table.head))]
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, "", table.note, ""])


def bounds_of(tables: Sequence[Table]) -> str:
    """What was promised, and whether it holds."""
    lines = ["## Bounds", "", _row(("bound", "limit", "measured", "")), _row(["---"] * 4)]
    for bound in (bound for table in tables for bound in table.bounds):
        side = "≥" if bound.least else "≤"
        cells = (f"{side} {_cell(bound.limit)} {bound.unit}", f"{_cell(bound.value)} {bound.unit}")
        lines.append(_row((bound.name, *cells, "holds" if bound.holds else "DOES NOT HOLD")))
    return "\n".join([*lines, ""])


def write(tables: Sequence[Table], facts: dict[str, str], when: str, directory: Path) -> list[Path]:
    """`<when>.md` and `<when>.json` (with every sample). Returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    text, data = directory / f"{when}.md", directory / f"{when}.json"
    text.write_text(page(tables, facts, when), "utf-8")
    body: dict[str, Any] = {"when": when, "machine": facts, "tables": [_brief(table) for table in tables]}
    body["bounds"] = [asdict(bound) | {"holds": bound.holds} for table in tables for bound in table.bounds]
    data.write_text(json.dumps(body) + "\n", "utf-8")
    return [text, data]


def _brief(table: Table) -> dict[str, Any]:
    """Samples with four digits: there are tens of thousands."""
    short = {name: [float(f"{sample:.4g}") for sample in found] for name, found in table.samples.items()}
    return asdict(table) | {"samples": short}


def today() -> str:
    return time.strftime("%Y-%m-%d")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
