"""Parts of a user's message, by cases: what reaches the gateway, what the model is told, what the history keeps."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from agui_adapter.hermes.media import Fetched, FetchError, message_type
from agui_adapter.media_in import Taken, take_in

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 40


class Shelf:
    """Keeps what is put on it, and has one file of its own."""

    full = False

    def __init__(self) -> None:
        self.put_there: list[tuple[bytes, str, str, str]] = []

    def put(self, data: bytes, name: str, mime: str, kind: str) -> str | None:
        if self.full:
            return None
        self.put_there.append((data, name, mime, kind))
        return f"/files/{len(self.put_there)}"

    def take(self, address: str) -> tuple[bytes, str, str] | None:
        return (PNG, "image/png", "mine.png") if address == "/files/mine" else None


async def get(url: str, limit: int) -> Fetched:
    """The web."""
    if url == "https://web.test/cat.jpg":
        return Fetched(JPEG, "image/jpeg")
    if url == "https://web.test/notes":
        return Fetched(b"some notes", "text/plain; charset=utf-8")
    raise FetchError("its address is not allowed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hermes's caches are below its home."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def data(value: bytes | str, mime: str = "image/png", kind: str = "image", **more: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else base64.b64encode(value).decode()
    return {"type": kind, "source": {"type": "data", "value": text, "mimeType": mime}, **more}


def url(value: str, kind: str = "image", **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "url", "value": value}, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def take(shelf: Shelf, *parts: dict[str, Any], limit: int = 1000, most: int = 16) -> Taken:
    messages = [{"id": "u1", "role": "user", "content": list(parts)}]
    return asyncio.run(take_in(messages, shelf, max_bytes=limit, max_parts=most, get=get))


def kept(taken: Taken) -> list[dict[str, Any]]:
    (message,) = taken.messages
    content: list[dict[str, Any]] = message["content"]
    return content


def test_an_image_is_cached_and_kept_as_an_address_with_the_same_id_and_metadata(shelf: Shelf, tmp_path: Path) -> None:
    about = {"id": "p1", "metadata": {"filename": "cat.png", "x": 1}}
    taken = take(shelf, text("look"), data(PNG, **about))
    assert taken.text == "look"
    (media,) = taken.media
    assert (media.mime, media.kind, Path(media.path).read_bytes()) == ("image/png", "image", PNG)
    assert Path(media.path).is_relative_to(tmp_path)
    assert taken.notes == ()
    assert kept(taken) == [
        text("look"),
        {"type": "image", "source": {"type": "url", "value": "/files/1", "mimeType": "image/png"}, **about},
    ]
    assert shelf.put_there == [(PNG, "cat.png", "image/png", "image")]


def test_an_image_alone_has_no_text(shelf: Shelf) -> None:
    taken = take(shelf, data(PNG))
    assert (taken.text, len(taken.media)) == ("", 1)


def test_the_bytes_tell_the_type_of_an_image(shelf: Shelf) -> None:
    taken = take(shelf, data(JPEG, "image/png"), data(PNG, "application/pdf", "document"))
    assert [(one.mime, one.kind, Path(one.path).suffix) for one in taken.media] == [
        ("image/jpeg", "image", ".jpg"),
        ("image/png", "image", ".png"),
    ]


@pytest.mark.parametrize("value", ["data:image/png;base64,", ""])
def test_base64_may_be_wrapped_unpadded_urlsafe_or_a_data_address(shelf: Shelf, value: str) -> None:
    plain = base64.b64encode(PNG + b"\xff\xfe\xfb").decode()
    odd = plain.replace("+", "-").replace("/", "_").rstrip("=")
    taken = take(shelf, data(value + plain), data(value + odd[:20] + "\n" + odd[20:]))
    assert [one[0] for one in shelf.put_there] == [PNG + b"\xff\xfe\xfb"] * 2
    assert len(taken.media) == 2


def test_a_data_address_as_a_url_is_data(shelf: Shelf) -> None:
    taken = take(shelf, url("data:image/png;base64," + base64.b64encode(PNG).decode()))
    assert len(taken.media) == 1
    assert kept(taken)[0]["source"]["value"] == "/files/1"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (data("not base64 at all!"), "its data is not base64"),
        (data("AAAAA"), "its data is not base64"),
        (data(""), "it is empty"),
        (data(b"x" * 1001, "application/zip", "document"), "it is larger than 1000 bytes"),
        (data("A" * 5000, "application/zip", "document"), "it is larger than 1000 bytes"),
        (data(b"<!doctype html><p>", "image/png"), "it is not an image but text/html"),
        (data(b"no picture", "image/png"), "it is not an image"),
        (data(b"no picture", "text/plain"), "it is not an image"),
        (data(b"<html>", "audio/ogg", "audio"), "it is not audio but text/html"),
        (url("http://169.254.169.254/"), "its address is not allowed"),
        (
            {"type": "image", "source": {"type": "file", "value": "file-1", "provider": "openai"}},
            "it is a provider's file handle, which only that provider can read",
        ),
    ],
)
def test_what_cannot_be_used_is_left_out_with_a_note(shelf: Shelf, part: dict[str, Any], why: str) -> None:
    taken = take(shelf, text("and this"), {**part, "id": "p1", "metadata": {"filename": "a.bin"}})
    assert taken.media == ()
    (note,) = taken.notes
    assert note.kind == "attachment_skipped"
    assert note.text.endswith(f"(a.bin) was left out: {why}.")
    assert taken.text == f"and this\n[{note.text}]"  # the model must not guess what it did not see
    replaced = kept(taken)[1]
    if part["source"]["type"] == "data":  # data that nobody can use is not kept
        assert replaced == {"type": "text", "text": f"[{note.text}]", "id": "p1", "metadata": {"filename": "a.bin"}}
    else:
        assert replaced["source"] == part["source"]


def test_more_than_the_most_are_left_out(shelf: Shelf) -> None:
    taken = take(shelf, *[data(PNG) for _ in range(4)], most=2)
    assert len(taken.media) == 2
    assert [note.text for note in taken.notes] == [
        "An image was left out: at most 2 attachments of a message are read."
    ] * 2


def test_a_vector_image_becomes_a_file(shelf: Shelf) -> None:
    taken = take(shelf, data(b"<svg onload='alert(1)'/>", "image/svg+xml", metadata={"filename": "x.svg"}))
    (media,) = taken.media
    assert (media.kind, media.mime, Path(media.path).name[-5:]) == (
        "document",
        "application/octet-stream",
        "x.svg"[-5:],
    )
    assert [note.kind for note in taken.notes] == ["attachment_as_file"]


def test_a_text_document_stands_in_the_message_and_is_a_file(shelf: Shelf) -> None:
    taken = take(
        shelf, text("sum this up"), data(b"a,b\n1,2\n", "text/csv", "document", metadata={"filename": "t.csv"})
    )
    assert taken.text == "[Content of t.csv]:\na,b\n1,2\n\n\nsum this up"
    (media,) = taken.media
    assert (media.kind, media.mime) == ("document", "text/csv")
    assert Path(media.path).read_bytes() == b"a,b\n1,2\n"


def test_a_binary_or_long_document_is_a_file_only(shelf: Shelf) -> None:
    pdf = data(b"%PDF-1.7 \xff", "application/pdf", "document", metadata={"filename": "../../r.pdf"})
    long = data(b"x" * 200_000, "text/plain", "document", metadata={"filename": "long.txt"})
    taken = take(shelf, text("read"), pdf, long, limit=1 << 20)
    assert taken.text == "read"
    assert [Path(one.path).name.partition("_")[0] for one in taken.media] == ["doc", "doc"]
    assert Path(taken.media[0].path).name.endswith("_r.pdf")


def test_a_command_stays_a_command(shelf: Shelf) -> None:
    taken = take(shelf, text("/background look"), data(b"words", "text/plain", "document"))
    assert taken.text == "/background look"
    assert len(taken.media) == 1


def test_text_around_attachments_keeps_its_order(shelf: Shelf) -> None:
    taken = take(
        shelf,
        text("first"),
        data(PNG, metadata={"filename": "a.png"}),
        text("then"),
        data(JPEG, metadata={"filename": "b.jpg"}),
        text("which?"),
    )
    assert taken.text == "first\n[attachment 1: a.png]\nthen\n[attachment 2: b.jpg]\nwhich?"
    assert [one.mime for one in taken.media] == ["image/png", "image/jpeg"]


def test_addresses_are_fetched_and_kept_as_they_are(shelf: Shelf) -> None:
    image, notes = url("https://web.test/cat.jpg"), url("https://web.test/notes", "document")
    taken = take(shelf, text("both"), image, notes)
    assert [(one.mime, one.kind) for one in taken.media] == [("image/jpeg", "image"), ("text/plain", "document")]
    assert taken.text.startswith("[Content of notes]:\nsome notes")
    assert kept(taken) == [text("both"), image, notes]
    assert shelf.put_there == []


def test_our_own_addresses_need_no_network(shelf: Shelf) -> None:
    mine = url("/files/mine")
    taken = take(shelf, mine)
    assert [(one.mime, one.kind) for one in taken.media] == [("image/png", "image")]
    assert kept(taken) == [mine]


def test_without_room_the_agent_still_gets_the_file(shelf: Shelf) -> None:
    shelf.full = True
    taken = take(shelf, data(PNG, metadata={"filename": "a.png"}))
    assert len(taken.media) == 1
    assert kept(taken)[0] == {
        "type": "text",
        "text": "[An image (a.png) is not kept here: there is no room.]",
        "metadata": {"filename": "a.png"},
    }


def test_sound_decides_the_type_of_the_message() -> None:
    # In a message of type AUDIO or DOCUMENT Hermes transcribes nothing.
    assert message_type(["document", "image", "audio"]).value == "voice"
    assert message_type(["document", "image"]).value == "photo"
    assert message_type(["video", "document"]).value == "video"
    assert message_type(["document"]).value == "document"
    assert message_type([]).value == "text"


def test_several_messages_are_one_input(shelf: Shelf) -> None:
    messages = [
        {"id": "u1", "role": "user", "content": "one"},
        {"id": "u2", "role": "user", "content": [text("two"), data(PNG)]},
    ]
    taken = asyncio.run(take_in(messages, shelf, max_bytes=1000, max_parts=16, get=get))
    assert (taken.text, len(taken.media)) == ("one\n\ntwo", 1)
    assert taken.messages[0] is messages[0]
