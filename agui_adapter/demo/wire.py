"""A model's step in the shapes of OpenAI's chat completions API: SSE frames, a whole body, an error body.

Pure: no sockets, no time. Shapes follow the "Chat Completions" API reference (object `chat.completion.chunk` and
`chat.completion`); reasoning goes as `reasoning_content`, the field that Hermes and most open providers use.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from agui_adapter.demo.script import Step

CREATED = 1_700_000_000
"""A fixed `created` time (seconds): the same request gives the same bytes."""

DONE = b"data: [DONE]\n\n"
GARBAGE = b"\x00\xff\xfe<html>this is not an event stream</html>\n\n\x80\x81"

_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    429: ("rate_limit_error", "rate_limit_exceeded", "Rate limit reached, please try again later."),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A step with what the request adds to it: ids, the model's name, the size of the prompt in tokens."""

    step: Step
    completion_id: str
    model: str
    prompt_tokens: int
    tool_ids: tuple[str | None, ...]

    def envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self.completion_id, "object": kind, "created": CREATED, "model": self.model}

    def usage(self, deltas: int) -> dict[str, Any]:
        """The step's own usage, or plausible counts: `deltas` stands for the completion's tokens."""
        if self.step.usage is not None:
            return self.step.usage
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": deltas,
            "total_tokens": self.prompt_tokens + deltas,
        }


def split(text: str, size: int | None = None) -> list[str]:
    """Deltas of one word with the white space after it, or of `size` characters; joined they are `text`."""
    if size is not None:
        return [text[i : i + size] for i in range(0, len(text), size)]
    return re.findall(r"\S+\s*|\s+", text)


def deltas(answer: Answer) -> list[dict[str, Any]]:
    """The step's deltas in order: reasoning, text, tool calls by index with their arguments in fragments.

    A `nostream` step is a single delta with everything. A step with `cut` ends where the connection will break.
    """
    step = answer.step
    if step.nostream:
        whole = {"reasoning_content": step.reasoning, "content": step.text}
        calls = [_call(answer, i, step.tools[i].arguments_text()) for i in range(len(step.tools))]
        return [{key: value for key, value in (whole | {"tool_calls": calls}).items() if value}]
    left = step.cut if step.cut is not None else len(step.text) + sum(len(t.arguments_text()) for t in step.tools)
    found: list[dict[str, Any]] = [{"reasoning_content": piece} for piece in split(step.reasoning, step.chunk)]
    for piece in split(step.text[:left], step.chunk):
        found.append({"content": piece})
    left -= len(step.text)
    for index, tool in enumerate(step.tools):
        if left <= 0 and step.cut is not None:
            break
        arguments = tool.arguments_text()
        found.append({"tool_calls": [_call(answer, index, "")]})
        size = step.chunk or max(1, -(-len(arguments) // 3))
        for piece in split(arguments[:left], size):
            found.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        left -= len(arguments)
    return found


def frames(answer: Answer, pieces: list[dict[str, Any]]) -> Iterator[bytes]:
    """One SSE frame for each of `pieces`, which `deltas` made."""
    head = _dumps(answer.envelope("chat.completion.chunk"))[:-1] + b',"choices":[{"index":0,"delta":'
    for piece in pieces:
        yield b"data: " + head + _dumps(piece) + b',"finish_reason":null}]}\n\n'


def opening(answer: Answer) -> bytes:
    """The first frame: the role, with the empty content that real providers send."""
    return next(frames(answer, [{"role": "assistant", "content": ""}]))


def closing(answer: Answer, count: int, *, include_usage: bool) -> bytes:
    """The finish reason, the usage if asked for (`stream_options.include_usage`), and `[DONE]`."""
    envelope = answer.envelope("chat.completion.chunk")
    finish = envelope | {"choices": [{"index": 0, "delta": {}, "finish_reason": answer.step.finish_reason}]}
    usage = envelope | {"choices": [], "usage": answer.usage(count)}
    data = [finish, usage] if include_usage else [finish]
    return b"".join(b"data: " + _dumps(item) + b"\n\n" for item in data) + DONE


def body(answer: Answer) -> bytes:
    """The whole completion as one JSON body."""
    step = answer.step
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    if step.tools:
        message["tool_calls"] = [
            {key: value for key, value in _call(answer, i, tool.arguments_text()).items() if key != "index"}
            for i, tool in enumerate(step.tools)
        ]
    choice = {"index": 0, "message": message, "finish_reason": step.finish_reason, "logprobs": None}
    envelope = answer.envelope("chat.completion")
    return _dumps(envelope | {"choices": [choice], "usage": answer.usage(len(deltas(answer)))})


def error_body(status: int, message: str | None = None) -> dict[str, Any]:
    """An error as the API gives it. `message` replaces the usual sentence."""
    default = ("server_error", "server_error", "The server had an error while processing your request.")
    if status < 500:
        default = ("invalid_request_error", "invalid_request", "The request is not valid.")
    kind, code, sentence = _ERRORS.get(status, default)
    return {"error": {"message": message or sentence, "type": kind, "param": None, "code": code}}


def _dumps(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, which a script may ask for on purpose: escaped, as other servers send it
        return json.dumps(value).encode()


def _call(answer: Answer, index: int, arguments: str) -> dict[str, Any]:
    call: dict[str, Any] = {"index": index, "id": answer.tool_ids[index], "type": "function"}
    call["function"] = {"name": answer.step.tools[index].name, "arguments": arguments}
    if call["id"] is None:
        del call["id"]
    return call
