"""One turn read by many, and a turn that has ended replayed: events a second, in a serving process alone."""

from __future__ import annotations

import time

from .cpu import Serving, drain
from .report import Bound, Table, median

READERS = (1, 10, 200)
REPLAY_LIMIT = 200_000.0  # events a second


def measure(deltas: int, replayed: int, rounds: int) -> Table:
    """``deltas`` of the turn that is read while it is made, ``replayed`` of the one that has ended."""
    samples: dict[str, list[float]] = {}
    with Serving() as process:
        for number in range(-1, rounds):  # the first is not measured
            for readers in READERS:
                sockets = process.open(f"/shared?deltas={deltas}", readers)
                begin = time.perf_counter()
                process.go(deltas)
                _count(drain(sockets), deltas * readers)
                if number >= 0:
                    samples.setdefault(f"{readers}", []).append(deltas * readers / (time.perf_counter() - begin))
            begin = time.perf_counter()
            _count(drain(process.open(f"/replay?deltas={replayed}", 1)), replayed)
            if number >= 0:
                samples.setdefault("replay", []).append(replayed / (time.perf_counter() - begin))
    rows: list[tuple[str | float, ...]] = [
        (f"live, readers: {readers}", median(samples[f"{readers}"]), median(samples[f"{readers}"]) / readers)
        for readers in READERS
    ]
    replay = median(samples["replay"])
    rows.append((f"replay of {replayed} events", replay, replay))
    note = (
        f"Events at clients, median of {rounds} rounds. Live: one turn of {deltas} deltas from a thread that makes "
        "them as fast as it can, every reader with its own translator. Replay: one reader, from its connection on."
    )
    bound = Bound("replay, events/s", replay, REPLAY_LIMIT, "", least=True)
    return Table("Fan-out and replay", ("", "events/s in all", "events/s a reader"), rows, note, [bound], samples)


def _count(frames: int, wanted: int) -> None:
    if frames != wanted:
        raise RuntimeError(f"{frames} frames arrived of {wanted}")
