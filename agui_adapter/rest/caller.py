"""What the headers of a request to OpenAI's API say: whose conversation it is, and how much it wants to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from aiohttp import web

from ..config import Settings
from ..errors import AguiError
from ..inputs import MAX_ID_CHARS
from ..session import Principal, chat_id_for
from .seen import Sight, ToolView

SESSION_ID = "X-Hermes-Session-Id"
SESSION_KEY = "X-Hermes-Session-Key"
TOOLS = "X-Hermes-Tools"
IGNORED = "X-Hermes-Ignored"
MAX_KEY_CHARS = 256
TAKEN = {
    SESSION_ID: "Goes on with this thread of the caller's, or begins it. X-Session-ID is another name.",
    SESSION_KEY: "Scopes long-term memory, whatever the thread.",
    TOOLS: "opaque, progress or transparent: what is seen of the agent's own tools.",
    "Idempotency-Key": "The same request sent again with the same key runs once.",
}
TOLD = {
    SESSION_ID: "The thread, where the request named one.",
    IGNORED: "What was left out of the request: overrides that the operator does not allow, hosted tools.",
}


@dataclass(frozen=True)
class Caller:
    """``session``: the thread that the caller goes on with, None for a request that is complete in itself.
    ``memory``: what long-term memory is scoped by, empty for the thread's own."""

    principal: Principal
    session: str | None
    session_key: str
    sight: Sight

    @property
    def memory(self) -> str:
        """The owner's key as it is, so that Hermes's own api_server finds the same memory; nobody else can name it."""
        if not self.session_key or self.principal.trusted:
            return self.session_key
        return chat_id_for(self.principal.id, self.session_key)

    def headers(self, ignored: tuple[str, ...] = ()) -> dict[str, str]:
        """What the response says of it."""
        made = {SESSION_ID: self.session or "", SESSION_KEY: self.session_key, IGNORED: ", ".join(ignored)}
        return {name: value for name, value in made.items() if value and value.isascii() and value.isprintable()}


def read_caller(request: web.Request, principal: Principal, settings: Settings) -> Caller:
    """Raises AguiError 422 for a header that cannot be."""
    given = request.headers
    session = given.get(SESSION_ID, "").strip() or given.get("X-Session-ID", "").strip() or None
    key = given.get(SESSION_KEY, "").strip()
    if session is not None and (len(session) > MAX_ID_CHARS or not session.isprintable()):
        raise AguiError(422, "invalid_session_id", f"{SESSION_ID} has 1 to {MAX_ID_CHARS} printable characters.")
    if len(key) > MAX_KEY_CHARS or not key.isprintable():
        raise AguiError(422, "invalid_session_key", f"{SESSION_KEY} has at most {MAX_KEY_CHARS} printable characters.")
    return Caller(principal, session, key, read_sight(given, settings))


def read_sight(headers: Mapping[str, str], settings: Settings) -> Sight:
    """What is shown: by the header, else by the setting; never more than the operator shows anybody."""
    tools = headers.get(TOOLS, "").strip().lower() or settings.rest_tools
    if tools not in ("opaque", "progress", "transparent"):
        raise AguiError(422, "invalid_input", f"{TOOLS} must be opaque, progress or transparent.")
    return Sight(cast(ToolView, tools), settings.tool_output, settings.rest_reasoning, settings.reasoning)
