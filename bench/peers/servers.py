"""The systems that are compared: how three nodes of each are started, and what they promise.

Owns the interfaces `System` and `Running`, and the system that is this project's. One is started
anew for every round on empty disks, and ended by the household of the run.
"""

from __future__ import annotations

import shutil
import subprocess
from importlib import metadata
from typing import TYPE_CHECKING, Protocol

from bench.cluster import BenchCluster

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Household


class Running(Protocol):
    """Three nodes that run."""

    url: str
    """The address for its driver."""

    durability: str
    """Durability of a confirm, in words: asked of the nodes where they report it."""

    async def kill_leader(self, queue: str) -> None:
        """SIGKILL the node that leads this queue; returns once that is done. Raises
        ClusterFailed."""


class System(Protocol):
    """Three nodes of one system, to be started."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot be run here, or None."""

    def version(self) -> str:
        """Status of its server."""

    async def start(self, household: Household, folder: Path) -> Running:
        """Start it on empty disks. Raises ClusterFailed."""


class Fifo:
    """This project."""

    name = "fifo"

    def missing(self) -> str | None:
        """See `System`."""
        return None

    def version(self) -> str:
        """See `System`."""
        return metadata.version("fifo-quorum")

    async def start(self, household: Household, folder: Path) -> Running:
        """See `System`."""
        cluster = BenchCluster(household, folder)
        await cluster.start()
        return _RunningFifo(cluster)


class _RunningFifo:
    durability = "fsync on a majority before every confirm (no setting for less)"

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self.url = cluster.url

    async def kill_leader(self, _queue: str) -> None:
        """See `Running`: one node leads all queues."""
        leader, _ = await self._cluster.leader()
        await self._cluster.kill(leader)


def answer_of(*command: str) -> str:
    """Output of a program; empty where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip()
