"""What is deleted is gone: from our database, byte for byte, and from the folder of files."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable

import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.attach import request, thread_of
from tests.e2e.helpers import Chat, script, unique, wait_until

KEY = "erase-test-key-0123456789"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def kept(gateway: Gateway, *marks: str) -> list[str]:
    """Which of these texts are anywhere in our database's files."""
    raw = b"".join(path.read_bytes() for path in gateway.home.glob("agui.db*"))
    return [mark for mark in marks if mark.encode() in raw]


def files(gateway: Gateway) -> int:
    return len(list((gateway.home / "agui_files").iterdir()))


def use(gateway: Gateway, chat: Chat) -> tuple[str, str]:
    """A thread with a text, a state, an inline picture and a file of the agent's; its marks."""
    said, state = unique("said"), unique("state")
    path = gateway.work_dir / f"{unique('f')}.txt"
    path.write_text("hello")
    chat.say(script({"text": f"Here. MEDIA:{path}"}, say=said), state={"note": state}).succeeded()
    part = {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}}
    chat.messages.append({"id": unique("u"), "role": "user", "content": [{"type": "text", "text": "Look."}, part]})
    chat.keep(chat.send(state={"note": state}).finish()).succeeded()
    wait_until(lambda: kept(gateway, said, state) == [said, state], "it is kept")
    return said, state


def test_a_deleted_thread_leaves_nothing(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway()
    gone, other = Chat(gateway), Chat(gateway)
    marks, others = use(gateway, gone), use(gateway, other)
    assert files(gateway) == 4
    assert request(gone, "DELETE").json() == {"threadId": gone.thread, "deleted": True}
    assert kept(gateway, *marks, gone.thread) == []
    assert files(gateway) == 2
    assert request(gone, "GET").status_code == 404
    assert kept(gateway, *others) == list(others) and thread_of(other)["messages"]
    gateway.stop()
    assert kept(gateway, *marks, gone.thread) == []


def test_all_of_a_principal(make_gateway: Callable[..., Gateway]) -> None:
    gateway = make_gateway(env={"AGUI_API_KEY": KEY})
    mine, put_aside, owners = Chat(gateway), Chat(gateway), Chat(gateway, key=KEY)
    marks = [mark for chat in (mine, put_aside) for mark in use(gateway, chat)]
    others = use(gateway, owners)
    assert request(put_aside, "PATCH", json={"archived": True}).status_code == 200
    path = "/agui/threads"
    assert request(mine, "DELETE", path).status_code == 422
    assert request(mine, "DELETE", path + "?all=1&principal=owner").status_code == 403
    assert kept(gateway, *marks, *others) == [*marks, *others]
    assert request(owners, "DELETE", path + "?all=1&principal=local").json() == {"principal": "local", "deleted": 2}
    assert kept(gateway, *marks, mine.thread, put_aside.thread) == [] and files(gateway) == 2
    assert request(mine, "GET", path).json()["total"] == 0
    assert kept(gateway, *others) == list(others)
    assert request(owners, "DELETE", path + "?all=1").json() == {"principal": "owner", "deleted": 1}
    assert kept(gateway, *others) == [] and files(gateway) == 0
    assert mine.say(script({"text": "Still here."})).succeeded().text() == "Still here."


@pytest.mark.slow
def test_what_nobody_used_is_forgotten(make_gateway: Callable[..., Gateway]) -> None:
    """Here only: Hermes's own session stays."""
    gateway = make_gateway(agui={"retention_days": 30})
    old, new = Chat(gateway), Chat(gateway)
    marks, others = use(gateway, old), use(gateway, new)
    gateway.stop()
    with contextlib.closing(sqlite3.connect(gateway.home / "agui.db", isolation_level=None)) as database:
        long_ago = time.time() - 31 * 86400
        database.execute("UPDATE threads SET updated = ? WHERE thread_id = ?", (long_ago, old.thread))
    gateway.start()
    wait_until(lambda: kept(gateway, *marks) == [], "the old thread is forgotten", 90)
    assert files(gateway) == 2 and kept(gateway, *others) == list(others)
    assert old.transcript()
