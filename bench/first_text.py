"""Time to the first text: a new thread and a further turn of the same thread, through each door."""

from __future__ import annotations

import uuid

from . import compare
from .report import Table
from .rig import Rig, script

SAME_LIMIT, NEW_LIMIT = 0.45, 1.1  # × api_server


def measure(rig: Rig, rounds: int, unmeasured: int = 2) -> Table:
    """All doors in each round, in an order by chance, so that drift hits all alike."""
    names = list(rig.doors)
    kept = {name: f"bench-{uuid.uuid4().hex}" for name in names}
    samples: dict[str, list[float]] = {f"{name} {kind}": [] for name in names for kind in ("new", "same")}
    for number, order in enumerate(compare.orders(names, unmeasured + rounds), -unmeasured):
        for name in order:
            for kind, thread in (("new", f"bench-{uuid.uuid4().hex}"), ("same", kept[name])):
                answer = rig.doors[name].ask(script("one two three four five", say=f"{thread} {number}"), thread)
                if number >= 0:
                    samples[f"{name} {kind}"].append(answer.first_text * 1000)
    limits = {
        kind: (f"{kind} thread, first text, AG-UI", limit) for kind, limit in (("new", NEW_LIMIT), ("same", SAME_LIMIT))
    }
    bounds, sure = compare.bounds(samples, limits)
    doors = {name: rig.doors[name].name for name in ("agui", "api_server", "direct")}
    return Table(
        "Time to first text",
        compare.HEAD,
        compare.rows(samples, doors, {"new": "new thread", "same": "same thread"}),
        f"From before the connection is opened to the first text delta; {rounds} rounds, interleaved. The model has no "
        f"latency of its own and knows no threads. {sure}",
        bounds,
        samples,
    )
