"""The command line in real processes: help without imports, exit codes, one parser for both ways of calling it."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from agui_adapter import __version__, cli


def hermes_agui(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agui_adapter.cli", *argv]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_version() -> None:
    assert hermes_agui("--version").stdout == f"hermes-agui {__version__}\n"


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command: str) -> None:
    result = hermes_agui(command, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: hermes-agui {command} ")


def test_no_command_is_a_usage_error() -> None:
    result = hermes_agui()
    assert result.returncode == 2 and result.stdout == ""
    assert all(command in result.stderr for command in cli.COMMANDS)


def test_an_unknown_command_is_a_usage_error() -> None:
    result = hermes_agui("dance")
    assert result.returncode == 2 and "dance" in result.stderr


def test_the_overview_imports_no_command() -> None:
    code = """if True:
        import sys
        from agui_adapter import cli
        try:
            cli.main(["--help"])
        except SystemExit as stop:
            assert stop.code == 0
        print([m for m in sys.modules if m.startswith(("aiohttp", "pydantic", "agui_adapter.c", "agui_adapter.d"))])
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.splitlines()[-1] == "['agui_adapter.cli']", result.stderr


def test_a_host_program_can_mount_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Hermes does: `setup` on its own subparser, then `run` on the parsed arguments."""
    host = argparse.ArgumentParser(prog="hermes")
    cli.setup(host.add_subparsers(dest="command").add_parser("agui"))
    args = host.parse_args(["agui", "chat", "hello", "--thread", "t", "--json"])
    assert (args.command, args.agui_command, args.text, args.thread, args.json) == ("agui", "chat", "hello", "t", True)
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr("agui_adapter.chat.run", lambda given: seen.append(given) or 7)
    assert cli.run(args) == 7 and seen == [args]


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 1)])
def test_leaving_is_not_a_traceback(raised: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(args: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr("agui_adapter.chat.run", leave)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert cli.main(["chat", "hi"]) == code
