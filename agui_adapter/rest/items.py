"""The items of the Responses API ↔ messages in the form that every door uses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AguiError
from .conversation import Message, parts, wrong

Item = dict[str, Any]

MAX_INLINE_CHARS = 256 * 1024  # of data that is kept with a response's input
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


def read_items(data: Any, *, most: int, prefix: str) -> list[Item]:
    """``input`` as items with ids. Raises AguiError 413 or 422. ``prefix`` makes the ids."""
    if isinstance(data, str):
        data = [{"role": "user", "content": data}]
    if not isinstance(data, list) or not data:
        raise wrong("input", "a text or a list of items that is not empty")
    if len(data) > most:
        raise AguiError(413, "too_many_messages", f"At most {most} items are taken; send the newest ones.")
    items = []
    for index, item in enumerate(data):
        if isinstance(item, str):
            item = {"role": "user", "content": item}
        if not isinstance(item, dict):
            raise wrong(f"input[{index}]", "an object")
        kind = item.get("type") or "message"
        if kind == "message":
            content = item.get("content")
            if isinstance(content, str):
                part = "output_text" if item.get("role") == "assistant" else "input_text"
                content = [{"type": part, "text": content}]
            item = {**item, "type": "message", "status": "completed", "content": content}
        made_id = item.get("id") if isinstance(item.get("id"), str) else None
        items.append({**item, "type": kind, "id": made_id or f"{prefix}_{index}"})
    return items


def messages_of(items: Sequence[Item], *, name: str = "input") -> list[Message]:
    """What items say, in AG-UI's form. Raises AguiError 422.

    Items of kinds that say nothing to an agent (reasoning, the calls of hosted tools) are passed over.
    """
    made: list[Message] = []
    for index, item in enumerate(items):
        where, kind = f"{name}[{index}]", item.get("type")
        if kind == "message":
            role = _ROLES.get(str(item.get("role")))
            if role is None:
                raise wrong(f"{where}.role", "user, assistant, system or developer")
            content = parts(item.get("content"), f"{where}.content")
            if role != "user" and not isinstance(content, str):
                content = "\n".join(part["text"] for part in content if part["type"] == "text")
            made.append({"id": item["id"], "role": role, "content": content})
        elif kind in ("function_call", "custom_tool_call"):
            call_id, called = item.get("call_id"), item.get("name")
            if not isinstance(call_id, str) or not isinstance(called, str):
                raise wrong(where, "a call with call_id and name")
            arguments = item.get("arguments", "{}")
            function = {"name": called, "arguments": arguments if isinstance(arguments, str) else "{}"}
            call = {"id": call_id, "type": "function", "function": function}
            if made and made[-1]["role"] == "assistant":
                made[-1].setdefault("toolCalls", []).append(call)
            else:
                made.append({"id": item["id"], "role": "assistant", "content": "", "toolCalls": [call]})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            call_id = item.get("call_id")
            if not isinstance(call_id, str):
                raise wrong(f"{where}.call_id", "the id of the call that this answers")
            output = parts(item.get("output") or "", f"{where}.output")
            made.append({"id": item["id"], "role": "tool", "toolCallId": call_id, "content": output})
    return made


def kept(items: Sequence[Item]) -> list[Item]:
    """Items as they are kept: without large inline data."""
    return [_kept(item) for item in items]


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _kept(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_kept(inner) for inner in value]
    if isinstance(value, str) and len(value) > MAX_INLINE_CHARS and " " not in value[:1000]:
        return "data:text/plain,[left out: too large to be kept]"
    return value
