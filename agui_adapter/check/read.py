"""JSON lines or Server-Sent Events in, decoded frames out, as strict as the client's own reader.

Knows nothing of AG-UI beyond "a frame is one JSON object".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from agui_adapter.check.findings import RULES, Finding

MAX_FRAME = 10 * 1024 * 1024  # characters; the 1.0.0 client fails beyond this
_MAX_SAFE_INT = 2**53 - 1
_SSE_FIELD = re.compile(r"(data|event|id|retry)(:|$)|:")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _finding(line: int, rule: str, message: str) -> Finding:
    return Finding(line, RULES[rule][0], rule, message)


def _decode(line: int, text: str) -> Iterator[tuple[int, object] | Finding]:
    """One frame's text → its value, preceded by findings about it; only findings when there is no object."""
    unsafe: list[str] = []

    def integer(digits: str) -> int | float:
        if len(digits) > 15 and abs(float(digits)) > _MAX_SAFE_INT:
            unsafe.append(digits[:24])
            return float(digits)
        return int(digits)

    def constant(name: str) -> object:
        raise ArithmeticError(name)

    if len(text) > MAX_FRAME:
        yield _finding(line, "frame-too-big", f"{len(text)} characters in one frame, the client takes {MAX_FRAME}")
    if text.strip() == "":
        yield _finding(line, "empty-data", "a frame must be one JSON object, this one is empty")
        return
    if text.strip() == "[DONE]":
        yield _finding(line, "done-marker", "AG-UI ends with a terminal event and the end of the body, not with [DONE]")
        return
    try:
        value: object = json.loads(text, parse_int=integer, parse_constant=constant)
    except ArithmeticError as problem:
        yield _finding(line, "not-a-number", f"{problem} is not JSON; the client fails on it")
        return
    except (ValueError, RecursionError) as problem:
        yield _finding(line, "not-json", f"{problem}: {text[:60]!r}")
        return
    for digits in unsafe:
        yield _finding(line, "unsafe-int", f"{digits} is beyond 2^53 - 1; send it as a string")
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            yield _finding(line, "lone-surrogate", "a string holds half a surrogate pair, which is not valid Unicode")
    if not isinstance(value, dict):
        yield _finding(line, "not-object", f"a frame must be one JSON object, this one is {text[:40]!r}")
        return
    yield line, value


def parse_stream(lines: Iterable[str], *, sse: bool | None = None) -> Iterator[tuple[int, object] | Finding]:
    """Decode a stream. `lines` are split at LF only (a CR must still be there, see `check_text`); a line may keep its
    LF or not. `sse` says what the input is; None decides by the first line that is not blank.

    Yields (line number of the frame's first data line, JSON object) or a Finding, in the order of the input.
    """
    data: list[str] = []
    start = 0
    cr_seen = False
    for number, raw in enumerate(lines, 1):
        line = raw.removesuffix("\n")
        if number == 1:
            line = line.removeprefix("\ufeff")
        if sse is None and line.strip():
            sse = _SSE_FIELD.match(line) is not None
        if not sse:
            if line.strip():
                yield from _decode(number, line)
            continue
        if "\r" in line:
            if not cr_seen:
                cr_seen = True
                yield _finding(number, "cr-framing", "the stream has CR in its line ends; the client needs bare LF")
            pieces = line.removesuffix("\r").split("\r")
        else:
            pieces = [line]
        for piece in pieces:
            if piece == "":
                if data:
                    yield from _decode(start, "\n".join(data))
                    data = []
            elif piece.startswith("data:"):
                if not data:
                    start = number
                data.append(piece[5:].removeprefix(" "))
            elif not _SSE_FIELD.match(piece) or piece == "data":
                yield _finding(number, "sse-field", f"this line is ignored: {piece[:60]!r}")
    if data:
        yield from _decode(start, "\n".join(data))
