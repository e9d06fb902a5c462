"""The HTTP side of the terminal client: runs that survive a dropped connection, and the routes it needs.

On the event loop of one `asyncio.run`; nothing here prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from ..sse import SseEvent, SseParser
from .outcome import ChatError, UsageError

ENDS = ("RUN_FINISHED", "RUN_ERROR")

RETRY_SECONDS = 60.0
"""How long a lost stream is tried again: a gateway is restarted in less."""

# Quiet streams carry a heartbeat (agui.heartbeat_seconds, at most 300): twice that means that the server is gone.
_STREAM = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=600)
_CALL = aiohttp.ClientTimeout(total=60, sock_connect=10)

_URL_ERRORS = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, ConnectionError)

Event = dict[str, Any]


class _Lost(Exception):
    """The connection could not be made, or ended before the answer did; the text is a sentence."""


class Client:
    """One server and who we are there. Calls raise `ChatError`, and `UsageError` for an address that is none.

    ``lost`` is called once for each connection that broke and is made again.
    """

    def __init__(self, url: str, token: str | None, lost: Callable[[], None] = lambda: None) -> None:
        self._base = url.rstrip("/").removesuffix("/agui")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._lost = lost
        self.numbered = False
        """Whether the newest run's events had positions, so that it could be followed over a lost connection."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    # -- runs -----------------------------------------------------------------------------------------------

    async def run(self, body: dict[str, Any]) -> AsyncGenerator[tuple[Event, str], None]:
        """POST a run and read it to its end: each event with the text that it came as.

        A connection that breaks is made again: behind the last event that had a position, or, when nothing was heard
        yet, by the same request under the same key, which the server runs once. Ends without a terminal event where
        the server numbers no events, or has none of this run any more.
        """
        key = {"Idempotency-Key": str(uuid.uuid4())}
        last, heard, ended, tries, since = "", False, False, 0, 0.0
        self.numbered = False
        while True:
            if last:
                frames = self._frames("GET", f"{self._at(body['threadId'])}/events?once=1", {"Last-Event-ID": last})
            else:
                frames = self._frames("POST", f"{self._base}/agui", key, json=body)
            attached = bool(last)
            try:
                async with aclosing(frames):
                    async for frame in frames:
                        event = decode(frame.data)
                        heard, tries, last, ended = True, 0, frame.id or last, event["type"] in ENDS
                        self.numbered = bool(last)
                        yield event, frame.data
                        if ended and attached:
                            return  # the feed would go on with what this turn does next
            except _Lost as lost:
                # The first request that nobody takes is an address that is wrong, or a gateway that is down.
                if not tries and not heard and not lost.args[1]:
                    raise ChatError(lost.args[0]) from None
                if tries and time.monotonic() - since > RETRY_SECONDS:
                    raise ChatError(f"{lost.args[0]} The turn may go on without us.") from None
            else:
                if ended or attached:
                    return
            if ended or (heard and not last):
                return
            if not tries:
                since = time.monotonic()
                self._lost()
            await asyncio.sleep(min(2.0, 0.1 * 2**tries))
            tries += 1

    async def follow(self, thread: str) -> AsyncGenerator[tuple[Event, str], None]:
        """The run of a thread that somebody else began and that goes on now, to its end; nothing without one."""
        async with aclosing(self._frames("GET", f"{self._at(thread)}/events?once=1", {})) as frames:
            try:
                async for frame in frames:
                    event = decode(frame.data)
                    yield event, frame.data
                    if event["type"] in ENDS:
                        return
            except _Lost as lost:
                raise ChatError(lost.args[0]) from None

    async def _frames(
        self, method: str, url: str, headers: dict[str, str], **options: Any
    ) -> AsyncGenerator[SseEvent, None]:
        """One connection. Raises `_Lost` (sentence, whether the connection was made)."""
        parser, made = SseParser(), False
        headers = {"Accept": "text/event-stream"} | headers
        try:
            async with self._session.request(
                method, url, headers=headers, allow_redirects=False, timeout=_STREAM, **options
            ) as response:
                made = True
                if response.status == 503:
                    raise _Lost(await _refusal(response), False)
                if response.status != 200:
                    raise ChatError(await _refusal(response))
                if response.content_type != "text/event-stream":
                    raise ChatError(f"{url} answered with {response.content_type}, not with an event stream")
                async for chunk in response.content.iter_any():
                    for frame in parser.feed(chunk):
                        yield frame
        except _URL_ERRORS:
            raise UsageError(f"--url {self._base!r} is not an http address") from None
        except aiohttp.ClientConnectorError as error:
            raise _Lost(self._unreachable(error), False) from None
        except _NETWORK_ERRORS as error:
            raise _Lost(self._silent(error), made or isinstance(error, aiohttp.ServerDisconnectedError)) from None

    # -- calls ----------------------------------------------------------------------------------------------

    async def newest(self) -> str | None:
        """The id of the caller's thread that was used last."""
        found = (await self._call("GET", f"{self._base}/agui/threads?limit=1")).get("threads")
        first = found[0] if isinstance(found, list) and found else None
        return str(first["threadId"]) if isinstance(first, dict) and "threadId" in first else None

    async def thread(self, thread: str) -> dict[str, Any]:
        """The thread as the server shows it: its messages, what it asks, its status."""
        return await self._call("GET", self._at(thread))

    async def stop(self, thread: str) -> None:
        """End the thread's turn."""
        await self._call("POST", f"{self._at(thread)}/stop")

    async def commands(self) -> list[dict[str, Any]]:
        """The slash commands that the caller may use."""
        found = (await self._call("GET", f"{self._base}/agui/commands")).get("commands")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    async def _call(self, method: str, url: str) -> dict[str, Any]:
        try:
            async with self._session.request(method, url, allow_redirects=False, timeout=_CALL) as response:
                if response.status >= 300:
                    raise Refused(await _refusal(response), response.status)
                found = await response.json(content_type=None)
        except _URL_ERRORS:
            raise UsageError(f"--url {self._base!r} is not an http address") from None
        except aiohttp.ClientConnectorError as error:
            raise ChatError(self._unreachable(error)) from None
        except (*_NETWORK_ERRORS, ValueError) as error:
            raise ChatError(self._silent(error)) from None
        return found if isinstance(found, dict) else {}

    def _at(self, thread: str) -> str:
        return f"{self._base}/agui/threads/{quote(thread, safe='')}"

    def _unreachable(self, error: aiohttp.ClientConnectorError) -> str:
        reason = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
        return f"cannot reach {self._base} ({reason}); is the gateway running?"

    def _silent(self, error: BaseException) -> str:
        return f"{self._base} did not answer ({type(error).__name__}); is the gateway running?"


class Refused(ChatError):
    """The server said no to a call."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def decode(text: str) -> Event:
    """A frame's data as an event. Raises `ChatError` for what is none."""
    try:
        event = json.loads(text)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise ChatError(f"the server sent something that is no AG-UI event: {text[:80]!r}")
    return event


async def _refusal(response: aiohttp.ClientResponse) -> str:
    body = await response.content.read(65536)
    text = body.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    sentence = found if isinstance(found, str) and found else text if not text.startswith("<") else ""
    return f"HTTP {response.status}: {sentence[:500] or response.reason or 'no reason given'}"
