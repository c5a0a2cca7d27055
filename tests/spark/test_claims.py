"""Proves that docs/spark.md names an existing test for each promise, and some for every section."""

from __future__ import annotations

import re

from tests.support.pages import missing, page

HELD = "Which test holds what"

_PROMISE = re.compile(r"^- .+\.\n  `tests/\S+\.py(?:::\w+)+`$", re.MULTILINE)


def test_every_promise_names_a_test_that_exists_and_every_section_has_some() -> None:
    text = page("spark")
    _, held = text.split(f"## {HELD}")
    covered = re.findall(r"^\*\*(.+)\*\*$", held, re.MULTILINE)
    headings = re.findall(r"^##? (.+)$", text, re.MULTILINE)
    assert covered == [one for one in headings if one != HELD]
    for section in re.split(r"^\*\*.+\*\*$", held, flags=re.MULTILINE)[1:]:
        assert 0 < len(_PROMISE.findall(section)) == section.count("\n- "), section
    assert not missing(held)
