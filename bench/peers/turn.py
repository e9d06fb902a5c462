"""The synthetic turn of the comparison with other AG-UI servers, and how each is timed. Runs in a peer's environment.

One turn: text, a tool call with its result, text again. A peer's framework makes it with a model that only speaks these
pieces; that alone is measured too and subtracted, so that what is left is its event path and encoder.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

TOOL, CALL = "look", "call_1"
ARGUMENTS = json.dumps({"path": "notes/" + "x" * 100})
RESULT = "line of a file\n" * 40


def pieces(count: int) -> list[str]:
    """The deltas of one of the two texts."""
    return [f"w{number:05d} " for number in range(count)]


def run_input(module: Any, thread: str) -> Any:
    """The request, as `ag_ui.core` has it."""
    return module.RunAgentInput(
        thread_id=thread,
        run_id=f"run-{thread}",
        state={},
        messages=[module.UserMessage(id="m1", role="user", content="go")],
        tools=[],
        context=[],
        forwarded_props={},
    )


async def _seconds(stream: AsyncIterator[Any]) -> tuple[float, int, int, int]:
    """CPU seconds, chunks, bytes and text events of a stream that is read to its end."""
    chunks = size = texts = 0
    begin = time.process_time()
    async for chunk in stream:
        if isinstance(chunk, (str, bytes)):
            data = chunk if isinstance(chunk, str) else chunk.decode()
            chunks += data.count("data: ")
            size += len(data.encode())
            texts += data.count('"TEXT_MESSAGE_CONTENT"')
    return time.process_time() - begin, chunks, size, texts


def report(
    ours: Callable[[int, str], AsyncIterator[Any]], alone: Callable[[int, str], AsyncIterator[Any]] | None, **facts: str
) -> None:
    """Print one line of JSON: CPU time, best of some rounds, so that a busy machine counts little.

    Arguments of the process: deltas, rounds.
    """
    deltas, rounds = int(sys.argv[1]), int(sys.argv[2])
    best, without = float("inf"), 0.0 if alone is None else float("inf")
    found: tuple[int, int, int] = (0, 0, 0)
    for number in range(rounds + 1):
        seconds, *counted = asyncio.run(_seconds(ours(deltas, f"t{number}")))
        bare = asyncio.run(_seconds(alone(deltas, f"a{number}")))[0] if alone is not None else 0.0
        if number:  # the first imports
            best, without = min(best, seconds), min(without, bare)
            found = (counted[0], counted[1], counted[2])
    print(
        json.dumps(
            {"seconds": best, "alone": without, "events": found[0], "bytes": found[1], "texts": found[2], **facts}
        )
    )
