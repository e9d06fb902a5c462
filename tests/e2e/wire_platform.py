"""A throw-away chat platform for the tests, as a directory plugin: messages come in by HTTP, everything sent is kept.

`SOURCE` is the plugin's code. It registers three platforms that differ in what the gateway may do with them: `wirelive`
edits its messages and streams, `wireedit` could edit but does not stream, `wireplain` cannot edit at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from agui_adapter.demo.gateway import Gateway, free_port
from tests.e2e.helpers import wait_until, write_plugin

PLATFORMS = ("wirelive", "wireedit", "wireplain")

SOURCE = """
from aiohttp import web
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult


class Wire(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform(self.NAME))
        self.sent = {}
        self.count = 0

    async def connect(self, *, is_reconnect=False):
        app = web.Application()
        app.router.add_post("/say", self.say)
        app.router.add_get("/sent", self.shown)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.PORT).start()
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.runner.cleanup()
        self._mark_disconnected()

    async def say(self, request):
        body = await request.json()
        chat = body["chat"]
        source = self.build_source(chat, chat_name=body.get("name", chat), chat_type="dm", user_id="u", user_name="Uma")
        await self.handle_message(MessageEvent(text=body["text"], source=source, message_id=body["id"]))
        return web.json_response({})

    async def shown(self, request):
        return web.json_response(self.sent.get(request.query["chat"], []))

    def keep(self, chat, *what):
        self.sent.setdefault(chat, []).append(what)

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        number = len(self.sent.get(chat_id, []))
        self.keep(chat_id, "send", f"m{number}", content, reply_to, metadata)
        return SendResult(success=True, message_id=f"m{number}")

    async def edit_message(self, chat_id, message_id, content, *, finalize=False, **more):
        self.keep(chat_id, "edit", message_id, content, finalize)
        return SendResult(success=True, message_id=message_id)

    async def delete_message(self, chat_id, message_id):
        self.keep(chat_id, "delete", message_id)
        return True

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm", "chat_id": chat_id}


def adapter(name, port, edits):
    kind = type(name, (Wire,), {"NAME": name, "PORT": port, "SUPPORTS_MESSAGE_EDITING": edits})
    return lambda config: kind(config)


def register(ctx):
    for name, port, edits in PORTS:
        ctx.register_platform(
            name=name,
            label=name,
            adapter_factory=adapter(name, port, edits),
            check_fn=lambda: True,
            allow_all_env="WIRE_ALLOW_ALL",
        )
"""


@dataclass(frozen=True)
class Wire:
    """One of the platforms of a running gateway."""

    name: str
    port: int

    def say(self, chat: str, text: str, message_id: str = "in-1", name: str = "") -> None:
        """A user of the platform writes."""
        body = {"chat": chat, "text": text, "id": message_id, "name": name or chat}
        assert httpx.post(f"http://127.0.0.1:{self.port}/say", json=body, timeout=30).status_code == 200

    def sent(self, chat: str) -> list[list[Any]]:
        """Everything that the platform was told to show in this chat, in order."""
        found: list[list[Any]] = httpx.get(f"http://127.0.0.1:{self.port}/sent", params={"chat": chat}).json()
        return found

    def wait(self, chat: str, part: str) -> list[list[Any]]:
        """Until `part` is shown in the chat."""
        wait_until(lambda: any(part in str(row) for row in self.sent(chat)), f"{part!r} on {self.name}")
        return self.sent(chat)


def options(**more: Any) -> dict[str, Any]:
    """Arguments of a `Gateway` that has the platforms, over which `config` and `env` of `more` are laid."""
    config: dict[str, Any] = {
        "plugins": {"enabled": ["agui", "wire"]},
        "streaming": {"enabled": True, "edit_interval": 0.1, "buffer_threshold": 100_000},
        "display": {
            "platforms": {
                "wirelive": {"streaming": True, "tool_progress": "all", "interim_assistant_messages": True},
                "wireedit": {"streaming": False, "tool_progress": "all", "interim_assistant_messages": True},
                "wireplain": {"streaming": False, "interim_assistant_messages": True},
            }
        },
        "platform_toolsets": {name: ["terminal", "file", "todo"] for name in PLATFORMS},
    }
    config |= more.pop("config", {})
    return {"config": config, "env": {"WIRE_ALLOW_ALL": "true"} | more.pop("env", {}), **more}


def install(gateway: Gateway) -> dict[str, Wire]:
    """Write the plugin into the home of a gateway that has not started; its platforms by name."""
    wires = {name: Wire(name, free_port()) for name in PLATFORMS}
    ports = [(name, wire.port, name != "wireplain") for name, wire in wires.items()]
    write_plugin(gateway.home, "wire", f"PORTS = {ports!r}\n{SOURCE}")
    return wires
