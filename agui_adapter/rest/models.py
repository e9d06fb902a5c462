"""What the REST routes take and give. Pydantic: the routes read by these models, and ``/openapi.json`` is made of them.

Names are those of Hermes's own api_server where it has the same thing, so that its clients find them. Times are seconds
since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from ..errors import AguiError
from ..inputs import MAX_ID_CHARS
from ..operation import Body, Query, parsed
from ..stream import Request

MAX_TITLE = 200
MAX_FOCUS = 2000
MAX_ROW = 2**53 - 1


def _integer(value: Any) -> Any:
    # JSON has one kind of number, and 1.0 is an integer of it; true is none, whatever Python thinks.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_CHARS, pattern=r"\S")]
Title = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TITLE, pattern=r"\S")]
Whole = Annotated[int, BeforeValidator(_integer), Field(ge=0, le=MAX_ROW)]


# -- what waits --------------------------------------------------------------------------------------------------


class RequestInfo(BaseModel):
    """Something the turn waits for. Answer it with one of ``choices``, or with any text where ``free_text`` says so."""

    id: str
    kind: Literal["approval", "clarify", "confirm", "client_tool"]
    message: str
    choices: list[str]
    free_text: bool
    call_id: str = Field(description="The tool call that waits, empty where none does.")
    expires_at: float | None = Field(description="Seconds since the epoch; null for never.")
    detail: dict[str, Any] = Field(description="What a person may want to see: the redacted command, say.")


def request_info(request: Request) -> dict[str, Any]:
    """A request on the wire."""
    return {
        "id": request.id,
        "kind": request.kind,
        "message": request.message,
        "choices": list(request.choices),
        "free_text": request.free_text,
        "call_id": request.call_id,
        "expires_at": request.expires_at or None,
        "detail": dict(request.detail),
    }


class AnswerBody(Body):
    """An approval or a confirmation takes ``choice`` (or ``approved``) and a ``reason``; a question ``answer``; a
    client's tool ``content`` or ``error``. ``status: cancelled`` closes it without an answer."""

    choice: str | None = None
    approved: bool | None = None
    reason: str | None = Field(default=None, description="Why, for the agent.")
    answer: str | None = None
    text: str | None = None
    content: str | list[dict[str, Any]] | None = None
    error: str | None = None
    status: Literal["cancelled"] | None = None

    def payload(self) -> dict[str, Any]:
        """As ``requests.read_answer`` takes it."""
        return self.model_dump(exclude_none=True)


class Answered(BaseModel):
    """``repeated``: the same answer was given before, and counts once."""

    request_id: str
    status: Literal["answered", "repeated"]


# -- sessions ----------------------------------------------------------------------------------------------------


class SessionInfo(BaseModel):
    """A session of the caller's: its thread, under the id that the caller gave it."""

    id: str
    source: Literal["agui"] = "agui"
    title: str
    started_at: float
    last_active: float
    message_count: int
    archived: bool
    status: Literal["idle", "running", "waiting"]


class ContextUse(BaseModel):
    """How full the model's context is, as far as it is known."""

    used_tokens: int
    max_tokens: int | None = None
    fill: float | None = Field(default=None, description="From 0 to 1.")


class Cost(BaseModel):
    """What it cost, where that is known."""

    amount: float
    currency: str
    status: str


class SessionUsage(BaseModel):
    """Tokens of all model calls of the session; ``input_tokens`` includes what was cached."""

    model: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_call_count: int
    context: ContextUse | None = None
    cost: Cost | None = None


def session_usage(used: dict[str, Any]) -> dict[str, Any]:
    """``Actions.usage`` under these names."""
    made: dict[str, Any] = {
        "model": used["model"],
        "input_tokens": used["inputTokens"],
        "output_tokens": used["outputTokens"],
        "total_tokens": used["totalTokens"],
        "cache_read_tokens": used["cachedInputTokens"],
        "cache_write_tokens": used["cacheWriteInputTokens"],
        "reasoning_tokens": used["reasoningTokens"],
        "api_call_count": used["modelCalls"],
    }
    context = used.get("context")
    if context:
        told = {"used_tokens": context["usedTokens"], "max_tokens": context.get("maxTokens")}
        made["context"] = {**told, "fill": context.get("fill")}
    if used.get("cost"):
        made["cost"] = used["cost"]
    return made


class SessionDetail(SessionInfo):
    """With the run that goes on now, what it waits for, and what the session has used."""

    run_id: str | None
    requests: list[RequestInfo]
    usage: SessionUsage


class SessionReply(BaseModel):
    """One session."""

    object: Literal["hermes.session"] = "hermes.session"
    session: SessionDetail


class SessionsPage(BaseModel):
    """Sessions, the one used last first."""

    object: Literal["list"] = "list"
    data: list[SessionInfo]
    total: int
    limit: int
    offset: int
    has_more: bool


class SessionsQuery(Query):
    """Which sessions."""

    limit: int = Field(default=50, ge=0, le=200)
    offset: int = Field(default=0, ge=0, le=1_000_000)
    q: str = Field(default="", description="Words of the title or of a message.")
    archived: bool = Field(default=False, description="Those that were put aside instead.")


class SessionCreate(Body):
    """All optional: a session has an id of its own making without one."""

    id: Id | None = None
    session_id: Id | None = Field(default=None, description="The same as `id`.")
    title: Title | None = None
    system_prompt: str | None = Field(default=None, max_length=200_000, description="Layered on Hermes's own.")


class SessionPatch(Body):
    """What to change; at least one of them."""

    title: Title | None = None
    archived: bool | None = None


class SessionDeleted(BaseModel):
    """It is gone, here and in Hermes."""

    object: Literal["hermes.session.deleted"] = "hermes.session.deleted"
    id: str
    deleted: Literal[True] = True


class MessageInfo(BaseModel):
    """A message of the conversation. ``id`` is the one that was streamed; ``row_id`` is Hermes's row of a user's turn,
    null where the agent's memory has none any more: what ``rewind`` takes."""

    id: str
    session_id: str
    role: Literal["user", "assistant", "tool", "system"]
    content: str | list[dict[str, Any]]
    row_id: int | None = None
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class MessagesPage(BaseModel):
    """The whole conversation, oldest first, with what the turn that runs now has said so far."""

    object: Literal["list"] = "list"
    session_id: str
    data: list[MessageInfo]


class Fork(Body):
    """All optional."""

    id: Id | None = None
    session_id: Id | None = Field(default=None, description="The same as `id`.")
    title: Title | None = None


class ForkReply(SessionReply):
    """The copy."""

    forked_from: str


class Compress(Body):
    """What the summary is to keep in mind."""

    focus: str = Field(default="", max_length=MAX_FOCUS)


class CompressReply(BaseModel):
    """``text``: what Hermes says of it."""

    session_id: str
    compressed: bool
    text: str


class UsageReply(BaseModel):
    """What the session has used."""

    session_id: str
    usage: SessionUsage


class Truncation(Body):
    """What to take back before anything else: the user's turn that is named, and all behind it."""

    truncate_before_row_id: Whole | None = Field(default=None, description="`row_id` of a user's message.")
    truncate_before_user_ordinal: Whole | None = Field(
        default=None, description="Zero-based place among the user's turns; must agree with the row where both stand."
    )
    confirm_truncate: bool = Field(default=False, description="Must be true: this takes back what was said.")
    confirm_empty_truncate: bool = Field(default=False, description="Too, where nothing would be left.")


Cut = TypeVar("Cut", bound=Truncation)
TRUNCATION_ERRORS = (
    *("truncate_target_missing", "truncate_unconfirmed", "truncate_empty_unconfirmed"),
    *("truncate_mismatch", "truncate_target_unknown"),
)
CLOSED_ERRORS = ("request_answered", "request_expired", "request_cancelled")


def truncation(model: type[Cut], data: Any) -> Cut:
    """A body that may take something back; what is no whole number is told with Hermes's code for it too (4004)."""
    try:
        return parsed(model, data)
    except AguiError as error:
        if str(error.members.get("param", "")).startswith(("truncate_", "confirm_")):
            members = {**error.members, "hermes_code": 4004}
            raise AguiError(error.status, error.code, error.message, members=members) from None
        raise


class RewindReply(BaseModel):
    """``survivor_user_row_ids``: the rows of the user's turns that are left, oldest first, null where the agent's
    memory has none. They are the same as before: a rewind is soft."""

    session_id: str
    turns_undone: int
    survivor_user_row_ids: list[int | None]


class Steer(Body):
    """A text for the run that goes on."""

    text: Text | None = None
    input: Text | None = Field(default=None, description="The same as `text`.")
    message_id: str = Field(default="", max_length=MAX_ID_CHARS, description="Its id, should it become a message.")


def steered(asked: Any) -> str:
    """Its text. AguiError 422 where there is none."""
    text: str | None = asked.text or asked.input
    if text is None:
        raise AguiError(422, "invalid_input", "text must be a text that is not empty.", members={"param": "text"})
    return text


class SteerReply(BaseModel):
    """Queued: the model sees it with its next tool result. That it did is not said by this."""

    session_id: str
    run_id: str
    status: Literal["steered"] = "steered"


class StopReply(BaseModel):
    """``stopped`` False: nothing ran."""

    session_id: str
    stopped: bool


# -- subagents and processes ---------------------------------------------------------------------------------------


class SubagentInfo(BaseModel):
    """A running child. What it does is left out where the operator hides what tools do."""

    id: str
    status: str
    started_at: float
    model: str
    depth: int
    tool_count: int
    goal: str | None = None
    last_tool: str | None = None
    parent_id: str | None = None


def subagent_info(told: dict[str, Any]) -> dict[str, Any]:
    """``Actions.subagents`` under these names."""
    names = {"startedAt": "started_at", "toolCount": "tool_count", "lastTool": "last_tool", "parentId": "parent_id"}
    made = {names.get(name, name): value for name, value in told.items()}
    return made | {"started_at": told["startedAt"] / 1000}


class SubagentsReply(BaseModel):
    """The session's running children and theirs, oldest first."""

    session_id: str
    data: list[SubagentInfo]


class DelegationReply(BaseModel):
    """The session's running children, and Hermes's rules for delegation as they stand."""

    session_id: str
    active: list[SubagentInfo]
    paused: bool
    max_spawn_depth: int
    max_concurrent_children: int


class SubagentReply(BaseModel):
    """What was asked of it. It ends, or reads the text, at its next step."""

    subagent_id: str
    status: Literal["stopping", "steered"]


class ProcessInfo(BaseModel):
    """A background process of the session, running or lately ended."""

    id: str
    status: str
    started_at: float
    exit_code: int | None = None
    command: str | None = None
    cwd: str | None = None
    output: str | None = None


def process_info(told: dict[str, Any]) -> dict[str, Any]:
    """``Actions.processes`` under these names."""
    made = {{"exitCode": "exit_code"}.get(name, name): value for name, value in told.items() if name != "startedAt"}
    return made | {"started_at": told["startedAt"] / 1000}


class ProcessesReply(BaseModel):
    """Its background processes."""

    session_id: str
    data: list[ProcessInfo]


class ProcessStopped(BaseModel):
    """``stopped`` False: it had ended already. ``output``: its last words."""

    process_id: str
    stopped: bool
    output: str | None = None
