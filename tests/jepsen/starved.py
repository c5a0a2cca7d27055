"""Faults of a machine without memory: the kernel kills a node.

Owns control groups of one node each, for as long as a fault lasts, of either version of the
kernel's interface. What a node had before stays with its former group; what it asks for from then
on is bounded, so that it is killed where it asks for more, at any point of its work. Where no group
can be made `why_not` says why.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.jepsen.cluster import Cluster, RunFailed, until
from tests.jepsen.nemeses import Fault, one_of

MORE_BYTES = (0, 64 << 10, 1 << 20)
"""Bytes that a node may still take: it is killed at once, soon, or perhaps."""

REMOVED_S = 5.0
"""For the kernel to be done with a process that it has killed."""

PROCESSES = "cgroup.procs"


@dataclass(frozen=True, slots=True)
class Interface:
    """Where the kernel takes groups of processes that share a bound of memory."""

    mount: Path
    controller: str
    """As `/proc/self/cgroup` calls it; of version 2 none."""
    limit: str

    def own(self) -> Path:
        """The group that this process is in."""
        for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            if self.controller in controllers.split(","):
                found = self.mount / path.removeprefix("/")
                # In a container the path is that of the host, and the mount begins below it.
                return found if found.is_dir() else self.mount
        return self.mount


KINDS = (
    Interface(Path("/sys/fs/cgroup/memory"), "memory", "memory.limit_in_bytes"),
    Interface(Path("/sys/fs/cgroup"), "", "memory.max"),
)


class Group:
    """A group of processes under a bound of memory. Raises OSError where none can be made."""

    def __init__(self, kind: Interface, name: str, limit_bytes: int) -> None:
        self._kind = kind
        self._folder = kind.mount / f"fifo-{os.getpid()}-{name}"
        self._folder.mkdir()
        try:
            (self._folder / kind.limit).write_text(str(limit_bytes), encoding="ascii")
        except OSError:
            self._folder.rmdir()
            raise

    def take(self, pid: int) -> None:
        """Have a process in it: what it has asked for before does not count."""
        (self._folder / PROCESSES).write_text(str(pid), encoding="ascii")

    def release(self) -> None:
        """Give its processes back to the group of this one."""
        for pid in (self._folder / PROCESSES).read_text(encoding="ascii").split():
            with contextlib.suppress(ProcessLookupError):
                (self._kind.own() / PROCESSES).write_text(pid, encoding="ascii")

    def removed(self) -> bool:
        """Remove it; False while the kernel is not done with its processes."""
        try:
            self._folder.rmdir()
        except OSError:
            return False
        return True


@cache
def interface() -> Interface | None:
    """The interface by which groups can be made here, if any."""
    for kind in KINDS:
        # Where version 1 is mounted, what lies above it is a folder of files like any other.
        if not (kind.mount / PROCESSES).exists():
            continue
        with contextlib.suppress(OSError):
            Group(kind, "probe", MORE_BYTES[-1]).removed()
            return kind
    return None


def why_not() -> str | None:
    """Why no node can be starved here, or None."""
    if os.geteuid() != 0:
        return "control groups need root"
    return None if interface() else "no control group with a bound of memory can be made"


@asynccontextmanager
async def oom(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """No more memory for one node: the kernel kills it."""
    node, more = one_of(cluster, rng), rng.choice(MORE_BYTES)
    kind, child = interface(), cluster.children[node]
    assert kind is not None, "this fault is for machines with control groups"
    group = Group(kind, node, more)
    try:
        if cluster.runs(node):
            group.take(child.pid)
        yield [node]
    finally:
        group.release()
        gone = await until(group.removed, REMOVED_S)
    if not gone:
        raise RunFailed(f"the control group of {node} is not let go")
    cluster.add("ok", "oom", "nemesis", node=node, more_bytes=more, exit_code=child.exit_code())
    await cluster.bring_up(node)


FAULTS = {"oom": Fault("oom", oom)}
