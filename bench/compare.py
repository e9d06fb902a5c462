"""Doors side by side: rows and bounds of samples that were taken in rounds, and how sure a ratio is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from .report import Bound, median, percentile

_RESAMPLED = 2000


def orders(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """For each round the names in an order of its own: by chance, but the same ones each time this is called.

    A fixed rule is not fair, be it turn about: Hermes's database merges its search index at every so many messages that
    are written to it, which falls to the same door again and again (some 3 ms of each turn of 2,000 deltas).
    """
    chance = random.Random(0)
    for _ in range(rounds):
        yield chance.sample(names, len(names))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Mean ÷ mean, with its 95 % interval by resampling rounds: the samples of one round stay together."""

    def of(chosen: Sequence[int]) -> float:
        return sum(ours[index] for index in chosen) / sum(theirs[index] for index in chosen)

    return of(range(len(ours))), *_interval(len(ours), of)


def _interval(count: int, of: Callable[[Sequence[int]], float]) -> tuple[float, float]:
    chance = random.Random(0)
    found = sorted(of(chance.choices(range(count), k=count)) for _ in range(_RESAMPLED))
    return found[int(0.025 * _RESAMPLED)], found[int(0.975 * _RESAMPLED) - 1]


def rows(
    samples: Mapping[str, Sequence[float]], doors: Mapping[str, str], kinds: Mapping[str, str]
) -> list[tuple[str | float, ...]]:
    """A row for each kind (key to what it is called) and door (likewise), of the samples ``<door> <kind>``."""
    made: list[tuple[str | float, ...]] = []
    for kind, called in kinds.items():
        theirs = samples[f"api_server {kind}"]
        for name, door in doors.items():
            found = samples[f"{name} {kind}"]
            mean = statistics.fmean(found)
            made.append((called, door, median(found), mean, percentile(found, 95), mean / statistics.fmean(theirs)))
    return made


HEAD = ("", "door", "median ms", "mean ms", "p95 ms", "× api_server (means)")


def bounds(samples: Mapping[str, Sequence[float]], limits: Mapping[str, tuple[str, float]]) -> tuple[list[Bound], str]:
    """For each kind (what is bounded, the limit), ours ÷ api_server; and a sentence that gives the intervals."""
    made, said = [], []
    for kind, (what, limit) in limits.items():
        value, low, high = ratio(samples[f"agui {kind}"], samples[f"api_server {kind}"])
        made.append(Bound(f"{what} ÷ api_server (means)", value, limit))
        said.append(f"{kind} {low:.3g} to {high:.3g}")
    return made, f"95 % intervals of ours ÷ api_server, by resampling rounds: {', '.join(said)}."
