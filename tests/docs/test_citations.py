"""Every citation of a page resolves: the page, the numbers of its sections, the titles it quotes.

Owns the form of a citation: `page.md`, `page.md 3`, `page.md 3.4 and 5`, `page.md section 3`,
`page.md, "Title"`; numbers and titles are those of headings and of bold beginnings of paragraphs.
Links of the pages to each other are citations too. Must not know what a page says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.pytest_ids import ROOT

_NUMBERS = r"\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
_CITATION = re.compile(
    rf"(?<![\w/.-])(?:docs/)?([a-z][a-z-]*)\.md\b`?(?:,? (?:sections? |rules? )?({_NUMBERS}))?"
    r'(?:,? \(?"([^"]+)")?'
)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]+))?\)")
_FOLD = re.compile(r"\s*\n[ \t]*(?:# |\| )?")
_TITLE = re.compile(r"^(?:#+ (.+)|[-\s]*\*\*([^*]+)\*\*)", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_LEAD = re.compile(r"^\d+(?:\.\d+)*\.? ")

FOLDERS = ("fifo", "node", "bench", "tools", "tests", "docs")
NOT_CITED = {"tests/docs/test_citations.py"}


@cache
def titles(page: str) -> tuple[str, ...] | None:
    """The headings and bold beginnings of a page; None where there is no such page."""
    for folder in (ROOT / "docs", ROOT / "docs" / "api", ROOT):
        path = folder / f"{page}.md"
        if path.exists():
            found = _TITLE.findall(path.read_text(encoding="utf-8"))
            return tuple(heading or bold for heading, bold in found)
    return None


def dead(text: str) -> Iterator[str]:
    """The citations in a text that resolve to nothing."""
    for cited in _CITATION.finditer(_FOLD.sub(" ", text)):
        page, numbers, title = cited.groups()
        known = titles(page)
        if known is None:
            yield f"{cited[0]}: no such page"
            continue
        have = {number[0] for one in known if (number := _NUMBER.match(one))}
        for number in _NUMBER.findall(numbers or ""):
            if number not in have:
                yield f"{cited[0]}: no {number}"
        names = [_LEAD.sub("", one, count=1) for one in known]
        if title and not any(one.startswith(title.rstrip(".,:")) for one in names):
            yield f"{cited[0]}: no such title"


def texts() -> Iterator[Path]:
    """Every file that may cite a page."""
    yield from (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".toml", ".txt"} and "__pycache__" not in path.parts:
                yield path


@pytest.mark.slow
def test_every_citation_resolves() -> None:
    found = [
        f"{name}: {offence}"
        for path in texts()
        if (name := str(path.relative_to(ROOT))) not in NOT_CITED
        for offence in dead(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    found = []
    for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))):
        for target, anchor in _LINK.findall(path.read_text(encoding="utf-8")):
            file = path.parent / target if target else path
            if not file.exists():
                found.append(f"{path.name}: {target}")
            elif anchor and anchor not in _anchors(file):
                found.append(f"{path.name}: {target}#{anchor}")
    assert not found, "\n".join(found)


def _anchors(file: Path) -> set[str]:
    """The anchors that a renderer makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize(
    "text",
    [
        "see nowhere.md",
        "semantics.md 95",
        "semantics.md\n    # section 3.99",
        "semantics.md 3 and 95",
        'decisions.md, "A decision that was never taken"',
    ],
)
def test_a_dead_citation_is_found(text: str) -> None:
    assert list(dead(text))


@pytest.mark.parametrize(
    "text",
    ["semantics.md 3.4", "semantics.md sections 3 and 11", 'decisions.md, "Formats"'],
)
def test_a_citation_that_resolves_is_none(text: str) -> None:
    assert not list(dead(text))
