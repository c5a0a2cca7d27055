"""The inner loop: the cost of quick tests, what they may not start, and rooms by their names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.processes import ROOT, environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

PLUGIN = """
import pytest
from tests.support import quick

quick.BUDGET = {budget}

def pytest_configure(config):
    config.addinivalue_line("markers", "process:")
    config.pluginmanager.register(quick.Budget(whole={whole}))
"""

STARTS = "def test_it():\n    import subprocess\n    subprocess.run(['true'], check=True)\n"
MARKED = "import pytest\n\n@pytest.mark.process\n" + STARTS
CALM = "def test_it():\n    pass\n"
BUSY = (
    "from tests.support.quick import turn_seconds\n\n"
    "def test_it():\n    for _ in range(4):\n        turn_seconds()\n"
)


@pytest.mark.parametrize(
    ("source", "budget", "whole", "code", "printed"),
    [
        (STARTS, 100, False, 1, "the test starts a process: mark it `process`"),
        (MARKED, 100, False, 0, ""),
        (CALM, 0.5, False, 0, "of 0.5 calibration turns"),
        (CALM, 0.5, True, 0, "of 0.65 calibration turns"),
        (BUSY, 0.5, False, 1, "over the budget"),
        (BUSY, 0.5, True, 1, "over the budget"),
    ],
    ids=["starts a process", "is marked", "cheap", "cheap, whole", "over it", "over it, whole"],
)
def test_a_quick_test_keeps_to_the_budget_and_starts_no_process(
    tmp_path: Path, source: str, budget: float, whole: bool, code: int, printed: str
) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN.format(budget=budget, whole=whole))
    (tmp_path / "test_it.py").write_text(source)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, printed in done.stdout) == (code, True), done.stdout


def dry_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Print what make would run."""
    make = shutil.which("make")
    assert make is not None
    command = [make, "--dry-run", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_room_stands_for_its_folders() -> None:
    assert re.search(r"pytest .* tests/node/raft$", dry_run("test", "ROOM=raft").stdout, re.M)


def test_an_unknown_room_lists_the_rooms() -> None:
    done = dry_run("test", "ROOM=cellar")
    assert done.returncode == 2
    assert 'there is no room "cellar"; the rooms are backup bench broker celery' in done.stderr
