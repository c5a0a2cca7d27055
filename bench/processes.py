"""Children that never outlive their run: starting, watching and ending whole trees of processes.

Owns the promise that after `Household.end` nothing is left, grandchildren included (a JVM, its
Python workers, nodes), and that nothing is left either when this process is killed. Three means:
every child leads a session of its own, so that a Ctrl-C reaches only the parent, which then ends
all in order; on Linux the kernel kills a child whose parent is gone, and hands orphaned
grandchildren to this process, which therefore finds them by walking down from itself. Ends by pid,
never by name. Must not know what the children do.
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
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parent.parent

ORDERLY_S = 6.0
"""Time that children may take to end on their own: a cluster stops its nodes in this time."""

KILLED_S = 5.0
"""Time that the kernel may take to remove what was killed; it needs milliseconds."""

POLL_S = 0.02
"""Between two looks at processes that are about to end."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class Child:
    """A started process: its name, its log, and whether it still runs."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """The pid, which is its session's and process group's too."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless it has ended."""
        self._process.send_signal(number)

    def last_lines(self, count: int = 12) -> str:
        """The end of what it said: for the reader of an error."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-count:])


class Household:
    """All children of one run, and whatever comes of them.

    One at a time per process: an orphan does not say whose grandchild it was. What ran below this
    process before is somebody else's and stays.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []
        self._others = descendants(os.getpid(), set())
        _adopt_orphans()

    def start(
        self,
        name: str,
        *command: str,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
    ) -> Child:
        """Start a command in a session of its own; what it says is kept in a log of that name.

        Call it from the main thread: the kernel ties the child's life to the thread that starts
        it.
        """
        assert threading.current_thread() is threading.main_thread()
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        with log.open("ab") as said, (stdout or log).open("ab") as answer:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.processes", str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=said,
                env=environment(env),
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def end(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """End everything: first asked, then killed. Returns when nothing is left.

        `hurry` is asked meanwhile; once it returns True, no child is given time any more.
        """
        for child in self._children:
            if child.exit_code() is None:
                child.signal(signal.SIGTERM)
        _wait(lambda: hurry() or self._all_ended(), ORDERLY_S)
        deadline = time.monotonic() + KILLED_S
        while left := self._left():
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            _wait(lambda: not self._left(), POLL_S * 5)
            if time.monotonic() > deadline:
                raise RuntimeError(f"these processes cannot be ended: {sorted(self._left())}")
        self._children.clear()

    def _all_ended(self) -> bool:
        return all(child.exit_code() is not None for child in self._children)

    def _left(self) -> set[int]:
        """Pids of everything below this process, and in the sessions of its children."""
        if self._all_ended():
            _collect_orphans()
        sessions = {child.pid for child in self._children}
        return descendants(os.getpid(), sessions, self._others)


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment in which `bench` can be imported wherever it runs, and changes."""
    path = os.environ.get("PYTHONPATH")
    found = f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)
    return {**os.environ, "PYTHONPATH": found, **(changes or {})}


def descendants(
    top: int, sessions: set[int], apart: frozenset[int] | set[int] = frozenset()
) -> set[int]:
    """Living processes below `top`, or in one of these sessions; without `top` and zombies, without
    those `apart` and what is below them."""
    table = _process_table()
    found = {pid for pid, (_, session) in table.items() if session in sessions}
    below = {top}
    while below:
        below = {pid for pid, (parent, _) in table.items() if parent in below} - found - apart
        found |= below
    found.discard(top)
    return found


def _process_table() -> dict[int, tuple[int, int]]:
    """Parent and session of every living process."""
    if sys.platform == "linux":
        return _table_of_proc()
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    table = {}
    for line in listing.stdout.splitlines():
        pid, parent, state = line.split(maxsplit=2)
        with contextlib.suppress(OSError):
            if not state.startswith("Z"):
                table[int(pid)] = (int(parent), os.getsid(int(pid)))
    return table


def _table_of_proc() -> dict[int, tuple[int, int]]:
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(errors="replace")
                # The program's name stands in parentheses and may hold anything.
                state, parent, _, session = stat.rpartition(")")[2].split()[:4]
                if state not in "ZX":
                    table[int(entry.name)] = (int(parent), int(session))
    return table


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    """Look until it holds or the time is over."""
    over = threading.Event()
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        over.wait(POLL_S)


def _adopt_orphans() -> None:
    """Grandchildren whose parent dies become children of this process, where Linux can do that."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _collect_orphans() -> None:
    """Take the exit codes of adopted grandchildren, so that no zombie stays behind.

    Only once no child of our own runs: those codes are for `Popen` to take.
    """
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    """Become the command after the parent's pid, to be killed when that parent ends.

    The wish survives exec, so it is made here, in the child, without code between fork and exec.
    """
    parent, *command = sys.argv[1:]
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # It ended before the wish was heard.
        raise SystemExit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
