"""The messages of `POST /v1/chat/completions` → what they ask for, in the form that every door uses. Pure.

Read tolerantly: unknown members are nobody's business, parts that cannot be used are errors that name their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import AguiError
from ..inputs import MAX_ITEMS

Message = dict[str, Any]

_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}


@dataclass
class Conversation:
    """``instructions``: the caller's system prompt; ``late``: system messages that came behind the newest answer.
    ``history``: everything up to the newest answer, ``new`` and ``results`` the user's and the tools' messages behind
    it. All in AG-UI's form, with ids made of their places."""

    instructions: str = ""
    late: str = ""
    history: list[Message] = field(default_factory=list)
    new: list[Message] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)


def read_messages(data: Any, *, most: int, prefix: str) -> Conversation:
    """Chat Completions messages. Raises AguiError 413 or 422. ``prefix`` makes the ids, different for each request."""
    if not isinstance(data, list) or not data:
        raise wrong("messages", "a list of messages that is not empty")
    if len(data) > most:
        raise AguiError(413, "too_many_messages", f"At most {most} messages are taken; send the newest ones.")
    made = [_message(item, f"messages[{index}]", f"{prefix}-{index}") for index, item in enumerate(data)]
    return sorted_out(made)


def sorted_out(made: Sequence[Message]) -> Conversation:
    """Which of these messages are what."""
    found = Conversation()
    newest = max((index for index, one in enumerate(made) if one["role"] == "assistant"), default=-1)
    instructions: list[str] = []
    late: list[str] = []
    for index, one in enumerate(made):
        if one["role"] == "system":
            (late if index > newest >= 0 else instructions).append(one["content"])
        elif index <= newest:
            found.history.append(one)
        elif one["role"] == "tool":
            found.results.append(one)
        else:
            found.new.append(one)
    found.instructions = "\n\n".join(text for text in instructions if text)
    found.late = "\n\n".join(text for text in late if text)
    return found


def _message(item: Any, where: str, message_id: str) -> Message:
    if not isinstance(item, dict):
        raise wrong(where, "an object")
    role = item.get("role")
    about: Message = {"id": message_id, "role": role}
    if role in ("system", "developer"):
        return {**about, "role": "system", "content": _text(item.get("content"), f"{where}.content")}
    if role == "user":
        return {**about, "content": parts(item.get("content"), f"{where}.content")}
    if role == "assistant":
        text = "" if item.get("content") is None else _text(item["content"], f"{where}.content")
        calls = item.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise wrong(f"{where}.tool_calls", "a list")
        read = [_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls or [])]
        return {**about, "content": text, **({"toolCalls": read} if read else {})}
    if role == "tool":
        call_id = item.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            raise wrong(f"{where}.tool_call_id", "the id of the call that this answers")
        return {**about, "toolCallId": call_id, "content": parts(item.get("content") or "", f"{where}.content")}
    raise wrong(f"{where}.role", "system, developer, user, assistant or tool")


def _call(call: Any, where: str) -> Message:
    if not isinstance(call, dict):
        raise wrong(where, "an object")
    function = call.get("function", call.get("custom"))
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not isinstance(call.get("id"), str):
        raise wrong(where, "a call with id and function")
    arguments = function.get("arguments", function.get("input", "{}"))
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": name, "arguments": arguments if isinstance(arguments, str) else "{}"},
    }


def _text(content: Any, where: str) -> str:
    """Text, or the text of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(where, "a text or a list of parts")
    texts = [part.get("text") or part.get("refusal") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def parts(content: Any, where: str) -> str | list[Message]:
    """A content with its media in AG-UI's form; text alone as text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(where, "a text or a list of parts")
    if len(content) > MAX_ITEMS:
        raise AguiError(413, "too_many_items", f"{where}: at most {MAX_ITEMS} parts are taken.")
    made = [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
    if all(part["type"] == "text" for part in made):
        return "\n".join(part["text"] for part in made)
    return made


def _part(part: Any, where: str) -> Message:
    """One part of Chat Completions or of the Responses API."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "input_text", "output_text", "refusal"):
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise wrong(f"{where}.text", "a text")
        return {"type": "text", "text": text}
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        address = image.get("url") if isinstance(image, dict) else image
        if not isinstance(address, str) or not address.strip():
            raise wrong(where, "an image with an address (http, https or data:); file ids are not known here")
        return {"type": "image", "source": {"type": "url", "value": address.strip()}}
    if kind == "input_audio":
        audio = part.get("input_audio")
        data = audio.get("data") if isinstance(audio, dict) else None
        if not isinstance(data, str) or not isinstance(audio, dict):
            raise wrong(where, "audio with data and format")
        mime = _AUDIO.get(str(audio.get("format")), "audio/wav")
        return {"type": "audio", "source": {"type": "data", "value": data, "mimeType": mime}}
    if kind in ("file", "input_file"):
        inner = part.get("file")
        about: Message = inner if isinstance(inner, dict) else part
        data, address = about.get("file_data"), about.get("file_url")
        name = about.get("filename")
        if not isinstance(data, str) and not isinstance(address, str):
            raise wrong(where, "a file with file_data or file_url; file ids are not known here")
        made: Message = {"type": "document"}
        if isinstance(data, str) and data[:5].lower() != "data:":
            made["source"] = {"type": "data", "value": data, "mimeType": ""}
        else:
            made["source"] = {"type": "url", "value": data if isinstance(data, str) else address}
        if isinstance(name, str):
            made["metadata"] = {"filename": name}
        return made
    raise wrong(f"{where}.type", "text, image_url, input_audio or file")


def wrong(where: str, allowed: str) -> AguiError:
    """422 for a member of the body, with what it must be."""
    return AguiError(422, "invalid_input", f"{where} must be {allowed}.", members={"param": where})
