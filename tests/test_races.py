"""Two requests at one thread, and what fails in the middle: nobody loses a run, waits for ever, or leaves a mess."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.adapter import AguiAdapter
from agui_adapter.events import AguiStream, View
from agui_adapter.feed import Feed
from agui_adapter.files import Files
from agui_adapter.hermes.actions import Actions
from agui_adapter.log import EventLog
from agui_adapter.requests import Requests, new_id
from agui_adapter.session import Principal, Thread
from agui_adapter.sse import SseParser
from agui_adapter.store import Store
from agui_adapter.stream import MessageChunk, MessageStart, MessageStop, Request, StreamEvent, TurnFinished
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, new_adapter, serving, until

LOCAL = Principal("local")


@pytest.fixture
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ScriptedAdapter, str, aiohttp.ClientSession]]:
    async with serving({"busy": "queue"}, tmp_path, monkeypatch) as (adapter, url), aiohttp.ClientSession() as http:
        yield adapter, url, http


def run(thread: str, number: int = 1) -> dict[str, Any]:
    message = {"id": f"u{number}", "role": "user", "content": "Hello"}
    return {"threadId": thread, "runId": f"r{number}", "protocolVersion": "1.0", "messages": [message]}


async def post(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[int, str]:
    async with http.post(url, json=body) as response:
        return response.status, await response.text()


async def test_a_look_does_not_take_the_thread_from_a_run_that_begins(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that opens a thread's events beside its first run."""
    adapter, url, http = served
    adapter.script = [MessageStart("m1"), MessageChunk("Hi"), TurnFinished()]
    posts, looked, load = asyncio.Event(), asyncio.Event(), adapter.archive.load

    async def slow(thread: Thread) -> None:
        await load(thread)
        if not posts.is_set():  # the run's own: until the look is over
            posts.set()
            await looked.wait()

    monkeypatch.setattr(adapter.archive, "load", slow)
    posted = asyncio.create_task(post(http, f"{url}/agui", run("t")))
    await asyncio.wait_for(posts.wait(), PATIENCE)
    async with http.get(f"{url}/agui/threads/t") as response:
        assert response.status == 404
    looked.set()
    assert (await asyncio.wait_for(posted, PATIENCE))[0] == 200
    (turn,) = adapter.submitted
    assert adapter.threads.find(LOCAL, "t") is turn.thread and not turn.thread.gone
    async with http.get(f"{url}/agui/threads/t") as response:
        assert [message["id"] for message in (await response.json())["messages"]] == ["u1", "m1"]


async def test_a_look_at_a_thread_that_is_none_leaves_nothing(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession],
) -> None:
    adapter, url, http = served
    for number in range(5):
        async with http.get(f"{url}/agui/threads/none-{number}") as response:
            assert response.status == 404
    assert len(adapter.threads) == 0


async def test_a_run_that_waits_for_a_thread_which_is_deleted_is_told(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession],
) -> None:
    adapter, url, http = served
    assert (await post(http, f"{url}/agui", run("t")))[0] == 200
    thread = adapter.threads.find(LOCAL, "t")
    assert thread is not None
    await thread.lock.acquire()
    waiting = asyncio.create_task(post(http, f"{url}/agui", run("t", 2)))
    await until(lambda: thread.lock._waiters)
    adapter.threads.drop(thread)
    thread.lock.release()
    status, text = await asyncio.wait_for(waiting, PATIENCE)
    assert status == 409 and "thread_deleted" in text
    assert (await post(http, f"{url}/agui", run("t", 2)))[0] == 200


async def test_two_threads_branched_into_each_other(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, url, http = served
    for name in ("a", "b"):
        assert (await post(http, f"{url}/agui", run(name)))[0] == 200
    known = adapter.archive.known

    async def slow(thread: Thread) -> bool:
        await asyncio.sleep(0.05)  # all of them are on their way then
        return await known(thread)

    monkeypatch.setattr(adapter.archive, "known", slow)
    monkeypatch.setattr(Actions, "may", lambda *_: True)
    pairs = [("a", "b"), ("b", "a")] * 3
    answers = await asyncio.wait_for(
        asyncio.gather(*(post(http, f"{url}/agui/threads/{one}/branch", {"threadId": other}) for one, other in pairs)),
        PATIENCE,
    )
    assert all(status == 409 and "thread_exists" in text for status, text in answers), answers


async def test_pages_of_nothing_and_odd_cursors(served: tuple[ScriptedAdapter, str, aiohttp.ClientSession]) -> None:
    _, url, http = served
    for number in range(3):
        assert (await post(http, f"{url}/agui", run(f"t{number}")))[0] == 200
    async with http.get(f"{url}/agui/threads?limit=0") as response:
        told = await response.json()
        assert (told["threads"], told["total"], told["next"]) == ([], 3, None)
    for odd in ([10**400, "x"], [None, "x"], ["x"], {}, 3):
        cursor = base64.urlsafe_b64encode(json.dumps(odd).encode()).decode()
        async with http.get(f"{url}/agui/threads", params={"before": cursor}) as response:
            assert response.status == 422, odd


async def test_a_deleted_thread_leaves_no_turn_behind(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession],
) -> None:
    adapter, url, http = served
    gate = Gate()

    def ask(turn: Any) -> None:
        adapter.requests.open(turn, Request(new_id("clarify"), "clarify", "Which?", free_text=True))

    adapter.script = [ask, gate, TurnFinished()]
    posted = asyncio.create_task(post(http, f"{url}/agui", run("t")))
    await until(lambda: adapter.requests._by_turn)
    gate.open()
    await posted
    async with http.delete(f"{url}/agui/threads/t") as response:
        assert response.status == 200
    assert adapter.requests._by_turn == {}


async def test_a_feed_that_fails_says_so_in_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(LOCAL, "t", "local.t")
    turn = thread.begin(EventLog(asyncio.get_running_loop()))
    for event in (MessageStart("m1"), MessageChunk("Hi"), MessageStop(final=True), TurnFinished()):
        turn.append(event)
    translate = AguiStream.feed

    def broken(self: AguiStream, event: StreamEvent) -> list[bytes]:
        if isinstance(event, MessageStop):
            raise ValueError("broken")
        return translate(self, event)

    monkeypatch.setattr(AguiStream, "feed", broken)
    raw = b"".join([chunk async for chunk in Feed(thread, View(), once=True).chunks()])
    kinds = [json.loads(event.data)["type"] for event in SseParser().feed(raw)]
    assert kinds[:3] == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert kinds[-1] == "RUN_ERROR" and sum(kind.startswith(("RUN_ERR", "RUN_FIN")) for kind in kinds) == 1


async def test_a_route_that_fails_in_mid_stream_sends_no_second_answer(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url, http = served

    def broken(self: Any, asked: Any = None) -> Any:
        async def chunks() -> AsyncIterator[bytes]:
            yield b": begun\n\n"
            raise ValueError("broken")

        return chunks()

    assert (await post(http, f"{url}/agui", run("t")))[0] == 200
    monkeypatch.setattr(Feed, "chunks", broken)
    got = b""
    with pytest.raises(aiohttp.ClientPayloadError):
        async with http.get(f"{url}/agui/threads/t/events") as response:
            assert response.status == 200
            async for data in response.content.iter_any():
                got += data
    assert got == b": begun\n\n"


async def test_a_turn_ends_whatever_fails_at_its_end(
    served: tuple[ScriptedAdapter, str, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, url, http = served

    def broken(*_: Any) -> None:
        raise RuntimeError("Hermes changed")

    monkeypatch.setattr(adapter.bridge, "release", broken)
    status, text = await asyncio.wait_for(post(http, f"{url}/agui", run("t")), PATIENCE)
    assert status == 200 and text.count("RUN_FINISHED") == 1
    thread = adapter.threads.find(LOCAL, "t")
    assert thread is not None and thread.current is None
    monkeypatch.undo()


async def test_a_place_comes_back_when_the_request_is_closed() -> None:
    """Hermes could not ask, and told no hook that its wait is over."""
    requests = Requests(asyncio.get_running_loop(), 1)
    thread = Thread(LOCAL, "t", "local.t")
    turn = thread.begin(EventLog(asyncio.get_running_loop()))
    assert requests.take_place(turn)
    pending = requests.open(turn, Request(new_id("approval"), "approval", "?", choices=("once", "deny")))
    requests.hold(pending)
    requests.park(pending)
    assert requests.parked(turn) and not requests.take_place(turn)
    requests.cancel_turn(turn, "over")
    assert not requests.parked(turn) and requests.take_place(turn)


def test_a_file_that_goes_meanwhile_hinders_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "agui.db")
    store.open()
    files = Files(store, tmp_path / "agui_files", ttl_seconds=60, most_bytes=1 << 20)
    files.open()
    (tmp_path / "agui_files" / "gone").symlink_to(tmp_path / "nowhere")  # listed, and not there
    (tmp_path / "agui_files" / "kept").write_bytes(b"x")
    assert [path.name for _, _, path in files._listed()] == ["kept"]
    files._make_room(10)
    store.close()


def test_links_of_files_are_checked_from_the_first_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes find the files only when the secret that links are signed with has been read."""
    adapter: AguiAdapter = new_adapter(ScriptedAdapter, {"port": 0, "warmup": False}, tmp_path, monkeypatch)
    seen: list[bool] = []
    opened = Files.open

    def look(self: Files) -> None:
        seen.append(hasattr(adapter, "files"))
        opened(self)

    monkeypatch.setattr(Files, "open", look)

    async def connect() -> None:
        assert await adapter.connect()
        await adapter.disconnect()

    asyncio.run(connect())
    assert seen == [False]
