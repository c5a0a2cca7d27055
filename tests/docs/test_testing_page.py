"""The blocks of docs/testing.md are tests, and run as they stand.

Owns how they are run: by pytest in a folder of their own, with the plugin and asyncio's automatic
mode. Must not know what a block checks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.passing import passing
from tests.support.pages import blocks

BLOCKS = blocks("testing")


@pytest.mark.process
def test_the_blocks_of_the_page_pass(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"test_block_{number}.py").write_text(block)
    output = passing(tmp_path)
    assert all(f"test_block_{number}.py" in output for number in range(len(BLOCKS)))
    assert (
        f"{len(re.findall('^(?:async )?def test_', ''.join(BLOCKS), re.MULTILINE))} passed"
        in output
    )
