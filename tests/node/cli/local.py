"""A local cluster and the commands that people type at it.

Owns running a command, in this process or in one of its own, what it comes to, and free ports. Must
not assert what a test is about.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.loopback import free_base
from node.cli.main import run
from node.cli.processes import ProcessId, wait_gone, wait_until
from node.cli.state import ClusterFolder

WAIT_S = 30.0
ROOT = Path(__file__).parents[3]
ALL_UP = ("leader", "follower", "follower")


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a command: exit code and output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, parsed as JSON."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The single line of a failure; asserts that there is no traceback."""
        assert "Traceback" not in self.err + self.out
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


@dataclass(frozen=True, slots=True)
class Local:
    """A folder in which commands are typed."""

    folder: Path
    base_port: int

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "node", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FIFO_")}
        return {**kept, "PYTHONPATH": str(ROOT)}

    def process(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command as a person would, in a process of its own."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S * 2,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def at_a_terminal(self, answer: str, *arguments: str) -> tuple[int, str]:
        """Run a command that asks; returns its exit code and what it printed on stderr."""
        terminal, stdin = pty.openpty()
        try:
            os.write(terminal, answer.encode())
            done = subprocess.run(
                self.command(*arguments),
                cwd=self.folder,
                env=self.environment,
                stdin=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        finally:
            os.close(terminal)
            os.close(stdin)
        return done.returncode, done.stderr

    def type(self, *arguments: str) -> Done:
        """The same in this process, which saves the start of Python."""
        out, err = io.BytesIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)),
            contextlib.redirect_stderr(err),
        ):
            code = run(arguments)
            return Done(code, out.getvalue().decode(), err.getvalue())

    def ok(self, *arguments: str) -> Done:
        """`type`, which has to work and say nothing on stderr."""
        done = self.type(*arguments)
        assert (done.code, done.err) == (0, ""), (arguments, done)
        return done

    def status(self) -> dict[str, Any]:
        view: dict[str, Any] = self.ok("cluster", "status", "--json").json
        return view

    def processes(self) -> list[ProcessId]:
        state = ClusterFolder(self.folder / ".fifo").require()
        return [node.process for node in state.nodes if node.process is not None]

    def kill_all(self) -> None:
        """Kill every node at once, as a power cut would."""
        processes = self.processes()
        for process in processes:
            process.signal(signal.SIGKILL)
        assert wait_gone(processes, WAIT_S) == []

    def wait_for(self, *roles: str) -> dict[str, Any]:
        """Wait until the nodes have these roles, in any order."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.update(self.status())
            return sorted(node["role"] for node in seen["nodes"]) == sorted(roles)

        assert wait_until(there, WAIT_S), seen
        return seen


def typing(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs ``fifo`` in this process with the given arguments."""

    def invoke(*arguments: str) -> Done:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return invoke


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Local]:
    """Three nodes, started detached; whatever happens, none is left."""
    here = Local(folder, free_base_port())
    port = str(here.base_port)
    started = here.process("cluster", "start", "--detach", "--base-port", port, "--json")
    processes = here.processes()
    try:
        assert (started.code, started.err) == (0, "")
        view = started.json
        assert sorted(node["role"] for node in view["nodes"]) == sorted(ALL_UP)
        yield here
    finally:
        processes += here.processes()
        here.type("cluster", "stop")
        for process in processes:
            process.signal(signal.SIGKILL)
        assert wait_gone(processes, WAIT_S) == []


def free_base_port() -> int:
    """A base of ten ports per node, of which those of five nodes are free now."""
    return free_base(range(10 * 5))
