"""Signals reach our own processes and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from node.cli.processes import ProcessId, exit_code, identify, wait_gone, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process


WAIT_S = 20.0


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[bytes], ProcessId]]:
    """A process that lives until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        identity = identify(process.pid)
        assert identity is not None
        yield process, identity
        process.kill()


def test_a_process_is_running_then_paused_then_stopped(
    child: tuple[subprocess.Popen[bytes], ProcessId],
) -> None:
    process, identity = child
    assert identity.state() == "running"
    assert identity.signal(signal.SIGSTOP)
    assert wait_until(lambda: identity.state() == "paused", WAIT_S)
    assert identity.signal(signal.SIGKILL)
    assert wait_gone([identity], WAIT_S) == []
    assert not identity.signal(signal.SIGKILL)
    process.wait()


def test_a_reused_pid_is_not_signalled(
    child: tuple[subprocess.Popen[bytes], ProcessId],
) -> None:
    process, identity = child
    before_it = replace(identity, started="an earlier time")
    assert not before_it.alive
    assert not before_it.signal(signal.SIGKILL)
    assert process.poll() is None
    assert identity.state() == "running"


def test_a_zombie_counts_as_stopped_and_its_exit_code_is_reaped() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(7)"], os.environ)
    identity = identify(pid) or ProcessId(pid, "ended")
    assert wait_until(lambda: not identity.alive, WAIT_S)
    assert exit_code(identity) == 7
    assert exit_code(identity) is None


def test_a_missing_process_has_no_identity() -> None:
    assert identify(2**22 + 1) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only there the kernel does it")
def test_a_child_dies_with_its_parent_even_if_both_are_frozen_or_killed() -> None:
    grandchild = (
        "import os, sys, node.cli.processes as p\n"
        "p.die_with_parent(int(sys.argv[1]))\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent_code = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {grandchild!r}, str(os.getpid())],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        identity = identify(int(parent.stdout.readline()))
        assert identity is not None
        assert identity.signal(signal.SIGSTOP)
        parent.kill()
        assert wait_gone([identity], WAIT_S) == []
