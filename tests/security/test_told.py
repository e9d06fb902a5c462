"""What is told beside the answer: questions hold no secret, and no reply tells of another's session."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.config import USER_COMMANDS
from agui_adapter.demo.gateway import Gateway
from agui_adapter.errors import AguiError
from agui_adapter.hermes.ask import ask_clarify
from agui_adapter.hermes.commands import read_command
from agui_adapter.interrupts import describe
from agui_adapter.principal import SCOPES, Principal
from agui_adapter.requests import Answer
from agui_adapter.rights import check_command
from tests.e2e.helpers import Chat, query, script
from tests.scripted import serving, until

KEYS = "sk-proj4abcdefghijklmnop1234567890", "ghp_ABCdefghijklmnop1234567890"
USER = Principal("local", scopes=frozenset(("read", "run", "approve")))


async def test_a_question_holds_no_secret_and_its_answer_is_the_agents_own_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving({}, tmp_path, monkeypatch) as (adapter, _):
        turn = adapter.new_turn(adapter.threads.get(USER, "t1"), "Hi")
        asking = asyncio.create_task(
            asyncio.to_thread(ask_clarify, adapter.requests, turn, "c1", f"Is it {KEYS[0]}?", [KEYS[1], "neither"])
        )
        await until(lambda: adapter.requests.of_turn(turn, True))
        (pending,) = adapter.requests.of_turn(turn, True)
        told = json.dumps(describe(pending.request)) + repr(turn.log.events())
        assert not [key for key in KEYS if key in told] and "neither" in told
        adapter.requests.answer(pending, Answer(text=pending.request.choices[0]), USER)
        assert await asking == KEYS[1]
        adapter.interrupt(turn)


@pytest.mark.parametrize("text", ["/title plan", "/new plan", "/reset plan", "/branch plan", "/fork plan"])
def test_a_name_by_command_needs_admin(text: str) -> None:
    command, bare = read_command(text), read_command(text.partition(" ")[0])
    assert command is not None and bare is not None
    with pytest.raises(AguiError) as caught:
        check_command(command, USER, USER_COMMANDS)
    assert caught.value.code == "command_not_allowed"
    check_command(bare, USER, USER_COMMANDS)
    check_command(command, Principal("token-admin", scopes=SCOPES), USER_COMMANDS)


def test_who_names_a_thread_is_not_told_whose_session_has_the_name(make_gateway: Callable[..., Gateway]) -> None:
    key = "the-owners-key-0123456789"
    gateway = make_gateway(agui={"user_scopes": ["read", "run", "approve"]}, env={"AGUI_API_KEY": key})
    owner, other = Chat(gateway, key=key), Chat(gateway)
    for chat in (owner, other):
        chat.say(script({"text": "Yes."}, say=chat.thread)).succeeded()
    owner.say("/title secret plan").succeeded()
    for text in ("/title secret plan", "/new secret plan", "/branch secret plan"):
        refused = other.start(text).finish()
        assert (refused.status, refused.problem()["code"]) == (403, "command_not_allowed")
        assert owner.sessions()[-1] not in refused.raw.decode()


def test_copies_titles_tell_nothing_of_others_sessions(make_gateway: Callable[..., Gateway]) -> None:
    """Hermes numbers them among everybody's sessions."""
    key = "the-owners-key-0123456789"
    gateway = make_gateway(agui={"user_scopes": ["read", "run", "approve"]}, env={"AGUI_API_KEY": key})
    other, again = Chat(gateway), Chat(gateway)
    for chat in (other, again):
        chat.say(script({"text": "Yes."}, say=chat.thread)).succeeded()
    for title in ("Merger", "Merger #2", "Merger #3"):
        Chat(gateway, key=key).say(f"/title {title}").succeeded()

    def send(method: str, path: str, body: dict[str, Any]) -> Any:
        response = httpx.request(method, gateway.url + path, json=body, timeout=60)
        assert response.status_code in (200, 201), response.text
        return response.json()

    # What she calls a thread of hers is hers, whoever has the name, and no reply of Hermes's tells it.
    assert send("PATCH", f"/agui/threads/{other.thread}", {"title": "Merger"})["title"] == "Merger"
    free = send("PATCH", f"/agui/threads/{again.thread}", {"title": "Picnic"})["title"]
    shape = r"(Merger|Picnic) \([0-9a-f]{6}\)"
    shown = [chat.say("/title").succeeded().text() for chat in (other, again)]
    assert free == "Picnic" and all(re.search(shape, text) for text in shown), shown
    # Copies are numbered among her own, by every door.
    assert send("POST", f"/agui/threads/{other.thread}/branch", {})["title"] == "Merger #2"
    fork = send("POST", f"/api/sessions/{other.thread}/fork", {})
    assert fork.get("title", fork.get("session", {}).get("title")) == "Merger #3", fork
    assert send("POST", f"/agui/threads/{again.thread}/branch", {})["title"] == "Picnic #2"
    made = [chat.say("/branch").succeeded().text() for chat in (other, again)]
    assert all(re.search(shape, text) and "#" not in text for text in made), made
    titles = sorted(row[0] for row in query(gateway, "SELECT title FROM sessions WHERE title LIKE 'Merger%'"))
    assert {"Merger", "Merger #2", "Merger #3"} < set(titles) and len(titles) == 7, titles
