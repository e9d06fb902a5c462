"""Hermes's sessions as the seam reads them: real ones, in a temporary HERMES_HOME."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("gateway", reason="needs hermes-agent==0.19.0")

from agent.context_compressor import SUMMARY_PREFIX

from agui_adapter.history import without_reasoning
from agui_adapter.principal import Principal
from agui_adapter.store import UNSOLICITED
from agui_adapter.stream import TurnFinished
from tests.scripted import serving

LIKE_HERMES = "[System: do you read me?]"


async def test_a_compacted_session_counts_a_clients_message_that_reads_like_hermes_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        archive, thread = adapter.archive, adapter.threads.get(Principal("local"), "t")
        sessions = adapter.gateway_runner.session_store
        session = sessions.get_or_create_session(adapter.source_of(thread)).session_id
        said = [("user", LIKE_HERMES), ("assistant", "Yes."), ("user", "Go on."), ("assistant", "I do.")]
        for number, (role, text) in enumerate(said):
            sessions._db.append_message(session, role, text, timestamp=time.time() - 10 + number)
        kept = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "I do."}]
        sessions._db.archive_and_compact(session, [{"role": "user", "content": f"{SUMMARY_PREFIX} All well."}, *kept])
        assert (await archive.info(thread))["messages"] == 3, "nobody knows yet who said it"
        rows = [row.id for row in archive.sessions.rows(session)][:2]
        archive.store.begin_turn("turn-1", thread.chat_id, [{"id": "u1", "role": "user", "content": LIKE_HERMES}], "r")
        archive.store.end_turn("turn-1", session, "success", dict(zip(rows, ("u1", "a1"), strict=True)), rows)
        archive.sessions.count_again(session)
        assert (await archive.info(thread))["messages"] == len(await archive.messages(thread)) == 4


async def test_what_is_counted_is_what_the_history_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is compacted: words of Hermes's own, two messages in one row, one beside all rows."""
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        archive, thread = adapter.archive, adapter.threads.get(Principal("local"), "t")
        sessions = adapter.gateway_runner.session_store
        session = sessions.get_or_create_session(adapter.source_of(thread)).session_id

        async def counted() -> int:
            shown = len(without_reasoning(await archive.messages(thread)))
            archive.store.touch_thread(thread.chat_id, "local", "t")
            (one,), _ = await archive.find("local", "", archived=False)
            assert (await archive.info(thread))["messages"] == one["messages"] == shown
            return shown

        def said(
            turn: str, rows: list[tuple[str, str]], given: list[str], kind: str = "", outcome: str = "success"
        ) -> None:
            """A turn of these rows, that was given these messages."""
            ids = [
                sessions._db.append_message(session, *row, reasoning="So." if row[0] == "assistant" else None)
                for row in rows
            ]
            messages = [{"id": f"{turn}-{n}", "role": "user", "content": text} for n, text in enumerate(given)]
            archive.store.begin_turn(turn, thread.chat_id, messages, kind)
            wires = {ids[0]: f"{turn}-0"} if given else {}
            archive.store.end_turn(turn, session, outcome, wires, ids)
            archive.sessions.count_again(session)

        assert await counted() == 0
        said("a", [("user", "Hi."), ("assistant", "Yes.")], ["Hi."])
        assert await counted() == 2
        for internal in ("[System: go on]", "[ASYNC DELEGATION done]"):  # not shown, and the answer to it is
            said(f"b{internal}", [("user", internal), ("assistant", "Well.")], [])
        assert await counted() == 4
        said("c", [("user", LIKE_HERMES), ("assistant", "I do.")], [LIKE_HERMES])
        assert await counted() == 6
        said("d", [("user", "One.\n\nTwo."), ("assistant", "Both.")], ["One.", "Two."])
        assert await counted() == 9
        said("e", [("user", "A background result."), ("assistant", "It is done.")], [], UNSOLICITED)
        assert await counted() == 10
        said("f", [("user", "Stop."), ("assistant", "Operation interrupted.")], ["Stop."], outcome="cancelled")
        assert await counted() == 11
        await archive.deliver(thread, "cron-1", "Good morning.")
        assert await counted() == 12
        row = next(row.id for row in archive.sessions.rows(session) if row.content == "Stop.")
        sessions._db.rewind_to_message(session, row)
        assert await counted() == 11


async def test_what_an_interrupted_turn_was_given_is_shown_once_though_hermes_writes_it_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, url), httpx.AsyncClient(base_url=url) as client:
        sessions, thread = adapter.gateway_runner.session_store, adapter.threads.get(Principal("local"), "t")
        session = sessions.get_or_create_session(adapter.source_of(thread)).session_id
        answers = [("user", "Second."), ("assistant", "Yes.")]
        for number, text in enumerate(("First.", "Second.")):
            if number:
                for row in answers:
                    sessions._db.append_message(session, *row)
            else:
                threading.Timer(0.1, sessions._db.append_message, (session, "user", text)).start()
            adapter.script = [TurnFinished("success" if number else "cancelled")]
            message = {"id": f"u{number}", "role": "user", "content": text}
            body = {"threadId": "t", "runId": f"r{number}", "protocolVersion": "1.0", "messages": [message]}
            assert "RUN_FINISHED" in (await client.post("/agui", json=body)).text
            await adapter.archive.run(lambda: None)
        shown = await adapter.archive.messages(thread)
        said = [(one["id"], one["content"]) for one in shown if one["role"] == "user"]
        assert said == [("u0", "First."), ("u1", "Second.")]
