"""The seam: everything that touches Hermes's internals, and the only code that differs by Hermes version (0.19.0).

``hooks`` hears what Hermes tells plugins, ``bridge`` asks the gateway, ``objects`` reads agents and messages; the other
modules each know one part of Hermes: questions, sessions, actions, media, subagents, other platforms' turns, warm-up.
The plugin entry looks this package up by name and calls ``on_hook`` and ``around_tool``.
"""

from .bridge import Bridge
from .hooks import around_tool, on_hook
from .objects import session_key_here
from .redaction import hide, redact, redact_lines

__all__ = ["Bridge", "around_tool", "hide", "on_hook", "redact", "redact_lines", "session_key_here"]
