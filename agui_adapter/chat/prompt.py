"""Where a person types a message: history, several lines, completion of slash commands.

With prompt_toolkit, which Hermes brings; without it (a client installed on its own) plain lines, edited by readline.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

PROMPT = "> "
KEPT = 2000
"""Lines of history that are read back."""

Command = tuple[str, str]
"""A slash command without its slash, and what it does."""


class Prompt(Protocol):
    """Reads messages. Raises EOFError at the end, KeyboardInterrupt for Ctrl-C where nothing was typed."""

    def read(self) -> str: ...


def make(commands: Sequence[Command]) -> Prompt:
    """The best that this Python and terminal have."""
    if find_spec("prompt_toolkit") is None or os.environ.get("TERM", "dumb") == "dumb":
        return _Plain()
    return _Rich(commands)


def matching(commands: Iterable[Command], typed: str) -> list[Command]:
    """The commands that what was typed may become; none once the command is complete."""
    if not typed.startswith("/") or any(character.isspace() for character in typed):
        return []
    return [one for one in commands if one[0].startswith(typed[1:])]


def history_path() -> Path | None:
    """The file of what was typed before, for its owner alone; None where none can be kept."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(base) / "hermes-agui" / "chat_history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600))
    except OSError:
        return None
    return path


class _Plain:
    def __init__(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (makes `input` editable)

    def read(self) -> str:
        return input(PROMPT)


class _Rich:
    def __init__(self, commands: Sequence[Command]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        path = history_path()
        self._session: Any = PromptSession(
            PROMPT,
            history=InMemoryHistory() if path is None else FileHistory(str(path)),
            completer=_completer(commands),
            complete_while_typing=True,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="  ",
            enable_open_in_editor=True,
            # The terminal's own title, mouse and bell are not ours to touch.
            mouse_support=False,
        )

    def read(self) -> str:
        text: str = self._session.prompt()
        return text


def _completer(commands: Sequence[Command]) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class Slash(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Any]:
            typed = document.text_before_cursor
            for name, what in matching(commands, typed):
                yield Completion(f"/{name}", start_position=-len(typed), display_meta=what)

    return Slash()


def _keys() -> Any:
    """Enter sends; Alt-Enter, or Enter behind a backslash, begins a line; Ctrl-C clears what was typed."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    bind: Callable[..., Callable[[Callable[[Any], None]], Any]] = keys.add

    def send(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and not buffer.document.text_after_cursor:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    def clear(event: Any) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    bind("enter")(send)
    bind("escape", "enter")(line)
    bind("c-c")(clear)
    return keys
