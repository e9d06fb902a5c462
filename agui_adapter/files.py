"""Files that clients can fetch: what the agent sent, and what users sent as inline data.

Each is a copy under its own unguessable id in ``<HERMES_HOME>/agui_files``, recorded in the store: what the agent
names may change or vanish the moment after. It is there for ``file_ttl_seconds``, as long as there is room
(``file_store_bytes``); its record stays, so that a conversation still shows that there was something. Everything here
blocks: call it from a worker thread. Knows no HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import mimetypes
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from .filetypes import clean_mime, safe_name, sniffed
from .hermes.media import Kind, kind_of
from .store import FileRecord, Store
from .stream import Attachment

logger = logging.getLogger("hermes_agui")

Message = dict[str, Any]

PREFIX = "/files/"
_ADDRESS = re.compile(r"(?:https?://[^/?#]*)?/files/([0-9a-f]{32})(?:\?[^#]*)?\Z")
_IN_TEXT = re.compile(r"(?:https?://[^/?#\s()]*)?/files/[0-9a-f]{32}\?expires=\d+&signature=[0-9a-f]+")


class FileError(Exception):
    """A file that cannot be sent; the text is the end of a sentence for people, without a path."""


@dataclass(frozen=True)
class Owner:
    """Whose file it is, and where it belongs."""

    principal: str
    chat_id: str
    turn_id: str = ""


class Files:
    """All files of one adapter. Thread-safe."""

    def __init__(self, store: Store, folder: Path, *, ttl_seconds: float, most_bytes: int) -> None:
        self._store = store
        self._folder = folder
        self._ttl = ttl_seconds
        self._most = most_bytes
        self._secret = b""
        self.base = ""  # scheme, host and port before every link; set when the server knows its port

    def open(self) -> None:
        """Make the folder, read the secret that links are signed with, remove what is not recorded."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secret = self._store.secret("files").encode()
        self.sweep()

    # -- keeping --------------------------------------------------------------------------------------------------

    def send(self, owner: Owner, path: str, *, message_id: str, name: str = "", caption: str = "") -> FileRecord:
        """Copy a file that the agent sends. ``path`` has been allowed. Raises FileError."""
        source = Path(path)
        try:
            size = source.stat().st_size
            if size > self._most // 4:
                raise FileError(f"it has {size} bytes, at most {self._most // 4} are served (agui.file_store_bytes)")
            self._make_room(size)
            file_id = secrets.token_hex(16)
            with source.open("rb") as opened, self._new(file_id) as made:
                shutil.copyfileobj(opened, made, 1 << 20)
                size = made.tell()
                opened.seek(0)
                head = opened.read(2048)
        except OSError as error:
            logger.warning("agui: a file was not copied: %s", error.strerror or type(error).__name__)
            raise FileError("it could not be read") from None
        name = safe_name(name) or safe_name(source.name) or "file"
        mime = _type_of(name, head)
        return self._record(
            file_id, owner, name, mime, size, kind_of(mime), message_id, caption, os.path.realpath(path)
        )

    def keep(self, owner: Owner, data: bytes, name: str, mime: str, kind: Kind) -> FileRecord | None:
        """Keep bytes that a user sent; None when they are too many for the room there is."""
        if len(data) > self._most // 4:
            return None
        file_id = secrets.token_hex(16)
        try:
            self._make_room(len(data))
            with self._new(file_id) as made:
                made.write(data)
        except OSError:
            logger.exception("agui: a file was not kept")
            return None
        return self._record(file_id, owner, name, mime, len(data), kind)

    def point(self, owner: Owner, url: str, *, message_id: str, name: str = "", caption: str = "") -> FileRecord:
        """A picture elsewhere that the agent sends by its address. It is not copied."""
        now = int(time.time())
        record = FileRecord(
            secrets.token_hex(16),
            owner.principal,
            owner.chat_id,
            owner.turn_id,
            message_id,
            safe_name(name) or "image",
            clean_mime(mimetypes.guess_type(url.partition("?")[0])[0]) or "image/png",
            kind="image",
            caption=caption,
            url=url,
            created=now,
            expires=now,
        )
        self._store.add_file(record)
        return record

    def _record(
        self,
        file_id: str,
        owner: Owner,
        name: str,
        mime: str,
        size: int,
        kind: str,
        message_id: str = "",
        caption: str = "",
        source: str = "",
    ) -> FileRecord:
        now = int(time.time())
        record = FileRecord(
            file_id,
            owner.principal,
            owner.chat_id,
            owner.turn_id,
            message_id,
            name,
            mime,
            size,
            kind,
            caption,
            source,
            created=now,
            expires=now + int(self._ttl),
        )
        self._store.add_file(record)
        return record

    def _new(self, file_id: str) -> Any:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have cleaned up
        return os.fdopen(os.open(self._path(file_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _path(self, file_id: str) -> Path:
        return self._folder / file_id

    # -- finding --------------------------------------------------------------------------------------------------

    def find(self, file_id: str) -> FileRecord | None:
        """A file's record, also of one that is gone."""
        return self._store.file(file_id)

    def path(self, record: FileRecord) -> Path | None:
        """Where its bytes lie; None when they are gone or over their time."""
        path = self._path(record.file_id)
        return path if record.expires > time.time() and path.is_file() else None

    def link(self, record: FileRecord) -> str:
        """The address for its reader, with a signature that holds as long as the file: no header is needed."""
        if record.url:
            return record.url
        signature = self._signature(record.file_id, record.expires)
        return f"{self.base}{PREFIX}{record.file_id}?expires={record.expires}&signature={signature}"

    def attachment(self, record: FileRecord) -> Attachment:
        """A file that the agent sent, as the event that tells of it."""
        return Attachment(
            record.message_id,
            record.file_id,
            self.link(record),
            record.name,
            record.mime,
            record.size,
            cast(Kind, record.kind),
            record.caption,
        )

    def signed(self, file_id: str, expires: str, signature: str) -> bool:
        """Whether this is the signature of a link of ours; whether it is over is told by the file."""
        if not (expires.isascii() and expires.isdecimal()) or len(expires) > 15 or not signature.isascii():
            return False
        return hmac.compare_digest(self._signature(file_id, int(expires)), signature)

    def _signature(self, file_id: str, expires: int) -> str:
        return hmac.new(self._secret, f"{file_id}.{expires}".encode(), hashlib.sha256).hexdigest()[:43]

    def take(self, owner: Owner, address: str) -> tuple[bytes, str, str] | None:
        """Bytes, type and name behind one of our links that this principal may read; None for anything else."""
        record = self._own(owner, address)
        path = self.path(record) if record is not None else None
        if record is None or path is None:
            return None
        try:
            return path.read_bytes(), record.mime, record.name
        except OSError:
            return None

    def _own(self, owner: Owner, address: str) -> FileRecord | None:
        match = _ADDRESS.match(address)
        record = self._store.file(match[1]) if match is not None else None
        return record if record is not None and record.principal == owner.principal else None

    def own(self, path: str) -> bool:
        """Whether a path is one of ours: our files and our database are for nobody as such."""
        home = os.path.realpath(self._folder.parent)
        below = os.path.relpath(os.path.realpath(path), home)
        return below.split(os.sep)[0] == self._folder.name or below.startswith("agui.db")

    def was_sent(self, path: str) -> bool:
        """Whether the agent once sent the file at this path."""
        return self._store.file_sent(path)

    # -- showing --------------------------------------------------------------------------------------------------

    def sent_in(self, chat_id: str) -> list[FileRecord]:
        """What the agent sent in a thread, oldest first."""
        return [record for record in self._store.files_of(chat_id) if record.message_id]

    def relinked(self, messages: Sequence[Message], principal: str) -> list[Message]:
        """Messages as they were kept, with links that hold where this server is reached now."""
        owner = Owner(principal, "")
        return [self._relinked(message, owner) for message in messages]

    def _relinked(self, message: Message, owner: Owner) -> Message:
        content = message.get("content")
        if isinstance(content, list):
            return {**message, "content": [self._part(part, owner) for part in content]}
        if isinstance(content, str) and PREFIX in content and message.get("role") == "assistant":
            return {**message, "content": _IN_TEXT.sub(lambda found: self._again(found[0], owner), content)}
        return message

    def _part(self, part: dict[str, Any], owner: Owner) -> dict[str, Any]:
        source = part.get("source") or {}
        if source.get("type") != "url" or PREFIX not in source["value"]:
            return part
        return {**part, "source": {**source, "value": self._again(source["value"], owner)}}

    def _again(self, address: str, owner: Owner) -> str:
        record = self._own(owner, address)
        return self.link(record) if record is not None else address

    # -- forgetting -----------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove bytes that are over their time or belong to no record."""
        now, alive = time.time(), set()
        for record in self._store.files_alive():
            if record.expires > now:
                alive.add(record.file_id)
            else:
                self._remove(self._path(record.file_id))
        for changed, _, path in self._listed():
            # One without a record may be in the making.
            if path.name not in alive and (self._store.file(path.name) is not None or now - changed > 3600):
                self._remove(path)

    def forget(self, chat_id: str) -> None:
        """A thread is deleted, and its files with it."""
        for record in self._store.files_of(chat_id):
            self._remove(self._path(record.file_id))
        self._store.delete_files(chat_id)

    def _make_room(self, size: int) -> None:
        """The oldest files go when there is no room for another."""
        there = sorted(self._listed())
        over = sum(one[1] for one in there) + size - self._most
        for _, freed, path in there:
            if over <= 0:
                return
            self._remove(path)
            over -= freed

    def _listed(self) -> list[tuple[float, int, Path]]:
        """What is in the folder: time of its last change, bytes, path. Another thread may remove files meanwhile."""
        found = []
        with suppress(OSError):
            for path in self._folder.iterdir():
                with suppress(OSError):
                    about = path.stat()
                    if stat.S_ISREG(about.st_mode):
                        found.append((about.st_mtime, about.st_size, path))
        return found

    def _remove(self, path: Path) -> None:
        with suppress(OSError):
            path.unlink()
        self._store.file_gone(path.name)


class Shelf:
    """The files of one message's sender, as ``media_in`` wants them."""

    def __init__(self, files: Files, owner: Owner) -> None:
        self._files, self._owner = files, owner

    def put(self, data: bytes, name: str, mime: str, kind: Kind) -> str | None:
        """Keep bytes; their address, None when there is no room."""
        record = self._files.keep(self._owner, data, name, mime, kind)
        return self._files.link(record) if record is not None else None

    def take(self, address: str) -> tuple[bytes, str, str] | None:
        """Bytes, type and name behind an address of ours that this sender may read."""
        return self._files.take(self._owner, address)


def _type_of(name: str, head: bytes) -> str:
    seen = sniffed(head)
    told = clean_mime(mimetypes.guess_type(name)[0])
    if seen.startswith("image/"):
        return seen
    if told.startswith("image/") and seen:
        return seen  # not a picture, whatever it is called
    return told or seen or ("text/plain" if _is_text(head) else "application/octet-stream")


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and b"\0" not in head
    return b"\0" not in head and bool(head)


def refusal(path: str, why: object) -> str:
    """What a person is told of a file that cannot be sent: its name, never its path."""
    return f"The agent wanted to send {safe_name(path) or 'a file'}, but {why}."
