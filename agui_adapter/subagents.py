"""Subagents → AG-UI, for one run: who is announced, what each one's activity shows, and that none is left open.

Pure. A run that ends before a subagent does says that it is suspended (AG-UI 1.0, subagents); a later run of the thread
announces it again as soon as it is heard of. The activity's id is the subagent's, so that a later run goes on in the
same place of the client's conversation. Peers that do not know subagents get the activity alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from .encode import clean
from .state import MAX_OPERATIONS, diff
from .stream import Subagent, SubagentFailed, SubagentFinished, SubagentProgress, SubagentStarted

Event: TypeAlias = dict[str, Any]
SubagentEvent: TypeAlias = SubagentStarted | SubagentProgress | SubagentFinished | SubagentFailed
ACTIVITY = "hermes.subagent"
_SUSPENDED = {"type": "suspended"}


class Subagents:
    """``announced``: the peer knows ``SUBAGENT_*``. ``shows``: as ``View.tool_output``. ``call_of``: a call's id on the
    wire, "" for one that the client does not have. ``activity_id``: the id for the activity of this name."""

    def __init__(
        self,
        *,
        announced: bool,
        shows: Literal["full", "names", "off"],
        call_of: Callable[[str], str],
        activity_id: Callable[[str], str],
    ) -> None:
        self._announced = announced
        self._shows = shows
        self._call_of = call_of
        self._activity_id = activity_id
        self._open: dict[str, Event] = {}  # by id: as announced
        self._ended: dict[str, Event] = {}  # by id: as ended, in this run
        self._told: set[str] = set()  # who was announced to the client in this run
        self._shown: dict[str, tuple[str, Event]] = {}  # by id: the activity's id and content

    def feed(self, event: SubagentEvent) -> list[Event]:
        """The wire events of one event."""
        subagent_id = clean(event.subagent.id)
        if self._shows == "off" or not subagent_id or subagent_id in self._ended:
            return []
        out = self._announce(event.subagent)
        content = self._content(event, self._shown.get(subagent_id, ("", {}))[1])
        out += self._activity(subagent_id, content)
        if isinstance(event, SubagentFinished | SubagentFailed):
            out += self._end(subagent_id, self._ending(subagent_id, event))
        return out

    def close(self) -> list[Event]:
        """The run ends: whoever still works is suspended."""
        out: list[Event] = []
        for subagent_id in reversed(list(self._open)):
            event = {"type": "SUBAGENT_FINISHED", "subagentRunId": subagent_id, "outcome": _SUSPENDED}
            out += self._end(subagent_id, event)
        return out

    def catch_up(self, held: Subagents) -> list[Event]:
        """What makes a client, which has what ``held`` has told it, hold what this one has told."""
        out: list[Event] = []
        self._told = set(held._told)
        for subagent_id, event in self._open.items() if self._announced else ():
            if subagent_id not in self._told:
                unknown = event.get("parentSubagentRunId") not in self._told
                out.append({k: v for k, v in event.items() if not (unknown and k == "parentSubagentRunId")})
                self._told.add(subagent_id)
        for subagent_id, event in self._ended.items() if self._announced else ():
            if subagent_id in held._open:
                out.append(event)
        for message_id, content in self._shown.values():
            out.append(_snapshot(message_id, content))
        return out

    # -- inside ---------------------------------------------------------------------------------------------

    def _announce(self, subagent: Subagent) -> list[Event]:
        subagent_id = clean(subagent.id)
        if not subagent_id or subagent_id in self._open or subagent_id in self._ended:
            return []
        out = self._announce(subagent.parent) if subagent.parent is not None else []
        if subagent_id in self._open:  # its own parent, by what the ids look like on the wire
            return out
        event: Event = {"type": "SUBAGENT_STARTED", "subagentRunId": subagent_id, "name": clean(subagent.name)}
        if subagent.goal and self._shows == "full":
            event["description"] = clean(subagent.goal)
        parent = clean(subagent.parent.id) if subagent.parent is not None else ""
        if parent in self._told:
            event["parentSubagentRunId"] = parent
        call_id = self._call_of(subagent.call_id)
        if call_id:
            event["parentToolCallId"] = call_id
        self._open[subagent_id] = event
        self._told.add(subagent_id)
        return [*out, event] if self._announced else out

    def _end(self, subagent_id: str, event: Event) -> list[Event]:
        self._open.pop(subagent_id, None)
        self._ended[subagent_id] = event
        return [event] if self._announced else []

    def _ending(self, subagent_id: str, event: SubagentFinished | SubagentFailed) -> Event:
        if isinstance(event, SubagentFailed):
            message = clean(event.message) if self._shows == "full" else ""
            code = clean(event.code) or "failed"
            said = message if message.strip() else f"The subagent ended: {code}."
            return {"type": "SUBAGENT_ERROR", "subagentRunId": subagent_id, "message": said, "code": code}
        ending: Event = {"type": "SUBAGENT_FINISHED", "subagentRunId": subagent_id, "outcome": {"type": "success"}}
        if event.summary and self._shows == "full":
            ending["result"] = clean(event.summary)
        return ending

    def _content(self, event: SubagentEvent, before: Event) -> Event:
        subagent, full = event.subagent, self._shows == "full"
        content: Event = {"subagentId": subagent.id, "name": subagent.name, "status": "running"}
        content |= {"steps": [], "stepsLeftOut": 0}
        if full:
            content["goal"] = subagent.goal
        call_id = self._call_of(subagent.call_id)
        if call_id:
            content["toolCallId"] = call_id
        content.update(before)
        if isinstance(event, SubagentProgress):
            content["steps"] = self._steps(event.steps)
            content["stepsLeftOut"] = event.left_out
        elif isinstance(event, SubagentFinished):
            content |= {"status": "completed", "seconds": round(event.duration, 3)}
            content |= {"summary": event.summary} if full else {}
        elif isinstance(event, SubagentFailed):
            content |= {"status": event.code or "failed", "seconds": round(event.duration, 3)}
            content |= {"error": event.message} if full else {}
        made: Event = clean(content)
        return made

    def _steps(self, steps: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        if self._shows == "full":
            return [dict(step) for step in steps]
        return [{"kind": "tool", "tool": step.get("tool", "")} for step in steps if step.get("kind") == "tool"]

    def _activity(self, subagent_id: str, content: Event) -> list[Event]:
        known = self._shown.get(subagent_id)
        if known is None:
            message_id = self._activity_id(f"{subagent_id}-activity")
            self._shown[subagent_id] = message_id, content
            return [_snapshot(message_id, content)]
        message_id, before = known
        self._shown[subagent_id] = message_id, content
        patch = diff(before, content)
        if len(patch) > MAX_OPERATIONS:
            return [_snapshot(message_id, content)]
        if not patch:
            return []
        return [{"type": "ACTIVITY_DELTA", "messageId": message_id, "activityType": ACTIVITY, "patch": patch}]


def _snapshot(message_id: str, content: Event) -> Event:
    return {"type": "ACTIVITY_SNAPSHOT", "messageId": message_id, "activityType": ACTIVITY, "content": content}
