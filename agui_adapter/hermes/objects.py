"""The seam: what Hermes's objects say, read tolerantly. Nothing here changes them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from gateway import session_context

from ..stream import Usage
from ..tap import Call, Failure, without_thinking
from .history import beside, reached
from .redaction import redact

logger = logging.getLogger("hermes_agui")


def session_key_here() -> str:
    """The session key of the turn whose thread (or task) this runs in; empty outside a turn.

    By the context alone: Hermes's own reader falls back to the environment of the process, where 0.17 leaves the key of
    the newest turn, whoever's that is.
    """
    key = session_context._SESSION_KEY.get(None)
    return key if isinstance(key, str) else ""


def failure_of(kwargs: dict[str, Any]) -> Failure:
    error = kwargs.get("error") or {}
    message = redact(str(error.get("message") or "")) if isinstance(error, dict) else ""
    return Failure(error_code(kwargs.get("status_code"), str(kwargs.get("reason") or "")), message[:2000])


def calls_of(message: Any) -> list[Call]:
    calls = []
    for item in getattr(message, "tool_calls", None) or []:
        function = getattr(item, "function", None)
        arguments = getattr(function, "arguments", "")
        if not isinstance(arguments, str):
            arguments = as_json(arguments)
        calls.append(Call(str(getattr(item, "id", "") or ""), str(getattr(function, "name", "") or ""), arguments))
    return calls


def sealed_of(message: Any) -> str:
    """What of an answer's reasoning only its provider can read, word for word; Hermes keeps and replays it by itself
    (chat_completion_helpers.py, build_assistant_message)."""
    details = (getattr(message, name, None) for name in ("reasoning_details", "codex_reasoning_items"))
    items = [item if isinstance(item, dict) else vars(item) for some in details for item in some or []]
    sealed = [item for item in items if any(item.get(name) for name in ("data", "signature", "encrypted_content"))]
    return as_json(sealed) if sealed else ""


def shown_call(call: Call) -> Call:
    """A call through Hermes's ``tool_call`` bridge shows the tool that it reaches, as the history shows it later."""
    name, arguments = reached(call.name, call.arguments)
    return call if name == call.name else Call(call.id, name, arguments)


def tool_names(agent: Any) -> frozenset[str]:
    return frozenset(getattr(agent, "valid_tool_names", None) or ())


def unknown_tool(name: str, names: frozenset[str]) -> str:
    try:
        from agent.conversation_loop import _invalid_tool_name_error_content

        return str(_invalid_tool_name_error_content(name, names))
    except Exception:  # private to 0.19: the wording is all that depends on it
        return f"Tool '{name}' does not exist."


def unknown_calls(offered: Sequence[Call], left: Sequence[Call], names: frozenset[str]) -> list[tuple[Call, str]]:
    """Offered calls of unknown tools, which Hermes answers itself and does not run, each with what the model is told.

    Hermes drops repeated calls of a step (_deduplicate_tool_calls), those of unknown names too.
    """
    kept = {call.id for call in left}
    unknown = {
        (call.name, call.arguments): call
        for call in reversed(offered)
        if call.id not in kept and call.name not in names
    }
    return [(call, unknown_tool(call.name, names)) for call in reversed(unknown.values())]


def cut_answer(agent: Any) -> str | None:
    """The text of an answer that the newest history keeps although Hermes asks the model to go on.

    It was cut (by the length limit or a lost connection), or has to be verified first.
    """
    messages = getattr(agent, "_session_messages", None) or []
    if len(messages) < 2:
        return None
    before, last = messages[-2], messages[-1]
    if (
        isinstance(last, dict)
        and last.get("role") == "user"
        and isinstance(before, dict)
        and before.get("role") == "assistant"
        and before.get("finish_reason") in ("length", "incomplete", "verification_required")
    ):
        return without_thinking(text_of(before.get("content")))
    return None


def tool_results(agent: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for message in reversed(getattr(agent, "_session_messages", None) or []):
        if not isinstance(message, dict) or (message.get("role") == "user" and not beside(message)):
            break
        if message.get("role") == "tool":
            found[str(message.get("tool_call_id") or "")] = text_of(message.get("content"))
    return found


_NOT_FOR_KEEPS = ("_synthetic", "_sentinel", "_prefill")  # ends of the marks of what Hermes never writes


def is_kept(agent: Any) -> bool:
    """Whether the newest message of the agent's conversation is in Hermes's database.

    Hermes marks every message that it has written, and says to its log alone that one could not be (run_agent.py,
    _flush_messages_to_session_db).
    """
    for message in reversed(getattr(agent, "_session_messages", None) or []):
        if isinstance(message, dict) and not any(name.endswith(_NOT_FOR_KEEPS) for name in message):
            flushed = getattr(agent, "_flushed_db_message_ids", ())  # before 0.18 it remembers which instead
            return bool(message.get("_db_persisted")) or id(message) in flushed
    return True


def usage_of(kwargs: dict[str, Any]) -> Usage | None:
    usage = kwargs.get("usage")
    if not isinstance(usage, dict):
        return None

    def part(name: str) -> int | None:
        value = usage.get(name)
        return int(value) if value else None

    # Hermes writes 0 for a part that the provider does not tell; the totals are told whenever there is usage.
    return Usage(
        provider=str(kwargs.get("provider") or ""),
        model=str(kwargs.get("response_model") or kwargs.get("model") or ""),
        input_tokens=part("prompt_tokens") or 0,
        output_tokens=part("output_tokens") or 0,
        reasoning_tokens=part("reasoning_tokens"),
        cached_input_tokens=part("cache_read_tokens"),
        cache_write_input_tokens=part("cache_write_tokens"),
    )


def error_code(status: Any, reason: str) -> str:
    by_status = {401: "provider_auth", 402: "provider_billing", 403: "provider_auth", 404: "provider_model"}
    by_status |= {408: "provider_timeout", 413: "provider_context", 429: "provider_rate_limit"}
    if isinstance(status, int):
        if status in by_status:
            return by_status[status]
        return "provider_error" if status >= 500 else "provider_refused"
    if "timeout" in reason:
        return "provider_timeout"
    return "provider_error"


def is_error(content: str) -> bool:
    try:
        value = json.loads(content)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def maybe_text(value: Any) -> str | None:
    return None if value is None else text_of(value)


def text_of(value: Any) -> str:
    """A content as text: lists of parts give their text parts, other values their JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.get("_multimodal"):
        return str(value.get("text_summary") or "")
    if isinstance(value, list):
        return "\n".join(str(part.get("text")) for part in value if isinstance(part, dict) and part.get("text"))
    return as_json(value)
