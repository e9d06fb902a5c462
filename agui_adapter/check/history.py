"""The messages, state and activities that a client would build, and the traps on the way.

Sees what `Sequence` let through. Keeps ids and roles, not texts: enough to see what would be lost, merged or doubled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agui_adapter.check.findings import Report
from agui_adapter.check.patch import PatchError, apply_patch

Event = dict[str, Any]


@dataclass
class _Call:
    """A tool call that the client has, by its id."""

    name: str | None
    parent: str | None = None
    open: bool = False
    answered: bool = False
    of_this_run: bool = False


class History:
    """`state` is the client's state before the stream; `known_calls` are ids of tool calls of earlier runs."""

    def __init__(self, report: Report, state: object, known_calls: Collection[str]) -> None:
        self._report = report
        self._state = state
        self._roles: dict[str, str] = {}  # message id → role; what the client's list holds, as far as the stream says
        self._texts: set[str] = set()  # ids of messages that have had their text
        self._open: dict[str, str] = {}  # id of a message that is being streamed → its kind
        self._activities: dict[str, Any] = {}
        self._calls = {call: _Call(None) for call in known_calls}

    def feed(self, event: Event) -> None:
        handler = getattr(self, f"_{event['type'].lower()}", None)
        if handler is not None:
            handler(event)

    # Messages

    def _text_message_start(self, event: Event) -> None:
        self._start_message(event, event.get("role", "assistant"))

    def _reasoning_message_start(self, event: Event) -> None:
        self._start_message(event, "reasoning")

    def _start_message(self, event: Event, role: str) -> None:
        message = event["messageId"]
        known = self._roles.get(message)
        if known == "activity":
            self._report.add("activity-id", f"{message!r} is an activity; the client drops this message")
        elif known is not None and known != role:
            self._report.add("id-shared", f"{message!r} is already a {known} message; this text is appended to it")
        elif message in self._texts:
            self._report.add("message-reopened", f"{message!r} already has its text; the client appends to it")
        self._roles.setdefault(message, role)
        self._texts.add(message)
        self._open[message] = role

    def _text_message_end(self, event: Event) -> None:
        self._open.pop(event["messageId"], None)

    _reasoning_message_end = _text_message_end

    def _messages_snapshot(self, event: Event) -> None:
        messages: list[Event] = event["messages"]
        roles = {message["id"]: message["role"] for message in messages}
        for message in [each for each, times in Counter(each["id"] for each in messages).items() if times > 1]:
            self._report.add("snapshot-duplicate-id", f"MESSAGES_SNAPSHOT holds the id {message!r} twice")
        # Activity and reasoning messages stay unless the snapshot holds one of that role.
        kept = {role for role in ("activity", "reasoning") if role not in roles.values()}
        lost = [message for message, role in self._open.items() if message not in roles and role not in kept]
        calls = {call["id"]: call for message in messages for call in message.get("toolCalls", [])}
        lost += [call for call, known in self._calls.items() if known.open and call not in calls]
        for item in lost:
            self._report.add("snapshot-drops-open", f"{item!r} is being streamed, but is not in MESSAGES_SNAPSHOT")
        self._roles = {message: role for message, role in self._roles.items() if role in kept} | roles
        self._activities = {key: value for key, value in self._activities.items() if key in self._roles}
        self._restate(messages)

    def _restate(self, messages: list[Event]) -> None:
        for message in messages:
            self._roles.setdefault(message["id"], message["role"])
            if message.get("content"):
                self._texts.add(message["id"])
            if message["role"] == "activity":
                self._activities[message["id"]] = message["content"]
            for call in message.get("toolCalls", []):
                known = self._calls.setdefault(call["id"], _Call(call["function"]["name"]))
                known.name = call["function"]["name"]
            if message["role"] == "tool" and message["toolCallId"] in self._calls:
                self._calls[message["toolCallId"]].answered = True

    # Tool calls

    def _tool_call_start(self, event: Event) -> None:
        call_id, parent = event["toolCallId"], event.get("parentMessageId")
        known = self._calls.get(call_id)
        if known is not None:
            self._report.add("call-reopened", f"the tool call {call_id!r} exists; its arguments are appended again")
            if known.name not in (None, event["toolCallName"]):
                self._report.add("call-renamed", f"{call_id!r} was {known.name!r}, now {event['toolCallName']!r}")
            known.name, known.open, known.of_this_run = event["toolCallName"], True, True
            return
        if parent and self._roles.get(parent, "assistant") != "assistant":
            self._report.add("parent-role", f"the parent {parent!r} of {call_id!r} is a {self._roles[parent]} message")
            parent = None
        if not parent:
            waiting = [
                other
                for other, each in self._calls.items()
                if each.of_this_run and not each.parent and not each.answered
            ]
            if waiting:
                self._report.add(
                    "calls-without-parent",
                    f"{call_id!r} and {waiting[0]!r} run side by side without a common parentMessageId",
                )
            if self._roles.get(call_id, "assistant") != "assistant":
                self._report.add("id-shared", f"the message made for {call_id!r} shares its id with another")
        self._roles.setdefault(parent or call_id, "assistant")
        self._calls[call_id] = _Call(event["toolCallName"], parent, open=True, of_this_run=True)

    def _tool_call_end(self, event: Event) -> None:
        if event["toolCallId"] in self._calls:
            self._calls[event["toolCallId"]].open = False

    def _tool_call_result(self, event: Event) -> None:
        call_id, message = event["toolCallId"], event["messageId"]
        call = self._calls.get(call_id)
        if call is None:
            self._report.add("result-unknown-call", f"a result for {call_id!r}, which nobody has called")
        elif call.open:
            self._report.add("result-before-end", f"a result for {call_id!r} before its TOOL_CALL_END")
        elif call.answered:
            self._report.add("result-twice", f"{call_id!r} already has a result; the client keeps both")
        if message in self._roles:
            self._report.add("id-shared", f"the result {message!r} shares its id with a {self._roles[message]} message")
        self._roles.setdefault(message, "tool")
        if call is not None:
            call.answered = True

    def _reasoning_encrypted_value(self, event: Event) -> None:
        entity = event["entityId"]
        if entity not in (self._calls if event["subtype"] == "tool-call" else self._roles):
            self._report.add("encrypted-unknown", f"there is no {event['subtype']} {entity!r}; the value is ignored")

    # State and activities

    def _state_snapshot(self, event: Event) -> None:
        self._state = event["snapshot"]

    def _state_delta(self, event: Event) -> None:
        try:
            self._state = apply_patch(self._state, event["delta"])
        except PatchError as problem:
            self._report.add("state-delta", f"{problem}; the client keeps the old state")

    def _activity_snapshot(self, event: Event) -> None:
        message = event["messageId"]
        if self._roles.get(message, "activity") != "activity":
            self._report.add("activity-id", f"the activity {message!r} replaces a {self._roles[message]} message")
        self._roles[message] = "activity"
        if event.get("replace") is not False or message not in self._activities:
            self._activities[message] = event["content"]

    def _activity_delta(self, event: Event) -> None:
        message = event["messageId"]
        if self._roles.get(message, "activity") != "activity":
            self._report.add("activity-id", f"{message!r} is a {self._roles[message]} message, not an activity")
        elif message not in self._activities:
            self._report.add("activity-delta-first", f"the activity {message!r} has had no snapshot in this stream")
        else:
            try:
                content = apply_patch(self._activities[message], event["patch"])
            except PatchError as problem:
                self._report.add("activity-delta", f"{problem}; the client keeps the old content")
                return
            if not isinstance(content, dict):
                self._report.add("activity-delta", f"the content of {message!r} is no object after this patch")
            self._activities[message] = content

    # Runs

    def _run_started(self, event: Event) -> None:
        self._open.clear()
        for call in self._calls.values():
            call.open = call.of_this_run = False
        self._restate(event.get("input", {}).get("messages", []))

    def _run_error(self, event: Event) -> None:
        self._check_usage(event)

    def _run_finished(self, event: Event) -> None:
        self._check_usage(event)
        outcome = event.get("outcome", {"type": "success"})
        if outcome["type"] == "cancelled" and "result" in event:
            self._report.add("cancelled-result", "a cancelled run has a result")
        if outcome.get("pendingToolCallIds"):
            self._check_pending(outcome["pendingToolCallIds"])
        seen: set[str] = set()
        for interrupt in outcome.get("interrupts", []):
            self._check_interrupt(interrupt)
            if interrupt["id"] in seen:
                self._report.add("interrupt-duplicate", f"two interrupts have the id {interrupt['id']!r}")
            seen.add(interrupt["id"])

    def _check_pending(self, pending: list[str]) -> None:
        """Exactly the calls started and unanswered, in order; calls that an earlier run left open may come too."""
        mine = [call for call, known in self._calls.items() if known.of_this_run and not known.answered]
        open_calls = {call for call, known in self._calls.items() if not known.answered}
        if strangers := [call for call in pending if call not in open_calls]:
            self._report.add("pending-calls", f"pendingToolCallIds names {strangers}, which are not waiting")
        if missing := [call for call in mine if call not in pending]:
            self._report.add("pending-calls", f"pendingToolCallIds lacks {missing}")
        elif [call for call in pending if call in mine] != mine:
            self._report.add("pending-calls", f"pendingToolCallIds must have the order of the calls, {mine}")

    def _check_interrupt(self, interrupt: Event) -> None:
        call = interrupt.get("toolCallId")
        if call is not None and (call not in self._calls or self._calls[call].open):
            self._report.add("interrupt-call", f"{interrupt['id']!r} names the tool call {call!r}, not streamed here")
        expires = interrupt.get("expiresAt")
        if expires is not None:
            try:
                datetime.fromisoformat(expires)
            except ValueError:
                self._report.add("interrupt-expiry", f"expiresAt {expires!r} of {interrupt['id']!r} is not ISO 8601")

    def _check_usage(self, event: Event) -> None:
        seen: set[tuple[str | None, str | None]] = set()
        for usage in event.get("usage", []):
            key = (usage.get("provider"), usage.get("model"))
            if key in seen:
                self._report.add("usage-duplicate", f"usage lists {key} twice")
            seen.add(key)
            total, given, made = (usage.get(f"{name}Tokens") for name in ("total", "input", "output"))
            if None not in (total, given, made) and total != given + made:
                self._report.add("usage-sum", f"totalTokens {total} is not inputTokens {given} + outputTokens {made}")
            for part, whole in (
                ("cachedInputTokens", "inputTokens"),
                ("cacheWriteInputTokens", "inputTokens"),
                ("reasoningTokens", "outputTokens"),
            ):
                if part in usage and whole in usage and usage[part] > usage[whole]:
                    self._report.add("usage-sum", f"{part} {usage[part]} is part of {whole} {usage[whole]}, not more")
