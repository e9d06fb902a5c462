"""The terminal door: `hermes-agui chat`, an ordinary AG-UI client over HTTP that knows nothing of Hermes.

With a text it says that and prints the answer as it streams; without one, on a terminal, it is a conversation
(``talk``). It offers no client tools. Exit codes: ``outcome``.
"""

from __future__ import annotations

import argparse

DEFAULT_URL = "http://127.0.0.1:8650"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `hermes-agui chat`."""
    parser.add_argument(
        "text", nargs="?", default="", help="what to say; - reads it from standard input (default: a conversation)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--thread", metavar="T", help="continue this thread (default: a new one)")
    which.add_argument("--continue", dest="newest", action="store_true", help="continue your newest thread")
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="PATH",
        help="send this file with the text: an image, a document, audio, video; may be repeated",
    )
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="A",
        help="answer what the thread asks instead of saying something: a choice and a reason, or a text; "
        "ID=A where several things are open",
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the server (default %(default)s)")
    parser.add_argument(
        "--token",
        help="bearer key (default: AGUI_API_KEY of the environment, which other users of a machine cannot see)",
    )
    parser.add_argument("--json", action="store_true", help="print every event as one line of JSON instead of the text")
    parser.add_argument("--reasoning", action="store_true", help="show the model's reasoning too")


def run(args: argparse.Namespace) -> int:
    """Talk as the arguments say; returns the exit code. Runs event loops of its own."""
    from .command import main

    return main(args)
