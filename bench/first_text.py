"""Time to the first text: a new thread and a further turn of the same thread, through each door."""

from __future__ import annotations

import uuid

from .report import Bound, Table, median, percentile
from .rig import Rig, script

SAME_LIMIT, NEW_LIMIT = 0.45, 1.1  # × api_server


def measure(rig: Rig, rounds: int, unmeasured: int = 2) -> Table:
    """Doors take turns within a round, and a round begins with another door each time, so that drift hits all alike."""
    names = list(rig.doors)
    kept = {name: f"bench-{uuid.uuid4().hex}" for name in names}
    samples: dict[str, list[float]] = {f"{name} {kind}": [] for name in names for kind in ("new", "same")}
    for number in range(-unmeasured, rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            for kind, thread in (("new", f"bench-{uuid.uuid4().hex}"), ("same", kept[name])):
                answer = rig.doors[name].ask(script("one two three four five", say=f"{thread} {number}"), thread)
                if number >= 0:
                    samples[f"{name} {kind}"].append(answer.first_text * 1000)
    rows: list[tuple[str | float, ...]] = []
    for kind in ("new", "same"):
        theirs = median(samples[f"api_server {kind}"])
        for name in ("agui", "api_server", "direct"):
            found = samples[f"{name} {kind}"]
            rows.append((f"{kind} thread", rig.doors[name].name, median(found), percentile(found, 95)))
            rows[-1] += (median(found) / theirs,)
    bounds = [
        Bound(
            f"{kind} thread, first text, AG-UI ÷ api_server (medians)",
            median(samples[f"agui {kind}"]) / median(samples[f"api_server {kind}"]),
            limit,
        )
        for kind, limit in (("new", NEW_LIMIT), ("same", SAME_LIMIT))
    ]
    return Table(
        "Time to first text",
        ("", "door", "median ms", "p95 ms", "× api_server"),
        rows,
        f"From before the connection is opened to the first text delta; {rounds} rounds, interleaved. The model has no "
        "latency of its own and knows no threads.",
        bounds,
        samples,
    )
