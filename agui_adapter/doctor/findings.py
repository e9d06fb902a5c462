"""What the doctor finds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]
"""ok: nothing to do. note: good to know. warning: works, but not as it should. error: does not work."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``do`` says what to do about it, and is empty only where there is nothing."""

    check: str
    level: Level
    text: str
    do: str = ""
