"""Parts of the pages of `docs/`: blocks of Python, tables, and the tests that they name.

A test is named as `path::name`, with or without `tests/`. Owns how that is written and looked up;
what a page has to say is the business of the test beside its subject.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+(?:::\w+)?)`")


def page(name: str) -> str:
    """The text of `docs/NAME.md`."""
    return (TESTS.parent / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    """The blocks of Python on `docs/NAME.md`."""
    return _BLOCK.findall(page(name))


def rows(text: str, heading: str) -> list[str]:
    """The lines of the tables in the section of that heading, without their heads."""
    section = re.split(rf"^## {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    lines = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    heads = {number - 1 for number, line in enumerate(lines) if line.startswith("|--")}
    return [
        line for number, line in enumerate(lines) if line.startswith("| ") and number not in heads
    ]


def named(text: str) -> list[tuple[str, str]]:
    """(path, name) of each test that a text names."""
    return _NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Return the tests that a text names and that no run would find: `path::name`."""
    return [
        f"{path}::{name}"
        for path, name in named(text)
        if name not in _tests(path.removeprefix("tests/"))
    ]


@cache
def _tests(path: str) -> frozenset[str]:
    """Return what runs in a file: its tests and what they use by name (scenarios, models)."""
    file = TESTS / path
    if not file.exists():
        return frozenset()
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    used = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    methods = (
        f"{node.name}::{inner.name}"
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for inner in node.body
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (node.name.startswith("test_") or node.name in used)
    ).union(methods)
