"""`fifo worker` as a process beside a node of its own: signals, and what is said of wrong input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fifo
import fifo.blocking
from tests.support.pytest_ids import ROOT
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.process]

SECONDS_MAX = 30

APP = """
import asyncio, os
import fifo

app = fifo.App()

@app.task("orders", max_deliveries=3)
async def ship(number: int, seconds: float) -> None:
    print("began", number, flush=True)
    await asyncio.sleep(seconds)
    print("done", number, flush=True)
"""


class Command:
    """A `fifo worker` in a folder."""

    def __init__(self, folder: Path, *arguments: str, url: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fifo", "worker", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "FIFO_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []

    def until(self, text: str) -> str:
        """Read its output to the line with a text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"no {text!r} in: {''.join(self.lines)}")

    def ended(self) -> int:
        """Read the rest and wait for the end."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        return self.process.wait(SECONDS_MAX)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


@pytest.fixture
def started() -> Iterator[list[Command]]:
    """Commands that end with the test, at the latest."""
    commands: list[Command] = []
    yield commands
    for command in commands:
        command.process.kill()
        command.process.wait(SECONDS_MAX)
        if command.process.stdout is not None:
            command.process.stdout.close()


def test_sigterm_ends_what_is_at_work_and_a_second_one_releases_it(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with fifo.blocking.connect(shared_cluster.url) as client:
        started.append(worker := Command(tmp_path, "shop:app", url=shared_cluster.url))
        worker.until("ready: 1 tasks, queues orders, 16 at once")
        client.publish("orders", b'{"number": 1, "seconds": 0.3}', headers={"task": "ship"})
        worker.until("began 1")
        worker.signal(signal.SIGTERM)
        worker.until("draining: 1 messages at work, up to 25 s")
        assert worker.ended() == 0
        assert any("done 1" in line for line in worker.lines)
        assert client.queue("orders").messages == 0

        started.append(worker := Command(tmp_path, "shop:app", url=shared_cluster.url))
        worker.until("ready")
        client.publish("orders", b'{"number": 2, "seconds": 600}', headers={"task": "ship"})
        worker.until("began 2")
        worker.signal(signal.SIGTERM)
        worker.until("draining")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        (message,) = client.peek("orders")
        assert message.failures == 0


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("nowhere:app", "fifo worker: there is no module 'nowhere' in "),
        ("shop.py:app", "fifo worker: 'shop.py:app': write module:app, as in orders:app"),
        ("shop:worker", "fifo worker: module shop: 'worker' is no fifo.App there; it has shop:app"),
        ("broken:app", "fifo worker: module broken does not import: ZeroDivisionError: division"),
        ("absent:app", "fifo worker: module absent does not import: ModuleNotFoundError: No modul"),
        ("wrong:app", "fifo worker: task ship: parameter 'socket': socket cannot be read from a b"),
    ],
)
def test_an_app_that_cannot_run_is_one_line(
    target: str, line: str, tmp_path: Path, started: list[Command], shared_cluster: SharedCluster
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "absent.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "wrong.py").write_text(
        "import fifo, socket\napp = fifo.App()\n@app.task('orders')\n"
        "async def ship(socket: socket.socket) -> None: ...\n"
    )
    started.append(worker := Command(tmp_path, target, url=shared_cluster.url))
    assert worker.ended() == 1
    assert len(worker.lines) == 1
    assert worker.lines[0].startswith(line)
