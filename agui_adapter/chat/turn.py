"""One run after another on a thread, until it has ended or waits for somebody who is not here."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from . import DEFAULT_URL, ask
from .client import Client, Event
from .outcome import DONE, FAILED, WAITING, ChatError, Left
from .screen import Screen

_TICK_SECONDS = 0.1


@dataclass
class Talk:
    """A thread of a server, and where it is shown. ``asks``: somebody is here to answer questions."""

    url: str
    token: str | None
    thread: str
    screen: Screen
    asks: bool = False

    def say(self, content: str | list[dict[str, Any]]) -> int:
        """Send a user's message and show what comes of it; returns the exit code. Raises ChatError and Left."""
        message = {"id": str(uuid.uuid4()), "role": "user", "content": content}
        return self._runs({"messages": [message]})

    def answer(self, texts: list[str]) -> int:
        """Answer what the thread asks (values of ``--answer``), and go on as `say` does."""
        try:
            resume = ask.given(self.questions(), texts)
        except ValueError as error:
            raise ChatError(str(error)) from None
        return self._runs({"messages": [], "resume": resume})

    def resolve(self) -> int:
        """Ask the user what the thread asks, if it asks anything, and go on as `say` does."""
        self.screen.interrupts = self.questions()
        return self._go_on(WAITING if self.screen.interrupts else DONE)

    def watch(self) -> int:
        """Show a turn that runs already, and go on as `say` does; DONE when there is none."""

        async def watched() -> int:
            async with self._client() as client:
                await show(client, self.thread, client.follow(self.thread), self.screen)
            return DONE if self.screen.code is None else self.screen.code

        return self._go_on(asyncio.run(watched()))

    def seen(self) -> dict[str, Any]:
        """The thread as the server shows it."""

        async def asked() -> dict[str, Any]:
            async with self._client() as client:
                return await client.thread(self.thread)

        return asyncio.run(asked())

    def questions(self) -> list[dict[str, Any]]:
        """What the thread asks a person now."""
        found = self.seen().get("requests")
        asked = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return [one for one in asked if one.get("kind") != "client_tool"]

    def again(self) -> str:
        """The command that goes on with this thread."""
        here = f" --url {shlex.quote(self.url)}" if self.url != DEFAULT_URL else ""
        return f"hermes-agui chat{here} --thread {shlex.quote(self.thread)}"

    def _client(self) -> Client:
        lost = "the connection was lost; making it again"
        return Client(self.url, self.token, lambda: self.screen.aside(lost))

    def _runs(self, body: dict[str, Any]) -> int:
        body |= {"threadId": self.thread, "runId": str(uuid.uuid4()), "protocolVersion": "1.0"}
        body |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
        return self._go_on(asyncio.run(self._run(body)))

    def _go_on(self, code: int) -> int:
        """Where the run ended with questions: ask them, or say how they are answered later."""
        asked = self.screen.interrupts
        if not asked:
            return code
        try:
            resume = ask.ask(asked, self.screen.say, self.screen.ask) if self.asks else None
        except KeyboardInterrupt:
            self.stop()
            return FAILED
        if resume is not None:
            return self._runs({"messages": [], "resume": resume})
        for line in ask.later(asked, self.again()):
            self.screen.say(line)
        return code

    def stop(self) -> None:
        """End the thread's turn, while nothing of it is being read."""

        async def stopped() -> None:
            async with self._client() as client:
                await client.stop(self.thread)

        asyncio.run(stopped())
        self.screen.say("the run was stopped")

    async def _run(self, body: dict[str, Any]) -> int:
        self.screen.code = None
        async with self._client() as client:
            await show(client, self.thread, client.run(body), self.screen)
            if self.screen.code is not None:
                return self.screen.code
            if client.numbered and self.screen.catch_up((await client.thread(self.thread)).get("messages")):
                self.screen.error("the gateway was restarted meanwhile; this is what the thread has kept")
                return FAILED
        raise ChatError(
            "the stream ended before the run did; the agent may still be at work: "
            f"ask again with --thread {self.thread}"
        )


async def show(client: Client, thread: str, events: AsyncGenerator[tuple[Event, str], None], screen: Screen) -> None:
    """Show events to their end. Ctrl-C stops the thread's turn, which ends them; a second one raises `Left`."""
    stopping: list[asyncio.Task[None]] = []

    async def read() -> None:
        async with aclosing(events):
            async for event, data in events:
                screen.show(event, data)

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            screen.tick()

    async def stop() -> None:
        try:
            await client.stop(thread)
        except ChatError as error:
            screen.remark(f"! not stopped: {error}")

    reading, ticking = asyncio.create_task(read()), asyncio.create_task(tick())

    def pressed() -> None:
        if stopping:
            reading.cancel()
        else:
            screen.remark("stopping; Ctrl-C again leaves")
            stopping.append(asyncio.create_task(stop()))

    with _on_interrupt(pressed):
        try:
            await reading
        except asyncio.CancelledError:
            if not reading.cancelled():
                raise
            raise Left from None
        finally:
            for task in (reading, ticking, *stopping):
                task.cancel()
            screen.rest()
            screen.end_line()


@contextlib.contextmanager
def _on_interrupt(pressed: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, pressed)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not on the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
