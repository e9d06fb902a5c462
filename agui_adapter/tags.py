"""What of a streamed answer must wait: text that only tells Hermes to send a file is never shown, however briefly.

Pure. What a whole text looks like without its tags is Hermes's to say (``hermes.media.without_tags``); here it is only
known that something may be one, before the rest of it has come.
"""

from __future__ import annotations

import re

_DIRECTIVES = ("[[audio_as_voice]]", "[[as_document]]")
_MARKS = ("MEDIA:", *_DIRECTIVES)
_MARK = re.compile("|".join(re.escape(mark) for mark in _MARKS))
_PATH = re.compile(r"""MEDIA:\s*[`"']?(?:~?/|[A-Za-z]:[/\\])""")
_LONGEST = max(len(mark) for mark in _MARKS)
_UNDECIDED = 16  # characters behind which "MEDIA:" without a path is only a word


class Hold:
    """One message's text as it streams. From a tag on everything waits; the whole text tells what comes of it."""

    __slots__ = ("held", "tagged")

    def __init__(self) -> None:
        self.held = ""
        self.tagged = False

    def feed(self, delta: str) -> str:
        """What may be shown now. For a delta without ``M`` and ``[`` while nothing is held that is the delta."""
        text, self.held = self.held + delta, ""
        if self.tagged:
            self.held = text
            return ""
        shown: list[str] = []
        while text:
            found = _MARK.search(text)
            if found is None:
                keep = _beginning(text)
                shown.append(text[: len(text) - keep])
                self.held = text[len(text) - keep :]
                break
            shown.append(text[: found.start()])
            text = text[found.start() :]
            if found[0] in _DIRECTIVES:
                text = text[len(found[0]) :]
            elif _PATH.match(text):
                self.held, self.tagged = text, True
                break
            elif len(text) < _UNDECIDED and "\n" not in text:
                self.held = text
                break
            else:
                shown.append(found[0])
                text = text[len(found[0]) :]
        return "".join(shown)

    def rest(self) -> str:
        """What may be shown as the message ends: all that was held, unless it is a tag."""
        text, self.held = ("", self.held) if self.tagged else (self.held, "")
        return text

    def drop(self) -> None:
        """The whole text is known: what was held comes with it or not at all."""
        self.held, self.tagged = "", False


def _beginning(text: str) -> int:
    """How many characters at the end of a text may begin a mark."""
    for count in range(min(len(text), _LONGEST), 0, -1):
        tail = text[-count:]
        if any(mark.startswith(tail) for mark in _MARKS):
            return count
    return 0
