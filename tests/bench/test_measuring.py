"""However a benchmark ends, nothing of it is left, and its exit code and one line say how."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from bench.loopback import ClusterFailed
from bench.measuring import measured
from bench.processes import Child, Household

pytestmark = pytest.mark.process


SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


class Run:
    """A run that starts a child, leaves a file, and ends as configured."""

    def __init__(self, *, fails: Exception | None = None, interrupted: bool = False) -> None:
        self.fails = fails
        self.interrupted = interrupted
        self.child: Child | None = None
        self.folder = Path()

    async def work(self, household: Household, folder: Path) -> str:
        self.folder = folder
        self.child = household.start("sleeper", *SLEEPER)
        (folder / "data").write_text("much")
        if self.fails is not None:
            raise self.fails
        if self.interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.get_running_loop().create_future()
        return "figures"

    def left_nothing(self) -> bool:
        assert self.child is not None
        return self.child.exit_code() is not None and not self.folder.exists()


def test_figures_come_back_and_nothing_is_left(tmp_path: Path) -> None:
    run = Run()
    assert measured("test", run.work, within=tmp_path) == "figures"
    assert run.folder.parent == tmp_path
    assert run.left_nothing()


def test_a_cluster_that_fails_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(fails=ClusterFailed("n2 did not come up"))
    with pytest.raises(SystemExit, match="1"):
        measured("test", run.work, within=tmp_path)
    assert capsys.readouterr().err == "the benchmark failed: n2 did not come up\n"
    assert run.left_nothing()


def test_a_fault_of_the_benchmark_itself_is_not_hidden(tmp_path: Path) -> None:
    run = Run(fails=KeyError("typo"))
    with pytest.raises(KeyError):
        measured("test", run.work, within=tmp_path)
    assert run.left_nothing()


def test_ctrl_c_ends_the_children_and_gives_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(interrupted=True)
    with pytest.raises(SystemExit, match="130"):
        measured("test", run.work, within=tmp_path)
    assert capsys.readouterr().err == "interrupted\n"
    assert run.left_nothing()
