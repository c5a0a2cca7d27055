"""Faults of an operator who runs a member twice: a copy of its files, or of its disk, on a machine.

Owns those nemeses. The copy has the name, the secret and the members of the original, and addresses
of its own, where no client looks. While the original lives it has to be of no effect; where the
original is down it may take its place, and the original, which comes back and lacks what the copy
has promised, has to find that out.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.jepsen.cluster import LOOK_S, Cluster, RunFailed
from tests.jepsen.images import back, copy_of
from tests.jepsen.nemeses import Fault, one_of

DOWN = 0.5
"""The part of originals that are down while their copy runs."""


@asynccontextmanager
async def clone(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A copy of a member's files runs: by its lock file it knows that it is one."""
    node = one_of(cluster, rng)
    copy = cluster.folder / "clones" / node
    with _still(cluster, node):
        copy_of(cluster.data[node], copy)
    async with _twice(cluster, node, copy, down=rng.random() < DOWN):
        yield [node]
    shutil.rmtree(copy)


@asynccontextmanager
async def clone_disk(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A copy of a member's disk runs, block by block the same: it cannot know that it is one."""
    node = one_of(cluster, rng)
    assert cluster.disks is not None, "this fault is for runs on disks"
    with _still(cluster, node):
        copy = cluster.disks.copy(node, f"{node}c")
    async with _twice(cluster, node, copy, down=rng.random() < DOWN):
        yield [node]
    cluster.disks.remove(f"{node}c")


@contextmanager
def _still(cluster: Cluster, node: str) -> Iterator[None]:
    """Stop a node for as long as it is copied."""
    cluster.signal(node, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal(node, signal.SIGCONT)


@asynccontextmanager
async def _twice(cluster: Cluster, node: str, copy: Path, *, down: bool) -> AsyncIterator[None]:
    """Run a copy beside a member, or in its place; then have the member alone, and whole."""
    if down:
        await cluster.kill(node)
    double = await cluster.double(node, copy)
    service = asyncio.ensure_future(_served(cluster, node, double))
    try:
        yield
    finally:
        service.cancel()
    await asyncio.gather(service, return_exceptions=True)
    await cluster.undouble(double)
    aside = await back(cluster, node, must=False)
    if aside and not down:
        raise RunFailed(f"{node} lived all along, and gave up {', '.join(aside)} for its copy")
    cluster.add("ok", "cloned", "nemesis", node=node, down=down, aside=aside)


async def _served(cluster: Cluster, node: str, double: str) -> None:
    """Start a copy whenever it has ended, as a service does: one that gives its journal up ends."""
    while True:
        cluster.start_double(node, double)
        await asyncio.sleep(LOOK_S)


FAULTS = {"clone": Fault("clone", clone, alone=True)}
"""Those that need no rights."""

DISKS = {"clone_disk": Fault("clone_disk", clone_disk, alone=True)}
"""Those that need a disk for each node."""
