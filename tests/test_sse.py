"""The event stream reader, against the WHATWG standard's own examples and any cut between two reads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_adapter.sse import SseEvent, SseParser


def parse(stream: bytes, *cuts: int) -> list[SseEvent]:
    parser = SseParser()
    edges = [0, *sorted(cuts), len(stream)]
    return [event for start, end in itertools.pairwise(edges) for event in parser.feed(stream[start:end])]


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", ["YHOO\n+2\n10"]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event",
            ["first event", "second event"],
        ),
        (b"data\n\ndata\ndata\n\ndata:", ["", "\n"]),
        (b"data:test\n\ndata: test\n\n", ["test", "test"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]),
        (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
        (b"event: x\n\ndata: a\n\n", ["a"]),
        (b"nonsense\nfoo: bar\n data: no\ndata: a\n\n", ["a"]),
        ("data: a\u2028b\u0085c\x0bd\n\n".encode(), ["a\u2028b\u0085c\x0bd"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: unfinished\n", []),
    ],
)
def test_the_standard(stream: bytes, data: list[str]) -> None:
    assert [event.data for event in parse(stream)] == data
    assert [event.data for event in parse(stream, *range(1, len(stream)))] == data


def test_fields() -> None:
    parser = SseParser()
    stream = b"retry: 250\nid: 7\nevent: tick\ndata: a\n\nretry: soon\nid: x\0y\ndata: b\n\nid\ndata: c\n\n"
    assert parser.feed(stream) == [
        SseEvent("a", "tick", "7"),
        SseEvent("b", "message", "7"),
        SseEvent("c", "message", ""),
    ]
    assert parser.retry_ms == 250


@pytest.mark.parametrize(
    ("stream", "inside"),
    [(b"data: a\n\n", False), (b"data: a\n", True), (b"data: a", True), (b"data: a\n\n: beat", False), (b"", False)],
)
def test_close_tells_a_cut_event(stream: bytes, inside: bool) -> None:
    parser = SseParser()
    parser.feed(stream)
    assert parser.close() is inside


@given(
    st.lists(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n")), max_size=5),
    st.data(),
)
def test_any_cut_gives_the_same_events(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
    stream = "".join(f"data: {text}{end}: beat{end}data: 2{end}{end}" for text in texts).encode()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert [event.data for event in parse(stream, *cuts)] == [f"{text}\n2" for text in texts]


def test_a_long_line_in_small_pieces_is_quick() -> None:
    """Joining at every read would copy 16 GB here."""
    parser = SseParser()
    parser.feed(b"data: ")
    for _ in range(40_000):
        parser.feed(b"x" * 20)
    (event,) = parser.feed(b"\n\n")
    assert len(event.data) == 800_000
