"""The gateway's calls for files that the agent sends (images, sound, films, documents, ``MEDIA:`` tags).

``FileSender`` turns Hermes's seven methods into one, ``send_file``; the adapter does the rest. Every path is judged by
Hermes's own rule again: not every caller of these methods did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gateway.platforms.base import BasePlatformAdapter, SendResult

from .files import FileError, Files, Owner
from .hermes.media import allowed_path, is_web_address, local_path
from .stream import Attachment

Metadata = dict[str, Any] | None


class FileSender(BasePlatformAdapter):
    """Hermes's methods for files. They may be called on any loop (a tool's own, for one)."""

    async def send_image(
        self,
        chat_id: str,
        image_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
    ) -> SendResult:
        """A picture by its address; ``file:`` is one of this machine's."""
        path = local_path(image_url)
        if path is not None:
            return await self.send_file(chat_id, path, caption=caption, metadata=metadata)
        return await self.send_file(chat_id, image_url, caption=caption, metadata=metadata, address=True)

    async def send_image_file(
        self,
        chat_id: str,
        image_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """A picture; ``send_multiple_images`` and ``send_animation`` end here or in ``send_image``."""
        return await self.send_file(chat_id, image_path, caption=caption, metadata=metadata)

    async def send_voice(
        self,
        chat_id: str,
        audio_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Sound, spoken answers too (``play_tts``)."""
        return await self.send_file(chat_id, audio_path, caption=caption, metadata=metadata)

    async def send_video(
        self,
        chat_id: str,
        video_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """A film."""
        return await self.send_file(chat_id, video_path, caption=caption, metadata=metadata)

    async def send_document(
        self,
        chat_id: str,
        file_path: str,
        caption: str | None = None,
        file_name: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Any other file."""
        return await self.send_file(chat_id, file_path, name=file_name, caption=caption, metadata=metadata)

    async def send_file(
        self,
        chat_id: str,
        what: str,
        *,
        name: str | None = None,
        caption: str | None = None,
        metadata: Metadata = None,
        address: bool = False,
    ) -> SendResult:
        """Send a file of this machine, by its path, or a picture elsewhere, by its ``address``."""
        raise NotImplementedError


async def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, SendResult]) -> SendResult:
    """Run a coroutine on the adapter's loop, whatever loop this is."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def stored(files: Files, owner: Owner, path: str, *, message_id: str, name: str, caption: str) -> Attachment:
    """A copy of the file, and the event that tells of it. Raises FileError. Blocks."""
    allowed = allowed_path(path)
    if allowed is None or files.own(allowed):
        raise FileError("it is not there, or may not be sent")
    return files.attachment(files.send(owner, allowed, message_id=message_id, name=name, caption=caption))


def pointed(files: Files, owner: Owner, url: str, *, message_id: str, caption: str) -> Attachment:
    """The event that tells of a picture elsewhere. Raises FileError. Blocks."""
    if not is_web_address(url):
        raise FileError("its address is none that can be shown")
    return files.attachment(files.point(owner, url, message_id=message_id, name=caption, caption=caption))
