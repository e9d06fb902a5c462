"""The AG-UI sequence checker: is this stream one that every client accepts? Pure, except for `cli`.

A stream goes through the stages that the official client has: `read` (frames), `shape` (one event), `chunks`
(expansion), `sequence` (what may follow what), `history` (what the client would build). Must not know Hermes or our own
event log: the command has to start at once, and it checks any producer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from agui_adapter.check.cli import add_arguments, run
from agui_adapter.check.findings import RULES, Finding, Peer, Report, Severity
from agui_adapter.check.read import parse_stream

__all__ = [
    "RULES",
    "Finding",
    "Peer",
    "Severity",
    "add_arguments",
    "check_events",
    "check_text",
    "parse_stream",
    "run",
]


def check_events(
    events: Iterable[tuple[int, object]],
    *,
    peer: Peer = "1.0",
    state: object = {},  # never changed
    known_calls: Collection[str] = (),
    thread_id: str | None = None,
    run_id: str | None = None,
) -> list[Finding]:
    """Check decoded events, each with the line that it came from; findings come in the order of the lines.

    `state` is the client's state before the stream (any JSON), `known_calls` are ids of tool calls of earlier runs on
    the thread, `thread_id` and `run_id` are what the request asked for. `peer` is the client version that reads along.
    """
    # Imported here: ag_ui's models take 0.2 s, which `hermes-agui --help` should not pay.
    from agui_adapter.check.chunks import Chunks
    from agui_adapter.check.history import History
    from agui_adapter.check.sequence import Sequence
    from agui_adapter.check.shape import check_shape

    report = Report()
    chunks = Chunks(report)
    sequence = Sequence(report, peer, thread_id, run_id)
    history = History(report, state, known_calls)
    for line, value in events:
        report.line = line
        if not isinstance(value, dict):
            report.add("not-object", f"an event must be a JSON object, this one is {value!r:.60}")
            continue
        event = check_shape(value, report, peer)
        for made, from_chunk in chunks.expand(event) if event is not None else []:
            if sequence.feed(made, from_chunk):
                history.feed(made)
    sequence.end()
    return report.findings


def check_text(text: str, *, sse: bool | None = None, **options: Any) -> list[Finding]:
    """Check a whole stream, JSON lines or SSE (`sse` None: found out). `options` are those of `check_events`."""
    findings: list[Finding] = []
    events: list[tuple[int, object]] = []
    # Split at LF only: str.splitlines would also split at CR and at U+2028, which belong to the frame.
    for item in parse_stream(text.split("\n"), sse=sse):
        if isinstance(item, Finding):
            findings.append(item)
        else:
            events.append(item)
    return sorted([*findings, *check_events(events, **options)], key=lambda finding: finding.line)
