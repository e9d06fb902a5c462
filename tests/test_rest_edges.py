"""What happens to REST requests at the edges: callers that leave, logs that were merged, text that no file takes."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agui_adapter.door import Ask, Door
from agui_adapter.errors import AguiError
from agui_adapter.session import SCOPES, Principal, Turn
from agui_adapter.sse import SseParser
from agui_adapter.store import RunRecord
from agui_adapter.stream import MessageChunk, MessageStart, ToolCall, ToolResult, TurnFinished
from tests.scripted import PATIENCE, Gate, ScriptedAdapter, serving, until

ANNA = Principal("anna", scopes=SCOPES)
HELLO = [MessageStart("m1"), MessageChunk("Hel"), MessageChunk("lo"), TurnFinished()]
WORDS = [f"{n} " for n in range(6000)]
BEFORE = [{"id": "u0", "role": "user", "content": "before"}, {"id": "a0", "role": "assistant", "content": "yes"}]


class Api:
    """A client of the served adapter."""

    def __init__(self, adapter: ScriptedAdapter, url: str, http: aiohttp.ClientSession) -> None:
        self.adapter, self.url, self.http = adapter, url, http
        self.headers: Any = {}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            asyncio.timeout(PATIENCE),
            self.http.request(method, self.url + path, json=body, headers=given) as response,
        ):
            self.headers = response.headers
            text = await response.text()
            if response.content_type == "text/event-stream":
                return response.status, [json.loads(one.data) for one in SseParser().feed(text.encode())]
            return response.status, json.loads(text)


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    extra = {"busy": "steer", "log_bytes_per_turn": 65536, "interrupt_wait_seconds": 5}
    async with serving(extra, tmp_path, monkeypatch) as (adapter, url), aiohttp.ClientSession() as http:
        adapter.script = HELLO
        yield Api(adapter, url, http)


async def test_a_conversation_of_any_characters(api: Api) -> None:
    for name in ("a\x00b", "a\r\nX-Evil: 1"):
        status, told = await api.ask("POST", "/v1/responses", {"input": "Hi", "conversation": name})
        assert status == 200 and told["status"] == "completed" and told["conversation"] == {"id": name}
        assert "X-Hermes-Session-Id" not in api.headers and "X-Evil" not in api.headers


async def test_half_a_surrogate_pair_is_stored(api: Api) -> None:
    api.adapter.script = [MessageStart("m1"), MessageChunk("a\ud800b"), TurnFinished()]
    _, told = await api.ask("POST", "/v1/responses", {"input": "Hi"})
    store = api.adapter.archive.store
    saved: list[Any] = []

    async def save() -> bool:
        rows = await api.adapter.archive.run(lambda: store.execute("SELECT body FROM responses"))
        saved[:] = [json.loads(row["body"]) for row in rows]
        return bool(saved and saved[0]["status"] == "completed")

    async with asyncio.timeout(PATIENCE):
        while not await save():  # noqa: ASYNC110 (the archive's worker changes it)
            await asyncio.sleep(0.01)
    assert saved[0]["output"][0]["content"][0]["text"] == "a\ufffdb" == told["output"][0]["content"][0]["text"]


async def test_a_text_for_a_turn_that_has_said_nothing_is_not_a_turn(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    api.adapter.script = [gate, *HELLO]
    monkeypatch.setattr(api.adapter, "steer", lambda turn, text, message_id="": True)
    door = Door(api.adapter)
    first = await door.open(ANNA, "t", Ask("one"))
    assert first.turn.log.last == 0
    first.turn.enter()
    second = await door.open(ANNA, "t", Ask("two", inline=True))
    assert second.turn is first.turn and len(api.adapter.submitted) == 1 and not first.turn.inline
    gate.open()
    assert (await second.wait()).text == "Hello"
    first.turn.leave()


async def test_the_same_by_ag_ui(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    api.adapter.script = [gate, *HELLO]
    monkeypatch.setattr(api.adapter, "steer", lambda turn, text, message_id="": True)

    def run(number: int) -> Any:
        messages = [{"id": f"u{number}", "role": "user", "content": "Hi"}]
        body = {"threadId": "t", "runId": f"r{number}", "messages": messages, "tools": [], "context": [], "state": {}}
        return asyncio.ensure_future(api.ask("POST", "/agui", {**body, "forwardedProps": {}}))

    first = run(1)
    await until(lambda: getattr(api.adapter, "submitted", None) and api.adapter.submitted[0].readers)
    second = run(2)
    await until(lambda: api.adapter.submitted[0].readers == 2)
    gate.open()
    for told in (await first)[1], (await second)[1]:
        assert [one["type"] for one in told].count("RUN_FINISHED") == 1 and told[-1]["type"] == "RUN_FINISHED"
        assert "".join(one["delta"] for one in told if one["type"] == "TEXT_MESSAGE_CONTENT") == "Hello"
    assert len(api.adapter.submitted) == 1


@pytest.mark.parametrize("hidden", [True, False])
async def test_what_was_written_for_a_turn_that_never_came_goes(
    api: Api, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    adapter, door = api.adapter, Door(api.adapter)
    ask = Ask("Hi", history=BEFORE, one_shot=True)
    take = adapter.new_turn

    def fails(*args: Any, **more: Any) -> Turn:
        raise AguiError(409, "x", "y")

    monkeypatch.setattr(adapter, "new_turn", fails)
    with pytest.raises(AguiError):
        await door.open(ANNA, None, ask, hidden=hidden)
    monkeypatch.setattr(adapter, "new_turn", take)
    db = adapter.gateway_runner.session_store._db
    await until(lambda: not db.list_sessions_rich(limit=10))
    await adapter.archive.run(lambda: None)
    assert not len(adapter.threads) and not adapter.archive.store.execute("SELECT * FROM turns")


async def test_a_caller_that_leaves_leaves_its_response(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, held = Gate(), Gate()
    api.adapter.script = [gate, *HELLO]
    request = asyncio.create_task(
        api.ask("POST", "/v1/responses", {"input": "Hi", "background": True}, Idempotency_Key="k")
    )
    opened = Door.open

    async def slow(*args: Any, **more: Any) -> Any:
        reader = await opened(*args, **more)
        api.adapter.archive.later(lambda: held(reader.turn))  # the archive is busy when the caller leaves
        return reader

    monkeypatch.setattr(Door, "open", slow)
    await until(lambda: getattr(api.adapter, "submitted", None))
    request.cancel()
    await asyncio.wait([request])
    await asyncio.sleep(0.05)  # the server learns of it
    held.open()
    gate.open()
    status, again = await api.ask("POST", "/v1/responses", {"input": "Hi", "background": True}, Idempotency_Key="k")
    assert status == 200 and len(api.adapter.submitted) == 1
    async with asyncio.timeout(PATIENCE):
        path = f"/v1/responses/{again['id']}"
        while (await api.ask("GET", path))[1]["status"] != "completed":  # noqa: ASYNC110 (as a client polls)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_key_keeps_no_log_that_nobody_else_keeps(api: Api, path: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
    await api.ask("POST", path, body, Idempotency_Key="k")
    gone = weakref.ref(api.adapter.submitted.pop())
    turn = gone()
    assert turn is not None
    await until(turn.done.is_set)
    turn.thread.turns.clear()  # as the sweep does, and who needs the room (agui.log_bytes_total)
    del turn
    await api.ask("POST", path, body, Idempotency_Key="other")
    await until(lambda: gone() is None)
    await api.ask("POST", path, body, Idempotency_Key="k")
    assert len(api.adapter.submitted) == 2


async def test_a_stream_that_can_be_gone_on_with_no_more(api: Api) -> None:
    gate = Gate()
    api.adapter.script = [MessageStart("m1"), *map(MessageChunk, WORDS[:10]), gate, *map(MessageChunk, WORDS[10:])]
    api.adapter.script = [*api.adapter.script, TurnFinished()]
    _, made = await api.ask("POST", "/v1/responses", {"input": "Hi", "background": True})
    path = f"/v1/responses/{made['id']}?stream=true"
    gate.open()
    await until(lambda: api.adapter.submitted[-1].log.closed)
    assert not api.adapter.submitted[-1].log.whole
    status, told = await api.ask("GET", f"{path}&starting_after=500")
    assert (status, told["error"]["code"]) == (409, "stream_gone")
    _, told = await api.ask("GET", path)
    assert "".join(one["delta"] for one in told if one["type"] == "response.output_text.delta") == "".join(WORDS)


async def test_a_stream_goes_on_with_what_it_showed(api: Api) -> None:
    call = ToolCall("terminal", call_id="c1", arguments="{}", message_id="m0")
    api.adapter.script = [call, ToolResult("terminal", call_id="c1", content="x", message_id="t1"), *HELLO]
    _, made = await api.ask("POST", "/v1/responses", {"input": "Hi"}, X_Hermes_Tools="transparent")
    path = f"/v1/responses/{made['id']}?stream=true"
    _, whole = await api.ask("GET", path, X_Hermes_Tools="transparent")
    _, rest = await api.ask("GET", f"{path}&starting_after=3")
    assert rest == [one for one in whole if one["sequence_number"] > 3]


async def test_a_run_s_reader_that_comes_back_into_a_merged_text(api: Api) -> None:
    api.adapter.script = [MessageStart("m1"), *map(MessageChunk, WORDS), TurnFinished()]
    _, run = await api.ask("POST", "/v1/runs", {"input": "Hi"})
    await until(lambda: api.adapter.submitted[-1].log.closed)
    turn = api.adapter.submitted[-1]
    _, told = await api.ask("GET", f"/v1/runs/{run['run_id']}/events?after={turn.id}.7")
    assert told[0]["event"] == "message.revised" and told[0]["message_id"] == "m1"
    rest = [one["delta"] for one in told if one["event"] == "message.delta"]
    assert told[0]["text"].startswith("0 1 ") and told[0]["text"] + "".join(rest) == "".join(WORDS)


async def test_the_key_of_a_run_that_could_not_begin_whose_caller_has_left(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, gate = {"input": "Hi"}, asyncio.Event()
    opened = Door.open

    async def fails(*args: Any, **more: Any) -> Any:
        await gate.wait()
        raise AguiError(503, "starting", "Not yet.")

    monkeypatch.setattr(Door, "open", fails)
    request = asyncio.create_task(api.ask("POST", "/v1/runs", body, Idempotency_Key="k"))
    await asyncio.sleep(0.1)
    request.cancel()
    await asyncio.wait([request])
    await asyncio.sleep(0.1)  # the server learns of it
    gate.set()
    await asyncio.sleep(0)
    monkeypatch.setattr(Door, "open", opened)
    status, run = await api.ask("POST", "/v1/runs", body, Idempotency_Key="k")
    assert status == 202
    assert (await api.ask("GET", f"/v1/runs/{run['run_id']}"))[0] == 200


async def test_keys_of_runs_are_forgotten_without_a_restart(api: Api) -> None:
    store = api.adapter.archive.store
    store.keep_run("anna", "old", RunRecord("", "c", "t", 0, "r"))
    store.keep_run("anna", "new", RunRecord("", "c", "t", 0, "r"))
    store.execute("UPDATE runs SET at = 0 WHERE key = 'old'")
    assert api.adapter.settings is not None and not api.adapter.settings.retention_days
    api.adapter._prune()
    assert store.run("anna", "old") is None and store.run("anna", "new") is not None


async def test_a_queued_run_that_is_stopped_as_its_turn_begins(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, gate, submit = api.adapter, Gate(), api.adapter.submit
    assert adapter.settings is not None
    monkeypatch.setattr(adapter, "settings", adapter.settings.model_copy(update={"busy": "queue"}))
    monkeypatch.setattr(adapter._server, "settings", adapter.settings)
    adapter.script = [*HELLO[:2], gate, TurnFinished()]
    body = {"input": "Hi", "session_id": "s"}
    await api.ask("POST", "/v1/runs", body)
    adapter.submitted[0].enter()

    async def slowly(turn: Turn) -> None:
        await submit(turn)
        await asyncio.Event().wait()  # the gateway has the message, and has not said so yet

    monkeypatch.setattr(adapter, "submit", slowly)
    adapter.script = HELLO[:2]
    _, run = await api.ask("POST", "/v1/runs", body)
    assert run["status"] == "queued"
    gate.open()
    await until(lambda: len(adapter.submitted) == 2)
    _, told = await api.ask("POST", f"/v1/runs/{run['run_id']}/stop")
    assert told["status"] == "cancelled" and adapter.submitted[1].done.is_set()
