"""The seam: what Hermes's pairing store says of a principal of this platform, for the command line and the gateway.

Written for 0.19.0. It is Hermes's own record of who may talk to the agent, and `hermes pairing list` shows it.
"""

from __future__ import annotations

from gateway.pairing import PairingStore

PLATFORM = "agui"


def grant(principal_id: str, name: str) -> None:
    """Let a principal in, as `hermes pairing approve` does for a code."""
    store = PairingStore()
    with store._lock:  # there is no public way without a code, and of those only a few at once
        store._approve_user(PLATFORM, principal_id, name)


def revoke(principal_id: str) -> bool:
    """The opposite; False where the principal was not let in so."""
    return bool(PairingStore().revoke(PLATFORM, principal_id))
