"""What turns that wait cost another thread: its first text and its length, alone and beside 64 parked turns."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .report import Table, median, percentile
from .rig import Rig, script, words

_TOOL = {
    "name": "bench_wait",
    "description": "Waits for the client.",
    "parameters": {"type": "object", "properties": {}},
}
_TIMEOUT = 120.0  # seconds without a byte
_AT_ONCE = 8


def measure(rig: Rig, parked: int, rounds: int, deltas: int = 200) -> Table:
    """``rounds`` turns on one thread, then ``parked`` other threads wait for their client's tool, then again."""
    thread = f"bench-{uuid.uuid4().hex}"
    _turn(rig, thread, deltas)  # builds the agent
    samples: dict[str, list[float]] = {}
    _sample(rig, thread, deltas, rounds, "undisturbed", samples)
    waiting = [(f"bench-{uuid.uuid4().hex}", f"call_{uuid.uuid4().hex[:12]}") for _ in range(parked)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda held: park(rig.gateway.port, *held), waiting))
        _sample(rig, thread, deltas, rounds, "beside", samples)
        list(pool.map(lambda held: answer(rig.gateway.port, *held), waiting))
    rows: list[tuple[str | float, ...]] = []
    for kind, label in (("undisturbed", "nothing waits"), ("beside", f"{parked} wait")):
        for what in ("first text", "whole turn"):
            found = samples[f"{kind} {what}"]
            rows.append((what, label, median(found), percentile(found, 95)))
            rows[-1] += (median(found) / median(samples[f"undisturbed {what}"]),)
    return Table(
        "Beside turns that wait",
        ("", "", "median ms", "p95 ms", "× nothing waits"),
        rows,
        f"One thread's turn of {deltas} unpaced deltas, {rounds} times each, alone and while {parked} other threads "
        "wait for a tool that their client executes. All of those are answered afterwards and end.",
        samples=samples,
    )


def _turn(rig: Rig, thread: str, deltas: int) -> tuple[float, float]:
    """Milliseconds to the first text and to the end."""
    answer = rig.doors["agui"].ask(script(words(deltas), say=uuid.uuid4().hex), thread)
    return answer.first_text * 1000, (answer.ended - answer.asked) / 1e6


def _sample(rig: Rig, thread: str, deltas: int, rounds: int, kind: str, samples: dict[str, list[float]]) -> None:
    for _ in range(rounds):
        first, whole = _turn(rig, thread, deltas)
        samples.setdefault(f"{kind} first text", []).append(first)
        samples.setdefault(f"{kind} whole turn", []).append(whole)


def park(port: int, thread: str, call: str) -> None:
    """The thread waits for this call of its client's tool. Raises RuntimeError if it does not."""
    steps = [{"tools": [{"id": call, "name": _TOOL["name"], "arguments": {}}]}, {"text": "The end."}]
    message = {"id": uuid.uuid4().hex, "role": "user", "content": json.dumps({"script": steps, "say": call})}
    events = _run(port, thread, message)
    if not any(event.get("toolCallId") == call for event in events):
        raise RuntimeError(f"{thread} does not wait: {events[-1]}")


def answer(port: int, thread: str, call: str) -> None:
    """Its client answers, and the turn goes on to its end. Raises RuntimeError if it does not."""
    message = {"id": uuid.uuid4().hex, "role": "tool", "toolCallId": call, "content": "done"}
    if not any(event["type"] == "TEXT_MESSAGE_CONTENT" for event in _run(port, thread, message)):
        raise RuntimeError(f"{thread} did not go on")


def _run(port: int, thread: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of one run, which must end well."""
    body = {"threadId": thread, "runId": uuid.uuid4().hex, "messages": [message], "tools": [_TOOL]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    try:
        content = json.dumps({**body, "protocolVersion": "1.0"}).encode()
        connection.request("POST", "/agui", content, {"Content-Type": "application/json"})
        lines = connection.getresponse().read().split(b"\n")
    finally:
        connection.close()
    events: list[dict[str, Any]] = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    if not events or events[-1]["type"] != "RUN_FINISHED":
        raise RuntimeError(f"{thread} ended with {events[-1:] or lines[:1]}")
    return events
