"""The cluster of a demo or a benchmark comes up beside others."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from bench import cluster, loopback
from bench.cluster import NODE_PORTS
from bench.loopback import NODES, ClusterFailed, free_base
from bench.processes import Household, environment

if TYPE_CHECKING:
    from pathlib import Path

# In a process of its own, because the end of a Household is the end of every child of its process.
SCRIPT = """
import asyncio, pathlib, sys
import bench.cluster as cluster
from bench.processes import Household

folder, taken = pathlib.Path(sys.argv[1]), int(sys.argv[2])
bases = [taken, cluster.free_base(cluster.NODE_PORTS)]
cluster.free_base = lambda _: bases.pop(0)
household = Household(folder / "logs")
try:
    started = cluster.BenchCluster(household, folder / "cluster")
    asyncio.run(started.start())
    print(len(started.nodes), len(bases))
finally:
    household.end()
"""


@pytest.mark.cluster
def test_a_port_that_is_taken_meanwhile_leads_to_another_try(tmp_path: Path) -> None:
    """Two demos that start together must not both fail."""
    base = free_base(NODE_PORTS)
    with socket.create_server(("127.0.0.1", base + NODE_PORTS[3])):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), str(base)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert (done.stdout, done.returncode) == (f"{NODES} 0\n", 0), done.stderr


def test_a_base_with_a_taken_port_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of the nine ports counts."""
    base = free_base(NODE_PORTS)
    monkeypatch.setattr(loopback, "BASE_PORTS", range(base, base + 1))
    monkeypatch.delenv(loopback.SHARE_ENV)
    assert free_base(NODE_PORTS) == base
    taken = socket.create_server(("127.0.0.1", base + NODE_PORTS[-1]))
    with taken, pytest.raises(ClusterFailed):
        free_base(NODE_PORTS)


@pytest.mark.process
async def test_the_process_to_kill_is_looked_up_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line takes longer to start than an election: clients go on meanwhile."""
    sleeping = sys.executable, "-c", "import signal; signal.pause()"
    victim = await asyncio.create_subprocess_exec(*sleeping)
    went_on = threading.Event()
    found = [{"name": "n1", "pid": victim.pid}]
    one = cluster.BenchCluster(Household(tmp_path / "logs"), tmp_path / "cluster")
    monkeypatch.setattr(one, "views", lambda: found if went_on.wait(10) else [])
    asyncio.get_running_loop().call_soon(went_on.set)
    await one.kill(cluster.Node(1, "n1", ""))
    assert await asyncio.wait_for(victim.wait(), 10) == -signal.SIGKILL
