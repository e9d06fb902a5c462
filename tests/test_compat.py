"""What `make test-compat` says at its end, and its status; the environments themselves are not run here."""

from __future__ import annotations

import pytest

from tests import compat
from tests.compat import Environment, Result

GOOD = Result({"a.py::test_a": "passed", "a.py::test_b": "skipped"}, versions="python 3.11.7", again={"a.py::test_a"})
BAD = Result({"a.py::test_a": "passed", "a.py::test_b": "failed"})
UNMADE = Result(trouble="no Python 3.12 on this machine")
NOTHING = Result({"a.py::test_a": "skipped"})


@pytest.mark.parametrize(
    ("second", "status", "told"),
    [
        (GOOD, 0, "ok     1 passed, 1 skipped (1 at the second try), 0.0 min  [python 3.11.7]"),
        (BAD, 1, "FAILED 1 passed, 1 failed, 0.0 min  []"),
        (UNMADE, 1, "FAILED no Python 3.12 on this machine, 0.0 min  []"),
        (NOTHING, 1, "FAILED 1 skipped, 0.0 min  []"),
    ],
)
def test_one_line_for_each_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], second: Result, status: int, told: str
) -> None:
    results = {"one": GOOD, "two": second}
    monkeypatch.setattr(compat, "ENVIRONMENTS", tuple(Environment(name, ()) for name in results))
    monkeypatch.setattr(compat, "run", lambda environment: results[environment.name])
    assert compat.main([]) == status
    *_, first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("one           ok     ")
    assert last == f"two           {told}"


def test_a_failure_is_tried_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([{"t::a": "failed", "t::b": "failed", "t::c": "passed"}, {"t::a": "passed", "t::b": "failed"}])
    asked: list[list[str]] = []

    def tests(environment: Environment, options: list[str]) -> dict[str, str]:
        asked.append(options)
        return next(runs)

    monkeypatch.setattr(compat, "tests", tests)
    monkeypatch.setattr(compat, "make", lambda environment: "")
    monkeypatch.setattr(compat, "versions", lambda environment: "")
    result = compat.run(Environment("one", (), mark="core"))
    assert asked[0][:2] == ["-m", "core"] and any(path.endswith("test_stream.py") for path in asked[0])
    assert asked[1:] == [["t::a", "t::b"]]
    assert result.outcomes == {"t::a": "passed", "t::b": "failed", "t::c": "passed"}
    assert result.again == {"t::a"} and not result.good


def test_an_unknown_name_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert compat.main(["hermes-9"]) == 2
    assert "hermes-9" in capsys.readouterr().err


def test_every_mark_is_on_some_test() -> None:
    for one in compat.ENVIRONMENTS:
        assert any(f"mark.{one.mark}" in path.read_text() for path in (compat.ROOT / "tests" / "e2e").glob("test_*.py"))
