"""Every term of docs/glossary.md stands there once, and leads to something that has its name.

Owns what a hit is: a file, a class or a heading of another page that contains the term's words.
Must not know what a term means.
"""

from __future__ import annotations

import re
from functools import cache

from tests.docs.test_citations import titles
from tests.support.pages import page
from tests.support.pytest_ids import ROOT

_ROW = re.compile(r"^\| (?!term )([^|]+) \| ([^|]+) \|([^|]*)\| ([^|]+) \|$", re.MULTILINE)
_CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def rows() -> list[tuple[str, str, str, str]]:
    """(term, meaning, elsewhere, where) of every line."""
    found: list[tuple[str, str, str, str]] = _ROW.findall(page("glossary"))
    return found


@cache
def names() -> frozenset[str]:
    """The words of every file, folder, class and heading of the project, as ` a b `."""
    found = set()
    for top in ("fifo", "node", "tests", "bench"):
        for path in (ROOT / top).rglob("*.py"):
            found |= set(path.relative_to(ROOT).with_suffix("").parts)
            found |= set(_CLASS.findall(path.read_text(encoding="utf-8")))
    for path in (ROOT / "docs").glob("*.md"):
        if path.stem != "glossary":
            found |= {path.stem, *re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)}
    return frozenset(spelled(name) for name in found)


def spelled(name: str) -> str:
    """A name as lower-case words in the singular, each between spaces."""
    return f" {' '.join(_singular(word.lower()) for word in _WORD.findall(name))} "


def _singular(word: str) -> str:
    for many, one in (("esis", "esis"), ("eses", "esis"), ("ies", "y"), ("s", "")):
        if word.endswith(many):
            return word.removesuffix(many) + one
    return word


def test_every_term_stands_once_with_its_meaning_and_its_place() -> None:
    terms = [term for term, *_ in rows()]
    assert len(terms) > 60
    assert len(terms) == len(set(terms))
    lines = [line for line in page("glossary").splitlines() if line.startswith("| ")]
    heads = page("glossary").count("|--|--|--|--|")
    assert len(lines) == len(terms) + heads, "a line is no row of four"


def test_every_term_leads_to_a_file_a_class_or_a_heading() -> None:
    lost = [term for term, *_ in rows() if not any(spelled(term) in name for name in names())]
    assert not lost


def test_every_place_is_a_section_of_the_semantics_or_a_page() -> None:
    sections = {str(number) for number in range(1, 17)}
    for term, _, _, where in rows():
        for place in where.split(", "):
            assert place in sections or titles(place.removesuffix(".md")) is not None, (term, place)
