"""Hermes's sessions as the seam reads them: real ones, in a temporary HERMES_HOME."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("gateway", reason="needs hermes-agent==0.19.0")

from agent.context_compressor import SUMMARY_PREFIX

from agui_adapter.principal import Principal
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
