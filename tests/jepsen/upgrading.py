"""Nodes that change their release under load: there, back, there again, and the finish.

Owns the fault `swap` and the end of an upgrade. The releases are those that `tests/releases` keeps:
nodes and programs of theirs take their modules from the wheels, and all else from this checkout.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fifo
from tests.jepsen.cluster import LEADER_LIMIT_S, Cluster, RunFailed
from tests.jepsen.nemeses import Fault
from tests.jepsen.workloads import Workload
from tests.upgrade import releases

FINISH_LIMIT_S = 30.0
"""From the last node's start until the upgrade can be finished."""

RETRY_S = 0.2


def modules(cluster: Cluster) -> Path:
    """The place of the older release's modules in the folder of a run."""
    return cluster.folder / "release"


def begin(cluster: Cluster, version: str) -> None:
    """Have all nodes begin with a release."""
    folder = releases.unpacked(version, modules(cluster))
    cluster.older.update(dict.fromkeys(cluster.names, folder))


def begin_programs(cluster: Cluster, workload: Workload) -> None:
    """Have every other program of a workload run that release for good."""
    for kind, some in (("p", workload.publishers), ("c", workload.consumers)):
        for place in range(0, len(some), 2):
            cluster.older[f"{kind}{place + 1}"] = modules(cluster)


def next_swap(cluster: Cluster) -> str:
    """The node whose turn it is: one after the other all go forward, then back, and so on."""
    old = [name for name in cluster.names if name in cluster.older]
    if len(old) in (0, len(cluster.names)):
        cluster.forward = bool(old)
    return old[0] if cluster.forward else next(n for n in cluster.names if n not in cluster.older)


async def swapped(cluster: Cluster, name: str, *, kill: bool) -> None:
    """Change the release of a node: end it in order or with SIGKILL, and start the other one."""
    cluster.signal(name, signal.SIGKILL if kill else signal.SIGTERM)
    await cluster.ended([name], LEADER_LIMIT_S)
    if name in cluster.older:
        del cluster.older[name]
    else:
        cluster.older[name] = modules(cluster)
    cluster.start_node(name)
    if await cluster.came_up(name) and name in cluster.views:
        older = "versions" not in cluster.views[name]
        if older != (name in cluster.older):
            raise RunFailed(f"{name} runs another release than it was started with")
        cluster.add("ok", "swapped", "nemesis", node=name, older=older)


@asynccontextmanager
async def swap(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Swap the next node; at times another one is killed meanwhile."""
    name = next_swap(cluster)
    await swapped(cluster, name, kill=rng.random() < 0.4)
    other = rng.choice([one for one in cluster.names if one != name])
    if rng.random() < 0.3:
        await cluster.kill(other)
        cluster.start_node(other)
    yield [name]


async def finish(cluster: Cluster) -> None:
    """Bring every node to today's release, and finish the upgrade, all under load."""
    for name in cluster.names:
        if name in cluster.older:
            await swapped(cluster, name, kill=False)
        await cluster.bring_up(name)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FINISH_LIMIT_S
    while True:
        try:
            async with fifo.connect(cluster.url, timeout=4.0) as client:
                version = await client.finish_upgrade()
            break
        except fifo.FifoError as error:
            if loop.time() > deadline:
                raise RunFailed(f"the upgrade is not finished: {error}") from error
            await asyncio.sleep(RETRY_S)
    cluster.add("ok", "upgraded", "nemesis", version=version)


FAULTS = {"swap": Fault("swap", swap, alone=True)}
