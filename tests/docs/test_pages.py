"""The pages as texts: lines and tables that a terminal shows, and test names that can be pasted.

Owns the widths. A line may be longer where it cannot be wrapped: in a code block, or one long word.
Must not know what a page says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pytest_ids import ROOT, ids, uncollected

LINE_COLUMNS = 120
TABLE_COLUMNS = 160
"""A terminal as wide as a laptop's screen: wider rows wrap, and the columns are lost."""

WORDS_OF_ONE = 2
"""A list's mark and one long word, an id or a link: nothing to wrap."""

_PAGES = (*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md")))
_TEST_NAME = re.compile(r"`([^`\s]*\btest_\w+(?:\.py)?[^`\s]*)`(?:::\w+)?")
_FILE = re.compile(r"(?:tests/)?[\w/]*test_\w+\.py")


def lines_in_text(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of everything outside code blocks."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.startswith("    "):
            yield number, line


@pytest.mark.parametrize("path", _PAGES, ids=lambda path: path.stem)
def test_a_terminal_can_show_every_line_and_every_row(path: Path) -> None:
    wide = []
    for number, line in lines_in_text(path):
        columns = TABLE_COLUMNS if line.startswith("|") else LINE_COLUMNS
        if len(line) > columns and len(line.split()) > WORDS_OF_ONE:
            wide.append(f"{path.name}:{number}: {len(line)} columns, at most {columns}")
    assert not wide, "\n".join(wide)


@pytest.mark.process
@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("path", _PAGES, ids=lambda path: path.stem)
def test_every_test_that_a_page_names_can_be_pasted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wrong = [
        name
        for name in _TEST_NAME.findall(text)
        if not ids(name) and not (_FILE.fullmatch(name) and (ROOT / name).exists())
    ]
    wrong += re.findall(r"`[\w/]+\.py`::\w+", text)
    wrong += uncollected(ids(text))
    assert not wrong, "\n".join(wrong)
