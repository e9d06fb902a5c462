"""Text of others on a terminal. What a model or a server says must not move the cursor, change the title, answer for
the user or hide a part of itself: control characters are shown, never sent. Pure, one character at a time, so that a
sequence cut over two deltas is no way around it.
"""

from __future__ import annotations

# C0 but tab and newline as Unicode's pictures of them, C1 (U+009B begins a sequence on its own) as a mark.
_SHOWN: dict[int, str] = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_SHOWN |= {0x7F: "␡"} | {code: "�" for code in range(0x80, 0xA0)}
_ANSWER = _SHOWN | {0x0D: ""}  # line ends of other systems

# What is invisible or turns the direction: of use in an answer, a lie in a command that is to be allowed.
_HIDDEN = (0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_EXACT = _SHOWN | {code: f"\\u{code:04x}" for code in _HIDDEN}
_EXACT |= {code: f"\\U{code:08x}" for code in range(0xE0000, 0xE0080)}

_JSON = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def plain(text: str) -> str:
    """An answer, as it may go to a terminal. A piece of a text gives the same piece of the whole's."""
    return text.translate(_ANSWER)


def exact(text: str) -> str:
    """A text of which nothing may be hidden or turned around: commands, questions, errors, names."""
    return text.translate(_EXACT)


def one_line(text: str, width: int = 160) -> str:
    """As ``exact``, without line breaks and cut to ``width`` characters."""
    line = exact(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def json_line(data: str) -> str:
    """JSON without raw control characters: the same value, harmless where it is shown."""
    return data.translate(_JSON)
