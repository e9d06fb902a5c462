"""What a caller does with a thread of its own beside talking: one place for every door's routes.

The routes read requests and write responses; what may be done when, and what it is refused with, is here. Hermes's part
is in ``hermes/actions.py``. On the gateway's loop; every refusal is an AguiError.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .answers import tool_answer
from .branches import branch
from .errors import AguiError
from .hermes.actions import Actions, is_command
from .principal import Principal
from .requests import Pending, read_answer
from .rights import check_command
from .run import end_turn, wait_ready
from .session import Thread, Turn

if TYPE_CHECKING:
    from .adapter import AguiAdapter
    from .server import Server


class ThreadActions:
    """Actions on threads of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def _adapter(self) -> AguiAdapter:
        return self._server.adapter

    @property
    def _hermes(self) -> Actions:
        return Actions(self._adapter.gateway_runner, self._adapter.archive.sessions)

    def _key(self, thread: Thread) -> str:
        return self._adapter.bridge.session_key(self._adapter.source_of(thread))

    # -- which thread ---------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait out the gateway's start-up window; AguiError 503 where it takes too long."""
        await wait_ready(self._adapter, self._server.settings.start_wait_seconds)

    async def find(self, principal: Principal, thread_id: str) -> Thread | None:
        """The principal's thread of that id if it was ever used: another's is as unknown as a made-up one."""
        await self.ready()
        return await self._adapter.known_thread(principal, thread_id)

    async def known(self, principal: Principal, thread_id: str) -> Thread:
        """The same. AguiError 404 where it has none."""
        thread = await self.find(principal, thread_id)
        if thread is None:
            raise AguiError(404, "no_such_thread", "There is no such thread.")
        return thread

    def check_may(self, principal: Principal, thread: Thread, command: str) -> None:
        """AguiError 403 where the principal may not use the slash command that does the same."""
        self._check_scopes(principal, command)
        if not self._hermes.may(self._adapter.source_of(thread), command):
            raise AguiError(403, "not_allowed", f"The operator does not let you use /{command}.")

    def _check_scopes(self, principal: Principal, name: str) -> None:
        command = self._adapter.bridge.command(f"/{name}")
        if command is not None:
            check_command(command, principal, self._server.settings.user_commands)

    def check_idle(self, thread: Thread) -> None:
        """AguiError 409 while a turn runs or waits: it would write into what is being changed."""
        turn = thread.current
        if turn is not None and not self._adapter.holds_only(turn):
            raise AguiError(409, "thread_busy", "A turn of this thread is running or waiting; stop it or let it end.")

    def status(self, thread: Thread | None) -> str:
        """``idle``, ``running`` or ``parked``."""
        turn = thread.current if thread is not None else None
        if turn is None:
            return "idle"
        waits = self._adapter.requests.parked(turn) or self._adapter.holds_only(turn)
        return "parked" if waits else "running"

    # -- the conversation -----------------------------------------------------------------------------------

    async def branch(self, thread: Thread, new_id: str, title: str) -> str:
        """Copy the conversation into a thread that was never used; its title. This one stays as it is."""
        adapter = self._adapter
        # Before any lock is taken: two threads branched into each other would wait for each other for ever.
        if await adapter.known_thread(thread.principal, new_id) is not None:
            raise _taken()
        self.check_idle(thread)  # at once: a run that is queued holds the lock
        async with thread.lock:
            self.check_idle(thread)
            new = adapter.threads.get(thread.principal, new_id)
            async with new.lock:
                if new.current is not None or await adapter.archive.known(new):
                    raise _taken()
                source, actions = adapter.source_of(new), self._hermes
                try:
                    made = await adapter.archive.run(
                        lambda: branch(adapter.archive, actions, thread, new, source, title.strip())
                    )
                except LookupError:
                    adapter.threads.drop(new)
                    raise AguiError(409, "nothing_to_branch", "This thread has no conversation to copy yet.") from None
                new.loaded = False  # what is there now is read when the thread is used
        return made

    async def compress(self, thread: Thread, focus: str) -> tuple[bool, str]:
        """Sum up the conversation for the model, as ``/compress`` does; people still see all of it.

        Whether it changed anything, and what Hermes says of it.
        """
        adapter, actions = self._adapter, self._hermes
        key, source = self._key(thread), adapter.source_of(thread)
        sessions = adapter.archive.sessions
        self.check_idle(thread)  # at once: a run that is queued holds the lock
        async with thread.lock:
            self.check_idle(thread)
            before = await adapter.archive.run(lambda: sessions.last_row(sessions.session_id(key)))
            if not before:
                raise AguiError(409, "nothing_to_compress", "This thread has no conversation to sum up yet.")
            said = await actions.compress(source, focus)
            after = await adapter.archive.run(lambda: sessions.last_row(sessions.session_id(key)))
            thread.last_row = max(thread.last_row, after)  # the summary and its copies are no rows of the next turn
        return after != before, said

    async def usage(self, thread: Thread) -> dict[str, Any]:
        """What its session has used (``Actions.usage``)."""
        archive, key, actions = self._adapter.archive, self._key(thread), self._hermes
        agent = self._adapter.bridge.cached_agent(key)
        return await archive.run(lambda: actions.usage(archive.sessions.session_id(key), agent))

    async def delete(self, thread: Thread) -> None:
        """Delete a thread with its Hermes session. A turn that runs is stopped first; runs that wait begin no more."""
        reason = "The user deleted the thread."
        thread.deleting = True
        try:
            await self.stop(thread, reason)  # before the lock: a run that is queued behind this turn holds it
            async with thread.lock:
                if thread.gone:  # by another request: what has its id now is a new thread
                    return
                await self.stop(thread, reason)
                await self._adapter.archive.delete(thread)
                self._adapter.threads.drop(thread)
        finally:
            thread.deleting = False
        for turn in thread.turns.values():  # the sweep, which forgets others, no longer meets them
            self._adapter.requests.forget(turn)

    # -- its turn -------------------------------------------------------------------------------------------

    async def stop(self, thread: Thread, reason: str = "The user stopped the turn.") -> bool:
        """Stop its turn at once, running or parked; False where there was none."""
        turn = thread.current
        if turn is None:
            return False
        await end_turn(self._adapter, turn, self._server.settings.interrupt_wait_seconds, reason)
        return True

    def steer(self, thread: Thread, text: str, message_id: str = "") -> Turn:
        """Give its running turn a text that the model sees with its next tool result; the turn that took it.

        Text that comes too late for that is answered in a further turn, as the user's message of that id.
        """
        if is_command(text):  # read by the model it is only text, and as a further turn Hermes throws it away
            raise AguiError(422, "command_not_steerable", "This is a slash command: send it as a message of its own.")
        turn = thread.current
        if turn is None or self._adapter.requests.parked(turn) or not self._adapter.steer(turn, text, message_id):
            raise AguiError(409, "run_not_accepting_steer", "No turn is running that could take it; send a message.")
        return turn

    def answer(
        self, principal: Principal, turns: list[Turn], request_id: str, payload: dict[str, Any]
    ) -> tuple[Pending, bool]:
        """Answer a request of one of these turns; False if the same answer was given before.

        AguiError 404 unknown, 409 no longer open, 422 a payload that is no answer.
        """
        requests = self._adapter.requests
        pending = requests.find(turns, request_id)
        if pending is None:
            raise AguiError(404, "no_such_request", "There is no such request here.")
        if pending.request.kind == "client_tool":
            content, error = payload.get("content", ""), payload.get("error", "")
            if not isinstance(error, str) or not isinstance(content, (str, list)) or not (content or error):
                raise AguiError(422, "invalid_answer", "Answer with content (a text or parts) or error (a text).")
            answer = tool_answer({"content": content, "error": error})
        else:
            answer = read_answer(pending.request, payload, cancelled=payload.get("status") == "cancelled")
        counted = requests.answer(pending, answer, principal)
        requests.still_parked(pending.turn)
        return pending, counted

    # -- subagents ------------------------------------------------------------------------------------------

    async def _sessions_of(self, thread: Thread) -> list[str]:
        archive, key = self._adapter.archive, self._key(thread)
        return await archive.run(lambda: archive.sessions.lineage(archive.sessions.session_id(key)))

    async def subagents(self, thread: Thread) -> list[dict[str, Any]]:
        """Its running children."""
        found = self._hermes.subagents(await self._sessions_of(thread))
        return [self._shown(one, "goal", "lastTool") for one in found]

    def delegation(self) -> dict[str, Any]:
        """Hermes's rules for delegation as they stand (``Actions.delegation``)."""
        return self._hermes.delegation()

    async def stop_subagent(self, thread: Thread, subagent_id: str) -> None:
        """Ask a running child to end at its next step."""
        if not self._hermes.stop_subagent(await self._sessions_of(thread), subagent_id):
            raise _no_child()

    async def steer_subagent(self, thread: Thread, subagent_id: str, text: str) -> None:
        """Give a child a text that its model sees with its next tool result."""
        if not self._hermes.steer_subagent(await self._sessions_of(thread), subagent_id, text):
            raise _no_child()

    # -- processes ------------------------------------------------------------------------------------------

    async def processes(self, thread: Thread) -> list[dict[str, Any]]:
        """Its background processes, running and lately ended."""
        key, actions = self._key(thread), self._hermes
        found = await asyncio.to_thread(actions.processes, key)
        return [self._shown(one, "command", "cwd", "output") for one in found]

    async def stop_process(self, thread: Thread, process_id: str) -> dict[str, Any]:
        """End a background process: ``stopped`` False if it had ended already, ``output`` its last words."""
        key, actions = self._key(thread), self._hermes
        result = await asyncio.to_thread(actions.stop_process, key, process_id)
        if result is None:
            raise AguiError(404, "no_such_process", "There is no such process on this thread.")
        if result.get("status") == "error":
            raise AguiError(409, "not_stopped", f"Hermes could not end it: {result.get('error')}")
        told = {"stopped": result.get("status") == "killed", "output": str(result.get("output") or "")}
        return self._shown(told, "output")

    # -- commands -------------------------------------------------------------------------------------------

    async def commands(self, principal: Principal) -> list[dict[str, Any]]:
        """The slash commands that this caller may use."""
        await self.ready()
        source, actions = self._adapter.source_of(self._adapter.threads.of(principal, "")), self._hermes
        told = await asyncio.to_thread(actions.commands, source)
        return [one for one in told if self._may(principal, one["name"])]

    def _may(self, principal: Principal, name: str) -> bool:
        try:
            self._check_scopes(principal, name)
        except AguiError:
            return False
        return True

    def _shown(self, told: dict[str, Any], *private: str) -> dict[str, Any]:
        """Without what tools read and do, where the operator hides that from clients (``agui.tool_output``)."""
        if self._server.settings.tool_output == "full":
            return told
        return {name: value for name, value in told.items() if name not in private}


def _taken() -> AguiError:
    return AguiError(409, "thread_exists", "You have a thread of this threadId already; choose another.")


def _no_child() -> AguiError:
    return AguiError(404, "no_such_subagent", "No such subagent of this thread is running.")
