"""The server that `@modelcontextprotocol/conformance` tests, on this project's bridge and its use of the SDK.

The agent's own tools are not the ones that the conformance suite asks for, so those are offered here, by the same
`sdk.make_server` and `bridge.McpDoor` that serve the agent's.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from aiohttp import web

from agui_adapter.auth import check_host, check_origin
from agui_adapter.config import load
from agui_adapter.mcp_door import bridge, sdk
from agui_adapter.principal import Principal

Json = dict[str, Any]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00").decode()
EMBEDDED = {
    "uri": "test://embedded-resource",
    "mimeType": "text/plain",
    "text": "This is an embedded resource content.",
}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def image() -> Json:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


async def with_logging(call: sdk.Call) -> list[Json]:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log("info", line, "conformance")
        await asyncio.sleep(0.05)
    return [text("Done.")]


async def with_progress(call: sdk.Call) -> list[Json]:
    for value in (0, 50, 100):
        await call.progress(value, f"Completed step {value} of 100")
        await asyncio.sleep(0.05)
    return [text("Done.")]


async def elicits(call: sdk.Call) -> list[Json]:
    fields = {"username": {"type": "string"}, "email": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["username", "email"]}
    action, content = await call.elicit(call.params["arguments"]["message"], schema)
    return [text(f"User response: action={action}, content={content}")]


async def defaults(call: sdk.Call) -> list[Json]:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    action, content = await call.elicit("Please review", {"type": "object", "properties": fields, "required": []})
    return [text(f"Elicitation completed: action={action}, content={content}")]


async def enums(call: sdk.Call) -> list[Json]:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    action, content = await call.elicit("Choose", {"type": "object", "properties": fields, "required": []})
    return [text(f"Elicitation completed: action={action}, content={content}")]


TOOLS: dict[str, Any] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [{"type": "resource", "resource": EMBEDDED}],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        image(),
        {"type": "resource", "resource": {**EMBEDDED, "uri": "test://mixed-content-resource"}},
    ],
    "test_tool_with_logging": with_logging,
    "test_tool_with_progress": with_progress,
    "test_elicitation": elicits,
    "test_elicitation_sep1034_defaults": defaults,
    "test_elicitation_sep1330_enums": enums,
    "test_error_handling": None,
    "json_schema_2020_12_tool": [text("ok")],
}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


async def list_tools(call: sdk.Call) -> Json:
    schemas = {"json_schema_2020_12_tool": SCHEMA_2020}
    plain: Json = {"type": "object"}
    return {"tools": [{"name": n, "description": n, "inputSchema": schemas.get(n, plain)} for n in TOOLS]}


async def call_tool(call: sdk.Call) -> Json:
    made = TOOLS[call.params["name"]]
    if made is None:
        return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}
    return {"content": made if isinstance(made, list) else await made(call)}


async def list_resources(call: sdk.Call) -> Json:
    uris = ("test://static-text", "test://static-binary", "test://watched-resource")
    return {"resources": [{"uri": uri, "name": uri, "description": uri, "mimeType": "text/plain"} for uri in uris]}


async def list_templates(call: sdk.Call) -> Json:
    return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "template", "description": "t"}]}


async def read_resource(call: sdk.Call) -> Json:
    uri = call.params["uri"]
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if uri.startswith("test://template/"):
        data = f'{{"id": "{uri.split("/")[3]}", "templateTest": true}}'
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}]}
    if uri in ("test://static-text", "test://watched-resource"):
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "This is the content of the resource."}]}
    raise sdk.error(sdk.RESOURCE_NOT_FOUND, "no such resource")


async def nothing(call: sdk.Call) -> Json:
    return {}


async def complete(call: sdk.Call) -> Json:
    return {"completion": {"values": [], "total": 0, "hasMore": False}}


async def list_prompts(call: sdk.Call) -> Json:
    arguments = {
        "test_prompt_with_arguments": ["arg1", "arg2"],
        "test_prompt_with_embedded_resource": ["resourceUri"],
    }
    names = ("test_simple_prompt", *arguments, "test_prompt_with_image")
    return {
        "prompts": [
            {
                "name": name,
                "description": name,
                "arguments": [{"name": one, "description": one, "required": True} for one in arguments.get(name, ())],
            }
            for name in names
        ]
    }


async def get_prompt(call: sdk.Call) -> Json:
    given = call.params.get("arguments") or {}
    contents: dict[str, list[Json]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            {"type": "resource", "resource": {**EMBEDDED, "uri": given.get("resourceUri", "test://x")}},
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [image(), text("Please analyze the image above.")],
    }
    return {"messages": [{"role": "user", "content": one} for one in contents[call.params["name"]]]}


HANDLERS = {
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "resources/subscribe": nothing,
    "resources/unsubscribe": nothing,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "logging/setLevel": nothing,
}


class Host:
    """What the bridge asks of the gateway's server."""

    def __init__(self) -> None:
        self.settings = load({}, {})
        self.adapter = SimpleNamespace(closing=False)

    def principal(self, request: web.Request, scope: str = "") -> Any:
        return Principal("local")

    def take_stream(self, request: web.Request) -> None:
        pass

    async def body(self, request: web.Request) -> bytes:
        return await request.read()


@asynccontextmanager
async def everything() -> AsyncIterator[str]:
    """The server on a free port; its address."""
    host = Host()

    @web.middleware
    async def admission(request: web.Request, handler: Any) -> Any:
        try:
            check_host(request.headers.get("Host"), host.settings)
            check_origin(request.headers.get("Origin"), request.headers.get("Host"), host.settings)
        except Exception as error:
            return web.Response(status=getattr(error, "status", 500))
        return await handler(request)

    offer = SimpleNamespace(sdk=sdk, make_server=lambda server: sdk.make_server("everything", "1", "", HANDLERS))
    sys.modules["agui_adapter.mcp_door.offer"] = offer  # type: ignore[assignment]
    app = web.Application(middlewares=[admission])
    bridge.add_routes(app, host)  # type: ignore[arg-type]
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def main() -> None:
    async with everything() as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
