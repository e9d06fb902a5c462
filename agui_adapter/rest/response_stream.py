"""StreamEvents → the Responses API: its semantic events in their official order, and the response they make. Pure.

One translator makes both, so a stored, a streamed and a plain response never differ. What the agent says is message
items; a call for the client a ``function_call``; a call of the server's own, where it is seen at all, an ``mcp_call``
of the server ``hermes``: the shape that OpenAI gives to tools which its client does not run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ..attachments import shown
from ..encode import Deltas, dumps
from ..errors import AguiError
from ..results import Tokens
from ..stream import (
    Attachment,
    Commentary,
    MessageChunk,
    MessageRevised,
    MessageStart,
    MessageStop,
    ReasoningChunk,
    ReasoningStart,
    ReasoningStop,
    StreamEvent,
    ToolCall,
    ToolResult,
    TurnFinished,
    TurnParked,
    Usage,
)
from .chunks import failure, questions
from .seen import Sight, Thoughts

Item = dict[str, Any]


class ResponseStream:
    """One response. ``start()`` once, ``feed(event)`` for each event; ``done`` after the terminal event.

    ``base``: the response's own members; ``after``: frames up to this sequence number are left out (a resumed stream).
    """

    def __init__(self, base: Mapping[str, Any], sight: Sight, *, after: int = -1) -> None:
        self.done = False
        self.status = "in_progress"
        self.error: AguiError | None = None
        self._base = dict(base)
        self._sight = sight
        self._after = after
        self._sequence = 0
        self._tokens = Tokens()
        self._output: list[Item] = []
        self._places: dict[str, int] = {}  # item id → output_index
        self._calls: dict[str, Item] = {}  # call id → item
        self._next = ""  # the id that MessageStart announced
        self._open: Item | None = None  # the message or reasoning item that text goes to
        self._texts: list[str] = []
        self._deltas = Deltas(b"", b"")
        self._thoughts = Thoughts(sight)
        self._stretch = ""

    def response(self) -> dict[str, Any]:
        """The response as it is now. A copy."""
        output = copy.deepcopy(self._output)
        if self._open is not None:
            _with_text(output[self._places[self._open["id"]]], "".join(self._texts))
        error = None
        if self.error is not None:
            code = "rate_limit_exceeded" if self.error.status == 429 else "server_error"
            error = {"code": code, "message": self.error.message}
        return {
            **self._base,
            "status": self.status,
            "error": error,
            "output": output,
            "usage": _usage(self._tokens) if self.done else None,
        }

    def start(self) -> list[bytes]:
        """The response is created and begins."""
        return self._tell(
            ("response.created", {"response": self.response()}), ("response.in_progress", {"response": self.response()})
        )

    def feed(self, event: StreamEvent) -> list[bytes]:
        """The frames of one event; none after the end."""
        if self.done:
            return []
        if isinstance(event, MessageChunk):  # the hot path
            return self._text(event.text)
        handler = _HANDLERS.get(type(event))
        return handler(self, event) if handler is not None else []

    def fail(self, error: AguiError) -> list[bytes]:
        """End the response with an error, if it has not ended."""
        if self.done:
            return []
        frames = self._close()
        self.error = error
        return frames + self._finish("failed", "response.failed")

    def cut(self) -> list[bytes]:
        """End the stream because its time is over, and not the response: it may be read again."""
        return self._tell(
            ("error", {"code": "stream_over", "message": "This stream has lasted as long as one may.", "param": None})
        )

    # -- messages -------------------------------------------------------------------------------------------

    def _text(self, text: str) -> list[bytes]:
        frames = []
        if self._open is None or self._open["type"] != "message":
            frames = self._close() + self._open_message()
        self._texts.append(text)
        if text and (made := self._delta(text)):
            frames.append(made)
        return frames

    def _open_message(self) -> list[bytes]:
        item_id = self._fresh(f"msg_{self._next or len(self._output)}")
        item: Item = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        frames = self._add(item)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        place = {"item_id": item_id, "output_index": self._places[item_id], "content_index": 0}
        frames += self._tell(("response.content_part.added", {**place, "part": part}))
        item["content"] = [dict(part)]
        self._begin_text(item, "response.output_text.delta", {**place, "logprobs": []})
        return frames

    def _begin_text(self, item: Item, kind: str, members: dict[str, Any]) -> None:
        self._open, self._texts = item, []
        before, after = dumps({"type": kind, **members, "delta": ""}).split(b'"delta":""')
        head = b"event: " + kind.encode() + b"\ndata: " + before + b'"delta":'
        self._deltas = Deltas(head, after[:-1])  # the number is the last member

    def _delta(self, text: str) -> bytes:
        made = self._deltas.frame(text)
        return self._numbered(made) if made else b""

    def _numbered(self, made: bytes) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return made + b',"sequence_number":%d}\n\n' % number if number > self._after else b""

    def _close(self) -> list[bytes]:
        """End the open item."""
        item = self._open
        if item is None:
            return []
        rest = self._deltas.rest()
        frames = [made] if rest and (made := self._numbered(rest)) else []
        self._open, text = None, "".join(self._texts)
        _with_text(item, text)
        item["status"] = "completed"
        index = self._places[item["id"]]
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            frames += self._tell(
                ("response.output_text.done", {**place, "text": text, "logprobs": []}),
                ("response.content_part.done", {**place, "part": item["content"][0]}),
            )
        else:
            place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
            frames += self._tell(
                ("response.reasoning_summary_text.done", {**place, "text": text}),
                ("response.reasoning_summary_part.done", {**place, "part": item["summary"][0]}),
            )
        return frames + self._tell(("response.output_item.done", {"output_index": index, "item": item}))

    def _begins(self, event: MessageStart) -> list[bytes]:
        self._next = event.message_id
        return self._close()

    def _stops(self, event: MessageStop) -> list[bytes]:
        return self._close() if self._open is not None and self._open["type"] == "message" else []

    def _whole(self, event: Commentary) -> list[bytes]:
        return self._text(event.text) + self._close()

    def _file(self, event: Attachment) -> list[bytes]:
        self._next = event.message_id
        return self._close() + self._text(shown(event)) + self._close()

    def _revised(self, event: MessageRevised) -> list[bytes]:
        """The response at the end holds what the history keeps; the deltas of a stream cannot be taken back."""
        index = self._places.get(f"msg_{event.message_id}")
        if index is None:
            self._next = event.message_id
            return self._text(event.text) + self._close() if event.text else []
        item = self._output[index]
        frames = []
        if item is self._open:
            had = "".join(self._texts)
            if event.text.startswith(had):
                return self._text(event.text[len(had) :]) if len(event.text) > len(had) else []
            frames = self._close()
        _with_text(item, event.text)
        return frames

    # -- reasoning ------------------------------------------------------------------------------------------

    def _reasons(self, event: ReasoningStart) -> list[bytes]:
        self._thoughts.begin()
        self._stretch = event.message_id
        return []

    def _reasoned(self, event: ReasoningChunk) -> list[bytes]:
        return self._thought(self._thoughts.feed(event.text))

    def _reasoned_out(self, event: ReasoningStop) -> list[bytes]:
        frames = self._thought(self._thoughts.rest())
        return frames + (self._close() if self._open is not None and self._open["type"] == "reasoning" else [])

    def _thought(self, text: str) -> list[bytes]:
        if not text:
            return []
        frames = []
        if self._open is None or self._open["type"] != "reasoning":
            frames = self._close()
            item_id = self._fresh(f"rs_{self._stretch}")
            item: Item = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": []}
            frames += self._add(item)
            place = {"item_id": item_id, "output_index": self._places[item_id], "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            frames += self._tell(("response.reasoning_summary_part.added", {**place, "part": part}))
            item["summary"] = [dict(part)]
            self._begin_text(item, "response.reasoning_summary_text.delta", place)
        self._texts.append(text)
        return [*frames, self._delta(text)]

    # -- tools ----------------------------------------------------------------------------------------------

    def _called(self, event: ToolCall) -> list[bytes]:
        if not event.client and self._sight.shows_tools != "transparent":
            return []
        frames = self._close()
        arguments = self._sight.arguments(event.arguments, client=event.client)
        letter, kind = ("fc", "function_call") if event.client else ("mcp", "mcp_call")
        item: Item = {"id": self._fresh(f"{letter}_{event.call_id}"), "type": kind, "status": "in_progress"}
        item |= {"name": event.tool_name, "arguments": ""}
        item |= (
            {"call_id": event.call_id} if event.client else {"server_label": "hermes", "output": None, "error": None}
        )
        frames += self._add(item)
        index = self._places[item["id"]]
        place = {"item_id": item["id"], "output_index": index}
        item["arguments"] = arguments
        self._calls[event.call_id] = item
        if not event.client:
            return frames + self._tell(
                ("response.mcp_call.in_progress", place),
                ("response.mcp_call_arguments.delta", {**place, "delta": arguments}),
                ("response.mcp_call_arguments.done", {**place, "arguments": arguments}),
            )
        item["status"] = "completed"
        return frames + self._tell(
            ("response.function_call_arguments.delta", {**place, "delta": arguments}),
            ("response.function_call_arguments.done", {**place, "name": event.tool_name, "arguments": arguments}),
            ("response.output_item.done", {"output_index": index, "item": item}),
        )

    def _returned(self, event: ToolResult) -> list[bytes]:
        item = self._calls.get(event.call_id)
        if item is None or event.client:
            return []
        index, content = self._places[item["id"]], self._sight.output(event.content)
        fine = event.status == "ok"
        item["status"], item["output" if fine else "error"] = ("completed" if fine else "failed"), content
        return self._tell(
            (f"response.mcp_call.{item['status']}", {"item_id": item["id"], "output_index": index}),
            ("response.output_item.done", {"output_index": index, "item": item}),
        )

    # -- the end --------------------------------------------------------------------------------------------

    def _used(self, event: Usage) -> list[bytes]:
        self._tokens.add(event)
        return []

    def _parked(self, event: TurnParked) -> list[bytes]:
        if not event.requests:
            return []
        frames = self._close()
        if asked := questions(event.requests):
            self._next = "asked"
            frames += self._text(asked) + self._close()
        return frames + self._finish("completed", "response.completed")

    def _finished(self, event: TurnFinished) -> list[bytes]:
        if event.outcome == "failed":
            return self.fail(failure(event.code, event.message))
        frames = self._close()
        if event.outcome == "cancelled":
            return frames + self._finish("cancelled", "response.incomplete")
        return frames + self._finish("completed", "response.completed")

    def _finish(self, status: str, kind: str) -> list[bytes]:
        self.done, self.status = True, status
        return self._tell((kind, {"response": self.response()}))

    # -- frames ---------------------------------------------------------------------------------------------

    def _fresh(self, wish: str) -> str:
        return wish if wish not in self._places else f"{wish}_{len(self._output)}"

    def _add(self, item: Item) -> list[bytes]:
        index = self._places[item["id"]] = len(self._output)
        self._output.append(item)
        return self._tell(("response.output_item.added", {"output_index": index, "item": item}))

    def _tell(self, *events: tuple[str, dict[str, Any]]) -> list[bytes]:
        frames = []
        for kind, members in events:
            number, self._sequence = self._sequence, self._sequence + 1
            if number > self._after:
                told = dumps({"type": kind, **members, "sequence_number": number})
                frames.append(b"event: " + kind.encode() + b"\ndata: " + told + b"\n\n")
        return frames


_HANDLERS: dict[type, Callable[[ResponseStream, Any], list[bytes]]] = {
    MessageStart: ResponseStream._begins,
    MessageStop: ResponseStream._stops,
    Commentary: ResponseStream._whole,
    Attachment: ResponseStream._file,
    MessageRevised: ResponseStream._revised,
    ReasoningStart: ResponseStream._reasons,
    ReasoningChunk: ResponseStream._reasoned,
    ReasoningStop: ResponseStream._reasoned_out,
    ToolCall: ResponseStream._called,
    ToolResult: ResponseStream._returned,
    Usage: ResponseStream._used,
    TurnParked: ResponseStream._parked,
    TurnFinished: ResponseStream._finished,
}


def _with_text(item: Item, text: str) -> None:
    (item["content"] if item["type"] == "message" else item["summary"])[0]["text"] = text


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.total,
    }
