"""What the routes of OpenAI's API take and give, for ``/openapi.json``. Queries are read by these models.

Bodies are read by ``conversation``, ``items`` and ``options``, tolerantly: what stands here is what has a meaning, and
anything else may stand beside it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..operation import Query


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Asked(_Open):
    model: str | None = Field(default=None, max_length=200, description="Any name means the agent.")
    tools: list[dict[str, Any]] | None = Field(default=None, description="Tools that the client executes.")
    tool_choice: Any = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    user: str | None = None


class ChatRequest(_Asked):
    """OpenAI's Chat Completions request."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    n: Literal[1] | None = None


class ResponsesRequest(_Asked):
    """OpenAI's Responses request."""

    input: str | list[Any]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = Field(default=None, description="A thread of the caller's.")
    store: bool | None = None
    background: bool | None = None
    max_output_tokens: int | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class ResponseQuery(Query):
    """How a stored response is told."""

    stream: bool = False
    starting_after: int | None = Field(default=None, ge=0, le=10**9, description="Only events behind this number.")


class InputItemsQuery(Query):
    """A page of a response's input."""

    limit: int = Field(default=20, ge=1, le=100)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = Field(default=None, description="The id of the item before the page.")


class OptionsQuery(Query):
    """As in Hermes's dashboard."""

    refresh: bool = Field(default=False, description="Ask every provider anew.")
    explicit_only: bool = False
    include_unconfigured: bool = False


class OpenAIModel(BaseModel):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(BaseModel):
    """Models."""

    object: Literal["list"]
    data: list[OpenAIModel]
