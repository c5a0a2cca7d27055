"""`tests/support/many_seeds.py`: failures, progress, ends of workers and of who runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import many_seeds
from tests.support.many_seeds import INTERRUPTED, Ran, add_jobs_option, many

pytestmark = pytest.mark.process


ROOT = Path(__file__).parents[1]
SOON_SECONDS = 60.0


def by_process(seed: int) -> Ran:
    """Every seventh seed fails; counts who ran it."""
    error = "AssertionError: it does not hold" if seed % 7 == 0 else None
    return Ran(seed, error, 2.0, Counter([f"process {os.getpid()}"]))


def deadly(seed: int) -> Ran:
    """Kill the process, as the kernel does when memory ends."""
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return by_process(seed)


def endless(seed: int) -> Ran:
    """Says that it runs, and never ends."""
    os.write(sys.stdout.fileno(), b"runs\n")  # In one piece: `print` may write the end apart.
    threading.Event().wait()
    return by_process(seed)


def test_a_failure_is_printed_with_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = many(by_process, range(1, 20), jobs=2, repeat="python -m x --seed {seed} --cut")
    lines = capsys.readouterr().out.splitlines()
    again = "repeat it: python -m x --seed 14 --cut"
    assert f"seed 14: AssertionError: it does not hold; {again}" in lines
    assert lines[-1].startswith("19 seeds from 1 in ")
    assert lines[-1].endswith("failed: [7, 14]")
    assert code == 1


def test_workers_are_replaced_and_all_counts_add_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many_seeds, "SEEDS_PER_WORKER", 2)
    code = many(by_process, range(1, 7), jobs=1, repeat="")
    counted = [line.split() for line in capsys.readouterr().out.splitlines() if " process " in line]
    assert [times for times, *_ in counted] == ["2", "2", "2"]
    assert str(os.getpid()) not in {pid for *_, pid in counted}
    assert code == 0


def test_a_worker_that_dies_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    code = many(deadly, range(1, 6), jobs=1, repeat="")
    assert "a worker process died" in capsys.readouterr().out.splitlines()[-1]
    assert code == 1


@pytest.mark.parametrize("jobs", ["0", "-1", "all"])
def test_jobs_are_a_number_of_processes(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    add_jobs_option(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--jobs={jobs}"])
    assert f"{jobs} is no number of processes, 1 or more" in capsys.readouterr().err


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """In a group of its own, as a shell starts it: Ctrl-C goes to all of a group."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("simulator", ["tests.node.raft", "tests.sim"])
def test_ctrl_c_ends_with_the_results_so_far(simulator: str) -> None:
    with started("-m", simulator, "--seeds", "1000000", "--jobs", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1000000 seeds from 0, 1 at a time\n"
        os.killpg(process.pid, signal.SIGINT)
        *_, last = process.communicate(timeout=SOON_SECONDS)[0].splitlines()
    assert last.startswith("interrupted after ")
    assert last.endswith("failed: none")
    assert process.returncode == INTERRUPTED


def test_workers_end_with_their_parent() -> None:
    code = "from tests.test_many_seeds import *;many(endless, range(10), jobs=2, repeat='')"
    with started("-c", code) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        assert said == ["10 seeds from 0, 2 at a time\n", "runs\n", "runs\n"]
        process.kill()
        # The pipe ends when the last process that holds it does.
        assert process.communicate(timeout=SOON_SECONDS)[0] == ""
