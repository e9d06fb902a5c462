"""AguiAdapter: the gateway's platform adapter.

It starts the server in ``connect()``, hands messages to the gateway's pipeline, and turns what comes back (processing
hooks, ``send``) into the end of a turn. The live stream itself comes through the tap. Runs on the gateway's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import MessageEvent, ProcessingOutcome, SendResult
from gateway.session import SessionSource
from gateway.stream_events import Commentary, GatewayNotice, MessageChunk, MessageStop, ToolCallChunk

from . import attachments, devices, media_out
from .archive import Archive
from .auth import OWNER
from .config import ConfigError, Settings, is_loopback, load, public_base
from .crew import Crew
from .cycle import Cycle
from .files import FileError, Files, Owner, Shelf, refusal
from .hermes import Bridge, hide, redact, redact_lines, session_key_here
from .hermes.ask import (
    CONFIRM_SECONDS,
    approval_choices,
    approval_seconds,
    bind_session,
    resolve_clarify,
    resolve_confirm,
    resolve_oldest,
    server_tool_names,
)
from .hermes.commands import message as gateway_message
from .hermes.history import Sessions, home
from .hermes.media import message_type, without_tags
from .hermes.observe import Others, Watcher
from .hermes.profiles import Place
from .hermes.redaction import redacted_choices
from .hermes.versions import asks_for_home, misfit, tells_of_interrupt, weakness
from .log import EventLog
from .long_tools import LongTools
from .media_in import Taken, take_in
from .media_out import FileSender
from .observe import Observer
from .requests import DENY, Answer, Pending, Requests, new_id
from .run import end_turn
from .server import Server
from .session import Principal, Thread, Threads, Turn, plain_names
from .state_text import STATE_TOOL_NAMES
from .store import UNSOLICITED, Store, store_path
from .stream import Attachment, MessageStart, Request, StreamEvent
from .tap import Secrets
from .tools import ClientTool

logger = logging.getLogger("hermes_agui")

_PRUNE_SECONDS = 3600.0
_ARRIVALS_SECONDS = 1.0  # between looks for messages that other processes left
SECRETS = Secrets(redact_lines, hide)
"""How every event leaves them out: by Hermes's own redactor."""
_one_shot: contextvars.ContextVar[bool] = contextvars.ContextVar("agui_one_shot", default=False)


class AguiAdapter(FileSender):
    """One AG-UI platform inside one gateway."""

    # No edits: the gateway then makes no stream consumer of its own and sends the final text once (HERMES: run.py,
    # "skip streaming for non-editable platform"); deltas come through the tap.
    SUPPORTS_MESSAGE_EDITING = False
    supports_code_blocks = True
    splits_long_messages = True
    gateway_runner: Any = None  # before 0.19 the gateway sets it only on adapters that have declared it

    def __init__(self, config: PlatformConfig) -> None:
        # Doors tell what runs by events, and each of Hermes's typing loops asks four times a second whether it is over
        # (for ever, where its cancellation meets the end of a `wait_for`: 51 of 2,000 turns, 0.19.0 on Python 3.11).
        config.typing_indicator = False
        super().__init__(config, Platform("agui"))
        self.settings: Settings | None = None
        self.bridge = Bridge(self)
        self.threads = Threads(ttl_seconds=300)
        self.closing = False
        self.waiting_devices = devices.Waiting()
        self.blind = ""  # why turns of this gateway cannot be tapped, if so
        self._cycles: dict[Turn, Cycle] = {}
        self._by_key: dict[str, Thread] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._server: Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._arrivals: asyncio.Task[None] | None = None
        self.observer: Observer | None = None
        self.crew: Crew | None = None
        self.warming: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- lifecycle ------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start serving. False, with the reason as a fatal error that is not retried, for a wrong configuration."""
        self.bridge.place = place = Place(self.gateway_runner)
        try:
            if trouble := place.trouble():
                raise ConfigError(trouble)
            self.settings = settings = load(self._extra(), place.environment())
            server = Server(self, settings)
        except ConfigError as error:
            logger.error("agui: %s", error)
            self._set_fatal_error("agui_config", str(error), retryable=False)
            return False
        if trouble := await asyncio.to_thread(misfit, self):
            logger.error("agui: %s", trouble)
            self._set_fatal_error("agui_hermes", trouble, retryable=False)
            return False
        if weak := weakness():
            logger.warning("agui: %s", weak)
        self._loop = asyncio.get_running_loop()
        self.closing = False
        self.threads = Threads(ttl_seconds=settings.turn_ttl_seconds, profile=place.profile)
        self.limits = server.limits
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
        # Below the pool, whatever the settings: turns that wait must leave workers for those that run.
        places = min(settings.max_parked, settings.workers - 4)
        if places < settings.max_parked:
            logger.warning("agui: agui.max_parked counts as %d, since agui.workers is %d", places, settings.workers)
        each = settings.max_parked_per_principal
        self.requests = Requests(self._loop, places, self._request_closed, self._request_limit, each)
        sessions = Sessions(self.gateway_runner)
        view, chars = server.view, settings.max_tool_result_chars
        self.archive = Archive(Store(store_path(home())), sessions, self.key_of, view, chars)
        self.archive.store.open()
        files = Files(
            self.archive.store,
            home() / "agui_files",
            ttl_seconds=settings.file_ttl_seconds,
            most_bytes=settings.file_store_bytes,
        )
        files.base = public_base(settings, server.port)
        await asyncio.to_thread(files.open)
        self.archive.later(self.archive.put_away_lost)
        self.files = self.archive.files = files  # routes find it from now on: links are checked with what was read
        sessions.shown = self.shown
        self.others = Others(self.gateway_runner, sessions)
        if settings.observe and place.profile:
            logger.warning("agui: agui.observe shows the whole gateway, so it is for the gateway's own profile alone")
        elif settings.observe:
            self.observer = Observer(
                self._loop,
                log_bytes=settings.log_bytes_per_turn,
                max_result_chars=settings.max_tool_result_chars,
                keep_seconds=settings.turn_ttl_seconds,
                record=self.archive.record,
                shown=self.shown,
                secrets=SECRETS,
            )
            self.bridge.watcher = Watcher(self.bridge, self.observer, sessions)
        self.bridge.open(
            self.requests,
            client_tool_seconds=settings.client_tool_timeout_seconds,
            approval_seconds=settings.approval_timeout_seconds,
        )
        self.crew = self.bridge.crew = Crew(self._loop, self.requests.tell, self._tell_beside)
        self.bridge.long_tools = LongTools(self._loop, settings.long_tool_seconds)
        self.bridge.hermes_state, self.bridge.tool_output = settings.hermes_state, settings.tool_output
        self.archive.reserved = settings.hermes_state != "off"
        self.archive.keeps_stateless = settings.rest_stateless == "archive"
        self.bridge.enlarge_executor(settings.workers)
        self.blind = self.bridge.untappable()
        if self.blind:
            logger.warning("agui: no live stream: %s", self.blind)
        if not getattr(self.config, "gateway_restart_notification", True):
            # With this notice the gateway tells an adapter of its end before it looks at what still runs.
            logger.warning("agui: gateway_restart_notification is off: a stop while turns wait will not be a clean one")
        if settings.warmup and not is_reconnect:
            self.warming = self.bridge.warm("local")
        self._sweeper = asyncio.create_task(self._sweep(), name="agui-sweep")
        self._arrivals = asyncio.create_task(self._take_arrivals(), name="agui-arrivals")
        if settings.allowed_hosts and is_loopback(settings.host) and not settings.require_token:
            logger.warning("agui: with a proxy in front (agui.allowed_hosts), set agui.require_token: true")
        self._mark_connected()
        logger.info("agui: serving AG-UI at http://%s:%s/agui", settings.host, server.port)
        return True

    async def disconnect(self) -> None:
        """Stop serving: every open stream gets its end, the port is free afterwards."""
        self._mark_disconnected()
        if self.crew is not None:
            self.crew.close()
        for task in (self._sweeper, self._arrivals):
            if task is not None:
                task.cancel()
        self._sweeper = self._arrivals = None
        for cycle in list(self._cycles.values()):
            self._finish(cycle, "failed", "gateway_stopped", "The gateway is shutting down; ask again when it is back.")
        self.requests.cancel_all("The gateway is shutting down.")
        self.closing = True
        for thread in self.threads:  # readers of feeds wait for what no longer comes
            thread.changed.notify()
        if self.observer is not None:
            self.observer.close()
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
        return not self.bridge.starting() and not (self.warming is not None and self.warming.is_alive())

    async def _sweep(self) -> None:
        prune_at = 0.0
        while True:
            await asyncio.sleep(30)
            for turn in self.threads.sweep(time.monotonic(), lambda turn: bool(self.requests.open_requests(turn))):
                self.requests.forget(turn)
            known = self.threads.by_chat
            self._by_key = {key: one for key, one in self._by_key.items() if known(one.chat_id) is one}
            if self.observer is not None:
                self.observer.sweep(time.monotonic())
            self.archive.let_go()
            self.archive.later(self.files.sweep)
            if time.monotonic() >= prune_at:
                prune_at = time.monotonic() + _PRUNE_SECONDS
                self.archive.later(self._prune)

    def _prune(self) -> None:
        """Forget what is kept too long. On the archive's worker."""
        assert self.settings is not None
        if self.settings.retention_days:
            self.archive.prune(self.settings.retention_days, self._in_use)
        else:
            self.archive.store.prune()

    def _in_use(self, chat_id: str) -> bool:
        thread = self.threads.by_chat(chat_id)
        return thread is not None and (thread.current is not None or thread.watchers > 0)

    # -- in -------------------------------------------------------------------------------------------------

    def key_of(self, thread: Thread) -> str:
        """The session key of a thread of ours, or of one that stands for a watched session. Any thread."""
        watched = self.observer.key_of(thread) if self.observer is not None else None
        return watched or self.bridge.session_key(self.source_of(thread))

    async def known_thread(self, principal: Principal, thread_id: str) -> Thread | None:
        """The principal's thread of that id, if it was ever used. A look leaves nothing behind, and takes nothing from
        a run that is about to begin on the same id."""
        thread = self.threads.find(principal, thread_id) or self.threads.of(principal, thread_id)
        if not await self.archive.known(thread) and thread.current is None:
            return None
        held = self.threads.hold(thread)
        if held is not None:  # one that the gateway spoke of first learns who it belongs to
            held.principal, held.thread_id = principal, thread_id
        return held

    def admit(self, thread: Thread) -> None:
        """Before a turn: an unknown device takes one of the few places for those that ask to be let in. AguiError 429
        where there is none."""
        name = thread.principal.id
        if self.is_stranger(thread.principal):
            self.waiting_devices.admit(name, self.bridge.pairing(self.source_of(thread)))
        else:
            self.waiting_devices.known(name)

    def lets_in(self, thread: Thread) -> bool:
        """Whether the gateway's own rules let the thread's principal use the agent."""
        return self.bridge.authorized(self.source_of(thread))

    def is_stranger(self, principal: Principal) -> bool:
        """Whether this is a device that was not let in: its token says nothing about it."""
        return principal.id.startswith(devices.KIND) and not self.bridge.authorized(
            self.source_of(self.threads.of(principal, ""))
        )

    def server_tools(self) -> frozenset[str]:
        """Names that no client tool may take."""
        return server_tool_names() | STATE_TOOL_NAMES

    def source_of(self, thread: Thread) -> SessionSource:
        """The gateway's picture of who speaks: one direct chat per (principal, thread)."""
        principal = thread.principal
        source = self.build_source(
            thread.chat_id,
            chat_name="AG-UI",
            chat_type="dm",
            user_id=principal.id,
            user_name=principal.id,
            role_authorized=principal.trusted,
        )
        if self.bridge.place.profile:  # a further profile's own port: no route of the gateway's changes whose it is
            source.profile = self.bridge.place.profile
        return source

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
        if self.settings.detach == "stop" and not unsolicited:  # nobody's reader began what the gateway runs by itself
            turn.on_unread = self._unread
        cycle = self._cycles[turn] = Cycle(
            turn,
            max_result_chars=self.settings.max_tool_result_chars,
            shown=self.shown,
            secrets=SECRETS,
            blind=bool(self.blind),
        )
        cycle.session_key = self.bridge.session_key(self.source_of(thread))
        self._by_key[cycle.session_key] = thread
        self.bridge.watch(cycle.session_key, cycle.tap)
        self.requests.adopt(thread.turns.values(), turn)
        if before is not None:  # it only held what the new turn has taken over (open_turn waits for any other)
            self._finish(before, "success")
        self._tell_subagents(thread)
        return turn

    async def submit(self, turn: Turn) -> None:
        """Hand the turn's message to the gateway's pipeline, as its first reader; returns as soon as it is accepted.

        On a task of its own: a client that leaves at this very moment must not leave a turn that nobody processes.
        """
        turn.expect()
        cycle = self._cycles.get(turn)
        if cycle is not None:  # from here on: a newer message that comes at this very moment waits for its end
            cycle.submitted = True
        task = asyncio.ensure_future(self._submit(turn))
        self._keep(task)
        try:
            await asyncio.shield(task)
        except BaseException:
            turn.came()
            raise

    async def _submit(self, turn: Turn) -> None:
        event = gateway_message(
            turn.text,
            commands=turn.commands,
            message_type=message_type(one.kind for one in turn.media),
            source=self.source_of(turn.thread),
            message_id=turn.message_id,
            raw_message=turn,
            media_urls=[one.path for one in turn.media],
            media_types=[one.mime for one in turn.media],
        )
        cycle = self._cycles.get(turn)
        if cycle is None:  # it was given up before it came to this: the gateway would begin a turn of its own for it
            self.archive.untake(turn)
            return
        if turn.thread.shared and self.bridge.taken_elsewhere(cycle.session_key):
            turn.append(
                GatewayNotice("session_busy", "The other chat of this session is being answered; this comes next.")
            )
        busy = self.bridge.processing(cycle.session_key)  # something that is no turn of ours (any more)
        token = _one_shot.set(turn.one_shot or turn.inline)  # the gateway's task for the message copies the context
        try:
            await self.handle_message(event)
        except Exception as error:
            logger.exception("agui: the gateway did not take a message")
            self._refuse(cycle, redact(f"The gateway did not take the message: {error}"))
        else:
            if busy and not cycle.started and not self.bridge.queued(cycle.session_key, event):
                self._refuse(cycle, "The gateway is busy with this thread and did not take the message.")
        finally:
            _one_shot.reset(token)

    def _refuse(self, cycle: Cycle, message: str) -> None:
        """The gateway has thrown the turn's message away, or answered it without a turn (a command)."""
        if cycle.turn not in self._cycles:
            return
        verdict = cycle.verdict()
        if verdict[0] == "success":
            self._finish(cycle, *verdict)
            return
        self._finish(cycle, "failed", "not_accepted", f"{message} Send it again.")
        self.archive.untake(cycle.turn)

    @property
    def supports_async_delivery(self) -> bool:
        """Whether what ends after the turn may be promised to this caller; read once for each message (gateway/run.py,
        _set_session_env). True for a thread, which has a feed and a store; False in turns of one-shot callers."""
        return not _one_shot.get()

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

    def live_turns(self) -> list[Turn]:
        """Turns that use a worker: their end is not told, they neither wait for their client nor were made to hold a
        question only."""
        waits, holds = self.requests.parked, self.holds_only
        return [turn for turn in self._cycles if not (turn.log.closed or waits(turn) or holds(turn))]

    def log_bytes(self) -> int:
        """Bytes that the logs of all turns hold."""
        return sum(turn.log.size for thread in self.threads for turn in thread.turns.values())

    def make_room(self) -> None:
        """Forget finished turns where all logs together have grown too large. Raises AguiError 429 where that is not
        enough."""
        for turn in self.limits.room_in_logs(self.threads):
            self.requests.forget(turn)

    async def free(self, thread: Thread) -> None:
        """Wait until no turn makes the thread busy."""
        while (turn := thread.current) is not None and not self.holds_only(turn):
            await turn.done.wait()

    def interrupt(self, turn: Turn, reason: str = "The turn was stopped.") -> bool:
        """Ask a running turn to end soon, in order; what it waits for is cancelled, and the model told why."""
        cycle = self._cycles.get(turn)
        if cycle is None:
            return False
        turn.stopping = True
        self._not_taken(cycle)  # or the gateway would run it as a further turn after the end
        asked = self.bridge.interrupt(cycle.session_key)
        self.requests.cancel_turn(turn, reason, beside=cycle.idle)
        if cycle.idle:
            self._finish(cycle, "cancelled")
        return asked

    def one_shot(self, turn: Turn) -> None:
        """Its caller reads one response and nothing later: nobody can be asked, and unread it has no use (``door``)."""
        turn.one_shot = True
        if turn.thread.passing:
            turn.on_unread = self._unread

    def _unread(self, turn: Turn) -> None:
        """The last reader of a turn has left, or what it waited for is closed while nobody reads it."""
        assert self.settings is not None
        if turn.grace is None:
            # Never at once: between two readers of one request there is an instant without any.
            seconds = 0.2 if turn.thread.passing else max(self.settings.grace_seconds, 0.2)
            turn.grace = self.loop.call_later(seconds, self._grace_over, turn)

    def _grace_over(self, turn: Turn) -> None:
        turn.grace = None
        if turn.readers or turn not in self._cycles or self.requests.parked(turn) or self.holds_only(turn):
            return
        assert self.settings is not None
        logger.info("agui: nobody reads %s on %s: it is stopped (agui.detach)", turn.id, turn.thread.chat_id)
        reason = "The user has left."
        self._keep(asyncio.ensure_future(end_turn(self, turn, self.settings.interrupt_wait_seconds, reason)))

    async def abandon(self, turn: Turn) -> None:
        """End a turn that does not end by itself: cancel the gateway's task for it, fence what still writes."""
        cycle = self._cycles.get(turn)
        if cycle is not None:
            try:
                await self.bridge.give_up(cycle.session_key, self.source_of(turn.thread))
                await self.cancel_session_processing(cycle.session_key)
            finally:
                self._finish(cycle, "cancelled")

    def steer(self, turn: Turn, text: str, message_id: str = "") -> bool:
        """Give a running turn a text that the model sees with its next tool result.

        ``message_id`` names it for the client, should it come too late and become a message of the history.
        """
        cycle = self._cycles.get(turn)
        if cycle is None or turn.stopping or not cycle.tap.open_turns:
            return False
        if message_id.strip():
            turn.steered_ids[text.strip()] = message_id
        return self.bridge.steer(cycle.session_key, text)

    def _not_taken(self, cycle: Cycle) -> None:
        """Text that was steered into the turn and that its model will not see: say so."""
        text = self.bridge.unsteer(cycle.session_key)
        ours = cycle.turn.steered_text
        if ours and ours in text:  # no user's text: the next turn tells it
            text = text.replace(ours, "").strip()
            cycle.turn.thread.context = ""
            cycle.turn.thread.document.model_forgot()
        if text:
            cycle.tap.notice("steer_not_taken", "The turn ended before the agent could read this text.", text=text)

    # -- the gateway's processing hooks ---------------------------------------------------------------------

    async def on_processing_start(self, event: MessageEvent) -> None:
        """A cycle begins: ours by its message id, else one that the gateway began by itself."""
        turn = event.raw_message if isinstance(event.raw_message, Turn) else None
        if turn is None or turn not in self._cycles:
            source = event.source
            thread = await self.thread_of_chat(source.chat_id)
            if thread is None:
                thread = self.threads.adopt(source.chat_id, source.user_id or "")
            await self.archive.load(thread)  # or its record would claim every earlier row of the session
            await self.free(thread)
            turn = self.new_turn(thread, event.text or "", unsolicited=True)
            self.archive.begin(turn, UNSOLICITED)
        cycle = self._cycles[turn]
        cycle.started, cycle.submitted = True, False
        task = asyncio.current_task()
        if task is not None:
            # The end of the owner task comes after the session's guard is released: the next request of this
            # thread never meets a busy session (base.py, _process_message_background).
            task.add_done_callback(lambda _: self._ended(cycle))
        bind_session(cycle.session_key)
        cycle.event_id = event.message_id
        if not event.channel_prompt and turn.thread.system:
            event.channel_prompt = turn.thread.system  # the same each turn: another would cost the prompt cache
        cycle.authorized = event.internal or self.bridge.authorized(event.source)
        turn.commands = bool(event.get_command())
        cycle.command = turn.commands
        if cycle.command and cycle.authorized:
            await self.bridge.keep_apart(event.text or "", event.source)

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
        try:
            for pending in self.requests.of_turn(cycle.turn, True):
                if not pending.beside:
                    self.requests.close(pending, "cancelled", Answer(error="The turn is over."))
            self._not_taken(cycle)
            if cycle.turn.stopping:
                self.bridge.clear_interrupt(cycle.session_key)
            cycle.close(outcome, self.bridge.kept_texts(cycle.session_key) if outcome == "failed" else ())
            self.bridge.release(cycle.session_key, cycle.tap)
            cycle.turn.thread.accept(cycle.tap.late_inputs)
        except Exception:  # whatever it was: the turn ends, or its readers and its thread would wait for ever
            logger.exception("agui: the end of a turn was not told in full")
            cycle.tap.stop()
        cycle.turn.thread.end(cycle.turn, outcome, code, redact(message) if message else "")
        if record and not cycle.turn.thread.passing:  # of such a one nothing is read later
            self.archive.record(cycle.turn, outcome)
            if self._server is not None and self._server.metrics is not None:
                self._server.metrics.turn_ended(cycle.turn, outcome, code)
        self._tell_subagents(cycle.turn.thread)
        if cycle.turn.thread.passing:
            self.archive.put_away(cycle.turn.thread)

    # -- out ------------------------------------------------------------------------------------------------

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SendResult:
        """What the gateway says in a chat: the answer, a command's reply, a notice, a late result. Any loop."""
        # tools/send_message_tool.py calls this on a loop of its own worker thread.
        elsewhere = asyncio.get_running_loop() is not self.loop
        said = self._said(chat_id, content, reply_to, metadata, elsewhere=elsewhere)
        return await media_out.on_loop(self.loop, said)

    async def _said(
        self, chat_id: str, content: str, reply_to: str | None, metadata: dict[str, Any] | None, *, elsewhere: bool
    ) -> SendResult:
        if asks_for_home(content) or tells_of_interrupt(content):
            return SendResult(success=True)
        stopping = self.bridge.stopping()
        if stopping:
            await self._settle()
        thread = await self.thread_of_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error=f"There is no AG-UI thread {chat_id}: name <principal>.<thread id>.")
        about = metadata or {}
        # What a crash or a stop kept from being delivered is said again at the start (gateway/delivery_ledger.py), but
        # whoever reads the thread has it from the history.
        again = self.bridge.starting() and thread.current is None and "job_id" not in about
        if again and await self.archive.has_said(thread, content):
            return SendResult(success=True)
        turn = thread.current
        cycle = self._cycles.get(turn) if turn is not None else None
        if turn is None or cycle is None:
            # What is said to all chats as the gateway stops is no message of the conversation.
            kept = not stopping or elsewhere or "job_id" in about
            message_id = self._deliver(thread, content, kept=kept)
        elif self._from_elsewhere(cycle, about, elsewhere):
            message_id = self._deliver_behind(turn, content)
        else:
            cycle.said(content, reply_to, about.get("notify") is True)
            message_id = turn.id
        return SendResult(success=True, message_id=message_id)

    async def thread_of_chat(self, chat_id: str) -> Thread | None:
        """The thread of a chat: one that this process has met, one that the store knows, or a plain new one.

        The home channel may name a thread that was never used.
        """
        thread = self.threads.by_chat(chat_id)
        if thread is None:
            record = await self.archive.run(lambda: self.archive.store.thread(chat_id))
            plain = plain_names(chat_id, self.threads.profile)
            names = (record.principal, record.thread_id) if record is not None else plain
            if names is None:
                return None
            thread = self.threads.get(OWNER if names[0] == OWNER.id else Principal(names[0]), names[1])
        return thread

    def _deliver(
        self, thread: Thread, content: str, message_id: str = "", sent: float = 0.0, *, kept: bool = True
    ) -> str:
        """A message that belongs to no running turn: a closed turn of its own in the thread. Returns its id."""
        message_id = message_id or f"late-{uuid.uuid4().hex}"
        turn = self.new_turn(thread, "", unsolicited=True)
        turn.append(MessageStart(message_id))
        turn.append(Commentary(content))
        if kept:
            self._keep(asyncio.ensure_future(self.archive.deliver(thread, message_id, content, sent=sent)))
        self._finish(self._cycles[turn], "success", record=False)
        return message_id

    def _deliver_behind(self, turn: Turn, content: str, message_id: str = "", sent: float = 0.0) -> str:
        """A message from elsewhere while a turn runs: announced in it at once, a message of the thread after it."""
        message_id = message_id or f"late-{uuid.uuid4().hex}"
        turn.append(GatewayNotice("message", content, extra={"messageId": message_id}))
        # Kept at once, in case the process dies, and again at its place behind the turn.
        self._keep(asyncio.ensure_future(self.archive.deliver(turn.thread, message_id, content, sent=sent)))
        self._keep(asyncio.ensure_future(self._deliver_when_free(turn.thread, content, message_id, sent)))
        return message_id

    def _tell_subagents(self, thread: Thread) -> None:
        """A turn has begun, goes on or is over: what subagents did and could not be told yet is told."""
        if self.crew is not None:
            self.crew.flush(thread)

    def _tell_beside(self, thread: Thread, events: list[StreamEvent]) -> None:
        """What subagents did after their turn, while none runs: a short turn of its own, for the thread's feed."""
        last_id = thread.last_id
        turn = self.new_turn(thread, "", unsolicited=True)
        for event in events:
            turn.append(event)
        self._finish(self._cycles[turn], "success", record=False)
        thread.last_id = last_id  # no message of the conversation

    async def _deliver_when_free(self, thread: Thread, content: str, message_id: str, sent: float) -> None:
        await self.free(thread)
        self._deliver(thread, content, message_id, sent)

    # -- files ----------------------------------------------------------------------------------------------

    async def take_in(self, thread: Thread, messages: Sequence[dict[str, Any]]) -> Taken:
        """What a user's messages carry, read and stored for the gateway and for those who read the thread later.

        Of somebody whom the gateway will not let in nothing is read, fetched or stored.
        """
        assert self.settings is not None
        shelf = Shelf(self.files, Owner(thread.principal.id, thread.chat_id))
        most = self.settings.max_attachment_bytes
        parts = self.settings.max_attachments if self.lets_in(thread) else 0
        return await take_in(messages, shelf, max_bytes=most, max_parts=parts)

    def shown(self, text: str) -> str:
        """A text of the agent's as a person sees it: without the tags that send files, and secrets. Any thread."""
        return redact_lines(without_tags(text, lambda path: self.files.was_sent(path)))

    async def send_file(
        self,
        chat_id: str,
        what: str,
        *,
        name: str | None = None,
        caption: str | None = None,
        metadata: dict[str, Any] | None = None,
        address: bool = False,
    ) -> SendResult:
        """A file that the agent sends in a chat, or a picture elsewhere that it sends by its address. Any loop."""
        elsewhere = asyncio.get_running_loop() is not self.loop
        sent = self._sent(chat_id, what, name or "", caption or "", metadata or {}, elsewhere, address=address)
        return await media_out.on_loop(self.loop, sent)

    async def _sent(
        self,
        chat_id: str,
        what: str,
        name: str,
        caption: str,
        about: Mapping[str, Any],
        elsewhere: bool,
        *,
        address: bool = False,
    ) -> SendResult:
        thread = await self.thread_of_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error=f"There is no AG-UI thread {chat_id}: name <principal>.<thread id>.")
        turn = thread.current
        cycle = self._cycles.get(turn) if turn is not None else None
        if cycle is not None and self._from_elsewhere(cycle, about, elsewhere):
            cycle = None
        if address and cycle is not None and cycle.tap.said(what):
            return SendResult(success=True)  # its text shows the picture already
        message_id = cycle.tap.new_id("f") if cycle is not None else f"late-{uuid.uuid4().hex}"
        make = media_out.pointed if address else functools.partial(media_out.stored, name=name)
        owner = Owner(thread.principal.id, thread.chat_id, cycle.turn.id if cycle is not None else "")
        try:
            file = await asyncio.to_thread(make, self.files, owner, what, message_id=message_id, caption=caption)
        except FileError as error:
            logger.info("agui: a file was not sent: %s", error)
            if cycle is not None:
                cycle.tap.notice("attachment_failed", refusal(what, error))
            return SendResult(success=False, error=str(error))
        if cycle is not None:
            cycle.tap.attach(file)
        else:
            self._keep(asyncio.ensure_future(self._deliver_file(thread, file)))
        return SendResult(success=True, message_id=message_id)

    async def _deliver_file(self, thread: Thread, file: Attachment) -> None:
        """A file that belongs to no running turn: a closed turn of its own in the thread, when that is free."""
        await self.archive.deliver(thread, file.message_id, attachments.shown(file))
        await self.free(thread)
        turn = self.new_turn(thread, "", unsolicited=True)
        turn.append(file)
        self._keep(asyncio.ensure_future(self.archive.deliver(thread, file.message_id, attachments.shown(file))))
        self._finish(self._cycles[turn], "success", record=False)

    def _from_elsewhere(self, cycle: Cycle, about: Mapping[str, Any], elsewhere: bool) -> bool:
        """Whether something is sent beside the turn that runs: by a cron job, another session, another process."""
        here = session_key_here()
        return "job_id" in about or bool(here and here != cycle.session_key) or (elsewhere and not here)

    async def _take_arrivals(self) -> None:
        """Messages that other processes have left for threads (a cron job run by hand: gateway_plugins/agui)."""
        store = self.archive.store
        while True:
            for message_id, chat_id, content, sent in await self.archive.run(store.arrivals):
                thread = await self.thread_of_chat(chat_id)
                if thread is None:
                    logger.warning("agui: a message for %s was dropped: there is no such thread", chat_id)
                elif thread.current is not None and not self.holds_only(thread.current):
                    self._deliver_behind(thread.current, content, message_id, sent)
                else:
                    self._deliver(thread, content, message_id, sent)
                self.archive.later(functools.partial(store.arrived, message_id))
            await asyncio.sleep(_ARRIVALS_SECONDS)

    def _request_limit(self, turn: Turn) -> float:
        """Seconds that a request may be open: few where another chat waits for the same session. Any thread."""
        assert self.settings is not None
        return self.settings.shared_request_seconds if turn.thread.shared else 0.0

    def gateway_begins(self, thread: Thread) -> bool:
        """Whether the gateway has begun to process something in the thread that has no turn yet."""
        return thread.current is None and self.bridge.processing(self.bridge.session_key(self.source_of(thread)))

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

    @classmethod
    def supports_exec_approval_buttons(cls) -> bool:
        """Hermes 0.22 asks this before it calls ``send_exec_approval``; without a yes the question comes as a text."""
        return True

    async def send_exec_approval(
        self,
        chat_id: str,
        command: str,
        session_key: str,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        allow_permanent: bool = True,
        smart_denied: bool = False,
        allow_session: bool = True,
    ) -> SendResult:
        """A dangerous command waits. The hook has asked already (see hermes/ask.py); else it is asked here, unbound."""
        thread = self.threads.by_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error="no such AG-UI thread in this process")
        if not self.bridge.asked_by_hook(session_key):
            turn = await self.turn_beside(session_key)
            choices = approval_choices(allow_permanent, smart_denied, session=allow_session)
            detail = {"command": redact(command), "description": description}
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
        """A question of an agent that is not tapped (a tapped one asks through its callback): its answer, too, is only
        sent."""
        thread = self.threads.by_chat(chat_id)
        if thread is None:
            return SendResult(success=False, error="no such AG-UI thread in this process")
        turn = await self.turn_beside(session_key)
        cycle = self._cycles[turn]
        cycle.blind |= not cycle.tap.agent_turns
        meant = redacted_choices(choices)
        request = Request(clarify_id, "clarify", redact(question), choices=tuple(meant), free_text=True, detail={})

        def release(pending: Pending) -> None:
            text = pending.answer.text if pending.answer is not None else ""
            resolve_clarify(clarify_id, meant.get(text, text))

        self.requests.park(self.requests.open(turn, request, on_close=release))
        return SendResult(success=True)

    async def retire_clarify_card(self, clarify_id: str, notice: str) -> None:
        """Hermes 0.22: the question that ``send_clarify`` showed is over, and nobody has answered it here."""
        pending = self.requests.find([turn for one in self.threads for turn in one.turns.values()], clarify_id)
        if pending is not None:
            self.requests.close(pending, "expired", Answer(error=notice))

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
            new_id("confirm"), "confirm", title, choices=("once", "always", "cancel"), detail={"text": redact(message)}
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
        self._tell_subagents(pending.turn.thread)
        cycle = self._cycles.get(pending.turn)
        if cycle is not None and pending.turn.on_unread is not None and not pending.turn.readers:
            self._unread(pending.turn)
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
