"""Added delay: from Hermes's call of `stream_delta_callback` to the text at the client's socket.

The moment of the call is noted by a plugin (`stamp_plugin`) on the agent itself, before anything of ours or of
api_server sees the text. Texts are matched by their distance from the start of the answer, in characters, so that
deltas which share a frame are matched too.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from .client import Answer
from .rate import total
from .report import Bound, Table, median, percentile
from .rig import Rig, script, words

MEDIAN_LIMIT = 1.0  # ms, one stream at 50 deltas a second
P99_LIMIT = 5.0
PACE_MS = 20.0
MANY_MEDIAN_LIMIT = 5.0  # ms, as many streams at 25 deltas a second as make half of what the gateway can do
MANY_P99_LIMIT = 15.0
MANY_PACE_MS = 40.0
_MOST = 48  # streams; each holds one of the gateway's worker threads


def measure(rig: Rig, paced: int, unpaced: int, many: int) -> Table:
    """``paced``, ``unpaced`` and, for each of many streams, ``many`` are numbers of deltas."""
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
                (stamps,) = rig.stamps()
                found = samples[f"{name} {kind}"] = delays(stamps, answer)
                rows.append((kind, door.name, median(found), percentile(found, 95), percentile(found, 99), max(found)))
                if name == "agui" and pace:
                    bounds.append(Bound("added delay at 50 deltas/s, median", median(found), MEDIAN_LIMIT, "ms"))
                    bounds.append(Bound("added delay at 50 deltas/s, p99", percentile(found, 99), P99_LIMIT, "ms"))
        rig.stamp(False)
        saturated = total(rig.doors["agui"], 8, unpaced // 2)
        streams = max(2, min(_MOST, round(saturated / 2 / (1000 / MANY_PACE_MS))))
        rig.stamp(True)
        for found, kind in zip(
            _many(rig, streams, many),
            (f"{streams} at 25 deltas/s", f"the same {streams}, while turns begin or end"),
            strict=True,
        ):
            if found:  # with few deltas there is no time when all go on
                samples[f"agui {kind}"] = found
                rows.append((kind, "AG-UI", median(found), percentile(found, 95), percentile(found, 99), max(found)))
        if found := samples.get(f"agui {streams} at 25 deltas/s"):
            kind = f"{streams} streams at 25 deltas/s"
            bounds.append(Bound(f"added delay of {kind}, median", median(found), MANY_MEDIAN_LIMIT, "ms"))
            bounds.append(Bound(f"added delay of {kind}, p99", percentile(found, 99), MANY_P99_LIMIT, "ms"))
    finally:
        rig.stamp(False)
    note = (
        f"One stream, {paced} deltas paced and {unpaced} unpaced. Unpaced the whole gateway shares one interpreter. "
        f"Saturated by 8 unpaced streams it makes {saturated:.0f} deltas/s; {streams} streams are half of that."
    )
    head = ("", "door", "median ms", "p95 ms", "p99 ms", "max ms")
    return Table("Added delay, callback to client", head, rows, note, bounds, samples)


def _many(rig: Rig, streams: int, deltas: int) -> tuple[list[float], list[float]]:
    """Delays of all streams at once, once their agents are built: those while every stream goes on, and the others,
    when the gateway is busy with the beginning or the end of turns too. Each stream is told by its length."""
    door = rig.doors["agui"]
    threads = [f"bench-{uuid.uuid4().hex}" for _ in range(streams)]
    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(lambda thread: door.ask(script("warm"), thread), threads))
        rig.stamps()
        texts = [words(deltas + number) for number in range(streams)]
        answers = list(
            pool.map(
                lambda one: door.ask(script(one[1], delta_ms=MANY_PACE_MS), one[0]), zip(threads, texts, strict=True)
            )
        )
    stamped = {sum(size for _, size in stamps): stamps for stamps in rig.stamps()}
    began, ended = max(stamps[0][0] for stamps in stamped.values()), min(stamps[-1][0] for stamps in stamped.values())
    steady: list[float] = []
    starting: list[float] = []
    for answer in answers:
        stamps = stamped[len(answer.text)]
        for (at, _), delay in zip(stamps, delays(stamps, answer), strict=True):
            (steady if began <= at <= ended else starting).append(delay)
    return steady, starting


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
