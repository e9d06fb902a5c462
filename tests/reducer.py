"""What an AG-UI client makes of a run's events: the message list, by the rules measured on `@ag-ui/client` 1.0.0.

Written apart from the translator and from the checker, so that the three can disagree. Only what this project sends;
an event that does not fit raises, where the real client would warn or fail.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from agui_adapter.check.patch import apply_patch

Message = dict[str, Any]


def decode(frames: Iterable[bytes]) -> list[dict[str, Any]]:
    """The events of SSE frames, as strict as a client: one `data:` line each, LF only, at most one `id:` before it."""
    events = []
    for frame in frames:
        assert b"\r" not in frame
        assert frame.endswith(b"\n\n") and frame.count(b"\n\n") == 1
        *before, data = frame[:-2].split(b"\n")
        assert all(line.startswith(b"id: ") for line in before) and len(before) <= 1
        assert data.startswith(b"data: ")
        events.append(json.loads(data[6:].decode("utf-8", "strict")))
    return events


def reduce(events: Iterable[dict[str, Any]], base: Iterable[Message] = ()) -> list[Message]:
    """The client's messages after the events, from those it had before (AG-UI digest 4.3)."""
    messages: list[Message] = [copy.deepcopy(message) for message in base]

    def find(message_id: str) -> Message:
        return next(message for message in messages if message["id"] == message_id)

    def start(message_id: str, role: str) -> None:
        if all(message["id"] != message_id for message in messages):
            messages.append({"id": message_id, "role": role, "content": ""})

    def owner(call_id: str) -> Message | None:
        return next((m for m in messages if any(call["id"] == call_id for call in m.get("toolCalls", ()))), None)

    for event in events:
        kind = event["type"]
        if kind in ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START"):
            start(event["messageId"], event["role"])
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            message = find(event["messageId"])
            message["content"] = message.get("content", "") + event["delta"]
        elif kind == "TOOL_CALL_START":
            parent = event["parentMessageId"]
            if all(message["id"] != parent for message in messages):
                messages.append({"id": parent, "role": "assistant"})
            message = find(parent)
            assert message["role"] == "assistant" and owner(event["toolCallId"]) is None
            function = {"name": event["toolCallName"], "arguments": ""}
            message.setdefault("toolCalls", []).append(
                {"id": event["toolCallId"], "type": "function", "function": function}
            )
        elif kind == "TOOL_CALL_ARGS":
            message = owner(event["toolCallId"])  # type: ignore[assignment]
            call = next(call for call in message["toolCalls"] if call["id"] == event["toolCallId"])
            call["function"]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            made = {key: event[key] for key in ("role", "toolCallId", "content")} | {"id": event["messageId"]}
            holder = owner(event["toolCallId"])
            place = len(messages)
            if holder is not None:
                place = messages.index(holder) + 1
                while place < len(messages) and messages[place]["role"] == "tool":
                    place += 1
            messages.insert(place, made)
        elif kind == "ACTIVITY_SNAPSHOT":
            made = {"id": event["messageId"], "role": "activity", "activityType": event["activityType"]}
            made["content"] = copy.deepcopy(event["content"])
            known = [index for index, message in enumerate(messages) if message["id"] == event["messageId"]]
            if known:
                messages[known[0]] = made
            else:
                messages.append(made)
        elif kind == "ACTIVITY_DELTA":
            message = find(event["messageId"])
            message["content"] = apply_patch(message["content"], event["patch"])
        elif kind == "MESSAGES_SNAPSHOT":
            stated = {message["id"]: message for message in event["messages"]}
            kept = {"activity", "reasoning"} - {message["role"] for message in event["messages"]}
            messages = [stated.get(m["id"], m) for m in messages if m["id"] in stated or m["role"] in kept]
            have = {message["id"] for message in messages}
            messages += [copy.deepcopy(message) for message in event["messages"] if message["id"] not in have]
    return messages


def told(messages: Iterable[Message]) -> list[Message]:
    """The messages that a history has too: without reasoning and activities."""
    return [message for message in messages if message["role"] not in ("reasoning", "activity")]
