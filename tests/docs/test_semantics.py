"""Each rule of docs/semantics.md has a number and at least one test, which pytest collects.

Reads the page only: rules are paragraphs that begin with a bold number, the tests of a rule are the
list behind it. Must not know what a rule says.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.support.pages import page
from tests.support.pytest_ids import ROOT, ids, uncollected

_RULE = re.compile(r"^\*\*(\d+)\.(\d+)\*\* ", re.MULTILINE)
_SECTION = re.compile(r"^## (\d+)\. .+$", re.MULTILINE)
SECTIONS = 16


@cache
def rules() -> dict[tuple[int, int], str]:
    """(section, number) of each rule, with its text up to the next rule or section."""
    text = re.split(r"^## 1\. ", page("semantics"), maxsplit=1, flags=re.MULTILINE)[1]
    text = _SECTION.sub("", text)
    starts = list(_RULE.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    return {
        (int(start[1]), int(start[2])): text[start.end() : end]
        for start, end in zip(starts, ends, strict=True)
    }


def test_sections_and_rules_are_numbered_without_a_gap() -> None:
    sections = [int(number) for number in _SECTION.findall(page("semantics"))]
    assert sections == list(range(1, SECTIONS + 1))
    for section in sections:
        numbers = [number for own, number in rules() if own == section]
        assert numbers == list(range(1, len(numbers) + 1)), f"section {section}"
        assert numbers, f"section {section} has no rule"


def test_rules_stand_in_the_section_of_their_number() -> None:
    parts = _SECTION.split(page("semantics"))[1:]
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        assert {section for section, _ in _RULE.findall(text)} == {number}


@pytest.mark.process
@pytest.mark.xdist_group("docs")
def test_every_rule_names_a_test_that_pytest_collects() -> None:
    unheld = [f"{section}.{rule}" for (section, rule), text in rules().items() if not ids(text)]
    assert not unheld, f"rules without a test: {unheld}"
    assert not uncollected({one for text in rules().values() for one in ids(text)})


def test_every_golden_story_stands_under_a_rule() -> None:
    stories = {path.stem for path in (ROOT / "tests/machine/golden").glob("*.txt")}
    named = {name for text in rules().values() for name in re.findall(r"_story\[(\w+)\]", text)}
    assert stories == named


@pytest.mark.process
@pytest.mark.xdist_group("docs")
def test_an_id_that_pytest_does_not_collect_is_found() -> None:
    wrong = [
        "tests/docs/test_semantics.py::test_nothing",
        "tests/docs/test_nothing.py::test_nothing",
        "tests/machine/test_golden.py::test_golden_story[nothing]",
    ]
    right = "tests/machine/test_golden.py::test_golden_story[pip372_terminate]"
    assert uncollected([*wrong, right]) == sorted(wrong)
