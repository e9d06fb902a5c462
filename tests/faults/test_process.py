"""The process and its surroundings: ports, signals, clocks, and an adapter that is started again and again."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from agui_adapter.demo.gateway import Gateway, free_port
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.e2e.asking import COLOR, asks_client, pending, state
from tests.e2e.attach import Watcher
from tests.e2e.helpers import Chat, GatedModel, Lenient, script, unique, wait_until, write_plugin
from tests.faults.conftest import FAULTY_OPTIONS
from tests.faults.invariants import KEY, ended_once, unharmed
from tests.scripted import ScriptedAdapter, new_adapter


def test_a_taken_port_is_told_once_and_stops_no_other_platform(model: GatedModel) -> None:
    other, taken = free_port(), socket.create_server(("127.0.0.1", 0))
    extra = {"host": "127.0.0.1", "port": other, "key": KEY}
    gateway = Lenient(
        model,
        agui={"port": taken.getsockname()[1]},
        config={"platforms": {"api_server": {"enabled": True, "extra": extra}}},
        ready_url=f"http://127.0.0.1:{other}/health",
        verbose=True,
    )
    with taken, gateway:
        message = f"cannot listen on 127.0.0.1:{gateway.port}"
        wait_until(lambda: message in gateway.log_text(), "the log says so")
        assert "agui.port" in gateway.log_text()
        again = gateway.log_text().count(message)
        time.sleep(5)  # longer than any first retry would wait
        assert gateway.log_text().count(message) == again
        answer = httpx.post(
            f"http://127.0.0.1:{other}/v1/chat/completions",
            headers={"Authorization": f"Bearer {KEY}"},
            json={"model": "hermes-agent", "messages": [{"role": "user", "content": script({"text": "Alive."})}]},
            trust_env=False,
            timeout=60,
        )
        assert answer.status_code == 200 and "Alive." in answer.text


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_ends_everything_in_order(
    make_gateway: Callable[..., Gateway], model: GatedModel, number: signal.Signals
) -> None:
    """A turn that streams, one that waits, and readers of both and of an idle thread."""
    gateway = make_gateway(agui={"heartbeat_seconds": 0.4})
    idle, waiting, running = Chat(gateway), Chat(gateway), Chat(gateway)
    idle.say(script({"text": "Hello."})).succeeded()
    call_id, gate = unique("k"), unique("g")
    assert pending(waiting.say(asks_client(call_id), tools=[COLOR])) == [call_id]
    run = running.start(script({"text": f"The first part {{gate:{gate}}} never sent"}))
    run.wait_text(gate)
    watchers = [Watcher(chat) for chat in (idle, waiting, running)]
    process = psutil.Process(gateway.pid)
    children = process.children(recursive=True)
    began = time.monotonic()
    os.kill(process.pid, number)
    ended_once(run)
    for watcher in watchers:
        assert watcher.end().error is None
    assert watchers[2].types[-1] in ("RUN_FINISHED", "RUN_ERROR")
    wait_until(lambda: not gateway.running, "the process has ended", 20)
    assert time.monotonic() - began < 20
    model.open_gate(gate)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", gateway.port))
    gateway.stop()
    gateway.start()
    for chat in (idle, waiting, running):
        wait_until(lambda chat=chat: state(chat)["status"] == "idle", "the thread is free")
    assert idle.say(script({"text": "Back."})).succeeded().text() == "Back."


async def test_connecting_ten_times_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the gateway reconnects a platform: the same port each time, and no thread, task or socket is left."""
    port = free_port()
    adapter = new_adapter(ScriptedAdapter, {"port": port, "warmup": False}, tmp_path, monkeypatch)
    adapter.script = [MessageStart("m"), MessageChunk("Hi"), TurnFinished()]
    process = psutil.Process()

    async def once(number: int) -> tuple[int, int, int]:
        assert await adapter.connect(is_reconnect=number > 0), adapter.fatal_error_message
        body = {
            "threadId": "t",
            "runId": f"r{number}",
            "messages": [{"id": f"u{number}", "role": "user", "content": "Hello"}],
        }
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            answer = await http.post(f"http://127.0.0.1:{port}/agui", json=body)
            assert answer.status_code == 200 and answer.text.count("RUN_FINISHED") == 1
        await adapter.disconnect()
        await asyncio.sleep(0.05)
        gc.collect()
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("agui-")], names
        return len(asyncio.all_tasks()), process.num_fds(), threading.active_count()

    await once(0)
    first = await once(1)
    last = first
    for number in range(2, 11):
        last = await once(number)
    assert last[0] <= first[0] and last[1] <= first[1] + 2 and last[2] <= first[2] + 2, (first, last)


JUMPER = """
import time

real, ahead = time.time, [0.0]
time.time = lambda: real() + ahead[0]


async def jump(raw):
    ahead[0] = float(raw)
    return f"It is {time.time()}."


def register(ctx):
    ctx.register_command("clock-jump", jump)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3 * 86_400, -3 * 86_400], ids=["ahead", "back"])
def test_the_clock_jumps(make_gateway: Callable[..., Gateway], seconds: int) -> None:
    """By days, while a turn waits: nothing expires by it, and what is shown stays in order."""
    options = FAULTY_OPTIONS | {"config": {"plugins": {"enabled": ["agui", "jumper"]}}}
    gateway = make_gateway(start=False, agui={"heartbeat_seconds": 0.4, "client_tool_timeout_seconds": 600}, **options)
    write_plugin(gateway.home, "jumper", JUMPER)
    gateway.start()
    chat, clock, call_id = Chat(gateway), Chat(gateway), unique("k")

    def jump(by: int) -> None:
        now = float(clock.say(f"/clock-jump {by}").succeeded().text().split()[-1].rstrip("."))
        assert abs(now - time.time() - by) < 3600

    chat.say(script({"text": "Before."})).succeeded()
    with unharmed(gateway):
        assert pending(chat.say(asks_client(call_id), tools=[COLOR])) == [call_id]
        jump(seconds)
        time.sleep(2)  # what would expire by the jump has its chance
        chat.messages.append({"id": unique("tm"), "role": "tool", "toolCallId": call_id, "content": "red"})
        run = chat.keep(ended_once(chat.send(tools=[COLOR])))
        assert run.succeeded().text() == "The end."
        assert chat.say(script({"text": "Afterwards."})).succeeded().text() == "Afterwards."
        shown = [one["content"] for one in state(chat)["messages"] if one["role"] == "assistant" and one.get("content")]
        assert shown[0] == "Before." and shown[-1] == "Afterwards."
        jump(0)
        assert chat.say(script({"text": "Right again."})).succeeded().text() == "Right again."
        assert state(chat)["messages"][-1]["content"] == "Right again."
