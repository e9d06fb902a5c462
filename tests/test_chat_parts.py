"""The parts of the terminal client that need no server: files, completion, history, the progress line."""

from __future__ import annotations

import base64
import io
import os
import stat
from pathlib import Path

import pytest

from agui_adapter.chat import prompt
from agui_adapter.chat.files import content, part
from agui_adapter.chat.outcome import UsageError
from agui_adapter.chat.progress import Progress

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


@pytest.mark.parametrize(
    ("name", "data", "kind", "mime"),
    [
        ("a.png", PNG, "image", "image/png"),
        ("talk.mp3", b"ID3", "audio", "audio/mpeg"),
        ("clip.mp4", b"\0", "video", "video/mp4"),
        ("r.pdf", b"%PDF-1.7", "document", "application/pdf"),
        ("Makefile", b"all:\n", "document", "text/plain"),
        ("blob", b"\0\1", "document", "application/octet-stream"),
        ("x.tar.gz", b"\x1f\x8b", "document", "application/octet-stream"),
    ],
)
def test_a_file_is_a_part(tmp_path: Path, name: str, data: bytes, kind: str, mime: str) -> None:
    (tmp_path / name).write_bytes(data)
    made = part(str(tmp_path / name))
    assert (made["type"], made["source"]["mimeType"], made["metadata"]) == (kind, mime, {"filename": name})
    assert base64.b64decode(made["source"]["value"]) == data


def test_what_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opened, it would wait for ever
    for path in ("pipe", ".", "none", "a\0b"):
        with pytest.raises(UsageError):
            part(str(tmp_path / path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(UsageError, match="larger than 64 MiB"):
        part(str(tmp_path / "huge"))


def test_content() -> None:
    assert content("hi", []) == "hi"
    assert content("hi", [{"type": "image"}]) == [{"type": "text", "text": "hi"}, {"type": "image"}]
    assert content(" ", [{"type": "image"}]) == [{"type": "image"}]


def test_completion() -> None:
    commands = [("stop", ""), ("steer", ""), ("new", "")]
    assert [name for name, _ in prompt.matching(commands, "/st")] == ["stop", "steer"]
    assert len(prompt.matching(commands, "/")) == 3
    assert prompt.matching(commands, "st") == prompt.matching(commands, "/stop now") == []


def test_history_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = prompt.history_path()
    assert path is not None and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert prompt.history_path() is None


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_progress_names_what_runs_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = [0.0]
    screen = Terminal()
    progress = Progress(screen, style=lambda text: text, clock=lambda: now[0])
    progress.begin("c1", "terminal")
    progress.draw()
    assert screen.getvalue() == ""  # what is done at once needs no word
    now[0] = 3.2
    progress.begin("c2", "read\x1b[2J")
    progress.draw()
    shown = screen.getvalue()
    assert "terminal 3 s" in shown and "\x1b[2J" not in shown and "\n" not in shown
    progress.end("c1")
    progress.end("c2")
    progress.draw()
    assert screen.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(("terminal", "term"), [(True, "dumb"), (False, "xterm")])
def test_no_progress_where_lines_cannot_be_redrawn(terminal: bool, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    screen = Terminal() if terminal else io.StringIO()
    progress = Progress(screen, style=lambda text: text, clock=iter([0.0, 9.0]).__next__)
    progress.begin("c", "terminal")
    progress.draw()
    assert screen.getvalue() == ""
