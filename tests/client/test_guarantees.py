"""The guarantees of docs/client.md name the tests that check them: there are such tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "client.md"

_ROW = re.compile(r"\| (.+) \| `(\S+\.py)::(\w+)` \|")


def test_every_guarantee_names_a_test_that_exists() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## What it guarantees")[2]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(lines) >= 30
    for line in lines:
        row = _ROW.fullmatch(line)
        assert row is not None, f"no guarantee and its test: {line}"
        guarantee, path, name = row.groups()
        assert guarantee.endswith("."), guarantee
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        found = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in found, f"{path} has no {name}"
