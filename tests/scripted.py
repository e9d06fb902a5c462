"""The second implementation of the port: a scripted source of StreamEvents behind the real adapter, log and server.

Only the agent is missing: what the gateway would do with a message, `ScriptedAdapter.submit` does from a list,
on a thread of its own. Sessions, store, requests and every door are the real ones, in a temporary HERMES_HOME.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gateway.config import GatewayConfig, PlatformConfig
from gateway.platform_registry import PlatformEntry, platform_registry
from gateway.session import SessionStore, build_session_key

from agui_adapter.adapter import AguiAdapter
from agui_adapter.config import load
from agui_adapter.session import Turn
from agui_adapter.stream import StreamEvent, TurnFinished

PATIENCE = 30.0  # seconds until a test gives up on something that should come
Step = StreamEvent | Callable[[Turn], object]
"""An event to append, or something to do on the script's thread (wait, look)."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail after a long while."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (threads and sockets change it, no event is there to wait for)
            await asyncio.sleep(0.005)


class Gate:
    """Holds a script until the test opens it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self, turn: Turn) -> None:
        assert self._event.wait(PATIENCE), "the test never opened the gate"

    def open(self) -> None:
        self._event.set()


def register_platform() -> None:
    """`Platform("agui")` raises until the plugin has registered; tests in this process do it by hand."""
    if not platform_registry.is_registered("agui"):
        platform_registry.register(PlatformEntry("agui", "AG-UI", AguiAdapter, lambda: True))


def new_adapter(kind: type[AguiAdapter], extra: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An adapter that is not connected, with a runner that has real sessions and nothing else."""
    import hermes_state

    register_platform()
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", home / "state.db")
    for name in ("AGUI_API_KEY", "AGUI_ALLOWED_USERS", "AGUI_ALLOW_ALL_USERS", "GATEWAY_ALLOW_ALL_USERS"):
        monkeypatch.delenv(name, raising=False)
    adapter = kind(PlatformConfig(enabled=True, extra=extra))
    adapter.gateway_runner = SimpleNamespace(
        session_store=SessionStore(home / "sessions", GatewayConfig()),
        _session_key_for_source=build_session_key,
        _is_user_authorized=lambda source: True,
        _pairing_store_for=lambda source: None,
        _get_proxy_url=lambda: "",
        _profile_name_for_source=lambda source: None,
        _evict_cached_agent=lambda key: None,
        _agent_cache={},
        _running_agents={},
    )
    return adapter


class ScriptedAdapter(AguiAdapter):
    """Plays `script` for every message. Without a `TurnFinished` the turn runs until somebody interrupts it."""

    script: Sequence[Step] = (TurnFinished(),)
    started: bool = True

    @property
    def ready(self) -> bool:
        return self.started

    def server_tools(self) -> frozenset[str]:
        return frozenset({"terminal"})

    async def submit(self, turn: Turn) -> None:
        self.submitted = [*getattr(self, "submitted", []), turn]
        self._cycles[turn].submitted = True  # the script is what runs for it
        threading.Thread(target=self._play, args=(turn, list(self.script)), daemon=True).start()

    def _play(self, turn: Turn, script: Sequence[Step]) -> None:
        for step in script:
            if isinstance(step, TurnFinished):
                self.loop.call_soon_threadsafe(self._end, turn, step)
            elif callable(step):
                step(turn)
            else:
                turn.append(step)

    def _end(self, turn: Turn, end: TurnFinished) -> None:
        cycle = self._cycles.get(turn)
        if cycle is not None:
            self._finish(cycle, end.outcome, end.code, end.message)

    def interrupt(self, turn: Turn, reason: str = "") -> bool:
        self._end(turn, TurnFinished("cancelled"))
        return True


@asynccontextmanager
async def serving(
    extra: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch, *, key: str = ""
) -> AsyncIterator[tuple[ScriptedAdapter, str]]:
    """A connected adapter on a free port, and its address."""
    settings = {"port": 0, "warmup": False, **extra}
    adapter = new_adapter(ScriptedAdapter, settings, home, monkeypatch)
    if key:
        monkeypatch.setenv("AGUI_API_KEY", key)
    assert load(settings, {"AGUI_API_KEY": key})
    assert await adapter.connect(), adapter.fatal_error_message
    try:
        yield adapter, f"http://127.0.0.1:{adapter._server.port}"
    finally:
        began = time.monotonic()
        await adapter.disconnect()
        assert time.monotonic() - began < PATIENCE
