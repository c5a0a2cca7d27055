"""A sample of `make spark`: workers that share neither clock nor folder."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from bench.processes import environment
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
