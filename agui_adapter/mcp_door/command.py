"""`hermes-agui mcp`: the agent as an MCP server on standard input and output, or on a SLIM network.

A thin client of the running gateway, so that one agent serves all; a desktop client's configuration starts it with one
line. Standard output carries the protocol and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

from .relay import Json, Relay

DEFAULT_URL = "http://127.0.0.1:8650"
DONE, USAGE = 0, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `hermes-agui mcp`."""
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the gateway (default %(default)s)")
    parser.add_argument(
        "--token", help="bearer key (default: AGUI_API_KEY of the environment, which other users cannot see)"
    )
    parser.add_argument(
        "--slim", metavar="ENDPOINT", help="serve on this SLIM node instead, e.g. http://localhost:46357"
    )
    parser.add_argument("--name", metavar="ORG/NS/AGENT", help="the name on SLIM")


def run(args: argparse.Namespace) -> int:
    """Serve until the client closes; the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="hermes-agui mcp: %(message)s")
    token = (args.token or os.environ.get("AGUI_API_KEY") or "").strip() or None
    if token is not None and not (token.isascii() and token.isprintable()):
        print("hermes-agui mcp: the token holds characters that no HTTP header can carry", file=sys.stderr)
        return USAGE
    if args.slim:
        from . import slim

        return slim.serve(args.slim, args.name or "", args.url, token)
    if args.name:
        print("hermes-agui mcp: --name goes with --slim", file=sys.stderr)
        return USAGE
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_serve(args.url, token))
    return DONE


async def _serve(url: str, token: str | None) -> None:
    await Relay(url, token, _write).run(_lines())


async def _write(message: Json) -> None:
    # Blocks while the client reads nothing: then there is nobody to serve.
    sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    sys.stdout.buffer.flush()


async def _lines() -> AsyncIterator[Json]:
    """Messages, one a line, until the client closes."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(queue.put_nowait, line)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, None)

    # On a daemon thread: a read that never returns must not keep the process.
    threading.Thread(target=read, name="agui-mcp-stdin", daemon=True).start()
    while (line := await queue.get()) is not None:
        if not line.strip():
            continue
        message = _parsed(line)
        if message is None:
            error = {"code": -32700, "message": "This is no JSON-RPC message."}
            await _write({"jsonrpc": "2.0", "id": None, "error": error})
        else:
            yield message


def _parsed(line: bytes) -> Any:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
