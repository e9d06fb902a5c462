"""CPU per text delta, in a serving process alone: ours against a bare writer of the same bytes, and what merging saves.

The producer's own cost (a thread that wakes for each delta, as Hermes's does) is measured alone and subtracted from
both, which is the stricter way to compare; with it is shown too. The client drains from another process.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from .report import Bound, Table, median

PACED_LIMIT = 1.5  # × the bare writer
SATURATED_LIMIT = 4.0  # µs
PACE_MS = 20.0
MERGE_MS = 50
STREAMS = (1, 10)
WRITERS = ("none", "bare", "agui", "merged")
_SILENCE = 30.0  # seconds without a byte that end the bench


class Serving:
    """Context manager: the process of `cpu_server`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.cpu_server"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, writer: str, streams: int, deltas: int, pace_ms: float) -> float:
        """Microseconds of CPU for each delta."""
        merge = f"&merge_ms={MERGE_MS}" if writer == "merged" else ""
        kind = "agui" if writer == "merged" else writer
        sockets = self.open(f"/{kind}?deltas={deltas}&pace_ms={pace_ms}{merge}", streams)
        before = self._cpu()
        self.go(deltas)
        frames = drain(sockets)
        spent = self._cpu() - before
        if writer not in ("none", "merged") and frames < streams * deltas:
            raise RuntimeError(f"{writer}: {frames} frames arrived of {streams * deltas}")
        return spent / (streams * deltas) / 1000

    def open(self, path: str, streams: int) -> list[socket.socket]:
        """Streams of this address that wait for ``go``."""
        sockets = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(streams)]
        for one in sockets:
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        for one in sockets:  # its headers are out: it is open
            one.settimeout(_SILENCE)
            one.recv(1, socket.MSG_PEEK)
        return sockets

    def go(self, deltas: int) -> None:
        """Let the producers begin."""
        self._get(f"/go?deltas={deltas}")

    def _cpu(self) -> int:
        return int(json.loads(self._get("/cpu"))["ns"])

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{path}: {response.status}")
            return response.read()
        finally:
            connection.close()


def measure(paced: int, unpaced: int, rounds: int) -> Table:
    """``paced`` and ``unpaced`` are numbers of deltas in each stream."""
    cases = [("50 deltas/s", streams, paced, PACE_MS) for streams in STREAMS]
    cases += [("unpaced", streams, unpaced, 0.0) for streams in STREAMS]
    samples: dict[str, list[float]] = {}
    with Serving() as process:
        for writer in WRITERS:
            process.run(writer, 1, max(paced, unpaced), 0.0)
        for _ in range(rounds):
            for kind, streams, deltas, pace in cases:
                for writer in WRITERS:
                    spent = process.run(writer, streams, deltas, pace)
                    samples.setdefault(f"{kind} {streams} {writer}", []).append(spent)
    rows: list[tuple[str | float, ...]] = []
    bounds: list[Bound] = []
    for kind, streams, _, pace in cases:
        none, bare, ours, merged = (median(samples[f"{kind} {streams} {writer}"]) for writer in WRITERS)
        net = (ours - none) / max(1e-9, bare - none)
        rows.append((kind, str(streams), none, bare, ours, merged, net))
        if pace:
            bounds.append(Bound(f"CPU per delta ÷ bare writer, {streams} at 50 deltas/s", net, PACED_LIMIT))
        else:
            bounds.append(Bound(f"CPU per delta, {streams} saturated", ours - none, SATURATED_LIMIT, "µs"))
    head = (
        "",
        "streams",
        "producer µs",
        "bare µs",
        "AG-UI µs",
        f"merge_ms: {MERGE_MS} µs",
        "× bare, producer subtracted",
    )
    note = (
        f"Process CPU time per delta, median of {rounds} interleaved rounds, with the producer's thread; the bounds "
        "are on what is left without it. The bare writer writes the same bytes."
    )
    return Table("CPU per delta in the serving process", head, rows, note, bounds, samples)


def drain(sockets: list[socket.socket]) -> int:
    """Read all to their ends; returns the number of text frames."""
    frames = 0
    tails = {one.fileno(): b"" for one in sockets}
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            selector.register(one, selectors.EVENT_READ, one)
        while selector.get_map():
            ready = selector.select(_SILENCE)
            if not ready:
                raise RuntimeError(f"no byte for {_SILENCE:g} s on {len(selector.get_map())} streams")
            for key, _ in ready:
                data = key.data.recv(1 << 16)
                if data:
                    joined = tails[key.fd] + data
                    frames += joined.count(b'"delta":')
                    tails[key.fd] = joined[-7:]  # one byte short of what is counted
                else:
                    selector.unregister(key.data)
                    key.data.close()
    return frames
