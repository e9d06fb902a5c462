"""A turn as messages: what it streamed, with its reasoning, and what the user said while it ran. Pure but for the log.

The archive shows it while it runs, and pairs it with Hermes's rows when it is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from .events import AguiStream, View
from .history import Message
from .pairing import Streamed
from .reasoning import beginning
from .session import Turn
from .stream import MessageChunk, MessageStart, ReasoningChunk, ReasoningStart, StreamEvent, ToolCall

_ALL = View()


def kept_messages(turn: Turn, until: int | None = None, view: View = _ALL) -> list[Message]:
    """What a turn streamed so far, as a client holds it; without reasoning."""
    stream = AguiStream(turn.thread.thread_id, turn.id, prefix=turn.id, view=view)
    for event in turn.log.events(until=until):
        stream.feed_past_parks(event)
    messages = stream.messages()
    for message in messages:
        if message["role"] == "tool":
            message["id"] = turn.answered_by.get(message["toolCallId"], message["id"])
            message |= turn.answered_with.get(message["toolCallId"], {})
    return messages


def turn_messages(turn: Turn, until: int | None = None, view: View = _ALL) -> list[Message]:
    """The same with reasoning, each stretch before the assistant message that came next."""
    messages = kept_messages(turn, until, view)
    if view.reasoning == "off":
        return messages
    there = {message["id"] for message in messages}
    before: dict[str, list[Message]] = {}
    waiting: list[Message] = []
    for stretch, anchor in _stretches(turn.log.events(until=until)):
        if view.reasoning == "summary":
            stretch["content"] = beginning(stretch["content"])
        waiting += [stretch] if stretch["content"] else []
        if anchor in there:
            before.setdefault(anchor, []).extend(waiting)
            waiting = []
    return [one for message in messages for one in (*before.get(message["id"], ()), message)] + waiting


def with_heard(turn: Turn, messages: Sequence[Message], until: int | None = None) -> list[Message]:
    """A turn's messages and what the user said meanwhile, each behind what had been said by then."""
    made = list(messages)
    for position, message in turn.heard:
        if (until is None or position <= until) and all(one["id"] != message["id"] for one in made):
            made.insert(_place(made, anchor_at(turn, position)), message)
    return made


def anchor_at(turn: Turn, position: int) -> str:
    """The id of the newest message at a position; empty when the turn had none."""
    kept = kept_messages(turn, position)
    return str(kept[-1]["id"]) if kept else ""


def _place(messages: Sequence[Message], anchor: str) -> int:
    """Behind this message; a step's results belong to it."""
    place = next((index + 1 for index, message in enumerate(messages) if message["id"] == anchor), 0)
    while place < len(messages) and messages[place]["role"] == "tool":
        place += 1
    return place


def _stretches(events: Sequence[StreamEvent]) -> list[tuple[Message, str]]:
    """Reasoning messages, each with the id of the assistant message that came first behind it; "" for none yet."""
    found: list[tuple[str, list[str]]] = []
    anchors: list[str] = []
    known: set[str] = set()
    text_id = ""
    for event in events:
        if isinstance(event, ReasoningStart):
            found.append((event.message_id, []))
        elif isinstance(event, ReasoningChunk) and found:
            found[-1][1].append(event.text)
        elif isinstance(event, MessageStart):
            text_id = event.message_id
        elif isinstance(event, MessageChunk | ToolCall):
            message_id = event.message_id if isinstance(event, ToolCall) else text_id
            if message_id and message_id not in known:
                known.add(message_id)
                anchors += [message_id] * (len(found) - len(anchors))
    anchors += [""] * (len(found) - len(anchors))
    return [
        ({"id": message_id, "role": "reasoning", "content": "".join(texts)}, anchor)
        for (message_id, texts), anchor in zip(found, anchors, strict=True)
    ]


def streamed_by(turn: Turn) -> Streamed:
    """What pairing needs to know of it."""
    reasoning: dict[str, str] = {}
    thoughts: dict[str, str] = {}
    for stretch, anchor in _stretches(turn.log.events()):
        if anchor and stretch["content"]:
            reasoning.setdefault(anchor, stretch["id"])
            thoughts[stretch["id"]] = stretch["content"]
    client = {event.call_id for event in turn.log.events() if isinstance(event, ToolCall) and event.client}
    return Streamed(kept_messages(turn), reasoning, client, thoughts)
