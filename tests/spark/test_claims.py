"""What docs/spark.md promises names the tests that hold it: there are such tests."""

from __future__ import annotations

import re

from tests.support.pages import missing, page, rows

HELD = "Which test holds what"

_ROW = re.compile(r"\| ([\w ]+) \| (.+\.) \| `\S+\.py::\w+` \|")


def test_every_promise_names_a_test_that_exists_and_every_section_has_some() -> None:
    text = page("spark")
    covered = set()
    for line in rows(text, HELD):
        row = _ROW.fullmatch(line)
        assert row is not None, f"no section, promise and test: {line}"
        assert not missing(line)
        covered.add(row[1])
    headings = set(re.findall(r"^##? (.+)$", text, re.MULTILINE))
    assert covered == headings - {HELD}
