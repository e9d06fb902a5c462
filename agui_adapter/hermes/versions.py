"""The seam: what differs between versions of Hermes, told by what is there, never by a version number.

0.17 to 0.19 keep approvals in one module, 0.22 in several; a Hermes of a later day may move what we stand on. Then
``misfit`` says so at start, in words, instead of a door that half works.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from .. import __version__

TESTED = "0.17.0, 0.18.2, 0.19.0 and 0.22.2"
"""The versions that it was seen to run on (docs/versions.md), for the sentence that names another one."""

_APPROVALS = ("tools.approval", "tools.approval_context")

# What no turn can be carried without: a module or an object, and what must be there. What only a route needs is asked
# for where it is used, and that route says so.
_MODULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tools.approval", ("_gateway_queues", "_gateway_notify_cbs", "_lock", "resolve_gateway_approval")),
    ("tools.clarify_gateway", ("get_clarify_timeout", "resolve_gateway_clarify")),
    ("tools.interrupt", ("is_interrupted",)),
    ("gateway.session_context", ("_SESSION_KEY",)),
    ("tools.environments.base", ("touch_activity_if_due",)),
)
_ASKING = ("_get_approval_timeout", "_approval_session_key", "set_current_session_key")
_RUNNER = (
    "_agent_cache",
    "_running_agents",
    "_session_key_for_source",
    "_is_user_authorized",
    "session_store",
)
_PAIRING = ("_pairing_store_for", "pairing_store")  # one of them: before 0.18 there is one store for all profiles
_ADAPTER = ("_active_sessions", "handle_message", "build_source", "on_processing_start", "on_processing_complete")
_HOOKS: tuple[str, ...] = ("pre_llm_call", "post_api_request", "api_request_error", "post_tool_call", "on_session_end")
_HOOKS += ("pre_approval_request", "post_approval_response")


def misfit(adapter: Any) -> str:
    """Why this Hermes cannot carry us, in a sentence that says what to do; empty when it can. Imports tools."""
    missing = [f"{module}.{name}" for module, names in _MODULES for name in names if not _has(module, name)]
    missing += [f"approvals.{name}" for name in _ASKING if not _asks(name)]
    runner = getattr(adapter, "gateway_runner", None)
    missing += [f"gateway.{name}" for name in _RUNNER if not hasattr(runner, name)]
    missing += [] if any(hasattr(runner, name) for name in _PAIRING) else ["gateway.pairing_store"]
    missing += [f"adapter.{name}" for name in _ADAPTER if not hasattr(adapter, name)]
    from hermes_cli import plugins

    known = getattr(plugins, "VALID_HOOKS", _HOOKS)
    missing += [f"hook {name}" for name in _HOOKS if name not in known]
    return sentence(missing) if missing else ""


def sentence(missing: Sequence[str]) -> str:
    """What to say and do about a Hermes that lacks these."""
    return (
        f"Hermes {version()} lacks what hermes-agui {__version__} stands on ({', '.join(missing)}). hermes-agui runs "
        f"on Hermes {TESTED}: update the older of the two (`hermes update`, `pip install -U hermes-agui`)."
    )


def approvals(name: str) -> Any:
    """A name of Hermes's approvals, wherever this version keeps it. Raises AttributeError."""
    for module in _APPROVALS:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"this Hermes has no {name} in {' or '.join(_APPROVALS)}")


def _asks(name: str) -> bool:
    try:
        approvals(name)
    except AttributeError:
        return False
    return True


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def version() -> str:
    """Hermes's own word for its version; "unknown" without one."""
    try:
        import hermes_cli

        return str(hermes_cli.__version__)
    except (ImportError, AttributeError):
        return "unknown"


def session_id_of(store: Any, session_key: str) -> str | None:
    """The session that a key stands on now; None for a key that is not known. Any thread."""
    peek = getattr(store, "peek_session_id", None)
    if peek is not None:
        found: str | None = peek(session_key)
        return found
    with store._lock:  # before 0.18
        store._ensure_loaded_locked()
        entry = store._entries.get(session_key)
    return getattr(entry, "session_id", None)


def asks_for_home(text: str) -> bool:
    """Whether Hermes asks for a home channel, as it does in every new chat until there is one, whatever the settings
    and the adapter say (_handle_message_with_agent). To set one per browser tab is no use: it is not shown."""
    return text.startswith("📬 No home channel is set for ") or (bool(text) and text.startswith(_home_words()))


def tells_of_interrupt(text: str) -> bool:
    """Whether this only says that an interrupt met a request of the model's. From 0.18 on Hermes sends no such answer:
    how the turn ended is told anyway."""
    try:
        from agent.conversation_loop import INTERRUPT_WAITING_FOR_MODEL_PREFIX as begins
    except ImportError:
        return False
    return text.lstrip().startswith(begins)


@functools.cache
def keeps_context() -> bool:
    """Whether Hermes keeps with a user's message what a hook has said to the model there. Before 0.19 it is in that
    turn's requests alone."""
    return _has("agent.turn_context", "compose_user_api_content")


@functools.cache
def is_before_lineages() -> bool:
    """Whether it lacks what came with 0.18: compaction that deletes nothing, and a tool's result that is stored
    before a text is steered behind it."""
    from hermes_state import SessionDB

    return not hasattr(SessionDB, "get_compression_lineage")


def weakness() -> str:
    """What this Hermes does to its users that a newer one does not, in a sentence for the log; empty for nothing."""
    if not is_before_lineages():
        return ""
    return (
        f"Hermes {version()} deletes older messages for good when a conversation has grown long (400 messages, or most "
        "of the model's context) and is summed up before a turn. 0.18 and later keep them: run `hermes update`."
    )


@functools.cache
def _home_words() -> tuple[str, ...]:
    """How Hermes 0.22 begins that in its user's language; its words are in catalogs."""
    try:
        from agent.i18n import t

        begins = str(t("gateway.notify.no_home_channel", platform="\0", sethome_cmd="\0")).partition("\0")[0]
    except Exception:  # no catalogs before
        return ()
    return (begins,) if begins.strip() else ()
