"""A sample of `make spark`: workers that share neither clock nor folder."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from bench.processes import environment
from tests.docs.test_pages import LINE_COLUMNS
from tests.spark import machines

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_load_job_runs_on_two_hosts_with_clocks_a_day_apart() -> None:
    """Its history is whole, and breaks no rule."""
    reason = machines.why_not()
    if reason is not None:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.machines", "--only", "load"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in found] == ["load"], done.stdout


def test_the_lines_of_the_page_are_no_wider_than_those_of_the_docs() -> None:
    runs = machines.RUNS.items()
    text = "\n".join(
        machines.line_of(name, run.__doc__ or "", "10,006 events; " * 20, 100) for name, run in runs
    )
    assert len(text.splitlines()) > 2 * len(runs)
    assert max(map(len, text.splitlines())) <= LINE_COLUMNS
