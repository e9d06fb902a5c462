"""`GET /agui/capabilities`: AgentCapabilities (AG-UI 1.0), only what holds for this configuration, runtime and caller.

What cannot be known is left out: undeclared, not unsupported. The protocol has no way to ask for them; clients that
look do so at this address beside the agent's own.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ag_ui.core import (
    AgentCapabilities,
    ExecutionCapabilities,
    HumanInTheLoopCapabilities,
    IdentityCapabilities,
    MultiAgentCapabilities,
    MultimodalCapabilities,
    MultimodalInputCapabilities,
    MultimodalOutputCapabilities,
    OutputCapabilities,
    ReasoningCapabilities,
    StateCapabilities,
    Tool,
    ToolsCapabilities,
    TransportCapabilities,
)
from aiohttp import web

from . import __version__
from .config import Settings
from .encode import clean, dumps
from .hermes.abilities import Abilities, abilities
from .operation import operation

if TYPE_CHECKING:
    from .server import Server

_FRESH_SECONDS = 30.0  # what Hermes says of its tools is asked again after that


def add_routes(app: web.Application, server: Server) -> None:
    """The one route."""
    app.router.add_get("/agui/capabilities", Capabilities(server).get)


class Capabilities:
    """The route and what Hermes said last."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._known: Abilities | None = None
        self._asked_at = 0.0
        self._lock = asyncio.Lock()

    @operation("ag-ui", reply=dict[str, Any])
    async def get(self, request: web.Request) -> web.Response:
        """AG-UI's AgentCapabilities, true for this configuration and caller.

        A caller without access to the agent is told how to talk to it, and nothing of what it can do."""
        adapter = self._server.adapter
        principal = self._server.principal(request)
        source = adapter.build_source(
            "agui-capabilities", chat_type="dm", user_id=principal.id, role_authorized=principal.trusted
        )
        allowed = adapter.bridge.authorized(source)
        made = declared(
            self._server.settings,
            await self._abilities(source) if allowed else None,
            reason_blind=adapter.blind,
            observe=adapter.observer is not None and principal.trusted,
        )
        body = made.model_dump(by_alias=True, exclude_none=True, mode="json")
        return web.Response(body=dumps(clean(body)), content_type="application/json")

    async def _abilities(self, source: Any) -> Abilities:
        async with self._lock:
            if self._known is None or time.monotonic() - self._asked_at > _FRESH_SECONDS:
                runner = self._server.adapter.gateway_runner
                self._known = await asyncio.to_thread(abilities, runner, source)
                self._asked_at = time.monotonic()
            return self._known


def declared(
    settings: Settings, can: Abilities | None, *, reason_blind: str = "", observe: bool = False
) -> AgentCapabilities:
    """The capabilities. ``can`` None: the caller may not use the agent. ``reason_blind``: why turns are not streamed
    live (`Bridge.untappable`), empty when they are. ``observe``: whether the caller may watch other
    platforms' sessions."""
    live = not reason_blind
    identity = IdentityCapabilities(
        name="Hermes Agent",
        type="hermes-agent",
        description="A Hermes gateway behind AG-UI.",
        version=can.version or None if can is not None else None,
        metadata={"hermes": {"adapter": f"hermes-agui {__version__}"}},
    )
    transport = TransportCapabilities(
        streaming=live, websocket=False, http_binary=False, push_notifications=False, resumable=True
    )
    if can is None:
        text = "This caller may not use the agent yet: a first message brings a pairing code for the operator."
        return AgentCapabilities(identity=identity, transport=transport, custom={"hermes": {"access": text}})
    takes = settings.max_attachments > 0
    opens_files = takes and (can.has("read_file") or can.has("terminal"))
    return AgentCapabilities(
        identity=identity,
        transport=transport,
        tools=_tools(settings, can, live),
        output=OutputCapabilities(structured_output=False, supported_mime_types=["text/markdown"]),
        state=StateCapabilities(snapshots=True, deltas=live, memory=can.has("memory"), persistent_state=True),
        multi_agent=MultiAgentCapabilities(
            supported=live and can.has("delegate_task"), delegation=can.has("delegate_task"), handoffs=False
        ),
        reasoning=_reasoning(settings, live),
        multimodal=MultimodalCapabilities(
            input=MultimodalInputCapabilities(
                image=can.images if takes else False,
                audio=can.audio if takes else False,
                pdf=opens_files,
                file=opens_files,
            ),
            output=MultimodalOutputCapabilities(image=True, audio=True),
        ),
        execution=ExecutionCapabilities(
            code_execution=can.has("execute_code") or can.has("terminal"), max_iterations=can.max_iterations
        ),
        human_in_the_loop=HumanInTheLoopCapabilities(
            supported=live,
            approvals=live and can.approvals if can.approvals is not None else None,
            interventions=live,
            interrupts=live,
            approve_with_edits=False,
        ),
        custom={"hermes": _own(settings, reason_blind, observe)},
    )


def _tools(settings: Settings, can: Abilities, live: bool) -> ToolsCapabilities:
    """The server's tools, where calls of them are shown at all."""
    items = None
    if settings.tool_output != "off":
        items = [Tool(name=name, description=text, parameters=schema) for name, text, schema in can.tools]
    return ToolsCapabilities(supported=bool(can.tools), items=items, parallel_calls=True, client_provided=live)


def _reasoning(settings: Settings, live: bool) -> ReasoningCapabilities:
    shows = live and settings.reasoning != "off"
    return ReasoningCapabilities(
        supported=shows, streaming=shows, encrypted=None if shows and settings.reasoning == "full" else False
    )


def _own(settings: Settings, reason_blind: str, observe: bool) -> dict[str, Any]:
    own: dict[str, Any] = {
        "reasoning": settings.reasoning,
        "toolOutput": settings.tool_output,
        "steps": settings.steps,
        "overrides": list(settings.allow_overrides),
        "busy": settings.busy,
        "observe": observe,
        "maxAttachmentBytes": settings.max_attachment_bytes,
        "maxAttachments": settings.max_attachments,
    }
    if reason_blind:
        own["noLiveStream"] = reason_blind
    return own
