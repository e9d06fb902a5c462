"""A Hermes platform for the bench that does nothing with a turn: what a turn costs without any adapter's work.

`POST /say {"chat": …, "text": …}` answers when the turn is over. The agent streams as for any platform that shows
text (a callback that does nothing is set where the gateway set none), so the model call is the same one.
The port is in `agui_bench_noop: {port: …}` of config.yaml.
"""

import asyncio
import sys
import uuid
from types import FrameType
from typing import Any

NAME = "agui_bench_noop"


def register(ctx: Any) -> None:
    ctx.register_platform(
        name=NAME,
        label="no-op",
        adapter_factory=_adapter,
        check_fn=lambda: True,
        allow_all_env="AGUI_BENCH_NOOP_ALLOW_ALL",
        apply_yaml_config_fn=lambda config, _: dict(config.get(NAME) or {}),
    )
    ctx.register_hook("pre_llm_call", _streams)


def _streams(**kwargs: Any) -> None:
    if kwargs.get("platform") != NAME:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        agent = frame.f_locals.get("agent")
        if hasattr(agent, "stream_delta_callback"):
            if agent.stream_delta_callback is None:
                agent.stream_delta_callback = _nothing
            return
        frame = frame.f_back


def _nothing(text: str | None) -> None:
    pass


def _adapter(config: Any) -> Any:
    from aiohttp import web
    from gateway.config import Platform
    from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult

    class Noop(BasePlatformAdapter):
        SUPPORTS_MESSAGE_EDITING = False

        def __init__(self, config: Any) -> None:
            super().__init__(config, Platform(NAME))
            self.port = int(config.extra["port"])
            self.ends: dict[str, asyncio.Future[None]] = {}

        async def connect(self, *, is_reconnect: bool = False) -> bool:
            app = web.Application()
            app.router.add_post("/say", self.say)
            self.runner = web.AppRunner(app, access_log=None)
            await self.runner.setup()
            await web.TCPSite(self.runner, "127.0.0.1", self.port).start()
            self._mark_connected()
            return True

        async def disconnect(self) -> None:
            await self.runner.cleanup()
            self._mark_disconnected()

        async def say(self, request: Any) -> Any:
            body = await request.json()
            message_id = uuid.uuid4().hex
            ended = self.ends[message_id] = asyncio.get_running_loop().create_future()
            source = self.build_source(body["chat"], chat_type="dm", user_id="u", user_name="u")
            await self.handle_message(MessageEvent(text=body["text"], source=source, message_id=message_id))
            await ended
            return web.json_response({})

        async def on_processing_complete(self, event: Any, outcome: Any) -> None:
            ended = self.ends.pop(event.message_id, None)
            if ended is not None and not ended.done():
                ended.set_result(None)

        async def send(self, chat_id: str, content: str, reply_to: Any = None, metadata: Any = None) -> Any:
            return SendResult(success=True, message_id=uuid.uuid4().hex)

        async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
            return {"name": chat_id, "type": "dm", "chat_id": chat_id}

    return Noop(config)
