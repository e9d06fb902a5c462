"""What the scripted model says when no script is quoted: a small demo conversation, and Hermes's auxiliary calls.

Pure and deterministic: a request's messages and tool names in, a `Step` out.
"""

import json
import re
from collections.abc import Collection, Sequence

from agui_adapter.demo.script import Message, Step, ToolStep, Turn, content_text

MAX_COUNT = 100_000
"""The largest N of "count to N"."""

_QUOTED_LINES = 8
_QUOTED_CHARACTERS = 200

# Beginnings of the prompts of calls that Hermes 0.19 makes beside a turn, and a harmless answer to each. Several of
# them quote the user's text, a script included, and must not run it. Sources: agent/title_generator.py,
# tools/approval.py (smart mode), hermes_cli/goals.py, agent/context_compressor.py, agent/background_review.py,
# agent/chat_completion_helpers.py (step limit).
_AUXILIARY_SYSTEM = (
    ("Generate a short, descriptive title", "Demo conversation"),
    ("You are a security reviewer for an AI coding agent", "ESCALATE"),
    ("You are a strict judge evaluating whether an autonomous agent", '{"verdict": "done", "reason": "Demo."}'),
    ("You are a summarization agent creating a context checkpoint", "## Summary\nThe user tried the demo."),
)
_AUXILIARY_USER = (
    ("You are a summarization agent creating a context checkpoint", "## Summary\nThe user tried the demo."),
    ("You are updating a context compaction summary", "## Summary\nThe user tried the demo."),
    ("Review the conversation above and", "Nothing to save."),
    ("You've reached the maximum number of tool-calling iterations", "I stopped at the step limit."),
)


def auxiliary_answer(messages: Sequence[Message]) -> Step | None:
    """The answer to a call that Hermes makes for itself, or None for a turn's own call."""
    system = next((content_text(m.get("content")) for m in messages if m.get("role") in ("system", "developer")), "")
    user = next((content_text(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), "")
    # A review runs on the turn's own history and may itself call tools, so its prompt is the last user message.
    for text, table in ((system, _AUXILIARY_SYSTEM), (user, _AUXILIARY_USER)):
        for beginning, answer in table:
            if text.lstrip().startswith(beginning):
                return Step(text=answer)
    return None


def natural_answer(turn: Turn, tool_names: Collection[str]) -> Step:
    """The demo conversation: count, list files with the `terminal` tool, remember, or say hello."""
    text = turn.user_text.lower()
    if match := re.search(r"\bcount to (\d{1,6})\b", text):
        return Step(text=" ".join(map(str, range(1, min(int(match[1]), MAX_COUNT) + 1))))
    if re.search(r"\b(list|files?|directory|run a command)\b", text) and "terminal" in tool_names:
        return _list_files(turn)
    if re.search(r"\b(remember|what did i say|first)\b", text):
        return _remember(turn)
    return _hello(turn)


def _list_files(turn: Turn) -> Step:
    results = [content_text(message.get("content")) for message in turn.since if message.get("role") == "tool"]
    if not results:
        return Step(
            reasoning="The user wants to see files. The terminal tool can list them.",
            text="Let me look at the working directory.",
            tools=[ToolStep(name="terminal", arguments={"command": "ls -la"})],
        )
    lines = _terminal_output(results[-1]).splitlines()
    quoted = "\n".join(lines[:_QUOTED_LINES])
    more = f"\n\n… and {len(lines) - _QUOTED_LINES} more lines." if len(lines) > _QUOTED_LINES else ""
    return Step(text=f"Here is what I see:\n\n```\n{quoted}\n```{more}")


def _remember(turn: Turn) -> Step:
    earlier = len(turn.earlier_user_texts)
    if not earlier:
        return Step(text="This is the first message of our conversation, there are no earlier turns.")
    first = " ".join(turn.earlier_user_texts[0].split())
    if len(first) > _QUOTED_CHARACTERS:
        first = first[:_QUOTED_CHARACTERS] + "…"
    return Step(text=f'Your first message was: "{first}". There {_turns(earlier)} before this one.')


def _hello(turn: Turn) -> Step:
    words = len(turn.user_text.split())
    noun = "word" if words == 1 else "words"
    return Step(
        reasoning="A plain message: greet, and show that it was read.",
        text=f"Hello from the **scripted demo model**: your message has {words} {noun} and there "
        f"{_turns(len(turn.earlier_user_texts))} before it. Ask me to *list files*, to *count to 20*, "
        "or what I *remember*.",
    )


def _turns(count: int) -> str:
    return "was 1 earlier turn" if count == 1 else f"were {count} earlier turns"


def _terminal_output(result: str) -> str:
    """The output in the JSON result of Hermes's terminal tool, or the result itself if it is something else."""
    try:
        value = json.loads(result)
    except ValueError:
        return result
    output = value.get("output") if isinstance(value, dict) else None
    return output if isinstance(output, str) else result
