"""How a chat can end: exit codes, and the errors that are one sentence for the user."""

from __future__ import annotations

DONE, FAILED, USAGE, WAITING = 0, 1, 2, 3
"""WAITING: the run waits for an answer (an approval, a question, a tool of another client)."""

LEFT = 130
"""The user left in the middle of a turn, by a second Ctrl-C."""


class ChatError(Exception):
    """It failed; the text is one sentence for the user."""


class UsageError(ChatError):
    """The command cannot be meant like this."""


class Left(Exception):
    """The user pressed Ctrl-C a second time. The turn may go on without us."""
