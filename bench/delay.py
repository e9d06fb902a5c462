"""Added delay: from Hermes's call of `stream_delta_callback` to the text at the client's socket.

The moment of the call is noted by a plugin (`stamp_plugin`) on the agent itself, before anything of ours or of
api_server sees the text. Texts are matched by their distance from the start of the answer, in characters, so that
deltas which share a frame are matched too.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from .client import Answer
from .report import Bound, Table, median, percentile
from .rig import Rig, script, words

MEDIAN_LIMIT = 1.0  # ms, one stream at 50 deltas a second
P99_LIMIT = 5.0
PACE_MS = 20.0
MANY_MEDIAN_LIMIT = 5.0  # ms, half as many streams at 25 deltas a second as saturate the gateway
MANY_P99_LIMIT = 15.0
MANY_PACE_MS = 40.0
_RUNS = 3  # of half as many; a bound is on the middle one, since a shared machine stands still now and then
_STEP, _MOST = 8, 64  # streams; each holds one of the gateway's worker threads


def measure(rig: Rig, paced: int, unpaced: int, many: int) -> Table:
    """``paced``, ``unpaced`` and, for each of many streams, ``many`` are numbers of deltas.

    Saturation is looked for with streams of that pace, since a delta that comes alone costs Hermes about four times
    what one of many that wait does: what unpaced streams make in a second says nothing of these.
    """
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
                rows.append(_row(kind, door.name, found))
                if name == "agui" and pace:
                    bounds.append(Bound("added delay at 50 deltas/s, median", median(found), MEDIAN_LIMIT, "ms"))
                    bounds.append(Bound("added delay at 50 deltas/s, p99", percentile(found, 99), P99_LIMIT, "ms"))
        ramp = _ramp(rig, many)
        for streams, steady in ramp.items():
            samples[f"agui {streams} at 25 deltas/s"] = steady
            rows.append(_row(f"{streams} at 25 deltas/s", "AG-UI", steady))
        half = max(ramp, default=2) // 2
        kind = f"{half} streams at 25 deltas/s, half of saturation"
        runs = [_many(rig, half, many) for _ in range(_RUNS)]
        for number, (steady, starting) in enumerate(runs, 1):
            if steady:  # with few deltas there is no time when all go on
                samples[f"agui {kind} {number}"] = steady
                rows.append(_row(f"{kind}, run {number}", "AG-UI", steady))
                rows.append(_row(f"the same {half}, while turns begin or end", "AG-UI", starting))
        if all(steady for steady, _ in runs):
            middle, high = (median([percentile(steady, q) for steady, _ in runs]) for q in (50, 99))
            bounds.append(Bound(f"added delay of {kind}, median", middle, MANY_MEDIAN_LIMIT, "ms"))
            bounds.append(Bound(f"added delay of {kind}, p99", high, MANY_P99_LIMIT, "ms"))
    finally:
        rig.stamp(False)
    note = (
        f"One stream, {paced} deltas paced and {unpaced} unpaced. Unpaced the whole gateway shares one interpreter. "
        f"Streams at 25 deltas/s are added {_STEP} at a time, until the gateway is saturated: one delta in twenty "
        "comes later than the next one is due, or no moment is seen when all go on. The bounds on half of them are on "
        f"the middle one of {_RUNS} runs."
    )
    head = ("", "door", "median ms", "p95 ms", "p99 ms", "max ms")
    return Table("Added delay, callback to client", head, rows, note, bounds, samples)


def _row(kind: str, door: str, found: list[float]) -> tuple[str | float, ...]:
    numbers = (median(found), percentile(found, 95), percentile(found, 99), max(found)) if found else ("-",) * 4
    return (kind, door, *numbers)


def _ramp(rig: Rig, deltas: int) -> dict[int, list[float]]:
    """The delays of ever more streams, up to the number that saturates the gateway (or to `_MOST`)."""
    found: dict[int, list[float]] = {}
    for streams in range(2 * _STEP, _MOST + 1, _STEP):
        steady, _ = _many(rig, streams, deltas)
        found[streams] = steady
        if not steady or percentile(steady, 95) > MANY_PACE_MS:
            break
    return found


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
