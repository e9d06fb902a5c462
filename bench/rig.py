"""What is measured: a scripted model in a process of its own, one gateway with `agui` and `api_server`, the doors."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from agui_adapter.demo.gateway import DEFAULT_TOOLSETS, Gateway, free_port

from . import client

_START_SECONDS = 30.0
# One caller makes all the load here.
_LIMITS = {"max_turns": 64, "max_turns_per_principal": 64, "max_parked_per_principal": 64}
_STAMPS, _NOOP = "agui-bench-stamps", "agui-bench-noop"  # as their plugin.yaml say


_ENV = {"AGUI_BENCH_NOOP_ALLOW_ALL": "true"}


class Rig:
    """Context manager: everything up on entering, everything ended on leaving.

    ``doors`` maps a name to its `Door`: ``agui``, ``api_server``, ``direct``.
    """

    def __enter__(self) -> Self:
        port, key = free_port(), secrets.token_hex(24)
        self.noop_port = free_port()
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(_model())
            self.gateway = stack.enter_context(
                contextlib.closing(Gateway(url, agui=_LIMITS, config=_config(port, key, self.noop_port), env=_ENV))
            )
            plugins = self.gateway.home / "plugins"
            for name, source in ((_STAMPS, "stamp_plugin"), (_NOOP, "noop_plugin")):
                made = Path(__file__).parent / source
                shutil.copytree(made, plugins / name, ignore=shutil.ignore_patterns("__pycache__"))
            self._stamps = plugins / _STAMPS / "stamps"
            self.gateway.start()
            _wait_for(port, self.noop_port)
            self._stack = stack.pop_all()
        self.doors = {
            "direct": client.direct(urlsplit(url).port or 0),
            "api_server": client.api_server(port, key),
            "agui": client.agui(self.gateway.port),
        }
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def stamp(self, on: bool) -> None:
        """Let the plugin note the callbacks of the turns that begin from now on, or not."""
        if on:
            self._stamps.mkdir(exist_ok=True)
        else:
            shutil.rmtree(self._stamps, ignore_errors=True)

    def stamps(self) -> list[list[tuple[int, int]]]:
        """The callbacks of each turn since the last call: (monotonic ns, characters)."""
        found = []
        for file in sorted(self._stamps.glob("*.json")):
            found.append([(int(at), int(size)) for at, size in json.loads(file.read_text())])
            file.unlink()
        return found


@contextlib.contextmanager
def _model() -> Iterator[str]:
    """A scripted model in its own process, so that it shares no interpreter with a reader; its URL."""
    command = [sys.executable, "-m", "agui_adapter.demo.model"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)


def _config(port: int, key: str, noop_port: int) -> dict[str, Any]:
    """Members of Hermes's configuration beside what `Gateway` writes; ``port`` and ``key`` are api_server's."""
    noop = "agui_bench_noop"
    return {
        "plugins": {"enabled": ["agui", _STAMPS, _NOOP]},
        "platforms": {"api_server": {"enabled": True, "extra": {"host": "127.0.0.1", "port": port, "key": key}}},
        noop: {"enabled": True, "port": noop_port},
        # The same tools for all, or they would not build the same agent.
        "platform_toolsets": {name: list(DEFAULT_TOOLSETS) for name in ("agui", "api_server", noop)},
    }


def script(text: str, *, delta_ms: float = 0, say: str = "") -> str:
    """A user message that makes the model answer with ``text``, a delta a word; ``say`` makes it unlike others."""
    return json.dumps({"script": [{"text": text, "delta_ms": delta_ms}], "say": say})


def words(count: int) -> str:
    """A text of that many deltas."""
    return "".join(f"w{number:05d} " for number in range(count))


def _wait_for(*ports: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    waiting = list(ports)
    while waiting:
        try:
            socket.create_connection(("127.0.0.1", waiting[0]), timeout=2).close()
            waiting.pop(0)
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing listens on port {waiting[0]}") from None
            time.sleep(0.05)
