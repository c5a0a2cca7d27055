"""The cost of a check: time, processors and memory of everything that a command starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.check import cost
from bench.check.cost import CostFailed, run
from bench.processes import Household

WORK = "held = bytearray(96 << 20); sum(range(8_000_000))"
BELOW = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORK!r}], check=True)"


@pytest.fixture
def household(tmp_path: Path) -> Iterator[Household]:
    found = Household(tmp_path)
    yield found
    found.end(hurry=lambda: True)


@pytest.mark.process
def test_child_processes_of_a_command_count(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "POLL_S", 0.005)
    took = run(household, "work", "timeit", "-n", "1", "-r", "1", BELOW)
    assert took.rss_mib > 96
    assert 0.05 < took.cpu_seconds < 100
    assert took.seconds > 0.05


@pytest.mark.process
def test_a_command_that_fails_is_quoted(household: Household) -> None:
    with pytest.raises(CostFailed, match="there_is_no_such_name"):
        run(household, "work", "timeit", "there_is_no_such_name")
