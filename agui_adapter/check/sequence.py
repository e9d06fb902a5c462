"""What may follow what: runs, items that are open, and who owns them.

Sees events whose shape is good and whose chunks are expanded. Knows nothing of the messages a client builds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agui_adapter.check.findings import Peer, Report

Event = dict[str, Any]
Owner = str | None  # a subagentRunId; None is the parent agent

# event type → (kind of item, field that names it)
_OPENS = {
    "TEXT_MESSAGE_START": ("text message", "messageId"),
    "TOOL_CALL_START": ("tool call", "toolCallId"),
    "REASONING_START": ("reasoning span", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning message", "messageId"),
}
_CONTINUES = {
    "TEXT_MESSAGE_CONTENT": ("text message", "messageId"),
    "TOOL_CALL_ARGS": ("tool call", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning message", "messageId"),
}
_CLOSES = {
    "TEXT_MESSAGE_END": ("text message", "messageId"),
    "TOOL_CALL_END": ("tool call", "toolCallId"),
    "REASONING_END": ("reasoning span", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning message", "messageId"),
}
# An id is unique within a kind; a reasoning span and the message in it share their owner.
_OWNER_KIND = {
    "text message": "message",
    "tool call": "call",
    "reasoning span": "reasoning",
    "reasoning message": "reasoning",
}


@dataclass
class _Run:
    """One run, from RUN_STARTED on; everything here is forgotten at the next."""

    thread_id: str | None = None
    run_id: str | None = None
    open: dict[str, dict[str, bool]] = field(default_factory=dict)  # kind → id → whether chunks opened it
    by_chunks: set[tuple[str, str]] = field(default_factory=set)
    owners: dict[tuple[str, str], Owner] = field(default_factory=dict)
    steps: set[tuple[Owner, str]] = field(default_factory=set)
    subagents: dict[str, bool] = field(default_factory=dict)  # id → whether it is still running
    tags: set[str] = field(default_factory=set)


class Sequence:
    """Feed every event in order, then call `end` once."""

    def __init__(self, report: Report, peer: Peer, thread_id: str | None, run_id: str | None) -> None:
        self._report = report
        self._peer = peer
        self._thread_id = thread_id
        self._wanted_run = run_id
        self._run = _Run()
        self._run_ids: set[str] = set()
        self._state = "empty"  # empty, active, finished, failed

    def feed(self, event: Event, from_chunk: bool) -> bool:
        """Check one event; False when the later stages should not see it, because a client has nothing to apply."""
        kind = event["type"]
        if not self._may_come(kind):
            return False
        tag: Owner = event.get("subagentRunId")
        if tag is not None and not kind.startswith("SUBAGENT_"):
            self._run.tags.add(tag)
            if self._run.subagents.get(tag) is False:
                self._report.add("subagent-ended", f"{kind} carries {tag!r}, a subagent that has ended in this run")
        if kind in _OPENS:
            return self._open(*_OPENS[kind], event, from_chunk)
        if kind in _CONTINUES:
            return self._continue(*_CONTINUES[kind], event, from_chunk, closes=False)
        if kind in _CLOSES:
            return self._continue(*_CLOSES[kind], event, from_chunk, closes=True)
        handler = getattr(self, f"_{kind.lower()}", None)
        if handler is not None:
            handler(event)
        return True

    def end(self) -> None:
        """The stream is over."""
        if self._state == "empty":
            self._report.add("empty-stream", "the stream holds no event that a client would see")
        elif self._state == "active":
            items = self._open_items()
            rest = f"; still open: {items}" if items else ""
            self._report.add("truncated", f"the stream ends without RUN_FINISHED or RUN_ERROR{rest}")
        if self._wanted_run is not None and self._run_ids and self._wanted_run not in self._run_ids:
            self._report.add("wrong-run", f"no run {self._wanted_run!r} was started, which was asked for")

    def _may_come(self, kind: str) -> bool:
        state = self._state
        if state == "empty" and kind not in ("RUN_STARTED", "RUN_ERROR"):
            self._report.add("first-event", f"the first event is {kind}, it must be RUN_STARTED or RUN_ERROR")
        if state == "failed" and kind != "RUN_STARTED":
            self._report.add("after-error", f"{kind} after RUN_ERROR; only RUN_STARTED may follow")
            return False
        if state == "finished" and kind not in ("RUN_STARTED", "RUN_ERROR"):
            self._report.add("after-finish", f"{kind} after RUN_FINISHED; only RUN_STARTED or RUN_ERROR may follow")
            return False
        if state == "active" and kind == "RUN_STARTED":
            self._report.add("run-active", "RUN_STARTED while the run before it is not finished")
        self._state = {"RUN_FINISHED": "finished", "RUN_ERROR": "failed"}.get(kind, "active")
        return True

    # Items with a start and an end

    def _open(self, item: str, id_field: str, event: Event, from_chunk: bool) -> bool:
        item_id = event[id_field]
        opened = self._run.open.setdefault(item, {})
        if item_id in opened:
            rule = "chunk-mixed" if from_chunk != opened[item_id] else "start-open"
            self._report.add(rule, f"{event['type']}: the {item} {item_id!r} is already open")
            return False
        opened[item_id] = from_chunk
        if from_chunk:
            self._run.by_chunks.add((item, item_id))
        else:
            self._run.by_chunks.discard((item, item_id))
        key = (_OWNER_KIND[item], item_id)
        owner: Owner = event.get("subagentRunId")
        if item == "tool call":
            owner = self._call_owner(event, owner)
        if key in self._run.owners:
            self._same_owner(event, key)
        else:
            self._run.owners[key] = owner
        return True

    def _call_owner(self, event: Event, tag: Owner) -> Owner:
        """A tool call belongs to the message that carries it: the parent's owner, which the tag must not contradict."""
        parent = event.get("parentMessageId")
        if parent is None or ("message", parent) not in self._run.owners:
            return tag
        owner = self._run.owners["message", parent]
        known = self._run.owners.get(("call", event["toolCallId"]), owner)
        if (tag is not None and tag != owner) or (tag is None and known != owner):
            self._report.add(
                "attribution",
                f"TOOL_CALL_START {event['toolCallId']!r} is {_who(tag if tag is not None else known)}, "
                f"its message {parent!r} is {_who(owner)}",
            )
        return owner

    def _continue(self, item: str, id_field: str, event: Event, from_chunk: bool, *, closes: bool) -> bool:
        item_id = event[id_field]
        opened = self._run.open.setdefault(item, {})
        if item_id not in opened:
            rule = "chunk-mixed" if not from_chunk and (item, item_id) in self._run.by_chunks else "not-open"
            self._report.add(rule, f"{event['type']}: no {item} {item_id!r} is open")
            return False
        self._same_owner(event, (_OWNER_KIND[item], item_id))
        if closes:
            del opened[item_id]
        return True

    def _same_owner(self, event: Event, key: tuple[str, str]) -> None:
        tag = event.get("subagentRunId")
        if tag is not None and key in self._run.owners and self._run.owners[key] != tag:
            self._report.add(
                "attribution",
                f"{event['type']} {key[1]!r} carries {tag!r}, it belongs to {_who(self._run.owners[key])}",
            )

    def _step_started(self, event: Event) -> None:
        step = (event.get("subagentRunId"), event["stepName"])
        if step in self._run.steps:
            self._report.add("start-open", f"STEP_STARTED: the step {step[1]!r} is already open")
        self._run.steps.add(step)

    def _step_finished(self, event: Event) -> None:
        step = (event.get("subagentRunId"), event["stepName"])
        if step in self._run.steps:
            self._run.steps.remove(step)
        elif others := [owner for owner, name in self._run.steps if name == step[1]]:
            self._report.add("step-owner", f"the step {step[1]!r} is open under {_who(others[0])}, not {_who(step[0])}")
        else:
            self._report.add("not-open", f"STEP_FINISHED: no step {step[1]!r} is open")

    # Owners of things that have no end

    def _activity_snapshot(self, event: Event) -> None:
        key = ("activity", event["messageId"])
        if key not in self._run.owners or event.get("replace") is not False:
            self._run.owners[key] = event.get("subagentRunId")

    def _activity_delta(self, event: Event) -> None:
        self._same_owner(event, ("activity", event["messageId"]))

    def _tool_call_result(self, event: Event) -> None:
        self._run.owners["message", event["messageId"]] = event.get("subagentRunId")

    def _reasoning_encrypted_value(self, event: Event) -> None:
        entity = event["entityId"]
        kinds = ("call",) if event["subtype"] == "tool-call" else ("message", "reasoning")
        key = next(((kind, entity) for kind in kinds if (kind, entity) in self._run.owners), None)
        if key is not None:
            self._same_owner(event, key)

    def _messages_snapshot(self, event: Event) -> None:
        self._seed(event["messages"], replace=True)

    def _seed(self, messages: list[Event], *, replace: bool) -> None:
        """Owners of restated messages and their tool calls: a snapshot rewrites them, an echoed input adds them."""
        for message in messages:
            kind = {"reasoning": "reasoning", "activity": "activity"}.get(message["role"], "message")
            for key in [(kind, message["id"]), *(("call", call["id"]) for call in message.get("toolCalls", []))]:
                if replace or key not in self._run.owners:
                    self._run.owners[key] = message.get("subagentRunId")

    # Subagents

    def _subagent_started(self, event: Event) -> None:
        subagent, parent = event["subagentRunId"], event.get("parentSubagentRunId")
        if subagent in self._run.subagents:
            self._report.add("subagent-restarted", f"the subagent run {subagent!r} was already started in this run")
        elif subagent in self._run.tags:
            self._report.add("subagent-late", f"events carried {subagent!r} before its SUBAGENT_STARTED")
        if parent is not None and parent not in self._run.subagents:
            self._report.add("subagent-parent", f"the parent {parent!r} of {subagent!r} was not started in this run")
        self._run.subagents[subagent] = True

    def _subagent_finished(self, event: Event) -> None:
        if not self._run.subagents.get(event["subagentRunId"]):
            self._report.add("subagent-not-open", f"{event['type']}: {event['subagentRunId']!r} is not running")
        self._run.subagents[event["subagentRunId"]] = False

    _subagent_error = _subagent_finished

    # Runs

    def _run_started(self, event: Event) -> None:
        thread_id, run_id = event["threadId"], event["runId"]
        if self._thread_id is None:
            self._thread_id = thread_id
        elif thread_id != self._thread_id:
            self._report.add("wrong-thread", f"RUN_STARTED is on thread {thread_id!r}, not {self._thread_id!r}")
        if run_id in self._run_ids:
            self._report.add("run-id-reused", f"this stream already had a run {run_id!r}")
        self._run_ids.add(run_id)
        self._run = _Run(thread_id, run_id)
        version = event.get("protocolVersion")
        if version is None and self._peer == "1.0":
            self._report.add("version", "RUN_STARTED says no protocolVersion")
        elif version is not None and not _is_known_version(version):
            self._report.add("version", f"protocolVersion {version!r} makes the client warn; send '1.0'")
        if "input" in event:
            echo = event["input"]
            for name, started in (("threadId", thread_id), ("runId", run_id)):
                if echo[name] != started:
                    rule = "wrong-thread" if name == "threadId" else "wrong-run"
                    self._report.add(rule, f"RUN_STARTED.input has {name} {echo[name]!r}, the event has {started!r}")
            self._seed(echo["messages"], replace=False)

    def _run_finished(self, event: Event) -> None:
        for name, rule, started in (
            ("threadId", "wrong-thread", self._run.thread_id),
            ("runId", "wrong-run", self._run.run_id),
        ):
            if started is not None and event[name] != started:
                self._report.add(rule, f"RUN_FINISHED has {name} {event[name]!r}, the run began with {started!r}")
        if items := self._open_items():
            self._report.add("open-at-finish", f"RUN_FINISHED while these are open: {items}")

    def _run_error(self, event: Event) -> None:
        if not event["message"].strip():
            self._report.add("empty-error", "RUN_ERROR has an empty message; the user is shown nothing")

    def _open_items(self) -> str:
        items = [f"{item} {item_id!r}" for item, opened in self._run.open.items() for item_id in opened]
        items += [f"step {name!r}" for _, name in self._run.steps]
        items += [f"subagent {subagent!r}" for subagent, running in self._run.subagents.items() if running]
        return ", ".join(items)


def _who(owner: Owner) -> str:
    return "the parent agent" if owner is None else f"subagent {owner!r}"


def _is_known_version(version: str) -> bool:
    major, _, minor = version.partition(".")
    if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        return False
    return (int(major), int(minor)) <= (1, 0)
