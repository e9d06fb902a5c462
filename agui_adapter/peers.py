"""What a peer can read, decided by the protocol version that it declares.

A client that declares none is taken for the oldest in wide use (``@ag-ui/client`` 0.0.59 inside CopilotKit and
assistant-ui), for which several shapes of 1.0 are fatal: measured, see the compatibility table in the README.
"""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOL_VERSION = "1.0"


@dataclass(frozen=True)
class Peer:
    """Which newer shapes may be sent. The defaults are the conservative ones."""

    version: str = ""
    cancelled_outcome: bool = False
    pending_tool_calls: bool = False
    part_results: bool = False
    subagents: bool = False


MODERN = Peer(PROTOCOL_VERSION, cancelled_outcome=True, pending_tool_calls=True, part_results=True, subagents=True)
OLD = Peer()


def peer_of(protocol_version: str | None) -> Peer:
    """The peer for ``RunAgentInput.protocolVersion``; one that cannot be read counts as newer (1.0, versioning)."""
    return MODERN if protocol_version else OLD
