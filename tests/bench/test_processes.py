"""No process outlives its run: real processes, real signals, no JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.processes import ROOT, environment
from node.cli.processes import identify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.process


DEADLINE_S = 20.0

# A child that starts a grandchild, which leaves its session and will not hear SIGTERM: the worst
# that a JVM, its Python workers or a node could do.
GRANDCHILD = """
import os, pathlib, signal, sys, threading
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1], f"grandchild-{os.getpid()}").touch()
threading.Event().wait()
"""
CHILD = f"""
import os, pathlib, subprocess, sys, threading
subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}, sys.argv[1]])
pathlib.Path(sys.argv[1], f"child-{{os.getpid()}}").touch()
threading.Event().wait()
"""
PARENT = f"""
import pathlib, signal, sys, threading
from bench.processes import Household
folder = pathlib.Path(sys.argv[1])
household = Household(folder / "logs")
try:
    for name in ("a", "b"):
        household.start(name, sys.executable, "-c", {CHILD!r}, str(folder))
    threading.Event().wait()
except KeyboardInterrupt:
    pass
finally:
    household.end(hurry=lambda: True)
"""


def alive(pid: int) -> bool:
    """A zombie counts: it stands in the process list."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds; fails at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def started(folder: Path) -> list[int]:
    """Pids of all children and grandchildren so far."""
    return [int(p.name.partition("-")[2]) for p in folder.glob("*child-*")]


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with two children, each with a grandchild in another session."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env=environment(), cwd=tmp_path
    )
    wait_for(lambda: len(started(tmp_path)) == 4)
    yield process
    process.kill()
    process.wait()
    for pid in started(tmp_path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_an_interrupt_ends_children_and_grandchildren_that_left_the_session(
    parent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """When the interrupted process has ended, so has everything below it."""
    parent.send_signal(signal.SIGINT)
    assert parent.wait(DEADLINE_S) == 0
    assert not [pid for pid in started(tmp_path) if alive(pid)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
def test_children_die_with_a_parent_that_is_killed(
    parent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """SIGKILL leaves no time to end anybody; the kernel ends the children, and they their own.

    Collecting the exit codes of orphans is the business of process 1, which may take its time.
    """
    pids = [int(p.name.partition("-")[2]) for p in tmp_path.glob("child-*")]
    children = [found for found in map(identify, pids) if found is not None]
    assert len(children) == 2
    parent.kill()
    parent.wait(DEADLINE_S)
    wait_for(lambda: not any(child.alive for child in children))


def test_a_household_leaves_earlier_processes_alone(tmp_path: Path) -> None:
    """A JVM that other tests share, for one."""
    source = f"""
import pathlib, subprocess, sys
from bench.processes import Household
before = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}, {str(tmp_path)!r}])
household = Household(pathlib.Path({str(tmp_path)!r}))
household.start("mine", sys.executable, "-c", {GRANDCHILD!r}, {str(tmp_path)!r})
household.end(hurry=lambda: True)
print(before.poll())
before.kill()
"""
    outcome = subprocess.run(
        [sys.executable, "-c", source],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert outcome.stdout.strip() == "None"


def test_bench_can_be_imported_by_a_child_wherever_it_runs(tmp_path: Path) -> None:
    """Spark's workers start in folders of their own."""
    outcome = subprocess.run(
        [sys.executable, "-S", "-c", "import bench; print(bench.__file__)"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(outcome.stdout.strip()) == ROOT / "bench" / "__init__.py"
