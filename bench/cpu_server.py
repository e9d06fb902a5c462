"""A process that only serves streams, for `cpu.py`: our tap, log, run and writer, or a bare writer of the same bytes.

`GET /{writer}?deltas=N&pace_ms=P` opens a stream; `GET /go?deltas=N` starts the producer threads of all that are open,
one a stream as in Hermes. `writer` is `agui`, `bare` (wakes the loop, joins what waits, writes it: the least that any
writer does) or `none` (the producer alone, to be subtracted). `GET /cpu` is the process's CPU time in nanoseconds.
`merge_ms=M` gathers text as `agui.merge_ms` does. `GET /shared?deltas=N` is a further reader of one turn that all its
readers share until `/go`, and `GET /replay?deltas=N` reads a turn that has ended.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from agui_adapter.config import load
from agui_adapter.events import AguiStream
from agui_adapter.hermes.redaction import hide, redact_lines
from agui_adapter.hermes.warm import set_aside
from agui_adapter.log import EventLog
from agui_adapter.run import Run
from agui_adapter.server import _SSE, Server
from agui_adapter.session import Principal, Thread, Turn
from agui_adapter.tap import Secrets, Tap

from .rig import words


def texts(count: int) -> list[str]:
    """The deltas of a stream."""
    return [f"{word} " for word in words(count).split()]


def produce(deltas: list[str], pace: float, sink: Callable[[str], Any], end: Callable[[], Any]) -> None:
    """What Hermes's request thread does, ``pace`` seconds a delta; 0 is as fast as it can."""
    begin = time.monotonic()
    for number, text in enumerate(deltas):
        if pace:
            wait = begin + number * pace - time.monotonic()
            if wait > 0:
                time.sleep(wait)
        sink(text)
    end()


class Bare:
    """The least: a queue, one wake-up of the loop for each delta, one write for each wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frames: dict[str, bytes], *, batched: bool) -> None:
        self._loop = loop
        self._batched = batched  # one wake-up for all that comes before it is heard
        self._woken = False
        self._frames = frames
        self._waiting: deque[bytes] = deque()
        self._event = asyncio.Event()
        self._ended = False

    def push(self, text: str) -> None:
        self._waiting.append(self._frames[text])
        if not self._woken:
            self._woken = self._batched
            self._loop.call_soon_threadsafe(self._event.set)

    def end(self) -> None:
        self._ended = True
        self._loop.call_soon_threadsafe(self._event.set)

    async def write(self, response: web.StreamResponse) -> None:
        while True:
            await self._event.wait()
            self._event.clear()
            self._woken = False
            ended = self._ended
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if waiting:
                await response.write(b"".join(waiting))
            if ended and not self._waiting:
                return


class CpuServer:
    """The routes."""

    def __init__(self) -> None:
        self._server = Server(None, load({}, {}))  # type: ignore[arg-type]  # only its writer is used
        self._frames: dict[str, bytes] = {}
        self._start = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._shared: Turn | None = None
        self._ended: dict[int, Turn] = {}

    def prepare(self, deltas: list[str]) -> None:
        """The bytes that our writer would write for each text, for the bare one."""
        stream = AguiStream("t", "r", prefix="turn-" + "0" * 32)
        turn, tap = _turn()
        for text in deltas:
            tap.text(text)
        for position, event in turn.log.take(0, 10**9).events:
            frames = stream.feed(event)
            text = getattr(event, "text", "")
            if text:
                self._frames[text] = b"id: %s.%d\n%s" % (turn.id.encode(), position, frames[-1])

    async def cpu(self, request: web.Request) -> web.Response:
        return web.json_response({"ns": time.process_time_ns()})

    async def go(self, request: web.Request) -> web.Response:
        """Let the producers of the streams that are open begin."""
        deltas = int(request.query["deltas"])
        if len(self._frames) < deltas:
            self.prepare(texts(deltas))
        start, self._start = self._start, asyncio.Event()
        start.set()
        self._shared = None
        return web.Response()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        writer = request.match_info["writer"]
        deltas, pace = texts(int(request.query["deltas"])), float(request.query["pace_ms"]) / 1000
        if writer == "agui":
            turn = self._produced(deltas, pace)
            merge_ms = int(request.query.get("merge_ms", 0))
            run = Run(turn, AguiStream("t", "r", prefix=turn.id), merge_ms=merge_ms)
            return await self._server.stream(request, run.chunks())
        response = web.StreamResponse(headers=_SSE)
        await response.prepare(request)
        if writer in ("bare", "batched"):
            bare = Bare(loop, self._frames, batched=writer == "batched")
            self._later(partial(produce, deltas, pace, bare.push, bare.end))
            await bare.write(response)
        else:
            ended = asyncio.Event()
            self._later(partial(produce, deltas, pace, lambda text: None, lambda: loop.call_soon_threadsafe(ended.set)))
            await ended.wait()
        await response.write_eof()
        return response

    async def shared(self, request: web.Request) -> web.StreamResponse:
        if self._shared is None:
            self._shared = self._produced(texts(int(request.query["deltas"])), 0.0)
        return await self._read(request, self._shared)

    async def replay(self, request: web.Request) -> web.StreamResponse:
        count = int(request.query["deltas"])
        if count not in self._ended:
            turn, tap = _turn()
            for text in texts(count):
                tap.text(text)
            tap.stop()
            turn.finish("success")
            self._ended[count] = turn
        return await self._read(request, self._ended[count])

    async def _read(self, request: web.Request, turn: Turn) -> web.StreamResponse:
        return await self._server.stream(request, Run(turn, AguiStream("t", "r", prefix=turn.id)).chunks())

    def _produced(self, deltas: list[str], pace: float) -> Turn:
        """A turn whose deltas a thread produces from `/go` on."""
        loop = asyncio.get_running_loop()
        turn, tap = _turn()

        def end() -> None:
            tap.stop()
            loop.call_soon_threadsafe(turn.finish, "success")

        self._later(partial(produce, deltas, pace, tap.text, end))
        return turn

    def _later(self, work: Callable[[], None]) -> None:
        start = self._start

        async def begin() -> None:
            await start.wait()
            threading.Thread(target=work, daemon=True).start()

        task = asyncio.create_task(begin())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _turn() -> tuple[Turn, Tap]:
    turn = Turn(Thread(Principal("bench"), "t", "bench.t"), EventLog(asyncio.get_running_loop()))
    tap = Tap(turn, max_result_chars=1000, secrets=Secrets(redact_lines, hide))
    tap.begin()
    return turn, tap


async def main() -> None:
    """Serve until the parent ends it; prints the port."""
    server = CpuServer()
    app = web.Application()
    app.router.add_get("/cpu", server.cpu)
    app.router.add_get("/go", server.go)
    app.router.add_get("/shared", server.shared)
    app.router.add_get("/replay", server.replay)
    app.router.add_get("/{writer}", server.stream)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    set_aside()  # as the gateway's warm-up ends
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
