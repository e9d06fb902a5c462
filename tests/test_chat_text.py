"""What others say on a terminal: shown, never obeyed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.chat.text import exact, json_line, one_line, plain

CONTROLS = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0))]


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J",  # clear
        "\x1b]0;title\x07",
        "\x1b]52;c;cm0gLXJmIH4=\x07",  # clipboard
        "\x1b[6n",  # asks the terminal to type for us
        "\x9b31m",  # the same in one character
        "safe\rrm -rf ~",
        "rm\x08\x08ls",
        "\x1bP+q544e\x1b\\",
    ],
)
def test_no_sequence_comes_through(hostile: str) -> None:
    for shown in (plain(hostile), exact(hostile), one_line(hostile)):
        assert not set(shown) & set(CONTROLS)


def test_what_is_meant_stays() -> None:
    text = "né\t日本 🚀 👩‍💻 שלום\nline"
    assert plain(text) == text
    assert plain("a\r\nb") == "a\nb"
    assert exact("a\tb\nc") == "a\tb\nc"


def test_a_command_hides_nothing() -> None:
    assert exact("rm \u202egpj.x\u202c") == "rm \\u202egpj.x\\u202c"
    assert exact("a\u200bb\ufeff") == "a\\u200bb\\ufeff"
    assert exact("x\U000e0041") == "x\\U000e0041"
    assert exact("ls\r-a") == "ls␍-a"


@given(st.text(), st.integers(0, 50))
def test_a_cut_is_no_way_around(text: str, at: int) -> None:
    assert plain(text[:at]) + plain(text[at:]) == plain(text)


@given(st.text())
def test_only_tabs_and_line_ends_are_left(text: str) -> None:
    assert not set(plain(text)) & (set(CONTROLS) - {"\n", "\t"})
    assert not set(exact(text)) & (set(CONTROLS) - {"\n", "\t"})


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_is_the_same_value(value: object) -> None:
    line = json_line(json.dumps(value, ensure_ascii=False))
    assert json.loads(line) == value and not set(line) & set(CONTROLS)


def test_one_line_is_cut() -> None:
    assert one_line("a\n b" * 100, 10) == "a ba ba b…"
