"""The shared state as the model sees it: what it is told with a message, and the two tools that read and change it.

Pure: documents and arguments in, text and changes out. Keeping and streaming the document is ``document.py``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .encode import dumps
from .state import Json, StateError, bare, diff, pointer_of, read
from .tools import ClientTool

MAX_CHARS = 8_000  # of what rides in a user message: beyond 10,000 Hermes spills it into a file
MAX_READ_CHARS = 20_000  # of one answer of read_app_state
_OUTLINE = 30  # members that an outline names

_POINTER = {
    "type": "string",
    "description": "JSON Pointer (RFC 6901), like /cart/0/name; ~1 stands for / and ~0 for ~ inside a member.",
}
READ = ClientTool(
    "read_app_state",
    "Read the state of the application that the user sees: all of it, or the part at a JSON Pointer. Long parts come "
    "in pieces; go on with the offset that the answer names.",
    {
        "type": "object",
        "properties": {
            "pointer": _POINTER,
            "offset": {"type": "integer", "description": "Where to go on reading a long part, in characters."},
        },
    },
)
SET = ClientTool(
    "set_app_state",
    "Change the state of the application that the user sees; the user sees the change at once. Each change sets the "
    "value at a JSON Pointer, or removes it; missing parents become objects, and /list/- appends to a list. All "
    "changes are made or none. Whole numbers beyond 2^53 are kept as text.",
    {
        "type": "object",
        "properties": {
            "changes": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "pointer": _POINTER,
                        "value": {"description": "Any JSON value."},
                        "remove": {"type": "boolean", "description": "true: remove what is there."},
                    },
                    "required": ["pointer"],
                },
            }
        },
        "required": ["changes"],
    },
)
STATE_TOOLS = (READ, SET)
STATE_TOOL_NAMES = frozenset(tool.name for tool in STATE_TOOLS)


def told(context: str, state: Json, before: Json, *, changed: bool) -> str:
    """What a message tells the model: the client's context, and the state if it ``changed`` since it was told.

    ``before`` is what the model knows of the state, None if that is not known (any more).
    """
    shown = _shown(state, before, MAX_CHARS - min(len(context), MAX_CHARS // 2) - 2) if changed else ""
    room = MAX_CHARS - len(shown) - 2
    if len(context) > room:
        context = context[: room - 20] + "\n[cut: too long]"
    return "\n\n".join(part for part in (context, shown) if part)


def _shown(state: Json, before: Json, room: int) -> str:
    state, before = bare(state), bare(before)
    if state in (None, {}):
        return "The application the user sees has no state any more."
    whole = f"State of the application the user sees, as JSON: {dumps(state).decode()}"
    if len(whole) <= room:
        return whole
    lines = [f"The state of the application the user sees is large ({len(whole)} characters as JSON). Its members:"]
    lines += outline(state)
    news = diff(before, state) if isinstance(before, (dict, list)) else []
    if news:
        lines.append("Changed since you saw it last:")
        lines += [_news(operation) for operation in news[:_OUTLINE]]
        if len(news) > _OUTLINE:
            lines.append(f"and {len(news) - _OUTLINE} more")
    lines.append(f"Read what you need with {READ.name}.")
    text = "\n".join(lines)
    return text if len(text) <= room else text[: room - 60] + f"\n[cut] Read what you need with {READ.name}."


def _news(operation: Mapping[str, Any]) -> str:
    if operation["op"] == "remove":
        return f"- {operation['path']} is gone"
    value = dumps(operation["value"]).decode()
    return f"- {operation['path']}: {value if len(value) <= 200 else _kind(operation['value'])}"


def outline(value: Json) -> list[str]:
    """A line for each member of an object or list, as far as they are few."""
    if isinstance(value, dict):
        lines = [f"- {pointer_of([key])[:200]}: {_kind(item)}" for key, item in list(value.items())[:_OUTLINE]]
    elif isinstance(value, list):
        lines = [f"- /{index}: {_kind(item)}" for index, item in enumerate(value[:_OUTLINE])]
    else:
        return []
    return [*lines, f"- and {len(value) - _OUTLINE} more"] if len(value) > _OUTLINE else lines


def _kind(value: Json) -> str:
    if isinstance(value, dict):
        return f"object with {len(value)} members"
    if isinstance(value, list):
        return f"list with {len(value)} items"
    text = dumps(value).decode()
    return text if len(text) <= 80 else f"text with {len(value)} characters" if isinstance(value, str) else text[:80]


def answer_read(state: Json, args: Any) -> str:
    """The result of ``read_app_state``."""
    args = args if isinstance(args, dict) else {}
    pointer, offset = args.get("pointer") or "", args.get("offset") or 0
    if not isinstance(pointer, str):
        return _error("pointer must be a text, like /cart/0.")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        return _error("offset must be a number of characters.")
    state = bare(state)
    try:
        value = read({} if state is None else state, pointer)
    except StateError as error:
        return _error(str(error))
    text = dumps(value).decode()
    if not offset and len(text) <= MAX_READ_CHARS:
        return _result({"pointer": pointer, "value": value})
    end = offset + MAX_READ_CHARS
    piece = {"pointer": pointer, "json": text[offset:end], "offset": offset, "characters": len(text)}
    if end < len(text):
        piece["nextOffset"] = end
    if not offset:
        piece["members"] = outline(value)
    return _result(piece)


def changes_of(args: Any) -> list[tuple[str, bool, Json]]:
    """The arguments of ``set_app_state``: (pointer, whether it is removed, value). Raises StateError.

    A single change without a list, as some models send it, is taken too.
    """
    given = args.get("changes", args) if isinstance(args, dict) else args
    if isinstance(given, dict):
        given = [given]
    if not isinstance(given, list) or not given:
        raise StateError('Give changes, a list of {"pointer": …, "value": …} or {"pointer": …, "remove": true}.')
    changes = []
    for one in given:
        pointer = one.get("pointer") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(pointer, str):
            raise StateError("Each change needs a pointer, like /cart/0/name.")
        gone = one.get("remove") is True
        if gone == ("value" in one):
            raise StateError(f"{pointer}: give a value, or remove: true.")
        changes.append((pointer, gone, one.get("value")))
    return changes


def answer_set(changes: list[tuple[str, bool, Json]]) -> str:
    """The result of ``set_app_state`` when it was done."""
    return _result({"ok": True, "changed": [pointer for pointer, _, _ in changes]})


def answer_error(error: StateError) -> str:
    """The result when nothing was done."""
    return _error(f"{error} Nothing was changed.")


def _result(value: Any) -> str:
    return dumps(value).decode()


def _error(message: str) -> str:
    return _result({"error": message})
