"""What a test asks of the scripted model: the steps quoted in a user message, and the fault counters.

Pure: JSON in, facts out, no I/O. It must not know how an answer is written to a socket (`wire`, `model`).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Message = Mapping[str, Any]

# User-role messages that Hermes itself appends inside a turn to make the model go on (agent/conversation_loop.py).
# They continue the turn, so the script of the user's own message stays in force.
_NUDGES = ("[System:", "You just executed tool calls but returned an", "[OUT-OF-BAND USER MESSAGE")


class ScriptError(ValueError):
    """A script that cannot be followed; the text says what is wrong and where."""


class ToolStep(BaseModel):
    """One tool call. `id: null` leaves the id out on the wire, an absent id is minted."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    id: str | None = None

    @property
    def omits_id(self) -> bool:
        return self.id is None and "id" in self.model_fields_set

    def arguments_text(self) -> str:
        """The arguments as they go on the wire; a raw string goes unchanged, valid JSON or not."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


class Step(BaseModel):
    """One answer of the model. Times are in milliseconds except `hang` and `retry_after` (seconds).

    `cut` counts characters of the text, then of the tool arguments, that arrive before the connection breaks.
    """

    model_config = ConfigDict(extra="forbid")

    reasoning: str = ""
    text: str = ""
    tools: list[ToolStep] = Field(default_factory=list)
    usage: dict[str, Any] | None = None
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    first_ms: float | None = Field(default=None, ge=0)
    delta_ms: float | None = Field(default=None, ge=0)
    chunk: int | None = Field(default=None, ge=1)
    nostream: bool = False
    unstreamed: bool = False
    # faults
    status: int | None = Field(default=None, ge=400, le=599)
    message: str | None = None
    retry_after: float | None = None
    cut: int | None = Field(default=None, ge=0)
    hang: float | None = Field(default=None, ge=0)
    garbage: bool = False
    times: int | None = Field(default=None, ge=1)

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.tools else "stop")

    @property
    def is_fault(self) -> bool:
        return self.status is not None or self.cut is not None or self.hang is not None or self.garbage

    def without_faults(self) -> "Step":
        return self.model_copy(update={"status": None, "cut": None, "hang": None, "garbage": False})


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a request stands: the user message that opened the turn, and what has been answered since."""

    user_text: str
    earlier_user_texts: tuple[str, ...]
    step: int
    since: tuple[Message, ...]

    def digest(self, *more: object) -> str:
        """Twelve hex digits, the same for the same conversation, step and `more`."""
        raw = json.dumps([self.earlier_user_texts, self.user_text, *more], ensure_ascii=False, default=str)
        return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def fault_key(self) -> str:
        """Names this turn's step by the user message alone, as a retry of the same request has it."""
        raw = f"{self.step}\0{self.user_text}"
        return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()


def content_text(content: object) -> str:
    """The text of a message's content, given as a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def turn_of(messages: Sequence[Message]) -> Turn:
    """The turn that `messages` ask to continue. With no user message at all its text is empty."""
    users = [
        i
        for i, message in enumerate(messages)
        if message.get("role") == "user" and not content_text(message.get("content")).startswith(_NUDGES)
    ]
    last = users[-1] if users else -1
    since = tuple(messages[last + 1 :])
    return Turn(
        user_text=content_text(messages[last].get("content")) if users else "",
        earlier_user_texts=tuple(content_text(messages[i].get("content")) for i in users[:-1]),
        step=sum(message.get("role") == "assistant" for message in since),
        since=since,
    )


def find_script(text: str) -> list[Any] | None:
    """The value of `"script"` in the first JSON object in `text` that has this key with a list, or None.

    Other text may stand around the object, since Hermes appends notes to a user message.
    """
    if '"script"' not in text:
        return None
    for candidate in _json_objects(text):
        if isinstance(candidate.get("script"), list):
            script: list[Any] = candidate["script"]
            return script
    return None


def parse_step(script: Sequence[Any], index: int) -> Step:
    """Step `index` of a script; past the end it says `done`.

    Raises:
        ScriptError: the step has an unknown key or a wrong value. A misspelt key must not pass as a quiet test.
    """
    if index >= len(script):
        return Step(text="done")
    try:
        return Step.model_validate(script[index])
    except ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'step'}: {e['msg']}" for e in error.errors())
        raise ScriptError(f"script step {index}: {where}") from None


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        # Not past the end of the object: a script may be a member of one that has no such key itself.
        start = text.find("{", start + 1)
