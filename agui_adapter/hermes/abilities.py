"""The seam: what this gateway's agent can do on our platform, for `capabilities.py`. Written for 0.19.0.

Blocks for a moment (tool checks, configuration); on a thread. What cannot be told for certain is None.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from .versions import approvals, version

logger = logging.getLogger("hermes_agui")

T = TypeVar("T")
Tools: TypeAlias = tuple[tuple[str, str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Abilities:
    """``tools``: name, description and JSON Schema of each tool of the platform's toolsets."""

    version: str = ""
    tools: Tools = ()
    images: bool | None = None
    audio: bool | None = None
    approvals: bool | None = None
    max_iterations: int | None = None

    def has(self, name: str) -> bool:
        """Whether the agent has this tool."""
        return any(tool == name for tool, _, _ in self.tools)


def abilities(runner: Any, source: Any) -> Abilities:
    """What the agent of this sender can do now."""
    none: Tools = ()
    tools = _softly(lambda: _tools(source.platform.value), none)
    names = {name for name, _, _ in tools}
    native = _softly(lambda: runner._decide_image_input_mode(source=source) == "native", False)
    return Abilities(
        version=version(),
        tools=tools,
        images=True if native or "vision_analyze" in names else None,
        audio=_softly(lambda: _audio(runner), None),
        approvals=_softly(_approvals, None),
        max_iterations=_softly(lambda: int(os.environ["HERMES_MAX_ITERATIONS"]), None),
    )


def _softly(ask: Callable[[], T], otherwise: T) -> T:
    try:
        return ask()
    except Exception:
        logger.debug("agui: an ability cannot be told", exc_info=True)
        return otherwise


def _tools(platform: str) -> Tools:
    """As the gateway resolves them for each agent (run.py, run_sync); behind tool_search too."""
    import model_tools
    from gateway.run import _load_gateway_config
    from hermes_cli.tools_config import _get_platform_tools

    toolsets = sorted(_get_platform_tools(_load_gateway_config(), platform))
    before = model_tools._last_resolved_tool_names
    try:
        made = model_tools.get_tool_definitions(toolsets, quiet_mode=True, skip_tool_search_assembly=True)
    finally:
        model_tools._last_resolved_tool_names = before  # what the newest agent has, not what was asked here
    functions = [tool["function"] for tool in made]
    return tuple(
        (str(each["name"]), str(each.get("description") or ""), dict(each.get("parameters") or {}))
        for each in functions
    )


def _audio(runner: Any) -> bool | None:
    """Whether voice is transcribed: no where it is switched off, yes where it needs nothing that could be missing."""
    from tools import transcription_tools as stt

    if not getattr(runner.config, "stt_enabled", True) or not stt.is_stt_enabled():
        return False
    return True if stt._HAS_FASTER_WHISPER or stt._has_local_command() else None


def _approvals() -> bool:
    return approvals("_get_approval_mode")() != "off" and not approvals("is_approval_bypass_active")()
