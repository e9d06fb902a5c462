"""What `hermes-agui chat` does with a question: shows it, reads an answer from a line, says how to answer later.

Text in, text out: it knows AG-UI interrupts, no connection and no Hermes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .text import exact

Interrupt = dict[str, Any]

_YES, _NO = ("y", "yes"), ("n", "no")


def facts(interrupt: Interrupt) -> dict[str, Any]:
    """What Hermes says of it beside the protocol: kind, choices, the command."""
    metadata = interrupt.get("metadata")
    found = metadata.get("hermes") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def choices(interrupt: Interrupt) -> list[str]:
    """The answers that are offered."""
    found = facts(interrupt).get("choices")
    return [choice for choice in found if isinstance(choice, str)] if isinstance(found, list) else []


def question(interrupt: Interrupt) -> list[str]:
    """The lines that show it."""
    told = facts(interrupt)
    lines = [f"? {interrupt.get('message') or interrupt.get('reason') or 'an answer is needed'}"]
    for name in ("command", "text"):
        if isinstance(told.get(name), str):
            lines += [f"    {line}" for line in told[name].splitlines()]
    if _free(interrupt):
        lines += [f"  {number}) {choice}" for number, choice in enumerate(choices(interrupt), 1)]
    return lines


def prompt(interrupt: Interrupt) -> str:
    """What may be typed."""
    offered = choices(interrupt)
    if not _free(interrupt) and offered:
        return f"  {', '.join(offered)} (a reason may follow): "
    return "  a number, or your own words: " if offered else "  your answer: "


def read(interrupt: Interrupt, line: str) -> Any:
    """A typed line → the payload of the answer; None for no answer."""
    line = line.strip()
    offered = choices(interrupt)
    if _free(interrupt) or not offered:
        if line.isdigit() and 0 < int(line) <= len(offered):
            line = offered[int(line) - 1]
        return {"answer": line} if line else None
    word, _, reason = line.partition(" ")
    word = word.lower()
    word = offered[0] if word in _YES else offered[-1] if word in _NO else word
    found = [choice for choice in offered if word and choice.startswith(word)]
    if len(found) != 1 and word not in found:
        return None
    payload = {"choice": word if word in found else found[0]}
    return {**payload, "reason": reason.strip()} if reason.strip() else payload


def entry(interrupt: Interrupt, payload: Any) -> dict[str, Any]:
    """An answer as a member of `RunAgentInput.resume`."""
    return {"interruptId": interrupt.get("id"), "status": "resolved", "payload": payload}


def ask(
    interrupts: Sequence[Interrupt], show: Callable[[str], None], line: Callable[[str], str]
) -> list[dict[str, Any]] | None:
    """Ask for each until it is answered; `line` shows a prompt and reads. None when the user ends the input.

    A KeyboardInterrupt goes through: the user wants the turn to end.
    """
    answers = []
    for one in interrupts:
        for text in question(one):
            show(text)
        payload = None
        while payload is None:
            try:
                payload = read(one, line(prompt(one)))
            except EOFError:
                return None
        answers.append(entry(one, payload))
    return answers


def given(interrupts: Sequence[Interrupt], texts: Sequence[str]) -> list[dict[str, Any]]:
    """`--answer` values (`TEXT`, or `ID=TEXT` where several are open) → answers. Raises ValueError with a sentence."""
    by_id = {str(one.get("id")): one for one in interrupts}
    answers = []
    for text in texts:
        name, found, rest = text.partition("=")
        if found and name in by_id:
            one, text = by_id[name], rest
        elif len(by_id) == 1:
            one = next(iter(by_id.values()))
        else:
            raise ValueError(
                f"say which of them is answered: --answer ID=TEXT, with one of {', '.join(by_id)}"
                if by_id
                else "nothing is asked on this thread"
            )
        payload = read(one, text)
        if payload is None:
            raise ValueError(f"{text!r} is no answer; {prompt(one).strip().rstrip(':')}")
        answers.append(entry(one, payload))
    return answers


def later(interrupts: Sequence[Interrupt], command: str) -> list[str]:
    """The lines that tell what is open and how to answer it; `command` is the one that does, up to `--answer`."""
    lines = []
    for one in interrupts:
        first, *rest = question(one)
        lines += [f"waiting for an answer: {first[2:]}", *rest]
        name = f"{one.get('id')}=" if len(interrupts) > 1 else ""
        # A question's choices are the model's own words: what is to be pasted into a shell names none of them.
        value = "TEXT" if _free(one) else "|".join(choices(one)) or "TEXT"
        lines.append(f"  answer with: {command} --answer {_quoted(name + value)}")
    return lines


def _quoted(text: str) -> str:
    return "'" + exact(text).replace("'", "'\"'\"'") + "'"


def _free(interrupt: Interrupt) -> bool:
    return interrupt.get("reason") == "input_required"
