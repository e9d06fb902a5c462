"""Messages that come later: what another process leaves, what the history has already, what may be promised to whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.adapter import AguiAdapter
from agui_adapter.beside import mirrored, with_beside
from agui_adapter.cycle import Cycle
from agui_adapter.history import Row
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, chat_id_for, plain_names
from agui_adapter.store import Store, store_path
from gateway_plugins.agui import home_from_env, send_from_elsewhere
from tests.scripted import new_adapter, serving

# --- names of chats


@pytest.mark.parametrize(("principal", "thread"), [("owner", "inbox"), ("local", "t-1"), ("a-b", "A")])
def test_a_plain_chat_names_its_thread(principal: str, thread: str) -> None:
    assert plain_names(chat_id_for(principal, thread)) == (principal, thread)


@pytest.mark.parametrize(
    "chat", ["", "local", ".", "local.", ".t", "local.a.b", "local._x", "a:b.c", chat_id_for("l", "a b")]
)
def test_other_chats_name_none(chat: str) -> None:
    assert plain_names(chat) is None


# --- from another process


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


async def test_a_message_is_left_for_the_gateway(home: Path) -> None:
    result = await send_from_elsewhere(None, "local.inbox", "Hello", media_files=[("/tmp/a.png", False), "/x/b.txt"])
    assert result["success"] is True
    store = Store(store_path(home))
    store.open()
    ((message_id, chat, text, at),) = store.arrivals()
    assert (message_id, chat) == (result["message_id"], "local.inbox")
    assert text == "Hello\n[file: a.png]\n[file: b.txt]" and at > 1_600_000_000
    store.arrived(message_id)
    assert store.arrivals() == []
    store.close()


@pytest.mark.parametrize(("chat", "text"), [("nobody", "x"), (chat_id_for("l", "a b"), "x"), ("local.inbox", "  ")])
async def test_what_cannot_be_delivered_is_refused(home: Path, chat: str, text: str) -> None:
    result = await send_from_elsewhere(None, chat, text)
    assert "AG-UI" in result["error"] and "success" not in result


async def test_a_thread_with_any_id_is_reached_once_it_was_used(home: Path) -> None:
    chat = chat_id_for("local", "a thread / with any name")
    store = Store(store_path(home))
    store.open()
    store.touch_thread(chat, "local", "a thread / with any name")
    store.close()
    assert (await send_from_elsewhere(None, chat, "Hello"))["success"] is True


def test_the_home_channel_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGUI_HOME_CHANNEL", raising=False)
    assert home_from_env() is None
    monkeypatch.setenv("AGUI_HOME_CHANNEL", " local.inbox ")
    seed = home_from_env()
    assert seed is not None and seed["home_channel"]["chat_id"] == "local.inbox"


# --- what the history has already


def test_a_mirror_gives_its_row_to_the_message() -> None:
    rows = [
        Row(1, "s", "user", "hi"),
        Row(2, "s", "assistant", "OK"),
        Row(3, "s", "assistant", "OK "),
        Row(4, "s", "assistant", "OK"),
    ]
    ids = {2: "m2"}
    left = mirrored([("late-1", 2, "OK"), ("late-2", 2, "OK"), ("late-3", 2, "OK"), ("late-4", 1, "other")], rows, ids)
    assert ids == {2: "m2", 3: "late-1", 4: "late-2"}
    assert left == [("late-3", 2, "OK"), ("late-4", 1, "other")]


@pytest.mark.parametrize(
    ("starting", "text", "told"),
    [
        (True, "The answer.", False),
        (True, "♻️ Recovered reply — this may be a duplicate:\n\nThe answer.", False),
        (True, "Not the answer.", True),
        (False, "The answer.", True),
    ],
)
async def test_what_a_crash_kept_back_is_told_only_where_the_history_has_it_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: bool, text: str, told: bool
) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        thread = adapter.threads.get(Principal("local"), "t")
        rows = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer.\n"}]
        source = adapter.source_of(thread)
        adapter.archive.sessions.seed(adapter.key_of(thread), source, rows)
        monkeypatch.setattr(adapter.gateway_runner, "_startup_restore_in_progress", starting, raising=False)
        assert (await adapter.send(thread.chat_id, text)).success
        assert bool(thread.turns) is told


# --- what may be promised


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AguiAdapter:
    made: AguiAdapter = new_adapter(AguiAdapter, {}, tmp_path, monkeypatch)
    return made


async def test_a_later_result_is_promised_to_threads_only(adapter: AguiAdapter) -> None:
    """Hermes reads the attribute in the task that it makes for the message (gateway/run.py, _set_session_env)."""
    told: dict[str, bool] = {}
    tasks = []

    async def read(name: str) -> None:
        await asyncio.sleep(0)
        told[name] = adapter.supports_async_delivery

    async def take(event: Any) -> None:
        tasks.append(asyncio.ensure_future(read(event.raw_message.thread.thread_id)))

    adapter.handle_message = take  # type: ignore[method-assign, assignment]
    for name in ("thread", "one-shot"):
        turn = adapter.threads.get(Principal("local"), name).begin(EventLog(asyncio.get_running_loop()), text="Hello")
        adapter._cycles[turn] = Cycle(turn, max_result_chars=1000)
        turn.one_shot = name == "one-shot"
        await adapter.submit(turn)
    await asyncio.gather(*tasks)
    assert told == {"thread": True, "one-shot": False}
    assert adapter.supports_async_delivery is True


def test_a_late_message_stands_before_the_thoughts_of_the_answer_that_followed_it() -> None:
    rows = [Row(1, "s", "user", "Hello"), Row(2, "s", "assistant", "Hi."), Row(3, "s", "assistant", "More.")]
    thought = {"id": "thought", "role": "reasoning", "content": "Well"}
    made = [*({"id": f"row-{row.id}", "role": row.role, "content": row.content} for row in rows)]
    made[2:2] = [thought, {**thought, "id": "second"}]
    late = {"id": "late", "role": "assistant", "content": "The backup is done."}
    merged = with_beside([*made, {**thought, "id": "last"}], rows, {}, {}, [(2, [late])])
    assert [one["id"] for one in merged] == ["row-1", "row-2", "late", "thought", "second", "row-3", "last"]
