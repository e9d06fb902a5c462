"""What a run's messages ask for, compared with the thread's history; and a client's messages as a transcript. Pure.

The client's list tells what is new. It is compared by id and position, never by text (DESIGN).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .history import Message, without_reasoning

_TALK = ("user", "assistant", "tool")


@dataclass(frozen=True)
class Plan:
    """What to do before the new input runs.

    ``go_on``: nothing. ``rewind``: take back everything from the user message ``rewind_to`` on. ``seed``: Hermes has
    never seen the thread, which came with messages. ``snapshot``: the client holds something else than the history.
    """

    action: Literal["go_on", "rewind", "seed"] = "go_on"
    rewind_to: str = ""
    snapshot: bool = False


def plan(client: Sequence[Message], new_ids: Collection[str], history: Sequence[Message], *, seen: bool) -> Plan:
    """Compare a client's list with the history, by id and position.

    ``client``: the run's messages; ``new_ids``: the user messages at its end that are to be answered (a known one among
    them is answered again); ``history``: the thread's messages; ``seen``: the thread was used before, though its
    history may be empty now (``/new``).
    """
    known = {message["id"]: index for index, message in enumerate(history)}
    before = [m for m in client if m["id"] not in new_ids and m["role"] in _TALK]
    again = [known[new_id] for new_id in new_ids if new_id in known]
    if again:
        first = min(again)
        return Plan("rewind", history[first]["id"], snapshot=_differs(before, history[:first]))
    if not history and not seen:
        return Plan("seed") if before else Plan()
    met = [known[message["id"]] for message in before if message["id"] in known]
    if not met:  # a client that sends only its newest message goes on
        return Plan(snapshot=_differs(before, history))
    last = max(met)
    for index, message in enumerate(history[last + 1 :], last + 1):
        if message["role"] == "user":
            return Plan("rewind", message["id"], snapshot=_differs(before, history[:index]))
    return Plan(snapshot=_differs(before, history))


def _differs(client: Sequence[Message], history: Sequence[Message]) -> bool:
    """Whether the client lacks a message, or holds one that the history has not: the model does not know it then."""
    have = {message["id"] for message in client}
    wanted = {message["id"] for message in without_reasoning(history)}
    return have != wanted


def snapshot_of(client: Sequence[Message], new_ids: Collection[str], history: Sequence[Message]) -> list[Message]:
    """What the client should hold: its own system messages, the history's messages, its own new ones."""
    have = {message["id"] for message in history}
    system = [m for m in client if m["role"] in ("system", "developer") and m["id"] not in have]
    added = [m for m in client if m["id"] in new_ids and m["id"] not in have]
    return [*system, *without_reasoning(history), *added]


def known_beginning(client: Sequence[Message], wanted: Sequence[Message]) -> list[Message] | None:
    """What a client must be told first so that it ends with ``wanted`` in this order; None if one snapshot will do.

    A client appends what a snapshot brings behind what it keeps (1.0.0 and 0.0.59): a message that belongs before one
    that it holds comes right only if that one is taken from it first.
    """
    place = {message["id"]: index for index, message in enumerate(client)}
    last = -1
    for index, message in enumerate(wanted):
        at = place.get(message["id"], -1)
        if at <= last:
            return list(wanted[:index]) if any(other["id"] in place for other in wanted[index:]) else None
        last = at
    return None


# -- a conversation that Hermes has never seen ---------------------------------------------------------------------


def transcript(messages: Sequence[Message], *, images: bool = False) -> list[dict[str, Any]]:
    """A client's messages as a Hermes transcript, calls and results paired and repaired (AG-UI 1.0, section 11).

    ``images``: those of user messages go along, as the model's API takes them; else they are named.

    Each row carries ``wire_id``. A call without a result gets one that says so; a result without its call is dropped,
    as is a call that repeats another's id; arguments that are no JSON object become ``{}``.
    """
    rows: list[dict[str, Any]] = []
    results: dict[str, Message] = {}
    for message in messages:
        if message["role"] == "tool":
            results.setdefault(message["toolCallId"], message)
    called: set[str] = set()
    for message in messages:
        role = message["role"]
        if role == "user":
            content = _with_images(message["content"]) if images else text_of(message["content"])
            rows.append({"role": "user", "content": content, "wire_id": message["id"]})
        elif role == "assistant":
            calls = []
            for call in message.get("toolCalls") or []:
                if call["id"] not in called:
                    called.add(call["id"])
                    calls.append(_call(call))
            text = message.get("content") or ""
            if not text and not calls:
                continue
            row: dict[str, Any] = {"role": "assistant", "content": text, "wire_id": message["id"]}
            if calls:
                row["tool_calls"] = calls
                row["finish_reason"] = "tool_calls"
            rows.append(row)
            rows += [_result(call, results.get(call["id"])) for call in calls]
    return rows


def _result(call: Mapping[str, Any], answer: Message | None) -> dict[str, Any]:
    content = "[no result: the conversation was brought in without it]"
    if answer is not None:
        content = text_of(answer["content"])
        if answer.get("error"):
            content = json.dumps({"error": answer["error"], "content": content}, ensure_ascii=False)
    return {
        "role": "tool",
        "content": content,
        "tool_call_id": call["id"],
        "tool_name": call["function"]["name"],
        "wire_id": answer["id"] if answer is not None else f"{call['id']}-missing",
    }


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    try:
        fine = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        fine = False
    function = {"name": call["function"]["name"], "arguments": arguments if fine else "{}"}
    return {"id": call["id"], "type": "function", "function": function}


def _with_images(content: Any) -> Any:
    """A content in OpenAI's form with its images; text where there are none."""
    if isinstance(content, str) or not any(part["type"] == "image" for part in content):
        return text_of(content)
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "image":
            source = part["source"]
            inline = f"data:{source.get('mimeType') or 'image/png'};base64,{source['value']}"
            url = source["value"] if source["type"] == "url" else inline
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": text_of([part])})
    return parts


def text_of(content: Any) -> str:
    """A content as text: text parts joined, others named."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content or []:
        texts.append(str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]")
    return "\n".join(texts)
