"""The same MCP server over SLIM (AGNTCY): agents on other machines reach this one by its name, over a SLIM node.

A transport and nothing else: each SLIM session becomes a session at the gateway's `/mcp` (``relay``), so that what
holds there holds here. Needs the extra `slim`; slim-mcp makes the app and the streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from .relay import Json, Relay

logger = logging.getLogger("hermes_agui.mcp")

SECRET = "SLIM_SHARED_SECRET"
_LENGTH = 32  # characters that SLIM itself demands
FAILED, USAGE = 1, 2


def serve(endpoint: str, name: str, url: str, token: str | None) -> int:
    """Serve under ``name`` (org/ns/agent) on the node at ``endpoint`` until it is interrupted; the exit code."""
    parts = name.split("/")
    secret = os.environ.get(SECRET, "")
    wrong = ""
    if len(parts) != 3 or not all(parts):
        wrong = "--slim needs --name org/ns/agent"
    elif len(secret) < _LENGTH:
        wrong = (
            f"put {SECRET} ({_LENGTH} characters or more) into the environment: who knows it may use this agent; "
            "`openssl rand -hex 24` makes a good one"
        )
    elif importlib.util.find_spec("slim_mcp") is None:
        wrong = "SLIM needs more packages: pip install 'hermes-agui[slim]'"
    if wrong:
        print(f"hermes-agui mcp: {wrong}", file=sys.stderr)
        return USAGE
    try:
        asyncio.run(_serve(endpoint, parts, secret, url, token))
    except KeyboardInterrupt:
        return 0
    except Exception as error:
        print(f"hermes-agui mcp: SLIM failed at {endpoint}: {error}", file=sys.stderr)
        return FAILED
    return 0


async def _serve(endpoint: str, parts: list[str], secret: str, url: str, token: str | None) -> None:
    slim_bindings: Any = importlib.import_module("slim_bindings")
    slim_mcp: Any = importlib.import_module("slim_mcp")
    secure = endpoint.startswith("https://")
    make = slim_bindings.new_secure_client_config if secure else slim_bindings.new_insecure_client_config
    name = slim_bindings.Name(*parts)
    app, _ = await slim_mcp.create_local_app(name, make(endpoint), shared_secret=secret)
    logger.info("serving %s as %s on SLIM at %s", url, "/".join(parts), endpoint)
    sessions: set[asyncio.Task[None]] = set()
    listening = asyncio.create_task(_listen(app, slim_mcp, sessions, url, token))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, listening.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await listening
    finally:
        for session in sessions:
            session.cancel()
        if sessions:
            await asyncio.wait(sessions, timeout=5)


# slim-mcp's run_mcp_server wants the server in this process, keeps no hold of its tasks, and spins when the app ends.
async def _listen(app: Any, slim_mcp: Any, sessions: set[asyncio.Task[None]], url: str, token: str | None) -> None:
    while True:
        session = await app.listen_for_session_async(timeout=None)
        task = asyncio.create_task(_one(session, slim_mcp, url, token))
        sessions.add(task)
        task.add_done_callback(sessions.discard)


async def _one(session: Any, slim_mcp: Any, url: str, token: str | None) -> None:
    message_type: Any = importlib.import_module("mcp.shared.message").SessionMessage
    json_type: Any = importlib.import_module("mcp.types").JSONRPCMessage
    try:
        async with slim_mcp.server_create_mcp_streams(session) as (read, write):

            async def send(message: Json) -> None:
                await write.send(message_type(message=json_type.model_validate(message)))

            async def incoming() -> AsyncIterator[Json]:
                async for one in read:
                    if isinstance(one, Exception):
                        logger.info("a message on SLIM was not understood: %s", one)
                    else:
                        yield one.message.model_dump(by_alias=True, mode="json", exclude_none=True)

            await Relay(url, token, send).run(incoming())
    except Exception:
        logger.exception("a session on SLIM broke")
