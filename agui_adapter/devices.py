"""Devices: callers with a token of their own making, whom Hermes's pairing lets in or not.

An unknown one gets a pairing code as the answer to its first run. Hermes keeps three codes in all for an hour
(gateway/pairing.py), so only some of them are for devices.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection

from .errors import AguiError

TOKEN_CHARS = 32
"""Fewest characters of a device's token: it is the only secret, and was made by the device."""
MOST_TOKEN_CHARS = 512
KIND = "device-"

_PLACES = 2  # of Hermes's MAX_PENDING_PER_PLATFORM, 3
_SECONDS = 3600.0  # Hermes's CODE_TTL_SECONDS


def principal_of(token: str) -> str | None:
    """The id of a device with this token; None where it is no token for a device."""
    if not TOKEN_CHARS <= len(token) <= MOST_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        return None
    return KIND + hashlib.sha256(b"agui device\0" + token.encode()).hexdigest()[:40]


class Waiting:
    """The unknown devices that may ask for a code. On the loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def admit(self, principal_id: str, pending: Collection[str]) -> None:
        """An unknown device asks; ``pending`` have a code of Hermes's. Raises AguiError 429 where there is no place."""
        now = self._clock()
        self._since = {name: at for name, at in self._since.items() if now - at < _SECONDS}
        taken = self._since.keys() | {name for name in pending if name.startswith(KIND)}
        if principal_id not in taken and len(taken) >= _PLACES:
            oldest = min(self._since.values(), default=now)
            raise AguiError(
                429,
                "too_many_devices",
                "Too many new devices ask to be let in. The operator can approve or clear them (hermes pairing list).",
                retry_after=max(60, round(oldest + _SECONDS - now)),
            )
        self._since.setdefault(principal_id, now)

    def known(self, principal_id: str) -> None:
        """The device was let in: its place is free."""
        self._since.pop(principal_id, None)
