"""What the media tests share: small real files, messages with parts, a little web server, requests of the model."""

from __future__ import annotations

import base64
import contextlib
import http.server
import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import httpx

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import Chat, GatedModel, Message, Run, unique


def png(color: tuple[int, int, int] = (255, 0, 0), size: int = 4) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(color) * size) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wav(seconds: float = 0.1) -> bytes:
    """Silence."""
    data = bytes(int(16000 * seconds))
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + len(data),
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        8000,
        16000,
        2,
        16,
        b"data",
        len(data),
    )
    return head + data


def text(words: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "text": words}


def part(kind: str, data: bytes | str, mime: str, name: str = "", part_id: str = "") -> dict[str, Any]:
    """An inline part; `data` as text is sent as it is."""
    value = data if isinstance(data, str) else base64.b64encode(data).decode()
    made: dict[str, Any] = {"type": kind, "source": {"type": "data", "value": value, "mimeType": mime}}
    if part_id:
        made["id"] = part_id
    if name:
        made["metadata"] = {"filename": name}
    return made


def linked(kind: str, url: str, **more: Any) -> dict[str, Any]:
    """A part at an address."""
    return {"type": kind, "source": {"type": "url", "value": url}, **more}


def say(chat: Chat, *parts: dict[str, Any], **more: Any) -> Run:
    """Send a message of these parts, wait for the end of the run, check it, keep its messages."""
    chat.messages.append({"id": unique("u"), "role": "user", "content": list(parts)})
    return chat.keep(chat.send(**more).finish())


def asked(model: GatedModel, mark: str, *, first: bool = False) -> list[dict[str, Any]]:
    """The parts of the user message with this text in it, in the model's newest request (or first) that has one."""
    for request in model.requests if first else reversed(model.requests):
        for message in reversed(request["messages"]):
            content = message.get("content")
            parts = [text(content)] if isinstance(content, str) else content or []
            if message.get("role") == "user" and any(mark in str(one.get("text")) for one in parts):
                return list(parts)
    raise AssertionError(f"the model was never asked {mark!r}")


def words(parts: list[dict[str, Any]]) -> str:
    """Their text."""
    return "\n".join(str(one["text"]) for one in parts if one["type"] == "text")


def images(parts: list[dict[str, Any]]) -> list[bytes]:
    """Their pictures."""
    urls = [one["image_url"]["url"] for one in parts if one["type"] == "image_url"]
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


def reloaded(chat: Chat) -> list[Message]:
    """The thread's messages as a client gets them that comes back."""
    headers = {"Authorization": f"Bearer {chat.key}"} if chat.key else {}
    answer = httpx.get(f"{chat.gateway.url}/agui/threads/{chat.thread}", headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    messages: list[Message] = answer.json()["messages"]
    return messages


def talk(messages: list[Message]) -> list[Message]:
    """Without reasoning and activities, members that are empty, and white space around texts."""
    return [
        {
            key: value.strip() if key == "content" and isinstance(value, str) else value
            for key, value in message.items()
            if value not in (None, "", [])
        }
        for message in messages
        if message["role"] not in ("reasoning", "activity")
    ]


def data_url_of(gateway: Gateway) -> bytes:
    """All bytes of our own database, its journal included."""
    return b"".join(path.read_bytes() for path in gateway.home.glob("agui.db*"))


def chunked(body: bytes, size: int = 10_000) -> bytes:
    """A body without a declared length."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


@contextlib.contextmanager
def web(pages: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, list[str]]]:
    """A web server on loopback: path → (status, headers, body). Gives its address and the paths that were asked for."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen.append(self.path)
            status, headers, body = pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            length = {} if "Transfer-Encoding" in headers else {"Content-Length": str(len(body))}
            for name, value in {**length, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
