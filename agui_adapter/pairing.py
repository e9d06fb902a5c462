"""Which message on the wire is which row of Hermes's: found once, when a turn has ended. Pure.

By the calls' ids where there are any, else by order and text: a provider may repeat ids or leave them out, a plugin may
change a text after the history has it, an answer that was cut is two rows and one message, an answer that the model
interrupted by thinking one row and several messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .history import Fact, Message, Row, claimed


@dataclass(frozen=True)
class Streamed:
    """What a turn told its client: messages, and which reasoning message stands before which assistant message."""

    messages: Sequence[Message] = ()
    reasoning: Mapping[str, str] = field(default_factory=dict)  # assistant message id → reasoning message id
    client_calls: Collection[str] = ()
    thoughts: Mapping[str, str] = field(default_factory=dict)  # reasoning message id → its text


@dataclass
class Paired:
    """Row id → wire id, and what else is to be remembered of the row."""

    ids: dict[int, str] = field(default_factory=dict)
    facts: dict[int, Fact] = field(default_factory=dict)


def pair(rows: Sequence[Row], streamed: Streamed, user_ids: Sequence[str], *, whole: bool = True) -> Paired:
    """The new rows of one turn and what it streamed.

    ``user_ids``: of the messages that the turn was given; one row holds all of them. ``whole``: the turn succeeded, so
    its last text and the history's are the same answer even if a plugin changed one of them.
    """
    found = Paired()
    steps = [m for m in streamed.messages if m["role"] == "assistant"]
    results = {m["toolCallId"]: m for m in streamed.messages if m["role"] == "tool"}
    users = [*user_ids[:1], *(m["id"] for m in streamed.messages if m["role"] == "user")]
    own = [row for row in rows if not row.aside and not row.summary]
    waiting: list[tuple[str, str]] = []
    at = 0  # the step that comes next
    cut: list[Row] = []  # rows that begin the message at ``at``

    def settled(place: int) -> None:
        """Nothing more is to come of the message that ``cut`` begins."""
        nonlocal cut
        if cut:
            _keep_text(found, cut, steps[place], streamed)
        cut = []

    for index, row in enumerate(own):
        if row.role == "user":
            if users:
                found.ids[row.id] = users.pop(0)
        elif row.role == "tool":
            wire = claimed(row, waiting) or row.call_id
            if wire in results:
                found.ids[row.id] = results[wire]["id"]
                if results[wire].get("error") or not isinstance(results[wire]["content"], str):
                    sent: Message = {n: results[wire][n] for n in ("content", "error") if n in results[wire]}
                    found.facts[row.id] = Fact(sent=sent)
        elif row.calls:
            place = _step(row, steps, at)
            if place is None:
                waiting = [(call["id"], call["id"]) for call in row.calls]
                continue
            begins = _begins(row, steps, at + bool(cut), place)
            settled(at)
            at = place + 1
            waiting = _keep_step(found, row, steps[place], streamed)
            _keep_before(found, row, steps[begins:place], streamed)
        else:
            parts = _parts(row, steps, at + bool(cut))
            if parts is not None:
                settled(at)
                begins, at = parts[0], parts[1] + 1
                found.ids[row.id] = steps[parts[1]]["id"]
                _keep_text(found, [row], steps[parts[1]], streamed)
                _keep_before(found, row, steps[begins : parts[1]], streamed)
                continue
            last = whole and not any(later.role == "assistant" for later in own[index + 1 :])
            match = _text(row, steps, at, "".join(_bare(one.content) for one in cut), last)
            if match is None:
                continue
            place, rest = match
            if place != at:
                settled(at)
            at = place if rest else place + 1
            cut.append(row)
            found.ids[row.id] = steps[place]["id"]
            if not rest:
                settled(place)
    if at < len(steps):
        settled(at)
    return found


def _keep_step(found: Paired, row: Row, step: Message, streamed: Streamed) -> list[tuple[str, str]]:
    """Remember a step with calls; its calls, each by the provider's id and the id on the wire."""
    wires = _wires(row, [call["id"] for call in step["toolCalls"]])
    found.ids[row.id] = step["id"]
    text = str(step.get("content") or "")
    fact = Fact(
        calls=wires if wires != [call["id"] for call in row.calls] else (),
        client=[wire for wire in wires if wire in streamed.client_calls],
        reasoning=streamed.reasoning.get(step["id"], ""),
        text=text if text.strip() != row.content.strip() else None,
    )
    if fact.calls or fact.client or fact.reasoning or fact.text is not None:
        found.facts[row.id] = fact
    return [(call["id"], wire) for call, wire in zip(row.calls, wires, strict=True)]


def _keep_text(found: Paired, rows: Sequence[Row], message: Message, streamed: Streamed) -> None:
    """Where the rows of a message do not say what was streamed, the first of them keeps that, the others nothing."""
    text = str(message.get("content") or "")
    other = text.strip() != "".join(row.content for row in rows).strip()
    reasoning = streamed.reasoning.get(message["id"], "")
    for index, row in enumerate(rows):
        first = index == 0
        fact = Fact(reasoning=reasoning if first else "", text=(text if first else "") if other else None)
        if fact.reasoning or fact.text is not None:
            found.facts[row.id] = fact


def _keep_before(found: Paired, row: Row, messages: Sequence[Message], streamed: Streamed) -> None:
    """Remember the messages that a row's text began as."""
    made = []
    for message in messages:
        thought = streamed.reasoning.get(message["id"], "")
        made.append((message["id"], message["content"], thought, streamed.thoughts.get(thought, "")))
    if made:
        found.facts[row.id] = replace(found.facts.get(row.id, Fact()), before=made)


def _begins(row: Row, steps: Sequence[Message], at: int, place: int) -> int:
    """The first of the streamed messages that together say what the row says, the last of them being ``place``."""
    bare, said = _bare(row.content), _bare(str(steps[place].get("content") or ""))
    for begin in range(place - 1, at - 1, -1):
        if steps[begin].get("toolCalls") or said == bare:
            break
        said = _bare(str(steps[begin].get("content") or "")) + said
        if said == bare:
            return begin
    return place


def _parts(row: Row, steps: Sequence[Message], at: int) -> tuple[int, int] | None:
    """The first and the last of several streamed messages that together say what a row without calls says."""
    for place in range(at, len(steps)):
        if steps[place].get("toolCalls"):
            continue
        if _bare(str(steps[place].get("content") or "")) == _bare(row.content):
            return None
        begin = _begins(row, steps, at, place)
        if begin < place:
            return begin, place
    return None


def _step(row: Row, steps: Sequence[Message], at: int) -> int | None:
    """The streamed step of a row with calls: one that shares an id, else the next with as many calls."""
    ids = {call["id"] for call in row.calls if call["id"]}
    rest = [(place, steps[place].get("toolCalls") or []) for place in range(at, len(steps))]
    for place, calls in rest:
        if any(call["id"] in ids for call in calls):
            return place
    names = [call["function"]["name"] for call in row.calls]
    alike = [place for place, calls in rest if [call["function"]["name"] for call in calls] == names]
    return next(iter(alike), next((place for place, calls in rest if len(calls) == len(row.calls)), None))


def _wires(row: Row, wires: Sequence[str]) -> list[str]:
    """The id on the wire of each call of a row: its own where that was streamed, else the next that is left."""
    left = list(wires)
    made: list[str] = []
    for call in row.calls:
        made.append(call["id"] if call["id"] in left else "")
        if made[-1]:
            left.remove(made[-1])
    return [wire or (left.pop(0) if left else call["id"]) for wire, call in zip(made, row.calls, strict=True)]


def _text(row: Row, steps: Sequence[Message], at: int, said: str, last: bool) -> tuple[int, bool] | None:
    """The message of a row without calls, and whether more of it is to come in a later row."""
    bare = _bare(row.content)
    if not bare:
        return None
    plain = []
    for place in range(at, len(steps)):
        if not steps[place].get("toolCalls"):
            plain.append(place)
    for place in plain:
        text = _bare(str(steps[place].get("content") or ""))
        before = said if place == at else ""
        if text == before + bare:
            return place, False
    for place in plain:
        text = _bare(str(steps[place].get("content") or ""))
        before = said if place == at else ""
        if text.startswith(before + bare):
            return place, True
    return (plain[-1], False) if last and plain else None


def _bare(text: str) -> str:
    return "".join(text.split())
