"""What threads are called. In Hermes no two sessions, anybody's, share a title, and it numbers or refuses a taken one.

So whoever could have Hermes take a title of theirs would learn what others' sessions are called. A caller without
`admin` names threads here, where a title is nobody else's business; Hermes is given it with a mark that is the
thread's own. Pure.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .session import Thread

if TYPE_CHECKING:
    from .hermes.commands import Command

_MOST = 100  # characters, SessionDB.MAX_TITLE_LENGTH
_MARK_CHARS = 6


def in_hermes(thread: Thread, title: str) -> str:
    """The title that Hermes's session of the thread gets."""
    if thread.principal.may("admin"):
        return title
    return _marked(title, hashlib.sha256(thread.chat_id.encode("utf-8", "surrogatepass")).hexdigest())


def following(title: str, own: Iterable[str]) -> str:
    """The title of a copy, as Hermes would number it among these titles: ``Plan`` → ``Plan #2``."""
    stem = re.sub(r" #\d+\Z", "", title)
    found = [re.fullmatch(re.escape(stem) + r"(?: #(\d{1,9}))?", one) for one in own]
    numbers = [int(one[1] or 1) for one in found if one is not None]
    return f"{stem} #{max(numbers) + 1}" if numbers else stem


def with_name(text: str, command: Command, title: str) -> str:
    """The text of a command, with a name of nobody else's where Hermes would make one up (``/branch`` alone).

    ``title``: what the thread is called now.
    """
    return f"{text.rstrip()} {_marked(title or 'branch', uuid.uuid4().hex)}" if _makes_up(command) else text


def _makes_up(command: Command) -> bool:
    if command.name == "branch" and not command.arguments:
        return True
    return any(one is not None and _makes_up(one) for one in (command.alias_of, command.hands_on))


def _marked(title: str, mark: str) -> str:
    mark = f" ({mark[:_MARK_CHARS]})"
    return title[: _MOST - len(mark)].rstrip() + mark
