"""The checker against the real clients: what a client rejects is an error, what the checker calls clean is accepted."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from agui_adapter.check import Finding, Peer, check_text
from tests.check_cases import CASES, FINISH, START, Case, Event, sse
from tests.clients import VERSIONS, Verdict, Version, node, replay

pytestmark = [pytest.mark.node, pytest.mark.skipif(node() is None, reason="Node is not on PATH")]

PEERS: dict[Version, Peer] = {"1": "1.0", "0": "0.0.59"}
Verdicts = dict[tuple[str, Version], Verdict]


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    """Every case's verdict by every client, from one Node process."""
    keys: list[tuple[Case, Version]] = [(case, version) for case in CASES for version in VERSIONS]
    found = replay(
        [{"version": version, "frames": case.frames, "state": case.state} for case, version in keys], timeout=120
    )
    return {(case.name, version): verdict for (case, version), verdict in zip(keys, found, strict=True)}


def assert_strict_enough(findings: list[Finding], verdict: Verdict) -> None:
    if not verdict.accepted:
        assert any(finding.severity == "error" for finding in findings), verdict.error
    if not findings:
        assert verdict.accepted, verdict.error
        assert verdict.warnings == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_checker_is_at_least_as_strict_as_the_client(case: Case, version: Version, verdicts: Verdicts) -> None:
    findings = check_text(case.frames, peer=PEERS[version], state=case.state, known_calls=case.known_calls)
    assert_strict_enough(findings, verdicts[case.name, version])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table_tells_what_the_client_rejects(case: Case, version: Version, verdicts: Verdicts) -> None:
    verdict = verdicts[case.name, version]
    assert verdict.accepted == (version not in case.rejected_by), verdict.error


# Streams that nobody thought of: the events of the table in any order, and single values of good streams changed.

_VALUES = [None, 1, -1, 1.5, True, "x", "", [], {}, [1], {"type": "x"}, {"a": None}, 2**60, ["x"], [None]]


def _streams() -> list[list[Event]]:
    """The table's streams that are plain lists of events, without the huge one."""
    found = []
    for case in CASES:
        lines = case.frames.split("\n\n")[:-1]
        if lines and len(case.frames) < 10_000 and all(line.startswith('data: {"type"') for line in lines):
            try:
                found.append([json.loads(line[6:]) for line in lines])
            except ValueError:
                continue
    return found


def shuffled(count: int) -> Iterator[list[Event]]:
    """Whole good runs that share their ids, and single events of any run, one after another."""
    chance = random.Random(1)
    good = [stream[1:-1] for stream in _streams() if not check_text(sse(stream))]
    single = [[event] for stream in _streams() for event in stream]
    for _ in range(count):
        parts = [chance.choice(good if chance.random() < 0.8 else single) for _ in range(chance.randint(1, 5))]
        yield [START, *(event for part in parts for event in part), *([FINISH] if chance.random() < 0.8 else [])]


def changed(count: int) -> Iterator[list[Event]]:
    chance = random.Random(2)
    good = [stream for stream in _streams() if not check_text(sse(stream))]
    for _ in range(count):
        stream = copy.deepcopy(chance.choice(good))
        target, key = chance.choice([place for event in stream for place in _places(event)])
        if chance.random() < 0.2:
            del target[key]
        else:
            target[key] = chance.choice(_VALUES)
        yield stream


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", [shuffled, changed])
def test_streams_that_nobody_wrote(make: Any, version: Version) -> None:
    streams = list(make(400))
    found = replay([{"version": version, "frames": sse(stream)} for stream in streams], timeout=120)
    assert 20 < sum(not verdict.accepted for verdict in found) < 380  # or the streams test nothing
    for stream, verdict in zip(streams, found, strict=True):
        try:
            assert_strict_enough(check_text(sse(stream), peer=PEERS[version]), verdict)
        except AssertionError as problem:
            raise AssertionError(sse(stream)) from problem
