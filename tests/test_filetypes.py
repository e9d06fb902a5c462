"""Names that users and agents give, made safe, and types told by the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.file_routes import disposition
from agui_adapter.filetypes import MAX_NAME, clean_mime, extension_of, safe_name, sniffed


@pytest.mark.parametrize(
    ("given_name", "wanted"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\windows\\system.ini", "system.ini"),
        ("/etc/", ""),
        ("..", ""),
        (".ssh", "ssh"),
        ("a\0b\r\n.txt", "ab.txt"),
        ("gnp.exe‮gpj.txt", "gnp.exegpj.txt"),
        ("  résumé.docx ", "résumé.docx"),
        ("bad\ud800name.txt", "badname.txt"),
        ("", ""),
    ],
)
def test_names_are_made_safe(given_name: str, wanted: str) -> None:
    assert safe_name(given_name) == wanted


@given(st.text(max_size=400))
def test_any_name_is_short_and_has_no_directory(name: str) -> None:
    made = safe_name(name)
    assert len(made.encode()) <= MAX_NAME
    assert not set(made) & {"/", "\\", "\0", "\n", "\r"}
    assert made not in (".", "..")
    disposition("inline", made).encode("latin-1")


def test_a_long_name_keeps_its_extension() -> None:
    assert safe_name("x" * 300 + ".pdf").endswith("x.pdf")
    assert safe_name("é" * 300).encode().decode() == "é" * 60


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (b"\xef\xbb\xbf\n <!DOCTYPE html><p>", "text/html"),
        (b'<?xml version="1.0"?><svg xmlns="">', "image/svg+xml"),
        (b"<svg onload=alert(1)>", "image/svg+xml"),
        (b"plain words", ""),
        (b"", ""),
    ],
)
def test_bytes_show_their_type(data: bytes, mime: str) -> None:
    assert sniffed(data) == mime


def test_types_are_cleaned() -> None:
    assert clean_mime("Text/Plain; charset=utf-8") == "text/plain"
    for wrong in ("image", "image/png\r\nX: y", "a/b/c", "", None, 7, "x" * 200 + "/y"):
        assert clean_mime(wrong) == ""


def test_extensions_follow_the_type_of_media_and_the_name_of_documents() -> None:
    assert extension_of("image/png", "x.svg") == ".png"
    assert extension_of("audio/mpeg", "voice.ogg") == ".mp3"
    assert extension_of("text/plain", "a.PY") == ".py"
    assert extension_of("application/octet-stream", "noname") == ".bin"


def test_the_name_in_a_header_is_ascii_and_the_whole_name_is_beside_it() -> None:
    assert disposition("attachment", 'a"b;é.txt') == (
        "attachment; filename=\"a_b__.txt\"; filename*=UTF-8''a%22b%3B%C3%A9.txt"
    )
