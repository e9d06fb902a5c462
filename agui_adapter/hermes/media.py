"""The seam, part for media: Hermes's caches, its guard for addresses, its rules for files that the agent sends.

Nothing here knows a wire. Written for 0.19.0; where a name is private to it, what depends on it is said beside it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies

import httpx
from gateway.platforms import base
from gateway.platforms.base import BasePlatformAdapter, MessageType

logger = logging.getLogger("hermes_agui")

Kind = Literal["image", "audio", "video", "document"]

FETCH_SECONDS = 30.0
MAX_REDIRECTS = 5
MAX_INLINE_BYTES = 100 * 1024  # of a text document inside the message, as Hermes's own platforms have it

_AGENT = "Mozilla/5.0 (compatible; HermesAgent/1.0)"
_ALONE = re.compile(r"^[ \t]*MEDIA:[ \t]*(?P<path>(?:~?/|[A-Za-z]:[/\\])[^\s`\"']+)[ \t]*$\n?", re.MULTILINE)
_NOT_HEARD = "[voice message could not be transcribed]"  # run.py, _enrich_message_with_transcription
_NOT_SEEN = ("[The user sent an image but I couldn't quite see it", "[The user sent an image but something went wrong")


class FetchError(Exception):
    """An address whose content cannot be had; the text is a reason for people, without the address."""


@dataclass(frozen=True)
class Fetched:
    """What an address gave: the bytes, and the type that its server named (empty if it named none)."""

    data: bytes
    mime: str = ""


# -- in ------------------------------------------------------------------------------------------------------------


def cache(kind: Kind, data: bytes, name: str, extension: str) -> str:
    """Write into Hermes's cache for this kind and return the path, as its own platforms do. Blocks.

    Raises ValueError for bytes that Hermes refuses (no image; beyond gateway.max_inbound_media_bytes), OSError when the
    disk does not take them.
    """
    if kind == "image":
        return str(base.cache_image_from_bytes(data, extension))
    if kind == "audio":
        return str(base.cache_audio_from_bytes(data, extension))
    if kind == "video":
        return str(base.cache_video_from_bytes(data, extension))
    if hasattr(base, "validate_inbound_media_size"):  # before 0.18 Hermes has no bound of its own
        base.validate_inbound_media_size(len(data), media_type="document")
    return str(base.cache_document_from_bytes(data, name))


def shown_as_image(mime: str) -> bool:
    """Whether a picture of this type reaches a model as one (agent/image_routing.py transcodes BMP with Pillow)."""
    if mime == "image/bmp":
        return importlib.util.find_spec("PIL") is not None
    return mime in ("image/png", "image/jpeg", "image/gif", "image/webp")


def is_text(extension: str, mime: str) -> bool:
    """Whether Hermes puts documents of this type into the message itself, up to ``MAX_INLINE_BYTES``."""
    # Before 0.18 each of Hermes's platforms has a short list of its own.
    return extension.lower() in getattr(base, "_TEXT_INJECT_EXTENSIONS", ()) or mime.startswith("text/")


def inlined(name: str, text: str) -> str:
    """A text document inside a message, in the words that Hermes's platforms use."""
    display = re.sub(r"[^\w.\- ]", "_", name)
    return f"[Content of {display}]:\n{text}"


def message_type(kinds: Iterable[str]) -> MessageType:
    """The type of a message with these attachments. Each is routed by its own MIME type (run.py, _event_media_is_*).

    Sound comes first: in a message of type AUDIO or DOCUMENT it is not transcribed.
    """
    found = set(kinds)
    for kind, made in (
        ("audio", MessageType.VOICE),
        ("image", MessageType.PHOTO),
        ("video", MessageType.VIDEO),
        ("document", MessageType.DOCUMENT),
    ):
        if kind in found:
            return made
    return MessageType.TEXT


def trouble(user_message: str) -> list[tuple[str, str]]:
    """What Hermes could not do with the attachments of this message, as (kind, sentence) for notices.

    Hermes tells only the model (run.py, _enrich_message_with_*); the person is told by this.
    """
    found = []
    if _NOT_HEARD in user_message:
        found.append(
            (
                "not_transcribed",
                "The audio could not be transcribed (is speech-to-text set up? see `stt` in Hermes's configuration).",
            )
        )
    if any(mark in user_message for mark in _NOT_SEEN):
        found.append(("image_not_seen", "The model cannot see images, and describing this one for it failed."))
    return found


async def fetch(url: str, limit: int) -> Fetched:
    """The content of an http(s) address, at most ``limit`` bytes, in at most ``FETCH_SECONDS``. Raises FetchError.

    Guarded as Hermes's own downloads are (tools/url_safety.py): no private or internal address, at each redirect again,
    and, as far as no proxy stands between, the address that was really connected to.
    """
    most = base.get_inbound_media_max_bytes() if hasattr(base, "get_inbound_media_max_bytes") else 0
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            return await _fetch(url, min(limit, most) if most > 0 else limit)
    except TimeoutError:
        raise FetchError("its server did not answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        logger.info("agui: an attachment was not fetched: %s", type(error).__name__)
        raise FetchError("its server could not be reached") from None


async def _fetch(url: str, limit: int) -> Fetched:
    from tools.url_safety import async_is_safe_url, normalize_url_for_request

    # Not compressed: a few bytes may become many, and the limit is on what arrives.
    headers = {"User-Agent": _AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    async with httpx.AsyncClient(timeout=10.0, follow_redirects=False) as client:
        for _ in range(MAX_REDIRECTS + 1):
            url = normalize_url_for_request(url)
            if not await async_is_safe_url(url):
                raise FetchError("its address is not allowed")
            async with client.stream("GET", url, headers=headers) as response:
                if not getproxies():
                    await _check_peer(response)
                target = response.headers["location"] if response.has_redirect_location else None
                if target is not None:
                    url = urljoin(url, target)
                    continue
                if response.status_code != 200:
                    raise FetchError(f"its server answered {response.status_code}")
                return Fetched(await _body(response, limit), response.headers.get("content-type", ""))
    raise FetchError("its address redirects too often")


async def _check_peer(response: httpx.Response) -> None:
    """The guard looked a name up; a name server may have given the connection another address since."""
    from tools.url_safety import async_is_safe_url

    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if not peer:
        return
    host = f"[{peer[0]}]" if ":" in peer[0] else peer[0]
    if not await async_is_safe_url(f"http://{host}/"):
        raise FetchError("its address is not allowed")


async def _body(response: httpx.Response, limit: int) -> bytes:
    declared = response.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise FetchError(f"it is larger than {limit} bytes")
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > limit:
            raise FetchError(f"it is larger than {limit} bytes")
    return bytes(data)


# -- out -----------------------------------------------------------------------------------------------------------


def allowed_path(path: str) -> str | None:
    """The file that may be sent for a path that the agent names, else None. Hermes's own rule; blocks."""
    allowed = BasePlatformAdapter.validate_media_delivery_path(path)
    return str(allowed) if allowed else None


def local_path(address: str) -> str | None:
    """The path of a ``file:`` address, as ``send_multiple_images`` gets them; None for any other."""
    return unquote(address[7:]) if address.startswith("file://") else None


def tagged_files(text: str) -> list[str]:
    """The paths that a text's ``MEDIA:`` tags name and that may not be sent: people are told of those."""
    if "media:" not in text.lower():
        return []
    named, cleaned = BasePlatformAdapter.extract_media(text)
    refused = [path for path, _ in named if allowed_path(path) is None]
    return refused + [found["path"] for found in _ALONE.finditer(_unprotected(cleaned))]


def sends_files(text: str) -> bool:
    """Whether the gateway may send files with this answer: tagged ones, pictures by address, paths that exist
    (base.py, _process_message_background). Looks at the disk."""
    found = (
        BasePlatformAdapter.extract_media,
        BasePlatformAdapter.extract_images,
        BasePlatformAdapter.extract_local_files,
    )
    return "media:" in text.lower() or "[[" in text or any(extract(text)[0] for extract in found)


def without_tags(text: str, sent: Callable[[str], bool] = lambda path: False) -> str:
    """The text as a person sees it: without the ``MEDIA:`` tags and directives that Hermes takes out.

    Hermes leaves a tag with an unknown extension where its file cannot be sent; one that is a line of its own is taken
    out here all the same. ``sent`` says whether a path was sent once: a file that is gone by now must not bring its tag
    back.
    """
    if "media:" not in text.lower() and "[[a" not in text:
        return text
    _, cleaned = BasePlatformAdapter.extract_media(text)
    for match in reversed(list(_ALONE.finditer(_unprotected(cleaned)))):
        cleaned = cleaned[: match.start()] + cleaned[match.end() :]
    without_extension = getattr(base, "MEDIA_EXTENSIONLESS_TAG_RE", None)  # before 0.18 such a file is not sent
    for match in reversed(list(without_extension.finditer(_unprotected(cleaned))) if without_extension else []):
        path = base._normalize_media_tag_path(match.group("path"))
        if path and sent(os.path.realpath(os.path.expanduser(path))):
            cleaned = cleaned[: match.start()] + cleaned[match.end() :]
    return cleaned.strip() if cleaned != text else text


def _unprotected(text: str) -> str:
    masked = BasePlatformAdapter._mask_protected_spans(text)
    return str(BasePlatformAdapter._mask_json_string_media(masked))


def kind_of(mime: str) -> Kind:
    """The kind of a file that is sent, by its type."""
    main = mime.partition("/")[0]
    if main in ("image", "audio", "video"):
        return main  # type: ignore[return-value]
    return "document"


def is_web_address(address: str) -> bool:
    """Whether an address may be shown to a client as it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
