"""What a route takes and gives, said once beside its handler: ``openapi`` documents it, the handler reads by it.

    @operation("sessions", body=Rename, reply=Session, errors=("no_such_thread",))
    async def patch(self, request): …
        asked = parsed(Rename, await self._server.json(request))

The handler's docstring is the description. Pure: knows neither routes nor the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from multidict import MultiMapping
from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import AguiError

Handler = TypeVar("Handler", bound=Callable[..., Any])
Model = TypeVar("Model", bound=BaseModel)

EVENT_STREAM = "text/event-stream"


class Body(BaseModel):
    """A body of ours: a member that it does not know is a mistake, and said to be one."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """A query. Unknown parameters are ignored, as everywhere on the web."""


@dataclass(frozen=True)
class Operation:
    """``body``, ``query``, ``reply``: anything that pydantic has a schema for; None where there is none. ``errors``:
    codes beside those that every route may answer with. ``also``: further responses, status → what they hold."""

    tag: str
    body: Any = None
    optional: bool = False
    query: type[Query] | None = None
    reply: Any = None
    status: int = 200
    media: str = "application/json"
    errors: tuple[str, ...] = ()
    also: Mapping[int, Any] | None = None
    headers: Mapping[str, str] | None = None
    takes: Mapping[str, str] | None = None
    public: bool = False


def operation(
    tag: str,
    *,
    body: Any = None,
    optional: bool = False,
    query: type[Query] | None = None,
    reply: Any = None,
    status: int = 200,
    media: str = "application/json",
    errors: tuple[str, ...] = (),
    also: Mapping[int, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    takes: Mapping[str, str] | None = None,
    public: bool = False,
) -> Callable[[Handler], Handler]:
    """Say what a handler takes and gives. ``optional``: it does without a body. ``headers``: those of the response, and
    ``takes`` of the request, each with what it is for. ``public``: it asks for no token."""

    def mark(handler: Handler) -> Handler:
        said = Operation(tag, body, optional, query, reply, status, media, errors, also, headers, takes, public)
        handler.__operation__ = said  # type: ignore[attr-defined]
        return handler

    return mark


def operation_of(handler: Any) -> Operation | None:
    """What was said of a handler."""
    found = getattr(handler, "__operation__", None)
    return found if isinstance(found, Operation) else None


def parsed(model: type[Model], data: Any) -> Model:
    """A body as its model. Raises AguiError 422 that names the member, and never quotes what stood there."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid(error) from None


def queried(model: type[Model], query: MultiMapping[str]) -> Model:
    """A query as its model. Raises AguiError 422."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    try:
        return model.model_validate({name: query[name] for name in known if name in query})
    except ValidationError as error:
        raise invalid(error) from None


def invalid(error: ValidationError) -> AguiError:
    """What is wrong with an input, in words."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function-", "constrained-")))
    said = first["msg"].removeprefix("Value error, ")
    sentence = said[:1].lower() + said[1:]
    message = f"{where}: {sentence}." if where else f"{said}."
    return AguiError(422, "invalid_input", message.replace("..", "."), members={"param": where} if where else None)
