"""`GET /openapi.json` and `GET /docs`: every route of this server, as its own code says it.

Paths and methods are read from the router, what a route takes and gives from what stands beside its handler
(``operation``), texts from docstrings: there is no second description that could drift. The page is made on the server
from the same document, without a script or a request to anywhere.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from . import __version__
from .encode import dumps
from .error_codes import BODY, CODES, EVERY, PRIVATE, QUERY, READY, statuses
from .openapi_page import POLICY, page
from .operation import EVENT_STREAM, Operation, operation, operation_of
from .problems import is_openai

_TAGS = {
    "ag-ui": "AG-UI: runs as event streams, threads and what can be done with them.",
    "sessions": "The same threads under the names of Hermes's own api_server.",
    "runs": "Turns that outlive their request.",
    "chat": "The shortest request that works.",
    "openai": "OpenAI's API.",
    "mcp": "Model Context Protocol.",
    "server": "The server itself.",
}
_PARAMETER = re.compile(r"\{([^{}:]+)(?::([^{}]*(?:\{[^{}]*\}[^{}]*)*))?\}")
_REF = "#/components/schemas/{model}"
_HIDDEN = frozenset({"HEAD", "OPTIONS", "*"})


def add_routes(app: web.Application) -> None:
    """The document and the page; both tell nothing that is not in the sources, and ask for no token."""
    routes = Documents()
    app.router.add_get("/openapi.json", routes.json)
    app.router.add_get("/docs", routes.html)


class Documents:
    """The two routes; the document is made when it is first asked for, all routes being there by then."""

    def __init__(self) -> None:
        self._made: dict[str, Any] | None = None

    def _document(self, request: web.Request) -> dict[str, Any]:
        if self._made is None:
            self._made = document(request.app)
        return self._made

    @operation("server", public=True, reply=dict[str, Any])
    async def json(self, request: web.Request) -> web.Response:
        """This document: OpenAPI 3.1."""
        return web.Response(body=dumps(self._document(request)), content_type="application/json")

    @operation("server", public=True, reply=str, media="text/html")
    async def html(self, request: web.Request) -> web.Response:
        """This document as a page."""
        return web.Response(
            text=page(self._document(request)), content_type="text/html", headers={"Content-Security-Policy": POLICY}
        )


# -- the document ------------------------------------------------------------------------------------------------


class Problem(BaseModel):
    """RFC 9457. A refusal may tell more: `param`, the member that is wrong; `hermes_code`, Hermes's own number."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    param: str | None = None


class OpenAIErrorBody(BaseModel):
    """What is wrong. `param` names the member of the body, where it is known."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """A refusal in OpenAI's shape."""

    error: OpenAIErrorBody


class ServerSentEvent(BaseModel):
    """One event of a stream; `data` is JSON. `id` is what a stream that broke off goes on behind."""

    data: str
    event: str | None = None
    id: str | None = None


class _Strict(GenerateJsonSchema):
    """No `title` beside every member: it says its name twice."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document(app: web.Application) -> dict[str, Any]:
    """OpenAPI 3.1 of an application."""
    routes = list(_routes(app))
    schemas = _Schemas(said for *_, said in routes)
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler, said in routes:
        plain = _PARAMETER.sub(r"{\1}", path)
        paths.setdefault(plain, {})[method.lower()] = _operation(method, path, handler, said, schemas)
    tags = {said.tag for *_, said in routes}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hermes-agui",
            "version": __version__,
            "summary": "A Hermes gateway over AG-UI, REST and MCP.",
            "description": "Every refusal has a code and a sentence: in OpenAI's shape under `/v1`, as a problem "
            "document (RFC 9457) everywhere else. A foreign id answers as an unknown one.\n\n"
            + "\n".join(f"- `{code}` ({_numbers(CODES[code][0])}): {CODES[code][1]}" for code in sorted(CODES)),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "tags": [{"name": tag, "description": _TAGS.get(tag, tag)} for tag in sorted(tags)],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Not needed from this machine where the operator says so.",
                }
            },
        },
    }


def _routes(app: web.Application) -> Iterable[tuple[str, str, Any, Operation]]:
    for route in app.router.routes():
        resource = route.resource
        if route.method in _HIDDEN or resource is None:
            continue
        said = operation_of(route.handler) or Operation("other")
        yield route.method, _path(resource), route.handler, said


def _path(resource: Any) -> str:
    info = resource.get_info()
    # aiohttp's `formatter` has lost what a parameter must look like; its own text of the resource has not.
    return str(getattr(resource, "_orig_path", "") or info.get("formatter") or info.get("path") or resource.canonical)


class _Schemas:
    """The models of all routes as JSON Schema, each once."""

    def __init__(self, said: Iterable[Operation]) -> None:
        wanted: dict[tuple[Any, str], Any] = {}
        for one in said:
            if one.body is not None:
                wanted[(_key(one.body), "validation")] = one.body
            for reply in (one.reply, *(one.also or {}).values()):
                if reply is not None:
                    wanted[(_key(reply), "serialization")] = reply
        for model in (Problem, OpenAIError, ServerSentEvent):
            wanted[(_key(model), "serialization")] = model
        inputs = [(key, mode, TypeAdapter(what)) for (key, mode), what in wanted.items()]
        found, defs = TypeAdapter.json_schemas(
            inputs,  # type: ignore[arg-type]
            ref_template=_REF,
            schema_generator=_Strict,
        )
        self._found: Mapping[tuple[Any, Any], Any] = found
        self.definitions: dict[str, Any] = dict(sorted(defs.get("$defs", {}).items()))

    def of(self, what: Any, mode: str) -> dict[str, Any]:
        """The schema of a model or a type."""
        made: dict[str, Any] = self._found[(_key(what), mode)]
        return made


def _key(what: Any) -> str:
    return f"{getattr(what, '__module__', '')}.{getattr(what, '__qualname__', '')}:{what!r}"


def _operation(method: str, path: str, handler: Any, said: Operation, schemas: _Schemas) -> dict[str, Any]:
    summary, _, more = (inspect.getdoc(handler) or path).partition("\n")
    made: dict[str, Any] = {
        "tags": [said.tag],
        "operationId": _name(method, _PARAMETER.sub(r"{\1}", path)),
        "summary": summary.strip().rstrip("."),
    }
    if more.strip():
        made["description"] = more.strip()
    if parameters := [*_in_path(path), *_in_query(said), *_in_header(said)]:
        made["parameters"] = parameters
    if said.body is not None:
        content = {"application/json": {"schema": schemas.of(said.body, "validation")}}
        made["requestBody"] = {"required": not said.optional, "content": content}
    made["responses"] = _responses(path, said, schemas)
    if said.public:
        made["security"] = []
    return made


def _name(method: str, path: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", path) or ["root"]
    return "_".join([method.lower(), *words])


def _in_path(path: str) -> list[dict[str, Any]]:
    made = []
    for name, pattern in _PARAMETER.findall(path):
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if pattern:
            schema["pattern"] = f"^{pattern}$"
        made.append({"name": name, "in": "path", "required": True, "schema": schema})
    return made


def _in_query(said: Operation) -> list[dict[str, Any]]:
    if said.query is None:
        return []
    _, defs = models_json_schema([(said.query, "validation")], schema_generator=_Strict)
    (schema,) = defs["$defs"].values()
    required = schema.get("required", ())
    made = []
    for name, one in schema["properties"].items():
        described = one.pop("description", None)
        told = {"name": name, "in": "query", "required": name in required, "schema": one}
        made.append(told | ({"description": described} if described else {}))
    return made


def _in_header(said: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in (said.takes or {}).items()
    ]


def _responses(path: str, said: Operation, schemas: _Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for status, what in {said.status: said.reply, **(said.also or {})}.items():
        made[str(status)] = _response(what, said.media if status == said.status else "application/json", schemas)
        if said.headers and status == said.status:
            made[str(status)]["headers"] = {
                name: {"description": text, "schema": {"type": "string"}} for name, text in said.headers.items()
            }
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in _codes(said):
        for status in statuses(code, body=said.body is not None):
            by_status[status].append(code)
    openai = is_openai(path)
    schema = schemas.of(OpenAIError if openai else Problem, "serialization")
    media = "application/json" if openai else "application/problem+json"
    for status, codes in sorted(by_status.items()):
        text = "\n".join(f"- `{code}`: {CODES[code][1]}" for code in codes)
        content = {media: {"schema": schema}}
        if str(status) in made:  # the same status tells something else too
            made[str(status)].setdefault("content", {}).update(content)
        else:
            made[str(status)] = {"description": text, "content": content}
    return made


def _codes(said: Operation) -> list[str]:
    common = [*EVERY, *(() if said.public else (*PRIVATE, *READY))]
    common += BODY if said.body is not None else QUERY if said.query is not None else ()
    return list(dict.fromkeys([*said.errors, *common]))


def _response(what: Any, media: str, schemas: _Schemas) -> dict[str, Any]:
    if what is None:
        return {"description": "As it says."}
    schema = schemas.of(what, "serialization")
    text = inspect.getdoc(what) if isinstance(what, type) and issubclass(what, BaseModel) else None
    if media == EVENT_STREAM:
        schema, text = schemas.of(ServerSentEvent, "serialization"), "A stream of server-sent events."
    return {"description": text or "As it says.", "content": {media: {"schema": schema}}}


def _numbers(found: Iterable[int]) -> str:
    return ", ".join(map(str, found))
