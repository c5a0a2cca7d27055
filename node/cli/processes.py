"""Processes of this machine: identity, start and safe signals.

Owns the rule that a signal is sent only to a process whose identity (pid and start time) is the
recorded one: the kernel reuses pids. Must not know clusters.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from node.cli.limits import PARENT_POLL_S, POLL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MODULE: Final = "node"
"""The program of a node that is started here."""

_PR_SET_PDEATHSIG: Final = 1
_NEVER: Final = threading.Event()

ProcessState = Literal["running", "paused", "stopped"]


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid, and a start time that no later process with the same pid can share."""

    pid: int
    started: str

    def state(self) -> ProcessState:
        """Running, paused (SIGSTOP) or stopped: gone, a zombie, or a pid that was reused."""
        found = _look(self.pid)
        if found is None or found[1] != self.started or found[0] in "ZX":
            return "stopped"
        return "paused" if found[0] in "Tt" else "running"

    @property
    def alive(self) -> bool:
        """Whether this process still exists, paused or not."""
        return self.state() != "stopped"

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this process; False where it is gone."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def identify(pid: int) -> ProcessId | None:
    """Identify a living process; None where there is none."""
    found = _look(pid)
    return None if found is None or found[0] in "ZX" else ProcessId(pid, found[1])


def start_node(arguments: Sequence[str], log: Path, *, die_with_me: bool) -> ProcessId:
    """Start ``python -m MODULE`` in its own session, so that Ctrl-C reaches only its parent.

    Output is appended to ``log``. With ``die_with_me`` the node is killed when this process
    ends, even by SIGKILL.
    """
    command = [sys.executable, "-m", MODULE, *arguments]
    if die_with_me:
        command += ["--parent", str(os.getpid())]
    log.parent.mkdir(parents=True, exist_ok=True)
    # posix_spawn and not Popen: a detached node must outlive the object that started it.
    pid = os.posix_spawn(
        sys.executable,
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    identity = identify(pid)
    # The process may have ended already; its exit code can still be collected.
    return identity if identity is not None else ProcessId(pid, "ended at once")


def exit_code(child: ProcessId) -> int | None:
    """Reap a child process: its exit code, negative for a signal; None while it runs."""
    try:
        pid, status = os.waitpid(child.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid == child.pid else None


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds; False after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        pause_between_polls(POLL_S)
    return True


def pause_between_polls(seconds: float) -> None:
    """Wait between two polls; signal handlers run meanwhile."""
    _NEVER.wait(seconds)


def wait_gone(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait for the end of all processes; returns those that still live."""
    left = list(processes)

    def gone() -> bool:
        left[:] = [process for process in left if process.alive]
        return not left

    wait_until(gone, seconds)
    return left


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent process ends.

    Linux does so in the kernel, which also reaches a paused node; elsewhere a thread polls.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # The parent ended before the line above took effect.
        raise SystemExit(1)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        pause_between_polls(PARENT_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _look(pid: int) -> tuple[str, str] | None:
    """State letter and start time of a process; None where there is none."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        # The second field is the program name in parentheses and may contain any character.
        fields = stat.rpartition(")")[2].split()
        return fields[0], f"{_boot_id()}:{fields[19]}"
    answer = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return (state[0], " ".join(started.split())) if state else None


def _boot_id() -> str:
    """Id of this boot: start times count from the boot, so they repeat after the next one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
