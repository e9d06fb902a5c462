"""A loopback proxy in front of a gateway that keeps what was asked and what was streamed, byte for byte.

It shows what a real client or a CopilotKit runtime sends, and what it got before its own libraries touched it.
"""

from __future__ import annotations

import http.client
import http.server
import json
import threading
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from agui_adapter.check import check_text
from agui_adapter.sse import SseParser
from tests.e2e.helpers import DEADLINE, Event, validated

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass
class Exchange:
    """One `POST /agui`: its body, and its answer once that has ended."""

    body: dict[str, Any]
    status: int = 0
    raw: bytes = b""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def events(self) -> list[Event]:
        return [json.loads(frame.data) for frame in SseParser().feed(self.raw)]

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event["type"] in kinds]

    def check(self) -> None:
        """Status 200, no finding of ours for the peer that was declared, no error or warning of ag-ui-validate."""
        assert self.ended.wait(DEADLINE), "the stream is still open"
        assert self.status == 200, self.raw.decode()
        calls = [made["id"] for message in self.body["messages"] for made in message.get("toolCalls") or ()]
        findings = check_text(
            self.raw.decode(),
            sse=True,
            peer="1.0" if "protocolVersion" in self.body else "0.0.59",
            known_calls=calls,
            thread_id=self.body["threadId"],
            run_id=self.body["runId"],
            state=self.body.get("state") or {},
        )
        assert not findings, "\n".join([*map(str, findings), self.raw.decode()])
        validated(self.events)


class Recorder:
    """Listens while entered. `exchanges` are in the order in which they were asked; any thread may read them."""

    def __init__(self, target: str) -> None:
        self.exchanges: list[Exchange] = []
        recorder, address = self, urlsplit(target)
        assert address.hostname is not None

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                exchange = None
                if self.command == "POST" and self.path == "/agui":
                    exchange = Exchange(json.loads(body))
                    recorder.exchanges.append(exchange)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
                connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE * 2)
                try:
                    connection.request(self.command, self.path, body or None, headers)
                    answer = connection.getresponse()
                    self.send_response(answer.status)
                    for name, value in answer.getheaders():
                        if name.lower() not in _HOP:
                            self.send_header(name, value)
                    self.send_header("Connection", "close")
                    self.end_headers()
                    if exchange is not None:
                        exchange.status = answer.status
                    while chunk := answer.read1(1 << 16):
                        if exchange is not None:
                            exchange.raw += chunk
                        self.wfile.write(chunk)
                        self.wfile.flush()
                finally:
                    self.close_connection = True
                    connection.close()
                    if exchange is not None:
                        exchange.ended.set()

            do_GET = do_POST = _pass

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def of(self, thread: str) -> list[Exchange]:
        """Those about one thread."""
        return [exchange for exchange in self.exchanges if exchange.body["threadId"] == thread]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
