"""Files that go with a message: a path → a content part of AG-UI, with the bytes in it."""

from __future__ import annotations

import base64
import mimetypes
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..filetypes import safe_name
from .outcome import UsageError

MAX_BYTES = 64 * 2**20
"""Beyond what a server could be set to take; its own bounds (agui.max_attachment_bytes) are its own to tell."""

_KINDS = ("image", "audio", "video")


def part(path: str) -> dict[str, Any]:
    """The part that carries this file. Raises `UsageError` with a sentence."""
    file = Path(path).expanduser()
    try:
        # Looked at before it is opened: opening a pipe would wait for its writer.
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is no file")
        if status.st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES // 2**20} MiB")
        data = file.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    mime, packed = mimetypes.guess_type(file.name)
    if mime is None or packed:
        mime = "application/octet-stream" if packed or b"\0" in data[:4096] else "text/plain"
    kind = mime.partition("/")[0]
    return {
        "type": kind if kind in _KINDS else "document",
        "source": {"type": "data", "value": base64.b64encode(data).decode(), "mimeType": mime},
        "metadata": {"filename": safe_name(file.name) or "file"},
    }


def content(text: str, parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The content of a user message."""
    if not parts:
        return text
    return [*([{"type": "text", "text": text}] if text.strip() else []), *parts]
