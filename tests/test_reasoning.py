"""The beginning of a stretch of reasoning, as it comes and when it is whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.reasoning import MOST_CHARS, Glimpse, beginning

TABLE = [
    ("**Reading the file**\n\nI open it first.", "**Reading the file**"),
    ("The user wants a sum. Then more.", "The user wants a sum."),
    ("Okay. The user wants a sum. Then more.", "Okay. The user wants a sum."),
    ("Version 1.2.3 is what the user has. More.", "Version 1.2.3 is what the user has."),
    ("\n\n  Begins late here and goes on\nmore", "Begins late here and goes on"),
    ("short", "short"),
    (
        "彼は合計を求めている。とても長い文章がここに続いていく。そして次。",
        "彼は合計を求めている。とても長い文章がここに続いていく。",
    ),
    ("", ""),
    (" \n ", ""),
]


@pytest.mark.parametrize(("text", "wanted"), TABLE)
def test_table(text: str, wanted: str) -> None:
    assert beginning(text) == wanted


def test_without_any_end_it_is_cut_between_words() -> None:
    made = beginning("word " * 100)
    assert made.endswith("word…") and MOST_CHARS - 10 < len(made) <= MOST_CHARS
    assert beginning("x" * 500) == "x" * (MOST_CHARS - 1) + "…"


def test_it_is_shown_as_soon_as_it_is_whole_and_nothing_after_it() -> None:
    glimpse = Glimpse()
    assert [glimpse.feed(delta) for delta in ("The user ", "wants a sum.", " Then", " more. And.")] == [
        *("", ""),
        "The user wants a sum.",
        "",
    ]
    assert glimpse.rest() == ""


@given(st.text(), st.data())
def test_the_pieces_make_no_difference_to_what_may_be_seen(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    glimpse = Glimpse()
    shown = "".join(glimpse.feed(piece) for piece in pieces) + glimpse.rest()
    assert len(shown) <= MOST_CHARS and text.lstrip().startswith(shown.removesuffix("…").rstrip())
    assert bool(shown) is bool(text.strip())
