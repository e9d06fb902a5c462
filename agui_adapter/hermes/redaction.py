"""The seam: Hermes's own redactor, and how it is put to a call's arguments and results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from agent.redact import redact_sensitive_text

logger = logging.getLogger("hermes_agui")

_MOST = 20_000  # texts, some 3 MB
_SHORT = 100  # characters: looking at such a text costs no more than asking whether it was looked at
_KEY = secrets.token_bytes(16)


class _Clean:
    """Texts in which nothing was found, by their digests: a history is read again with each turn. Any thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, None] = {}

    def __call__(self, text: str, look: Callable[[str], str]) -> str:
        """What ``look`` makes of the text, which depends on nothing else."""
        if len(text) < _SHORT:
            return look(text)
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, digest_size=16, key=_KEY).digest()
        if digest in self._known:
            return text
        told = look(text)
        if told == text:
            self._known[digest] = None
            while len(self._known) > _MOST:
                self._known.pop(next(iter(self._known)), None)
        return told


_clean_lines, _clean_data = _Clean(), _Clean()


def redact(text: str) -> str:
    """The text without secrets, by Hermes's own redactor."""
    try:
        return str(redact_sensitive_text(text))
    except Exception:  # a redactor that fails must not let the text through
        logger.exception("redaction failed")
        return "[not shown: redaction failed]"


def redacted_choices(choices: Iterable[Any] | None) -> dict[str, str]:
    """A question's choices as a person sees them, each with the one that it stands for."""
    return {redact(str(choice)): str(choice) for choice in choices or ()}


def redact_lines(text: str) -> str:
    """A longer text without secrets: as a whole, and line by line, which is how it streams.

    Alone a line may lose more: with an address anywhere in a text, Hermes leaves `password: …` in all of it.
    """
    return _clean_lines(text, _lines)


def _lines(text: str) -> str:
    whole = redact(text)
    if whole == text and "\n" not in text:
        return text  # its only line was just looked at
    return "\n".join(redact(line) if line else "" for line in whole.split("\n"))


def hide(text: str) -> str:
    """A call's arguments, or its result, without secrets: known kinds of keys, not every value of a name like "key".

    In JSON the texts are looked at one by one, so that it stays JSON; without a secret it stays as it is.
    """
    return _clean_data(text, _data)


def _data(text: str) -> str:
    try:
        if text.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(ValueError):
                found = json.loads(text)
                hidden = _hidden(found)
                return text if hidden == found else json.dumps(hidden, ensure_ascii=False)
        return str(redact_sensitive_text(text, code_file=True))
    except Exception:
        logger.exception("redaction failed")
        return "[not shown: redaction failed]"


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return redact_sensitive_text(value, code_file=True)
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return {key: _hidden(item) for key, item in value.items()} if isinstance(value, dict) else value
