"""`fifo worker` as a process beside a node of its own: signals, and what is said of wrong input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fifo
import fifo.blocking
from bench.loopback import free_ports
from node.cli.processes import wait_until
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
        worker.until("ready: 1 task, queues orders, 16 at once")
        client.publish("orders", b'{"number": 1, "seconds": 0.3}', headers={"task": "ship"})
        worker.until("began 1")
        worker.signal(signal.SIGTERM)
        worker.until("draining: 1 message at work, up to 25 s")
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
        ("shop.app", "fifo worker: there is no module 'shop.app' in "),
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


def test_a_handler_with_def_runs_in_a_process_that_ends_with_its_worker(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    (tmp_path / "shop.py").write_text(
        "import os\nimport fifo\napp = fifo.App()\n"
        "@app.task('orders', soft_time_limit=30)\ndef add(one: int, two: int) -> int:\n"
        "    print('sum', one + two, 'by', os.getpid(), flush=True)\n    return one + two\n"
    )
    with fifo.blocking.connect(shared_cluster.url) as client:
        started.append(worker := Command(tmp_path, "shop:app", url=shared_cluster.url))
        worker.until("ready")
        client.publish("orders", b'{"one": 2, "two": 3}', headers={"task": "add"})
        child = int(worker.until("sum 5 by").split()[-1])
        assert child != worker.process.pid
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        assert client.queue("orders").messages == 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_processes_are_kept_running_and_answer_probes_together(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (port,) = free_ports(1)
    options = ("--processes", "2", "--health-port", str(port), "--health-file", "health")
    started.append(worker := Command(tmp_path, "shop:app", *options, url=shared_cluster.url))
    first = process_of(worker.until("ready:"))
    second = process_of(worker.until("ready:"))
    assert probe(port, "/live") == (200, "live\n")
    until(lambda: probe(port, "/ready") == (200, "ready\n"))
    until(lambda: (tmp_path / "health").read_text() == "ready\n")
    assert probe(port, "/") == (404, "ask for /live or /ready\n")
    os.kill(first, signal.SIGKILL)
    worker.until(f"process {first} ended by SIGKILL: started again in 1 s")
    assert probe(port, "/ready") == (503, "not ready\n")
    third = process_of(worker.until("ready:"))
    assert len({first, second, third}) == 3
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert sum("drained" in line for line in worker.lines) == 2
    assert not (tmp_path / "health").exists()


def test_a_process_whose_supervisor_is_killed_drains(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    started.append(worker := Command(tmp_path, "shop:app", "--reload", url=shared_cluster.url))
    worker.until("ready:")
    worker.signal(signal.SIGKILL)
    worker.until("the supervisor of this process has gone: draining")
    worker.until("drained")
    worker.ended()


def test_processes_that_were_never_ready_end_the_command_with_their_line(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    started.append(
        worker := Command(tmp_path, "nowhere:app", "--processes", "2", url=shared_cluster.url)
    )
    assert worker.ended() == 1
    assert {line.split(" in ")[0] for line in worker.lines} == {
        "fifo worker: there is no module 'nowhere'"
    }


def test_a_changed_file_is_loaded_and_one_that_is_wrong_waits_for_the_next_change(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    started.append(worker := Command(tmp_path, "shop:app", "--reload", url=shared_cluster.url))
    worker.until("ready: 1 task")
    (tmp_path / "shop.py").write_text("def broken(:\n")
    worker.until("shop.py changed: the workers are started again")
    worker.until("fifo worker: module shop does not import: SyntaxError")
    (tmp_path / "shop.py").write_text(APP + "\n@app.task('more')\nasync def more() -> None: ...\n")
    worker.until("ready: 2 tasks, queues orders, more")
    worker.signal(signal.SIGINT)
    assert worker.ended() == 0


def test_a_handler_that_never_yields_is_named_with_its_place_and_loses_no_message(
    tmp_path: Path, shared_cluster: SharedCluster, started: list[Command]
) -> None:
    blocks = "    threading.Event().wait()\n"
    (tmp_path / "shop.py").write_text(
        "import threading\nimport fifo\napp = fifo.App()\n"
        "@app.task(fifo.QueueSpec('orders', lock=2))\nasync def ship() -> None:\n" + blocks
    )
    with fifo.blocking.connect(shared_cluster.url) as client:
        options = ("--log-format", "json")
        started.append(worker := Command(tmp_path, "shop:app", *options, url=shared_cluster.url))
        worker.until("ready")
        client.publish("orders", b"{}", headers={"task": "ship"})
        line = json.loads(worker.until("the event loop has not turned"))
        assert line["level"] == "error"
        assert f"{tmp_path / 'shop.py'}:6 ship" in line["text"]
        assert client.queue("orders").locked == 1
        worker.signal(signal.SIGKILL)
        until(lambda: client.queue("orders").ready == 1)


def process_of(line: str) -> int:
    """The process that logged a line."""
    found = re.search(r"\[(\d+)\]", line)
    assert found is not None, line
    return int(found[1])


def probe(port: int, path: str) -> tuple[int, str]:
    """Ask the health port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    assert wait_until(condition, SECONDS_MAX)
