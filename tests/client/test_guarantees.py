"""The guarantees of docs/client.md name the tests that check them: there are such tests."""

from __future__ import annotations

import re

from tests.support.pages import missing, page, rows

_ROW = re.compile(r"\| (.+) \| `\S+\.py::\w+` \|")


def test_every_guarantee_names_a_test_that_exists() -> None:
    lines = rows(page("client"), "What it guarantees")
    assert len(lines) >= 30
    for line in lines:
        row = _ROW.fullmatch(line)
        assert row is not None, f"no guarantee and its test: {line}"
        assert row[1].endswith("."), row[1]
        assert not missing(line)
