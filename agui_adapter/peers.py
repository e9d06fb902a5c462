"""What a peer can read, decided by the protocol version that it declares, absent that by what the operator expects.

The table is measured (`@ag-ui/client` 0.0.45, 0.0.53, 0.0.59 and 1.0.0), and every shape in it is fatal for a client
without its mark, or lost on it. A client that declares no version is taken for 0.0.59, which today's CopilotKit and
assistant-ui hold, unless `agui.undeclared_client` names an older one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("hermes_agui")

PROTOCOL_VERSION = "1.0"


@dataclass(frozen=True)
class Peer:
    """Which shapes may be sent. The defaults are those of a client that declares no version.

    ``cancelled_outcome``: ``RUN_FINISHED.outcome`` may be ``cancelled``. ``pending_tool_calls``: it may name them.
    ``part_results``: a tool result may be a list of parts. ``file_sources``: a restated message may hold a source of
    type ``file``. ``subagents``: ``SUBAGENT_*``; 0.0.59 reads them but nothing tells it from 0.0.53, which dies of
    them. ``bare_deltas``: the first that a run tells of the state may be a delta; a CopilotKit runtime on 0.0.59
    applies each run's deltas to ``{}`` when the run has ended (``compactEvents``), and its process dies of one that
    does not fit there. ``interrupts``: what is asked is read from the outcome; a peer without it is asked in words too.
    """

    cancelled_outcome: bool = False
    pending_tool_calls: bool = False
    part_results: bool = False
    file_sources: bool = False
    subagents: bool = False
    bare_deltas: bool = False
    interrupts: bool = True


MODERN = Peer(
    cancelled_outcome=True,
    pending_tool_calls=True,
    part_results=True,
    file_sources=True,
    subagents=True,
    bare_deltas=True,
)
OLD = Peer()
OLDEST = Peer(interrupts=False)

UNDECLARED = {"0.0.59": OLD, "0.0.53": OLDEST, "0.0.45": OLDEST}
"""Clients that declare no version. None of them ever gets an event type, an empty text delta or a null that it does
not know: those are sent to nobody."""


def peer_of(protocol_version: str | None, undeclared: str = "0.0.59") -> Peer:
    """The peer for ``RunAgentInput.protocolVersion``.

    One that cannot be read counts as newer (AG-UI 1.0, versioning); one from before 1.0 as one that declares none.
    """
    if not protocol_version or protocol_version.strip().startswith("0."):
        return UNDECLARED[undeclared]
    return MODERN


def readable(messages: Sequence[dict[str, Any]], peer: Peer) -> list[dict[str, Any]]:
    """Messages as this peer can read them: text in the place of a result's parts, no source that it does not know.

    What a newer client of the same thread has sent would else be fatal for an older one. What is left out is logged.
    """
    if peer.part_results and peer.file_sources:
        return list(messages)
    made = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            kept = [part for part in content if peer.file_sources or not _is_handle(part)]
            flat = message.get("role") == "tool" and not peer.part_results
            if flat:
                kept = [part for part in kept if part.get("type") == "text"]
            if len(kept) < len(content):
                logger.warning("agui: %d parts of a message left out for an older client", len(content) - len(kept))
            text = "\n".join(str(part.get("text")) for part in kept) if flat else ""
            message = {**message, "content": text if flat or not kept else kept}
        made.append(message)
    return made


def _is_handle(part: dict[str, Any]) -> bool:
    source = part.get("source")
    return isinstance(source, dict) and source.get("type") == "file"
