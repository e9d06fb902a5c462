"""What our adapter costs a turn: the same turn through AG-UI and on a platform that shows nothing, in pairs."""

from __future__ import annotations

import http.client
import json
import time
import uuid

from .compare import orders, ratio
from .report import Bound, Table, median
from .rig import Rig, script, words

LIMIT = 0.97  # × the no-op adapter's tokens a second


def measure(rig: Rig, deltas: int, pairs: int) -> Table:
    """``deltas`` of each turn, unpaced; which of a pair comes first is left to chance.

    Each pair has threads of its own, continued from a short turn: an agent that is there, and a history that is none of
    what is measured. Until the last byte came; what the client makes of the bytes is its own. On a shared machine one
    turn takes half as long again as the next one, so there are many, and all their time counts alike.
    """
    samples: dict[str, list[float]] = {"agui": [], "noop": []}
    for number, names in enumerate(orders(list(samples), 2 + pairs), -2):
        threads = {name: f"bench-{uuid.uuid4().hex}" for name in names}
        for name in names:
            _turn(rig, name, threads[name], 1)
        for name in names:
            seconds = _turn(rig, name, threads[name], deltas)
            if number >= 0:
                samples[name].append(seconds)
    value, low, high = ratio(samples["noop"], samples["agui"])
    rates = {name: [deltas / seconds for seconds in found] for name, found in samples.items()}
    rows: list[tuple[str | float, ...]] = [(name, median(found)) for name, found in rates.items()]
    rows.append(("AG-UI ÷ no-op, all of their time", value))
    note = (
        f"Tokens a second over a whole turn of {deltas} deltas, the second of its thread, from the request to its end, "
        f"in {pairs} interleaved pairs: in the rows above the median turn, in the last one all tokens by all seconds "
        f"(95 % interval {low:.3f} to {high:.3f}, by resampling pairs)."
    )
    bound = Bound("tokens/s of a turn ÷ no-op adapter", value, LIMIT, least=True)
    return Table("What the adapter costs a turn", ("", "tokens/s"), rows, note, [bound], rates)


def _turn(rig: Rig, name: str, thread: str, deltas: int) -> float:
    """Seconds of one turn."""
    text = script(words(deltas), say=uuid.uuid4().hex)
    if name == "noop":
        return _say(rig.noop_port, thread, text)
    answer = rig.doors[name].ask(text, thread)
    return (answer.ended - answer.asked) / 1e9


def _say(port: int, chat: str, text: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        begin = time.monotonic()
        connection.request(
            "POST", "/say", json.dumps({"chat": chat, "text": text}), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"no-op: {response.status} {response.read()[:300]!r}")
        response.read()
        return time.monotonic() - begin
    finally:
        connection.close()
