"""`forwardedProps`: what a client may ask of one turn beside its messages. Pure.

The protocol gives them no meaning. Here they may name a model, reasoning effort and sampling, where the operator allows
it (`agui.allow_overrides`), answer a question as clients from before interrupts do (`command.resume`), and reach the
agent as context where the operator wants that (`agui.forward_props`). Everything else is nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .encode import clean, dumps
from .errors import AguiError

NAMES = ("model", "reasoning_effort", "temperature", "top_p", "max_tokens")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""As Hermes 0.19 has them (hermes_constants.parse_reasoning_effort)."""

_MOST_TOKENS = 1_000_000
_MOST_CHARS = 4000  # of what becomes context
_SPELLED = {"reasoningEffort": "reasoning_effort", "topP": "top_p", "maxTokens": "max_tokens"}
_OURS = frozenset({*NAMES, *_SPELLED, "command"})


@dataclass(frozen=True)
class Overrides:
    """What holds for one turn instead of the configuration; None: as configured."""

    model: str | None = None
    reasoning_effort: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    """As in OpenAI's Chat Completions."""

    def __bool__(self) -> bool:
        return self.response_format is not None or any(getattr(self, name) is not None for name in NAMES)


@dataclass(frozen=True)
class Forwarded:
    """``ignored``: names that the operator does not allow. ``resume``: the answer of an older client, ``asks_resume``
    if there is one (null is an answer). ``context``: what of the rest the agent is told."""

    overrides: Overrides = Overrides()
    ignored: tuple[str, ...] = ()
    resume: Any = None
    asks_resume: bool = False
    context: str = ""


def read_forwarded(props: Any, *, allowed: Collection[str], forward: bool) -> Forwarded:
    """The client's properties, checked. Raises AguiError 422 with a sentence for a value that cannot be."""
    if not isinstance(props, Mapping):
        return Forwarded()
    asked = {}
    for key, value in props.items():
        name = _SPELLED.get(key, key)
        if name in NAMES and value is not None:
            asked[name] = value
    overrides, ignored = read_overrides(asked, allowed=allowed, where="forwardedProps.")
    command = props.get("command")
    command = command if isinstance(command, Mapping) else {}
    rest = {key: value for key, value in props.items() if key not in _OURS} if forward else {}
    return Forwarded(
        overrides,
        ignored,
        command.get("resume"),
        "resume" in command,
        _as_context(rest),
    )


def read_overrides(
    asked: Mapping[str, Any], *, allowed: Collection[str], where: str = ""
) -> tuple[Overrides, tuple[str, ...]]:
    """What is allowed of what is asked for (by the names of ``NAMES``), and the names of the rest.

    Raises AguiError 422 with a sentence for a value that cannot be; ``where`` stands before its name.
    """
    values = {name: _CHECKS[name](where + name, value) for name, value in asked.items() if name in allowed}
    return Overrides(**values), tuple(name for name in asked if name not in allowed)


def _as_context(rest: Mapping[str, Any]) -> str:
    if not rest:
        return ""
    text = dumps(clean(rest)).decode()
    if len(text) > _MOST_CHARS:
        text = text[:_MOST_CHARS] + " [cut: too long]"
    return text


def _text(name: str, value: Any) -> str:
    if isinstance(value, str) and 0 < len(value.strip()) <= 200 and value.isprintable():
        return value.strip()
    raise _wrong(name, "the name of a model, at most 200 characters")


def _effort(name: str, value: Any) -> str:
    if isinstance(value, str) and value.strip().lower() in EFFORTS:
        return value.strip().lower()
    raise _wrong(name, f"one of {', '.join(EFFORTS)}")


def _number(most: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
            return float(value)
        raise _wrong(name, f"a number from 0 to {most:g}")

    return check


def _tokens(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_TOKENS:
        return value
    raise _wrong(name, f"a whole number from 1 to {_MOST_TOKENS}")


def _wrong(name: str, allowed: str) -> AguiError:
    return AguiError(422, "invalid_input", f"{name} must be {allowed}.", members={"param": name})


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "model": _text,
    "reasoning_effort": _effort,
    "temperature": _number(2),
    "top_p": _number(1),
    "max_tokens": _tokens,
}
