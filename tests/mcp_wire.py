"""A raw MCP client over streamable HTTP: for tests that look at the wire, leave in the middle, or break rules.

The SDK's own clients are used where it is their opinion that counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from agui_adapter.sse import SseParser

Json = dict[str, Any]
VERSION = "2025-06-18"
PATIENCE = 60.0


class Wire:
    """One session. ``told`` holds every notification and request of the server, oldest first."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str = "") -> None:
        self.http, self.url = http, f"{url}/mcp"
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        self.told: list[Json] = []
        self.replies: Callable[[Json], Json | None] = lambda asked: None
        self._ids = itertools.count(1)

    async def initialize(self, **capabilities: Any) -> Json:
        """Begin a session; what the server says of itself."""
        about = {"name": "wire", "version": "1"}
        params = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": about}
        response, answer = await self._request("initialize", params)
        self.headers |= {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], "MCP-Protocol-Version": VERSION}
        await self.notify("notifications/initialized")
        return answer["result"]  # type: ignore[no-any-return]

    async def post(self, message: Json) -> aiohttp.ClientResponse:
        return await self.http.post(self.url, data=json.dumps({"jsonrpc": "2.0", **message}), headers=self.headers)

    async def notify(self, method: str, **params: Any) -> None:
        async with await self.post({"method": method, "params": params}) as response:
            assert response.status == 202, await response.text()

    async def request(self, method: str, *, rid: int | None = None, **params: Any) -> Json:
        """The result, or the error as ``{"error": …}``."""
        _, answer = await self._request(method, params, rid)
        return answer.get("result") or {"error": answer.get("error")} if "error" in answer else answer["result"]

    async def call(self, name: str, *, rid: int | None = None, token: str = "", **arguments: Any) -> Json:
        """A tool's result; ``token`` asks for progress."""
        meta = {"_meta": {"progressToken": token}} if token else {}
        return await self.request("tools/call", rid=rid, name=name, arguments=arguments, **meta)

    async def ok(self, name: str, **arguments: Any) -> Json:
        """The structured content of a call that succeeds."""
        result = await self.call(name, **arguments)
        assert not result.get("isError") and "error" not in result, result
        return result["structuredContent"]  # type: ignore[no-any-return]

    async def _request(self, method: str, params: Json, rid: int | None = None) -> tuple[aiohttp.ClientResponse, Json]:
        rid = rid or next(self._ids)
        async with await self.post({"id": rid, "method": method, "params": params}) as response:
            if response.content_type != "text/event-stream":
                raise Refused(response.status, await response.text(), dict(response.headers))
            async for message in _messages(response):
                if message.get("id") == rid and "method" not in message:
                    return response, message
                self._take(message)
        raise ConnectionError("the stream ended without an answer")

    def _take(self, message: Json) -> None:
        self.told.append(message)
        if "id" in message:
            answer = self.replies(message)
            if answer is not None:
                self._answering = asyncio.ensure_future(self.post({"id": message["id"], **answer}))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """The session's own stream is read while this is open."""
        begun = asyncio.Event()

        async def listen() -> None:
            async with self.http.get(self.url, headers=self.headers) as response:
                assert response.status == 200, await response.text()
                begun.set()
                async for message in _messages(response):
                    self._take(message)

        task = asyncio.create_task(listen())
        waits = asyncio.create_task(begun.wait())
        await asyncio.wait([task, waits], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert begun.is_set(), "the stream did not open"
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def delete(self) -> int:
        async with self.http.delete(self.url, headers=self.headers) as response:
            return response.status

    def of(self, method: str) -> list[Json]:
        """Params of what the server has told by this method."""
        return [one["params"] for one in self.told if one["method"] == method]

    def progress(self) -> str:
        return "".join(one["message"] for one in self.of("notifications/progress"))


class Refused(Exception):
    """An answer that is no stream."""

    def __init__(self, status: int, text: str, headers: dict[str, str]) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text, self.headers = status, text, headers


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    parser = SseParser()
    async for chunk in response.content.iter_any():
        for frame in parser.feed(chunk):
            if frame.data:
                yield json.loads(frame.data)


@asynccontextmanager
async def wire(url: str, token: str = "", **capabilities: Any) -> AsyncIterator[Wire]:
    """A client with a session."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        made = Wire(http, url, token)
        await made.initialize(**capabilities)
        yield made
