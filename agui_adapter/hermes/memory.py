"""The seam: what scopes an agent's long-term memory. Written for 0.19.0. Worker thread.

Hermes gives memory providers the session's key when it builds an agent, before any hook. A caller may name another
scope (`X-Hermes-Session-Key`, which Hermes's own api_server knows): then the turn gets a provider of its own, made as
agent_init.py makes one. It comes before the turn's recall, which follows the ``pre_llm_call`` hook (turn_context.py).
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("hermes_agui")

_TOLD = {  # of the agent, as agent_init.py hands it to a provider
    "user_id": "_user_id",
    "user_id_alt": "_user_id_alt",
    "user_name": "_user_name",
    "chat_id": "_chat_id",
    "chat_name": "_chat_name",
    "chat_type": "_chat_type",
    "thread_id": "_thread_id",
}


def scope(agent: Any, key: str) -> None:
    """Scope the agent's memory by this key from now on. Nothing to do without a provider, or where it is the same."""
    before = getattr(agent, "_memory_manager", None)
    if before is None or not before.providers or getattr(agent, "_gateway_session_key", None) == key:
        return
    try:
        from agent.memory_manager import MemoryManager
        from plugins.memory import load_memory_provider

        manager = MemoryManager()
        for provider in before.providers:
            fresh = load_memory_provider(provider.name)
            if fresh is not None and fresh.is_available():
                manager.add_provider(fresh)
        told = {name: getattr(agent, kept, None) for name, kept in _TOLD.items()}
        facts = {name: value for name, value in told.items() if value}
        manager.initialize_all(
            session_id=agent.session_id,
            platform=getattr(agent, "platform", None) or "agui",
            agent_context="primary",
            agent_identity=_profile(),
            agent_workspace="hermes",
            gateway_session_key=key,
            **facts,
        )
    except Exception:
        logger.exception("agui: long-term memory could not be scoped; the thread's own is used")
        return
    agent._memory_manager, agent._gateway_session_key = manager, key
    try:
        before.shutdown_all()
    except Exception:
        logger.debug("a memory provider did not end", exc_info=True)


def _profile() -> str:
    try:
        from hermes_cli.profiles import get_active_profile_name

        return str(get_active_profile_name())
    except Exception:
        return "default"
