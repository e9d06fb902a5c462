"""Server-sent events, the reading side: bytes as they come from the socket in, events out.

Follows "Parsing an event stream" of the WHATWG HTML standard, section 9.2.6: tolerant of CR, LF and CRLF, of a byte
order mark, of comments, of unknown fields, and of any cut between two reads. It knows nothing of AG-UI.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event. `data` has its lines joined by a line feed; `id` is the last one seen on the stream."""

    data: str
    event: str = "message"
    id: str = ""


class SseParser:
    """Incremental parser of one stream; not for reuse after `close`."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        """The reconnection time that the server asked for, if it did."""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._pending: list[str] = []
        self._after_cr = False
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completed, in order."""
        return self._read(self._decoder.decode(chunk))

    def close(self) -> bool:
        """The stream ended. True if it ended inside an event, which is then void, as the standard says."""
        self._read(self._decoder.decode(b"", final=True))
        rest = "".join(self._pending)
        return bool(self._data or (rest and not rest.startswith(":")))

    def _read(self, text: str) -> list[SseEvent]:
        if not text:
            return []
        if self._after_cr and text[0] == "\n":
            text = text[1:]
        self._after_cr = text.endswith("\r")
        # Only these two end a line here; str.splitlines would also cut at U+2028 and others, inside JSON texts.
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if lines:
            lines[0] = "".join([*self._pending, lines[0]])
            self._pending.clear()
        # Pieces of one long line are joined once, at its end: joining at every read costs the square of its length.
        if rest:
            self._pending.append(rest)
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: str) -> SseEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return SseEvent("\n".join(data), event or "message", self._id)
