"""Proves that each guarantee of docs/client.md names a test that exists, as an id for pytest."""

from __future__ import annotations

import re

from tests.support.pages import missing, page

_GUARANTEE = re.compile(r"^- (.+\.)\n  `(tests/\S+\.py::\w+)`$", re.MULTILINE)


def test_every_guarantee_names_a_test_that_exists() -> None:
    section = page("client").split("## What it guarantees", 1)[1]
    found = _GUARANTEE.findall(section)
    assert len(found) >= 30
    assert len(found) == section.count("\n- "), "a guarantee without its test"
    assert not missing(section)
