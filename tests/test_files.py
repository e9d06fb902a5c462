"""Files that clients can fetch: copies under unguessable ids, signed links, room, time."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from agui_adapter.attachments import activity, messages, shown
from agui_adapter.files import FileError, Files, Owner, Shelf, refusal
from agui_adapter.store import Store
from agui_adapter.stream import Attachment

OWNER = Owner("alice", "alice.t", "turn-1")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "agui.db")
    made.open()
    return made


def make(store: Store, folder: Path, *, ttl: float = 3600, most: int = 1 << 20) -> Files:
    files = Files(store, folder / "agui_files", ttl_seconds=ttl, most_bytes=most)
    files.open()
    return files


@pytest.fixture
def files(store: Store, tmp_path: Path) -> Files:
    return make(store, tmp_path)


def source(tmp_path: Path, name: str = "report.txt", data: bytes = b"hello") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def test_what_the_agent_sends_is_copied(files: Files, tmp_path: Path) -> None:
    path = source(tmp_path)
    record = files.send(OWNER, path, message_id="m1", caption="Look")
    Path(path).write_bytes(b"changed")
    kept = files.path(record)
    assert kept is not None and kept.read_bytes() == b"hello"
    assert oct(kept.stat().st_mode)[-3:] == "600"
    assert (record.name, record.mime, record.size, record.kind) == ("report.txt", "text/plain", 5, "document")
    assert files.find(record.file_id) == record
    assert re.fullmatch(r"[0-9a-f]{32}", record.file_id)
    assert files.was_sent(os.path.realpath(path))


@pytest.mark.parametrize(
    ("name", "data", "mime", "kind"),
    [
        ("a.png", PNG, "image/png", "image"),
        ("a.jpg", PNG, "image/png", "image"),
        ("a.png", b"<html><script>", "text/html", "document"),
        ("clip.mp4", b"\0\0\0 ftyp", "video/mp4", "video"),
        ("voice.ogg", b"OggS", "audio/ogg", "audio"),
        ("Makefile", b"all:\n\techo", "text/plain", "document"),
        ("blob", b"\0\1\2", "application/octet-stream", "document"),
    ],
)
def test_types_are_told_by_bytes_and_name(
    files: Files, tmp_path: Path, name: str, data: bytes, mime: str, kind: str
) -> None:
    record = files.send(OWNER, source(tmp_path, name, data), message_id="m1")
    assert (record.mime, record.kind) == (mime, kind)


def test_a_link_is_signed_for_one_file_and_one_time(files: Files, tmp_path: Path) -> None:
    first = files.send(OWNER, source(tmp_path), message_id="m1")
    other = files.send(OWNER, source(tmp_path), message_id="m2")
    files.base = "http://127.0.0.1:1"
    match = re.fullmatch(r"http://127\.0\.0\.1:1/files/(\w+)\?expires=(\d+)&signature=(\w+)", files.link(first))
    assert match is not None
    assert files.signed(match[1], match[2], match[3])
    assert not files.signed(other.file_id, match[2], match[3])
    assert not files.signed(match[1], str(int(match[2]) + 1), match[3])
    assert not files.signed(match[1], match[2], "é")
    assert not files.signed(match[1], "²", match[3])
    assert files.link(first) == files.link(first)


def test_links_hold_over_a_restart(files: Files, store: Store, tmp_path: Path) -> None:
    record = files.send(OWNER, source(tmp_path), message_id="m1")
    again = make(store, tmp_path)
    found = again.find(record.file_id)
    assert found is not None and again.path(found) is not None
    assert again.link(found) == files.link(record)


def test_bytes_go_with_their_time_and_the_record_stays(store: Store, tmp_path: Path) -> None:
    files = make(store, tmp_path, ttl=-1)
    record = files.send(OWNER, source(tmp_path), message_id="m1")
    assert files.path(record) is None
    files.sweep()
    assert list((tmp_path / "agui_files").iterdir()) == []
    assert files.find(record.file_id) == record
    assert files.sent_in("alice.t") == [record]


def test_a_sweep_leaves_what_is_alive_and_what_is_in_the_making(files: Files, tmp_path: Path) -> None:
    record = files.send(OWNER, source(tmp_path), message_id="m1")
    young, old = (tmp_path / "agui_files" / name for name in ("0" * 32, "1" * 32))
    young.write_bytes(b"x")
    old.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    files.sweep()
    assert {path.name for path in (tmp_path / "agui_files").iterdir()} == {record.file_id, "0" * 32}


def test_the_oldest_make_room(store: Store, tmp_path: Path) -> None:
    files = make(store, tmp_path, most=4000)
    records = []
    for number in range(5):
        records.append(files.send(OWNER, source(tmp_path, data=bytes(900)), message_id=f"m{number}"))
        kept = files.path(records[-1])
        assert kept is not None
        os.utime(kept, (1000 + number,) * 2)
    assert [files.path(record) is not None for record in records] == [False, True, True, True, True]


def test_a_file_too_large_for_the_room_is_not_sent(store: Store, tmp_path: Path) -> None:
    files = make(store, tmp_path, most=4000)
    with pytest.raises(FileError, match="it has 1001 bytes, at most 1000 are served"):
        files.send(OWNER, source(tmp_path, data=bytes(1001)), message_id="m1")
    assert files.keep(OWNER, bytes(1001), "a", "text/plain", "document") is None


def test_a_file_that_is_gone_is_an_error_without_its_path(files: Files, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"^it could not be read$"):
        files.send(OWNER, str(tmp_path / "missing"), message_id="m1")
    assert refusal("/home/me/secret/plan.txt", "why") == "The agent wanted to send plan.txt, but why."


def test_a_shelf_gives_its_own_principals_files_only(files: Files) -> None:
    shelf, stranger = Shelf(files, OWNER), Shelf(files, Owner("bob", "bob.t"))
    address = shelf.put(PNG, "a.png", "image/png", "image")
    assert address is not None
    assert shelf.take(address) == (PNG, "image/png", "a.png")
    assert shelf.take("https://elsewhere.test" + address) == (PNG, "image/png", "a.png")
    assert stranger.take(address) is None
    assert shelf.take("/files/" + "0" * 32) is None
    assert shelf.take("https://web.test/a.png") is None


def test_links_in_kept_messages_are_made_anew_for_their_owner_only(files: Files) -> None:
    address = Shelf(files, OWNER).put(PNG, "a.png", "image/png", "image")
    assert address is not None
    part = {"type": "image", "source": {"type": "url", "value": address, "mimeType": "image/png"}}
    foreign = {"type": "image", "source": {"type": "url", "value": "https://web.test/files/x"}}
    kept = [
        {"id": "u", "role": "user", "content": [part, foreign, {"type": "text", "text": address}]},
        {"id": "a", "role": "assistant", "content": f"![a]({address})"},
    ]
    files.base = "https://new.test"
    user, assistant = files.relinked(kept, "alice")
    assert user["content"][0]["source"] == {
        "type": "url",
        "value": "https://new.test" + address,
        "mimeType": "image/png",
    }
    assert user["content"][1:] == [foreign, {"type": "text", "text": address}]
    assert assistant["content"] == f"![a](https://new.test{address})"
    unsigned = address.partition("?")[0] + "?expires=1&signature=0"
    forged = [{"id": "u", "role": "user", "content": [{**part, "source": {"type": "url", "value": unsigned}}]}]
    assert files.relinked(forged, "bob") == forged  # nobody gets a signature for another's file


def test_our_own_files_are_known(files: Files, tmp_path: Path) -> None:
    record = files.send(OWNER, source(tmp_path), message_id="m1")
    assert files.own(str(files.path(record)))
    assert files.own(str(tmp_path / "agui.db")) and files.own(str(tmp_path / "agui.db-wal"))
    assert not files.own(str(tmp_path / "report.txt")) and not files.own("/tmp/agui.db")


def test_a_thread_takes_its_files_with_it(files: Files, tmp_path: Path) -> None:
    mine = files.send(OWNER, source(tmp_path), message_id="m1")
    other = files.send(Owner("alice", "alice.u"), source(tmp_path), message_id="m1")
    files.forget("alice.t")
    assert files.find(mine.file_id) is None
    assert files.find(other.file_id) == other
    assert [path.name for path in (tmp_path / "agui_files").iterdir()] == [other.file_id]


def test_a_picture_elsewhere_is_only_pointed_at(files: Files) -> None:
    record = files.point(OWNER, "https://web.test/a.gif?x=1", message_id="m1", caption="A cat")
    file = files.attachment(record)
    assert (file.url, file.mime, file.kind) == ("https://web.test/a.gif?x=1", "image/gif", "image")


def test_a_file_is_a_picture_or_a_link_in_the_text() -> None:
    image = Attachment("m1", "f1", "/files/f1", "my [cat]_1.png", "image/png", 3, "image", "A cat.\n")
    assert shown(image) == "![my \\[cat\\]\\_1.png](/files/f1)\n\nA cat."
    assert shown(Attachment("m1", "f1", "/files/f1", "a.pdf")) == "[a.pdf](/files/f1)"
    assert activity(image, "m1") == {
        "url": "/files/f1",
        "name": "my [cat]_1.png",
        "mimeType": "image/png",
        "size": 3,
        "kind": "image",
        "caption": "A cat.\n",
        "messageId": "m1",
    }
    assert [message["id"] for message in messages(image)] == ["m1-file", "m1"]
