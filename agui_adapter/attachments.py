"""How a file that the agent sends is shown: in the conversation's text, and as an activity for clients that draw it.

Pure. The same for a stream and for the history, so that a reload shows what was streamed.
"""

from __future__ import annotations

import re
from typing import Any

from .stream import Attachment

ACTIVITY = "hermes.attachment"


def shown(file: Attachment) -> str:
    """Markdown: a picture as one, anything else as a link; the caption below."""
    label = re.sub(r"([\\\[\]`*_<>])", r"\\\1", " ".join(file.name.split())) or "file"
    line = f"![{label}]({file.url})" if file.kind == "image" else f"[{label}]({file.url})"
    return f"{line}\n\n{file.caption.strip()}" if file.caption.strip() else line


def activity(file: Attachment, message_id: str) -> dict[str, Any]:
    """The content of the activity; ``messageId`` is the text message that shows the same, which a client may hide."""
    return {
        "url": file.url,
        "name": file.name,
        "mimeType": file.mime,
        "size": file.size,
        "kind": file.kind,
        "caption": file.caption,
        "messageId": message_id,
    }


def activity_id(message_id: str) -> str:
    """The id of the activity beside this text message."""
    return f"{message_id}-file"


def messages(file: Attachment) -> list[dict[str, Any]]:
    """Both as messages of a reloaded conversation."""
    about = {"id": activity_id(file.message_id), "role": "activity", "activityType": ACTIVITY}
    return [
        {**about, "content": activity(file, file.message_id)},
        {"id": file.message_id, "role": "assistant", "content": shown(file)},
    ]
