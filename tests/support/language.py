"""The words of the house: which idioms its texts avoid, and how its docstrings begin.

Owns the reading of CONTRIBUTING.md's table of words and the search through docstrings, comments,
string literals and pages. Must not know which rooms are still exempt: `tests/test_house.py` does.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]

# Two are idioms to avoid, too: in pieces, so that this file does not find itself.
OPENINGS = ("What", "Who", "Who" + "ever", "It", "No" + "body", "How", "Let", "One")
_OPENING = re.compile(rf"\s*(?:{'|'.join(OPENINGS)})\b")
_HEADING = "## Words\n"
_ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)


def words_section(page: str) -> str:
    """The section of CONTRIBUTING.md that holds the table of words."""
    return page.partition(_HEADING)[2].partition("\n## ")[0]


@cache
def avoided() -> dict[str, str]:
    """Each idiom to avoid, with what to write in its place."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(_ROW.findall(words_section(page)))


@cache
def _avoided_pattern() -> re.Pattern[str]:
    """Any of the idioms, also where a line ends or a comment goes on between its words."""
    idioms = sorted(avoided(), key=len, reverse=True)
    gap = r"[\s#>]+"
    return re.compile(
        r"\b(?:" + "|".join(gap.join(map(re.escape, idiom.split())) for idiom in idioms) + r")\b",
        re.IGNORECASE,
    )


def idioms(text: str) -> Iterator[tuple[int, str]]:
    """Each avoided idiom of a text: the number of its line, and what to write instead."""
    for found in _avoided_pattern().finditer(text):
        idiom = " ".join(found.group().replace("#", " ").split()).lower()
        line = text.count("\n", 0, found.start()) + 1
        yield line, f"{idiom!r}: write {avoided()[idiom]}"


def idioms_of_source(text: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The avoided idioms in strings, comments and names of tests; other names are free."""
    if not _avoided_pattern().search(text.replace("_", " ")):
        return  # Most files: tokenizing every one would take seconds.
    for first_line, spoken in [*_strings(nodes), *_comments(text), *_test_names(nodes)]:
        for line, offence in idioms(spoken):
            yield first_line + line - 1, offence


def _strings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _test_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield node.lineno, name.replace("_", " ")


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments, those on lines that follow each other as one."""
    found = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    starts = [0]
    starts += [
        place
        for place, (one, other) in enumerate(pairwise(found), 1)
        if other.start[0] != one.start[0] + 1
    ]
    for start, end in pairwise([*starts, len(found)]):
        if start < end:
            yield found[start].start[0], "\n".join(token.string for token in found[start:end])


def openings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Docstrings, attributes' included, whose first word is one of OPENINGS."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if _OPENING.match(text):
                yield node.lineno, text.strip().partition("\n")[0]
