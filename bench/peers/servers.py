"""The systems that are compared: how three nodes of each are started, and what they promise.

Owns the interface `System` and the one that is this project's. A system is started anew for every
round on empty disks, and ended by the household of the run.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Protocol

from bench.cluster import BenchCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.processes import Household

NODES = 3
LOOPBACK = "127.0.0.1"
POLL_S = 0.1


class SystemFailed(Exception):
    """A peer did not start; the text quotes what it said."""


class System(Protocol):
    """Three nodes of one system."""

    name: str
    durability: str
    """What is on disk when a publish is confirmed, in words, with the setting's name."""

    def missing(self) -> str | None:
        """Why it cannot be run here, or None."""

    def version(self) -> str:
        """What its server says of itself."""

    async def start(self, household: Household, folder: Path) -> str:
        """Start it on empty disks; returns the address for its driver. Raises SystemFailed."""


class Fifo:
    """This project."""

    name = "fifo"
    durability = "fsync on a majority before every confirm"

    def missing(self) -> str | None:
        """See `System`."""
        return None

    def version(self) -> str:
        """See `System`."""
        return "this tree"

    async def start(self, household: Household, folder: Path) -> str:
        """See `System`."""
        cluster = BenchCluster(household, folder)
        await cluster.start()
        return cluster.url


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody uses now, all different."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def answer_of(*command: str) -> str:
    """What a program prints; empty where it is not there or fails."""
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
