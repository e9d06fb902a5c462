"""What of a streamed text waits: tags that only tell Hermes to send a file, however the text is cut into deltas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.tags import Hold


def stream(*deltas: str) -> tuple[str, str]:
    """What was shown while it streamed, and what more when the message ended."""
    hold = Hold()
    return "".join(hold.feed(delta) for delta in deltas), hold.rest()


@given(st.lists(st.text(alphabet="MEDIA:[a /s_documentx\n", max_size=8)))
def test_nothing_is_lost_but_tags_and_directives(deltas: list[str]) -> None:
    hold = Hold()
    shown = "".join(hold.feed(delta) for delta in deltas)
    assert "[[as_document]]" not in shown
    whole = "".join(deltas)
    if "[[as_document]]" not in whole:
        assert shown + hold.held == whole


@pytest.mark.parametrize(
    "text",
    [
        "A MEDIA: thing that is longer",
        "MEDIATE",
        "M",
        "[[link]](x)",
        "Use MEDIA:\nand a path",
        "MEDIA:",
        "media:/a.png",
    ],
)
def test_what_is_no_tag_is_shown_at_the_end_at_the_latest(text: str) -> None:
    for cut in range(len(text)):
        assert "".join(stream(text[:cut], text[cut:])) == text


@pytest.mark.parametrize(
    "path", ["/tmp/a.png", "~/a.png", '"/tmp/a b.png"', "`/tmp/a.png`", " /tmp/a.png", "C:\\a.png"]
)
def test_a_tag_and_what_follows_it_wait(path: str) -> None:
    text = f"Here it is.\nMEDIA:{path}\nEnjoy."
    for cut in range(len(text)):
        assert stream(text[:cut], text[cut:]) == ("Here it is.\n", "")


def test_one_character_at_a_time() -> None:
    assert stream(*"Look: MEDIA:/tmp/a.png") == ("Look: ", "")
    assert stream(*"A MEDIA file, [1]") == ("A MEDIA file, [1]", "")


def test_directives_are_swallowed_and_the_text_goes_on() -> None:
    text = "[[as_document]]The report [[audio_as_voice]]is long."
    for cut in range(len(text)):
        assert stream(text[:cut], text[cut:]) == ("The report is long.", "")


def test_a_word_is_let_go_once_it_is_clear_that_no_path_follows() -> None:
    hold = Hold()
    assert hold.feed("MEDIA:") == ""
    assert hold.feed(" types are ma") == "MEDIA: types are ma"
