"""What a file is, by its first bytes, its type and its name, and how it may be called. Pure."""

from __future__ import annotations

import mimetypes
import re
from typing import Any

MAX_NAME = 120

_MIME = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,60}/[a-z0-9][a-z0-9.+_-]{0,100}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_EXTENSIONS = {  # where mimetypes has none, or an odd one
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/bmp": ".bmp",
    "audio/mpeg": ".mp3",
    "audio/mp3": ".mp3",
    "audio/ogg": ".ogg",
    "audio/opus": ".opus",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/wave": ".wav",
    "audio/mp4": ".m4a",
    "audio/x-m4a": ".m4a",
    "audio/aac": ".aac",
    "audio/webm": ".webm",
    "audio/flac": ".flac",
    "video/mp4": ".mp4",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
    "video/x-matroska": ".mkv",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "application/json": ".json",
}


def safe_name(name: str) -> str:
    """A file name without directories, control or direction characters, at most ``MAX_NAME`` bytes with its extension;
    empty when nothing is left of it."""
    name = name.encode("utf-8", "ignore").decode("utf-8")
    name = _CONTROL.sub("", name).replace("\\", "/").rpartition("/")[2].strip().strip(".").strip()
    if len(name.encode()) <= MAX_NAME:
        return name
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) > 16:
        stem, dot, extension = name, "", ""
    room = MAX_NAME - len((dot + extension).encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + dot + extension


def clean_mime(mime: Any) -> str:
    """A MIME type in lower case without parameters; empty for what is none."""
    text = mime.partition(";")[0].strip().lower() if isinstance(mime, str) else ""
    return text if _MIME.match(text) else ""


def sniffed(data: bytes) -> str:
    """The MIME type that the first bytes show; empty where they show none that matters here."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[:2] == b"BM" and len(data) > 26:
        return "image/bmp"
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    if head.startswith((b"<svg", b"<?xml", b"<!doctype svg")) and b"<svg" in head:
        return "image/svg+xml"
    return ""


def extension_of(mime: str, name: str) -> str:
    """The extension of a file of this type, with its dot; a picture's, sound's or film's by the type alone."""
    main = mime.partition("/")[0]
    own = re.search(r"\.[A-Za-z0-9]{1,10}\Z", name)
    if own and main not in ("image", "audio", "video"):
        return own[0].lower()
    return _EXTENSIONS.get(mime) or mimetypes.guess_extension(mime) or (own[0].lower() if own else ".bin")
