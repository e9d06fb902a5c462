"""What holds whatever went wrong: each stream ends once, the client holds what Hermes holds, nothing is left over."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import DEADLINE, Chat, Run, script, wait_until

KEY = "faults-test-key-0123456789"
_POOLS = 30  # threads of pools, which are made when they are first needed and kept


def detailed(gateway: Gateway) -> dict[str, Any]:
    """The server's own counts."""
    headers = {"Authorization": f"Bearer {KEY}"}
    response = httpx.get(f"{gateway.url}/health/detailed", headers=headers, trust_env=False, timeout=30)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def busy(gateway: Gateway) -> tuple[int, int, int]:
    """Turns that run, turns that wait, streams that are open."""
    found = detailed(gateway)
    return found["turns"]["running"], found["parked"]["turns"], found["streams"]["open"]


@contextmanager
def unharmed(gateway: Gateway) -> Iterator[None]:
    """What happens in it leaves the gateway as it was: the process, its turns, places, streams, sockets and threads."""
    process = psutil.Process(gateway.pid)
    wait_until(lambda: busy(gateway) == (0, 0, 0), "what was before is over")
    sockets, threads = len(process.net_connections()), process.num_threads()
    yield
    assert gateway.pid == process.pid, gateway.log_text()[-4000:]
    wait_until(lambda: busy(gateway) == (0, 0, 0), "no turn runs or waits, no stream is open")
    wait_until(lambda: len(process.net_connections()) <= sockets + 4, "its sockets are closed")
    assert process.num_threads() <= threads + _POOLS
    assert Chat(gateway).say(script({"text": "All is well."})).succeeded().text() == "All is well."


def ended_once(run: Run, seconds: float = 2 * DEADLINE) -> Run:
    """The stream is over, with one terminal event at its end, and nothing that a client would refuse."""
    run.finish(seconds)
    assert run.status == 200, run.raw.decode()
    assert sum(kind in ("RUN_FINISHED", "RUN_ERROR") for kind in run.types) == 1, run.types
    assert run.types[-1] in ("RUN_FINISHED", "RUN_ERROR")
    return run


def consistent(chat: Chat, run: Run) -> None:
    """The client's messages after this run are Hermes's, and the thread takes another message."""
    chat.keep(run)
    chat.assert_as_transcript()
    again = chat.say(script({"text": "Still here."}))
    assert again.succeeded().text() == "Still here."
    chat.assert_as_transcript()
    assert len(chat.sessions()) == 1


class RawClient:
    """A socket that speaks as much HTTP as a test wants."""

    def __init__(self, gateway: Gateway, *, window: int = 0) -> None:
        self.socket = socket.socket()
        if window:  # before connecting, or it is too late to make it small
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", gateway.port))

    def send(self, data: bytes) -> RawClient:
        """Send bytes as they are."""
        self.socket.sendall(data)
        return self

    def read(self, count: int) -> bytes:
        """Read exactly so many bytes, fewer only at the end."""
        data = b""
        while len(data) < count and (piece := self.socket.recv(min(65536, count - len(data)))):
            data += piece
        return data

    def until(self, mark: bytes) -> bytes:
        """Read byte by byte up to a mark: what follows stays where it is."""
        data = b""
        while not data.endswith(mark):
            piece = self.socket.recv(1)
            assert piece, data
            data += piece
        return data

    def reset(self) -> None:
        """Close at once, with a reset instead of an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.socket.close()

    def gone(self, seconds: float = 30) -> bool:
        """Whether the server closes the connection within the time; what it still sent is thrown away."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self.socket.settimeout(max(0.1, deadline - time.monotonic()))
                if not self.socket.recv(65536):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False


def request_bytes(gateway: Gateway, body: bytes, path: str = "/agui") -> bytes:
    """A whole POST as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
