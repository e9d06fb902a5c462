"""Memory of the gateway for each idle stream, and for each turn that waits beyond what its agent costs Hermes."""

from __future__ import annotations

import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .parked import answer, park
from .report import Bound, Table
from .rig import Rig, script

STREAM_LIMIT = 40.0  # kB
PARKED_LIMIT = 300.0
_AT_ONCE = 8
_STILL_SECONDS = 1.5  # until what a request leaves behind is freed


def measure(rig: Rig, streams: int, parked: int) -> Table:
    """``streams`` readers of idle threads' feeds, and ``parked`` turns that wait for their client's tool."""
    pid = rig.gateway.pid
    assert pid is not None
    port = rig.gateway.port
    thread = f"bench-{uuid.uuid4().hex}"
    rig.doors["agui"].ask(script("warm"), thread)
    for socket_ in _follow(port, thread, streams):  # what the allocator keeps after the first time is not theirs
        socket_.close()
    before = _resident(pid)
    open_streams = _follow(port, thread, streams)
    during = _resident(pid)
    for socket_ in open_streams:
        socket_.close()
    stream_kb = (during - before) / streams

    def ended(number: int) -> None:
        held = (f"bench-{uuid.uuid4().hex}", f"call_{uuid.uuid4().hex[:12]}")
        park(port, *held)
        answer(port, *held)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(ended, range(parked)))  # warms, and fills what is kept of ended turns
        first = _resident(pid)
        list(pool.map(ended, range(parked)))
        agents = _resident(pid) - first
        waiting = [(f"bench-{uuid.uuid4().hex}", f"call_{uuid.uuid4().hex[:12]}") for _ in range(parked)]
        second = _resident(pid)
        list(pool.map(lambda held: park(port, *held), waiting))
        held_kb = _resident(pid) - second
        list(pool.map(lambda held: answer(port, *held), waiting))
    beyond = (held_kb - agents) / parked
    rows: list[tuple[str | float, ...]] = [
        (f"an idle stream ({streams})", stream_kb),
        (f"a turn that ended, its thread and agent ({parked})", agents / parked),
        (f"a turn that waits, its thread and agent ({parked})", held_kb / parked),
        ("a turn that waits, beyond that", beyond),
    ]
    return Table(
        "Memory of the gateway",
        ("", "kB each"),
        rows,
        "Growth of the process's resident memory. Idle: readers of one thread's feed on which nothing happens.",
        [
            Bound("memory of an idle stream", stream_kb, STREAM_LIMIT, "kB"),
            Bound("memory of a parked turn beyond Hermes's agent", beyond, PARKED_LIMIT, "kB"),
        ],
    )


def _follow(port: int, thread: str, count: int) -> list[socket.socket]:
    """Readers of the thread's feed, accepted."""
    found = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), timeout=60)
        one.sendall(f"GET /agui/threads/{thread}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got:
            more = one.recv(1 << 16)
            if not more:
                raise RuntimeError(f"feed: {got[:300]!r}")
            got += more
        found.append(one)
    return found


def _resident(pid: int) -> float:
    """Kilobytes, when it has come to rest."""
    time.sleep(_STILL_SECONDS)
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return float(line.split()[1])
