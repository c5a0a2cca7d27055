"""The systems that are compared: how three nodes of each are started, and what they promise.

Owns the interfaces `System` and `Running`, and the system that is this project's. One is started
anew for every round on empty disks, and ended by the household of the run.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from importlib import metadata
from typing import TYPE_CHECKING, Protocol

from bench.cluster import BenchCluster, ClusterFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.processes import Household

NODES = 3
LOOPBACK = "127.0.0.1"
POLL_S = 0.1


class SystemFailed(Exception):
    """A peer did not start; the text quotes what it said."""


class Running(Protocol):
    """Three nodes that run."""

    url: str
    """The address for its driver."""

    durability: str
    """Durability of a confirm, in words: asked of the nodes where they report it."""

    async def kill_leader(self, queue: str) -> None:
        """SIGKILL the node that leads this queue; returns once that is done. Raises
        SystemFailed."""


class System(Protocol):
    """Three nodes of one system, to be started."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot be run here, or None."""

    def version(self) -> str:
        """Status of its server."""

    async def start(self, household: Household, folder: Path) -> Running:
        """Start it on empty disks. Raises SystemFailed."""


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
        try:
            await cluster.start()
        except ClusterFailed as error:
            raise SystemFailed(str(error)) from None
        return _RunningFifo(cluster)


class _RunningFifo:
    durability = "fsync on a majority before every confirm (no setting for less)"

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self.url = cluster.url

    async def kill_leader(self, _queue: str) -> None:
        """See `Running`: one node leads all queues."""
        try:
            leader, _ = await self._cluster.leader()
            await self._cluster.kill(leader)
        except ClusterFailed as error:
            raise SystemFailed(str(error)) from None


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback address, all different."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def answer_of(*command: str) -> str:
    """Output of a program; empty where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip()


async def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Look until it holds. Raises SystemFailed when the time is over."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemFailed(f"{what} within {seconds:.0f} s")
        await asyncio.sleep(POLL_S)
