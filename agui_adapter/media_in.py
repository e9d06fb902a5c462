"""What a user's message carries beside text → what Hermes's platforms hand to its pipeline: cached files and types.

A part that cannot be used is left out, told to the person by a note and to the model by a line in the text; it never
fails a run. The message that is kept for the history has addresses of our own in the place of inline data. On the
gateway's loop; the heavy work runs on threads. Knows neither HTTP nor the gateway.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import mimetypes
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from .filetypes import clean_mime, extension_of, safe_name, sniffed
from .hermes.media import MAX_INLINE_BYTES, Fetched, FetchError, Kind, cache, fetch, inlined, is_text, shown_as_image

logger = logging.getLogger("hermes_agui")

Message = dict[str, Any]
Part = dict[str, Any]

MEDIA = ("image", "audio", "video", "document")
_AT_ONCE = 3  # attachments in memory, of one request
_SECONDS = 60.0  # for all attachments of a request: behind that none is begun

_DEFAULT = {"image": "image/png", "audio": "audio/ogg", "video": "video/mp4", "document": "application/octet-stream"}


@dataclass(frozen=True)
class Media:
    """One attachment as the gateway takes it: a local file and its MIME type."""

    path: str
    mime: str
    kind: Kind


@dataclass(frozen=True)
class Note:
    """A part that was left out, or is not what it says: for a notice, and for the model."""

    kind: str
    text: str


@dataclass(frozen=True)
class Taken:
    """A message with its parts read. ``messages``: the client's, as the history keeps them."""

    text: str
    messages: list[Message] = field(default_factory=list)
    media: tuple[Media, ...] = ()
    notes: tuple[Note, ...] = ()


class Shelf(Protocol):
    """Where the data of a message is kept for those who read the thread later (``files.Files``)."""

    def put(self, data: bytes, name: str, mime: str, kind: Kind) -> str | None:
        """Keep bytes; their address, None when there is no room. Blocks."""

    def take(self, address: str) -> tuple[bytes, str, str] | None:
        """Bytes, type and name behind an address of ours that this caller may read; None for any other. Blocks."""


class _Unusable(Exception):
    """Why a part cannot be used, as the end of a sentence."""


@dataclass(frozen=True)
class _Read:
    """A part's content, and what it is."""

    data: bytes
    mime: str
    name: str
    kind: Kind
    note: Note | None = None


@dataclass(frozen=True)
class _Done:
    """A part that is stored: how the gateway takes it, its text if that is short, and the part as it is kept."""

    media: Media
    name: str
    part: Part
    text: str | None = None
    note: Note | None = None


async def take_in(
    messages: Sequence[Message],
    shelf: Shelf,
    *,
    max_bytes: int,
    max_parts: int,
    get: Callable[[str, int], Awaitable[Fetched]] = fetch,
) -> Taken:
    """Read the parts of these user messages. ``max_bytes`` of one attachment, ``max_parts`` of each message."""
    texts: list[str] = []
    kept: list[Message] = []
    media: list[Media] = []
    notes: list[Note] = []
    documents: list[str] = []
    few = asyncio.Semaphore(_AT_ONCE)
    deadline = asyncio.get_running_loop().time() + _SECONDS

    async def done(part: Part, number: int) -> _Done | _Unusable:
        if number >= max_parts:
            return _Unusable(f"at most {max_parts} attachments of a message are read")
        async with few:
            if asyncio.get_running_loop().time() > deadline:
                return _Unusable("those before it took too long")
            return await _handle(part, shelf, max_bytes, get)

    for message in messages:
        content = message.get("content")
        if not isinstance(content, list):
            kept.append(message)
            texts.append(str(content or ""))
            continue
        carried = [part for part in content if part.get("type") in MEDIA]
        results = iter(await asyncio.gather(*(done(part, number) for number, part in enumerate(carried))))
        # Hermes has one text and the attachments beside it: where text stands around one, its place is marked.
        marked = len(content) - len(carried) > 1
        lines: list[str] = []
        parts: list[Part] = []
        for part in content:
            if part.get("type") not in MEDIA:
                lines.append(part["text"])
                parts.append(part)
                continue
            result = next(results)
            if isinstance(result, _Unusable):
                sentence = f"{_called(part)} was left out: {result}."
                notes.append(Note("attachment_skipped", sentence))
                lines.append(f"[{sentence}]")
                parts.append(_remark(part, sentence) if _inline(part) else part)
                continue
            media.append(result.media)
            parts.append(result.part)
            if marked:
                lines.append(f"[attachment {len(media)}: {result.name}]")
            if result.text is not None:
                documents.append(inlined(result.name, result.text))
            if result.note is not None:
                notes.append(result.note)
        kept.append({**message, "content": parts})
        texts.append("\n".join(lines))
    text = "\n\n".join(one for one in texts if one.strip())
    if not text.startswith("/"):  # a command's line stays what it is
        text = "\n\n".join([*documents, text] if text else documents)
    return Taken(text, kept, tuple(media), tuple(notes))


def name_of(part: Part) -> str:
    """The file name that a part brings, made safe; empty if it brings none."""
    given = _told_name(part)
    if not given:
        source = part.get("source") or {}
        value = source.get("value")
        if source.get("type") == "url" and isinstance(value, str) and value[:5].lower() != "data:":
            try:
                given = unquote(urlsplit(value).path.rpartition("/")[2])
            except ValueError:
                given = ""
    return safe_name(given)


def _told_name(part: Part) -> str:
    metadata = part.get("metadata")
    given = metadata.get("filename") or metadata.get("name") if isinstance(metadata, dict) else None
    return given if isinstance(given, str) else ""


# -- one part --------------------------------------------------------------------------------------------------------


async def _handle(
    part: Part, shelf: Shelf, limit: int, get: Callable[[str, int], Awaitable[Fetched]]
) -> _Done | _Unusable:
    """Read and store a part, or say why it cannot be used. Its bytes are let go of here."""
    try:
        read = await _content(part, shelf, limit, get)
        return await asyncio.to_thread(_store, part, read, shelf)
    except _Unusable as error:
        return error
    except FetchError as error:
        return _Unusable(str(error))
    except (ValueError, OSError):
        logger.warning("agui: an attachment could not be stored", exc_info=True)
        return _Unusable("it could not be stored here")


async def _content(part: Part, shelf: Shelf, limit: int, get: Callable[[str, int], Awaitable[Fetched]]) -> _Read:
    source = part["source"]
    value, mime, name = source["value"], clean_mime(source.get("mimeType")), name_of(part)
    if source["type"] == "file":
        raise _Unusable("it is a provider's file handle, which only that provider can read")
    if _inline(part):
        data, told = await asyncio.to_thread(_decoded, value, limit)
        mime = mime or told
    elif (own := await asyncio.to_thread(shelf.take, value)) is not None:
        data, mime, kept = own
        name = safe_name(_told_name(part)) or kept
    else:
        fetched = await get(value, limit)
        data, mime = fetched.data, mime or clean_mime(fetched.mime)
    if not data:
        raise _Unusable("it is empty")
    if len(data) > limit:
        raise _Unusable(_too_large(limit))
    return _judged(part["type"], data, mime, name)


def _judged(declared: Kind, data: bytes, mime: str, name: str) -> _Read:
    """What a part really is. Raises _Unusable when it is not what it says and nothing else that can be used."""
    kind, note, seen = declared, None, sniffed(data)
    if seen.startswith("image/"):
        kind, mime = "image", seen  # whatever it is called: providers refuse a picture under a wrong type
    elif kind == "image" and (seen or not mime.startswith("image/") or shown_as_image(mime)):
        raise _Unusable("it is not an image" + (f" but {seen}" if seen else ""))
    elif kind in ("audio", "video") and seen:
        raise _Unusable(f"it is not {kind} but {seen}")
    elif not mime or (kind in ("audio", "video") and not mime.startswith(f"{kind}/")):
        guessed = clean_mime(mimetypes.guess_type(name)[0])
        mime = guessed if guessed.startswith(kind) or (kind == "document" and guessed) else seen or _DEFAULT[kind]
    name = name or declared + extension_of(mime, "")
    if kind == "image" and not shown_as_image(mime):
        kind = "document"
        if declared == "image":
            note = Note("attachment_as_file", f"{name} is no picture that a model can see; the agent has it as a file.")
    return _Read(data, mime, name, kind, note)


def _store(part: Part, read: _Read, shelf: Shelf) -> _Done:
    """Into Hermes's cache, and on the shelf what came as data. On a thread."""
    path = cache(read.kind, read.data, read.name, extension_of(read.mime, read.name))
    mime, text = read.mime, None
    if read.kind == "document":
        text = _text_of(read)
        if text is not None:
            mime = mime if mime.startswith("text/") else "text/plain"
        elif mime.partition("/")[0] in MEDIA:  # by such a type Hermes would route it as what it is not
            mime = "application/octet-stream"
    if _inline(part):
        address = shelf.put(read.data, read.name, read.mime, read.kind)
        if address is None:
            part = _remark(part, f"{_called(part)} is not kept here: there is no room.")
        else:
            part = {**part, "source": {"type": "url", "value": address, "mimeType": read.mime}}
    return _Done(Media(path, mime, read.kind), read.name, part, text, read.note)


def _decoded(value: str, limit: int) -> tuple[bytes, str]:
    """Inline data: base64, or a ``data:`` address. Whether its bytes or its type are right is not judged here."""
    mime = ""
    if value[:5].lower() == "data:":
        head, comma, value = value[5:].partition(",")
        if not comma:
            raise _Unusable("its data cannot be read")
        mime = clean_mime(head)
        if not head.lower().endswith(";base64"):
            return unquote_to_bytes(value), mime
    if len(value) > limit * 4 // 3 + limit // 16 + 16:  # line breaks are allowed for
        raise _Unusable(_too_large(limit))
    compact = re.sub(r"\s+", "", value).translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True), mime
    except (binascii.Error, ValueError):
        raise _Unusable("its data is not base64") from None


def _text_of(read: _Read) -> str | None:
    """The text of a text document that is short enough to stand in the message."""
    if len(read.data) > MAX_INLINE_BYTES or not is_text(extension_of(read.mime, read.name), read.mime):
        return None
    try:
        return read.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _inline(part: Part) -> bool:
    source = part["source"]
    return bool(source["type"] == "data" or (source["type"] == "url" and source["value"][:5].lower() == "data:"))


def _remark(part: Part, sentence: str) -> Part:
    own: Part = {key: part[key] for key in ("id", "metadata") if key in part}
    return {**own, "type": "text", "text": f"[{sentence}]"}


def _called(part: Part) -> str:
    name = name_of(part)
    what = {"image": "An image", "audio": "An audio file", "video": "A video", "document": "A document"}[part["type"]]
    return f"{what} ({name})" if name else what


def _too_large(limit: int) -> str:
    size = f"{limit / 2**20:.3g} MiB" if limit >= 2**20 else f"{limit} bytes"
    return f"it is larger than {size}"
