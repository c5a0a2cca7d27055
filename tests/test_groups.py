"""Tests of one xdist group run in turn on one worker: `tests/conftest.py` relies on it.

A pair of versions that do not fit (pytest 9.2 with xdist 3.8) ignores groups without a word, and
then clusters and JVMs run beside each other and miss their deadlines.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


COUNT = 8
SOURCE = f"""
import os, pathlib, pytest

@pytest.mark.xdist_group("alone")
@pytest.mark.parametrize("number", range({COUNT}))
def test_one(number):
    place = pathlib.Path("workers") / os.environ["PYTEST_XDIST_WORKER"]
    place.mkdir(parents=True, exist_ok=True)
    (place / str(number)).touch()
"""


def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(SOURCE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    (worker,) = (tmp_path / "workers").iterdir()
    assert len(list(worker.iterdir())) == COUNT
