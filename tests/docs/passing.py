"""Blocks of pages as files of tests, in a folder of their own, under pytest with the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.pytest_ids import ROOT

SECONDS_MAX: Final = 90


def passing(folder: Path) -> str:
    """Run the tests of a folder, with warnings as errors; what pytest prints. Raises
    AssertionError where one fails."""
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nfilterwarnings = error\n")
    plugins = ("-p", "pytest_fifo", "-p", "no:cacheprovider", "--strict-markers")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-v"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
