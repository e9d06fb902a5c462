"""What the AG-UI routes beside `POST /agui` take and give: pydantic models, in AG-UI's spelling (camelCase).

Members that a body does not know are ignored, as AG-UI asks everywhere. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from .inputs import MAX_ID_CHARS
from .operation import Query

TAG = "ag-ui"
MAX_PAGE = 200
MAX_TITLE = 200
MAX_FOCUS = 2000

# -- which refusals -------------------------------------------------------------------------------------------------

GONE = ("no_such_thread",)
COMMAND = ("not_allowed", "command_not_allowed")
CLOSED = ("request_answered", "request_expired", "request_cancelled")
STREAMS = ("too_many_streams",)


class _Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", strict=True)


Title = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TITLE, pattern=r"\S")]
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_CHARS, pattern=r"\S")]
Message = dict[str, Any]
Status = Literal["idle", "running", "parked"]


# -- threads --------------------------------------------------------------------------------------------------------


class ThreadsQuery(Query):
    """Which threads."""

    limit: int = Field(default=50, ge=0, le=MAX_PAGE)
    before: str = Field(default="", description="The `next` of the page before.")
    q: str = Field(default="", description="Words of the title or of a message.")
    archived: str = Field(default="", description="`1` or `true`: those that were put aside instead.")


class EventsQuery(Query):
    """From where, and how long."""

    after: str = Field(default="", description="An event's id, as `Last-Event-ID`.")
    once: str = Field(default="", description="`1` or `true`: end with the turn.")


class ThreadSummary(_Shape):
    """A thread in a list."""

    thread_id: str
    title: str
    created_at: int
    updated_at: int
    message_count: int
    archived: bool
    status: Status


class ThreadsPage(_Shape):
    """Threads, the one used last first; `next` is the `before` of the next page, null behind the last."""

    threads: list[ThreadSummary]
    total: int
    next: str | None


class TurnNow(_Shape):
    """The turn that runs or waits now."""

    id: str
    last_event_id: str


class OpenRequest(_Shape):
    """Something that waits for an answer: an AG-UI interrupt, with its kind."""

    model_config = ConfigDict(extra="allow")

    id: str
    kind: Literal["approval", "clarify", "confirm", "client_tool"]
    reason: str
    message: str = ""


class ThreadDetail(_Shape):
    """A thread as a client that comes now needs it."""

    thread_id: str
    title: str
    created_at: int
    updated_at: int
    archived: bool
    status: Status
    messages: list[Message]
    turn: TurnNow | None
    requests: list[OpenRequest]
    usage: dict[str, Any]
    state: Any


class ThreadPatch(_Shape):
    """What to change; at least one of them."""

    title: Title | None = None
    archived: bool | None = None


class ThreadPatched(_Shape):
    """As it is now."""

    thread_id: str
    title: str
    archived: bool


class ThreadDeleted(_Shape):
    """It is gone, here and in Hermes."""

    thread_id: str
    deleted: Literal[True] = True


class ThreadStopped(_Shape):
    """`stopped` false: nothing ran."""

    thread_id: str
    stopped: bool


class SteerText(_Shape):
    """A text for the turn that runs; `messageId` names it, should it become a message."""

    text: Text
    message_id: str = Field(default="", max_length=MAX_ID_CHARS)


class Steered(_Shape):
    """Queued: the model sees it with its next tool result."""

    thread_id: str
    turn_id: str
    steered: Literal[True] = True


class Answered(_Shape):
    """`repeated`: the same answer was given before, and counts once."""

    request_id: str
    status: Literal["answered", "repeated"]


# -- actions --------------------------------------------------------------------------------------------------------


class Branch(_Shape):
    """All optional."""

    title: Title | None = None
    thread_id: Id | None = None


class Branched(_Shape):
    """The copy."""

    thread_id: str
    title: str
    branched_from: str


class Compress(_Shape):
    """What the summary is to keep in mind."""

    focus: str = Field(default="", max_length=MAX_FOCUS)


class Compressed(_Shape):
    """`text`: what Hermes says of it."""

    thread_id: str
    compressed: bool
    text: str


class SubagentShown(_Shape):
    """A running child; what it does is left out where the operator hides what tools do."""

    id: str
    status: str
    started_at: int
    model: str
    depth: int
    tool_count: int
    goal: str | None = None
    last_tool: str | None = None
    parent_id: str | None = None


class Subagents(_Shape):
    """Running children and theirs, oldest first."""

    subagents: list[SubagentShown]


class SubagentText(_Shape):
    """A text for a child."""

    text: Text


class SubagentAsked(_Shape):
    """What was asked of it; it happens at its next step."""

    subagent_id: str
    stopping: bool | None = None
    steered: bool | None = None


class ProcessShown(_Shape):
    """A background process."""

    id: str
    status: str
    started_at: int
    exit_code: int | None = None
    command: str | None = None
    cwd: str | None = None
    output: str | None = None


class Processes(_Shape):
    """Running ones, and those that ended lately."""

    processes: list[ProcessShown]


class ProcessEnded(_Shape):
    """`stopped` false: it had ended already. `output`: its last words."""

    process_id: str
    stopped: bool
    output: str | None = None


class CommandShown(_Shape):
    """A slash command."""

    name: str
    aliases: list[str]
    description: str
    arguments: str
    kind: Literal["hermes", "plugin", "quick", "skill"]


class Commands(_Shape):
    """Those that this caller may use."""

    commands: list[CommandShown]


# -- observed sessions ------------------------------------------------------------------------------------------------


class ObservedQuery(Query):
    """Which sessions."""

    limit: int = Field(default=50, ge=0, le=MAX_PAGE)
    before: int = Field(default=0, ge=0, le=10**9, description="The `next` of the page before.")
    q: str = ""
    platform: str = ""


class Observed(_Shape):
    """A session of the gateway, whatever platform it is on."""

    id: str
    platform: str
    chat_type: str
    chat_name: str
    user_name: str
    title: str
    created_at: int
    updated_at: int
    message_count: int
    status: Literal["running", "idle"]
    shared_with: list[str]


class ObservedPage(_Shape):
    """Sessions, newest first."""

    sessions: list[Observed]
    total: int
    next: int | None


class ObservedDetail(Observed):
    """With its messages and the turn that runs now."""

    messages: list[Message]
    turn: TurnNow | None


class ObservedBranch(_Shape):
    """All optional."""

    title: str = Field(default="", max_length=MAX_TITLE)
    thread_id: str = Field(default="", max_length=MAX_ID_CHARS)


class Resume(_Shape):
    """The thread that goes on with it; a new one where none is named."""

    thread_id: str = Field(default="", max_length=MAX_ID_CHARS)


class _Taken(_Shape):
    thread_id: str
    session_id: str
    messages: list[Message]


class ObservedBranched(_Taken):
    """A thread with a copy of the session."""

    title: str
    branched_from: str


class Resumed(_Taken):
    """A thread that stands on the session itself."""

    shared_with: list[Observed]
    notice: str
