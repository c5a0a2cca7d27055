"""Nodes that change their release under load: there, back, there again, and the finish.

Owns the fault `swap`, the end of an upgrade, and what an operator may try too early (a change of
the members) or too late (the older release, and an image of a disk from before the finish). The
releases are those that `tests/releases` keeps: nodes and programs of theirs take their modules from
the wheels, and all else from this checkout.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fifo
from tests.jepsen import images, insides, members
from tests.jepsen.cluster import LEADER_LIMIT_S, Cluster, RunFailed, until
from tests.jepsen.nemeses import Fault, one_of
from tests.jepsen.workloads import Workload
from tests.upgrade import releases

FINISH_LIMIT_S = 30.0
"""From the last node's start until the upgrade can be finished."""

RETRY_S = 0.2

TOO_EARLY = "finish the upgrade first"
"""The reason of a leader of today's release why no members change; an older one knows none."""

TOO_LATE = (
    "use the newer program on every node",
    "snapshot format 14; this program reads format 13",
    "a record of kind 12 does not belong here",
)
"""Last words of an older release on the data of a cluster that has finished: at an entry, at a
snapshot since, and at one that names members that have changed."""

NOT_COUNTED = "event=member_not_counted"

KEPT = "images-before"
"""The folder of images from before the finish, by node."""


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


@asynccontextmanager
async def too_early(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """An operator would remove a member before the finish: refused, whichever release leads."""
    name = rng.choice([one for one in cluster.names if one != members.STAYS])
    yield [name]
    await ask_too_early(cluster, name)


async def ask_too_early(cluster: Cluster, name: str) -> None:
    """Ask for the removal of a member. Raises RunFailed where that is not refused as it has to."""
    try:
        async with fifo.connect(cluster.url, timeout=members.CALL_S) as client:
            await client.change_members("remove", name)
    except fifo.Unsupported as error:  # An older release leads.
        why = repr(error)
    except fifo.InvalidArgument as error:
        why = repr(error)
        if TOO_EARLY not in why:
            raise RunFailed(f"{name} is not removed for another reason: {error}") from error
    except fifo.FifoError as error:  # No answer, amid an election.
        cluster.add("info", "too_early", "nemesis", node=name, error=repr(error))
        return
    else:
        raise RunFailed(f"{name} is removed before the upgrade is finished")
    cluster.add("ok", "too_early", "nemesis", node=name, error=why)


@asynccontextmanager
async def too_late(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A node would go back to the older release after the finish: that reads nothing of it."""
    name = one_of(cluster, rng)
    cluster.signal(name, signal.SIGTERM)
    await cluster.ended([name], LEADER_LIMIT_S)
    cluster.older[name] = modules(cluster)
    cluster.start_node(name)
    left = await cluster.ended([name], LEADER_LIMIT_S)
    del cluster.older[name]
    said = cluster.children[name].last_lines(1)
    if left or not any(words in said for words in TOO_LATE):
        raise RunFailed(f"{name} of an older release is not refused: {said}")
    cluster.add("ok", "too_late", "nemesis", node=name)
    yield [name]
    cluster.start_node(name)


@asynccontextmanager
async def image(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """The image of a disk from before the finish is put back (`keep`). A journal that today's
    release had is known and given up; one that it never had is not counted until it is emptied."""
    kept = rng.choice(sorted((cluster.folder / KEPT).iterdir()))
    node = kept.name
    if node not in cluster.names:
        yield []
        return
    data, known = cluster.data[node], (kept / "passport").exists()
    await cluster.kill(node)
    images.set_back(data, kept)
    if not known:
        await _not_counted(cluster, node)
        await cluster.kill(node)
        images.empty(data)
    yield [node]
    aside = await images.back(cluster, node, must=known)
    cluster.add("ok", "put_back", "nemesis", node=node, known=known, aside=aside)


async def _not_counted(cluster: Cluster, node: str) -> None:
    """Start a node, and wait until the leader says that it does not count it."""
    told = f"{NOT_COUNTED} node={node}"
    before = {name: _log(cluster, name).count(told) for name in cluster.names}
    cluster.start_node(node)

    def said() -> bool:
        return any(_log(cluster, name).count(told) > count for name, count in before.items())

    if not await until(said, LEADER_LIMIT_S):
        raise RunFailed(f"{node} has a journal from before the upgrade, and no member objects")


def _log(cluster: Cluster, name: str) -> str:
    return cluster.children[name].log.read_text(errors="replace")


def _is_unknown(cluster: Cluster, name: str) -> bool:
    """Whether the others have said that they know another journal of a member."""
    told = f"{NOT_COUNTED} node={name} reason=its journal"
    return any(told in _log(cluster, other) for other in cluster.names)


def keep(cluster: Cluster, rng: random.Random) -> None:
    """Keep an image of one node's disk: of 0.1.0 at first, of either release later."""
    node = rng.choice(cluster.names)
    cluster.signal(node, signal.SIGSTOP)
    images.copy_of(cluster.data[node], cluster.folder / KEPT / node)
    cluster.signal(node, signal.SIGCONT)


async def finish(cluster: Cluster) -> None:
    """Bring every node to today's release, and finish the upgrade, all under load. A member that
    lost its disk under the older release when it had been known by an identity recovers again."""
    for name in cluster.names:
        if name in cluster.older:
            await swapped(cluster, name, kill=False)
        await cluster.bring_up(name)
    await ask_too_early(cluster, cluster.names[-1])
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
            for name in cluster.names:
                if f"{name} does not count" in str(error) and _is_unknown(cluster, name):
                    await insides.lose(cluster, name)
                    await insides.regained(cluster, name)
                    cluster.add("ok", "known_again", "nemesis", node=name)
            await asyncio.sleep(RETRY_S)
    cluster.add("ok", "upgraded", "nemesis", version=version)


FAULTS = {
    one.name: one
    for one in (
        Fault("swap", swap, alone=True),
        Fault("too_early", too_early),
        Fault("too_late", too_late, alone=True),
        Fault("image", image, alone=True),
    )
}
