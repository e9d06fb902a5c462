"""What the checker can say: `Finding`, the table of rules, and the `Report` that the stages write into.

Every rule has a short stable name; tests and scripts match on it. The rules are those of the AG-UI 1.0 specification
and of the official TypeScript client, `@ag-ui/client`, 1.0.0 and 0.0.59; "the client" means its `HttpAgent`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning"]
Peer = Literal["1.0", "0.0.59"]

# An error is what the specification forbids or what a client rejects or silently loses; a warning is what a client
# accepts but complains about, or what is legal and seldom meant.
RULES: dict[str, tuple[Severity, str]] = {
    # Transport
    "not-json": ("error", "a frame is not one JSON value"),
    "not-a-number": ("error", "NaN and Infinity are not JSON"),
    "not-object": ("error", "a frame is JSON, but not an object"),
    "done-marker": ("error", "`data: [DONE]` is not an event"),
    "empty-data": ("error", "a `data:` line is empty"),
    "cr-framing": ("error", "lines end in CR or CRLF; the client splits frames on LF LF only"),
    "frame-too-big": ("error", "a frame is larger than the 10 MB that the client buffers"),
    "sse-field": ("warning", "a line is neither a comment nor an SSE field, so it is ignored"),
    "unsafe-int": ("warning", "an integer beyond 2^53 loses precision in JavaScript"),
    "lone-surrogate": ("warning", "a string holds half a surrogate pair"),
    "content-type": ("error", "the response is not text/event-stream"),
    "body-open": ("error", "the response body was still open when the time was up"),
    # Shape
    "no-type": ("error", "an event has no string `type`"),
    "unknown-event": ("warning", "the event type is not in the protocol; 1.0 drops it, 0.0.59 fails"),
    "removed-event": ("error", "the THINKING_* events left the protocol in 1.0"),
    "removed-part": ("error", "the `binary` content part left the protocol in 1.0"),
    "missing-field": ("error", "a required field is absent"),
    "wrong-type": ("error", "a known field has a value that it may not have"),
    "null": ("error", "an optional field is null instead of absent"),
    "null-converted": ("warning", "a null that the 1.0 client still converts to absent, with a warning"),
    "unknown-field": ("warning", "a field is not in the protocol and is stripped"),
    "unknown-member": ("warning", "an unknown role, part type or source type is dropped"),
    "json-patch": ("error", "a JSON Patch is not a list of RFC 6902 operations"),
    "outcome": ("error", "an outcome is not one of the known shapes"),
    "usage": ("error", "usage is not a list of token counts"),
    "activity-content": ("error", "activity content is not an object"),
    # Runs
    "first-event": ("error", "the first event must be RUN_STARTED or RUN_ERROR"),
    "run-active": ("error", "RUN_STARTED while a run is active"),
    "after-error": ("error", "only RUN_STARTED may follow RUN_ERROR"),
    "after-finish": ("error", "only RUN_STARTED or RUN_ERROR may follow RUN_FINISHED"),
    "truncated": ("error", "the stream ends with no terminal event"),
    "empty-stream": ("error", "the stream holds no event"),
    "wrong-run": ("error", "a run id is not the one that was started or asked for"),
    "wrong-thread": ("error", "a thread id is not the one that was started or asked for"),
    "run-id-reused": ("warning", "two runs of one stream share a run id"),
    "version": ("warning", "RUN_STARTED should carry protocolVersion, MAJOR.MINOR, no newer than 1.0"),
    "empty-error": ("warning", "an error message is empty"),
    # What is open
    "start-open": ("error", "a start for an item that is open"),
    "not-open": ("error", "a continuation or an end for an item that is not open"),
    "open-at-finish": ("error", "an item is open at RUN_FINISHED"),
    "step-owner": ("error", "a step is finished by another agent than the one that started it"),
    "attribution": ("error", "an event's subagentRunId differs from its item's owner"),
    "subagent-restarted": ("error", "a subagent run id is started twice in a run"),
    "subagent-not-open": ("error", "a subagent ends that is not running"),
    "subagent-parent": ("error", "a subagent's parent was not announced in this run"),
    "subagent-late": ("error", "a subagent is announced after events that carry its id"),
    "subagent-ended": ("warning", "an event carries the id of a subagent that has ended"),
    # Chunks
    "chunk-first": ("error", "the first chunk of an item lacks its id or name"),
    "chunk-mismatch": ("error", "a chunk repeats a field of its item with another value"),
    "chunk-ambiguous": ("error", "a chunk without id or owner could continue several items"),
    "chunk-mixed": ("error", "chunks and explicit events are mixed for one item"),
    # The message list that the client builds
    "message-reopened": ("warning", "a message id is started again: the client appends to the old message"),
    "call-reopened": ("warning", "a tool call is started again: its arguments are appended to the old ones"),
    "call-renamed": ("warning", "a tool call is started again under another name"),
    "calls-without-parent": ("warning", "parallel tool calls without parentMessageId become one message each"),
    "parent-role": ("warning", "parentMessageId names a message that is not the assistant's"),
    "result-unknown-call": ("warning", "a result for a tool call that nobody has seen"),
    "result-before-end": ("warning", "a result for a tool call that is still open"),
    "result-twice": ("warning", "a second result for a tool call"),
    "id-shared": ("warning", "one id names messages of different kinds"),
    "activity-id": ("error", "an activity and another message share an id: one is lost"),
    "snapshot-drops-open": ("error", "MESSAGES_SNAPSHOT leaves out an item that is being streamed: its rest is lost"),
    "snapshot-duplicate-id": ("warning", "MESSAGES_SNAPSHOT holds an id twice"),
    "encrypted-unknown": ("warning", "an encrypted value for an unknown message or tool call is ignored"),
    "state-delta": ("error", "STATE_DELTA does not apply to the current state"),
    "activity-delta": ("error", "ACTIVITY_DELTA does not apply, or its result is not an object"),
    "activity-delta-first": ("warning", "ACTIVITY_DELTA for an activity with no snapshot is skipped"),
    # How a run ends
    "interrupt-duplicate": ("error", "two interrupts of a run share an id"),
    "interrupt-call": ("warning", "an interrupt names a tool call that was not streamed and closed"),
    "interrupt-expiry": ("warning", "expiresAt is not ISO 8601, so it never expires"),
    "pending-calls": ("error", "pendingToolCallIds are not the open calls, in order"),
    "cancelled-result": ("warning", "a cancelled run should have no result"),
    "usage-sum": ("warning", "token counts do not add up"),
    "usage-duplicate": ("warning", "usage lists a provider and model twice"),
    # What an older peer cannot take
    "peer-cancelled": ("error", "0.0.59 rejects the outcome `cancelled`"),
    "peer-pending": ("error", "0.0.59 rejects outcome.pendingToolCallIds"),
    "peer-parts": ("error", "0.0.59 rejects a tool result that is a list of parts"),
    "peer-file-source": ("error", "0.0.59 rejects the source type `file`"),
    "peer-input": ("error", "0.0.59 rejects RUN_STARTED.input without tools and context"),
}


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a stream. `line` is the 1-based line of the input; `rule` is a key of `RULES`."""

    line: int
    severity: Severity
    rule: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.severity} {self.rule}: {self.message}"


@dataclass
class Report:
    """Findings so far, and the line that is being looked at."""

    line: int = 1
    findings: list[Finding] = field(default_factory=list)

    def add(self, rule: str, message: str, severity: Severity | None = None) -> None:
        self.findings.append(Finding(self.line, severity or RULES[rule][0], rule, message))
