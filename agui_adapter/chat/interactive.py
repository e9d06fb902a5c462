"""A conversation on a terminal: prompt, answer, prompt. Questions are asked in place; Ctrl-C stops the turn."""

from __future__ import annotations

import asyncio
from typing import Any

from . import prompt
from .client import Client, Refused
from .files import content, part
from .outcome import DONE, WAITING, ChatError, UsageError
from .text import exact, one_line
from .turn import Talk

# Ours, handled here; every other slash command is Hermes's and goes there as it is.
QUIT = ("/quit", "/exit")
ATTACH = "/attach"
_OURS: tuple[prompt.Command, ...] = (("attach", "send a file with your next message: /attach PATH"), ("quit", "leave"))

_HELP = "Enter sends, Alt-Enter begins a line, Ctrl-C stops the agent, Ctrl-D leaves"


def converse(talk: Talk, parts: list[dict[str, Any]], *, known: bool) -> int:
    """Talk until the user leaves. ``parts``: files for the first message; ``known``: the thread is an older one.

    Returns DONE, or WAITING where the user left a question open. Raises ChatError where nothing can begin, and Left.
    """
    screen = talk.screen
    where = prompt.make([*_OURS, *asyncio.run(_commands(talk))])
    screen.remark(_HELP)
    code, said = (_rejoin(talk), True) if known else (DONE, False)
    warned = False
    while True:
        try:
            text = where.read()
        except EOFError:
            break
        except KeyboardInterrupt:
            if warned:
                break
            warned = True
            screen.remark("Ctrl-C again, or Ctrl-D, leaves")
            continue
        warned = False
        word, _, rest = text.strip().partition(" ")
        if word in QUIT:
            break
        if word == ATTACH:
            _attach(talk, parts, rest.strip())
            continue
        if not text.strip() and not parts:
            continue
        code, said = _turn(talk, content(text, parts)), True
        parts = []
    if said:
        screen.remark(f"go on with: {talk.again()}")
    return WAITING if code == WAITING else DONE


def _turn(talk: Talk, said: str | list[dict[str, Any]]) -> int:
    """A turn. What goes wrong with it is shown, and the conversation goes on."""
    try:
        return talk.say(said)
    except ChatError as error:
        talk.screen.error(str(error))
        return DONE


def _rejoin(talk: Talk) -> int:
    """Show where an older thread stands: its title, its last answer, what it asks, what it does."""
    seen = talk.seen()
    screen = talk.screen
    if seen.get("title"):
        screen.remark(f"thread: {seen['title']}")
    if seen.get("status") == "running":
        return talk.watch()
    screen.catch_up(seen.get("messages"))
    return talk.resolve()


def _attach(talk: Talk, parts: list[dict[str, Any]], path: str) -> None:
    try:
        parts.append(part(path))
    except UsageError as error:
        talk.screen.error(str(error))
    else:
        names = ", ".join(one["metadata"]["filename"] for one in parts)
        talk.screen.remark(f"with your next message: {names}")


async def _commands(talk: Talk) -> list[prompt.Command]:
    """What can be completed. The first request of a conversation: a wrong address or token shows before it begins."""
    async with Client(talk.url, talk.token) as client:
        try:
            found = await client.commands()
        except Refused as refused:
            if refused.status in (401, 403):
                raise
            return []  # another AG-UI server, without this route
    return [(exact(str(one.get("name"))), one_line(str(one.get("description") or ""), 60)) for one in found]
