"""A gateway that hands its turns to another Hermes (`gateway.proxy_url`): final texts only, and said at start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agui_adapter.demo.gateway import Gateway
from agui_adapter.demo.model import BackgroundModel
from tests.e2e.helpers import Chat


def test_a_proxied_gateway_shows_final_texts_and_says_so(
    model: BackgroundModel, make_gateway: Callable[..., Gateway]
) -> None:
    """The scripted model stands in for the other Hermes: both speak OpenAI's chat completions."""
    gateway: Any = make_gateway(config={"gateway": {"proxy_url": model.url.removesuffix("/v1")}})
    assert "gateway.proxy_url is set" in gateway.log_text()
    run = Chat(gateway).say("Hello there").succeeded()
    assert run.text().strip()
    assert not run.of("TOOL_CALL_START")
