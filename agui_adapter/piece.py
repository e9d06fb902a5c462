"""One piece of an answer's text as it streams: what of it may be shown, delta by delta. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .secrets_hold import SecretsHold
from .tags import Hold


@dataclass
class Piece:
    """A message, or what follows of one where a cut answer goes on.

    ``text``: what was shown of it. ``before``: what the message holds before this piece. ``begun``: there is text.
    """

    message_id: str
    text: list[str] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)
    secrets: SecretsHold | None = None
    before: str = ""
    begun: bool = False

    def joined(self) -> str:
        """All that was shown of it."""
        return "".join(self.text)

    def feed(self, deltas: Sequence[str]) -> Sequence[str]:
        """What may be shown now of these, none of them empty: mostly the deltas themselves. The hot path."""
        text = shown = deltas[0] if len(deltas) == 1 else "".join(deltas)
        if self.hold.held or "M" in text or "[" in text:
            shown = self.hold.feed(text)
        if not self.begun:  # no message begins with blank lines, nor behind what only tells Hermes to send a file
            shown = shown.lstrip("\n")
            self.begun = bool(shown)
        if shown and self.secrets is not None:
            shown = self.secrets.feed(shown)
        told = deltas if shown == text else _cut(deltas, shown)
        self.text += told
        return told

    def rest(self) -> str:
        """What may be shown as it ends; it is taken for shown."""
        rest = self.hold.rest()
        if self.secrets is not None:
            rest = self.secrets.feed(rest) + self.secrets.rest()
        if rest:
            self.text.append(rest)
        return rest

    def drop(self) -> None:
        """The whole text is known: what was held comes with it or not at all."""
        self.hold.drop()
        if self.secrets is not None:
            self.secrets.drop()


def _cut(deltas: Sequence[str], shown: str) -> list[str]:
    """The deltas as far as the text goes that may be shown; it alone where it is no beginning of theirs."""
    told: list[str] = []
    left = shown
    for delta in deltas:
        if left.startswith(delta):
            told.append(delta)
            left = left[len(delta) :]
        elif delta.startswith(left):
            return [*told, left] if left else told
        else:
            return [shown]
    return [shown] if left else told
