"""The body of `POST /agui`: read tolerantly, as AG-UI 1.0 asks, and checked before anything starts.

What a newer or older client may send and this version does not know is left out (unknown members, roles, part and
source types); a known member of the wrong type is an error with a sentence. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from ag_ui.core import RunAgentInput
from pydantic import BaseModel, ValidationError

from .errors import AguiError, bad_request
from .forwarded import Forwarded, read_forwarded
from .limits import check_depth
from .peers import Peer, peer_of
from .state import bounds
from .state_text import MAX_CHARS

logger = logging.getLogger("hermes_agui")

ROLES = frozenset({"developer", "system", "user", "assistant", "tool", "reasoning", "activity"})
MEDIA = frozenset({"image", "audio", "video", "document"})
SOURCES = frozenset({"data", "url", "file"})
STATUSES = frozenset({"resolved", "cancelled"})
MAX_ID_CHARS = 1024
MAX_ITEMS = 10_000  # of a list that is no history: each wrong item would cost an error message of its own


SENT_ALONG = "Properties that the application sent along (JSON)"

_DROP = object()  # in place of what is left out: None is a value that a client may send, and a wrong one


@dataclass(frozen=True)
class RunInput:
    """A checked RunAgentInput. ``messages`` are the client's own, as plain JSON, without what was left out.

    ``state``: any JSON; None when the client sent none.
    """

    thread_id: str
    run_id: str
    peer: Peer
    messages: list[dict[str, Any]]
    context: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    resume: list[dict[str, Any]] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    state: Any = None
    forwarded: Forwarded = field(default_factory=Forwarded)

    def tail(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The tool messages and the user messages behind the last assistant message."""
        tools: list[dict[str, Any]] = []
        users: list[dict[str, Any]] = []
        for message in reversed(self.messages):
            if message["role"] == "assistant":
                break
            if message["role"] == "tool":
                tools.insert(0, message)
            elif message["role"] == "user" and not tools:
                users.insert(0, message)
        return tools, users

    def system(self) -> str:
        """The client's own instructions to the agent: its system and developer messages before all others."""
        texts = []
        for message in self.messages:
            if message["role"] in ("system", "developer"):
                texts.append(message["content"].strip())
            elif message["role"] not in ("reasoning", "activity"):
                break
        return "\n\n".join(text for text in texts if text)


@dataclass(frozen=True)
class NewInput:
    """What is new in a request: its text, the ids of the messages it came from, and these, with all that they carry."""

    text: str
    ids: list[str]
    messages: list[dict[str, Any]] = field(default_factory=list)


def parse(
    body: bytes,
    *,
    max_messages: int,
    max_depth: int = 128,
    undeclared: str = "0.0.59",
    overrides: Collection[str] = (),
    forward: bool = False,
) -> RunInput:
    """Bytes of the body → RunInput. Raises AguiError (400, 413, 422) with a sentence for the caller.

    ``undeclared``: what a client is taken for that declares no version; ``overrides`` and ``forward``: see
    ``forwarded.py``.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"The body is not valid JSON: {error}.", "invalid_json") from None
    if not isinstance(data, dict):
        raise bad_request("The body must be a JSON object (an AG-UI RunAgentInput).", "invalid_input")
    check_depth(data, max_depth)
    messages = data.get("messages")
    if isinstance(messages, list) and len(messages) > max_messages:
        raise AguiError(413, "too_many_messages", f"At most {max_messages} messages are taken; send the newest ones.")
    for name in ("tools", "context", "resume"):
        _bounded(name, data.get(name))
    left_out: list[str] = []
    if isinstance(messages, list):
        data["messages"] = [kept for item in messages if (kept := _message(item, left_out)) is not _DROP]
    if isinstance(data.get("resume"), list):
        data["resume"] = [item for item in data["resume"] if not _unknown_status(item, left_out)]
    try:
        checked = RunAgentInput.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        raise AguiError(422, "invalid_input", _sentence(error)) from None
    except RecursionError:
        raise bad_request("The body is nested too deeply.", "invalid_json") from None
    thread_id, run_id = checked.thread_id, checked.run_id
    for name, value in (("threadId", thread_id), ("runId", run_id)):
        if not value.strip():
            raise AguiError(422, "invalid_input", f"{name} must not be blank.")
        if len(value) > MAX_ID_CHARS:
            raise AguiError(422, "invalid_input", f"{name} must have at most {MAX_ID_CHARS} characters.")
    status, trouble = bounds(data.get("state"))
    if trouble:
        raise AguiError(status, "invalid_state", trouble)
    forwarded = read_forwarded(data.get("forwardedProps"), allowed=overrides, forward=forward)
    sent_along = [{"description": SENT_ALONG, "value": forwarded.context}] if forwarded.context else []
    if left_out:
        # As Python shows texts: what a client sends must not break a log's lines.
        logger.info("agui: left out of a request: %.500r", sorted(set(left_out)))
    return RunInput(
        thread_id,
        run_id,
        peer_of(checked.protocol_version, undeclared),
        _plain(checked.messages),
        _context([*(data.get("context") or []), *sent_along, *_said_late(data.get("messages") or [])]),
        _plain(checked.tools or []),
        _plain(checked.resume or []),
        tuple(left_out),
        data.get("state"),
        forwarded,
    )


def _said_late(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    """System and developer messages at the end, behind a conversation: they ride with the message that they came with.

    In the system prompt they would cost the provider's cache of all that was said before.
    """
    late: list[dict[str, str]] = []
    begun = False
    for message in messages:
        if message["role"] in ("user", "assistant", "tool"):
            begun = True
            if message["role"] != "user":
                late = []
        elif begun and message["role"] in ("system", "developer"):
            late.append({"description": "Instruction", "value": message["content"]})
    return late


def new_input(messages: list[dict[str, Any]], accepted: Collection[str]) -> NewInput:
    """The user messages at the end that the thread has not accepted yet, or all of them to be answered again.

    Raises AguiError when there are none.

    Answers to open calls and questions are not looked for here: that is ``answers.py``'s, and comes first.
    """
    tail: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message["role"] in ("reasoning", "activity", "system", "developer"):
            continue
        if message["role"] != "user":
            break
        tail.append(message)
    tail.reverse()
    if not tail:
        if messages and messages[-1]["role"] == "tool":
            raise AguiError(
                409, "no_open_call", "The last message answers a tool call, but no call is waiting on this thread."
            )
        raise bad_request("There is no user message at the end of messages, so there is nothing to do.", "no_input")
    # None of them new: the client asks for another answer to the same messages.
    fresh = [message for message in tail if message["id"] not in accepted] or tail
    texts = [text for message in fresh if (text := _text_of(message["content"])).strip()]
    if not texts and not has_media(fresh):
        raise bad_request("The user message has no text.", "no_input")
    return NewInput("\n\n".join(texts), [message["id"] for message in fresh], fresh)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if part.get("type") == "text")


def has_media(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether any of these user messages carries more than text."""
    contents = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    return any(part.get("type") in MEDIA for content in contents for part in content)


def _plain(value: Any) -> Any:
    """A checked model as JSON again: only members that the protocol knows, none of them null.

    What a snapshot restates must be readable for every client, and a null is fatal for today's.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, BaseModel):
        return value
    members = ((info.alias or name, getattr(value, name)) for name, info in type(value).model_fields.items())
    return {name: _plain(member) for name, member in members if member is not None}


def _bounded(name: str, items: Any) -> None:
    if isinstance(items, list) and len(items) > MAX_ITEMS:
        raise AguiError(413, "too_many_items", f"{name}: at most {MAX_ITEMS} items are taken.")


def _unknown_status(item: Any, left_out: list[str]) -> bool:
    status = item.get("status") if isinstance(item, dict) else None
    if not isinstance(status, str) or status in STATUSES:
        return False
    left_out.append(f"status {status}")
    return True


def _message(item: Any, left_out: list[str]) -> Any:
    if not isinstance(item, dict):
        return item  # the validator says what is wrong with it
    role = item.get("role")
    if isinstance(role, str) and role not in ROLES:
        left_out.append(f"role {role}")
        return _DROP
    content = item.get("content")
    for name in ("content", "toolCalls"):
        _bounded(f"messages.{name}", item.get(name))
    if role in ("user", "tool") and isinstance(content, list):
        return {**item, "content": [kept for part in content if (kept := _part(part, left_out)) is not _DROP]}
    return item


def _part(part: Any, left_out: list[str]) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return part
    kind = part["type"]
    if kind == "binary":
        return _upgrade(part, left_out)
    if kind != "text" and kind not in MEDIA:
        left_out.append(f"part {kind}")
        return _DROP
    source = part.get("source")
    source_type = source.get("type") if kind in MEDIA and isinstance(source, dict) else None
    if isinstance(source_type, str) and source_type not in SOURCES:
        left_out.append(f"source {source_type}")
        return _DROP
    return part


def _upgrade(part: dict[str, Any], left_out: list[str]) -> Any:
    """The ``binary`` part of 0.x clients as the media part of 1.0."""
    mime = str(part.get("mimeType") or "application/octet-stream")
    kind = mime.partition("/")[0]
    if isinstance(part.get("data"), str):
        source = {"type": "data", "value": part["data"], "mimeType": mime}
    elif isinstance(part.get("url"), str):
        source = {"type": "url", "value": part["url"], "mimeType": mime}
    else:
        left_out.append("binary part by id")
        return _DROP
    made: dict[str, Any] = {"type": kind if kind in MEDIA else "document", "source": source}
    if part.get("filename"):
        made["metadata"] = {"filename": part["filename"]}
    return made


def _context(entries: Any) -> str:
    """The client's context as text for the model; cut to what may ride in a message."""
    if not entries:
        return ""
    lines = [f"{entry['description']}: {entry['value']}" for entry in entries]
    text = "\n".join(["Context from the application the user sees:", *lines])
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 20] + "\n[cut: too long]"


def _sentence(error: ValidationError) -> str:
    # Where a text or a list would do, pydantic tells what is wrong with each: the deepest one is about what was sent.
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    first = max(errors, key=lambda each: len(each["loc"]))
    steps = [str(step) for step in first["loc"] if not str(step).startswith(("function-", "tagged-", "list["))]
    where = ".".join(steps).removesuffix(".str") or "body"
    more = error.error_count() - 1
    return f"{where}: {first['msg']:.300}." + (f" ({more} more)" if more else "")
