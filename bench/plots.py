"""Pictures of the tables: how samples are spread, and every bound beside its limit. With matplotlib (extra `bench`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .report import Table


def draw(tables: Sequence[Table], when: str, directory: Path) -> list[Path]:
    """SVG files beside the results; their paths. Nothing where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = when  # the same numbers give the same file
    made = [_spread(table, when, directory) for table in tables if table.samples]
    if any(table.bounds for table in tables):
        made.append(_bounds(tables, when, directory))
    return made


def _spread(table: Table, when: str, directory: Path) -> Path:
    from matplotlib.figure import Figure

    names = list(table.samples)
    figure = Figure(figsize=(8, 0.9 + 0.35 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.boxplot([table.samples[name] for name in names], orientation="horizontal", whis=(5, 95), showfliers=False)
    axes.set_yticks(range(1, len(names) + 1), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_title(f"{table.title} (box: quartiles, whiskers: 5 and 95 %)", fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    return _write(figure, directory / f"{when}-{re.sub(r'[^a-z]+', '-', table.title.lower()).strip('-')}.svg")


def _bounds(tables: Sequence[Table], when: str, directory: Path) -> Path:
    from matplotlib.figure import Figure

    bounds = [bound for table in tables for bound in table.bounds]
    shares = [bound.limit / bound.value if bound.least else bound.value / bound.limit for bound in bounds]
    figure = Figure(figsize=(9, 0.9 + 0.32 * len(bounds)), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:green" if bound.holds else "tab:red" for bound in bounds]
    axes.barh([bound.name for bound in bounds], shares, color=colours)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_title("Each bound, as a share of its limit (1: the limit; less is better)", fontsize=10)
    return _write(figure, directory / f"{when}-bounds.svg")


def _write(figure: object, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None})  # type: ignore[attr-defined]
    return path
