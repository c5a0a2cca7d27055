"""Pages of programs beside programs: our blocks are tests and pass, the others' are Python.

A block that begins with a comment of one of THEIRS is of another library, which is not installed
here. Owns how blocks are run: by pytest, in a folder of their own. Must not know what they check.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import page
from tests.support.pytest_ids import ROOT

GUIDES = ("tracing",)
THEIRS = ("# Celery", "# pika", "# aio-pika", "# boto3")
SECONDS_MAX = 90

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)


def blocks(name: str, *, ours: bool) -> list[str]:
    """The blocks of a page: ours, or those of the others."""
    return [one for one in _BLOCK.findall(page(name)) if one.startswith(THEIRS) is not ours]


@pytest.mark.process
def test_our_blocks_are_tests_and_pass(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    tests = 0
    for name in GUIDES:
        for number, block in enumerate(blocks(name, ours=True)):
            assert _TEST.search(block), f"docs/{name}.md: block {number} tests nothing"
            tests += len(_TEST.findall(block))
            file = f"test_{name.replace('-', '_')}_{number}.py"
            (tmp_path / file).write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nfilterwarnings = error\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_fifo", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


@pytest.mark.parametrize("name", GUIDES)
def test_the_blocks_of_others_are_python(name: str) -> None:
    for block in blocks(name, ours=False):
        compile(block, f"docs/{name}.md", "exec")
