"""The blocks of docs/testing.md are tests, and run as they stand.

Owns how a block is run: on the event loop of the test. Must not know what a block checks.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from tests.support.pytest_ids import ROOT

BLOCKS = re.findall(
    r"^```python\n(.*?)^```",
    (ROOT / "docs/testing.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def test_the_page_has_blocks() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
async def test_a_block_of_the_page_passes(block: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(block, "docs/testing.md", "exec"), names)
    tests = [found for name, found in names.items() if name.startswith("test_")]
    assert tests
    assert all(map(inspect.iscoroutinefunction, tests))
    for test in tests:
        await test()
