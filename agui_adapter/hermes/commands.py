"""The seam: which texts Hermes takes for commands, and messages that it takes for text whatever they say.

Written for 0.19.0. A text is a command there by `/name` at its very beginning (built in, a plugin's, the operator's own
in `quick_commands`, a skill), or by one of the plain phrases that the gateway rewrites ("restart gateway").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.config import Platform
from gateway.platforms.base import MessageEvent, MessageType, coerce_plaintext_gateway_command
from gateway.session import SessionSource

_DIRECT = SessionSource(platform=Platform.LOCAL, chat_id="", chat_type="dm")
_HANDS_ON = frozenset(
    {"queue", "steer", "goal"}
)  # their argument is a message of its own, and may be dispatched as one
_BACKGROUND = frozenset({"background", "bg"})  # its name before 0.22, and from then on
_DEPTH = 4  # of aliases of aliases


@dataclass(frozen=True)
class Command:
    """A text as Hermes reads it. ``name`` without slash: Hermes's own for an alias of its own, else as it was typed.

    ``alias_of``: what an operator's alias stands for. ``hands_on``: the command that ``/queue`` queues, say.
    """

    name: str
    typed: str
    arguments: str = ""
    alias_of: Command | None = None
    hands_on: Command | None = None

    def repeats(self) -> bool:
        """Whether it has Hermes take the newest user message again, which may be a command then (``/retry``)."""
        return self.name == "retry" or any(one is not None and one.repeats() for one in (self.alias_of, self.hands_on))

    def starts_beside(self) -> bool:
        """Whether it starts an agent beside the chat's own, in a session of its own (``/background``)."""
        return self.name in _BACKGROUND or (self.alias_of is not None and self.alias_of.starts_beside())


class PlainMessage(MessageEvent):
    """A message whose text is for the model, whatever it says: Hermes asks this method wherever it looks for one."""

    def is_command(self) -> bool:
        return False


def message(text: str, *, commands: bool, **fields: Any) -> MessageEvent:
    """The gateway's event for a text, which may be a command only if ``commands``. The text itself is not changed."""
    if commands:
        return MessageEvent(text=text, **fields)
    if _phrase(text):
        # The gateway rewrites phrases in messages of type TEXT only. Of this type it knows nothing else in 0.19: it is
        # what a chat app's adapter has written out as text already.
        fields["message_type"] = MessageType.LOCATION
    return PlainMessage(text=text, **fields)


def read_command(text: str, quick: Any = None, depth: int = _DEPTH) -> Command | None:
    """The command that a text is, None if it is for the model. ``quick``: the operator's ``quick_commands``."""
    from hermes_cli.commands import resolve_command

    event = MessageEvent(text=_phrase(text) or text)
    typed = event.get_command()
    if not typed:
        return None
    known, arguments = resolve_command(typed), event.get_command_args().strip()
    name = known.name if known is not None else typed
    alias_of = hands_on = None
    own = quick.get(typed) if known is None and isinstance(quick, Mapping) else None
    if depth and isinstance(own, Mapping) and own.get("type") == "alias":
        target = str(own.get("target") or "").strip().lstrip("/")
        alias_of = read_command(f"/{target} {arguments}".strip(), quick, depth - 1)
    if depth and name in _HANDS_ON:
        hands_on = read_command(arguments, quick, depth - 1)
    return Command(name, typed, arguments, alias_of, hands_on)


def _phrase(text: str) -> str:
    """The command that the gateway makes of a plain phrase; empty for every other text."""
    event = MessageEvent(text=text, source=_DIRECT)
    coerce_plaintext_gateway_command(event)
    return event.text if event.text != text else ""
