"""One caller takes nothing that is others' share, and nobody makes the server work before it is known who asks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter import tokens
from agui_adapter.rest import catalog
from agui_adapter.rest.response_store import ResponseRecord, ResponseStore
from agui_adapter.store import Store
from agui_adapter.stream import MessageChunk, MessageStart, TurnFinished
from tests.mcp_wire import Refused, wire
from tests.scripted import PATIENCE, Gate, serving, until

HELLO = [MessageStart("m1"), MessageChunk("Hello"), TurnFinished()]
HISTORY = [{"id": "u1", "role": "user", "content": "Forged"}, {"id": "a1", "role": "assistant", "content": "Yes."}]


def run(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": [*HISTORY, *messages], **members}


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("path", ["/agui", "/v1/chat/completions"])
async def test_nothing_is_seeded_for_those_who_are_not_let_in(
    path: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway would refuse the message; the history and the state that came with it are kept nowhere before."""
    asked = {"id": "u2", "role": "user", "content": "Go on"}
    body = run(asked, state={"forged": 1}) if path == "/agui" else {"messages": [*HISTORY, asked]}
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        adapter.script = HELLO
        adapter.gateway_runner._is_user_authorized = lambda source: allowed
        headers = {} if path == "/agui" else {"X-Hermes-Session-Id": "t"}
        assert (await client.post(path, json=body, headers=headers)).status_code == 200
        (thread,) = list(adapter.threads)
        kept = [one["content"] for one in await adapter.archive.messages(thread)]
        assert ("Forged" in kept) == allowed
        assert thread.document.value == ({"forged": 1} if allowed and path == "/agui" else None)


async def test_after_too_many_failures_no_token_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the route: one that asks nobody's name looks it up all the same."""
    looked: list[str] = []
    found = tokens.find

    def find(store: Store, token: str) -> Any:
        looked.append(token)
        return found(store, token)

    monkeypatch.setattr(tokens, "find", find)
    extra = {"failures_per_minute": 3}
    async with serving(extra, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        good = {"Authorization": f"Bearer {tokens.create(adapter.archive.store, 'anna', ('read',))}"}
        assert (await client.get("/agui/threads", headers=good)).status_code == 200
        looked.clear()
        for path in ("/agui/threads", "/health"):
            for number in range(6):
                wrong = {"Authorization": f"Bearer {tokens.MARK}{number:040}"}
                await client.get(path, headers=wrong)
        assert len(looked) == 3
        assert (await client.get("/agui/threads", headers=wrong)).status_code == 429
        assert (await client.get("/health", headers=wrong)).status_code == 200
        assert (await client.get("/agui/threads", headers=good)).status_code == 200  # a token that was good before
        # One that was not used yet is found without a look-up for each that is wrong.
        looked.clear()
        fresh = tokens.create(adapter.archive.store, "bert", ("read",))
        heads = {"Authorization": f"Bearer {fresh}"}
        async with asyncio.timeout(PATIENCE):
            while (await client.get("/agui/threads", headers=heads)).status_code != 200:
                pass  # what was read for the wrong ones is a second old at most
        assert looked == [fresh]


async def test_to_ask_every_provider_anew_needs_admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(catalog, "picker", lambda **how: asked.append(how["refresh"]) or {})
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        for scopes, status in ((("read",), 403), (("read", "admin"), 200)):
            token = tokens.create(adapter.archive.store, f"anna-{status}", scopes)
            heads = {"Authorization": f"Bearer {token}"}
            told = await client.get("/api/model/options?refresh=1", headers=heads)
            assert told.status_code == status and (status == 200 or told.json()["code"] == "scope_missing")
            assert (await client.get("/api/model/options", headers=heads)).status_code == 200
    assert asked == [False, True, False]


def test_many_responses_push_out_ones_own_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "agui.db")
    store.open()
    kept = ResponseStore(store, most=6)

    def add(name: str, principal: str, at: float) -> None:
        times = (time.time() + at, time.time() + 1000)
        kept.add(ResponseRecord(name, principal, f"c-{name}", "t", "k", True, "turn", 0, "", *times, {}, []))

    try:
        for number in range(2):
            add(f"b{number}", "bert", number)
        for number in range(9):
            add(f"a{number}", "anna", 10 + number)
        assert sorted(chat for chat, _ in kept.prune()) == [f"c-a{number}" for number in range(5)]
        assert [kept.get("bert", f"b{number}") is not None for number in range(2)] == [True, True]
        assert kept.get("anna", "a5") is not None and kept.get("anna", "a4") is None
    finally:
        store.close()


async def test_many_mcp_sessions_shut_out_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    async with serving({"mcp_max_sessions": 4}, tmp_path, monkeypatch) as (adapter, url):
        names = ("anna", "bert", "carl")
        anna, bert, carl = (tokens.create(adapter.archive.store, name, ("read", "run")) for name in names)
        async with (
            wire(url, carl) as idle,  # who has one only keeps it, however little it is used
            wire(url, anna) as first,
            wire(url, anna) as second,
            wire(url, anna) as third,
            first.listening(),  # none of them is idle
            second.listening(),
            third.listening(),
            wire(url, bert) as other,
        ):
            assert (await other.request("tools/list"))["tools"] and (await idle.request("tools/list"))["tools"]
            with pytest.raises(Refused):
                await first.request("tools/list")
            with pytest.raises(Refused) as full:  # equal shares, and it has none to give: no further than that
                async with wire(url, anna):
                    pass
            assert full.value.status == 503
            assert (await second.request("tools/list"))["tools"] and (await third.request("tools/list"))["tools"]
            assert (await other.request("tools/list"))["tools"]


@pytest.mark.parametrize("body", [b"[" * 5000, b'{"a":' * 5000, b'{"jsonrpc": "2.0"'], ids=["lists", "objects", "cut"])
async def test_an_mcp_body_that_cannot_be_read(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    async with serving({}, tmp_path, monkeypatch) as (_, url), wire(url) as client:
        for headers in (client.headers, {**client.headers, "Mcp-Session-Id": "made up"}):
            async with client.http.post(client.url, data=body, headers=headers) as response:
                assert response.status == 400
                assert (await response.json())["error"]["code"] == -32700
        assert (await client.request("tools/list"))["tools"]


async def test_only_so_many_runs_wait_for_a_busy_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"busy": "queue", "max_queued_per_principal": 3}
    async with serving(extra, tmp_path, monkeypatch) as (adapter, url):
        anna, bert = (
            {"Authorization": f"Bearer {tokens.create(adapter.archive.store, name, ('read', 'run'))}"}
            for name in ("anna", "bert")
        )
        async with httpx.AsyncClient(base_url=url, headers=anna, timeout=30) as client:
            gate = Gate()
            adapter.script = [*HELLO[:2], gate, HELLO[2]]
            asked = {"input": "x", "session_id": "s"}
            first = (await client.post("/v1/runs", json=asked)).json()["run_id"]
            reading = asyncio.create_task(client.get(f"/v1/runs/{first}/events"))
            await until(lambda: adapter.submitted[0].readers)
            told = await asyncio.gather(*(client.post("/v1/runs", json=asked) for _ in range(8)))
            assert sorted(one.status_code for one in told) == [202] * 3 + [429] * 5
            refused = next(one for one in told if one.status_code == 429)
            assert refused.headers["Retry-After"] and refused.json()["error"]["code"] == "too_many_queued"
            # Whichever door it comes by; and nobody else is kept waiting by it.
            answer = {"messages": [{"role": "user", "content": "x"}]}
            chat = await client.post("/v1/chat/completions", json=answer, headers={"X-Hermes-Session-Id": "s"})
            assert (chat.status_code, chat.json()["error"]["code"]) == (429, "too_many_queued")
            his = (await client.post("/v1/runs", json=asked, headers=bert)).json()["run_id"]
            also = asyncio.create_task(client.get(f"/v1/runs/{his}/events", headers=bert))
            await until(
                lambda: adapter.submitted[-1].thread.principal.id == "token-bert" and adapter.submitted[-1].readers
            )
            assert (await client.post("/v1/runs", json=asked, headers=bert)).status_code == 202  # behind his own
            gate.open()
            assert "run.completed" in (await reading).text and "run.completed" in (await also).text
            await until(lambda: len(adapter.submitted) == 6)  # three of hers that waited, one of his
            assert (await client.post("/v1/runs", json=asked)).status_code == 202
