"""The client's messages and Hermes's: a session's rows as AG-UI messages, and what a run's messages ask for.

Pure. Hermes's session is the truth; the client's list tells what is new (DESIGN: compare by id and position, never by
text). Rows come from ``hermes_history.py``, remembered ids from ``store.py``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One message of a Hermes session. ``archived``: summed up by compaction, but still shown to the user."""

    id: int
    session_id: str
    role: str
    content: str
    calls: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    call_id: str = ""
    reasoning: str = ""
    timestamp: float = 0.0
    archived: bool = False
    summary: bool = False

    def key(self) -> tuple[str, str, str, str]:
        """What a copy has in common with its original."""
        return (self.role, self.content, self.call_id, json.dumps(self.calls, sort_keys=True))


@dataclass(frozen=True)
class Told:
    """What the store remembers: row id → wire id, and turn inputs: user row id → the client's messages of it."""

    ids: Mapping[int, str] = field(default_factory=dict)
    inputs: Mapping[int, Sequence[Message]] = field(default_factory=dict)
    outcomes: Mapping[int, str] = field(default_factory=dict)  # row id of a turn → how the turn ended


def visible(rows: Sequence[Row]) -> list[Row]:
    """The conversation as a person saw it: without summaries, and without the copies that compaction makes.

    In-place compaction archives all rows and adds a summary and copies of the newest; the rotating kind does so in a
    new session. A copy repeats an earlier row, behind a summary or with the very same time.
    """
    shown: list[Row] = []
    known: dict[tuple[str, str, str, str], list[Row]] = {}
    copying = False
    for row in rows:
        if row.summary:
            copying = True
            continue
        twins = known.get(row.key(), [])
        if twins and (copying or any(twin.timestamp == row.timestamp for twin in twins)):
            copying = True
            continue
        copying = False
        shown.append(row)
        known.setdefault(row.key(), []).append(row)
    return shown


def messages_of(rows: Sequence[Row], told: Told) -> list[Message]:
    """AG-UI messages of visible rows, tool calls paired, reasoning before its answer.

    Ids are those that were streamed, where they are remembered, else made of the row's. Hermes's own words for a turn
    that was stopped are no answer and are left out.
    """
    made: list[Message] = []
    open_calls: dict[str, None] = {}
    for row in rows:
        wire = told.ids.get(row.id) or f"row-{row.id}"
        if row.role == "user":
            _close(made, open_calls)
            made += told.inputs.get(row.id) or [{"id": wire, "role": "user", "content": row.content}]
        elif row.role == "tool":
            if row.call_id in open_calls:
                del open_calls[row.call_id]
                made.append({"id": wire, "role": "tool", "toolCallId": row.call_id, "content": row.content})
        elif row.role == "assistant":
            _close(made, open_calls)
            if row.id not in told.ids and told.outcomes.get(row.id) in ("cancelled", "failed") and not row.calls:
                continue
            if row.reasoning:
                made.append({"id": f"{wire}-reasoning", "role": "reasoning", "content": row.reasoning})
            message: Message = {"id": wire, "role": "assistant"}
            if row.content:
                message["content"] = row.content
            if row.calls:
                message["toolCalls"] = [dict(call) for call in row.calls]
                open_calls = dict.fromkeys(call["id"] for call in row.calls)
            if row.content or row.calls:
                made.append(message)
    _close(made, open_calls)
    return made


def _close(made: list[Message], open_calls: dict[str, None]) -> None:
    """A call without a result (a turn cut by a crash) gets one, so that no client takes it for its own to run."""
    for call_id in open_calls:
        made.append({"id": f"{call_id}-missing", "role": "tool", "toolCallId": call_id, "content": "[no result]"})
    open_calls.clear()


def without_reasoning(messages: Sequence[Message]) -> list[Message]:
    """For a ``MESSAGES_SNAPSHOT``: reasoning and activity stay as the client has them."""
    return [message for message in messages if message["role"] not in ("reasoning", "activity")]


# -- what a run's messages ask for -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What to do before the new input runs.

    ``go_on``: nothing. ``rewind``: take back everything from the user message ``rewind_to`` on. ``seed``: Hermes has
    never seen the thread, which came with messages. ``snapshot``: the client knows less than the history.
    """

    action: Literal["go_on", "rewind", "seed"] = "go_on"
    rewind_to: str = ""
    snapshot: bool = False


def plan(client: Sequence[Message], new_ids: Collection[str], history: Sequence[Message], *, seen: bool) -> Plan:
    """Compare a client's list with the history, by id and position.

    ``client``: the run's messages; ``new_ids``: the user messages at its end that are to be answered (a known one among
    them is answered again); ``history``: the thread's messages; ``seen``: the thread was used before, though its
    history may be empty now (``/new``).
    """
    known = {message["id"]: index for index, message in enumerate(history)}
    before = [m for m in client if m["id"] not in new_ids and m["role"] not in ("reasoning", "activity")]
    again = [known[new_id] for new_id in new_ids if new_id in known]
    if again:
        first = min(again)
        return Plan("rewind", history[first]["id"], snapshot=_knows_less(before, history[:first]))
    if not history:
        talk = [message for message in before if message["role"] in ("user", "assistant", "tool")]
        return Plan("seed") if talk and not seen else Plan()
    met = [known[message["id"]] for message in before if message["id"] in known]
    if not met:
        return Plan(snapshot=True)  # a client that sends only its newest message goes on
    last = max(met)
    for index, message in enumerate(history[last + 1 :], last + 1):
        if message["role"] == "user":
            return Plan("rewind", message["id"], snapshot=_knows_less(before, history[:index]))
    return Plan(snapshot=_knows_less(before, history))


def _knows_less(client: Sequence[Message], history: Sequence[Message]) -> bool:
    have = {message["id"] for message in client}
    return any(message["id"] not in have for message in without_reasoning(history))


def transcript(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A client's messages as a Hermes transcript, calls and results paired and repaired (AG-UI 1.0, section 11).

    Each row carries ``wire_id``. A call without a result gets one that says so; a result without its call is dropped;
    arguments that are no JSON become ``{}``.
    """
    rows: list[dict[str, Any]] = []
    results = {m["toolCallId"]: m for m in messages if m["role"] == "tool"}
    for message in messages:
        role = message["role"]
        if role == "user":
            rows.append({"role": "user", "content": text_of(message["content"]), "wire_id": message["id"]})
        elif role == "assistant":
            calls = [_call(call) for call in message.get("toolCalls") or []]
            text = message.get("content") or ""
            if not text and not calls:
                continue
            row: dict[str, Any] = {"role": "assistant", "content": text, "wire_id": message["id"]}
            if calls:
                row["tool_calls"] = calls
                row["finish_reason"] = "tool_calls"
            rows.append(row)
            for call in calls:
                answer = results.get(call["id"])
                content = "[no result: the conversation was brought in without it]"
                if answer is not None:
                    content = text_of(answer["content"])
                    if answer.get("error"):
                        content = json.dumps({"error": answer["error"], "content": content}, ensure_ascii=False)
                rows.append(
                    {
                        "role": "tool",
                        "content": content,
                        "tool_call_id": call["id"],
                        "tool_name": call["function"]["name"],
                        "wire_id": answer["id"] if answer is not None else f"{call['id']}-missing",
                    }
                )
    return rows


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    try:
        fine = isinstance(json.loads(arguments), dict)
    except ValueError:
        fine = False
    function = {"name": call["function"]["name"], "arguments": arguments if fine else "{}"}
    return {"id": call["id"], "type": "function", "function": function}


def text_of(content: Any) -> str:
    """A content as text: text parts joined, others named."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content or []:
        texts.append(part["text"] if part.get("type") == "text" else f"[{part.get('type')}]")
    return "\n".join(texts)


def pair(rows: Sequence[Row], kept: Sequence[Message], user_ids: Sequence[str]) -> dict[int, str]:
    """Row id → wire id for the new rows of one turn. ``kept``: what the turn streamed, as messages.

    Assistant rows with calls go by a call's id, results by theirs, the rest in order; user rows take the input's ids.
    """
    by_call = {call["id"]: m["id"] for m in kept for call in m.get("toolCalls") or []}
    results = {m["toolCallId"]: m["id"] for m in kept if m["role"] == "tool"}
    plain = [m["id"] for m in kept if m["role"] == "assistant" and not m.get("toolCalls")]
    texts = {m["id"]: "".join(str(m.get("content") or "").split()) for m in kept}
    users = list(user_ids[:1])
    ids: dict[int, str] = {}
    for row in rows:
        if row.role == "user" and users:
            ids[row.id] = users.pop(0)
        elif row.role == "tool" and row.call_id in results:
            ids[row.id] = results[row.call_id]
        elif row.role == "assistant" and row.calls:
            wire = next((by_call[call["id"]] for call in row.calls if call["id"] in by_call), None)
            if wire is not None:
                ids[row.id] = wire
        elif row.role == "assistant":
            bare = "".join(row.content.split())
            match = next((wire for wire in plain if texts[wire] == bare), None)
            if match is None and len(plain) == 1 and bare and texts[plain[0]].startswith(bare):
                match = plain[0]
            if match is not None:
                plain.remove(match)
                ids[row.id] = match
    return ids
