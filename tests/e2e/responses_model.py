"""A stub of OpenAI's Responses API: one answer of reasoning with an encrypted form, and text. Requests are kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

SEALED = "gAAAAA-sealed+/=ÿ"
"""What only the provider can read."""


def _item(kind: str, item_id: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": item_id, **more}


def _events(summary: list[str], text: str, number: int) -> Iterator[dict[str, Any]]:
    response = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "sealed-1",
        "status": "in_progress",
        "output": [],
    }
    parts = [{"type": "summary_text", "text": "".join(summary)}]
    reasoning = _item("reasoning", f"rs_{number}", summary=parts, encrypted_content=f"{SEALED}{number}")
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = _item("message", f"msg_{number}", role="assistant", status="completed", content=content)
    yield {"type": "response.created", "response": response}
    yield {"type": "response.output_item.added", "output_index": 0, "item": reasoning | {"summary": []}}
    for delta in summary:
        yield {
            "type": "response.reasoning_summary_text.delta",
            "item_id": f"rs_{number}",
            "output_index": 0,
            "summary_index": 0,
            "delta": delta,
        }
    yield {"type": "response.output_item.done", "output_index": 0, "item": reasoning}
    yield {"type": "response.output_item.added", "output_index": 1, "item": message | {"content": []}}
    yield {
        "type": "response.output_text.delta",
        "item_id": f"msg_{number}",
        "output_index": 1,
        "content_index": 0,
        "delta": text,
        "logprobs": [],
    }
    yield {"type": "response.output_item.done", "output_index": 1, "item": message}
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    done = response | {"status": "completed", "output": [reasoning, message], "usage": usage}
    yield {"type": "response.completed", "response": done}


class ResponsesModel:
    """Listens on a free loopback port while entered. Not for more than one test at a time."""

    def __init__(self, *, summary: list[str], text: str) -> None:
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for number, event in enumerate(_events(summary, text, len(outer.requests))):
                    data = json.dumps(event | {"sequence_number": number})
                    self.wfile.write(f"event: {event['type']}\ndata: {data}\n\n".encode())
                self.close_connection = True

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
