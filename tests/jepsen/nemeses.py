"""The faults of a run: each nemesis begins something, waits, and ends it.

Owns the nemeses that need no rights beyond one's own processes; `rooted` has the others. Each is an
async context manager over a cluster, so that two can overlap; chance comes from the run's seed.
What is begun and ended stands in the history, with the nodes it was done to.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import fifo
from node.journal.segments import parse_segment_name
from tests.jepsen.cluster import LEADER_LIMIT_S, Cluster, RunFailed, until
from tests.jepsen.network import CLIENTS

HOUR_S = 3600.0

MOVED_S = 40.0
"""Until another node leads where no client reaches the leader: `MOVE_S` of a node, two heartbeats
of a client, and six seconds to be sure; more on a busy machine."""

CORRUPT_BYTES = 64
"""Bytes of a journal that are overwritten; a record is longer."""

CORRUPT_TRIES = 3
"""A segment that has just begun may hold one record, which can pass for a torn one."""

Nemesis = Callable[[Cluster, random.Random], AbstractAsyncContextManager[list[str]]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A nemesis by its name. `alone`: it may not meet another, or a majority could be hurt."""

    name: str
    begin: Nemesis
    alone: bool = False
    slow_links: bool = False
    """Deliveries may be on their way for long: clients are then less sure of their locks."""


def one_of(cluster: Cluster, rng: random.Random) -> str:
    """A node: the leader half of the time."""
    leading = cluster.leading()
    if leading is not None and rng.random() < 0.5:
        return leading
    return rng.choice(cluster.names)


# --- processes ------------------------------------------------------------------------------------


@asynccontextmanager
async def kill(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """SIGKILL one node."""
    node = one_of(cluster, rng)
    if cluster.runs(node):
        await cluster.kill(node)
    yield [node]
    cluster.start_node(node)


@asynccontextmanager
async def kill_all(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """SIGKILL every node at once."""
    for node in cluster.names:
        cluster.signal(node, signal.SIGKILL)
    await cluster.ended(cluster.names, 5.0)
    yield cluster.names
    for node in cluster.names:
        cluster.start_node(node)


@asynccontextmanager
async def pause(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """SIGSTOP one node: it keeps its sockets and says nothing."""
    node = one_of(cluster, rng)
    cluster.signal(node, signal.SIGSTOP)
    yield [node]
    cluster.signal(node, signal.SIGCONT)


@asynccontextmanager
async def pause_then_kill(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Pause the leader, wait for the next one, kill that one, and let the first go on."""
    first = cluster.leading() or rng.choice(cluster.names)
    term = cluster.term()
    cluster.signal(first, signal.SIGSTOP)
    second = await cluster.leader(above=term, but=first)
    await cluster.kill(second)
    cluster.signal(first, signal.SIGCONT)
    yield [first, second]
    cluster.start_node(second)


@asynccontextmanager
async def transfer(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Ask the leader to hand over, to each of the others in turn."""
    leading = cluster.leading()
    target = rng.choice([name for name in cluster.names if name != leading])
    try:
        async with fifo.connect(cluster.url, timeout=2.0) as client:
            await client.transfer_leadership(target)
    except fifo.FifoError as error:
        cluster.add("ok", "refused", "nemesis", what="transfer", error=repr(error))
    yield [target]


@asynccontextmanager
async def client_pause(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """SIGSTOP a client program: its locks run out, and it must not know better."""
    name = rng.choice(list(cluster.programs))
    cluster.signal(name, signal.SIGSTOP)
    yield [name]
    cluster.signal(name, signal.SIGCONT)


@asynccontextmanager
async def client_kill(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """SIGKILL a client program; another takes its place."""
    name = rng.choice(list(cluster.programs))
    cluster.signal(name, signal.SIGKILL)
    yield [name]
    cluster.revive()


# --- links ----------------------------------------------------------------------------------------


@asynccontextmanager
async def partition(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Cut a node and the others off from each other; its clients still hear it."""
    node = one_of(cluster, rng)
    for other in cluster.names:
        if other != node:
            cluster.network.cut(node, other)
            cluster.network.cut(other, node)
    yield [node]
    cluster.network.heal()


@asynccontextmanager
async def partition_one_way(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Make a node deaf, or mute, to its peers."""
    node, deaf = one_of(cluster, rng), rng.random() < 0.5
    for other in cluster.names:
        if other != node:
            cluster.network.cut(*((other, node) if deaf else (node, other)))
    yield [node]
    cluster.network.heal()


@asynccontextmanager
async def ring(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Every node hears the next one only, as in a ring; of three, each link is cut one way."""
    around = rng.sample(cluster.names, len(cluster.names))
    for place, node in enumerate(around):
        for other in cluster.names:
            if other not in (node, around[place - 1]):
                cluster.network.cut(other, node)
    yield around
    cluster.network.heal()


@asynccontextmanager
async def bridge(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Two nodes do not hear each other; the others hear both."""
    one, other = rng.sample(cluster.names, 2)
    cluster.network.cut(one, other)
    cluster.network.cut(other, one)
    yield [one, other]
    cluster.network.heal()


@asynccontextmanager
async def partition_then_kill(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Cut the leader off, wait for the next one, heal, and kill that one as the first returns."""
    first = cluster.leading() or rng.choice(cluster.names)
    term = cluster.term()
    for other in cluster.names:
        if other != first:
            cluster.network.cut(first, other)
            cluster.network.cut(other, first)
    second = await cluster.leader(above=term, but=first)
    cluster.network.heal()
    await cluster.kill(second)
    yield [first, second]
    cluster.start_node(second)


@asynccontextmanager
async def slow(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """All links between nodes take their time."""
    cluster.network.slow()
    yield cluster.names
    cluster.network.heal()


@asynccontextmanager
async def far(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """50 ms lie between any two nodes, each way."""
    how = await cluster.network.far()
    cluster.tell(dials=cluster.network.dials())
    cluster.network.redial()
    cluster.add("ok", "far", "nemesis", how=how)
    yield cluster.names
    cluster.network.heal()
    cluster.tell(dials=cluster.network.dials())


@asynccontextmanager
async def lossy(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Links lose packets (TCP sends them again, later) and sometimes a connection."""
    cluster.network.lossy()
    cluster.network.reset(*rng.sample(cluster.names, 2))
    yield cluster.names
    cluster.network.heal()


@asynccontextmanager
async def client_cut(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A node is not heard by its clients, or does not hear them, or all connections break."""
    node = one_of(cluster, rng)
    match rng.choice(("reset", "deaf", "mute", "both")):
        case "reset":
            cluster.network.reset(CLIENTS, node)
        case how:
            if how != "mute":
                cluster.network.cut(CLIENTS, node)
            if how != "deaf":
                cluster.network.cut(node, CLIENTS)
    yield [node]
    cluster.network.heal()


@asynccontextmanager
async def leader_unreached(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Clients and the leader do not hear each other, or one does not; nodes do: it has to move."""
    first = await cluster.leader()
    term, how = cluster.term(), rng.choice(("deaf", "mute", "both"))
    if how != "mute":
        cluster.network.cut(CLIENTS, first)
    if how != "deaf":
        cluster.network.cut(first, CLIENTS)
    if not await until(lambda: cluster.leading(above=term, but=first), MOVED_S):
        raise RunFailed(f"{first} leads on, which no client reaches ({how})")
    yield [first]
    cluster.network.heal()


# --- clocks and disks -----------------------------------------------------------------------------


@asynccontextmanager
async def wall_clock(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """The wall clocks of all nodes jump by up to an hour, each on its own, and again."""
    for _ in range(3):
        for node in cluster.names:
            cluster.control(node, wall_seconds=rng.uniform(-HOUR_S, HOUR_S))
        await asyncio.sleep(0.3)
    yield cluster.names
    for node in cluster.names:
        cluster.control(node)


@asynccontextmanager
async def slow_disk(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Each sync of one node takes 150 ms more."""
    node = one_of(cluster, rng)
    cluster.control(node, sync_seconds=0.15)
    yield [node]
    cluster.control(node)


@asynccontextmanager
async def disk_fails(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Each sync of one node fails with EIO; it has to stop, and is started when that is over."""
    node = one_of(cluster, rng)
    cluster.control(node, fails=1)
    yield [node]
    cluster.control(node)
    await cluster.bring_up(node)


@asynccontextmanager
async def disk_full(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Each write of one node fails with ENOSPC."""
    node = one_of(cluster, rng)
    cluster.control(node, full=1)
    yield [node]
    cluster.control(node)
    await cluster.bring_up(node)


@asynccontextmanager
async def corrupt(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Overwrite a part of a killed follower's journal: it refuses to start, or syncs again.

    A node that could cut the damage off, or has not read so far, is damaged where it cannot.
    Then it is started with recovery, and has to recover: all others are there.
    """
    leading = cluster.leading()
    node = rng.choice([name for name in cluster.names if name != leading])
    data = cluster.data[node]
    refused = await _damaged(cluster, node, lambda: overwrite(data, rng))
    yield [node]
    for _ in range(CORRUPT_TRIES):
        if refused:
            break
        refused = await _damaged(cluster, node, lambda: flip_amid(data, rng))
    else:
        raise RunFailed(f"{node} starts whatever is damaged amid its journal")
    cluster.start_node(node, "--recover")
    up = await cluster.came_up(node)
    if not up or not await until(lambda: not (data / "recovering").exists(), LEADER_LIMIT_S):
        raise RunFailed(f"{node} does not recover: {cluster.children[node].last_lines(1)}")
    aside = sorted(path.name for path in data.glob("*.lost-*"))
    if not aside:
        raise RunFailed(f"{node} recovered, and has set nothing aside")
    cluster.add("ok", "recovered", "nemesis", node=node, aside=aside)


async def _damaged(cluster: Cluster, node: str, damage: Callable[[], str]) -> bool:
    """Damage a killed node's journal and start it; whether it refused to."""
    await cluster.kill(node)
    what = damage()
    cluster.start_node(node)
    refused = not await cluster.came_up(node)
    cluster.add("ok", "corrupted", "nemesis", node=node, what=what, refused=refused)
    return refused


def flip_amid(data: Path, rng: random.Random) -> str:
    """Flip a bit where no torn write can have been, and every start reads; says what was done.

    The newest segment is read whole, and what lies in its first half has records after it.
    """
    path = max(path for path in data.iterdir() if parse_segment_name(path.name))
    content = bytearray(path.read_bytes())
    written = len(bytes(content).rstrip(b"\0"))
    place = rng.randrange(written // 2)
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"flip at {place} of {written} in {path.name}"


def overwrite(data: Path, rng: random.Random) -> str:
    """Damage one file of a journal in one of the ways that disks do; says what was done."""
    files = sorted(
        path
        for path in data.iterdir()
        if path.is_file() and path.name != "lock" and path.stat().st_size
    )
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    written = len(bytes(content).rstrip(b"\0")) or 1
    place = rng.randrange(written)
    how = rng.choice(("flip", "zero", "garbage"))
    end = min(written, place + CORRUPT_BYTES)
    if how == "flip":
        content[place] ^= 1 << rng.randrange(8)
    else:
        content[place:end] = bytes(end - place) if how == "zero" else rng.randbytes(end - place)
    path.write_bytes(content)
    return f"{how} at {place} of {written} in {path.name}"


FAULTS = {
    one.name: one
    for one in (
        Fault("kill", kill),
        Fault("kill_all", kill_all, alone=True),
        Fault("pause", pause),
        Fault("pause_then_kill", pause_then_kill, alone=True),
        Fault("transfer", transfer),
        Fault("partition", partition),
        Fault("partition_one_way", partition_one_way),
        Fault("ring", ring, alone=True),
        Fault("bridge", bridge),
        Fault("partition_then_kill", partition_then_kill, alone=True),
        Fault("slow", slow, slow_links=True),
        Fault("far", far, slow_links=True),
        Fault("lossy", lossy, slow_links=True),
        Fault("client_pause", client_pause),
        Fault("client_kill", client_kill),
        Fault("client_cut", client_cut, slow_links=True),
        Fault("leader_unreached", leader_unreached, alone=True, slow_links=True),
        Fault("wall_clock", wall_clock),
        Fault("slow_disk", slow_disk, slow_links=True),
        Fault("disk_fails", disk_fails),
        Fault("disk_full", disk_full),
        Fault("corrupt", corrupt, alone=True),
    )
}
"""Those that need no rights."""
