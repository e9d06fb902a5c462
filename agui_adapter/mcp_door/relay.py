"""Relay: a client's MCP messages, from wherever they come, to the `/mcp` of a running gateway; and the answers back.

One relay is one session. It needs no mcp package and outlives the gateway: when that has restarted it begins a new
session with what the client said at first, and a call that finds nobody is answered with what to do. It knows neither
Hermes nor what the messages are about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aiohttp

from ..sse import SseParser

logger = logging.getLogger("hermes_agui.mcp")

Json = dict[str, Any]

RETRY_SECONDS = 20.0  # a gateway that restarts is back by then
_PAUSE = 0.5  # between two tries
_ORDER_SECONDS = 1.0  # how long a message waits for the one before it to have arrived
_QUIET_SECONDS = 120.0  # silence after which a stream counts as broken: the server's own pings come every 15 s
_FAILED, _INVALID = -32603, -32600
_VERSION = "io.modelcontextprotocol/protocolVersion"  # in `_meta`: a request of the protocol without sessions
_LASTING = ("logging/setLevel", "resources/subscribe")  # what a new session must be told again


class Relay:
    """Give messages to ``run``; what the gateway says goes to ``send``, one message at a time."""

    def __init__(self, url: str, token: str | None, send: Callable[[Json], Awaitable[None]]) -> None:
        self._url = url.rstrip("/") + "/mcp"
        self._where = url
        self._headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._send = send
        self._sending = asyncio.Lock()
        self._beginning = asyncio.Lock()
        self._http: aiohttp.ClientSession | None = None
        self._session = ""
        self._version = ""
        self._hello: Json | None = None  # the client's `initialize`
        self._lasting: dict[str, Json] = {}
        self._calls: dict[Any, asyncio.Task[None]] = {}
        self._listener: asyncio.Task[None] | None = None

    async def run(self, incoming: AsyncIterator[Json]) -> None:
        """Until the client has no more to say; then the session is ended."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_QUIET_SECONDS)
        # A connection for each message: on one that was kept nobody could tell whether a call arrived before it broke.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self._http:
            try:
                async for message in incoming:
                    await self._take(message)
            finally:
                for task in (*self._calls.values(), *((self._listener,) if self._listener else ())):
                    task.cancel()
                await self._end()

    # -- to the gateway -----------------------------------------------------------------------------------------

    async def _take(self, message: Json) -> None:
        method = message.get("method")
        if wrong := _wrong(message):
            logger.warning("a message was refused: %s", wrong)
            if "id" in message and "method" in message:  # never a stray answer to an answer
                told = message["id"] if isinstance(message["id"], str | int) else None
                error = {"code": _INVALID, "message": wrong}
                await self._tell({"jsonrpc": "2.0", "id": told, "error": error})
            return
        if method == "initialize":
            self._hello = message
            self._session, self._version = "", ""
        if method is not None and "id" in message:
            arrived = asyncio.Event()
            self._spawn(message["id"], self._call(message, arrived))
            with contextlib.suppress(TimeoutError):  # a cancellation must not overtake what it cancels
                await asyncio.wait_for(arrived.wait(), _ORDER_SECONDS)
            return
        if method == "notifications/cancelled" and not self._session:
            running = self._calls.get((message.get("params") or {}).get("requestId"))
            if running is not None:  # without a session a closed stream is what cancels
                running.cancel()
            return
        try:
            await self._deliver(message)
        except (aiohttp.ClientError, TimeoutError, _Problem) as error:
            logger.warning("%s was lost: %s", method or "an answer", error)
        if method == "notifications/initialized" and self._session:
            self._listen()

    def _spawn(self, name: Any, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._calls[name] = task
        task.add_done_callback(lambda _: self._calls.pop(name, None) if self._calls.get(name) is task else None)

    async def _call(self, message: Json, arrived: asyncio.Event) -> None:
        """A request: its answer, or an error that says what to do."""
        try:
            if message["method"] in _LASTING:
                self._lasting[json.dumps([message["method"], (message.get("params") or {}).get("uri")])] = message
            await self._deliver(message, arrived)
        except _Problem as problem:
            await self._fail(message, str(problem))
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.info("a call broke off: %r", error)
            text = "The connection to the Hermes gateway broke while this ran. The task itself may go on: "
            await self._fail(message, f"{text}see `threads`, then `wait` for its thread.")
        except Exception:
            logger.exception("a call failed")
            await self._fail(message, "The relay failed; its own output says why.")
        finally:
            arrived.set()

    async def _fail(self, message: Json, text: str) -> None:
        await self._tell({"jsonrpc": "2.0", "id": message["id"], "error": {"code": _FAILED, "message": text}})

    async def _deliver(self, message: Json, arrived: asyncio.Event | None = None) -> None:
        """Post a message, in a new session where the old one is gone. Raises _Problem."""
        session = self._session
        if await self._post(message, arrived):
            return
        await self._begin_again(session)
        if not await self._post(message, arrived):
            raise _Problem("The Hermes gateway ended this session again and again; look at its log.")

    async def _post(self, message: Json, arrived: asyncio.Event | None = None) -> bool:
        """False where the session is no longer known. Raises _Problem for what is refused."""
        assert self._http is not None
        data = json.dumps(message)
        deadline = asyncio.get_running_loop().time() + RETRY_SECONDS
        while True:
            try:
                response = await self._http.post(self._url, data=data, headers=self._headers | self._about(message))
                break
            except aiohttp.ClientConnectorError:  # nothing was sent
                if asyncio.get_running_loop().time() >= deadline:
                    raise _Problem(
                        f"No Hermes gateway answers at {self._where}. Start it with `hermes gateway`, then try again."
                    ) from None
                await asyncio.sleep(_PAUSE)
        async with response:
            if arrived is not None:
                arrived.set()
            if response.status == 404 and self._session and message.get("method") != "initialize":
                return False
            if message.get("method") == "initialize":
                self._session = response.headers.get("Mcp-Session-Id", "")
            if response.content_type == "text/event-stream":
                await self._read(response, message)
            elif response.status >= 400 or "id" in message:
                await self._single(response, message)
        return True

    def _about(self, message: Json) -> dict[str, str]:
        """Headers that name what a message is: of its session, or, without one, of the message itself."""
        if self._session:
            return {"Mcp-Session-Id": self._session, **self._spoken()}
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(_VERSION)
        if not isinstance(version, str):
            return {}
        headers = {"Mcp-Protocol-Version": version, "Mcp-Method": str(message.get("method") or "")}
        name = params.get("name", params.get("uri"))
        return headers | ({"Mcp-Name": name} if isinstance(name, str) and name.isascii() and name.isprintable() else {})

    def _spoken(self) -> dict[str, str]:
        return {"Mcp-Protocol-Version": self._version} if self._version else {}

    async def _begin_again(self, gone: str) -> None:
        """A new session in the place of one that is gone. Raises _Problem."""
        async with self._beginning:
            if self._session != gone:
                return  # another call has done it
            if self._hello is None:
                raise _Problem("Begin with `initialize`.")
            logger.info("the gateway knows the session no longer: another one begins")
            self._session = ""
            try:
                for message in (
                    {**self._hello, "id": "relay-hello"},
                    {"jsonrpc": "2.0", "method": "notifications/initialized"},
                    *({**one, "id": f"relay-{number}"} for number, one in enumerate(self._lasting.values())),
                ):
                    await self._post(message)
            except BaseException:
                self._session = gone  # the next message finds it gone again, and tries again
                raise
            self._listen()

    # -- from the gateway ---------------------------------------------------------------------------------------

    async def _read(self, response: aiohttp.ClientResponse, message: Json | None = None) -> None:
        """A stream, to its end; for a request it must hold the answer. Raises ClientError where it does not."""
        parser, answered = SseParser(), message is None
        async for chunk in response.content.iter_any():
            for event in parser.feed(chunk):
                if event.data:
                    told = json.loads(event.data)
                    answered = answered or self._answers(told, message)
                    await self._tell(told)
        if not answered:
            raise aiohttp.ClientPayloadError("the stream ended without an answer")

    def _answers(self, told: Json, message: Json | None) -> bool:
        if message is None or told.get("id") != message.get("id") or "method" in told:
            return False
        if message.get("method") == "initialize":
            self._version = str((told.get("result") or {}).get("protocolVersion") or "")
        return True

    async def _single(self, response: aiohttp.ClientResponse, message: Json) -> None:
        """An answer that is no stream: the protocol's own, or a refusal. Raises _Problem."""
        text = await response.text()
        told: Any = None
        with contextlib.suppress(ValueError):
            told = json.loads(text)
        if isinstance(told, dict) and told.get("jsonrpc") == "2.0":
            if "id" in message:  # an error for something that could not be read has no id, or one of its own
                self._answers(told, message)
                await self._tell({**told, "id": message["id"]})
            return
        if response.status == 401:
            raise _Problem("The Hermes gateway wants a token: put AGUI_API_KEY into the environment of this command.")
        detail = told.get("detail") if isinstance(told, dict) else None
        raise _Problem(str(detail or f"The Hermes gateway answered with status {response.status}."))

    async def _tell(self, message: Json) -> None:
        if isinstance(message.get("id"), str) and message["id"].startswith("relay-") and "method" not in message:
            return  # the answer to what this relay asked by itself
        async with self._sending:
            await self._send(message)

    def _listen(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._listener = asyncio.create_task(self._hear(self._session))

    async def _hear(self, session: str) -> None:
        """The session's own stream, opened again whenever it breaks."""
        assert self._http is not None
        while self._session == session:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
                headers = self._headers | {"Mcp-Session-Id": session} | self._spoken()
                async with self._http.get(self._url, headers=headers) as response:
                    if response.status in (404, 405):
                        return  # gone (the next call notices), or none is offered
                    if response.status == 200:
                        await self._read(response)
            await asyncio.sleep(_PAUSE)

    async def _end(self) -> None:
        if self._session and self._http is not None:
            headers = self._headers | {"Mcp-Session-Id": self._session} | self._spoken()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(3):
                    await self._http.delete(self._url, headers=headers)


def _wrong(message: Json) -> str:
    """What of a message's frame is not as the protocol has it; empty if it is. What is inside is the gateway's."""
    params = message.get("params", {})
    if "id" in message and not (isinstance(message["id"], str | int) or (message["id"] is None and "error" in message)):
        return "id must be a string or a whole number."
    if not isinstance(message.get("method", ""), str):
        return "method must be a string."
    if params is not None and not isinstance(params, dict):
        return "params must be an object."
    if params and not isinstance(params.get("_meta") or {}, dict):
        return "params._meta must be an object."
    if params and not isinstance(params.get("requestId", ""), str | int):
        return "params.requestId must be a string or a whole number."
    return ""


class _Problem(Exception):
    """Why a message could not be delivered, as a sentence for the client."""
