"""What the runs' routes take and give. A run's names are Hermes's api_server's; times are seconds since the epoch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ..inputs import MAX_ID_CHARS
from ..operation import Body, Query
from .models import AnswerBody, Id, RequestInfo, Text

Status = Literal["queued", "running", "waiting", "stopping", "completed", "failed", "cancelled"]
_Json = dict[str, Any]


class RunCreate(BaseModel):
    """What to do. Members of OpenAI's API that are not named here are ignored, as there."""

    model_config = ConfigDict(extra="allow")

    input: str | list[_Json] = Field(description="A text, or messages: the last user message is what is asked.")
    instructions: str | None = Field(default=None, max_length=200_000, description="Layered on Hermes's own prompt.")
    session_id: Id | None = Field(default=None, description="The session to go on with; without one, a new one.")
    conversation_history: list[_Json] | None = Field(default=None, description="What was said before.")
    model: str | None = Field(default=None, max_length=200)
    tools: list[_Json] | None = Field(default=None, description="Tools that the caller runs: `answer` gives results.")


class Usage(BaseModel):
    """Tokens of all its model calls."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class RunError(BaseModel):
    """Why it failed."""

    code: str
    message: str


class RunStarted(BaseModel):
    """Accepted. It goes on whether anybody reads or not."""

    object: Literal["hermes.run"] = "hermes.run"
    run_id: str
    session_id: str
    status: Status
    created_at: float


class RunInfo(BaseModel):
    """A run as it is now. ``output`` is what it has answered so far; ``requests`` what it waits for."""

    object: Literal["hermes.run"] = "hermes.run"
    run_id: str
    session_id: str
    status: Status
    created_at: float
    output: str
    usage: Usage | None = None
    requests: list[RequestInfo]
    error: RunError | None = None
    last_event_id: str | None = Field(default=None, description="What `events` goes on behind.")
    pending_steer: str | None = Field(default=None, description="Text that came too late for the model to see.")
    pending_steer_action: Literal["ran_as_further_turn", "not_run"] | None = Field(
        default=None,
        description="What became of it: the gateway has run it as a further turn of this run, or nobody has: send it.",
    )


class EventsQuery(Query):
    """From where."""

    after: str = Field(default="", description="An event's id, as `Last-Event-ID`.")


class Approval(Body):
    """``approve``, ``approved`` and ``allow`` mean ``once``."""

    choice: Annotated[str, StringConstraints(min_length=1)]
    reason: str | None = Field(default=None, description="Why, for the agent.")
    request_id: str | None = Field(default=None, description="Which; without it the oldest.")
    all: bool = Field(default=False, description="All that are open.")
    resolve_all: bool = Field(default=False, description="The same as `all`.")


class ApprovalReply(BaseModel):
    """``resolved``: how many were answered."""

    object: Literal["hermes.run.approval_response"] = "hermes.run.approval_response"
    run_id: str
    choice: str
    resolved: int


class RunAnswer(AnswerBody):
    """As an answer of a session's; the request is named by ``request_id`` or, a tool's, by ``call_id``. Without a name
    it is the one that is open."""

    request_id: str | None = None
    call_id: str | None = None

    def payload(self) -> _Json:
        """Without what names the request."""
        given = super().payload()
        return {name: value for name, value in given.items() if name not in ("request_id", "call_id")}


class RunSteer(Body):
    """A text for the model."""

    text: Text | None = None
    input: Text | None = Field(default=None, description="The same as `text`.")
    message_id: str = Field(default="", max_length=MAX_ID_CHARS, description="Its id, should it become a message.")


class RunSteered(BaseModel):
    """Queued; that the model has seen it is not said by this."""

    object: Literal["hermes.run.steer"] = "hermes.run.steer"
    run_id: str
    status: Status
    steered: Literal[True] = True


class RunStopped(BaseModel):
    """``stopping``, or how it had ended already."""

    run_id: str
    status: Status
