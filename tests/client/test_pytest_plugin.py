"""The pytest plugin, in a project of its own: a process, because it is pytest that is tested."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.pytest_ids import ROOT

pytestmark = pytest.mark.process

SECONDS_MAX = 60

STRICT = """
import fifo, pytest
pytestmark = pytest.mark.asyncio

async def test_one_node(fifo_client, fifo_cluster):
    await fifo_client.declare(fifo.QueueSpec("orders"))
    assert (fifo_cluster.nodes, fifo_client.connected) == (("n1",), True)

@pytest.mark.fifo_cluster(nodes=5, seed=3)
async def test_more_nodes(fifo_cluster):
    assert len(fifo_cluster.nodes) == 5

FAULTS = [
    pytest.param(name, marks=pytest.mark.fifo_faults(name, every=4, lasting=3))
    for name in ("kill_leader", "cut_leader", "cut_clients")
]

@pytest.mark.parametrize("fault", FAULTS)
async def test_faults(fault, fifo_client, fifo_cluster):
    await fifo_client.declare(fifo.QueueSpec("orders"))
    for _ in range(30):
        await fifo_client.publish("orders", b"x")
        await fifo_cluster.advance(seconds=0.7)
    assert fifo_client.metrics.disconnects > 0, fault
    assert len(fifo_cluster.queue("orders").messages) == 30
"""

BLOCKING = """
import fifo, pytest

def test_one_node(fifo_blocking_client, fifo_blocking_cluster):
    fifo_blocking_client.declare(fifo.QueueSpec("orders"))
    fifo_blocking_client.publish("orders", b"x", delay=60)
    fifo_blocking_cluster.advance(minutes=1)
    assert fifo_blocking_cluster.queue("orders").view.ready == 1

@pytest.mark.fifo_cluster(nodes=3, seed=3)
@pytest.mark.fifo_faults("kill_leader", "cut_clients", every=4, lasting=3)
def test_faults(fifo_blocking_client, fifo_blocking_cluster):
    fifo_blocking_client.declare(fifo.QueueSpec("orders"))
    for _ in range(30):
        fifo_blocking_client.publish("orders", b"x")
        fifo_blocking_cluster.advance(seconds=0.7)
    assert fifo_blocking_client.metrics.disconnects > 0
    assert len(fifo_blocking_cluster.queue("orders").messages) == 30
"""

WRONG = """
import pytest

@pytest.mark.fifo_cluster(node=3)
async def test_unknown_keyword(fifo_cluster): ...

@pytest.mark.fifo_faults("unplug")
async def test_unknown_fault(fifo_cluster): ...

@pytest.mark.fifo_faults
async def test_no_fault(fifo_cluster): ...

@pytest.mark.fifo_faults("kill_leader", every=2, lasting=3)
async def test_endless_fault(fifo_cluster): ...

@pytest.mark.fifo_faults("kill_leader", every="5s")
async def test_fault_of_words(fifo_cluster): ...

@pytest.mark.fifo_cluster(nodes=0)
async def test_no_node(fifo_cluster): ...
"""

LOADED = """
import sys, pytest
before = set(sys.modules)
import pytest_fifo
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded & {"fifo", "node", "msgpack"}))
"""


def run(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file in a folder without any configuration of ours."""
    (folder / "test_theirs.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    plugins = ("-p", "pytest_fifo", "-p", "no:cacheprovider", "--strict-markers")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *options, "test_theirs.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_the_fixtures_and_faults_work_in_strict_mode(tmp_path: Path) -> None:
    done = run(tmp_path, STRICT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_the_fixtures_of_tests_without_an_event_loop_work(tmp_path: Path) -> None:
    done = run(tmp_path, BLOCKING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_wrong_marker_is_named_with_what_there_is(tmp_path: Path) -> None:
    done = run(tmp_path, WRONG, "-o", "asyncio_mode=auto")
    for line in (
        "pytest.mark.fifo_cluster does not take node; its keywords are nodes, seed",
        "pytest.mark.fifo_faults knows no fault 'unplug'; there are: kill_leader, cut_leader",
        "pytest.mark.fifo_faults names no fault; there are",
        "lasting=3 must be above 0 and below every=2: a fault ends before the next one begins",
        "pytest.mark.fifo_faults: every must be seconds, not '5s'",
        "nodes: must be from 1 to 9, not 0",
    ):
        assert line in done.stdout
    assert "6 errors" in done.stdout


def test_loading_the_plugin_imports_nothing_of_fifo() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_entry_point_names_the_plugin_as_pytest_loads_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"pytest_fifo": "pytest_fifo"}
