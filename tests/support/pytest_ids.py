"""Pytest ids that a text names: where they stand, and whether pytest would collect them.

Owns how an id is recognised and resolved. A plain id is looked up in the source of its file, which
costs no import; one with a parameter is collected by pytest itself, in one process for all of them.
Must not know what the texts say beside.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

_ID = re.compile(r"(?<![\w/.])tests/[\w/]+\.py::\w+(?:::\w+)*(?:\[[^\]\s`]+\])?")


def ids(text: str) -> list[str]:
    """Every pytest id in a text, in order: `tests/path.py::test_name[parameter]`."""
    return _ID.findall(text)


def uncollected(named: Iterable[str]) -> list[str]:
    """Those of the ids that pytest would not find, sorted."""
    plain = {one for one in named if "[" not in one}
    parametrized = set(named) - plain
    found = {one for one in plain if one.partition("::")[2] in _tests(one.partition("::")[0])}
    if parametrized:
        found |= _collected(tuple(sorted({one.partition("::")[0] for one in parametrized})))
    return sorted((plain | parametrized) - found)


@cache
def _tests(path: str) -> frozenset[str]:
    """The tests that the source of a file defines, those of classes as `Class::test`."""
    file = ROOT / path
    if not file.exists():
        return frozenset()
    return frozenset(_names(ast.parse(file.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield name
            case ast.ClassDef(name=name, body=inner) if name.startswith("Test"):
                yield name
                yield from (f"{name}::{test}" for test in _names(inner))
            case ast.Assign(targets=targets):  # tests that a function or a model made
                names = (node for target in targets for node in ast.walk(target))
                made = (node.id for node in names if isinstance(node, ast.Name))
                yield from (name for name in made if name.startswith(("test_", "Test")))


@cache
def _collected(paths: tuple[str, ...]) -> frozenset[str]:
    """Return the ids that pytest collects in these files, as it prints them."""
    there = [path for path in paths if (ROOT / path).exists()]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", *there]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stdout + done.stderr
    return frozenset(line for line in done.stdout.splitlines() if "::" in line)
