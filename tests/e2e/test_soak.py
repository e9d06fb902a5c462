"""Two hundred turns with approvals, client tools, stops and disconnects at random leave nothing behind.

`SOAK_SEED` and `SOAK_TURNS` choose another run; the seed of a failed one is in its output.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import COLOR, answer_by_route, give, interrupts, open_requests, resume, state, stop
from tests.e2e.helpers import Chat, GatedModel, Run, call, script, unique, wait_until, write_plugin

SEED = int(os.environ.get("SOAK_SEED") or random.randrange(10**9))
TURNS = int(os.environ.get("SOAK_TURNS") or 200)
AT_ONCE = 6

# What a process does not tell from outside: its threads by name, its loop's tasks, the turns and requests it holds.
COUNTER = """
import asyncio, gc, json, threading


async def count(raw):
    gc.collect()
    kinds = {"Turn": 0, "Pending": 0, "Cycle": 0, "AguiStream": 0, "Run": 0}
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).startswith("agui_adapter") and kind.__name__ in kinds:
            kinds[kind.__name__] += 1
    tasks = sorted(str(task.get_coro().__qualname__) for task in asyncio.all_tasks())
    return json.dumps({"threads": sorted(t.name for t in threading.enumerate()), "tasks": tasks, "held": kinds})


def register(ctx):
    ctx.register_command("soak-count", count)
"""


class Soak:
    """Random turns on threads of their own. One instance is one sequence: the same seed does the same things."""

    def __init__(self, gateway: Gateway, seed: int) -> None:
        self.gateway = gateway
        self.random = random.Random(seed)
        self.chats: list[Chat] = []
        self.done: dict[str, int] = {}

    def turns(self, count: int) -> None:
        for _ in range(count):
            if not self.chats or self.random.random() < 0.4:
                self.chats.append(Chat(self.gateway))
            self.turn(self.random.choice(self.chats))

    def turn(self, chat: Chat) -> None:
        steps = [self.step() for _ in range(self.random.randint(0, 3))]
        text = script(*steps, {"text": "one two three four five. " * 3, "delta_ms": self.random.choice((0, 5))})
        if self.random.random() < 0.2:
            self.note("left")
            run = chat.start(text, tools=[COLOR])
            time.sleep(self.random.random() * 0.5)
            run.leave()
            self.settle(chat)
            return
        run = chat.say(text, tools=[COLOR])
        for _ in range(20):
            if run.status != 200 or run.end["type"] != "RUN_FINISHED":
                raise AssertionError(run.raw.decode())
            if not self.waits(run):
                return
            found = self.answer(chat, run)
            if found is None:
                return
            run = found
        raise AssertionError("a turn of three steps asked more than twenty times")

    def step(self) -> dict[str, Any]:
        kind = self.random.choice(("echo", "danger", "client", "two", "ask"))
        if kind == "echo":
            tools = [call("terminal", {"command": "echo hello"}, unique("c"))]
        elif kind == "danger":
            tools = [call("terminal", {"command": "rm -rf ./no-such-folder"}, unique("c"))]
        elif kind == "ask":
            tools = [call("clarify", {"question": "Which?"}, unique("c"))]
        else:
            tools = [call("get_color", {"q": unique("q")}, unique("k")) for _ in range(1 + (kind == "two"))]
        return {"text": f"{kind}.", "tools": tools}

    def waits(self, run: Run) -> bool:
        outcome = run.end.get("outcome") or {}
        return outcome.get("type") == "interrupt" or bool(outcome.get("pendingToolCallIds"))

    def answer(self, chat: Chat, run: Run) -> Run | None:
        """Go on with a turn that waits, in one of many ways; None when it is over or nobody reads it any more."""
        how = self.random.choices(
            ("answer", "refuse", "route", "stop", "message", "leave"), weights=(50, 15, 10, 8, 8, 9)
        )[0]
        self.note(how)
        calls = run.end["outcome"].get("pendingToolCallIds") or []
        if how == "stop":
            stop(chat)
            return None
        if how == "message":
            return chat.say("never mind, count to 3", tools=[COLOR])
        if how == "route":
            self.settle(chat)
            return None
        if how == "leave":
            chat.messages.append({"id": unique("u"), "role": "user", "content": "count to 3"})
            following = chat.send(tools=[COLOR])
            time.sleep(self.random.random() * 0.2)
            following.leave()
            self.settle(chat)
            return None
        if calls:
            some = calls if self.random.random() < 0.6 else calls[:1]
            return give(chat, *((one, "red") for one in some), error="no" if how == "refuse" else "")
        entries = []
        for one in interrupts(run):
            no = None if self.random.random() < 0.5 else {"choice": "deny", "answer": "none of them"}
            entries.append((one["id"], no if how == "refuse" else {"choice": "once", "answer": "a"}))
        return resume(chat, *entries, tools=[COLOR])

    def settle(self, chat: Chat) -> None:
        """Answer by the route whatever the thread asks until it is idle, and take its history as the client's."""

        def idle() -> bool:
            found = state(chat)
            for one in found["requests"]:
                answer_by_route(chat, one["id"], {"choice": "deny", "answer": "a", "content": "red"})
            return found["status"] == "idle" and not found["requests"]

        # Nothing of a request that was never taken: the socket was closed before its body was read.
        if self.known(chat):
            try:
                wait_until(idle, f"{chat.thread} ends")
            except AssertionError as error:
                error.add_note(f"{state(chat)}")
                error.add_note("\n".join(line for line in self.gateway.log_text().splitlines() if chat.thread in line))
                raise
            chat.messages = state(chat)["messages"]
            chat.calls = [made["id"] for m in chat.messages for made in m.get("toolCalls") or ()]
        else:
            chat.messages = []

    def known(self, chat: Chat) -> bool:
        url = f"{self.gateway.url}/agui/threads/{chat.thread}"
        return httpx.get(url, trust_env=False, timeout=30).status_code == 200

    def note(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


@pytest.mark.slow
def test_nothing_is_left(make_gateway: Callable[..., Gateway], model: GatedModel) -> None:
    print(f"SOAK_SEED={SEED} SOAK_TURNS={TURNS}")
    gateway = make_gateway(
        start=False,
        verbose=True,
        agui={"turn_ttl_seconds": 1},
        config={"plugins": {"enabled": ["agui", "counter"]}},
    )
    write_plugin(gateway.home, "counter", COUNTER)
    gateway.start()
    process = psutil.Process(gateway.pid)
    soaks = [Soak(gateway, SEED + number) for number in range(AT_ONCE)]

    def all_of(turns: int) -> None:
        failed: list[BaseException] = []

        def work(soak: Soak) -> None:
            try:
                soak.turns(turns)
            except BaseException as error:
                failed.append(error)

        workers = [threading.Thread(target=work, args=(soak,)) for soak in soaks]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failed:
            raise failed[0]

    def count() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Chat(gateway).say("/soak-count").succeeded().text())
        return found | {"files": process.num_fds(), "children": len(process.children(recursive=True))}

    # The pool's threads and what is opened once come first: what counts is that it does not grow from there.
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: Chat(gateway).say("count to 2").succeeded(), range(24)))
    all_of(max(1, TURNS // AT_ONCE // 4))
    before = quiet(count)
    all_of(max(1, TURNS // AT_ONCE))
    chats = [chat for soak in soaks for chat in soak.chats if soak.known(chat)]
    print({what: sum(soak.done.get(what, 0) for soak in soaks) for what in soaks[0].done}, len(chats), "threads")
    for chat in chats:
        assert open_requests(chat) == [] and state(chat)["status"] == "idle", chat.thread
    after = quiet(count)
    print("before", before, "after", after)
    assert len(own(after["threads"])) <= len(own(before["threads"])) + 2, after["threads"]
    assert len(after["tasks"]) <= len(before["tasks"]) + 2, after["tasks"]
    assert after["children"] <= before["children"] + 1
    # Hermes keeps a few files an agent (up to its cache's size); a leak of ours would be one a turn.
    assert after["files"] <= before["files"] + TURNS // 4, (before["files"], after["files"])
    # Finished turns are forgotten after their time (agui.turn_ttl_seconds; looked after every thirty seconds).
    # Counting is a turn too, so it is done seldom.
    for _ in range(10):
        time.sleep(7)
        held = count()["held"]
        if held["Turn"] <= 12:
            break
    print("held", held)
    assert held["Turn"] <= 12 and held["Pending"] <= 2 and held["Cycle"] <= 2 and held["AguiStream"] <= 2, held
    # All are usable still.
    for chat in random.Random(SEED).sample(chats, 5):
        chat.messages = []
        assert chat.say("count to 3").succeeded().text() == "1 2 3"


def own(names: list[str]) -> list[str]:
    """Threads that a turn could leave behind: not those of a pool, which are made on demand and kept."""
    return [name for name in names if not name.startswith(("hermes-gateway_", "asyncio_", "ThreadPoolExecutor"))]


def quiet(count: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The counts once they are still: what ended a moment ago may need another."""
    last: dict[str, Any] = {}
    for _ in range(20):
        found = count()
        if (found["tasks"], own(found["threads"])) == (last.get("tasks"), own(last.get("threads") or [])):
            return found
        last = found
        time.sleep(0.5)
    return last
