"""A real cluster of three processes and a Spark session for all tests of this folder.

Owns starting and ending the cluster; Spark is shared with other folders' tests.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifo
from bench.cluster import NODE_PORTS
from bench.loopback import free_base
from bench.processes import environment
from fifo.blocking import BlockingClient
from node.cli.main import run
from tests.support.spark_session import spark_session

_names = itertools.count(1)

START_S = 100.0
LEADER_S = 60.0
LOOK_S = 0.05


class Cluster:
    """Three nodes, used by tests one after the other, through the command `fifo cluster`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        base = str(free_base(NODE_PORTS))
        started = subprocess.run(
            [
                *(sys.executable, "-m", "node", *self._command("start")),
                *("--base-port", base, "--detach", "--json"),
            ],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert started.returncode == 0, started.stderr
        self.url = str(json.loads(started.stdout)["url"])

    def stop(self) -> None:
        """End the nodes."""
        self._fifo("stop")

    def kill_leader(self) -> None:
        """SIGKILL the leader; return when another one leads and the killed one is back."""
        leader = self._leader()
        self._fifo("kill", str(leader))
        self._leader(other_than=leader)
        self._fifo("restart", str(leader))

    @contextlib.contextmanager
    def without_majority(self) -> Iterator[None]:
        """Two of the three nodes are killed meanwhile."""
        for number in (1, 2):
            self._fifo("kill", str(number))
        try:
            yield
        finally:
            for number in (1, 2):
                self._fifo("restart", str(number))
            self._leader()

    def _leader(self, other_than: int = 0) -> int:
        """The number of the node that leads, waited for."""
        pause, deadline = threading.Event(), time.monotonic() + LEADER_S
        while time.monotonic() < deadline:
            nodes = json.loads(self._fifo("status", "--json"))["nodes"]
            for number, node in enumerate(nodes, 1):
                if node["role"] == "leader" and number != other_than:
                    return number
            pause.wait(LOOK_S)
        raise AssertionError(f"no leader within {LEADER_S} s")

    def _fifo(self, verb: str, *arguments: str) -> str:
        """Run a command in this process, which saves the start of Python."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*self._command(verb), *arguments])
        assert code == 0, err.getvalue()
        return out.getvalue()

    def _command(self, verb: str) -> list[str]:
        return ["cluster", verb, "--dir", str(self._folder)]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("nodes") / "cluster")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with fifo.blocking.connect(cluster.url) as found:
        yield found


@pytest.fixture
def queue(client: BlockingClient) -> str:
    """A queue of this test's own."""
    name = f"q{next(_names)}"
    client.declare(fifo.QueueSpec(name))
    return name


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two slots, and a failed task is tried once more; Spark finds the data source alone."""
    with spark_session() as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session
