"""What a caller of OpenAI's API sees of a turn beside the answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..reasoning import Glimpse, beginning

ToolView = Literal["opaque", "progress", "transparent"]
HIDDEN = "[hidden by the operator]"


@dataclass(frozen=True)
class Sight:
    """``tools``: whether the server's own tools are seen. ``reasoning`` and ``tool_output`` as the settings have them;
    ``reasons``: reasoning is told at all."""

    tools: ToolView = "opaque"
    tool_output: Literal["full", "names", "off"] = "full"
    reasons: bool = False
    reasoning: Literal["full", "summary", "off"] = "full"

    @property
    def shows_tools(self) -> ToolView:
        """``opaque`` where the operator hides tools from everybody."""
        return "opaque" if self.tool_output == "off" else self.tools

    @property
    def shows_reasoning(self) -> bool:
        """Whether any of it is told."""
        return self.reasons and self.reasoning != "off"

    def arguments(self, text: str, *, client: bool = False) -> str:
        """A call's arguments as they may be seen: a client's own always whole."""
        return text if client or self.tool_output == "full" else "{}"

    def output(self, text: str) -> str:
        """A result as it may be seen."""
        return text if self.tool_output == "full" else HIDDEN

    def thought(self, text: str) -> str:
        """The reasoning of a whole stretch."""
        if not self.shows_reasoning:
            return ""
        return text if self.reasoning == "full" else beginning(text)


class Thoughts:
    """Reasoning as it comes, stretch by stretch, as far as it may be seen."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._glimpse = Glimpse()

    def begin(self) -> None:
        """Another stretch."""
        self._glimpse = Glimpse()

    def feed(self, delta: str) -> str:
        """What of a delta is told."""
        if not self._sight.shows_reasoning:
            return ""
        return delta if self._sight.reasoning == "full" else self._glimpse.feed(delta)

    def rest(self) -> str:
        """What of a short stretch is still to be told, at its end."""
        return self._glimpse.rest() if self._sight.shows_reasoning and self._sight.reasoning == "summary" else ""
