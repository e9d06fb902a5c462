"""Tools that the client executes (`RunAgentInput.tools`): what they are, and what the model gets as their result.

They are offered to the model on this thread only and are never registered anywhere; waiting for their answer is
``requests.py``'s, giving them to an agent the seam's. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import AguiError
from .state import OWN, StateError, tokens

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")  # what every provider takes as a function name
_EMPTY = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class ClientTool:
    """One client tool; ``parameters`` is JSON Schema, passed on as it is.

    ``writes``: where in the shared state a call's arguments go as soon as it is announced, as pairs of JSON Pointers
    (into the state, into the arguments).
    """

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=lambda: dict(_EMPTY), hash=False)
    writes: tuple[tuple[str, str], ...] = ()

    def definition(self) -> dict[str, Any]:
        """As OpenAI's function tool, the form that Hermes's agents hold."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


def read_tools(
    tools: Sequence[dict[str, Any]] | None,
    server_names: Collection[str],
    *,
    most: int = 128,
    most_bytes: int = 512 * 1024,
) -> tuple[ClientTool, ...]:
    """The client's tools. Raises AguiError 422: a name that no provider takes, twice, or that the server has; 413: more
    than ``most`` tools, or than ``most_bytes`` of definitions.

    A client tool must never stand in for one of the server's: the model would call it with the same trust.
    """
    read: dict[str, ClientTool] = {}
    for tool in tools or ():
        name = tool["name"]
        if not _NAME.match(name):
            raise AguiError(422, "invalid_tool", f"Tool names are 1 to 64 of A-Z a-z 0-9 _ -: {name[:80]!r} is not.")
        if name in server_names:
            raise AguiError(422, "tool_name_taken", f"The agent has a tool named {name!r} already; rename yours.")
        if name in read:
            raise AguiError(422, "invalid_tool", f"The tool {name!r} is there twice.")
        parameters = tool.get("parameters")
        if parameters is None:
            parameters = dict(_EMPTY)
        if not isinstance(parameters, dict):
            raise AguiError(422, "invalid_tool", f"The parameters of tool {name!r} must be a JSON Schema object.")
        read[name] = ClientTool(name, tool["description"], parameters, _writes(name, tool.get("metadata")))
    if len(read) > most:
        raise AguiError(413, "too_many_tools", f"At most {most} tools are taken (agui.max_tools).")
    size = sum(len(json.dumps(tool.definition())) for tool in read.values())
    if size > most_bytes:
        message = f"The tools have {size} bytes, at most {most_bytes} are taken (agui.max_tools_bytes)."
        raise AguiError(413, "tools_too_large", message)
    return tuple(read.values())


def _writes(name: str, metadata: Any) -> tuple[tuple[str, str], ...]:
    """``{"hermes": {"writes": "/recipe", "argument": "/recipe"}}``, or a list of such pairs under ``writes``.

    Without ``argument`` all arguments go there, as one object. Raises AguiError 422 for a pointer that is none.
    """
    own = metadata.get(OWN) if isinstance(metadata, dict) else None
    given = own.get("writes") if isinstance(own, dict) else None
    if given is None:
        return ()
    pairs = []
    for one in given if isinstance(given, list) else [own]:
        pointer = one.get("writes", one.get("pointer")) if isinstance(one, dict) else one
        argument = one.get("argument", "") if isinstance(one, dict) else ""
        try:
            if not isinstance(pointer, str) or not isinstance(argument, str) or not tokens(pointer):
                raise StateError("a JSON Pointer to a member of the state is needed, like /recipe.")
            if tokens(pointer)[0] == OWN:
                raise StateError(f"/{OWN} is the server's own.")
            tokens(argument)
        except StateError as error:
            raise AguiError(422, "invalid_tool", f"metadata.{OWN}.writes of tool {name!r}: {error}") from None
        pairs.append((pointer, argument))
    return tuple(pairs)


def content_of(text: str, error: str, parts: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """A client's answer as the model gets it: text, and image parts in OpenAI's form where there are some."""
    images = []
    texts = [text] if text else []
    for part in parts:
        source = part.get("source") or {}
        if part.get("type") == "text":
            texts.append(str(part.get("text") or ""))
        elif part.get("type") == "image" and source.get("type") == "data":
            url = f"data:{source.get('mimeType')};base64,{source.get('value')}"
            images.append({"type": "image_url", "image_url": {"url": url}})
        elif part.get("type") == "image" and source.get("type") == "url":
            images.append({"type": "image_url", "image_url": {"url": source.get("value")}})
        else:
            texts.append(f"[a part of type {part.get('type')} cannot be shown to the model]")
    whole = "\n".join(texts)
    if error:
        whole = json.dumps({"error": error, **({"content": whole} if whole else {})}, ensure_ascii=False)
    return whole, images
