"""StreamEvents → Chat Completions: chunks of a stream, or one whole completion. Pure.

The answer is what the agent says, messages a blank line apart. Calls that the client executes are its ``tool_calls``;
of the server's own the client sees what ``Sight`` lets it: nothing, Hermes's ``hermes.tool.progress`` events, or the
calls and their results in OpenAI's shape.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from ..attachments import shown
from ..encode import Deltas, dumps, frame
from ..errors import AguiError
from ..interrupts import in_words
from ..problems import openai_error
from ..results import Result, Tokens
from ..stream import (
    Attachment,
    Commentary,
    MessageChunk,
    MessageRevised,
    MessageStart,
    ReasoningChunk,
    ReasoningStart,
    ReasoningStop,
    Request,
    StreamEvent,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)
from .seen import Sight, Thoughts

DONE = b"data: [DONE]\n\n"
_FAILED = {
    "provider_rate_limit": 429,
    "provider_context": 400,
    "gateway_stopped": 503,
    "not_authorized": 403,
    "not_accepted": 429,
}


def completion_id() -> str:
    """A new one."""
    return f"chatcmpl-{uuid.uuid4().hex}"


def failure(code: str, message: str) -> AguiError:
    """A turn that failed, as an error of the request: 502 unless the caller can do something about it."""
    return AguiError(_FAILED.get(code, 502), code or "failed", message or "The agent could not answer.")


def usage_of(tokens: Tokens) -> dict[str, Any]:
    """Tokens in OpenAI's shape."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def questions(requests: tuple[Request, ...]) -> str:
    """What a person is asked, for a client that can show only text."""
    return "\n\n".join(in_words(request) for request in requests if request.kind != "client_tool")


class ChatStream:
    """One streamed completion. ``start()`` once, ``feed(event)`` for each event; ``done`` after ``[DONE]``."""

    def __init__(self, name: str, model: str, created: int, sight: Sight, *, usage: bool = False) -> None:
        self.done = False
        self._head = {"id": name, "object": "chat.completion.chunk", "created": created, "model": model}
        self._sight = sight
        self._usage = usage  # whether the client wants to be told
        self._tokens = Tokens()
        self._message = ""  # the message that text belongs to
        self._said: dict[str, list[str]] = {}  # message id → its text, as far as the client has it
        self._gap = False  # the next text is a message behind others
        self._calls: dict[str, int] = {}  # call id → index
        self._thoughts = Thoughts(sight)
        before, after = dumps(self._chunk({"content": ""})).split(b'"content":""')
        self._deltas = Deltas(b"data: " + before + b'"content":', after + b"\n\n")
        before, after = dumps(self._chunk({"reasoning_content": ""})).split(b'"reasoning_content":""')
        self._thought_deltas = Deltas(b"data: " + before + b'"reasoning_content":', after + b"\n\n")

    def start(self) -> list[bytes]:
        """The first chunk: who speaks."""
        return [frame(self._chunk({"role": "assistant", "content": ""}))]

    def feed(self, event: StreamEvent) -> list[bytes]:
        """The frames of one event; none after the end."""
        if self.done:
            return []
        if isinstance(event, MessageChunk):  # the hot path
            return self._text(event.text)
        handler = _HANDLERS.get(type(event))
        return handler(self, event) if handler is not None else []

    def fail(self, error: AguiError) -> list[bytes]:
        """End the stream with an error, if it has not ended: SDKs raise it."""
        if self.done:
            return []
        self.done = True
        return [frame(openai_error(error)), DONE]

    def cut(self) -> list[bytes]:
        """End the stream because its time is over; the turn may go on."""
        return self.fail(AguiError(504, "stream_over", "This stream has lasted as long as the operator lets one."))

    # -- what is said ---------------------------------------------------------------------------------------

    def _text(self, text: str) -> list[bytes]:
        frames = []
        if self._gap:
            self._gap = False
            frames.append(self._deltas.frame("\n\n"))
        self._said.setdefault(self._message, []).append(text)
        if text and (made := self._deltas.frame(text)):
            frames.append(made)
        return frames

    def _begins(self, event: MessageStart) -> list[bytes]:
        self._message = event.message_id
        self._gap = any(map("".join, self._said.values()))
        return []

    def _whole(self, event: Commentary) -> list[bytes]:
        return self._text(event.text)

    def _file(self, event: Attachment) -> list[bytes]:
        self._begins(MessageStart(event.message_id))
        return self._text(shown(event))

    def _revised(self, event: MessageRevised) -> list[bytes]:
        """What was streamed cannot be taken back; what is new behind it can be told."""
        had = "".join(self._said.get(event.message_id, []))
        if not event.text.startswith(had) or len(event.text) == len(had):
            return []
        self._message = event.message_id
        return self._text(event.text[len(had) :])

    def _reasons(self, event: ReasoningStart) -> list[bytes]:
        self._thoughts.begin()
        return []

    def _reasoned(self, event: ReasoningChunk) -> list[bytes]:
        return self._thought(self._thoughts.feed(event.text))

    def _reasoned_out(self, event: ReasoningStop) -> list[bytes]:
        return self._thought(self._thoughts.rest())

    def _thought(self, text: str) -> list[bytes]:
        return [made] if text and (made := self._thought_deltas.frame(text)) else []

    # -- tools ----------------------------------------------------------------------------------------------

    def _called(self, event: ToolCall) -> list[bytes]:
        if not event.client and self._sight.shows_tools == "progress":
            told = {"tool": event.tool_name, "label": event.tool_name, "toolCallId": event.call_id, "status": "running"}
            return [_progress(told)]
        if not event.client and self._sight.shows_tools == "opaque":
            return []
        index = self._calls.setdefault(event.call_id, len(self._calls))
        arguments = self._sight.arguments(event.arguments, client=event.client)
        call = {"index": index, **tool_call(event.call_id, event.tool_name, arguments)}
        return [frame(self._chunk({"tool_calls": [call]}))]

    def _returned(self, event: ToolResult) -> list[bytes]:
        if event.client or self._sight.shows_tools == "opaque":
            return []
        if self._sight.shows_tools == "progress":
            told = {"tool": event.tool_name, "toolCallId": event.call_id, "status": "completed"}
            return [_progress(told)]
        result = {"role": "tool", "tool_call_id": event.call_id, "content": self._sight.output(event.content)}
        return [frame(self._chunk({"tool_results": [result]}))]

    # -- the end --------------------------------------------------------------------------------------------

    def _used(self, event: Usage) -> list[bytes]:
        self._tokens.add(event)
        return []

    def _parked(self, event: TurnParked) -> list[bytes]:
        if not event.requests:
            return []
        asked = questions(event.requests)
        if asked:
            self._begins(MessageStart("asked"))
        frames = self._text(asked) if asked else []
        waits = any(request.kind == "client_tool" for request in event.requests)
        return frames + self._finish("tool_calls" if waits else "stop")

    def _finished(self, event: TurnFinished) -> list[bytes]:
        if event.outcome == "failed":
            return self.fail(failure(event.code, event.message))
        return self._finish("stop")

    def _finish(self, reason: str) -> list[bytes]:
        self.done = True
        frames = [rest for rest in (self._deltas.rest(), self._thought_deltas.rest()) if rest]
        frames.append(frame(self._chunk({}, reason)))
        if self._usage:
            frames.append(frame({**self._head, "choices": [], "usage": usage_of(self._tokens)}))
        return [*frames, DONE]

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head, "choices": [choice], **({"usage": None} if self._usage else {})}


_HANDLERS: dict[type, Callable[[ChatStream, Any], list[bytes]]] = {
    MessageStart: ChatStream._begins,
    Commentary: ChatStream._whole,
    Attachment: ChatStream._file,
    MessageRevised: ChatStream._revised,
    ReasoningStart: ChatStream._reasons,
    ReasoningChunk: ChatStream._reasoned,
    ReasoningStop: ChatStream._reasoned_out,
    ToolCall: ChatStream._called,
    ToolResult: ChatStream._returned,
    Usage: ChatStream._used,
    TurnParked: ChatStream._parked,
    TurnFinished: ChatStream._finished,
}


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call in OpenAI's shape."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _progress(told: dict[str, Any]) -> bytes:
    """As Hermes's own api_server tells of its tools."""
    return b"event: hermes.tool.progress\n" + frame(told)


def completion(name: str, model: str, created: int, result: Result, sight: Sight) -> dict[str, Any]:
    """A whole completion. Raises AguiError for a turn that failed."""
    if result.outcome == "failed":
        raise failure(result.code, result.message)
    asked = questions(result.requests)
    text = "\n\n".join(part for part in (result.text, asked) if part)
    calls = [tool_call(call.id, call.name, call.arguments) for call in result.open_calls]
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    if thought := sight.thought(result.reasoning):
        message["reasoning_content"] = thought
    whole: dict[str, Any] = {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if calls else "stop",
            }
        ],
        "usage": usage_of(result.tokens),
    }
    if sight.shows_tools == "transparent":
        whole["hermes"] = {"messages": messages_of(result, sight)}
    return whole


def messages_of(result: Result, sight: Sight) -> list[dict[str, Any]]:
    """All that was said and done, as Chat Completions messages: what a client would hold had it run the tools."""
    calls = {call.id: call for call in result.calls}
    made: list[dict[str, Any]] = []
    for said in result.messages:
        mine = [calls[call_id] for call_id in said.calls]
        if not said.text and not mine:
            continue
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if mine:
            message["tool_calls"] = [
                tool_call(call.id, call.name, sight.arguments(call.arguments, client=call.client)) for call in mine
            ]
        made.append(message)
        made += [
            {"role": "tool", "tool_call_id": call.id, "content": sight.output(call.result)}
            for call in mine
            if call.result is not None
        ]
    return made
