"""`hermes-agui check FILE|URL|-`: reads a stream, prints what is wrong with it.

The only part of the checker that does I/O. Exit code 0: clean or warnings only, 1: an error, 2: wrong usage or nothing
to check.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agui_adapter.check.findings import RULES, Finding

_NO_STREAM = 2


class _NoStreamError(Exception):
    """There is nothing to check; the text says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check` to `parser`."""
    parser.add_argument("source", metavar="FILE|URL|-", help="JSON lines or SSE: a file, an AG-UI URL, - for stdin")
    parser.add_argument("--peer", choices=["1.0", "0.0.59"], default="1.0", help="the client version (default 1.0)")
    parser.add_argument("--json", action="store_true", help="one JSON object per finding")
    parser.add_argument("--message", default="Hello! Please answer in one sentence.", help="URL: what the user says")
    parser.add_argument("--thread", metavar="ID", help="URL: the thread id (default: a new one)")
    parser.add_argument("--token", help="URL: sent as Authorization: Bearer")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="URL: for the whole run")


def run(args: argparse.Namespace) -> int:
    """Run the command with the arguments that `add_arguments` defined; returns the exit code."""
    from agui_adapter.check import check_text

    source: str = args.source
    options: dict[str, Any] = {"peer": args.peer}
    extra: list[Finding] = []
    try:
        if source.startswith(("http://", "https://")):
            import asyncio  # 0.1 s that a file does not need

            text, options, extra = asyncio.run(_request(args))
        elif source == "-":
            text = sys.stdin.buffer.read().decode("utf-8", "replace")
        else:
            text = Path(source).read_bytes().decode("utf-8", "replace")
    except (OSError, _NoStreamError) as problem:
        print(f"hermes-agui check: {problem}", file=sys.stderr)
        return _NO_STREAM
    findings = sorted([*check_text(text, **options), *extra], key=lambda finding: finding.line)
    errors = sum(finding.severity == "error" for finding in findings)
    for finding in findings:
        print(json.dumps(asdict(finding)) if args.json else finding)
    if not args.json:
        print(f"{source}: {_count(errors, 'error')}, {_count(len(findings) - errors, 'warning')}")
    return 1 if errors else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


async def _request(args: argparse.Namespace) -> tuple[str, dict[str, Any], list[Finding]]:
    """POST a minimal RunAgentInput; the body that streams back, options for the checker, and findings about HTTP."""
    import asyncio

    import aiohttp

    thread_id, run_id = args.thread or f"check-{uuid.uuid4()}", str(uuid.uuid4())
    body: dict[str, Any] = {
        "threadId": thread_id,
        "runId": run_id,
        **({"protocolVersion": "1.0"} if args.peer == "1.0" else {}),
        "state": {},
        "messages": [{"id": str(uuid.uuid4()), "role": "user", "content": args.message}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    headers = {"Accept": "text/event-stream"}
    if args.token:
        headers["Authorization"] = f"Bearer {args.token}"
    received = bytearray()
    problems: list[tuple[str, str]] = []
    answered = False
    try:
        async with (
            asyncio.timeout(args.timeout),
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.post(args.source, json=body, headers=headers) as response,
        ):
            if response.status != 200:
                text = (await response.text(errors="replace"))[:300].strip()
                raise _NoStreamError(f"HTTP {response.status} {response.reason}: {text}")
            answered = True
            kind = response.headers.get("Content-Type", "")
            if kind.partition(";")[0].strip().lower() != "text/event-stream":
                problems.append(("content-type", f"the response is {kind or 'of no type'}, not text/event-stream"))
            async for chunk in response.content.iter_any():
                received += chunk
    except TimeoutError:
        if not answered:
            raise _NoStreamError(f"no answer within {args.timeout:g} s") from None
        problems.append(("body-open", f"the body was still open after {args.timeout:g} s; clients wait for its end"))
    except aiohttp.ClientError as problem:
        raise _NoStreamError(f"{type(problem).__name__}: {problem}") from None
    text = received.decode("utf-8", "replace")
    last = max(1, text.count("\n"))
    extra = [Finding(last, RULES[rule][0], rule, message) for rule, message in problems]
    return text, {"peer": args.peer, "thread_id": thread_id, "run_id": run_id, "sse": True}, extra


def main() -> int:
    parser = argparse.ArgumentParser(prog="hermes-agui check", description="Check a stream of AG-UI events.")
    add_arguments(parser)
    return run(parser.parse_args())
