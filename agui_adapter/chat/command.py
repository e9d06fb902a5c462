"""`hermes-agui chat` from its arguments to its exit code: one message, an answer, or a conversation."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
import uuid

from .client import Client
from .files import content, part
from .outcome import FAILED, LEFT, USAGE, ChatError, Left, UsageError
from .screen import Screen
from .turn import Talk


def main(args: argparse.Namespace) -> int:
    """Say or answer what the arguments name, or talk; returns the exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    screen = Screen(sys.stdout, sys.stderr, reasoning=args.reasoning, raw=args.json)
    try:
        return _main(args, screen)
    except UsageError as error:
        screen.say(f"hermes-agui chat: {error}")
        return USAGE
    except ChatError as error:
        screen.error(str(error))
        return FAILED
    except Left:
        return LEFT


def _main(args: argparse.Namespace, screen: Screen) -> int:
    known = args.thread is not None or args.newest
    if args.answer and (args.text or args.files or not known):
        raise UsageError("--answer goes with --thread or --continue, and without a text or a file")
    person = sys.stdin.isatty()
    talks = person and sys.stdout.isatty() and not (args.text or args.answer or args.json)
    text = "" if talks or args.answer else _text(args.text, person)
    parts = [part(path) for path in args.files]
    if not (text.strip() or parts or args.answer or talks):
        raise UsageError("the text is empty")
    token = _token(args.token)
    thread = asyncio.run(_newest(args.url, token)) if args.newest else args.thread or str(uuid.uuid4())
    asks = talks or (person and args.text != "-" and not args.json)
    talk = Talk(args.url, token, thread, screen, asks=asks)
    if talks:
        from .interactive import converse

        return converse(talk, parts, known=known)
    code = talk.answer(args.answer) if args.answer else talk.say(content(text, parts))
    if not known and not args.json:
        screen.remark(f"thread {thread}")
    return code


def _text(given: str, person: bool) -> str:
    """What is to be said: the argument, or standard input where that is asked for or is no terminal."""
    text = sys.stdin.read() if given == "-" or (not given and not person) else given
    # Bytes of the command line that are not UTF-8 arrive as lone surrogates, which are no valid JSON text.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _token(given: str | None) -> str | None:
    token = (given or os.environ.get("AGUI_API_KEY") or "").strip()
    if not token.isascii() or not token.isprintable():
        raise ChatError("the token holds characters that no HTTP header can carry")
    return token or None


async def _newest(url: str, token: str | None) -> str:
    async with Client(url, token) as client:
        thread = await client.newest()
    if thread is None:
        raise ChatError("there is no thread to continue yet")
    return thread
