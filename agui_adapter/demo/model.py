"""A scripted OpenAI-compatible model server: deterministic answers, chosen pace, faults on request.

The last user message decides. If it holds a JSON object with a key `"script"`, the model follows that list of steps
(`script.Step`), one per assistant message already answered; otherwise it talks like a small demo (`answers`).
It knows nothing of Hermes except the prompts of the calls that Hermes makes beside a turn.

Run alone: `python -m agui_adapter.demo.model --port 0 --first-ms 50 --delta-ms 20` prints its URL.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections import Counter, deque
from concurrent.futures import Future
from typing import Any, Self

import orjson
from aiohttp import web

from agui_adapter.demo import wire
from agui_adapter.demo.answers import auxiliary_answer, natural_answer
from agui_adapter.demo.script import ScriptError, Step, find_script, parse_step, turn_of

MODEL_NAME = "scripted-1"
KEPT_REQUESTS = 200
CONTEXT_LENGTH = 128_000

_MAX_BODY = 64 * 1024 * 1024
_BATCH = 64  # frames in one write when no pace is asked for
_log = logging.getLogger(__name__)


class ScriptedModel:
    """The server on the running loop of whoever starts it.

    Args:
        first_ms: wait before the first chunk of an answer, in milliseconds.
        delta_ms: time between two deltas, in milliseconds. Kept by absolute deadlines: an early or late
            wake-up does not move the later ones.
        host, port: where to listen; port 0 takes a free one.
    """

    def __init__(self, *, first_ms: float = 0, delta_ms: float = 0, host: str = "127.0.0.1", port: int = 0) -> None:
        self.first_ms = first_ms
        self.delta_ms = delta_ms
        self.host = host
        self.port = port
        self._requests: deque[dict[str, Any]] = deque(maxlen=KEPT_REQUESTS)
        self._faults: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._runner: web.AppRunner | None = None

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The last 200 request bodies, newest last. A copy, safe to read from any thread."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Forget the requests and start the fault counters anew. Any thread."""
        with self._lock:
            self._requests.clear()
            self._faults.clear()

    @property
    def url(self) -> str:
        """The base URL that an OpenAI client wants, with `/v1`."""
        return f"http://{self.host}:{self.port}/v1"

    async def start(self) -> int:
        """Listen, and return the port.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/debug/requests", self._debug)
        app.router.add_delete("/debug/requests", self._debug_clear)
        # A client that left must end its handler, and a hanging answer must not hold up the stop.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self.host, self.port)
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = int(runner.addresses[0][1])
        return self.port

    async def stop(self) -> None:
        """Close the port and every open answer. Harmless when not started."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # --- routes

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": MODEL_NAME, "object": "model", "created": wire.CREATED, "owned_by": "hermes-agui"}
        return _json({"object": "list", "data": [model | {"context_length": CONTEXT_LENGTH}]})

    async def _debug(self, request: web.Request) -> web.Response:
        return _json(self.requests)

    async def _debug_clear(self, request: web.Request) -> web.Response:
        self.clear()
        return web.Response(status=204)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = orjson.loads(raw)
            messages = body["messages"]
            if not all(isinstance(message, dict) for message in messages):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            return _error(400, "The body must be a JSON object with a list `messages` of objects.")
        with self._lock:
            self._requests.append(body)
        try:
            answer = self._answer(body, len(raw))
        except ScriptError as error:
            return _error(400, str(error))
        if answer.step.status is not None:
            return _error(answer.step.status, answer.step.message, answer.step.retry_after)
        if not body.get("stream") or answer.step.unstreamed:
            return await self._whole(request, answer)
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return await self._stream(request, answer, include_usage=usage)

    # --- the answer

    def _answer(self, body: dict[str, Any], size: int) -> wire.Answer:
        """Choose the step for a request body of `size` bytes."""
        messages = body["messages"]
        tools = [tool.get("function", {}).get("name", "") for tool in body.get("tools") or []]
        turn = turn_of(messages)
        step = auxiliary_answer(messages)
        if step is None:
            script = find_script(turn.user_text)
            step = natural_answer(turn, tools) if script is None else parse_step(script, turn.step)
        if step.is_fault and step.times is not None and self._count(turn.fault_key()) > step.times:
            step = step.without_faults()
        return wire.Answer(
            step=step,
            completion_id=f"chatcmpl-{turn.digest(turn.step)}",
            model=str(body.get("model") or MODEL_NAME),
            prompt_tokens=max(1, size // 4),
            tool_ids=tuple(
                None if tool.omits_id else tool.id or f"call_{turn.digest(turn.step, index)}"
                for index, tool in enumerate(step.tools)
            ),
        )

    def _count(self, key: str) -> int:
        with self._lock:
            self._faults[key] += 1
            return self._faults[key]

    def _first(self, step: Step) -> float:
        return (self.first_ms if step.first_ms is None else step.first_ms) / 1000

    def _delta(self, step: Step) -> float:
        return (self.delta_ms if step.delta_ms is None else step.delta_ms) / 1000

    async def _whole(self, request: web.Request, answer: wire.Answer) -> web.StreamResponse:
        await asyncio.sleep(self._first(answer.step))
        body = wire.body(answer)
        if answer.step.hang is None and answer.step.cut is None and not answer.step.garbage:
            return web.Response(body=body, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if answer.step.garbage:
            await response.write(wire.GARBAGE)
            return response
        if answer.step.hang is not None:
            await asyncio.sleep(answer.step.hang)
        else:
            await response.write(body[: len(body) // 2])
        return await _break(request, response)

    async def _stream(self, request: web.Request, answer: wire.Answer, *, include_usage: bool) -> web.StreamResponse:
        step = answer.step
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        try:
            if step.hang is not None:
                await asyncio.sleep(step.hang)
                return await _break(request, response)
            await asyncio.sleep(self._first(step))
            if step.garbage:
                await response.write(wire.GARBAGE)
                return response
            await response.write(wire.opening(answer))
            pieces = wire.deltas(answer)
            await self._write_paced(response, answer, pieces)
            if step.cut is not None:
                return await _break(request, response)
            await response.write(wire.closing(answer, len(pieces), include_usage=include_usage))
        except ConnectionResetError:
            _log.debug("the client left in the middle of an answer")
        return response

    async def _write_paced(
        self, response: web.StreamResponse, answer: wire.Answer, pieces: list[dict[str, Any]]
    ) -> None:
        delta = self._delta(answer.step)
        if delta == 0:
            frames = list(wire.frames(answer, pieces))
            for start in range(0, len(frames), _BATCH):
                await response.write(b"".join(frames[start : start + _BATCH]))
                await asyncio.sleep(0)  # other answers must get their share of the loop
            return
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for index, frame in enumerate(wire.frames(answer, pieces)):
            await asyncio.sleep(begin + index * delta - loop.time())
            await response.write(frame)


class BackgroundModel(ScriptedModel):
    """A `ScriptedModel` on a thread with a loop of its own, for callers that have none.

    `open` and `close` are plain calls; also a context manager.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> int:
        """Start the thread, listen, and return the port. Raises OSError as `start` does."""
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="scripted-model", daemon=True)
        self._thread.start()
        return started.result(timeout=10)

    def close(self) -> None:
        """Stop listening and end the thread. Harmless when not open."""
        if self._thread is None or self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._thread = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, started: "Future[int]") -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                port = runner.run(self.start())
            except BaseException as error:
                started.set_exception(error)
                return
            started.set_result(port)
            self._loop.run_forever()
            runner.run(self.stop())


async def _break(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection in the middle of an HTTP chunk, after everything written so far has gone out."""
    transport = request.transport
    if transport is not None:
        # The size of a chunk that never comes: the reader can tell this from a normal end.
        transport.write(b'40\r\ndata: {"id":"chatcmpl-')
        transport.close()
    return response


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(value), status=status, headers=headers, content_type="application/json", charset="utf-8"
    )


def _error(status: int, message: str | None = None, retry_after: float | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return _json(wire.error_body(status, message), status, headers)


async def _serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    options = {"first_ms": arguments.first_ms, "delta_ms": arguments.delta_ms}
    async with ScriptedModel(host=arguments.host, port=arguments.port, **options) as model:
        print(model.url, flush=True)
        await ended.wait()


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m agui_adapter.demo.model", description="A scripted model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--first-ms", type=float, default=0, help="wait before the first chunk")
    parser.add_argument("--delta-ms", type=float, default=0, help="time between two deltas")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments))
    except (OSError, socket.gaierror) as error:
        parser.exit(1, f"The model cannot listen on {arguments.host}:{arguments.port}: {error.strerror}\n")


if __name__ == "__main__":
    main()
