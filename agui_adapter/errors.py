"""Errors that a caller sees: a code, an HTTP status and a sentence to act on. One place makes each door's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INTERNAL = "Something failed here; the operator's log says what."


class AguiError(Exception):
    """A request that cannot be served. The text is for the caller: no stack, path or secret.

    ``retry_after`` in seconds, where waiting helps. ``members``: what else the error's document tells (``param``, the
    member of the body that is wrong).
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.members = members or {}


def bad_request(message: str, code: str = "bad_request") -> AguiError:
    """400: the request cannot be understood."""
    return AguiError(400, code, message)
