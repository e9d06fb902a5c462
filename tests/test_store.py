"""The store: made from nothing, migrated, damaged, not writable, used by many threads; it never makes a turn fail."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agui_adapter.store import VERSION, RunRecord, Store, store_path

OLD = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE threads (
    chat_id TEXT PRIMARY KEY, principal TEXT NOT NULL, thread_id TEXT NOT NULL, title TEXT NOT NULL DEFAULT '',
    created REAL NOT NULL, updated REAL NOT NULL, archived INTEGER NOT NULL DEFAULT 0, context TEXT NOT NULL DEFAULT ''
);
CREATE TABLE ids (
    session_id TEXT NOT NULL, row_id INTEGER NOT NULL, wire_id TEXT NOT NULL DEFAULT '', turn_id TEXT NOT NULL,
    PRIMARY KEY (session_id, row_id)
);
INSERT INTO meta VALUES ('version', '1');
INSERT INTO threads VALUES ('local.a', 'local', 'a', 'A title', 1.0, 2.0, 0, 'ctx');
INSERT INTO ids VALUES ('s1', 7, 'm7', 'turn-1');
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agui.db"


def opened(path: Path) -> Store:
    store = Store(path)
    store.open()
    return store


def filled(path: Path) -> Store:
    store = opened(path)
    store.touch_thread("local.a", "local", "a")
    store.begin_turn("turn-1", "local.a", [{"id": "u1", "role": "user", "content": "hi"}], "r1")
    store.end_turn("turn-1", "s1", "success", {1: "u1", 2: "m1"}, [1, 2, 3], times={1: 10.0}, facts={2: '{"text":"x"}'})
    return store


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """The file itself, beside any store; closed afterwards, which sqlite3's own context is not."""
    with closing(sqlite3.connect(path)) as db, db:
        yield db


def version_of(path: Path) -> str:
    with database(path) as db:
        return str(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])


def on_disk(path: Path) -> bool:
    """The store writes to this file, not to memory."""
    store = opened(path)
    store.touch_thread("local.proof", "local", "proof")
    store.close()
    again = opened(path)
    found = again.thread("local.proof") is not None
    again.close()
    return found


def test_what_was_written_is_there_after_a_restart(path: Path) -> None:
    filled(path).close()
    store = opened(path)
    record = store.thread("local.a")
    assert record is not None and record.thread_id == "a"
    assert store.accepted_ids("local.a") == ["u1"]
    assert [(row, wire, turn, outcome) for row, wire, turn, outcome, _ in store.remembered(["s1"])] == [
        (1, "u1", "turn-1", "success"),
        (2, "m1", "turn-1", "success"),
        (3, "", "turn-1", "success"),
    ]
    assert store.facts(["s1"]) == {2: '{"text":"x"}'}
    assert store.times(["s1"]) == {1: 10.0, 2: 0.0, 3: 0.0}
    assert store.outcome("turn-1") == "success" and store.outcome("turn-9") == ""
    assert version_of(path) == str(VERSION)


@pytest.mark.parametrize("content", [None, b""], ids=["no file", "an empty file"])
def test_a_file_is_made(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    assert on_disk(path)
    assert version_of(path) == str(VERSION)


def test_a_file_of_the_first_version_is_migrated_with_what_it_holds(path: Path) -> None:
    with database(path) as db:
        db.executescript(OLD)
    store = opened(path)
    record = store.thread("local.a")
    assert record is not None and record.title == "A title"
    assert store.context("local.a") == "ctx" and store.system("local.a") == ""
    assert [found[:2] for found in store.remembered(["s1"])] == [(7, "m7")]
    assert store.times(["s1"]) == {7: 0.0} and store.facts(["s1"]) == {}
    store.set_system("local.a", "Be brief.")
    store.end_turn("turn-2", "s1", "success", {8: "m8"}, [8], times={8: 1.0})
    store.close()
    assert version_of(path) == str(VERSION)
    again = opened(path)
    assert again.system("local.a") == "Be brief."
    assert [found[:2] for found in again.remembered(["s1"])] == [(7, "m7"), (8, "m8")]


def test_a_file_of_a_later_version_is_used_and_keeps_its_version(path: Path) -> None:
    filled(path).close()
    with database(path) as db:
        db.execute("UPDATE meta SET value = '99'")
        db.execute("ALTER TABLE threads ADD COLUMN later TEXT DEFAULT ''")
    store = opened(path)
    store.touch_thread("local.b", "local", "b")
    assert {one.thread_id for one in store.threads("local")} == {"a", "b"}
    store.close()
    assert version_of(path) == "99"


@pytest.mark.parametrize("damage", ["garbage", "half", "version"])
def test_a_damaged_file_is_put_aside_and_begun_anew(path: Path, damage: str) -> None:
    filled(path).close()
    if damage == "garbage":
        path.write_bytes(b"this is no database" * 1000)
    elif damage == "half":
        path.write_bytes(path.read_bytes()[:5000] + b"\xff" * 9000)
    else:
        with database(path) as db:
            db.execute("UPDATE meta SET value = 'two'")
    Path(f"{path}-wal").write_bytes(b"left by the damaged file")
    assert on_disk(path)
    aside = [one.name for one in path.parent.iterdir() if ".damaged-" in one.name]
    assert any(not name.endswith(("-wal", "-shm")) for name in aside), aside
    store = opened(path)
    assert store.thread("local.a") is None
    store.touch_thread("local.a", "local", "a")
    assert store.thread("local.a") is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        _lives_in_memory(path)
    finally:
        path.parent.chmod(0o700)


def test_a_directory_that_is_not_there(path: Path) -> None:
    _lives_in_memory(path.parent / "gone" / "agui.db")


def test_a_file_that_another_process_holds_is_left_alone(path: Path) -> None:
    filled(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store = Store(path, wait_seconds=0.1)
        store.open()
        store.touch_thread("local.b", "local", "b")
        assert store.thread("local.b") is not None  # in memory
        other.execute("ROLLBACK")
    assert [one.name for one in path.parent.iterdir() if "damaged" in one.name] == []
    assert opened(path).thread("local.a") is not None


def _lives_in_memory(path: Path) -> None:
    store = filled(path)
    assert store.thread("local.a") is not None
    assert store.accepted_ids("local.a") == ["u1"]
    assert not path.exists()
    store.close()


def test_after_the_end_nothing_raises(path: Path) -> None:
    store = filled(path)
    store.close()
    store.close()
    store.touch_thread("local.b", "local", "b")
    store.end_turn("turn-1", "s1", "success", {}, [1])
    assert store.threads("local") == [] and store.run("local", "k") is None and store.outcome("turn-1") == ""


def test_a_file_that_breaks_while_it_is_used_makes_nothing_fail(path: Path) -> None:
    store = filled(path)
    with database(path) as db:
        db.execute("DROP TABLE ids")
        db.execute("DROP TABLE turns")
    store.begin_turn("turn-2", "local.a", [], "r2")
    store.end_turn("turn-2", "s1", "success", {1: "m"}, [1])
    assert [row[0] for row in store.remembered(["s1"])] == [1]  # the tables are there again
    assert store.thread("local.a") is not None


@pytest.mark.parametrize("damage", ["deleted", "emptied"])
def test_a_file_that_is_lost_while_it_is_used_is_begun_anew(path: Path, damage: str) -> None:
    store = filled(path)
    for one in path.parent.glob(f"{path.name}*"):
        if damage == "deleted":
            one.unlink()
        elif not one.name.endswith("-shm"):  # SQLite has that one in memory: to cut it ends any process
            one.write_bytes(b"")
    store.touch_thread("local.new", "local", "new")
    store.touch_thread("local.new", "local", "new")
    store.close()
    kept = opened(path).thread("local.new")
    assert kept is not None and kept.thread_id == "new"


def test_many_threads_at_once(path: Path) -> None:
    store = opened(path)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                name = f"turn-{number}-{turn}"
                store.touch_thread(f"local.{number}", "local", str(number))
                store.begin_turn(name, f"local.{number}", [{"id": name}], name)
                rows = [1000 * number + 10 * turn + index for index in range(5)]
                store.end_turn(name, f"s{number}", "success", {row: f"m{row}" for row in rows}, rows)
                store.keep_run("local", name, RunRecord("d", f"local.{number}", name, 0, name))
                assert store.run("local", name) is not None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(store.threads("local")) == 8
    assert len(store.remembered([f"s{number}" for number in range(8)])) == 8 * 20 * 5
    assert len(store.accepted_ids("local.3")) == 20


def test_two_processes_may_have_it(path: Path) -> None:
    one, other = opened(path), opened(path)
    one.touch_thread("local.a", "local", "a")
    other.touch_thread("local.b", "local", "b")
    assert len(one.threads("local")) == len(other.threads("local")) == 2


def test_deleting_a_thread_leaves_nothing_of_it_and_all_of_others(path: Path) -> None:
    store = filled(path)
    store.touch_thread("local.b", "local", "b")
    store.begin_turn("turn-b", "local.b", [{"id": "ub"}], "rb")
    store.end_turn("turn-b", "s2", "success", {9: "ub"}, [9])
    store.add_late("local.a", "late-1", 2, "late")
    store.add_beside("turn-1", "local.a", "s1", 2, [])
    store.keep_run("local", "k", RunRecord("d", "local.a", "turn-1", 0, "r1"))
    store.delete_thread("local.a")
    store.close()
    with database(path) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        left = "".join(str(db.execute(f"SELECT * FROM {table}").fetchall()) for table in tables)
    assert "local.a" not in left and "turn-1" not in left and "m1" not in left
    assert "local.b" in left and "turn-b" in left


def test_what_hermes_has_not_is_kept_beside_and_goes_with_a_rewind(path: Path) -> None:
    store = filled(path)
    store.begin_turn("turn-2", "local.a", [{"id": "u2"}], "r2")
    store.add_beside("turn-2", "local.a", "s1", 3, [{"id": "m2"}])
    store.begin_turn("turn-3", "local.a", [{"id": "u3"}], "r3")
    store.add_beside("turn-3", "local.a", "s1", 7, [{"id": "m3"}])
    assert store.beside("local.a", ["s1"]) == [(3, [{"id": "u2"}, {"id": "m2"}]), (7, [{"id": "u3"}, {"id": "m3"}])]
    assert store.beside("local.a", ["s2"]) == [] == store.beside("local.b", ["s1"])
    store.forget_beside("local.a", 5)
    assert [after for after, _ in store.beside("local.a", ["s1"])] == [3]


def test_rows_that_hermes_wrote_anew_keep_their_ids(path: Path) -> None:
    store = filled(path)
    store.begin_turn("turn-2", "local.a", [{"id": "u2"}], "r2")
    store.add_beside("turn-2", "local.a", "s1", 3, [])
    store.add_late("local.a", "late-1", 2, "late")
    store.move_rows("local.a", {1: 11, 2: 12, 3: 13})
    assert [found[:2] for found in store.remembered(["s1"])] == [(11, "u1"), (12, "m1"), (13, "")]
    assert [after for after, _ in store.beside("local.a", ["s1"])] == [13]
    assert [after for _, after, _ in store.late("local.a")] == [12]


def test_keys_of_runs_are_of_a_principal_and_are_forgotten_after_their_time(path: Path) -> None:
    store = filled(path)
    store.keep_run("local", "k", RunRecord("d", "local.a", "turn-1", 3, "r1"))
    assert store.run("local", "k") == RunRecord("d", "local.a", "turn-1", 3, "r1")
    assert store.run("owner", "k") is None
    store.prune(run_days=1)
    assert store.run("local", "k") is not None
    store.close()
    with database(path) as db:
        db.execute("UPDATE runs SET at = ?", (time.time() - 8 * 86400,))
    assert opened(path).run("local", "k") is None


def test_threads_are_listed_newest_first_by_principal(path: Path) -> None:
    store = opened(path)
    for number in range(3):
        store.touch_thread(f"local.{number}", "local", str(number))
    store.touch_thread("owner.x", "owner", "x")
    store.set_thread("local.1", title="One", archived=True)
    assert [one.thread_id for one in store.threads("local")] == ["2", "0"]
    assert [one.title for one in store.threads("local", archived=True)] == ["One"]
    assert len(store.threads(None)) == 3


def test_nobody_else_of_this_machine_reads_it(tmp_path: Path) -> None:
    path = store_path(tmp_path)
    for _ in range(2):  # made, and begun anew after a damage
        store = Store(path)
        store.open()
        store.touch_thread("c", "p", "t")
        modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.glob("agui.db*") if "damaged" not in one.name}
        assert set(modes.values()) == {0o600}, modes
        store.close()
        path.write_bytes(b"this is no database" * 1000)
        path.chmod(0o644)
