"""What a person sees of a run: the answer on `out`, everything about it on `err`. Knows no connection.

Whatever comes from the server goes through ``text`` before it is written.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from .outcome import DONE, FAILED, WAITING
from .progress import Progress
from .text import exact, json_line, one_line, plain


class Screen:
    """Prints events as they come. Keeps the exit code so far."""

    def __init__(self, out: TextIO, err: TextIO, *, reasoning: bool = False, raw: bool = False) -> None:
        self.code: int | None = None
        """None until the run ended."""
        self.interrupts: list[dict[str, Any]] = []
        """What the run that ended last asks."""
        self._out, self._err = out, err
        self._reasoning, self._raw = reasoning, raw
        self._colour = err.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
        self._progress = Progress(err, style=self.dim)
        self._message: str | None = None
        self._said: list[str] = []
        self._hidden: set[str] = set()
        self._calls: dict[str, list[str]] = {}
        self._thought: list[str] = []
        self._open_line = False

    def show(self, event: dict[str, Any], data: str) -> None:
        """Print one event; `data` is its text on the wire."""
        if self._raw:
            print(json_line(data) if "\n" not in data else json.dumps(event), file=self._out, flush=True)
        kind = event["type"]
        match kind:
            case "RUN_STARTED":
                self.code, self.interrupts = None, []
                self._progress.begin("", "thinking")
            case "RUN_FINISHED":
                self._finished(event.get("outcome"))
            case "RUN_ERROR":
                code = f" ({event['code']})" if event.get("code") else ""
                self.error(f"{event.get('message') or 'the run failed'}{code}")
                self.code = FAILED
            case _ if not self._raw:
                self._show(kind, event)
        if kind in ("RUN_FINISHED", "RUN_ERROR"):
            self.rest()

    def tick(self) -> None:
        """Some time has passed: what runs is shown anew, unless a line of the answer is open."""
        if not self._raw and not self._open_line:
            self._progress.draw()

    def rest(self) -> None:
        """Nothing runs any more."""
        self._progress.end("")
        self._progress.clear()

    def remark(self, text: str) -> None:
        """One quiet line on `err`."""
        self._line(self.dim(one_line(text)))

    def aside(self, text: str) -> None:
        """A quiet line that is no part of the run: an answer that is not shown on a terminal stays in one piece."""
        if self._out.isatty():
            self.remark(text)
        else:
            print(self.dim(one_line(text)), file=self._err, flush=True)

    def say(self, text: str) -> None:
        """One line on `err`."""
        self._line(exact(text))

    def error(self, text: str) -> None:
        """One line on `err` that says what went wrong."""
        self._line(self._styled("31", f"error: {exact(text)}"))

    def ask(self, prompt: str) -> str:
        """Show a prompt on `err` and read a line. Raises EOFError where the input ends."""
        self.end_line()
        print(exact(prompt), end="", file=self._err, flush=True)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            print(file=self._err, flush=True)
            raise
        if not line:
            print(file=self._err, flush=True)
            raise EOFError
        return line

    def end_line(self) -> None:
        """Finish a line of the answer that is still open."""
        self._progress.clear()
        if self._open_line:
            self._write("\n")

    def dim(self, text: str) -> str:
        """A text that stands back, where there are colours."""
        return self._styled("2", text)

    def catch_up(self, messages: Any) -> bool:
        """Show what the thread has kept of a run that could not be followed; False when there is no answer in it."""
        last = messages[-1] if isinstance(messages, list) and messages else None
        if not isinstance(last, dict) or last.get("role") != "assistant" or not isinstance(last.get("content"), str):
            return False
        if not self._said:
            self._text(str(last.get("id")), last["content"])
        else:
            self._correct(messages)
        self.end_line()
        return True

    # -- inside ---------------------------------------------------------------------------------------------

    def _styled(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour else text

    def _line(self, text: str) -> None:
        self.end_line()
        print(text, file=self._err, flush=True)

    def _show(self, kind: str, event: dict[str, Any]) -> None:
        message, delta = str(event.get("messageId", "")), event.get("delta")
        call = str(event.get("toolCallId"))
        match kind:
            case "TEXT_MESSAGE_START" if event.get("role", "assistant") != "assistant":
                self._hidden.add(message)
            case "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK" if isinstance(delta, str) and delta:
                if message not in self._hidden:
                    self._text(message or self._message or "", delta)
            case "TOOL_CALL_START":
                self._calls[call] = [str(event.get("toolCallName")), " "]
            case "TOOL_CALL_ARGS" if isinstance(delta, str):
                self._calls.get(call, []).append(delta)
            case "TOOL_CALL_END":
                pieces = self._calls.pop(call, ["a tool"])
                self.remark("· " + "".join(pieces))
                self._progress.end("")
                self._progress.begin(call, pieces[0])
            case "TOOL_CALL_RESULT":
                self._progress.end(call)
                self._progress.begin("", "thinking")
            case "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_CHUNK" if isinstance(delta, str):
                self._thought.append(delta)
            case "REASONING_MESSAGE_END" | "REASONING_END" if self._thought:
                thought = "".join(self._thought)
                self._thought.clear()
                if self._reasoning:
                    for line in thought.splitlines():
                        self.remark(f"> {line}")
            case "MESSAGES_SNAPSHOT":
                self._correct(event.get("messages"))
            case "CUSTOM" if event.get("name") == "hermes.request_expired":
                self.remark("! the answer came too late: the time for it was over")
            case "CUSTOM" if str(event.get("name", "")).startswith("hermes."):
                value = event.get("value")
                said = value if isinstance(value, str) else value.get("text") if isinstance(value, dict) else None
                if isinstance(said, str) and said.strip():
                    self.remark(f"! {said}")

    def _text(self, message: str, delta: str) -> None:
        if self._message is not None and message != self._message:
            self.end_line()
            self._said.clear()
        self._message = message
        self._said.append(delta)
        self._write(plain(delta))

    def _correct(self, messages: Any) -> None:
        """A closing snapshot tells what the transcript kept; say so where that is not what was printed."""
        last = messages[-1] if isinstance(messages, list) and messages else None
        text = last.get("content") if isinstance(last, dict) and last.get("role") == "assistant" else None
        if self._said and isinstance(text, str) and "".join(text.split()) != "".join("".join(self._said).split()):
            self.remark("! the answer was corrected:")
            self._said = [text]
            self._write(plain(text))

    def _write(self, text: str) -> None:
        self._progress.clear()
        self._out.write(text)
        self._out.flush()
        self._open_line = not text.endswith("\n") if text else self._open_line

    def _finished(self, outcome: Any) -> None:
        self.end_line()
        outcome = outcome if isinstance(outcome, dict) else {}
        if outcome.get("type") == "interrupt":
            self.interrupts = [one for one in outcome.get("interrupts") or [{}] if isinstance(one, dict)]
            self.code = WAITING
        elif outcome.get("pendingToolCallIds"):
            self.say("waiting for a tool that another client of this thread runs")
            self.code = WAITING
        elif outcome.get("type") == "cancelled":
            self.say("the run was stopped")
            self.code = FAILED
        else:
            self.code = DONE
