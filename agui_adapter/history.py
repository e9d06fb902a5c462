"""A session's rows as the messages that a client knows. Pure.

Hermes's session is the truth. Rows come from ``hermes/history.py``, what the store remembers of them (ids on the wire,
what each turn was given) from ``store.py``; which message a row is was found by ``pairing.py`` when its turn ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from .reasoning import beginning

if TYPE_CHECKING:
    from .store import Remembered

Message = dict[str, Any]

HIDDEN = "[hidden by the operator]"
_NO_RESULT = "[no result]"
_STRIPPED = re.compile(r"\n?\[Attached image [^\]\n]*stripped[^\]\n]*\]")  # what compaction puts in an image's place


@dataclass(frozen=True)
class Row:
    """One message of a Hermes session.

    ``archived``: summed up by compaction, but still shown to the user. ``taken_back``: by a rewind. ``summary``: what
    compaction wrote, with the content that it put its summary beside, if any. ``aside``: Hermes's own words to the
    model, in a user's place. ``live``: the row that the model's memory has it in: itself, or the copy that ``visible``
    has found; 0 when it is in no memory any more.
    """

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
    taken_back: bool = False
    aside: bool = False
    live: tuple[str, int] = ("", 0)

    def key(self) -> tuple[str, ...]:
        """What a copy has in common with its original: compaction shortens results, arguments and images."""
        if self.role == "tool":
            return ("tool", self.call_id)
        if self.calls:
            return ("calls", *(str(call["id"]) for call in self.calls))
        return (self.role, _STRIPPED.sub("", self.content).strip())


@dataclass(frozen=True)
class Fact:
    """What the history does not say of a row and the client was told.

    ``calls``: ids on the wire, where a provider left them out or repeated them. ``client``: those that the client
    itself ran. ``reasoning``: the message id of its reasoning. ``text``: what was said, where the history keeps
    something else (None: it keeps the same). ``before``: messages that the row's text began as, since the model thought
    in between; each with id, text, and id and text of the reasoning in front of it. ``sent``: content and error of a
    client's tool message, where they were more than a text.
    """

    calls: Sequence[str] = ()
    client: Sequence[str] = ()
    reasoning: str = ""
    text: str | None = None
    before: Sequence[Sequence[str]] = ()
    sent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """What the store remembers, by row id: ids on the wire, the client's messages of a turn, how the turn ended."""

    ids: Mapping[int, str] = field(default_factory=dict)
    inputs: Mapping[int, Sequence[Message]] = field(default_factory=dict)
    outcomes: Mapping[int, str] = field(default_factory=dict)
    facts: Mapping[int, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class Sight:
    """What the operator lets clients see of what has been; the same as ``events.View`` lets them see of what runs."""

    reasoning: Literal["full", "summary", "off"] = "full"
    tool_output: Literal["full", "names", "off"] = "full"
    max_chars: int = 10**9


# -- which rows a person saw ---------------------------------------------------------------------------------------


def sent_rows(rows: Sequence[Row], remembered: Iterable[Remembered]) -> set[int]:
    """Rows that hold what a client said, by what the store remembers."""
    users = {row.id for row in rows if row.role == "user"}
    return {row_id for row_id, wire, _, _, given in remembered if wire and given != "[]" and row_id in users}


def visible(rows: Sequence[Row], sent: Collection[int] = ()) -> list[Row]:
    """The conversation as a person saw it: without summaries, and without the copies that compaction makes.

    ``sent``: rows of what a client said, which are shown whatever they look like.

    In-place compaction archives all rows and writes a batch: copies of the first few, a summary, copies of the newest.
    The rotating kind writes that batch into a new session. Rows of a batch have about the time of its summary or their
    original's. Copies keep the originals' order, so a message that says the same as an earlier one is none when its
    place is behind all of them. What a rewind took back is gone, with the original that it was a copy of.
    """
    odd = any(row.aside or row.summary for row in rows)
    rows = [replace(row, aside=False, summary=False) if row.id in sent else row for row in rows] if odd else list(rows)
    if not any(row.summary or row.session_id != rows[0].session_id for row in rows):
        return [_alive(row) for row in rows if not row.taken_back and not row.aside]
    summaries = [(row.session_id, row.timestamp) for row in rows if row.summary]
    shown: list[Row] = []
    gone: set[int] = set()
    places: dict[tuple[str, ...], list[int]] = {}
    cursor, copying, batch, session = -1, False, ("", 0.0), rows[0].session_id
    for row in rows:
        stamp = next((one for one in summaries if one[0] == row.session_id and _near(one[1], row.timestamp)), None)
        if row.session_id != session:
            copying, cursor, session, batch = True, -1, row.session_id, stamp or batch
        elif stamp is not None and stamp != batch:
            # A summary may stand behind copies that were known by their time: those stay in order.
            cursor = cursor if row.summary and copying and cursor < len(shown) - 1 else -1
            copying, batch = True, stamp
        if row.summary:
            copying = True
            if not row.content:
                continue
        if row.aside:
            continue
        twins = [place for place in places.get(row.key(), ()) if place not in gone]
        place = next((one for one in twins if one > cursor), None) if copying else None
        if place is None:
            place = next((one for one in twins if row.timestamp and shown[one].timestamp == row.timestamp), None)
        if place is not None:
            copying, cursor = True, place
            if row.taken_back:
                gone.add(place)
            elif not row.archived:
                shown[place] = replace(shown[place], live=(row.session_id, row.id))
            continue
        copying = copying and row.taken_back
        if row.taken_back:
            continue
        places.setdefault(row.key(), []).append(len(shown))
        shown.append(row if row.archived else _alive(row))
    return [row for place, row in enumerate(shown) if place not in gone]


def _alive(row: Row) -> Row:
    """It is what the model's memory has."""
    live = row.session_id, row.id
    return row if row.live == live else replace(row, live=live)


def _near(summary: float, time: float) -> bool:
    """Rows of a batch are written with times a microsecond apart (hermes_state.py, _insert_message_rows)."""
    return bool(summary) and abs(summary - time) < 0.005


# -- rows as messages ----------------------------------------------------------------------------------------------


def messages_of(rows: Sequence[Row], told: Told) -> list[Message]:
    """AG-UI messages of visible rows, tool calls paired, reasoning before its answer.

    Ids are those that were streamed, where they are remembered, else made of the row's; no call id comes twice. Rows
    of one id are one message (an answer that was cut and went on). Hermes's own words for a turn that was stopped are
    no answer and are left out.
    """
    made: list[Message] = []
    waiting: list[tuple[str, str]] = []  # calls without a result: the provider's id, the id on the wire
    used: set[str] = set()
    for row in rows:
        wire = told.ids.get(row.id) or f"row-{row.id}"
        if row.role == "tool":
            call_id = claimed(row, waiting)
            if call_id:
                sent = told.facts.get(row.id, Fact()).sent
                made.append({"id": wire, "role": "tool", "toolCallId": call_id, "content": row.content, **sent})
            continue
        _close(made, waiting)
        if row.role == "user":
            made += told.inputs.get(row.id) or [{"id": wire, "role": "user", "content": row.content}]
        elif row.role == "assistant" and not _unsaid(row, told):
            fact = told.facts.get(row.id, Fact())
            last = made[-1] if made else None
            if last is not None and last["id"] == wire and last["role"] == "assistant" and not row.calls:
                last["content"] = last.get("content", "") + (row.content if fact.text is None else fact.text)
            else:
                made += _assistant(row, told, used, waiting)
    _close(made, waiting)
    return made


def claimed(row: Row, waiting: list[tuple[str, str]]) -> str:
    """The id on the wire of the call that this result answers, "" if none; the call waits no more.

    ``waiting``: the provider's id and the id on the wire of each call without a result.
    """
    match = next((one for one in waiting if one[0] == row.call_id), None)
    if match is None and not row.call_id and waiting:
        match = waiting[0]  # the provider gave no id, and Hermes keeps none with the result
    if match is None:
        return ""
    waiting.remove(match)
    return match[1]


def _unsaid(row: Row, told: Told) -> bool:
    stopped = told.outcomes.get(row.id) in ("cancelled", "failed", "lost")
    return stopped and row.id not in told.ids and not row.calls


def _assistant(row: Row, told: Told, used: set[str], waiting: list[tuple[str, str]]) -> list[Message]:
    streamed, fact = row.id in told.ids, told.facts.get(row.id, Fact())
    wire = told.ids.get(row.id) or f"row-{row.id}"
    made: list[Message] = []
    thought = row.reasoning
    for message_id, said, thought_id, earlier in fact.before:
        if thought_id:
            made.append({"id": thought_id, "role": "reasoning", "content": earlier})
            thought = thought.strip().removeprefix(earlier.strip())
        made.append({"id": message_id, "role": "assistant", "content": said})
    if thought and (fact.reasoning or not streamed):  # some providers' is kept, but never streamed
        made.append({"id": fact.reasoning or f"{wire}-reasoning", "role": "reasoning", "content": thought})
    message: Message = {"id": wire, "role": "assistant"}
    text = row.content if fact.text is None else fact.text
    if text:
        message["content"] = text
    if row.calls:
        calls = []
        for index, call in enumerate(row.calls):
            call_id = fact.calls[index] if index < len(fact.calls) else call["id"]
            if not call_id or call_id in used:
                call_id = f"row-{row.id}-c{index}"
            used.add(call_id)
            waiting.append((call["id"], call_id))
            calls.append({**call, "id": call_id})
        message["toolCalls"] = calls
    if text or row.calls:
        made.append(message)
    return made


def _close(made: list[Message], waiting: list[tuple[str, str]]) -> None:
    """A call without a result (a turn cut by a crash) gets one, so that no client takes it for its own to run."""
    for _, call_id in waiting:
        made.append({"id": f"{call_id}-missing", "role": "tool", "toolCallId": call_id, "content": _NO_RESULT})
    waiting.clear()


def without_reasoning(messages: Sequence[Message]) -> list[Message]:
    """For a ``MESSAGES_SNAPSHOT``: reasoning and activity stay as the client has them."""
    return [message for message in messages if message["role"] not in ("reasoning", "activity")]


def seen_by(messages: Sequence[Message], sight: Sight, client_calls: Collection[str]) -> list[Message]:
    """What a client may see of these messages; calls that it ran itself (``client_calls``) are its own."""
    kept: list[Message] = []
    hidden: set[str] = set()
    for message in messages:
        if message["role"] == "reasoning" and sight.reasoning != "full":
            text = beginning(message["content"]) if sight.reasoning == "summary" else ""
            if not text:
                continue
            message = {**message, "content": text}
        if message["role"] == "tool" and message["toolCallId"] not in client_calls:
            if message["toolCallId"] in hidden:
                continue
            message = {**message, "content": _limited(message["content"], sight)}
        elif message.get("toolCalls") and sight.tool_output != "full":
            calls = []
            for call in message["toolCalls"]:
                if call["id"] in client_calls:
                    calls.append(call)
                elif sight.tool_output == "names":
                    calls.append({**call, "function": {**call["function"], "arguments": "{}"}})
                else:
                    hidden.add(call["id"])
            message = {name: value for name, value in message.items() if name != "toolCalls"}
            if calls:
                message["toolCalls"] = calls
            elif not message.get("content"):
                continue
        kept.append(message)
    return kept


def _limited(content: Any, sight: Sight) -> Any:
    if sight.tool_output == "names":
        return HIDDEN
    if isinstance(content, str) and len(content) > sight.max_chars:
        return f"{content[: sight.max_chars]}\n[cut: {len(content) - sight.max_chars} more characters]"
    return content


def as_json(fact: Fact) -> str:
    """A fact for the store; empty when there is nothing to say."""
    kept: dict[str, Any] = {} if fact.text is None else {"text": fact.text}
    for name in ("calls", "client", "reasoning", "before", "sent"):
        if value := getattr(fact, name):
            kept[name] = value if isinstance(value, str | dict) else list(value)
    return json.dumps(kept, ensure_ascii=False) if kept else ""


def from_json(text: str) -> Fact:
    """The opposite; anything unreadable says nothing."""
    try:
        given = json.loads(text) if text else {}
        return Fact(**given) if isinstance(given, dict) else Fact()
    except (ValueError, TypeError):
        return Fact()
