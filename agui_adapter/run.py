"""Run: what one client request sees of a turn. A cursor on the turn's log, its translator, the rule for its end.

And ``open_turn``: how any door gets a turn for new input, with the gateway's start-up window and the thread's busy
rule observed. On the gateway's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .encode import start_id, with_id
from .errors import INTERNAL, AguiError
from .events import AguiStream
from .history import Message
from .inputs import has_media
from .media_in import Taken
from .principal import Principal
from .reconcile import text_of
from .rights import COMMAND_REFUSED, check_command
from .session import Thread, Turn
from .stream import GatewayNotice, StreamEvent
from .titles import with_name
from .tools import ClientTool

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .hermes.commands import Command

logger = logging.getLogger("hermes_agui")

_POLL = 0.05  # seconds between looks at what has no event to wait for


class Run:
    """One reader of a turn. ``chunks()`` gives bytes to write, each a whole number of frames."""

    def __init__(
        self, turn: Turn, stream: AguiStream, *, after: int = 0, merge_ms: int = 0, joins: bool = False
    ) -> None:
        self.turn = turn
        self._joins = joins  # in the middle of a turn: what was before comes as a snapshot
        self.position = self._start = after
        self.first: Sequence[bytes] = ()  # frames behind RUN_STARTED
        self._stream = stream
        self._merge = merge_ms / 1000

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Until the turn's end, or for ever as long as it runs: the caller cancels."""
        log, stream = self.turn.log, self._stream
        turn_id = self.turn.id.encode()
        frames: list[bytes] = []
        document, version = self.turn.thread.document, 0
        self.turn.enter()
        try:
            yield b"".join(with_id([*stream.start(), *self.first], start_id(self.turn.id, self._start)))
            if self._joins:
                yield b"".join(self._resync(0))
            while not stream.done:
                batch = await log.read(self.position)
                if self._merge and not batch.closed:
                    await asyncio.sleep(self._merge)
                    batch = log.take(self.position)
                if batch.gap:
                    frames = self._resync(self._start)
                else:
                    positions, events = batch.positions, batch.found
                    if self._merge:
                        positions, events = _merged(positions, events)
                    self.position = stream.number(frames, events, positions, turn_id, self.position)
                version = document.version
                if frames:
                    chunk, frames = b"".join(frames), []
                    yield chunk
                if batch.closed and not stream.done:  # the turn had ended before this run began to read it
                    yield b"".join(stream.feed(self.turn.end))
            document.read_to_end(version)  # the last frames were taken: the client knows the state
        except Exception:  # the headers are out: what failed here can only be told in the stream
            logger.exception("agui: a stream failed")
            if told := [*frames, *stream.fail("internal", INTERNAL)]:
                yield b"".join(told)
        finally:
            self.turn.leave()

    def over(self) -> list[bytes]:
        """The end of a stream that has reached its time (agui.stream_seconds) before the turn did."""
        message = "This stream has reached its time; the turn goes on. Read on at the thread's events."
        return self._stream.fail("stream_over", message)

    def _resync(self, start: int) -> list[bytes]:
        frames, self.position = resync(self.turn, self._stream, start)
        return frames


def resync(turn: Turn, stream: AguiStream, start: int) -> tuple[list[bytes], int]:
    """All that is in the log behind position ``start``, as a snapshot; and where the reader stands then."""
    position = start

    def events() -> Iterator[StreamEvent]:
        nonlocal position
        for position, event in turn.log.take(start, limit=sys.maxsize).events:  # noqa: B007 (where the run ends)
            yield event

    frames = stream.resync(events())
    return with_id(frames, b"%s.%d" % (turn.id.encode(), position)), position


def _merged(positions: Sequence[int], events: Sequence[StreamEvent | str]) -> tuple[list[int], list[StreamEvent | str]]:
    """Adjacent text deltas as one, at the last one's position."""
    ends: list[int] = []
    merged: list[StreamEvent | str] = []
    texts: list[str] = []
    last = 0

    def together() -> None:
        if texts:
            ends.append(last)
            merged.append("".join(texts))
            texts.clear()

    for position, event in zip(positions, events, strict=True):
        if isinstance(event, str):
            texts.append(event)
            last = position
        else:
            together()
            ends.append(position)
            merged.append(event)
    together()
    return ends, merged


async def wait_ready(adapter: AguiAdapter, seconds: float) -> None:
    """Wait out the gateway's start-up window. Raises AguiError 503 with ``Retry-After``."""
    deadline = time.monotonic() + seconds
    while not adapter.ready:
        if time.monotonic() >= deadline:
            raise AguiError(503, "starting", "The gateway is still starting; try again soon.", retry_after=5)
        await asyncio.sleep(_POLL)
    if adapter.bridge.stopping():
        raise AguiError(503, "stopping", "The gateway is shutting down; try again when it is back.", retry_after=15)


@dataclass
class Prepared:
    """What was found when the client's messages and the history were compared.

    ``base``: the client's messages before the turn, ``complete`` if that is the whole conversation; ``snapshot``: it
    must be told them. ``again``: messages that were taken back with a later one, to be answered with the new input.
    ``state``: the thread's document (None: none), which the client has or, with ``tells_state``, must be told.
    ``steered``: the text went into a turn that ran already, which may have said nothing yet.
    """

    base: Sequence[Message] = ()
    notices: list[tuple[str, Any]] = field(default_factory=list)
    snapshot: bool = False
    complete: bool = False
    again: Sequence[Message] = ()
    state: Any = None
    tells_state: bool = False
    steered: bool = False


async def _nothing() -> Prepared:
    return Prepared()


async def open_turn(
    adapter: AguiAdapter,
    thread: Thread,
    text: str,
    *,
    prepare: Callable[[], Awaitable[Prepared]] = _nothing,
    context: str = "",
    ids: list[str],
    inputs: Sequence[Message] = (),
    run_id: str = "",
    client_tools: tuple[ClientTool, ...] = (),
    commands: Principal | Literal[False] = False,
) -> tuple[Turn, int, Prepared]:
    """The turn that answers ``text``, and the position to read it from. Raises AguiError 409 on a busy thread, 429 when
    no further turn may run (``limits.py``).

    ``commands``: whose command the text is where it reads like one (a slash command, "restart gateway"); AguiError 403
    where that principal may not use it. Without a principal it is never one: the model gets it, word for word.

    ``prepare`` runs when the thread is free, before the turn begins, with nobody else at the thread.

    Busy rule: a running turn that nobody reads any more is interrupted at once (its user pressed stop, or left, and
    wrote again); one that is read is protected, or queued behind, steered or interrupted, by ``agui.busy``.
    """
    settings = adapter.settings
    assert settings is not None
    adapter.admit(thread)
    command = _check_text(adapter, thread, text, commands)
    # What is steered is only text, and Hermes throws away what reads like a command and comes too late.
    steers = settings.busy == "steer" and command is None and not has_media(inputs)
    steered = _steer(adapter, thread, text, next(iter(ids), "")) if steers else None
    if steered is not None:
        steered[0].hear(inputs)
        return *steered, Prepared(steered=True)
    if thread.lock.locked() and settings.busy == "reject":
        raise _busy()
    waits = thread.current
    if waits is not None and not adapter.holds_only(waits) and thread.lock.locked() and adapter.requests.parked(waits):
        # A run that was queued before has the lock until this turn ends, which waits for its client since.
        await _replace(adapter, waits, parked=True)
    adapter.make_room()
    async with adapter.limits.turn(thread), thread.lock:
        while True:
            _check_there(thread)
            running = thread.current
            if running is None or adapter.holds_only(running):
                break
            parked = adapter.requests.parked(running)
            if running.readers and not parked and settings.busy == "reject":
                raise _busy()
            if running.readers and not parked and settings.busy in ("queue", "steer"):
                await running.done.wait()
            else:
                await _replace(adapter, running, parked=parked)
        deadline = time.monotonic() + settings.interrupt_wait_seconds
        while adapter.gateway_begins(thread) and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):  # a background result waited behind the turn before: it comes first
                await asyncio.wait_for(thread.changed.wait(), _POLL)
        while (begun := thread.current) is not None and not adapter.holds_only(begun):
            if adapter.requests.parked(begun):  # it waits for its client: as if this message had come later
                await _replace(adapter, begun, parked=True)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(begun.done.wait(), _POLL)
        prepared = await prepare()
        thread.document.use(any(tool.writes for tool in client_tools))
        fresh = thread.document.news(context if context != thread.context else "")
        text = "\n\n".join([*(text_of(message["content"]) for message in prepared.again), text])
        taken = Taken(text, [dict(message) for message in (*prepared.again, *inputs)])
        if has_media(taken.messages):
            taken = await adapter.take_in(thread, taken.messages)
            thread.keep(taken.messages)
        text, prepared.base = taken.text, thread.light(prepared.base)
        if commands and command is not None and command.repeats():
            # A text that was none when it was said (by another door, or behind a blank) would be one now.
            said = await adapter.archive.run(lambda: adapter.archive.sessions.retried(adapter.key_of(thread)))
            _check_text(adapter, thread, said, commands)
        if prepared.again:  # joined with what was said before, perhaps by a door that has no commands, it is only text
            commands = False
        try:
            _check_text(adapter, thread, text, commands)
        except AguiError as error:
            if error.code != COMMAND_REFUSED:
                raise
            commands = False  # what was attached made it look like one
        if commands and command is not None and not commands.may("admin"):
            text = with_name(text, command, (await adapter.archive.info(thread))["title"])
        turn = adapter.new_turn(thread, text, fresh, client_tools=client_tools)
        turn.commands = bool(commands)
        turn.client_context = context
        turn.inputs, turn.media = taken.messages, taken.media
        adapter.archive.begin(turn, run_id)
        thread.accept([*ids, *(message["id"] for message in turn.inputs)])
        for note in taken.notes:
            turn.append(GatewayNotice(note.kind, note.text))
    return turn, 0, prepared


def _check_text(
    adapter: AguiAdapter, thread: Thread, text: str, commands: Principal | Literal[False]
) -> Command | None:
    """The command that a text reads like. Raises AguiError 403 where it would be one and may not be."""
    assert adapter.settings is not None
    command = adapter.bridge.command(text)
    if commands and command is not None:
        check_command(command, commands, adapter.settings.user_commands)
    if not (commands and commands.may("admin")) and adapter.bridge.asks_update(adapter.key_of(thread)):
        # The gateway would take any text for the answer.
        raise AguiError(409, "gateway_asks", "Hermes's /update waits for an answer of its administrator here.")
    return command


def _steer(adapter: AguiAdapter, thread: Thread, text: str, message_id: str) -> tuple[Turn, int] | None:
    running = thread.current
    if running is None or not running.readers or not adapter.steer(running, text, message_id):
        return None
    return running, running.log.last


async def end_turn(adapter: AguiAdapter, turn: Turn, seconds: float, reason: str) -> None:
    """Interrupt a running or parked turn and wait for its end; after ``seconds`` it is abandoned.

    ``reason`` is what the model is told of what the turn waited for.
    """
    deadline = time.monotonic() + seconds
    asked = False
    while not turn.done.is_set():
        asked = asked or adapter.interrupt(turn, reason)
        if time.monotonic() >= deadline:
            await adapter.abandon(turn)
            return
        try:
            await asyncio.wait_for(turn.done.wait(), _POLL if not asked else max(_POLL, deadline - time.monotonic()))
        except TimeoutError:
            continue


async def _replace(adapter: AguiAdapter, turn: Turn, *, parked: bool) -> None:
    """A new message ends the turn; AguiError 409 where that waits and the operator has it so (``agui.parked``)."""
    assert adapter.settings is not None
    if parked and adapter.settings.parked == "refuse":
        raise _waiting(adapter, turn)
    reason = "The user sent a new message instead of answering."
    await end_turn(adapter, turn, adapter.settings.interrupt_wait_seconds, reason)


def _waiting(adapter: AguiAdapter, turn: Turn) -> AguiError:
    names = ", ".join(request.id for request in adapter.requests.open_requests(turn))
    return AguiError(409, "thread_waiting", f"This thread waits for answers: {names}. Answer or cancel them first.")


def _check_there(thread: Thread) -> None:
    if thread.gone or thread.deleting:
        raise AguiError(409, "thread_deleted", "This thread was deleted meanwhile; send the run again.")


def _busy() -> AguiError:
    return AguiError(
        409,
        "thread_busy",
        "This thread is answering another message. Wait for its end, or stop it first; "
        "the operator can choose another rule (agui.busy).",
    )
