"""Blocks of pages as files: of tests, under pytest with the plugin, or programs that are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.pytest_ids import ROOT

SECONDS_MAX: Final = 90


def environment(url: str) -> dict[str, str]:
    """Variables of a program that finds this checkout and a cluster."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "FIFO_URL": url}


def printed(folder: Path, program: str, url: str) -> str:
    """Run a program of a folder to its end; what it prints. Raises AssertionError where it
    fails."""
    done = subprocess.run(
        [sys.executable, program],
        cwd=folder,
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
