"""A history that was just read is not read again; one that is old, or another's, is never told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter import kept
from agui_adapter.kept import Kept
from agui_adapter.session import Principal, Thread
from agui_adapter.store import store_path
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.scripted import Gate, ScriptedAdapter, serving, until

HISTORY = [
    {"id": f"m{index}", "role": ("user", "assistant")[index % 2], "content": f"Message {index}."} for index in range(20)
]
ASKED = {"id": "q", "role": "user", "content": "Hello"}
ROUTE = "/agui/threads/t"


@dataclass
class World:
    adapter: ScriptedAdapter
    client: httpx.AsyncClient
    home: Path
    reads: list[str] = field(default_factory=list)

    @property
    def thread(self) -> Thread:
        return next(iter(self.adapter.threads))

    @property
    def session(self) -> str:
        archive = self.adapter.archive
        return archive.sessions.session_id(archive.key_of(self.thread))

    async def run(self, message: dict[str, str] = ASKED, *before: dict[str, str]) -> None:
        body = {"threadId": "t", "runId": f"run-{message['id']}", "messages": [*before, message]}
        (await self.client.post("/agui", json=body)).raise_for_status()
        await self.adapter.archive.run(lambda: None)  # what the turn left is recorded
        self.reads.clear()

    async def feed(self) -> None:
        async with self.client.stream("GET", f"{ROUTE}/events") as response:
            assert response.status_code == 200

    async def said(self) -> list[str]:
        return [one.get("content", "") for one in await self.messages()]

    async def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = (await self.client.get(ROUTE)).raise_for_status().json()["messages"]
        return messages


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = [MessageStart("a"), MessageChunk("Hi."), TurnFinished()]
        made = World(adapter, client, tmp_path)
        rows = adapter.archive.sessions.rows

        def read(session: str, after: int = 0, **more: Any) -> Any:
            made.reads.append(session)
            return rows(session, after, **more)

        monkeypatch.setattr(adapter.archive.sessions, "rows", read)
        await made.run(ASKED, *HISTORY)
        yield made


async def test_who_opens_a_thread_has_it_read_once(world: World) -> None:
    await world.feed()
    assert await world.said() == [one["content"] for one in HISTORY] + ["Hello", "Hi."]
    (listed,) = (await world.client.get("/agui/threads")).json()["threads"]
    assert listed["messageCount"] == 22
    assert world.reads == [world.session]


async def test_after_a_restart_too(world: World) -> None:
    await world.adapter.archive.reload(world.thread)
    await world.feed()
    assert len(await world.said()) == 22
    assert world.reads == [world.session]


def hermes_writes(world: World) -> None:
    world.adapter.gateway_runner.session_store._db.append_message(world.session, "assistant", "And this.")


def another_process_writes(world: World) -> None:
    with sqlite3.connect(world.home / "state.db") as database:
        database.execute("UPDATE messages SET content = 'And this.' WHERE content = 'Message 19.'")
    database.close()


def another_process_takes_back(world: World) -> None:
    with sqlite3.connect(world.home / "state.db") as database:
        database.execute("UPDATE messages SET active = 0 WHERE content = 'Message 19.'")
        database.execute("UPDATE messages SET content = 'And this.' WHERE content = 'Message 18.'")
    database.close()


def a_late_message(world: World) -> None:
    world.adapter.archive.store.add_late(world.thread.chat_id, "late", 10**6, "And this.")


def another_process_writes_to_the_store(world: World) -> None:
    other = sqlite3.connect(store_path(world.home))
    with other:
        other.execute("INSERT INTO late VALUES (?, 'late', 1000000, 'And this.', 1)", (world.thread.chat_id,))
    other.close()


@pytest.mark.parametrize(
    "writes",
    [
        hermes_writes,
        another_process_writes,
        another_process_takes_back,
        a_late_message,
        another_process_writes_to_the_store,
    ],
    ids=lambda one: one.__name__,
)
async def test_what_was_written_meanwhile_is_told(world: World, writes: Callable[[World], None]) -> None:
    await world.feed()
    assert "And this." not in await world.said()
    writes(world)
    assert "And this." in await world.said()
    assert len(world.reads) == 2


async def test_what_is_written_while_it_is_read_is_told_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = world.adapter.archive._messages

    def slowly(*arguments: Any) -> Any:
        made = messages(*arguments)
        if len(world.reads) == 1:
            another_process_writes(world)
        return made

    monkeypatch.setattr(world.adapter.archive, "_messages", slowly)
    assert "And this." not in await world.said()
    assert "And this." in await world.said()


async def test_the_turn_that_runs_and_the_next_one(world: World) -> None:
    await world.feed()
    gate = Gate()
    world.adapter.script = [MessageStart("b"), MessageChunk("Wel"), gate, MessageChunk("come."), TurnFinished()]
    running = asyncio.create_task(world.run({"id": "again", "role": "user", "content": "Once more"}))
    await until(lambda: world.thread.current is not None and world.thread.current.log.last > 1)
    assert (await world.said())[-3:] == ["Hi.", "Once more", "Wel"]
    hermes = world.adapter.gateway_runner.session_store._db
    hermes.append_message(world.session, "user", "Once more")
    assert (await world.said())[-3:] == ["Hi.", "Once more", "Wel"]
    hermes.append_message(world.session, "assistant", "Welcome.")
    gate.open()
    await running
    assert (await world.said())[-2:] == ["Once more", "Welcome."]


async def test_a_rewound_thread(world: World) -> None:
    await world.feed()
    await world.adapter.archive.rewind(world.thread, "m10")
    assert (await world.said())[9:] == ["Message 9."]


async def test_each_reader_has_a_list_of_its_own(world: World) -> None:
    for _ in range(3):
        found = await world.adapter.archive.messages(world.thread)
        assert len(found) == 22
        found.clear()


async def test_another_principal_gets_nothing_that_was_read_for_the_first(world: World) -> None:
    await world.feed()
    world.thread.principal = Principal("somebody")  # as when a thread that was adopted learns whose it is
    await world.adapter.archive.messages(world.thread)
    other = world.adapter.threads.get(Principal("another"), "t")
    await world.adapter.archive.load(other)
    assert await world.adapter.archive.messages(other) == []
    assert world.reads.count(world.session) == 2


async def test_a_deleted_thread_is_not_held(world: World) -> None:
    await world.feed()
    assert world.adapter.archive._kept._found
    (await world.client.delete(ROUTE)).raise_for_status()
    assert not world.adapter.archive._kept._found
    assert (await world.client.get(ROUTE)).status_code == 404


async def test_a_database_that_tells_no_version_is_read_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = world.adapter.gateway_runner.session_store._db

    class Blind:
        def __getattr__(self, name: str) -> Any:
            return self if name == "_conn" else getattr(database, name)

        def execute(self, sql: str, *values: Any) -> Any:
            assert "PRAGMA" not in sql, "it knows none"
            return database._conn.execute(sql, *values)

    monkeypatch.setattr(world.adapter.archive.sessions._store, "_db", Blind())
    for count in (1, 2, 3):
        await world.adapter.archive.messages(world.thread)
        assert len(world.reads) == count


# --- what is held, and how long


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    held, message = Kept(lambda: now[0]), [{"id": "m", "role": "user", "content": "Hi"}]
    for number in range(kept._MOST + 1):
        held.put(f"chat-{number}", "mark", message)
    assert held.get("chat-0", "mark") is None
    assert held.get("chat-1", "mark") == message
    held.put("large", "mark", [{**message[0], "content": "x" * (kept._MOST_CHARS + 1)}])
    assert held.get("large", "mark") is None
    assert held.get("chat-1", "another") is None
    assert held.get("chat-1", "mark") is None, "it will not be right again"
    now[0] = kept._SECONDS
    held.sweep()
    assert not held._found
