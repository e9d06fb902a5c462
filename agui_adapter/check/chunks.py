"""Expands *_CHUNK events into the start, content and end events that they stand for.

One item is open per lane; a lane is a subagentRunId, None is the parent's. Knows nothing of what may follow what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agui_adapter.check.findings import Report

Event = dict[str, Any]

_ENDS_ITS_LANE = {
    *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
    *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"),
    *("REASONING_END", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM", "STEP_STARTED", "STEP_FINISHED"),
    *("SUBAGENT_FINISHED", "SUBAGENT_ERROR"),
}
_ENDS_ALL_LANES = {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"}


@dataclass(frozen=True)
class _Kind:
    """How one chunk type expands. `required` are the fields a first chunk needs, the id first."""

    start: str
    content: str
    end: str
    required: tuple[str, ...]
    repeated: tuple[str, ...]  # may be repeated, but only with the value of the first chunk
    defaults: dict[str, str]


_KINDS = {
    "TEXT_MESSAGE_CHUNK": _Kind(
        start="TEXT_MESSAGE_START",
        content="TEXT_MESSAGE_CONTENT",
        end="TEXT_MESSAGE_END",
        required=("messageId",),
        repeated=("role", "name"),
        defaults={"role": "assistant"},
    ),
    "TOOL_CALL_CHUNK": _Kind(
        start="TOOL_CALL_START",
        content="TOOL_CALL_ARGS",
        end="TOOL_CALL_END",
        required=("toolCallId", "toolCallName"),
        repeated=("toolCallName", "parentMessageId"),
        defaults={},
    ),
    "REASONING_MESSAGE_CHUNK": _Kind(
        start="REASONING_MESSAGE_START",
        content="REASONING_MESSAGE_CONTENT",
        end="REASONING_MESSAGE_END",
        required=("messageId",),
        repeated=(),
        defaults={"role": "reasoning"},
    ),
}


class Chunks:
    """The open lanes. Feed every event, get back what the stages after this one should see."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lanes: dict[str | None, tuple[str, Event]] = {}  # lane → (chunk type, the start event made for it)

    def expand(self, event: Event) -> list[tuple[Event, bool]]:
        """The events that `event` stands for, each with whether it was made from a chunk."""
        kind = event["type"]
        if kind in _KINDS:
            return [(made, True) for made in self._chunk(kind, event)]
        made: list[Event] = []
        if kind in _ENDS_ALL_LANES:
            for lane in list(self._lanes):
                made += self._close(lane)
        elif kind in _ENDS_ITS_LANE:
            made = self._close(event.get("subagentRunId"))
        return [*((end, True) for end in made), (event, False)]

    def _close(self, lane: str | None) -> list[Event]:
        if lane not in self._lanes:
            return []
        kind, start = self._lanes.pop(lane)
        return [_event(_KINDS[kind].end, start, _KINDS[kind].required[0], "subagentRunId")]

    def _chunk(self, kind: str, chunk: Event) -> list[Event]:
        shape = _KINDS[kind]
        id_field = shape.required[0]
        lane, known = self._lane(kind, chunk)
        if not known:
            return []
        open_kind, start = self._lanes.get(lane, ("", {}))
        made: list[Event] = []
        if open_kind == kind and chunk.get(id_field, start[id_field]) == start[id_field]:
            for field in shape.repeated:
                if field in chunk and chunk[field] != start.get(field):
                    self._report.add(
                        "chunk-mismatch",
                        f"{kind} gives {field} {chunk[field]!r}, its item began with {start.get(field)!r}",
                    )
        else:
            made += self._close(lane)
            missing = [field for field in shape.required if field not in chunk]
            if missing:
                self._report.add("chunk-first", f"the first {kind} of an item needs {' and '.join(missing)}")
                return made
            start = {
                **shape.defaults,
                **_event(shape.start, chunk, *shape.required, *shape.repeated, "subagentRunId"),
            }
            self._lanes[lane] = (kind, start)
            made.append(start)
        if "delta" in chunk or not made:
            made.append({**_event(shape.content, start, id_field, "subagentRunId"), "delta": chunk.get("delta", "")})
        return made

    def _lane(self, kind: str, chunk: Event) -> tuple[str | None, bool]:
        """The lane that `chunk` belongs to, and whether that could be told."""
        id_field = _KINDS[kind].required[0]
        tag: str | None = chunk.get("subagentRunId")
        if id_field in chunk:
            for lane, (open_kind, start) in self._lanes.items():
                if open_kind == kind and start[id_field] == chunk[id_field]:
                    if tag is not None and tag != lane:
                        self._report.add(
                            "attribution",
                            f"{kind} for {chunk[id_field]!r} says subagent {tag!r}, it was opened by {lane!r}",
                        )
                        return None, False
                    return lane, True
            return tag, True
        if tag is not None or self._lanes.get(None, ("",))[0] == kind:
            return tag, True
        candidates = [lane for lane, (open_kind, _) in self._lanes.items() if open_kind == kind]
        if len(candidates) > 1:
            self._report.add("chunk-ambiguous", f"{kind} without {id_field} could continue {len(candidates)} items")
            return None, False
        return (candidates[0] if candidates else None), True


def _event(kind: str, source: Event, *fields: str) -> Event:
    return {"type": kind, **{field: source[field] for field in fields if field in source}}
