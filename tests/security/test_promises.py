"""Every promise of SECURITY.md, and every fault of docs/faults.md, names tests, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Where a name without a folder may be, for each document.
HOMES = {"SECURITY.md": ("tests/security",), "docs/faults.md": ("tests",)}


def promises() -> list[tuple[str, str, str]]:
    """(document, promise, tests) of each row of each table that has a column of tests."""
    found = []
    for name in HOMES:
        tests = False
        for line in (ROOT / name).read_text("utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
            if len(cells) == 3 and not set(line) <= set("|-: "):
                if cells[2] == "test":
                    tests = True
                elif tests:
                    found.append((name, cells[0], cells[2]))
            elif not cells:
                tests = False
    return found


@pytest.mark.parametrize(("document", "promise", "tests"), promises(), ids=lambda value: value[:40])
def test_it_names_tests_that_are_there(document: str, promise: str, tests: str) -> None:
    names = re.findall(r"`([^`]+)`", tests)
    assert names, "it names none"
    for name in names:
        path = name.removeprefix("tests/").removesuffix(".py")
        homes = HOMES[document] if not name.startswith("tests/") else ("tests",)
        assert any((ROOT / home / end).exists() for home in homes for end in (path, f"{path}.py")), name


def test_both_documents_were_read() -> None:
    assert {document for document, _, _ in promises()} == set(HOMES) and len(promises()) > 50
