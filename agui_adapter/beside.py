"""Messages that Hermes's history has not, put where they belong in a conversation: late ones, commands. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .history import Message, Row


def mirrored(
    late: Sequence[tuple[str, int, str]], rows: Sequence[Row], ids: dict[int, str]
) -> list[tuple[str, int, str]]:
    """Late messages that the history has not. One that it has (``send_message`` writes what it sends into the session
    of the chat, gateway/mirror.py) gives its id to the row."""
    left = []
    for message_id, after, text in late:
        for row in rows:
            if row.id > after and row.id not in ids and mirrors(row, text):
                ids[row.id] = message_id
                break
        else:
            left.append((message_id, after, text))
    return left


def mirrors(row: Row, text: str, since: float = 0.0) -> bool:
    """Whether the row says just this, not before ``since``."""
    spoken = row.role == "assistant" and not row.calls and row.timestamp >= since
    return spoken and row.content.strip() == text.strip()


def as_messages(late: Sequence[tuple[str, int, str]]) -> list[tuple[int, Message]]:
    """Each late message behind its row."""
    return [(after, {"id": message_id, "role": "assistant", "content": text}) for message_id, after, text in late]


def with_beside(
    made: list[Message],
    rows: Sequence[Row],
    ids: dict[int, str],
    inputs: dict[int, list[Message]],
    beside: Sequence[tuple[int, list[Message]]],
) -> list[Message]:
    """Messages that Hermes's history has not, each behind the row that it came after."""
    order = {ids.get(row.id, f"row-{row.id}"): row.id for row in rows}
    for row_id, messages in inputs.items():
        order.update((message["id"], row_id) for message in messages)
    merged: list[Message] = []
    waiting = list(beside)
    position = 0
    for message, own in zip(made, reversed(_owners(made)), strict=True):
        position = max(position, order.get(own["id"], position))
        while waiting and waiting[0][0] < position:
            merged += waiting.pop(0)[1]
        merged.append(message)
    return merged + [message for _, messages in waiting for message in messages]


def _owners(made: Sequence[Message]) -> list[Message]:
    """From the last message to the first, which one says what row it is of: reasoning is of what comes behind it."""
    owners: list[Message] = []
    behind: Message | None = None
    for message in reversed(made):
        behind = message if message["role"] != "reasoning" else behind
        owners.append(behind or message)
    return owners
