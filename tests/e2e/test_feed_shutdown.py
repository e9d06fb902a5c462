"""A reader that follows an idle thread when the gateway stops: its stream ends, it does not break off."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx

from agui_adapter.demo.gateway import Gateway
from tests.e2e.helpers import DEADLINE, Chat, wait_until


def test_a_feed_ends_in_order_at_shutdown(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(agui={"heartbeat_seconds": 0.2})
    chat = Chat(gateway)
    chat.say("Hello")
    seen: list[str] = []
    ended: list[BaseException | None] = []

    def follow() -> None:
        try:
            url = f"{gateway.url}/agui/threads/{chat.thread}/events"
            with httpx.stream("GET", url, timeout=DEADLINE) as response:
                for line in response.iter_lines():
                    seen.append(line)
            ended.append(None)
        except httpx.HTTPError as error:
            ended.append(error)

    reader = threading.Thread(target=follow)
    reader.start()
    wait_until(lambda: any(line.startswith(":") for line in seen), "the feed is read, and idle")
    gateway.stop()
    reader.join(DEADLINE)
    assert ended == [None]
