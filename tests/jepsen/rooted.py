"""Faults that need rights: power that is cut below a node's disk, a full one, calls that fail.

Owns the disks (ext4 on loop devices) of a run that asks for them, and the cut: EXT4_IOC_SHUTDOWN
without a flush of its log, then SIGKILL; what was not synced is gone, as with the power. Owns what
strace does to a running node. Where it cannot be done `why_not` and `why_no_trace` say why.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from types import TracebackType

from tests.jepsen.cluster import DISK_LOW_BYTES, Cluster, until
from tests.jepsen.nemeses import Fault, one_of

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN, with its flag for "do not flush the log"."""

NO_LOG_FLUSH = 2
PAGE_BYTES = 4096
LEFT_BYTES = (0, DISK_LOW_BYTES // 2, 2 * DISK_LOW_BYTES)
"""Bytes that a full disk has left: none, too few for a publish, and enough for some."""

DISK_BYTES = 512 << 20
"""Of a sparse file: a few segments of a journal."""

TOOLS = ("mkfs.ext4", "mount", "umount", "losetup", "fsfreeze")


@cache
def why_not() -> str | None:
    """Why no disk can be made here, or None."""
    if os.geteuid() != 0:
        return "power cuts need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"power cuts need {', '.join(missing)}"
    if subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode:
        return "power cuts need loop devices"
    return None


class Disks:
    """A file system of its own for each node's data, for as long as this context lasts."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = cluster.folder / "disks"
        self._data = cluster.data
        self._made: list[str] = []
        cluster.disks = self

    def __enter__(self) -> None:
        for name in self._data:
            self.make(name)

    def make(self, name: str) -> None:
        """Make and mount the disk of a node."""
        image = self._image(name)
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _do("mkfs.ext4", "-q", "-F", str(image))
        self._data[name] = self._mounted(name)

    def copy(self, name: str, to: str) -> Path:
        """Copy a disk as it is, block by block, mount the copy and return its data."""
        image, frozen = self._image(to), str(self._folder / name)
        _do("fsfreeze", "--freeze", frozen)
        try:
            _do("cp", "--sparse=always", f"{frozen}.img", str(image))
        finally:
            _do("fsfreeze", "--unfreeze", frozen)
        return self._mounted(to)

    def _image(self, name: str) -> Path:
        where = self._folder / name
        where.mkdir(parents=True)
        return where.with_suffix(".img")

    def _mounted(self, name: str) -> Path:
        where = self._folder / name
        _do("mount", "-o", "loop", str(where.with_suffix(".img")), str(where))
        self._made.append(name)
        return where / "data"

    def remove(self, name: str) -> None:
        """Take it away again."""
        where = self._folder / name
        _do("umount", str(where))
        where.rmdir()
        where.with_suffix(".img").unlink()
        self._made.remove(name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self._made[:]:
            self.remove(name)


def keep(cluster: Cluster) -> None:
    """Copy what is on the disks to where a run's data lies: they are about to go."""
    for name, data in cluster.data.items():
        if data.exists():
            # What a broken disk does not give back is missing in the copy, and that is all.
            with contextlib.suppress(shutil.Error):
                shutil.copytree(data, cluster.folder / "data" / name, dirs_exist_ok=True)


async def cut_power(cluster: Cluster, *nodes: str) -> None:
    """The power of these machines fails: file systems first, so that no sync comes through."""
    for node in nodes:
        top = os.open(cluster.data[node].parent, os.O_RDONLY)
        try:
            fcntl.ioctl(top, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(top)
    for node in nodes:
        if cluster.runs(node):
            await cluster.kill(node)
    for node in nodes:
        where = cluster.data[node].parent
        _do("umount", str(where))
        _do("mount", "-o", "loop", str(where.with_suffix(".img")), str(where))


@asynccontextmanager
async def power(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Cut the power of a node."""
    node = one_of(cluster, rng)
    await cut_power(cluster, node)
    yield [node]
    cluster.start_node(node)


@asynccontextmanager
async def power_majority(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """All but one lose their power at once."""
    nodes = rng.sample(cluster.names, len(cluster.names) // 2 + 1)
    await cut_power(cluster, *nodes)
    yield nodes
    for node in nodes:
        cluster.start_node(node)


@asynccontextmanager
async def power_all(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """The whole room is dark."""
    await cut_power(cluster, *cluster.names)
    yield cluster.names
    for node in cluster.names:
        cluster.start_node(node)


@asynccontextmanager
async def disk_filled(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A file of somebody else takes all that is left on a node's disk, or nearly all."""
    node, left = one_of(cluster, rng), rng.choice(LEFT_BYTES)
    ballast = cluster.data[node].parent / "ballast"
    _fill(ballast, left)
    yield [node]
    died = not cluster.runs(node)
    ballast.unlink()
    cluster.add("ok", "disk_filled", "nemesis", node=node, left_bytes=left, died=died)
    await cluster.bring_up(node)


def _fill(ballast: Path, left: int) -> None:
    """Write a file that leaves so many bytes on its disk: all that there is, then so much less, for
    a file system keeps blocks of its own among those that it calls free."""
    with ballast.open("wb") as file:
        disk = os.statvfs(ballast)
        size, piece = 0, disk.f_bfree * disk.f_frsize
        while piece >= PAGE_BYTES:
            try:
                os.posix_fallocate(file.fileno(), size, piece)
                size += piece
            except OSError:
                piece //= 2
        file.truncate(size - left)


DISKS = {
    one.name: one
    for one in (
        Fault("disk_filled", disk_filled),
        Fault("power", power, alone=True),
        Fault("power_majority", power_majority, alone=True),
        Fault("power_all", power_all, alone=True),
    )
}
"""Those that need a disk for each node."""


# --- system calls ---------------------------------------------------------------------------------


@cache
def why_no_trace() -> str | None:
    """Why no process of ours can be traced here, or None."""
    if shutil.which("strace") is None:
        return "faults of system calls need strace"
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "faults of system calls need the right to trace" if done.returncode else None


@asynccontextmanager
async def _injected(cluster: Cluster, node: str, what: str) -> AsyncIterator[None]:
    """Whatever the running node syncs goes as `what` says: strace's words."""
    tracer = cluster.household.start(
        f"strace.{node}", "strace", "-f", "-qq", "-o", "/dev/null",
        "-p", str(cluster.children[node].pid),
        "-e", "trace=fsync,fdatasync", "-e", f"inject=fsync,fdatasync:{what}",
    )  # fmt: skip
    yield
    tracer.signal(signal.SIGINT)
    await until(lambda: tracer.exit_code() is not None, TRACE_LIMIT_S)


@asynccontextmanager
async def sync_slow(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Each fdatasync of one node takes 150 ms more, in the kernel's eyes."""
    node = one_of(cluster, rng)
    async with _injected(cluster, node, "delay_enter=150000"):
        yield [node]


@asynccontextmanager
async def sync_fails(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Each fdatasync of one node fails with EIO: it has to stop."""
    node = one_of(cluster, rng)
    async with _injected(cluster, node, "error=EIO"):
        yield [node]
    await cluster.bring_up(node)


CALLS = {
    one.name: one
    for one in (
        Fault("sync_slow", sync_slow, alone=True, slow_links=True),
        Fault("sync_fails", sync_fails, alone=True),
    )
}
"""Those that trace a node."""

TRACE_LIMIT_S = 5.0


def _do(*command: str) -> None:
    """Run a system command. Raises OSError with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
