"""`hermes-agui chat` on a real terminal, at a real gateway: it asks, and what was answered happens."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import deletes, state, victim
from tests.e2e.dialect import clarify
from tests.e2e.helpers import DEADLINE, Chat, GatedModel, call, script, unique, wait_until
from tests.e2e.proxy import Cut, Deaf

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
CHAT = [sys.executable, "-m", "agui_adapter.cli", "chat"]


def env(**more: str) -> dict[str, str]:
    """The environment of a command: plain lines without colours, unless a test wants more of its terminal."""
    kept = {name: value for name, value in os.environ.items() if name != "AGUI_API_KEY"}
    return {**kept, "TERM": "dumb", "NO_COLOR": "1", **more}


class Terminal:
    """A command with a terminal of its own, which is its controlling one: what is typed can interrupt it."""

    def __init__(self, *argv: str, **more: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._process = subprocess.Popen(
            [*CHAT, *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env(**more),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = ""
        self._read = 0
        self._dumb = env(**more)["TERM"] == "dumb"

    def until(self, text: str) -> None:
        """Read until the text is shown behind what was waited for before."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.shown[self._read :]:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    self._take(os.read(self._master, 65536))
                except OSError:  # the other side is closed
                    break
        assert text in self.shown[self._read :], self.shown
        self._read = self.shown.index(text, self._read) + len(text)

    def prompt(self) -> None:
        """Until it waits for a message: prompt_toolkit then asks for bracketed paste."""
        self.until("> " if self._dumb else "\x1b[?2004h")

    def _take(self, data: bytes) -> None:
        self.shown += data.decode("utf-8", "replace")
        if "\x1b[6n" in self.shown[-len(data) - 4 :]:  # prompt_toolkit asks where the cursor is; terminals answer
            os.write(self._master, b"\x1b[1;1R")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """The exit code; what is still shown is read meanwhile, so that the command never waits for a reader."""
        try:
            while True:
                self._take(os.read(self._master, 65536))
        except OSError:
            return self._process.wait(DEADLINE)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Start `hermes-agui chat` on a terminal; it is gone after the test."""
    made: list[Terminal] = []

    def start(*argv: str, **more: str) -> Terminal:
        made.append(Terminal(*argv, **more))
        return made[-1]

    yield start
    for one in made:
        one.close()


def typed(text: str, **steps: Any) -> str:
    """A message that makes the model say `text`, and does not show it where it is echoed."""
    hidden = "".join(f"\\u{ord(character):04x}" for character in text)
    return script({"text": "@@", **steps}).replace("@@", hidden)


def chat(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command without a terminal."""
    return subprocess.run([*CHAT, *argv], input=stdin, capture_output=True, text=True, env=env(), timeout=DEADLINE)


@pytest.fixture
def folder(gateway: Gateway) -> Path:
    made: Path = victim(gateway)
    return made


def test_it_asks_and_does_what_was_said(gateway: Gateway, folder: Path, terminal: Callable[..., Terminal]) -> None:
    other = victim(gateway)
    steps = script(
        {"text": "First.", "tools": [call("terminal", {"command": f"rm -rf {other}"}, unique("c"))]},
        {"text": "Then.", "tools": [call("terminal", {"command": f"rm -rf {folder}"}, unique("c"))]},
        {"tools": [clarify("Which color?", ["red", "blue"], unique("c"))]},
        {"text": "The end."},
    )
    one = terminal(steps, "--url", gateway.url)
    one.until("a reason may follow")
    assert f"rm -rf {other}" in one.shown and "Allow this command?" in one.shown
    one.type("perhaps\n")
    one.until("a reason may follow")
    one.type("deny I need it\n")
    one.until("a reason may follow")
    one.type("once\n")
    one.until("your own words")
    assert "Which color?" in one.shown and "2) blue" in one.shown
    one.type("2\n")
    assert one.end() == 0
    assert "The end." in one.shown
    assert other.exists() and not folder.exists()


def test_a_confirmation(gateway: Gateway, terminal: Callable[..., Terminal]) -> None:
    one = terminal("/reload-mcp", "--url", gateway.url)
    one.until("a reason may follow")
    one.type("n\n")
    assert one.end() == 0
    assert "ancel" in one.shown


def test_the_end_of_the_input_leaves_it_open(gateway: Gateway, folder: Path, terminal: Callable[..., Terminal]) -> None:
    thread = unique()
    one = terminal(deletes(folder), "--url", gateway.url, "--thread", thread)
    one.until("a reason may follow")
    one.type("\x04")
    assert one.end() == 3
    assert f"--thread {thread} --answer 'once|session|always|deny'" in one.shown
    assert folder.exists()
    # The command that it names answers it, with no terminal at all.
    argv = ["--url", gateway.url, "--thread", thread, "--answer", "once"]
    done = chat(*argv)
    assert (done.returncode, done.stdout) == (0, "The end.\n"), done.stderr
    assert not folder.exists()
    done = chat(*argv)
    assert done.returncode == 1 and "nothing is asked" in done.stderr


def test_ctrl_c_at_a_question_ends_the_turn(gateway: Gateway, folder: Path, terminal: Callable[..., Terminal]) -> None:
    thread = unique()
    one = terminal(deletes(folder), "--url", gateway.url, "--thread", thread)
    one.until("a reason may follow")
    one.type("\x03")
    assert one.end() == 1
    assert "the run was stopped" in one.shown and folder.exists()
    assert state(Chat(gateway, thread))["status"] == "idle"


def test_ctrl_c_stops_the_turn(gateway: Gateway, model: GatedModel, terminal: Callable[..., Terminal]) -> None:
    gate, thread = unique("g"), unique()
    one = terminal(script({"text": f"Begun {{gate:{gate}}} never"}), "--url", gateway.url, "--thread", thread)
    one.until("Begun")
    one.type("\x03")
    one.until("the run was stopped")
    assert one.end() == 1 and "never" not in one.shown
    assert state(Chat(gateway, thread))["status"] == "idle"
    model.open_gate(gate)


def test_a_second_ctrl_c_leaves(terminal: Callable[..., Terminal]) -> None:
    """A server that takes a stop and does not stop."""
    with Deaf() as deaf:
        one = terminal("hello", "--url", deaf.url)
        one.until("Begun")
        one.type("\x03")
        one.until("Ctrl-C again leaves")
        wait_until(lambda: deaf.stopped, "the stop was asked for")
        one.type("\x03")
        assert one.end() == 130


def test_standard_input_is_the_message(gateway: Gateway) -> None:
    done = chat("--url", gateway.url, stdin=script({"text": "From a pipe."}))
    assert (done.returncode, done.stdout) == (0, "From a pipe.\n"), done.stderr


def test_continue_takes_the_newest_thread(gateway: Gateway, model: GatedModel) -> None:
    first, second = unique("first"), unique("second")
    assert chat(script({"text": "One."}, say=first), "--url", gateway.url).returncode == 0
    assert chat(script({"text": "Two."}, say=second), "--url", gateway.url).returncode == 0
    done = chat(script({"text": "Three."}), "--url", gateway.url, "--continue")
    assert (done.returncode, done.stdout) == (0, "Three.\n"), done.stderr
    assert second in str(model.requests[-1]["messages"]) and first not in str(model.requests[-1]["messages"])


def test_files_go_with_the_text(gateway: Gateway, model: GatedModel, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the kumquat is in the cellar")
    (tmp_path / "dot.png").write_bytes(PNG)
    files = ["--file", str(tmp_path / "notes.txt"), "--file", str(tmp_path / "dot.png")]
    done = chat(script({"text": "Read."}), *files, "--url", gateway.url)
    assert (done.returncode, done.stdout) == (0, "Read.\n"), done.stderr
    asked = str(model.requests[-1]["messages"])
    assert ("kumquat is in the cellar" in asked and "dot.png" in asked) or "image_url" in asked


def test_nothing_of_the_model_obeys_the_terminal(gateway: Gateway, terminal: Callable[..., Terminal]) -> None:
    hostile = "a\x1b[2J\x1b]0;owned\x07\x9b31mb"
    steps = script(
        {"text": hostile, "tools": [call("terminal", {"command": "true \x1b]52;c;aGk=\x07"}, unique("c"))]},
        {"text": "done"},
    )
    one = terminal(steps, "--url", gateway.url)
    assert one.end() == 0
    assert "owned" in one.shown and "done" in one.shown
    assert not set(one.shown) & (set(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) - set("\r\n"))


def test_what_runs_is_shown_while_it_runs(gateway: Gateway, terminal: Callable[..., Terminal]) -> None:
    steps = script({"tools": [call("terminal", {"command": "sleep 2"}, unique("c"))]}, {"text": "Slept."})
    one = terminal(steps, "--url", gateway.url, TERM="xterm", NO_COLOR="")
    one.until("terminal 1 s")
    assert one.end() == 0
    assert "\x1b[2m" in one.shown and one.shown.rindex("\x1b[2K") < one.shown.rindex("Slept.")


def test_no_colours_where_they_are_not_wanted(gateway: Gateway, terminal: Callable[..., Terminal]) -> None:
    steps = script({"tools": [call("terminal", {"command": "true"}, unique("c"))]}, {"text": "Done."})
    one = terminal(steps, "--url", gateway.url, TERM="xterm", NO_COLOR="1")
    assert one.end() == 0
    assert re.search(r"\x1b\[[0-9;]*m", one.shown) is None


def test_a_lost_connection_is_made_again(gateway: Gateway, model: GatedModel) -> None:
    gate = unique("g")
    with Cut(gateway.port) as cut:
        process = subprocess.Popen(
            [*CHAT, script({"text": f"before {{gate:{gate}}} behind"}), "--url", cut.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=env(),
            text=True,
        )
        wait_until(lambda: b"before" in cut.passed, "the first half has passed")
        cut.cut()
        wait_until(lambda: cut.made > 1, "the connection is made again")
        model.open_gate(gate)
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (0, f"before {{gate:{gate}}} behind\n"), err
    assert "the connection was lost" in err


# --- a conversation


@pytest.mark.parametrize("kind", ["xterm", "dumb"])  # with prompt_toolkit, and with plain lines
def test_a_conversation(
    gateway: Gateway, folder: Path, terminal: Callable[..., Terminal], tmp_path: Path, kind: str
) -> None:
    one = terminal("--url", gateway.url, TERM=kind, XDG_STATE_HOME=str(tmp_path))
    one.prompt()
    one.type(typed("Hello you.") + "\r")
    one.until("Hello you.")
    one.prompt()
    one.type(deletes(folder, then="") + "\r")
    one.until("a reason may follow")
    one.type("once\r")
    one.prompt()
    assert not folder.exists()
    one.type("\x04")
    one.until("go on with: hermes-agui chat")
    assert one.end() == 0
    if kind == "xterm":
        assert "script" in (tmp_path / "hermes-agui" / "chat_history").read_text()


def test_a_conversation_survives_ctrl_c(
    gateway: Gateway, model: GatedModel, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    gate = unique("g")
    one = terminal("--url", gateway.url, TERM="xterm", XDG_STATE_HOME=str(tmp_path))
    one.prompt()
    one.type(typed(f"Begun {{gate:{gate}}} never") + "\r")
    one.until("Begun")
    one.type("\x03")
    one.until("the run was stopped")
    one.prompt()
    one.type(typed("Still here.") + "\r")
    one.until("Still here.")
    one.prompt()
    one.type("half a\x03")  # clears what was typed
    one.type("\x03")
    one.until("leaves")
    one.prompt()  # before it the terminal is not raw, and the key is a signal
    one.type("\x03")
    assert one.end() == 0
    model.open_gate(gate)


def test_several_lines_files_and_commands_of_a_conversation(
    gateway: Gateway, model: GatedModel, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("a kumquat")
    one = terminal("--url", gateway.url, TERM="xterm", XDG_STATE_HOME=str(tmp_path))
    one.prompt()
    one.type("/attach " + str(tmp_path / "notes.txt") + "\r")
    one.until("with your next message: notes.txt")
    one.prompt()  # before it the terminal is not raw yet, and makes the return of Alt-Enter a newline
    one.type("first line\x1b\rsecond " + typed("Got it.") + "\r")
    one.until("Got it.")
    one.prompt()
    said = next(m["content"] for m in reversed(model.requests[-1]["messages"]) if m["role"] == "user")
    assert "first line\\nsecond" in json.dumps(said) and "a kumquat" in json.dumps(said)
    one.type("/stat\t")
    one.until("/status")  # completed from the server's list
    one.type("\r")
    one.prompt()
    one.type("/quit\r")
    assert one.end() == 0


def test_a_thread_that_waits_is_taken_up_again(
    gateway: Gateway, folder: Path, terminal: Callable[..., Terminal]
) -> None:
    thread = unique()
    assert chat(deletes(folder), "--url", gateway.url, "--thread", thread).returncode == 3
    one = terminal("--url", gateway.url, "--thread", thread)
    one.until("a reason may follow")
    one.type("once\r")
    one.until("The end.")
    one.prompt()
    one.type("\x04")
    assert one.end() == 0 and not folder.exists()


def test_a_conversation_needs_a_server(terminal: Callable[..., Terminal]) -> None:
    one = terminal("--url", "http://127.0.0.1:9")
    assert one.end() == 1 and "is the gateway running?" in one.shown
