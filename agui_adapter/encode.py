"""AG-UI events as bytes: one server-sent-events frame an event, quickly.

The hot path (a text delta) is a prefix made once per message plus the delta as JSON; no pydantic, no dict.
Frames use LF only and one ``data:`` line: the TypeScript client dies of anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson

HEARTBEAT = b": keep-alive\n\n"
_SAFE_INT = 2**53 - 1  # a larger integer loses digits in JavaScript
_MAX_DEPTH = 100  # orjson refuses about 250 levels


def clean(value: Any, depth: int = 0) -> Any:
    """The same value as JSON can carry it: half surrogate pairs become U+FFFD, integers beyond 2^53 and foreign
    objects text, NaN and infinity null, what is nested too deeply a remark."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if depth > _MAX_DEPTH and isinstance(value, (dict, list, tuple, set, frozenset)):
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {clean(str(key)): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(item, depth + 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -_SAFE_INT <= value <= _SAFE_INT else _digits(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return clean(str(value))


def _digits(value: int) -> str:
    try:
        return str(int(value))
    except ValueError:  # longer than sys.get_int_max_str_digits()
        return hex(value)


def dumps(value: Any) -> bytes:
    """Compact JSON. Never raises on text from a terminal: what JSON cannot carry is replaced (``clean``)."""
    try:
        return orjson.dumps(value, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        return orjson.dumps(clean(value))


def frame(event: dict[str, Any]) -> bytes:
    """One event as a frame."""
    return b"data: " + dumps(event) + b"\n\n"


class Deltas:
    """The frames of one message's deltas, each a prefix, the text as JSON and a suffix.

    Half a surrogate pair at a delta's end is ``held`` for its other half.
    """

    __slots__ = ("_prefix", "_suffix", "held")

    def __init__(self, prefix: bytes, suffix: bytes) -> None:
        self._prefix, self._suffix = prefix, suffix
        self.held = ""

    def frame(self, text: str) -> bytes:
        """The frame of one delta, or nothing yet. The hot path."""
        if self.held:
            text, self.held = self.held + text, ""
        try:
            return self._prefix + orjson.dumps(text) + self._suffix
        except TypeError:
            if "\ud800" <= text[-1] <= "\udbff":
                text, self.held = text[:-1], text[-1]
            return self._prefix + orjson.dumps(clean(text)) + self._suffix if text else b""

    def numbered(self, turn: bytes, positions: Sequence[int], texts: Sequence[str]) -> bytes:
        """The frames of these deltas, each with its id, as the function ``numbered`` has it; nothing if there
        are none, one is empty or cannot be told at once. The hot path: what is done for each delta is done in C.
        """
        if self.held or not texts or not all(texts):
            return b""
        try:
            # What stands between two texts of a JSON list is in none of them: each quote there has a backslash.
            parts = orjson.dumps(texts)[2:-2].split(b'","')
        except TypeError:
            return b""
        numbers = orjson.dumps(positions)[1:-1].split(b",")
        begin, middle, end = b"id: %b." % turn, b'\n%b"' % self._prefix, b'"' + self._suffix
        return begin + (end + begin).join(map(middle.join, zip(numbers, parts, strict=True))) + end

    def rest(self) -> bytes:
        """What still waits when the message ends: a half that stayed alone."""
        text, self.held = self.held, ""
        return self._prefix + orjson.dumps(clean(text)) + self._suffix if text else b""


def agui_deltas(kind: str, message_id: str) -> Deltas:
    """The frames of an AG-UI message's deltas."""
    return Deltas(b'data: {"type":' + dumps(kind) + b',"messageId":' + dumps(message_id) + b',"delta":', b"}\n\n")


def start_id(turn_id: str, position: int) -> bytes:
    """The id of the last frame that a run begins with: it stands at its position, and has begun."""
    return f"{turn_id}.{position}s".encode()


def with_id(frames: list[bytes], event_id: bytes) -> list[bytes]:
    """The same frames, the last of them carrying ``id:``: they are one, and a resume never lands among them."""
    if frames:
        frames[-1] = b"id: " + event_id + b"\n" + frames[-1]
    return frames


def numbered(frames: list[bytes], turn: bytes, before: int, position: int) -> list[bytes]:
    """The frames of the event that ends at ``position`` of the turn's log, each with an id.

    The last one's is the position. An earlier one's counts the frames behind the reader's position ``before``:
    ``turn.7-2`` has had two frames of what stands behind 7.
    """
    last = len(frames) - 1
    for index in range(last):
        frames[index] = b"id: %s.%d-%d\n%s" % (turn, before, index + 1, frames[index])
    if last >= 0:
        frames[last] = b"id: %s.%d\n%s" % (turn, position, frames[last])
    return frames
