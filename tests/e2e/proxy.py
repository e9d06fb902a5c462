"""Two things between a client and its server: a connection that can be cut, and a server that does not listen."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any, Self


class _Listener:
    """Accepts connections on a free port of loopback; each is served on a thread of its own."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.made = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()
        self._thread.join(10)

    def cut(self) -> None:
        """End every connection that is open now."""
        opened, self._open = self._open, []
        for one in opened:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.made += 1
            self._open.append(client)
            threading.Thread(target=self._guarded, args=(client,), daemon=True).start()

    def _guarded(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self.serve(client)

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError


class Cut(_Listener):
    """Passes everything on to a port of loopback, until it is cut."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.passed = b""

    def serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._port))
        self._open.append(server)
        up = threading.Thread(target=self._up, args=(client, server), daemon=True)
        up.start()
        while data := server.recv(65536):
            self.passed += data
            client.sendall(data)
        client.close()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)


class Deaf(_Listener):
    """An AG-UI server whose run never ends, whatever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False

    def serve(self, client: socket.socket) -> None:
        head = client.recv(65536).split(b" ", 2)
        if head[1].endswith(b"/stop"):
            self.stopped = True
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            return
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        started: dict[str, Any] = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
        text = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "Begun"}
        for event in (started, text):
            client.sendall(f"data: {json.dumps(event)}\n\n".encode())
        while client.recv(65536):
            pass
