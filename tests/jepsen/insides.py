"""Faults of a node's insides and of its operator: memory, threads, its clock's rate, its state.

Owns those nemeses that hurt a process otherwise than by signals, links and disks, and those that do
what an operator does beside them: wipe a member and bring it back, take a backup. Each needs no
rights beyond one's own processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.jepsen.cluster import LEADER_LIMIT_S, Cluster, RunFailed, until
from tests.jepsen.nemeses import Fault, one_of

MIB = 1024 * 1024

CLOCK_RATES = 0.02
"""The rate of a clock is that much above or below real time, at most: far less than the ninth that
raft.md assumes, for clients of the suite swear by their own clocks."""

FOUND_S = 40.0
"""From an error in a state until the right one has replaced it: the digest of an idle cluster is
late by some seconds."""

BACKUP_S = 60.0

FOUND, REPLACED = "event=state_differs", "event=installed"


@asynccontextmanager
async def memory(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """Nearly no more memory for one node (RLIMIT_AS): it goes on, or ends and is started again."""
    node = one_of(cluster, rng)
    pid = cluster.children[node].pid
    left = rng.choice((0, MIB, 8 * MIB))
    if cluster.runs(node):
        _limit(pid, _address_space_bytes(pid) + left)
    yield [node]
    died = not cluster.runs(node)
    if not died and cluster.children[node].pid == pid:
        _limit(pid, resource.RLIM_INFINITY)
    cluster.add("ok", "out_of_memory", "nemesis", node=node, left_bytes=left, died=died)
    await cluster.bring_up(node)


def _address_space_bytes(pid: int) -> int:
    """The size of a process's address space."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _limit(pid: int, size: int) -> None:
    """Bound the address space of a process that may have ended by now."""
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


@asynccontextmanager
async def threads(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A node is started while no thread can be: it refuses, or serves without."""
    node = one_of(cluster, rng)
    await cluster.kill(node)
    cluster.control(node, no_threads=1)
    cluster.start_node(node)
    up = await cluster.came_up(node)
    yield [node]
    cluster.control(node)
    cluster.add("ok", "without_threads", "nemesis", node=node, up=up)
    await cluster.bring_up(node)


@asynccontextmanager
async def clock_rates(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """The monotonic clocks of all nodes run at rates of their own."""
    for node in cluster.names:
        cluster.control(node, clock_rate=rng.uniform(-CLOCK_RATES, CLOCK_RATES))
    yield cluster.names
    for node in cluster.names:
        cluster.control(node)


@asynccontextmanager
async def errs(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A replica computes wrongly, once: the others find it, and it gets the right state."""
    node = one_of(cluster, rng)
    log = cluster.children[node].log
    before = log.read_text(errors="replace").count(FOUND)
    cluster.control(node, errs=rng.randint(1, 2))

    def replaced() -> bool:
        said = log.read_text(errors="replace").split(FOUND)
        return len(said) > before + 1 and REPLACED in said[-1]

    found = await until(replaced, FOUND_S)
    cluster.control(node)
    if not found:
        raise RunFailed(f"{node} computed wrongly, and was not found or not mended")
    cluster.add("ok", "erred", "nemesis", node=node)
    yield [node]


@asynccontextmanager
async def wipe(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """The files of a member are gone: its operator starts it with --recover, all others are up."""
    node = rng.choice(cluster.names)
    await lose(cluster, node)
    yield [node]
    await regained(cluster, node)
    cluster.add("ok", "wiped", "nemesis", node=node)


async def lose(cluster: Cluster, node: str) -> None:
    """Take all files of a member away, and start it with --recover."""
    await cluster.kill(node)
    for path in cluster.data[node].iterdir():
        if path.name != "lost+found":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start_node(node, "--recover")


async def regained(cluster: Cluster, node: str) -> None:
    """Wait until a member that recovers is whole. Raises RunFailed where it does not get there."""
    marker = cluster.data[node] / "recovering"
    up = await cluster.came_up(node)
    if not up or not await until(lambda: not marker.exists(), LEADER_LIMIT_S):
        raise RunFailed(f"{node} does not recover: {cluster.children[node].last_lines(1)}")


@asynccontextmanager
async def backup(cluster: Cluster, rng: random.Random) -> AsyncIterator[list[str]]:
    """A backup is taken beside other faults; one that is made is whole."""
    file = cluster.folder / f"{rng.getrandbits(32):08x}.backup"
    taking = asyncio.ensure_future(_fifo("backup", "--to", str(file), "--url", cluster.url))
    yield []
    code, said = await taking
    if code == 0:
        code, said = await _fifo("backup", "inspect", str(file))
        if code:
            raise RunFailed(f"a backup is not whole: {said}")
        cluster.add("ok", "backup", "nemesis", size=file.stat().st_size)
    else:
        cluster.add("ok", "no_backup", "nemesis", said=said)
    file.unlink(missing_ok=True)


async def _fifo(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and its last line."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "node", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(BACKUP_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 1, f"fifo {arguments[0]} takes more than {BACKUP_S:g} s"
    lines = said.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else ""


FAULTS = {
    one.name: one
    for one in (
        Fault("memory", memory),
        Fault("threads", threads),
        Fault("clock_rates", clock_rates),
        Fault("errs", errs, alone=True),
        Fault("wipe", wipe, alone=True),
        Fault("backup", backup),
    )
}
