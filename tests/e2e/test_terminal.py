"""`hermes-agui chat` on a real terminal, at a real gateway: it asks, and what was answered happens."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import deletes, victim
from tests.e2e.helpers import DEADLINE, call, script, unique

ENV = {name: value for name, value in os.environ.items() if name != "AGUI_API_KEY"} | {"TERM": "dumb", "NO_COLOR": "1"}


class Terminal:
    """A command with a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agui_adapter.cli", "chat", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=ENV,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def until(self, text: str) -> None:
        """Read until the text is shown behind what was waited for before."""
        start, deadline = len(self.shown), time.monotonic() + DEADLINE
        while text not in self.shown[start:]:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self._master, 65536).decode("utf-8", "replace")
                except OSError:  # the other side is closed
                    break
        assert text in self.shown[start:], self.shown

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """The exit code; what is still shown is read meanwhile, so that the command never waits for a reader."""
        try:
            while True:
                self.shown += os.read(self._master, 65536).decode("utf-8", "replace")
        except OSError:
            return self._process.wait(DEADLINE)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)


@pytest.fixture
def folder(gateway: Gateway) -> Path:
    made: Path = victim(gateway)
    return made


def test_it_asks_and_does_what_was_said(gateway: Gateway, folder: Path) -> None:
    other = victim(gateway)
    steps = script(
        {"text": "First.", "tools": [call("terminal", {"command": f"rm -rf {other}"}, unique("c"))]},
        {"text": "Then.", "tools": [call("terminal", {"command": f"rm -rf {folder}"}, unique("c"))]},
        {"tools": [call("clarify", {"question": "Which color?", "choices": ["red", "blue"]}, unique("c"))]},
        {"text": "The end."},
    )
    terminal = Terminal(steps, "--url", gateway.url)
    try:
        terminal.until("a reason may follow")
        assert f"rm -rf {other}" in terminal.shown and "Allow this command?" in terminal.shown
        terminal.type("perhaps\n")
        terminal.until("a reason may follow")
        terminal.type("deny I need it\n")
        terminal.until("a reason may follow")
        terminal.type("once\n")
        terminal.until("your own words")
        assert "Which color?" in terminal.shown and "2) blue" in terminal.shown
        terminal.type("2\n")
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert "The end." in terminal.shown
    assert other.exists() and not folder.exists()


def test_a_confirmation(gateway: Gateway) -> None:
    terminal = Terminal("/reload-mcp", "--url", gateway.url)
    try:
        terminal.until("a reason may follow")
        terminal.type("n\n")
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert "ancel" in terminal.shown


def test_the_end_of_the_input_leaves_it_open(gateway: Gateway, folder: Path) -> None:
    thread = unique()
    terminal = Terminal(deletes(folder), "--url", gateway.url, "--thread", thread)
    try:
        terminal.until("a reason may follow")
        terminal.type("\x04")
        assert terminal.end() == 3
    finally:
        terminal.close()
    assert f"--thread {thread} --answer 'once|session|always|deny'" in terminal.shown
    assert folder.exists()
    # The command that it names answers it, with no terminal at all.
    argv = [sys.executable, "-m", "agui_adapter.cli", "chat", "--url", gateway.url, "--thread", thread]
    done = subprocess.run([*argv, "--answer", "once"], capture_output=True, text=True, env=ENV, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, "The end.\n"), done.stderr
    assert not folder.exists()
    done = subprocess.run([*argv, "--answer", "once"], capture_output=True, text=True, env=ENV, timeout=DEADLINE)
    assert done.returncode == 1 and "nothing is asked" in done.stderr
