"""A turn whose log is gone, from what outlives it: how it ended, and what it answered. On the gateway's loop."""

from __future__ import annotations

from dataclasses import dataclass

from .archive import Archive
from .session import Thread


@dataclass(frozen=True)
class Past:
    """``outcome``: as ``TurnFinished``, or ``lost`` where the process died in it. ``started``: seconds, 0: unknown."""

    outcome: str
    text: str
    started: float = 0.0


async def past_turn(archive: Archive, thread: Thread, turn_id: str) -> Past:
    """How the turn ended, and its answer as the history keeps it: what was said behind its newest results."""
    await archive.load(thread)  # recovers one that the process died in
    history = await archive.messages(thread)

    def work() -> tuple[str, float, set[str]]:
        lineage = archive.sessions.lineage(archive.sessions.session_id(archive.key_of(thread)))
        rows = archive.store.remembered(lineage)
        mine = {wire or f"row-{row_id}" for row_id, wire, turn, *_ in rows if turn == turn_id}
        turn = archive.store.turn(turn_id)
        return (turn.outcome, turn.started, mine) if turn is not None else ("", 0.0, mine)

    outcome, started, mine = await archive.run(work)
    said: list[str] = []
    for message in history:
        if message["id"] not in mine:
            continue
        if message["role"] == "tool":
            said = []
        elif message["role"] == "assistant" and isinstance(message.get("content"), str) and message["content"].strip():
            said.append(message["content"].strip("\n"))
    return Past(outcome or "lost", "\n\n".join(said), started)
