"""Metrics: what operators watch, in Prometheus's format, by its own client library in a registry of its own.

The library is the extra `metrics`: everything else works without it, and then nothing is counted. Labels have few
values that this program chooses: never an id, a name or a text of a user's. On the loop.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from .session import Turn
from .stream import Outcome

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

Gauges = Mapping[str, tuple[str, Callable[[], float]]]
"""Name → what it says, and what is read when somebody asks."""


def available() -> bool:
    """Whether the library is installed; looked up without importing it."""
    return importlib.util.find_spec("prometheus_client") is not None


class Metrics:
    """The counters of one server. Raises ImportError where the library is missing."""

    def __init__(self, gauges: Gauges) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = CollectorRegistry(auto_describe=True)
        about: dict[str, Any] = {"registry": self._registry, "namespace": "hermes_agui"}
        self._turns = Counter(
            "turns", "Turns that ended, by how, and why where they failed", ["outcome", "code"], **about
        )
        self._seconds = Histogram("turn_seconds", "Length of a turn, with its waiting", buckets=_SECONDS, **about)
        self._first = Histogram(
            "first_text_seconds", "From the accepted message to the first text of the answer", buckets=_SECONDS, **about
        )
        self._refusals = Counter("refusals", "Requests that were refused", ["status", "code"], **about)
        for name, (says, read) in gauges.items():
            Gauge(name, says, **about).set_function(read)

    def turn_ended(self, turn: Turn, outcome: Outcome, code: str) -> None:
        """A turn is over."""
        self._turns.labels(outcome, code).inc()
        self._seconds.observe(turn.finished_at - turn.started_at)
        if turn.log.first_text_at:
            self._first.observe(turn.log.first_text_at - turn.started_at)

    def refused(self, status: int, code: str) -> None:
        """A request was answered with an error."""
        self._refusals.labels(str(status), code).inc()

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text for a scraper, and its content type; ``accept`` is what the scraper takes."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
