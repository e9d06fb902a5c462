"""Files both ways: chosen, dropped and pasted by the user; pictures, sound, film and documents of the agent's."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from agui_adapter.demo.gateway import Gateway
from tests.browser.conftest import Console, Watch
from tests.e2e.helpers import GatedModel, script, unique, wait_until
from tests.e2e.media import png, wav

pytestmark = pytest.mark.slow  # `make test` drives the chat and a device; `make test-all` these too

Open = Callable[..., Console]


def drawn(picture: Any) -> None:
    """Wait until an `<img>` shows what it was given."""
    picture.wait_for()
    wait_until(lambda: picture.evaluate("image => image.complete && image.naturalWidth > 0"), "the picture is drawn")


def drop(console: Console, name: str, kind: str, text: str) -> Any:
    """A file of this text lets go over the message box; its chip."""
    data = console.page.evaluate_handle(
        "([name, type, text]) => { const data = new DataTransfer();"
        " data.items.add(new File([text], name, {type})); return data; }",
        [name, kind, text],
    )
    zone = console.page.locator(".dropzone")
    zone.dispatch_event("dragenter", {"dataTransfer": data})
    zone.dispatch_event("dragover", {"dataTransfer": data})
    console.page.locator(".dropzone[data-dragging=true]").wait_for()
    zone.dispatch_event("drop", {"dataTransfer": data})
    chip = console.page.locator(".chip", has_text=name)
    chip.wait_for()
    return chip


def test_a_picture_is_attached_and_sent(open_page: Open) -> None:
    console = open_page()
    page = console.page
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach a file").click()
    chooser.value.set_files([{"name": "sunset.png", "mimeType": "image/png", "buffer": png()}])
    drawn(page.locator(".chip", has_text="sunset.png").locator("img"))
    console.say(script({"text": "I see it."}, say=unique()))
    console.sees("I see it.")
    page.locator(".message.user .media img").wait_for()
    console.idle()
    page.reload()
    console.sees("I see it.")
    drawn(page.locator(".message.user .media img"))


def test_a_dropped_file_is_sent_or_taken_away_again(open_page: Open, model: GatedModel) -> None:
    console, word = open_page(), unique("word")
    chip = drop(console, "notes.txt", "text/plain", word)
    chip.get_by_role("button", name="Remove this file").click()
    chip.wait_for(state="detached")
    drop(console, "notes.txt", "text/plain", word)
    console.say(script({"text": "I read it."}, say=unique()))
    console.sees("I read it.")
    assert chip.count() == 1  # no longer in the box; the message has it
    console.page.locator(".message.user .chip", has_text="notes.txt").wait_for()
    assert word in str(model.requests[-1]["messages"][-1])
    console.idle()
    console.page.reload()
    link = console.page.locator(".message.user .chip a", has_text="notes.txt")
    link.wait_for()
    got = console.page.request.get(f"{console.url}{link.get_attribute('href')}")
    assert got.ok and got.text() == word


def test_a_pasted_picture_is_sent(open_page: Open, context: BrowserContext) -> None:
    """By the clipboard itself, as after a screenshot."""
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    console = open_page()
    page = console.page
    console.box.focus()
    page.evaluate(
        "async (data) => { const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));"
        " const picture = new Blob([bytes], {type: 'image/png'});"
        " await navigator.clipboard.write([new ClipboardItem({'image/png': picture})]); }",
        base64.b64encode(png()).decode(),
    )
    console.box.press("ControlOrMeta+V")
    drawn(page.locator(".chip img"))
    console.say(script({"text": "I see what you pasted."}, say=unique()))
    console.sees("I see what you pasted.")
    drawn(page.locator(".message.user .media img"))


def test_sound_and_film_of_the_user_can_be_played(open_page: Open) -> None:
    console = open_page()
    page = console.page
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach a file").click()
    chooser.value.set_files(
        [
            {"name": "hum.wav", "mimeType": "audio/wav", "buffer": wav()},
            {"name": "clip.mp4", "mimeType": "video/mp4", "buffer": bytes(64)},
        ]
    )
    page.locator(".chip", has_text="clip.mp4").wait_for()
    console.say(script({"text": "I heard it."}, say=unique()))
    console.sees("I heard it.")
    console.idle()
    page.reload()
    sound = page.locator(".message.user audio")
    sound.wait_for()
    wait_until(lambda: sound.evaluate("one => one.duration > 0"), "the sound is there to be played")
    assert page.locator(".message.user video").count() == 1


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(
    open_page: Open, make_gateway: Callable[..., Gateway]
) -> None:
    console = open_page(url=make_gateway(agui={"max_attachment_bytes": 1_000_000}).url)
    page = console.page
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach a file").click()
    chooser.value.set_files([{"name": "big.bin", "mimeType": "application/octet-stream", "buffer": bytes(2_000_000)}])
    page.locator(".failure", has_text="big.bin is larger than 1 MB").wait_for()
    assert page.locator(".chip").count() == 0


def test_what_the_agent_sends_is_shown(open_page: Open, gateway: Gateway, watch: Watch) -> None:
    console = open_page()
    names = {kind: f"{unique('file')}.{kind}" for kind in ("png", "wav", "mp4", "csv")}
    contents = {"png": png(), "wav": wav(), "mp4": bytes(64), "csv": b"a,b\n"}
    for kind, name in names.items():
        (gateway.work_dir / name).write_bytes(contents[kind])
    tags = "\n".join(f"MEDIA:{gateway.work_dir / name}" for name in names.values())
    console.say(script({"text": f"Here they are.\n{tags}\nDo you like them?"}))
    page = console.page
    card = {kind: page.locator(".attachment", has_text=name) for kind, name in names.items()}
    sound = card["wav"].locator("audio")
    for again in (False, True):
        if again:
            console.idle()
            page.reload()
        drawn(card["png"].locator("img"))
        sound.wait_for()
        wait_until(lambda: sound.evaluate("one => one.duration > 0"), "the sound is there to be played")
        card["mp4"].locator("video").wait_for()
        link = card["csv"].get_by_role("link", name=names["csv"])
        assert page.request.get(f"{console.url}{link.get_attribute('href')}").body() == b"a,b\n"
        assert page.locator(".message.assistant .markdown img").count() == 0  # not twice
        assert page.locator(".attachment").count() == 4
