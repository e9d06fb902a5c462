"""The command line: `hermes-agui X` and `hermes agui X` are the same parser and the same `run`.

Each command is a module with `add_arguments(parser)` and `run(args) -> int`, imported only when it was chosen.
Exit codes: 0 done, 1 failed, 2 usage; a command may add its own.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from agui_adapter import __version__

COMMANDS = {
    "demo": ("agui_adapter.demo.command", "start a gateway with a scripted model, nothing to configure"),
    "chat": ("agui_adapter.chat", "send one message and print the answer as it comes"),
    "mcp": ("agui_adapter.mcp_door.command", "be an MCP server on standard input and output, or on SLIM"),
    "token": ("agui_adapter.token_command", "make, list and revoke tokens for callers of the port"),
    "doctor": ("agui_adapter.doctor", "look for what is wrong with the installation, and say what to do"),
    "check": ("agui_adapter.check", "check an AG-UI event stream against the protocol's rules"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Console script `hermes-agui`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="hermes-agui", description="AG-UI for Hermes Agent.")
    parser.add_argument("--version", action="version", version=f"hermes-agui {__version__}")
    setup(parser)
    return run(parser.parse_args(argv))


def setup(parser: argparse.ArgumentParser) -> None:
    """Add the commands to `parser`. Hermes calls this while it builds its own parser, so nothing is imported here."""
    commands = parser.add_subparsers(dest="agui_command", metavar="COMMAND", parser_class=_LazyParser)
    for name, (module, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, description=_sentence(summary), module=module)
    parser.set_defaults(agui_help=parser.format_help)


def run(args: argparse.Namespace) -> int:
    """Run the chosen command; without one, print the help and return 2."""
    if args.agui_command is None:
        print(args.agui_help(), file=sys.stderr, end="")
        return 2
    try:
        code: int = _load(COMMANDS[args.agui_command][0]).run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`). Python would complain again when it flushes at exit.
        sys.stdout = None
        return 1
    return code


class _LazyParser(argparse.ArgumentParser):
    """A command's parser, which asks its module for the arguments when it is first used."""

    def __init__(self, *args: Any, module: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._module = module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        module, self._module = self._module, None
        if module is not None:
            _load(module).add_arguments(self)
        return super().parse_known_args(args, namespace)


def _load(module: str) -> ModuleType:
    return importlib.import_module(module)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    sys.exit(main())
