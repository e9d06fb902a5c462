"""Text deltas a second, unpaced: one stream, and several at once in total."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from .client import Answer, Door
from .report import Table, median
from .rig import Rig, script, words

STREAMS = (1, 4)


def measure(rig: Rig, deltas: int, rounds: int) -> Table:
    """``deltas`` in each stream."""
    samples: dict[str, list[float]] = {}
    names = list(rig.doors)
    for number in range(rounds):
        for streams in STREAMS:
            for name in names[number % len(names) :] + names[: number % len(names)]:
                samples.setdefault(f"{name} {streams}", []).append(total(rig.doors[name], streams, deltas))
    rows: list[tuple[str | float, ...]] = []
    for streams in STREAMS:
        theirs = median(samples[f"api_server {streams}"])
        for name in ("agui", "api_server", "direct"):
            ours = median(samples[f"{name} {streams}"])
            rows.append((f"{streams} at once", rig.doors[name].name, ours, ours / theirs))
    note = (
        f"{deltas} deltas a stream, median of {rounds} interleaved rounds; from the first text of any stream to the "
        "last of all. Hermes's own work on a delta, under one interpreter lock, is the ceiling of both doors; the "
        "model has its frames ready before it writes the first."
    )
    return Table("Deltas per second in total", ("", "door", "deltas/s", "× api_server"), rows, note, samples=samples)


def total(door: Door, streams: int, deltas: int) -> float:
    """Text deltas a second of that many streams at once, in total."""
    threads = [f"bench-{uuid.uuid4().hex}" for _ in range(streams)]

    def ask(thread: str) -> Answer:
        return door.ask(script(words(deltas), say=thread), thread)

    with ThreadPoolExecutor(streams) as pool:
        answers = list(pool.map(ask, threads))
    first = min(answer.pieces[0][0] for answer in answers)
    last = max(answer.pieces[-1][0] for answer in answers)
    return sum(len(answer.pieces) for answer in answers) / ((last - first) / 1e9)
