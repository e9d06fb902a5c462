"""JSON Patch (RFC 6902) as the TypeScript client applies it, strictly and atomically.

Pure: the document that is passed in is never changed. Operations must already have the right shape.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

# fast-json-patch refuses these members, against prototype pollution.
_FORBIDDEN = {"__proto__"}


class PatchError(ValueError):
    """An operation that does not apply; its text says which one and why."""


def apply_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The patched document (any JSON value), which shares what did not change with the old one.

    Raises PatchError when one operation fails; then nothing is applied.
    """
    for number, operation in enumerate(operations):
        try:
            document = _apply(document, operation)
        except PatchError as problem:
            raise PatchError(f"operation {number} ({operation['op']} {operation['path']!r}): {problem}") from None
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation["op"], _split(operation["path"])
    if kind == "test":
        if not same(_get(document, path), operation["value"]):
            raise PatchError("the value is another one")
        return document
    if kind == "add":
        return _change(document, path, _insert, operation["value"])
    if kind == "replace":
        return _change(document, path, _replace, operation["value"])
    if kind == "remove":
        return _change(document, path, _remove, None)
    source = _split(operation["from"])
    value = _get(document, source)
    if kind == "move":
        if path[: len(source)] == source and path != source:
            raise PatchError("a value cannot move into itself")
        document = _change(document, source, _remove, None)
    return _change(document, path, _insert, value)


def _split(pointer: str) -> list[str]:
    return [piece.replace("~1", "/").replace("~0", "~") for piece in pointer.split("/")[1:]]


def _index(key: str, length: int) -> int:
    """`key` as an index 0..length-1 of an array, or PatchError."""
    if not (key.isascii() and key.isdigit()) or (len(key) > 1 and key[0] == "0"):
        raise PatchError(f"{key!r} is not an array index")
    if int(key) >= length:
        raise PatchError(f"index {key} is beyond the end of the array")
    return int(key)


def _child(parent: Any, key: str) -> Any:
    if key in _FORBIDDEN:
        raise PatchError(f"{key} is refused")
    if isinstance(parent, dict):
        if key not in parent:
            raise PatchError(f"there is no {key!r}")
        return parent[key]
    if isinstance(parent, list):
        return parent[_index(key, len(parent))]
    raise PatchError(f"{key!r} is looked for in a value that is neither object nor array")


def _get(document: Any, path: list[str]) -> Any:
    for key in path:
        document = _child(document, key)
    return document


def _change(document: Any, path: list[str], edit: Callable[[Any, str, Any], None], value: Any) -> Any:
    """`document` with `edit(parent, key, value)` done at `path`; only the containers on the way are copied."""
    if not path:
        return value
    if len(path) == 1:
        if not isinstance(document, (dict, list)):
            raise PatchError(f"{path[0]!r} is looked for in a value that is neither object nor array")
        changed = copy.copy(document)
        edit(changed, path[0], value)
        return changed
    child = _change(_child(document, path[0]), path[1:], edit, value)
    changed = copy.copy(document)
    changed[int(path[0]) if isinstance(changed, list) else path[0]] = child
    return changed


def _insert(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else _index(key, len(parent) + 1), value)
    elif key in _FORBIDDEN:
        raise PatchError(f"{key} is refused")
    else:
        parent[key] = value


def _replace(parent: Any, key: str, value: Any) -> None:
    _child(parent, key)
    parent[int(key) if isinstance(parent, list) else key] = value


def _remove(parent: Any, key: str, value: Any) -> None:
    _child(parent, key)
    del parent[int(key) if isinstance(parent, list) else key]


def same(left: Any, right: Any) -> bool:
    """JSON equality: 1 equals 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
