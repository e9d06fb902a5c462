"""The gateway's calls for files that the agent sends (images, sound, films, documents, ``MEDIA:`` tags).

``FileSender`` turns Hermes's seven methods into one, ``send_file``, and one for pictures elsewhere, ``send_address``;
the adapter does the rest. Every path is judged by Hermes's own rule again: not every caller of these methods did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from gateway.platforms.base import BasePlatformAdapter, SendResult

from .attachments import shown
from .files import FileError, Files, Owner
from .hermes.media import allowed_path, is_web_address, local_path
from .stream import Attachment

if TYPE_CHECKING:
    from .cycle import Cycle
    from .session import Thread

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
        return await self.send_address(chat_id, image_url, caption=caption, metadata=metadata)

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
        path: str,
        *,
        name: str | None = None,
        caption: str | None = None,
        metadata: Metadata = None,
    ) -> SendResult:
        """Send a file of this machine."""
        raise NotImplementedError

    async def send_address(
        self, chat_id: str, url: str, *, caption: str | None = None, metadata: Metadata = None
    ) -> SendResult:
        """Send a picture elsewhere."""
        raise NotImplementedError


async def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, SendResult]) -> SendResult:
    """Run a coroutine on the adapter's loop, whatever loop this is."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def stored(
    files: Files, thread: Thread, cycle: Cycle | None, path: str, message_id: str, name: str, caption: str
) -> Attachment:
    """A copy of the file, and the event that tells of it. Raises FileError."""
    allowed = await asyncio.to_thread(allowed_path, path)
    if allowed is None or files.own(allowed):
        raise FileError("it is not there, or may not be sent")
    owner = Owner(thread.principal.id, thread.chat_id, cycle.turn.id if cycle is not None else "")
    record = await asyncio.to_thread(files.send, owner, allowed, message_id=message_id, name=name, caption=caption)
    return files.attachment(record)


async def pointed(
    files: Files, thread: Thread, cycle: Cycle | None, url: str, message_id: str, caption: str
) -> Attachment:
    """The event that tells of a picture elsewhere. Raises FileError."""
    if not is_web_address(url):
        raise FileError("its address is none that can be shown")
    owner = Owner(thread.principal.id, thread.chat_id, cycle.turn.id if cycle is not None else "")
    record = await asyncio.to_thread(files.point, owner, url, message_id=message_id, name=caption, caption=caption)
    return files.attachment(record)


__all__ = ["FileSender", "on_loop", "pointed", "shown", "stored"]
