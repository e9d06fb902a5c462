"""What the agent sends, below the gateway: texts without tags, the tap, the translator, Hermes's methods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gateway.config import PlatformConfig
from gateway.platforms.base import SendResult

from agui_adapter.adapter import AguiAdapter
from agui_adapter.events import AguiStream
from agui_adapter.hermes.media import is_web_address, tagged_files, without_tags
from agui_adapter.log import EventLog
from agui_adapter.session import Principal, Thread
from agui_adapter.stream import Attachment, MessageChunk, MessageRevised, ToolCall, ToolResult, TurnFinished
from agui_adapter.tap import Call, Tap
from tests.reducer import decode, reduce
from tests.scripted import new_adapter

FILE = Attachment("turn-1-f1", "f1", "/files/f1", "chart.png", "image/png", 3, "image")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    path = tmp_path / "there.weird"
    path.write_text("x", "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Plain.", "Plain."),
        ("Look:\nMEDIA:/tmp/a.png\n\nGood?", "Look:\n\nGood?"),
        ("MEDIA:/tmp/a.png", ""),
        ("[[audio_as_voice]]\nMEDIA:/tmp/a.ogg", ""),
        ("media:'/tmp/a b.png' and more", "and more"),
        ("In `MEDIA:/tmp/a.png` code", "In `MEDIA:/tmp/a.png` code"),
        ("```\nMEDIA:/tmp/a.png\n```", "```\nMEDIA:/tmp/a.png\n```"),
        ("> MEDIA:/tmp/a.png", "> MEDIA:/tmp/a.png"),
        ("Look:\nMEDIA:/no/such/Makefile\nDone", "Look:\nDone"),
        ("Write MEDIA:/path/here in it", "Write MEDIA:/path/here in it"),
        ("MEDIA: is a prefix", "MEDIA: is a prefix"),
    ],
)
def test_a_text_without_its_tags(text: str, wanted: str) -> None:
    assert without_tags(text) == wanted
    assert without_tags(wanted) == wanted


def test_a_tag_of_a_file_that_was_sent_stays_away_when_the_file_is_gone(there: Path) -> None:
    text = f"Take MEDIA:{there} now"
    assert without_tags(text) == "Take now"
    there.unlink()
    assert without_tags(text) == text
    assert without_tags(text, lambda path: path == str(there)) == "Take now"


def test_tags_of_files_that_cannot_be_sent_are_found(there: Path) -> None:
    text = f"MEDIA:{there}\nMEDIA:/no/such.png\nMEDIA:/etc/passwd\n`MEDIA:/no/code.png`"
    assert tagged_files(text) == ["/no/such.png", "/etc/passwd"]


def test_addresses_that_a_client_may_be_shown() -> None:
    assert is_web_address("https://web.test/a.png")
    for wrong in ("javascript:alert(1)", "data:image/png;base64,x", "/etc/passwd", "http://", "https://[", ""):
        assert not is_web_address(wrong)


def make_tap() -> Tap:
    thread = Thread(Principal("local"), "t", "local.t")
    tap = Tap(thread.begin(EventLog(asyncio.new_event_loop())), max_result_chars=1000, shown=without_tags)
    tap.begin()
    return tap


def _events(tap: Tap, kind: type) -> list[Any]:
    return [event for event in tap.turn.log.events() if isinstance(event, kind)]


def _text(tap: Tap) -> str:
    return "".join(event.text for event in _events(tap, MessageChunk))


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_tag_is_held_back_and_the_rest_follows(size: int) -> None:
    tap, whole = make_tap(), "Look:\nMEDIA:/tmp/a.png\n\nGood?"
    for start in range(0, len(whole), size):
        tap.text(whole[start : start + size])
    assert _text(tap) == "Look:\n"
    tap.final(whole)
    tap.answer("Look:\n\nGood?")
    assert _text(tap) == "Look:\n\nGood?"
    assert _events(tap, MessageRevised) == []


def test_an_answer_of_only_a_tag_says_nothing() -> None:
    tap = make_tap()
    tap.text("MEDIA:/tmp/a.png")
    tap.final("MEDIA:/tmp/a.png")
    tap.attach(FILE)
    assert _text(tap) == ""
    assert _events(tap, Attachment) == [FILE]
    assert _events(tap, MessageRevised) == []


def test_a_tag_that_was_shown_is_corrected() -> None:
    tap = make_tap()
    tap.text("Look:\nmedia:/tmp/a.png")
    tap.final("Look:\nmedia:/tmp/a.png")
    assert [event.text for event in _events(tap, MessageRevised)] == ["Look:"]


def test_code_that_names_a_tag_arrives_whole() -> None:
    tap, whole = make_tap(), "Write `MEDIA:/tmp/a.png`, then go on."
    for char in whole:
        tap.text(char)
    assert _text(tap) == "Write `"
    tap.final(whole)
    assert _text(tap) == whole


def test_a_tag_in_a_step_with_tools_is_not_shown() -> None:
    tap = make_tap()
    tap.text("I made it. MEDIA:/tmp/a.png")
    call = Call("c1", "terminal", "{}")
    tap.answered("I made it. MEDIA:/tmp/a.png", [call], None)
    tap.committed([call])
    assert _text(tap) == "I made it. "
    assert _events(tap, MessageRevised) == []


def test_an_answer_that_ends_like_a_tag_begins_is_whole_without_a_correction() -> None:
    for ending in ("M", "[", "[[", "MEDIA", "MEDIA:"):
        tap = make_tap()
        tap.text(f"It is {ending}")
        tap.committed([])  # the stream ends before the answer is final
        tap.final(f"It is {ending}")
        assert _text(tap) == f"It is {ending}"
        assert _events(tap, MessageRevised) == []


def test_a_file_is_an_activity_and_a_message_of_its_own() -> None:
    stream = AguiStream("t", "r", prefix="turn-1")
    frames = [*stream.start(), *stream.feed(MessageChunk("So:")), *stream.feed(FILE)]
    # What comes behind a file belongs to a message of its own.
    frames += stream.feed(ToolCall("terminal", call_id="c1", message_id="turn-1-m9"))
    frames += stream.feed(ToolResult("terminal", call_id="c1", content="ok"))
    frames += stream.feed(TurnFinished())
    events = decode(frames)
    kinds = [event["type"] for event in events]
    start = kinds.index("ACTIVITY_SNAPSHOT")
    assert kinds[start - 1] == "TEXT_MESSAGE_END"
    assert kinds[start + 1 : start + 4] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert [message["id"] for message in reduce(events) if message["role"] == "assistant"] == [
        "turn-1.m1",
        "turn-1-f1",
        "turn-1-m9",
    ]
    assert stream.messages()[1] == {"id": "turn-1-f1", "role": "assistant", "content": "![chart.png](/files/f1)"}


class Recorder(AguiAdapter):
    """An adapter that only writes down what it would send."""

    def __init__(self, config: PlatformConfig) -> None:
        super().__init__(config)
        self.sent: list[tuple[str, ...]] = []

    async def send_file(self, chat_id: str, what: str, **options: Any) -> SendResult:
        kind = "address" if options.get("address") else "file"
        self.sent.append((kind, what, str(options.get("name") or ""), str(options.get("caption") or "")))
        return SendResult(success=True)


def test_hermes_has_one_way_to_send_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter: Recorder = new_adapter(Recorder, {}, tmp_path, monkeypatch)

    async def all_of_them() -> None:
        about = {"metadata": {"notify": True}}
        await adapter.send_image("c", "https://web.test/a.png", "A cat", "m1", **about)
        await adapter.send_image("c", "file:///tmp/a%20b.png", **about)
        await adapter.send_animation("c", "https://web.test/a.gif", **about)
        await adapter.send_image_file(chat_id="c", image_path="/tmp/a.png", caption="Look", **about)
        await adapter.send_voice(chat_id="c", audio_path="/tmp/a.ogg", **about)
        await adapter.play_tts(chat_id="c", audio_path="/tmp/tts.ogg", caption=None, **about)
        await adapter.send_video(chat_id="c", video_path="/tmp/a.mp4", **about)
        await adapter.send_document(chat_id="c", file_path="/tmp/a.pdf", file_name="Report.pdf", **about)
        await adapter.send_multiple_images("c", [("file:///tmp/1.png", ""), ("https://web.test/2.gif", "two")], **about)

    asyncio.run(all_of_them())
    assert adapter.sent == [
        ("address", "https://web.test/a.png", "", "A cat"),
        ("file", "/tmp/a b.png", "", ""),
        ("address", "https://web.test/a.gif", "", ""),
        ("file", "/tmp/a.png", "", "Look"),
        ("file", "/tmp/a.ogg", "", ""),
        ("file", "/tmp/tts.ogg", "", ""),
        ("file", "/tmp/a.mp4", "", ""),
        ("file", "/tmp/a.pdf", "Report.pdf", ""),
        ("file", "/tmp/1.png", "", ""),
        ("address", "https://web.test/2.gif", "", "two"),
    ]
