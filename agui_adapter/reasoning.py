"""How much of the model's reasoning a client sees: with `reasoning: summary` the beginning of each stretch.

Pure. Hermes tells reasoning as text and not whether a provider has summed it up already, so nothing here can sum it
up: shown is the first line or sentence, which is where providers put the heading of their own summaries.
"""

from __future__ import annotations

import re

MOST_CHARS = 200
_LEAST_CHARS = 20  # a shorter sentence ("Okay.") says nothing: the next one comes with it
_END = re.compile(r"[.!?](?=\s)|[。！？]|\n")


class Glimpse:
    """One stretch of reasoning as it comes."""

    __slots__ = ("_text", "shown")

    def __init__(self) -> None:
        self._text = ""
        self.shown = False

    def feed(self, delta: str) -> str:
        """What may be shown now: nothing until the beginning is whole, then it, then nothing more."""
        if self.shown:
            return ""
        self._text = (self._text + delta).lstrip()
        for end in _END.finditer(self._text):
            if end[0] == "\n" or end.end() >= _LEAST_CHARS:
                return self._show(self._text[: end.end()].rstrip())
        return self.rest() if len(self._text) > MOST_CHARS else ""

    def rest(self) -> str:
        """The stretch is over: what of its beginning was not shown yet."""
        if self.shown or not self._text.strip():
            return ""
        if len(self._text) <= MOST_CHARS:
            return self._show(self._text.rstrip())
        cut = self._text[: MOST_CHARS - 1]
        return self._show(cut[: cut.rfind(" ")] if " " in cut else cut) + "…"

    def _show(self, text: str) -> str:
        self.shown = True
        return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"


def beginning(text: str) -> str:
    """The same of a stretch that is whole."""
    glimpse = Glimpse()
    return glimpse.feed(text) or glimpse.rest()
