"""A whole chat completion, not streamed: our `/v1/chat/completions` and Hermes's own.

New: a request that names no session, complete in itself. Same: a further turn of a session that a header names.
"""

from __future__ import annotations

import http.client
import json
import time
import uuid

from . import compare
from .report import Table
from .rig import Rig, script

NEW_LIMIT, SAME_LIMIT = 1.1, 1.0  # × api_server
_TIMEOUT = 120.0


def measure(rig: Rig, rounds: int, unmeasured: int = 2) -> Table:
    """Both doors in each round, in an order by chance, so that drift hits both alike."""
    theirs = rig.doors["api_server"]
    key = dict(theirs.headers(""))["Authorization"]
    doors = {"agui": ("/v1", rig.gateway.port, {}), "api_server": ("api_server", theirs.port, {"Authorization": key})}
    names = list(doors)
    kept = {name: f"bench-{uuid.uuid4().hex}" for name in names}
    samples: dict[str, list[float]] = {f"{name} {kind}": [] for name in names for kind in ("new", "same")}
    for number, order in enumerate(compare.orders(names, unmeasured + rounds), -unmeasured):
        for name in order:
            _, port, headers = doors[name]
            for kind in ("new", "same"):
                named = {"X-Hermes-Session-Id": kept[name]} if kind == "same" else {}
                seconds = _whole(port, {**headers, **named}, script("one two three", say=uuid.uuid4().hex))
                if number >= 0:
                    samples[f"{name} {kind}"].append(seconds * 1000)
    limits = {
        kind: (f"{kind} conversation, whole completion, /v1", limit)
        for kind, limit in (("new", NEW_LIMIT), ("same", SAME_LIMIT))
    }
    bounds, sure = compare.bounds(samples, limits)
    called = {name: door for name, (door, _, _) in doors.items()}
    return Table(
        "A whole chat completion",
        compare.HEAD,
        compare.rows(samples, called, {"new": "new conversation", "same": "same conversation"}),
        f"From before the connection is opened to the last byte of the answer; {rounds} rounds, interleaved. {sure}",
        bounds,
        samples,
    )


def _whole(port: int, headers: dict[str, str], text: str) -> float:
    """Seconds for one completion. Raises RuntimeError when it is refused or says something else."""
    body = json.dumps({"model": "scripted-1", "messages": [{"role": "user", "content": text}]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    try:
        began = time.monotonic()
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        data = response.read()
        seconds = time.monotonic() - began
    finally:
        connection.close()
    if response.status != 200 or json.loads(data)["choices"][0]["message"]["content"] != "one two three":
        raise RuntimeError(f"{port}: {response.status} {data[:500]!r}")
    return seconds
