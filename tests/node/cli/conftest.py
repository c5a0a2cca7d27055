"""Running the command line in this process, from a folder of its own."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from node.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs ``fifo`` with the given arguments in an empty folder, with no address set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FIFO_URL", raising=False)
    monkeypatch.delenv("FIFO_DEBUG", raising=False)
    monkeypatch.delenv("FIFO_CONFIG", raising=False)

    def invoke(*arguments: str) -> Done:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def base_port() -> int:
    """A base with free ports for three nodes."""
    return free_base_port()


def free_base_port() -> int:
    """A base of ten ports per node, of which those of three nodes are free now.

    From below the range that kernels give to outgoing connections: the nodes' own dialing would
    otherwise take a port that a node, started a moment later, wants to listen on.
    """
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            chance: int = probe.getsockname()[1]
        # Workers of one run look at the same moment: each has every other block of ports.
        block = 2 * (chance * 37 % ((_BASE_MAX - _BASE_MIN) // 80)) + _WORKER % 2
        base = _BASE_MIN + 40 * block
        if all(_free(base + 10 * i + j) for i in range(3) for j in (1, 2, 3)):
            return base
    raise AssertionError("no free range of ports")


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_BASE_MIN = 10_000
_BASE_MAX = 32_700


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
