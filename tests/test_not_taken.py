"""A message that the gateway throws away before a turn begins: an error says so, and it counts as said by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.platforms.base import MessageEvent

from agui_adapter.adapter import AguiAdapter
from agui_adapter.principal import SCOPES, Principal
from tests import scripted
from tests.scripted import serving

USER = Principal("local", scopes=SCOPES)
FIRST = {"id": "u0", "role": "user", "content": "Before"}
Does = Callable[["Deaf", MessageEvent], Awaitable[None]]


class Deaf(AguiAdapter):
    """The real adapter before a gateway that does with a message what the test says, in `does`."""

    does: Does

    @property
    def ready(self) -> bool:
        return True

    async def handle_message(self, event: MessageEvent) -> None:
        await type(self).does(self, event)


async def drops(adapter: Deaf, event: MessageEvent) -> None:
    """As with 32 that wait (gateway/run.py, _queue_or_replace_pending_event)."""


async def breaks(adapter: Deaf, event: MessageEvent) -> None:
    raise RuntimeError("no")


async def queues(adapter: Deaf, event: MessageEvent) -> None:
    """It waits behind what the session is busy with, and is answered later."""
    turn = event.raw_message
    adapter._pending_messages[adapter.key_of(turn.thread)] = event
    asyncio.get_running_loop().call_later(0.05, lambda: adapter._finish(adapter._cycles[turn], "success"))


def body(run: str) -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "content": "Hello"}
    return {"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": [message]}


@pytest.mark.parametrize("does", [drops, breaks])
async def test_it_may_be_sent_again(does: Does, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "ScriptedAdapter", Deaf)
    extra = {"interrupt_wait_seconds": 0.1}  # for what else keeps the thread busy
    async with (
        serving(extra, tmp_path, monkeypatch) as (adapter, url),
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):

        def meets(what: Does) -> None:
            thread = next((one for one in adapter.threads if one.thread_id == "t"), None)
            if thread is not None:  # it is busy with what no turn of ours began
                adapter._active_sessions[adapter.key_of(thread)] = asyncio.Event()
            monkeypatch.setattr(Deaf, "does", what, raising=False)

        meets(queues)
        assert "RUN_FINISHED" in (await client.post("/agui", json=body("r0") | {"messages": [FIRST]})).text
        before = (await client.get("/agui/threads/t")).json()["messages"]
        meets(does)
        adapter._pending_messages.clear()
        told = (await client.post("/agui", json=body("r1"))).text
        assert told.count("RUN_ERROR") == 1 and "not_accepted" in told and "RUN_FINISHED" not in told
        assert (await client.get("/agui/threads/t")).json()["messages"] == before
        chat = {"messages": [{"role": "user", "content": "Hello"}]}
        answer = await client.post("/v1/chat/completions", json=chat, headers={"X-Hermes-Session-Id": "t"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "not_accepted")
        meets(queues)
        again = (await client.post("/agui", json=body("r1"))).text
        assert "RUN_FINISHED" in again and "RUN_ERROR" not in again, "the same run, and it runs"
        thread = next(one for one in adapter.threads if one.thread_id == "t")
        assert list(thread.accepted) == ["u0", "u1"]


async def test_a_turn_that_was_given_up_is_not_handed_to_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway would begin one of its own for it, which nobody asked for any more."""
    monkeypatch.setattr(scripted, "ScriptedAdapter", Deaf)
    taken: list[MessageEvent] = []

    async def takes(adapter: Deaf, event: MessageEvent) -> None:
        taken.append(event)

    monkeypatch.setattr(Deaf, "does", takes, raising=False)
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        turn = adapter.new_turn(adapter.threads.get(USER, "t"), "Hello")
        adapter.interrupt(turn)
        assert turn.done.is_set()
        await adapter.submit(turn)
        assert not taken
        other = adapter.new_turn(turn.thread, "Hello")
        submitting = asyncio.create_task(adapter.submit(other))
        await asyncio.sleep(0)  # it is on its way: a newer message interrupts what will begin, and ends nothing yet
        adapter.interrupt(other)
        assert not other.done.is_set()
        await submitting
        assert [event.raw_message for event in taken] == [other]
        adapter._finish(adapter._cycles[other], "cancelled")
