"""The demo as a user runs it: to the end, and interrupted at any moment. Real nodes, a real JVM."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.demo.command import parse
from bench.processes import environment

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]

END_S = 20.0
"""An interrupted demo asks everybody to end, and kills who does not, well within this time."""


def start(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    """Start the demo where all that it leaves behind can be found: by folder, and by
    environment."""
    mark = {"FIFO_TEST_MARK": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "bench.demo", "--report", str(tmp_path / "report.html"), *options],
        env=environment(mark),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def left_behind(tmp_path: Path) -> list[str]:
    """Every process that inherited the mark of `start`, whichever its parent is now."""
    mark = f"FIFO_TEST_MARK={tmp_path}".encode()
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def wait_for(demo: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Until it holds; fails if the demo ends first."""
    deadline = time.monotonic() + 120
    while not condition():
        assert demo.poll() is None, demo.communicate()[0]
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def test_a_small_run_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    """A leader killed, a row dead-lettered, every row accounted for, twice in the same folder."""
    demo = start(tmp_path, "--rows", "12000")
    output, _ = demo.communicate(timeout=230)
    assert demo.returncode == 0, output
    assert re.search(r"acked\s+│\s+11,999\s+│\s+11,999", output), output
    assert re.search(r"nacked\s+│\s+119\s+│\s+119", output), output
    assert re.search(r"dead-lettered\s+│\s+1\s+│\s+1", output), output
    assert re.search(r"lost\s+│\s+0\s+│\s+0", output), output
    assert "killed (SIGKILL)" in output
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--rows", "0"],
        ["--rows", "336777"],
        ["--report", "no/such/folder/x.html"],
        ["--upgrade", "0.0.1"],
        ["--grow", "--upgrade", "0.1.0"],
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and one line that names the option; not after a minute of work."""
    with pytest.raises(SystemExit) as ended:
        parse(options)
    assert ended.value.code == 2
    assert options[0] in capsys.readouterr().err


def cluster_is_starting(tmp_path: Path) -> bool:
    """A node has opened its log; no JVM yet."""
    return bool(list(tmp_path.glob("tmp/fifo-demo-*/cluster/*/node.log")))


def jvm_is_starting(tmp_path: Path) -> bool:
    """Java runs; no Python worker yet."""
    return any("org.apache.spark" in command for command in left_behind(tmp_path))


def rows_are_moving(tmp_path: Path) -> bool:
    """Python workers of Spark publish and consume."""
    return bool(list(tmp_path.glob("tmp/fifo-demo-*/publishing")))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("moment", [cluster_is_starting, jvm_is_starting, rows_are_moving])
def test_an_interrupt_leaves_no_process_and_no_file(
    tmp_path: Path, moment: Callable[[Path], bool]
) -> None:
    """Nodes, consumers, the JVM and its workers are gone when the demo is."""
    demo = start(tmp_path)
    try:
        wait_for(demo, lambda: moment(tmp_path))
        os.kill(demo.pid, signal.SIGINT)
        output, _ = demo.communicate(timeout=END_S)
    finally:
        demo.kill()
    assert demo.returncode == 130, output
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "report.html").exists()
