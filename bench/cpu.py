"""CPU per text delta, in a serving process alone: ours against a bare writer of the same bytes.

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
import time
from pathlib import Path
from typing import Self

from .report import Bound, Table, median

LIMIT = 2.0  # × the bare writer
PACE_MS = 20.0
STREAMS = (1, 10)
WRITERS = ("none", "bare", "agui")
_SETTLE = 0.2  # seconds until every stream is open
_SILENCE = 30.0  # seconds without a byte that end the bench


class _Process:
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
        sockets = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(streams)]
        for one in sockets:
            path = f"/{writer}?deltas={deltas}&pace_ms={pace_ms}"
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        time.sleep(_SETTLE)
        before = self._cpu()
        self._get(f"/go?deltas={deltas}")
        frames = _drain(sockets)
        spent = self._cpu() - before
        if writer != "none" and frames < streams * deltas:
            raise RuntimeError(f"{writer}: {frames} frames arrived of {streams * deltas}")
        return spent / (streams * deltas) / 1000

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
    with _Process() as process:
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
        none, bare, ours = (median(samples[f"{kind} {streams} {writer}"]) for writer in WRITERS)
        net = (ours - none) / max(1e-9, bare - none)
        rows.append((kind, str(streams), none, bare, ours, ours / bare, net))
        if pace:
            bounds.append(Bound(f"CPU per delta ÷ bare writer, {streams} at 50 deltas/s", net, LIMIT))
    head = ("", "streams", "producer µs", "bare µs", "AG-UI µs", "× bare, with producer", "× bare, producer subtracted")
    note = f"Process CPU time per delta, median of {rounds} interleaved rounds. The bounds are on the last column."
    return Table("CPU per delta in the serving process", head, rows, note, bounds, samples)


def _drain(sockets: list[socket.socket]) -> int:
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
