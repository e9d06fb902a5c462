"""Who is calling, and what its token is good for. It knows neither HTTP nor Hermes, and imports nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: frozenset[Scope] = frozenset(("read", "run", "approve", "admin"))


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling. ``id`` is the gateway's user id; ``trusted`` means allowed by itself (the operator's key).

    ``scopes``: what its token is good for, beside what the gateway's own rules let it do: read threads, run turns,
    approve what waits, and administer (commands that change more than its own conversation). None by default: who
    stands behind a thread is not who calls.
    """

    id: str
    trusted: bool = False
    scopes: frozenset[Scope] = frozenset()

    def may(self, scope: Scope) -> bool:
        """Whether its token is good for this."""
        return scope in self.scopes
