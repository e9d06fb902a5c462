"""A thread's shared state: one JSON document that the client and the agent both change. Pure.

Changes are JSON Patch operations (RFC 6902) that apply to the client's document as it is, made for ``fast-json-patch``:
parents first, never a value that is not there. Pointers are RFC 6901. The member ``hermes`` is the server's own.
Documents are never changed in place: a new one shares with the old one what did not change.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from .encode import clean

Json = Any
Patch = list[dict[str, Any]]

MAX_BYTES = 4 << 20
MAX_DEPTH = 100  # levels of a client's document; ``encode.clean`` cuts the agent's values there too
MAX_OPERATIONS = 64  # beyond that the whole document is told
OWN = "hermes"
_POINTER = re.compile(r"(/([^/~]|~[01])*)*\Z")
_INDEX = re.compile(r"(0|[1-9][0-9]*)\Z", re.ASCII)
_SAFE_INT = 2**53 - 1


class StateError(ValueError):
    """A change that cannot be made; the text tells the model what to do instead."""


# -- pointers ----------------------------------------------------------------------------------------------------


def tokens(pointer: str) -> list[str]:
    """A JSON Pointer's members. Raises StateError for text that is no pointer, or that clients refuse."""
    if not _POINTER.match(pointer):
        raise StateError(f"{pointer!r} is no JSON Pointer: write /a/b, with ~1 for / and ~0 for ~ inside a member.")
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    if len(parts) > MAX_DEPTH // 2:
        raise StateError(f"A pointer may have at most {MAX_DEPTH // 2} members.")
    return parts


def pointer_of(members: Sequence[str]) -> str:
    """The JSON Pointer of these members."""
    return "".join("/" + member.replace("~", "~0").replace("/", "~1") for member in members)


def read(state: Json, pointer: str) -> Json:
    """The value at a pointer. Raises StateError when there is none."""
    value = state
    for depth, member in enumerate(parts := tokens(pointer)):
        if isinstance(value, dict) and member in value:
            value = value[member]
        elif isinstance(value, list) and _INDEX.match(member) and int(member) < len(value):
            value = value[int(member)]
        else:
            raise StateError(f"There is nothing at {pointer_of(parts[: depth + 1])}.")
    return value


def _refused(parts: Sequence[str]) -> bool:
    """Members that fast-json-patch never walks through, against prototype pollution."""
    return "__proto__" in parts or ("constructor", "prototype") in itertools.pairwise(parts)


# -- changes -----------------------------------------------------------------------------------------------------


def change(state: Json, pointer: str, value: Json) -> tuple[Json, Patch]:
    """The state with ``value`` at ``pointer``, and the operations that make it so. Missing parents become objects.

    ``-`` as the last member appends to a list; the empty pointer stands for the whole document but for the server's
    own member. Raises StateError: no pointer, an index that is not there, a parent that holds no members, the server's
    own member, or a document beyond ``MAX_BYTES``.
    """
    parts, value = _checked(pointer), clean(value)
    if not parts:
        changed = _whole(state, value)
        _bounded(changed)
        return changed, [{"op": "replace", "path": "", "value": changed}]
    patch: Patch = []
    if state is None:
        state = {}
        patch.append({"op": "replace", "path": "", "value": {}})
    changed = _put(state, parts, 0, value, patch)
    _bounded(changed)
    return changed, patch


def remove(state: Json, pointer: str) -> tuple[Json, Patch]:
    """The state without what is at ``pointer``. Raises StateError as ``change`` and ``read`` do."""
    parts = _checked(pointer)
    if not parts:
        changed = _whole(state, {})
        return changed, [{"op": "replace", "path": "", "value": changed}]
    read(state, pointer)
    return _cut(state, parts), [{"op": "remove", "path": pointer_of(parts)}]


def edit(state: Json, changes: Iterable[tuple[str, bool, Json]]) -> tuple[Json, Patch]:
    """Several changes, all of them or none: (pointer, whether it is removed, value)."""
    patch: Patch = []
    for pointer, gone, value in changes:
        state, more = remove(state, pointer) if gone else change(state, pointer, value)
        patch += more
    return state, patch


def _checked(pointer: str) -> list[str]:
    parts = tokens(pointer)
    if parts and parts[0] == OWN:
        raise StateError(f"/{OWN} is the server's own; it cannot be changed.")
    if _refused(parts):
        raise StateError(f"{pointer} cannot be changed: clients refuse such members.")
    return parts


def _whole(state: Json, value: Json) -> Json:
    kept = state.get(OWN) if isinstance(state, dict) else None
    if not isinstance(value, dict):
        if kept is not None or value is None:
            raise StateError("The state as a whole must be an object.")
        return value
    value = {key: item for key, item in value.items() if key != OWN}
    return {**value, OWN: kept} if kept is not None else value


def _put(parent: Json, parts: list[str], depth: int, value: Json, patch: Patch) -> Json:
    """A copy of ``parent`` with the value below it; only the containers on the way are copied."""
    member, path = parts[depth], pointer_of(parts[: depth + 1])
    last = depth == len(parts) - 1
    if isinstance(parent, dict):
        there = member in parent
        if last:
            patch.append({"op": "replace" if there else "add", "path": path, "value": value})
            return {**parent, member: value}
        if not there:
            patch.append({"op": "add", "path": path, "value": {}})
        return {**parent, member: _put(parent[member] if there else {}, parts, depth + 1, value, patch)}
    if not isinstance(parent, list):
        where = pointer_of(parts[:depth]) or "The state"
        raise StateError(f"{where} is neither an object nor a list; set it as a whole.")
    if last and (member == "-" or (_INDEX.match(member) and int(member) == len(parent))):
        patch.append({"op": "add", "path": pointer_of([*parts[:-1], "-"]), "value": value})
        return [*parent, value]
    if not (_INDEX.match(member) and int(member) < len(parent)):
        hint = " or - to append" if last else ""
        raise StateError(f"{path}: the list has {len(parent)} items; use an index below that{hint}.")
    index = int(member)
    if last:
        patch.append({"op": "replace", "path": path, "value": value})
        return [*parent[:index], value, *parent[index + 1 :]]
    return [*parent[:index], _put(parent[index], parts, depth + 1, value, patch), *parent[index + 1 :]]


def _cut(parent: Json, parts: Sequence[str]) -> Json:
    member, *rest = parts
    if isinstance(parent, list):
        index = int(member)
        return [*parent[:index], *([_cut(parent[index], rest)] if rest else []), *parent[index + 1 :]]
    if rest:
        return {**parent, member: _cut(parent[member], rest)}
    return {key: value for key, value in parent.items() if key != member}


def diff(before: Json, after: Json, path: Sequence[str] = ()) -> Patch:
    """Operations that turn one value into the other; items of lists are compared in their places."""
    if before is after or same(before, after):
        return []
    whole: Patch = [{"op": "replace", "path": pointer_of(path), "value": after}]
    if isinstance(before, dict) and isinstance(after, dict):
        if any(_refused([*path, key]) for key in before.keys() | after.keys()):
            return whole  # no operation may walk through such a member, but a value may hold it
        patch: Patch = [{"op": "remove", "path": pointer_of([*path, key])} for key in before if key not in after]
        for key, value in after.items():
            if key in before:
                patch += diff(before[key], value, [*path, key])
            else:
                patch.append({"op": "add", "path": pointer_of([*path, key]), "value": value})
        return patch
    if isinstance(before, list) and isinstance(after, list):
        both = min(len(before), len(after))
        patch = []
        for index in range(both):
            patch += diff(before[index], after[index], [*path, str(index)])
        patch += [{"op": "remove", "path": pointer_of([*path, str(i)])} for i in reversed(range(both, len(before)))]
        patch += [{"op": "add", "path": pointer_of([*path, "-"]), "value": value} for value in after[both:]]
        return patch
    return whole


def same(left: Json, right: Json) -> bool:
    """Equality as a JavaScript client sees it: 1 is 1.0 but not true, and large integers are doubles."""
    if left is right:
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right or _double(left) == _double(right)
    return bool(left == right)


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


# -- who has what ------------------------------------------------------------------------------------------------


def agree(client: Json, server: Json, *, behind: bool = False, reserved: bool = True) -> tuple[Json, bool]:
    """What holds at the start of a run, and whether the client must be told it by a snapshot. None: no state.

    ``client``: what came with the run (None or empty: it has none); ``server``: the thread's. A client that changed its
    document wins, but for the server's own member; one that did not, is ``behind`` or has none, gets the server's.
    ``reserved``: the own member is in use, so the client's is not taken over.
    """
    if client is None or client == {}:
        return server, server not in (None, {})
    ours = server.get(OWN) if isinstance(server, dict) else None
    if server is not None and (behind or same(bare(client), bare(server))):
        return server, not same(client, server)
    if not isinstance(client, dict) or not (reserved or ours is not None):
        return client, False
    if ours is None:
        return (bare(client), True) if OWN in client else (client, False)
    merged = {**client, OWN: ours}
    return merged, not same(client.get(OWN), ours)


def bare(state: Json) -> Json:
    """The state without the server's own member."""
    return {key: value for key, value in state.items() if key != OWN} if isinstance(state, dict) else state


def bounds(state: Json) -> tuple[int, str]:
    """Why a client's document is not taken: an HTTP status and a sentence, which is empty when it is taken."""
    if _deeper(state, MAX_DEPTH):
        return 422, f"The state is nested more than {MAX_DEPTH} levels deep."
    size = _size(state)
    return 413, f"The state has {size} bytes; at most {MAX_BYTES} are taken." if size > MAX_BYTES else ""


def _deeper(value: Json, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels <= 0 or _deeper(item, levels - 1) for item in items)


def _bounded(state: Json) -> None:
    size = _size(state)
    if size > MAX_BYTES:
        raise StateError(f"The state would have {size} bytes; at most {MAX_BYTES} are kept.")


def _size(state: Json) -> int:
    return len(wire(state))


def wire(state: Json) -> bytes:
    """The document as JSON for a client: an integer beyond 2^53 goes out as the double that JavaScript makes of it."""
    try:
        return orjson.dumps(state, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        return orjson.dumps(_doubles(state))


def for_clients(state: Json) -> Json:
    """The document with such integers as doubles already."""
    try:
        orjson.dumps(state, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        return _doubles(state)
    return state


def _doubles(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_doubles(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _SAFE_INT:
        return _double(value)
    return value
