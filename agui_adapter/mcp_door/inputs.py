"""What each tool takes, as models: they check the arguments and give the schema that clients see. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import AguiError

MAX_WAIT = 3600.0

_THREAD = "The thread's id, as `ask`, `start` or `threads` told it."
_TIMEOUT = (
    "Seconds after which the call returns with status `running`; the task goes on, and `wait` reads the rest. "
    "0: until it ends or needs an answer."
)


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class File(Input):
    """A file that goes with a task: `data` (base64), `text`, or the `url` of one that the server may fetch."""

    name: str = Field("", max_length=255, description="File name, with its extension.")
    mime_type: str = Field("", max_length=255, description="For example image/png.")
    data: str = Field("", description="The content in base64.")
    text: str = Field("", description="The content, where it is text.")
    url: str = Field("", max_length=8192, description="http(s) address of the content.")


class Task(Input):
    message: str = Field(
        min_length=1,
        max_length=1_000_000,
        description="The task, in words. The agent sees nothing of your own conversation: say all that it needs.",
    )
    thread: str = Field(
        "",
        max_length=512,
        description="Go on in this thread, which remembers what was said before. Empty: a new thread.",
    )
    files: list[File] = Field(default_factory=list, max_length=16, description="Files that the agent should see.")
    idempotency_key: str = Field(
        "",
        max_length=200,
        description="Any text that names this task: the same key again reads the same task, and runs nothing twice.",
    )


class AskInput(Task):
    timeout: float = Field(0.0, ge=0, le=MAX_WAIT, description=_TIMEOUT)


class StartInput(Task):
    pass


class ThreadInput(Input):
    thread: str = Field(min_length=1, max_length=512, description=_THREAD)


class WaitInput(ThreadInput):
    timeout: float = Field(45.0, ge=0, le=MAX_WAIT, description=_TIMEOUT)


class EventsInput(ThreadInput):
    after: str = Field("", max_length=200, description="The `next` of the call before; empty: from the turn's start.")
    limit: int = Field(100, ge=1, le=500, description="Events at most.")
    wait: float = Field(0.0, ge=0, le=300, description="Seconds to wait for an event where there is none yet.")


class AnswerInput(Input):
    request: str = Field(min_length=1, max_length=200, description="The request's id.")
    choice: str = Field("", max_length=1000, description="One of the request's choices, for example `once` or `deny`.")
    text: str = Field(
        "", max_length=100_000, description="The answer in words; beside a choice the reason, told to the agent."
    )
    timeout: float = Field(0.0, ge=0, le=MAX_WAIT, description=_TIMEOUT)


class SteerInput(ThreadInput):
    text: str = Field(min_length=1, max_length=100_000, description="What the agent should know or do differently.")


class ThreadsInput(Input):
    query: str = Field("", max_length=1000, description="Words that the title or the messages must hold.")
    limit: int = Field(20, ge=1, le=100, description="Threads at most.")
    before: str = Field("", max_length=1000, description="The `next` of the page before.")
    archived: bool = Field(False, description="Those that were put aside instead.")


class HistoryInput(ThreadInput):
    limit: int = Field(20, ge=1, le=200, description="Messages at most, the newest.")
    before: str = Field("", max_length=200, description="The id of a message: only those before it.")


class BranchInput(ThreadInput):
    title: str = Field("", max_length=200, description="The copy's title.")


def read(model: type[Input], arguments: Any) -> Any:
    """The arguments, checked. Raises AguiError 422 that names what is wrong."""
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise AguiError(422, "invalid_input", f"These arguments cannot be used: {'; '.join(wrong[:5])}.") from None


def schema(model: type[Input]) -> dict[str, Any]:
    """JSON Schema of the arguments, without the titles that pydantic makes of names."""
    made = model.model_json_schema()
    found: dict[str, Any] = _untitled(made)
    found.pop("description", None)
    found.setdefault("properties", {})
    return found


def _untitled(value: Any) -> Any:
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: _untitled(one) for name, one in item.items()} if key == "properties" else _untitled(item)
        for key, item in value.items()
        if not (key == "title" and isinstance(item, str))
    }
