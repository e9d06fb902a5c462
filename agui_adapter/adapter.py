"""AguiAdapter: the gateway's platform adapter.

It starts the server in ``connect()``, hands messages to the gateway's pipeline, and turns what comes back (processing
hooks, ``send``) into the end of a turn. The live stream itself comes through the tap. Runs on the gateway's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, ProcessingOutcome, SendResult
from gateway.session import SessionSource
from gateway.stream_events import Commentary, MessageChunk, MessageStop, ToolCallChunk

from .archive import Archive
from .config import ConfigError, Settings, load
from .cycle import Cycle
from .hermes import Bridge, redact, session_key_here
from .hermes_ask import (
    CONFIRM_SECONDS,
    approval_choices,
    approval_seconds,
    bind_session,
    resolve_clarify,
    resolve_confirm,
    resolve_oldest,
    server_tool_names,
)
from .hermes_history import Sessions, home
from .log import EventLog
from .requests import DENY, Answer, Pending, Requests, new_id
from .server import Server
from .session import Principal, Thread, Threads, Turn
from .store import Store
from .stream import Request
from .tools import ClientTool

logger = logging.getLogger("hermes_agui")


class AguiAdapter(BasePlatformAdapter):
    """One AG-UI platform inside one gateway."""

    # No edits: the gateway then makes no stream consumer of its own and sends the final text once (HERMES: run.py,
    # "skip streaming for non-editable platform"); deltas come through the tap.
    SUPPORTS_MESSAGE_EDITING = False
    supports_code_blocks = True
    splits_long_messages = True

    def __init__(self, config: PlatformConfig) -> None:
        super().__init__(config, Platform("agui"))
        self.settings: Settings | None = None
        self.bridge = Bridge(self)
        self.threads = Threads(ttl_seconds=300)
        self._cycles: dict[Turn, Cycle] = {}
        self._by_key: dict[str, Thread] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._server: Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- lifecycle ------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start serving. False, with the reason as a fatal error that is not retried, for a wrong configuration."""
        try:
            self.settings = settings = load(self._extra(), os.environ)
        except ConfigError as error:
            logger.error("agui: %s", error)
            self._set_fatal_error("agui_config", str(error), retryable=False)
            return False
        self._loop = asyncio.get_running_loop()
        self.threads = Threads(ttl_seconds=settings.turn_ttl_seconds)
        server = Server(self, settings)
        try:
            await server.start()
        except OSError as error:
            message = (
                f"agui: cannot listen on {settings.host}:{settings.port} ({error.strerror or error}). "
                "Stop what uses the port, or set agui.port."
            )
            logger.error("%s", message)
            self._set_fatal_error("agui_port", message, retryable=False)
            return False
        self._server = server
        self.requests = Requests(self._loop, settings.max_parked, self._request_closed)
        self.archive = Archive(Store(home() / "agui.db"), Sessions(self.gateway_runner), self._key_of)
        self.archive.store.open()
        self.bridge.open(
            self.requests,
            client_tool_seconds=settings.client_tool_timeout_seconds,
            approval_seconds=settings.approval_timeout_seconds,
        )
        self.bridge.enlarge_executor(settings.workers)
        reason = self.bridge.untappable()
        if reason:
            logger.warning("agui: no live stream: %s", reason)
        if settings.warmup and not is_reconnect:
            self.warming = self.bridge.warm("local")
        self._sweeper = asyncio.create_task(self._sweep(), name="agui-sweep")
        self._mark_connected()
        logger.info("agui: serving AG-UI at http://%s:%s/agui", settings.host, server.port)
        return True

    async def disconnect(self) -> None:
        """Stop serving: every open stream gets its end, the port is free afterwards."""
        self._mark_disconnected()
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
        for cycle in list(self._cycles.values()):
            self._finish(cycle, "failed", "gateway_stopped", "The gateway is shutting down; ask again when it is back.")
        self.requests.cancel_all("The gateway is shutting down.")
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        self.bridge.close()
        await asyncio.to_thread(self.archive.close)

    def _extra(self) -> Mapping[str, Any]:
        return self.config.extra or {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The gateway's loop; there from ``connect`` on."""
        assert self._loop is not None
        return self._loop

    @property
    def ready(self) -> bool:
        """False in the gateway's start-up window and while the warm-up runs."""
        warming = getattr(self, "warming", None)
        return not self.bridge.starting() and not (warming is not None and warming.is_alive())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(30)
            for turn in self.threads.sweep(time.monotonic(), lambda turn: bool(self.requests.open_requests(turn))):
                self.requests.forget(turn)

    # -- in -------------------------------------------------------------------------------------------------

    def _key_of(self, thread: Thread) -> str:
        return self.bridge.session_key(self.source_of(thread))

    async def known_thread(self, principal: Principal, thread_id: str) -> Thread | None:
        """The principal's thread of that id, if it was ever used."""
        thread = self.threads.find(principal, thread_id)
        if thread is None:
            thread = self.threads.get(principal, thread_id)
        if not await self.archive.known(thread) and thread.current is None:
            self.threads.drop(thread)
            return None
        return thread

    def server_tools(self) -> frozenset[str]:
        """Names that no client tool may take."""
        return server_tool_names()

    def source_of(self, thread: Thread) -> SessionSource:
        """The gateway's picture of who speaks: one direct chat per (principal, thread)."""
        principal = thread.principal
        return self.build_source(
            thread.chat_id,
            chat_name="AG-UI",
            chat_type="dm",
            user_id=principal.id,
            user_name=principal.id,
            role_authorized=principal.trusted,
        )

    def new_turn(
        self,
        thread: Thread,
        text: str,
        context: str = "",
        *,
        unsolicited: bool = False,
        client_tools: tuple[ClientTool, ...] = (),
    ) -> Turn:
        """A turn that is the thread's current one from now on; ``submit`` sets it going."""
        assert self.settings is not None
        log = EventLog(self.loop, self.settings.log_bytes_per_turn)
        before = self._cycles.get(thread.current) if thread.current is not None else None
        turn = thread.begin(log, text=text, context=context, unsolicited=unsolicited, client_tools=client_tools)
        cycle = self._cycles[turn] = Cycle(turn, max_result_chars=self.settings.max_tool_result_chars)
        cycle.session_key = self.bridge.session_key(self.source_of(thread))
        self._by_key[cycle.session_key] = thread
        self.bridge.watch(cycle.session_key, cycle.tap)
        self.requests.adopt(thread.turns.values(), turn)
        if before is not None:  # it only held what the new turn has taken over (open_turn waits for any other)
            self._finish(before, "success")
        return turn

    async def submit(self, turn: Turn) -> None:
        """Hand the turn's message to the gateway's pipeline; returns as soon as it is accepted."""
        event = MessageEvent(
            text=turn.text, source=self.source_of(turn.thread), message_id=turn.message_id, raw_message=turn
        )
        accepted = self._cycles.get(turn)
        if accepted is not None:
            accepted.submitted = True
        try:
            await self.handle_message(event)
        except Exception as error:
            logger.exception("agui: the gateway did not take a message")
            cycle = self._cycles.get(turn)
            if cycle is not None:
                self._finish(cycle, "failed", "not_accepted", redact(f"The gateway did not take the message: {error}"))

    def thread_of(self, session_key: str) -> Thread | None:
        """The thread of a session key, if it has had a turn in this process. Any thread."""
        return self._by_key.get(session_key)

    async def turn_beside(self, session_key: str) -> Turn:
        """The turn that a question of ``/background`` belongs to: the running one, else a turn made to hold it."""
        thread = self._by_key[session_key]
        return thread.current or self.new_turn(thread, "", unsolicited=True)

    def holds_only(self, turn: Turn) -> bool:
        """Whether the turn was only made to hold what something beside any turn asks: it makes no thread busy."""
        cycle = self._cycles.get(turn)
        waiting = self.requests.of_turn(turn, only_open=True)
        return cycle is not None and cycle.idle and bool(waiting) and all(pending.beside for pending in waiting)

    def interrupt(self, turn: Turn, reason: str = "The turn was stopped.") -> bool:
        """Ask a running turn to end soon, in order; what it waits for is cancelled, and the model told why."""
        cycle = self._cycles.get(turn)
        if cycle is None:
            return False
        asked = self.bridge.interrupt(cycle.session_key)
        self.requests.cancel_turn(turn, reason, beside=cycle.idle)
        if cycle.idle:
            self._finish(cycle, "cancelled")
        return asked

    async def abandon(self, turn: Turn) -> None:
        """End a turn that does not end by itself: cancel the gateway's task for it, fence what still writes."""
        cycle = self._cycles.get(turn)
        if cycle is not None:
            await self.cancel_session_processing(cycle.session_key)
            self._finish(cycle, "cancelled")

    def steer(self, turn: Turn, text: str) -> bool:
        """Give a running turn a text that the model sees with its next tool result."""
        cycle = self._cycles.get(turn)
        return cycle is not None and self.bridge.steer(cycle.session_key, text)

    # -- the gateway's processing hooks ---------------------------------------------------------------------

    async def on_processing_start(self, event: MessageEvent) -> None:
        """A cycle begins: ours by its message id, else one that the gateway began by itself."""
        turn = event.raw_message if isinstance(event.raw_message, Turn) else None
        if turn is None or turn not in self._cycles:
            source = event.source
            thread = self.threads.adopt(source.chat_id, source.user_id or "")
            if thread.current is not None and not self.holds_only(thread.current):
                await thread.current.done.wait()
            turn = self.new_turn(thread, event.text or "", unsolicited=True)
        cycle = self._cycles[turn]
        cycle.started, cycle.submitted = True, False
        bind_session(cycle.session_key)
        cycle.event_id = event.message_id
        cycle.authorized = event.internal or self.bridge.authorized(event.source)
        cycle.command = (event.text or "").lstrip().startswith("/")
        task = asyncio.current_task()
        if task is not None:
            # The end of the owner task comes after the session's guard is released: the next request of this
            # thread never meets a busy session (base.py, _process_message_background).
            task.add_done_callback(lambda _: self._ended(cycle))

    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
        """The gateway's own judgement; SUCCESS only says that something was delivered."""
        turn = self._turn_of(event)
        cycle = self._cycles.get(turn) if turn is not None else None
        if cycle is not None:
            cycle.cancelled = outcome is ProcessingOutcome.CANCELLED
            cycle.crashed = outcome is ProcessingOutcome.FAILURE

    def _turn_of(self, event: MessageEvent) -> Turn | None:
        if isinstance(event.raw_message, Turn):
            return event.raw_message
        thread = self.threads.by_chat(event.source.chat_id)
        return thread.current if thread is not None else None

    def _ended(self, cycle: Cycle) -> None:
        """The gateway is through with the cycle; a slash confirmation that is open keeps its turn waiting."""
        cycle.started = False
        confirm = next((p for p in self.requests.of_turn(cycle.turn, True) if p.request.kind == "confirm"), None)
        if confirm is not None and not cycle.cancelled:
            self.requests.park(confirm)
            return
        self._finish(cycle, *cycle.verdict())

    def _finish(self, cycle: Cycle, outcome: Any, code: str = "", message: str = "", *, record: bool = True) -> None:
        if self._cycles.pop(cycle.turn, None) is None:
            return
        for pending in self.requests.of_turn(cycle.turn, True):
            if not pending.beside:
                self.requests.close(pending, "cancelled", Answer(error="The turn is over."))
        cycle.close(outcome, self.bridge.kept_texts(cycle.session_key) if outcome == "failed" else ())
        self.bridge.release(cycle.session_key, cycle.tap)
        cycle.turn.thread.end(cycle.turn, outcome, code, redact(message) if message else "")
        if record:
            self.archive.record(cycle.turn, outcome)

    # -- out ------------------------------------------------------------------------------------------------

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """What the gateway says in a chat: the answer, a command's reply, a notice, a late result."""
        if self.bridge.stopping():
            await self._settle()
        thread = self.threads.by_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error="no such AG-UI thread in this process")
        turn = thread.current
        cycle = self._cycles.get(turn) if turn is not None else None
        if cycle is None:
            self._deliver(thread, content)
        else:
            cycle.said(content, reply_to, bool((metadata or {}).get("notify") is True))
        return SendResult(success=True, message_id=turn.id if turn is not None else None)

    def _deliver(self, thread: Thread, content: str) -> None:
        """A message that belongs to no running turn: a closed turn of its own in the thread."""
        turn = self.new_turn(thread, "", unsolicited=True)
        cycle = self._cycles[turn]
        cycle.tap.commentary(content)
        self._keep(asyncio.ensure_future(self.archive.deliver(thread, turn, content)))
        self._finish(cycle, "success", record=False)

    async def _settle(self) -> None:
        """The gateway shuts down and tells its chats so, before it looks whether anything still runs.

        A parked turn would hold up its drain and make the shutdown unclean, and the next start would then run finished
        sessions again (run.py, _stop_impl_body): so parked turns end now, within five seconds.
        """
        parked = self.requests.parked_turns()
        for turn in parked:
            self.interrupt(turn, "The gateway is shutting down.")
        ends = [turn.done.wait() for turn in parked]
        if ends:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*ends), 5)

    # -- the gateway's prompts ------------------------------------------------------------------------------

    async def send_exec_approval(
        self,
        chat_id: str,
        command: str,
        session_key: str,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        allow_permanent: bool = True,
        smart_denied: bool = False,
    ) -> SendResult:
        """A dangerous command waits. The hook has asked already (see hermes_ask); else it is asked here, unbound."""
        thread = self.threads.by_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error="no such AG-UI thread in this process")
        if not self.bridge.asked_by_hook(session_key):
            turn = await self.turn_beside(session_key)
            choices = approval_choices(allow_permanent, smart_denied)
            detail = {"command": command, "description": description}
            request = Request(
                new_id("approval"), "approval", f"Allow this command? {description}", choices=choices, detail=detail
            )

            def release(pending: Pending) -> None:
                answer = pending.answer or Answer()
                if pending.closed != "expired":
                    resolve_oldest(session_key, answer.choice or DENY, answer.text or answer.error)

            pending = self.requests.open(turn, request, seconds=approval_seconds(), on_close=release)
            self.requests.park(pending)
        return SendResult(success=True)

    async def send_clarify(
        self,
        chat_id: str,
        question: str,
        choices: list[Any] | None,
        clarify_id: str,
        session_key: str,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """A question of an agent that is not tapped (a tapped one asks through its callback)."""
        thread = self.threads.by_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error="no such AG-UI thread in this process")
        turn = await self.turn_beside(session_key)
        request = Request(
            clarify_id, "clarify", question, choices=tuple(map(str, choices or ())), free_text=True, detail={}
        )

        def release(pending: Pending) -> None:
            resolve_clarify(clarify_id, pending.answer.text if pending.answer is not None else "")

        self.requests.park(self.requests.open(turn, request, on_close=release))
        return SendResult(success=True)

    async def send_slash_confirm(
        self,
        chat_id: str,
        title: str,
        message: str,
        session_key: str,
        confirm_id: str,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """A slash command wants a confirmation; its cycle ends, and the turn waits for the answer without a worker."""
        thread = self.threads.by_chat(chat_id)
        turn = thread.current if thread is not None else None
        if turn is None:
            return SendResult(success=False, error="no turn that could wait")
        request = Request(
            new_id("confirm"), "confirm", title, choices=("once", "always", "cancel"), detail={"text": message}
        )

        def release(pending: Pending) -> None:
            choice = pending.answer.choice if pending.closed == "answered" and pending.answer is not None else ""
            self.loop.call_soon_threadsafe(
                lambda: self._keep(asyncio.ensure_future(self._confirmed(turn, session_key, confirm_id, choice)))
            )

        self.requests.open(turn, request, seconds=CONFIRM_SECONDS, on_close=release)
        return SendResult(success=True)

    async def _confirmed(self, turn: Turn, session_key: str, confirm_id: str, choice: str) -> None:
        """Run what was confirmed, and end the turn with what it says."""
        text = await resolve_confirm(session_key, confirm_id, choice)
        cycle = self._cycles.get(turn)
        if cycle is None:
            return
        if text:
            cycle.tap.reply(text)
        self._finish(cycle, "success" if choice else "cancelled")

    def _request_closed(self, pending: Pending) -> None:
        """A turn that was only made to hold a question ends with it (a confirmation ends its turn by itself)."""
        cycle = self._cycles.get(pending.turn)
        if cycle is None or not cycle.idle or pending.request.kind == "confirm":
            return
        if not self.requests.of_turn(pending.turn, only_open=True):
            self._finish(cycle, "success")

    def _keep(self, task: asyncio.Future[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- Hermes's own stream events --------------------------------------------------------------------------

    def render_message_event(self, event: Any, sink: Any) -> None:
        """Hermes's own stream events, should the gateway emit them (worker thread, session context bound).

        The tap tells more, so nothing is taken from here for a turn that is tapped.
        """
        cycle = self._cycle_here()
        if cycle is not None and cycle.tap.agent_turns == 0:
            if isinstance(event, MessageChunk):
                cycle.tap.text(event.text)
            elif isinstance(event, MessageStop):
                cycle.tap.committed([])
            elif isinstance(event, Commentary):
                cycle.tap.commentary(event.text)

    def format_tool_event(self, event: Any, *, mode: str = "all", preview_max_len: int = 40) -> str | None:
        """Tool starts by the same road. Returns None: there is no tool line to print here."""
        cycle = self._cycle_here()
        if cycle is not None and cycle.tap.agent_turns == 0 and isinstance(event, ToolCallChunk):
            cycle.tap.plain_call(event)
        return None

    def _cycle_here(self) -> Cycle | None:
        key = session_key_here()
        return next((cycle for cycle in list(self._cycles.values()) if cycle.session_key == key), None)

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Name and kind of a chat, for the gateway's directory."""
        thread = self.threads.by_chat(chat_id)
        return {"name": thread.thread_id if thread is not None else chat_id, "type": "dm", "chat_id": chat_id}

    def principal_local(self) -> Principal:
        """A loopback caller without a token: authorised by the gateway's own rules, like any sender."""
        return Principal("local")
