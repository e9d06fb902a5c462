"""A connection that can be cut: a TCP relay in front of a gateway, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self

from agui_adapter.demo.gateway import Gateway


class Proxy:
    """Relays to `gateway`. ``cut()`` breaks what is open and refuses what comes; ``mend()`` lets through again."""

    def __init__(self, gateway: Gateway) -> None:
        self._port = gateway.port
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._through = True
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop
        ).result()
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._server = server
        return self

    def __exit__(self, *exc: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def cut(self) -> None:
        async def work() -> None:
            self._through = False
            for writer in list(self._open):
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def mend(self) -> None:
        self._through = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._through:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._open |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self._open -= {writer, back}

    async def _copy(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()
        with contextlib.suppress(ConnectionError, OSError):
            to.close()
