"""`python -m bench.depth` on sizes that say nothing: every figure comes, and nothing stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import environment


@pytest.mark.cluster
def test_a_restart_and_a_catch_up_have_their_figures_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    finished = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "bench.depth",
                "restart",
                "snapshot",
                "--json",
                "--dir",
                str(tmp_path),
            ),
            *("--restart-gb", "0.003", "--behind-gb", "0.01"),
            *("--runs", "1"),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    figures = {(one["workload"], one["figure"]): one for one in report["figures"]}
    assert len({workload for workload, _ in figures}) == 2
    assert all(one["lowest"] <= one["median"] <= one["highest"] for one in figures.values())
    aims = {figure for (_, figure), one in figures.items() if one["aim"]}
    assert aims == {"serving after, s", "MB/s, the start included"}
    assert report["machine"]["pysyncobj"] == "0.3.17"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_an_unknown_workload_is_refused_in_one_line() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "bench.depth", "width"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "no workload 'width'; there are depth, restart, log, snapshot" in finished.stderr
