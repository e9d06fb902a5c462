"""The seam: the gateway that runs an adapter, as far as the adapter may ask it. Written for 0.19.0."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gateway.session import SessionSource, build_session_key

from ..crew import Crew
from ..long_tools import LongTools
from ..requests import Requests
from ..session import Turn
from ..tap import Tap, without_thinking
from .commands import Command, read_command
from .facts import Facts
from .history import Sessions, beside
from .profiles import Place
from .warm import warm_up

if TYPE_CHECKING:
    from .observe import Watcher

from .hooks import _Attachment, _bridges
from .objects import text_of
from .versions import keeps_context, session_id_of

logger = logging.getLogger("hermes_agui")


class Bridge:
    """What an adapter may ask of the gateway that runs it. On the gateway's loop unless said otherwise."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.taps: dict[str, Tap] = {}  # session key → the tap of its running turn; read from worker threads
        self.attachments: dict[str, list[_Attachment]] = {}
        self.client_tool_seconds = 600.0
        self.approval_seconds = 0.0
        self._requests: Requests | None = None
        self._asked: dict[str, int] = {}
        self._asked_lock = threading.Lock()
        self.watcher: Watcher | None = None  # of other sessions (agui.observe)
        self.hermes_state = "off"
        self.tool_output = "full"
        self.crew: Crew | None = None  # the subagents of this adapter's threads
        self.long_tools: LongTools | None = None
        self.place = Place(None)
        self.keeps = True  # Hermes could write the newest turn to its database
        self.turns_lost = 0  # … and those that it could not write

    @property
    def runner(self) -> Any:
        """The ``GatewayRunner``, or None outside a gateway."""
        return getattr(self._adapter, "gateway_runner", None)

    @property
    def requests(self) -> Requests:
        """The adapter's requests; there from ``open`` on."""
        assert self._requests is not None
        return self._requests

    def open(self, requests: Requests, *, client_tool_seconds: float, approval_seconds: float) -> None:
        """Let hooks find this bridge. Times in seconds, as the settings of these names."""
        self._requests = requests
        self.client_tool_seconds, self.approval_seconds = client_tool_seconds, approval_seconds
        _bridges.append(self)

    def close(self) -> None:
        """The opposite of ``open``; every tap is stopped."""
        if self in _bridges:
            _bridges.remove(self)
        for key in list(self.taps):
            self.release(key)
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None

    # -- sessions -------------------------------------------------------------------------------------------

    def session_key(self, source: SessionSource) -> str:
        """The key that the gateway gives this source's session."""
        runner = self.runner
        if runner is not None:
            return str(self.place.run(runner._session_key_for_source, source))
        return str(build_session_key(source))

    def owns(self, session_key: str) -> bool:
        """Whether the session is one of this adapter's. Any thread."""
        return session_key in self.taps or self._adapter.thread_of(session_key) is not None

    def processing(self, session_key: str) -> bool:
        """Whether the gateway processes something of this session, begun by whomever. The loop."""
        return session_key in self._adapter._active_sessions

    def note_asked(self, session_key: str) -> None:
        """A hook has asked; the gateway's prompt for the same question follows. Worker thread."""
        with self._asked_lock:
            self._asked[session_key] = self._asked.get(session_key, 0) + 1

    def asked_by_hook(self, session_key: str) -> bool:
        """Whether this prompt of the gateway's repeats a question that a hook asked; counts it off."""
        with self._asked_lock:
            count = self._asked.pop(session_key, 0)
            if count > 1:
                self._asked[session_key] = count - 1
            return count > 0

    def listener(self, session_key: str) -> Callable[[dict[str, Any]], None]:
        """What hears a dangerous command of ``/background``, as the gateway's own listener does for a turn's."""

        def heard(data: dict[str, Any]) -> None:
            asking = self._adapter.send_exec_approval(
                self._adapter.thread_of(session_key).chat_id,
                str(data.get("command") or ""),
                session_key,
                str(data.get("description") or ""),
                allow_permanent=bool(data.get("allow_permanent", True)),
                smart_denied=bool(data.get("smart_denied")),
            )
            asyncio.run_coroutine_threadsafe(asking, self._adapter.loop).result(15)

        return heard

    def keep_state(self, turn: Turn) -> None:
        """The turn's thread has another document. Any thread."""
        self._adapter.archive.keep_state(turn.thread)

    def facts_of(self, turn: Turn, agent: Any) -> Facts | None:
        """What tells of this agent turn in the shared state; None when the operator withholds it."""
        if self.hermes_state == "off":
            return None
        always, shows = self.hermes_state == "always", self.tool_output == "full"
        return Facts(turn, agent, always=always, shows=shows, waits=self.requests.parked)

    def turn_beside(self, session_key: str) -> Turn:
        """The turn that a question beside any turn of the session belongs to (``/background``). Worker thread."""
        loop = self._adapter.loop
        turn: Turn = asyncio.run_coroutine_threadsafe(self._adapter.turn_beside(session_key), loop).result(10)
        return turn

    def watch(self, session_key: str, tap: Tap) -> None:
        """Turns of this session go to the tap from now on."""
        self.taps[session_key] = tap

    def release(self, session_key: str, tap: Tap | None = None) -> None:
        """The cycle is over: stop its tap and clear our callbacks from the agent."""
        current = self.taps.get(session_key)
        if current is None or (tap is not None and current is not tap):
            return
        del self.taps[session_key]
        current.stop()
        if not keeps_context():  # the next turn's model has to be told again
            current.turn.thread.context = ""
            current.turn.thread.document.model_forgot()
        for attachment in self.attachments.pop(session_key, []):
            attachment.detach()

    def cached_agent(self, session_key: str) -> Any:
        """The session's agent, or None. Any thread."""
        entry = (getattr(self.runner, "_agent_cache", None) or {}).get(session_key)
        return entry[0] if isinstance(entry, tuple) and entry else entry

    def taken_elsewhere(self, session_key: str) -> bool:
        """Whether another key's turn holds the session that this key stands on. On the loop."""
        registry = getattr(self.runner, "_turn_leases", None)
        session_id = session_id_of(self.runner.session_store, session_key) if registry is not None else None
        lease = registry._leases.get(session_id) if session_id and registry is not None else None
        holder = getattr(lease, "holder", None)
        return holder is not None and holder.owner_key != session_key

    def last_row(self, session_id: str) -> int:
        """The newest row of a session, 0 without one. Blocks for a look-up."""
        return Sessions(self.runner).last_row(session_id)

    def was_kept(self, tap: Tap, kept: bool) -> None:
        """Whether Hermes has written an agent turn. The client is told where it has not: what it sees as a success is
        gone from the agent's memory. Worker thread."""
        self.keeps = kept
        if not kept:
            self.turns_lost += 1
            logger.error("agui: Hermes did not store a turn of %s; its own log says why", tap.turn.thread.chat_id)
            tap.notice(
                "not_stored",
                "Hermes could not store this in its database: the agent will not remember it. Tell the operator, and "
                "say it again when it can.",
            )

    def kept_texts(self, session_key: str) -> list[str]:
        """What the assistant has said in the session's newest turn, as the history keeps it."""
        found: list[str] = []
        for message in reversed(getattr(self.cached_agent(session_key), "_session_messages", None) or []):
            if isinstance(message, dict) and message.get("role") == "assistant":
                found.append(without_thinking(text_of(message.get("content"))))
            elif isinstance(message, dict) and message.get("role") == "user":
                own = text_of(message.get("content")).startswith("[System:")  # Hermes's own request to go on
                if not own and not beside(message):
                    break
        return found

    def running_agent(self, session_key: str) -> Any:
        """The agent that runs this session's turn now; None while there is none yet."""
        agent = (getattr(self.runner, "_running_agents", None) or {}).get(session_key)
        return agent if hasattr(agent, "interrupt") else None

    def interrupt(self, session_key: str) -> bool:
        """Ask the running turn to end; it ends in order, within about 25 ms in mid-stream. False if none runs yet."""
        agent = self.running_agent(session_key)
        if agent is None:
            return False
        agent.interrupt()
        return True

    def clear_interrupt(self, session_key: str) -> None:
        """The turn that was interrupted is over: an interrupt that came too late for it must not end the next one.

        Hermes clears it when a turn ends in order, and would answer the session's next message with "interrupted
        before processing started".
        """
        agent = self.cached_agent(session_key)
        if getattr(agent, "_interrupt_requested", False):
            agent.clear_interrupt()

    async def give_up(self, session_key: str, source: SessionSource) -> None:
        """The turn's worker does not end: nothing that it still does may reach the history or a later turn.

        As ``/stop`` does with a hung agent (slash_commands.py), and its agent writes no more rows: Hermes keeps what a
        worker brings late, behind whatever the session has by then.
        """
        agents = [attachment.agent for attachment in self.attachments.get(session_key, [])]
        for agent in (*agents, self.running_agent(session_key)):
            if hasattr(agent, "_persist_disabled"):
                agent._persist_disabled = True
        clear = getattr(self.runner, "_interrupt_and_clear_session", None)
        if clear is not None:
            reason = "Stop requested"  # one that Hermes knows for a control message, not for a user's text
            await clear(session_key, source, interrupt_reason=reason, invalidation_reason="agui_abandoned")

    def queued(self, session_key: str, event: Any) -> bool:
        """Whether a message that came while the session was busy waits for its turn there (run.py, _enqueue_fifo)."""
        waiting = [self._adapter._pending_messages.get(session_key)]
        waiting += (getattr(self.runner, "_queued_events", None) or {}).get(session_key, [])
        return any(one is event for one in waiting)

    def steer(self, session_key: str, text: str) -> bool:
        """Give the running turn a text that the model sees with its next tool result."""
        agent = self.running_agent(session_key)
        return bool(agent is not None and agent.steer(text))

    def unsteer(self, session_key: str) -> str:
        """Take back a steered text that the model has not seen; it would come up in a later turn of the session."""
        agent = self.running_agent(session_key) or self.cached_agent(session_key)
        drain = getattr(agent, "_drain_pending_steer", None)
        return str(drain() or "") if drain is not None else ""

    def command(self, text: str) -> Command | None:
        """The command that the gateway takes this text for, None if it is for the model."""
        config = getattr(self.runner, "config", None)
        quick = config.get("quick_commands") if isinstance(config, dict) else getattr(config, "quick_commands", None)
        return read_command(text, quick)

    async def keep_apart(self, text: str, source: SessionSource) -> None:
        """Before a command runs: the thread gets its own session before ``/background`` makes one for its task.

        Hermes 0.22 keeps the chat with the task's session, without a key, and a chat that has no session yet goes on
        in the newest such (``find_latest_gateway_session_for_peer``): the thread's next message would wait for the
        task's end, and be written into its history.
        """
        command = self.command(text)
        if command is not None and command.starts_beside():
            await asyncio.to_thread(self.runner.session_store.get_or_create_session, source)

    def asks_update(self, session_key: str) -> bool:
        """Whether ``/update`` waits for an answer in this session: the gateway takes any text for it."""
        return bool((getattr(self.runner, "_update_prompt_pending", None) or {}).get(session_key))

    def pairing(self, source: SessionSource) -> set[str]:
        """User ids of this platform that have a pairing code and were not let in yet."""
        of_profile = getattr(self.runner, "_pairing_store_for", None)  # before 0.18 there is one for all
        store = of_profile(source) if of_profile is not None else getattr(self.runner, "pairing_store", None)
        pending = store.list_pending(source.platform.value) if store is not None else ()
        return {str(one["user_id"]) for one in pending}

    def authorized(self, source: SessionSource) -> bool:
        """The gateway's own rules: allowlists, pairing, allow-all."""
        runner = self.runner
        return bool(runner is not None and self.place.run(runner._is_user_authorized, source))

    # -- start ----------------------------------------------------------------------------------------------

    def starting(self) -> bool:
        """True in the gateway's start-up window, in which messages are queued and answered by nothing."""
        runner = self.runner
        return bool(runner is None or getattr(runner, "_startup_restore_in_progress", False))

    def stopping(self) -> bool:
        """True once the gateway refuses new work."""
        runner = self.runner
        shutdown = getattr(runner, "_shutdown_event", None)
        return bool(getattr(runner, "_draining", False) or (shutdown is not None and shutdown.is_set()))

    def enlarge_executor(self, workers: int) -> None:
        """Give the gateway's agent threads a pool of this size: 0.19 has 10, and a waiting turn holds one.

        Done before the first turn, when the pool has no work yet. Later Hermes has no bound here.
        """
        runner = self.runner
        get, lock = getattr(runner, "_get_executor", None), getattr(runner, "_executor_lock", None)
        if get is None or lock is None:
            return
        pool = get()
        if not isinstance(pool, ThreadPoolExecutor) or pool._max_workers >= workers:
            return
        with lock:
            runner._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="hermes-gateway")
        pool.shutdown(wait=False)  # work that it has already goes on

    def untappable(self) -> str:
        """Why turns of this gateway cannot be streamed live, in a sentence; empty when they can."""
        runner = self.runner
        try:
            if runner is not None and runner._get_proxy_url():
                return "gateway.proxy_url is set: another Hermes answers, and only its final text can be shown."
        except Exception:
            logger.debug("proxy setting unreadable", exc_info=True)
        try:
            from hermes_cli.config import load_config

            model = load_config().get("model")
            runtime = model.get("openai_runtime") if isinstance(model, dict) else None
            if runtime == "codex_app_server":
                return "The codex_app_server runtime runs its own tools: only final texts can be shown."
        except Exception:
            logger.debug("runtime setting unreadable", exc_info=True)
        return ""

    def warm(self, user_id: str) -> threading.Thread:
        """Pay now, on a thread of its own, what the first turn of a process costs (``warm.py``)."""
        thread = threading.Thread(target=self.place.run, args=(self._warm, user_id), name="agui-warm", daemon=True)
        thread.start()
        return thread

    def _warm(self, user_id: str) -> None:
        try:
            source = self._adapter.build_source("agui-warm", user_id=user_id)
            if self.runner is not None:
                warm_up(self.runner, source, self.session_key(source))
        except Exception:
            logger.warning("agui: warm-up failed; the first turn will be slower", exc_info=True)
