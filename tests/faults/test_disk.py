"""Databases and disks that fail, of Hermes and of ours, at the start and while the gateway runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agui_adapter.demo.gateway import Gateway
from tests.e2e.asking import state
from tests.e2e.attach import history
from tests.e2e.helpers import Chat, GatedModel, script, unique, wait_until, write_plugin
from tests.faults.conftest import FAULTY, FAULTY_OPTIONS
from tests.faults.invariants import detailed, ended_once, unharmed


def _slow(value: str) -> Any:
    """A case for the slow tests: each of them starts a gateway of its own."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture
def gateway(make_gateway: Callable[..., Gateway]) -> Gateway:
    made = make_gateway(start=False, **FAULTY_OPTIONS)
    write_plugin(made.home, "faulty", FAULTY)
    made.start()
    return made


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else writes to a database for as long."""
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[None]:
    """A disk of its own at this path."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    path.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], timeout=30, check=False)


# --- Hermes's database


def test_hermes_database_is_locked_for_a_while(gateway: Gateway) -> None:
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    with unharmed(gateway):
        with locked(gateway.home / "state.db"):
            run = chat.start(script({"text": "Meanwhile."}))
            time.sleep(2)  # the lock's length is the fault
        ended_once(run).succeeded()
        assert run.text() == "Meanwhile."
    chat.keep(run)
    chat.assert_as_transcript()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hermes_database_is_locked_all_through_a_turn(gateway: Gateway) -> None:
    """Whatever Hermes makes of it: the stream ends, and the thread works when the lock is gone.

    Hermes tries each of its writes for some fifteen seconds, a handful of them behind the answer.
    """
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    with unharmed(gateway):
        with locked(gateway.home / "state.db"):
            run = ended_once(chat.start(script({"text": "Meanwhile."})), seconds=280)
        chat.keep(run)
        wait_until(lambda: state(chat)["status"] == "idle", "the thread is free")
        assert chat.say(script({"text": "Afterwards."})).succeeded().texts()[-1] == "Afterwards."
    assert len(chat.sessions()) == 1


# Root writes to any file, and a mount cannot be made read-only under a process that writes: so SQLite itself refuses,
# with the error of a file that may not be written, on every connection to Hermes's database, old and new.
READONLY = """
import gc, sqlite3

connect, on = sqlite3.connect, [False]


def lock(connection):
    files = [row[2] for row in connection.execute("PRAGMA database_list")]
    if any(str(file).endswith("/state.db") for file in files):
        connection.execute(f"PRAGMA query_only = {int(on[0])}")
        return 1
    return 0


def opened(*args, **more):
    connection = connect(*args, **more)
    lock(connection)
    return connection


sqlite3.connect = opened


async def switch(raw):
    on[0] = raw.strip() == "on"
    found = [one for one in gc.get_objects() if isinstance(one, sqlite3.Connection)]
    changed = 0
    for one in found:
        try:
            changed += lock(one)
        except sqlite3.Error:  # it is closed
            pass
    return f"{changed} connections."


def register(ctx):
    ctx.register_command("read-only", switch)
"""


def test_hermes_database_is_read_only(make_gateway: Callable[..., Gateway]) -> None:
    """On a thread that Hermes knows and on a new one: each stream ends once, and both go on when it can be written."""
    options = FAULTY_OPTIONS | {"config": {"plugins": {"enabled": ["agui", "readonly"]}}}
    gateway = make_gateway(start=False, **options)
    write_plugin(gateway.home, "readonly", READONLY)
    gateway.start()
    chat, fresh, switch = Chat(gateway), Chat(gateway), Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    with unharmed(gateway):
        assert int(switch.say("/read-only on").succeeded().text().split()[0]) >= 1
        runs = [ended_once(one.start(script({"text": "Meanwhile."}))) for one in (chat, fresh)]
        assert "readonly database" in gateway.log_text() and "did not store a turn" in gateway.log_text()
        assert "readonly" not in str([one.events for one in runs]), "what the operator's disk does is not the caller's"
        assert detailed(gateway)["sessions"] == {"stored": False, "turnsLost": 2}
        shown = [message["content"] for message in history(chat)]
        assert shown[-1] == "Meanwhile." and len(shown) == 4, "a person still sees it: it is in our store"
        switch.say("/read-only off")
        for one, run in zip((chat, fresh), runs, strict=True):
            wait_until(lambda one=one: state(one)["status"] == "idle", "the thread is free")
            assert run.succeeded().text() == "Meanwhile."
            assert [one["value"]["kind"] for one in run.of("CUSTOM")] == ["not_stored"], (
                "Hermes says it to its log alone"
            )
            assert "will not remember" in run.notices()[0]
            assert one.say(script({"text": "Afterwards."})).succeeded().texts()[-1] == "Afterwards."
            assert one.transcript()[-1]["content"] == "Afterwards."
            assert len(one.sessions()) == 1
        assert detailed(gateway)["sessions"] == {"stored": True, "turnsLost": 2}


def test_a_disk_that_is_full(model: GatedModel, tmp_path: Path) -> None:
    """Everything of Hermes and of ours lies on it."""
    home = tmp_path / "home"
    with small_disk(home, 64):
        gateway = Gateway(model, home=home, **FAULTY_OPTIONS)
        write_plugin(home, "faulty", FAULTY)
        with gateway:
            chat = Chat(gateway)
            chat.say(script({"text": "Before."})).succeeded()
            filler = home / "filler"
            with unharmed(gateway):
                with contextlib.suppress(OSError), filler.open("wb") as full:
                    while True:
                        full.write(b"x" * 65536)
                        full.flush()
                run = ended_once(chat.start(script({"text": "Meanwhile."})))
                chat.keep(run)
                fresh = Chat(gateway)
                ended_once(fresh.start(script({"text": "Meanwhile."})))
                filler.unlink()
                wait_until(lambda: state(chat)["status"] == "idle", "the thread is free")
                for one in (chat, fresh):
                    assert one.say(script({"text": "Afterwards."})).succeeded().texts()[-1] == "Afterwards."


# --- our store


@pytest.mark.slow
def test_our_store_is_locked(gateway: Gateway) -> None:
    with unharmed(gateway):
        chat = Chat(gateway)
        with locked(gateway.home / "agui.db"):
            run = chat.start(script({"text": "Meanwhile."}))
            time.sleep(1)
        ended_once(run).succeeded()
        chat.keep(run)
        chat.assert_as_transcript()


DAMAGE = b"\x00garbage\xff" * 4096


@pytest.mark.parametrize("damage", [_slow("overwritten"), "deleted", _slow("emptied")])
def test_our_store_is_lost_while_the_gateway_runs(gateway: Gateway, damage: str) -> None:
    """Turns go on; what comes later is kept again, for good (where SQLite noticed nothing: from the next start on)."""
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    store = gateway.home / "agui.db"
    with unharmed(gateway):
        for path in gateway.home.glob("agui.db*"):
            if damage == "deleted":
                path.unlink()
            elif not path.name.endswith("-shm"):  # SQLite has that one in memory: to cut it ends any process
                with path.open("r+b") as opened:
                    opened.write(DAMAGE) if damage == "overwritten" else opened.truncate(0)
        run = ended_once(chat.start(script({"text": "Meanwhile."}))).succeeded()
        chat.keep(run)
        chat.assert_as_transcript()
        assert chat.say(script({"text": "Afterwards."})).succeeded().text() == "Afterwards."
        chat.assert_as_transcript()
        later = Chat(gateway)
        later.say(script({"text": "Later."})).succeeded()
    if damage == "overwritten":
        gateway.stop()
        gateway.start()
        later.say(script({"text": "Later."})).succeeded()
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        kept = {row[0] for row in database.execute("SELECT thread_id FROM threads")}
    assert later.thread in kept
    texts = [message["content"] for message in history(later)]
    gateway.stop()
    gateway.start()
    assert [message["content"] for message in history(later)] == texts
    assert later.say(script({"text": "After the restart."})).succeeded().text() == "After the restart."


@pytest.mark.parametrize("damage", ["overwritten", *map(_slow, ("deleted", "a directory", "from the future"))])
def test_our_store_is_lost_at_the_start(gateway: Gateway, damage: str) -> None:
    chat = Chat(gateway)
    chat.say(script({"text": "Before."})).succeeded()
    gateway.stop()
    store = gateway.home / "agui.db"
    if damage == "from the future":
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as database:
            database.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    else:
        for path in gateway.home.glob("agui.db*"):
            path.unlink()
        if damage == "overwritten":
            store.write_bytes(DAMAGE)
        elif damage == "a directory":
            store.mkdir()
    gateway.start()
    with unharmed(gateway):
        # What the client has is what Hermes has, whatever the ids are now.
        assert [m["content"] for m in history(chat)][-1] == "Before."
        chat.messages = history(chat)
        assert chat.say(script({"text": "Afterwards."})).succeeded().text() == "Afterwards."
        chat.assert_as_transcript()


@pytest.mark.slow
def test_files_that_were_taken_away(gateway: Gateway) -> None:
    """The folder of files is deleted: links answer that they are gone, and new files are kept again."""
    with unharmed(gateway):
        chat = Chat(gateway)
        path = gateway.work_dir / unique("a")
        path.with_suffix(".txt").write_text("hello")
        run = chat.say(script({"text": f"Here. MEDIA:{path}.txt"})).succeeded()
        (shown,) = [event["content"] for event in run.of("ACTIVITY_SNAPSHOT")]
        link = next(value for value in shown.values() if "/files/" in str(value))
        assert httpx.get(link, trust_env=False).text == "hello"
        shutil.rmtree(gateway.home / "agui_files")
        assert httpx.get(link, trust_env=False).status_code == 410
        again = chat.say(script({"text": f"Again. MEDIA:{path}.txt"})).succeeded()
        assert again.of("ACTIVITY_SNAPSHOT"), again.notices()
