"""Added delay: from Hermes's call of `stream_delta_callback` to the text at the client's socket.

The moment of the call is noted by a plugin (`stamp_plugin`) on the agent itself, before anything of ours or of
api_server sees the text. Texts are matched by their distance from the start of the answer, in characters, so that
deltas which share a frame are matched too.
"""

from __future__ import annotations

import uuid

from .client import Answer
from .report import Bound, Table, median, percentile
from .rig import Rig, script, words

MEDIAN_LIMIT = 2.0  # ms, one stream at 50 deltas a second
P99_LIMIT = 10.0
PACE_MS = 20.0


def measure(rig: Rig, paced: int, unpaced: int) -> Table:
    """``paced`` and ``unpaced`` are numbers of deltas in one stream."""
    rows: list[tuple[str | float, ...]] = []
    samples: dict[str, list[float]] = {}
    bounds: list[Bound] = []
    rig.stamp(True)
    try:
        for kind, count, pace in (("50 deltas/s", paced, PACE_MS), ("unpaced", unpaced, 0.0)):
            for name in ("agui", "api_server"):
                door = rig.doors[name]
                thread = f"bench-{uuid.uuid4().hex}"
                door.ask(script("warm"), thread)
                rig.stamps()
                answer = door.ask(script(words(count), delta_ms=pace), thread)
                found = samples[f"{name} {kind}"] = delays(rig.stamps(), answer)
                rows.append((kind, door.name, median(found), percentile(found, 95), percentile(found, 99), max(found)))
                if name == "agui" and pace:
                    bounds.append(Bound("added delay at 50 deltas/s, median", median(found), MEDIAN_LIMIT, "ms"))
                    bounds.append(Bound("added delay at 50 deltas/s, p99", percentile(found, 99), P99_LIMIT, "ms"))
    finally:
        rig.stamp(False)
    note = f"One stream, {paced} deltas paced and {unpaced} unpaced. Unpaced the whole gateway shares one interpreter."
    head = ("", "door", "median ms", "p95 ms", "p99 ms", "max ms")
    return Table("Added delay, callback to client", head, rows, note, bounds, samples)


def delays(stamps: list[tuple[int, int]], answer: Answer) -> list[float]:
    """Milliseconds for each callback. Raises RuntimeError when the client did not get what the callback was given."""
    if sum(size for _, size in stamps) != len(answer.text):
        raise RuntimeError(f"{sum(size for _, size in stamps)} characters called, {len(answer.text)} arrived")
    found: list[float] = []
    called = arrived = 0
    pieces = iter(answer.pieces)
    at = 0
    for stamp, size in stamps:
        called += size
        while arrived < called:
            at, text = next(pieces)
            arrived += len(text)
        found.append((at - stamp) / 1e6)
    return found
