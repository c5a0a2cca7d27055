"""`make disks`: small disks that are filled and drained, and disks that hang, on real processes.

Owns the runs that are too long for every suite, and the table that docs/disk-trouble.md shows of
the last of them. Small disks are tmpfs, as root; a disk hangs by strace. What has to hold is
asserted: an emptied queue takes messages again within 30 s, no node ends, the memory of no node
grows without bound. The limits of the nodes are the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import fifo
from node.config import LimitSettings
from tests.node.cli.disks import (
    NAMES,
    ROOM_AGAIN_SECONDS,
    SICK,
    Nodes,
    drained,
    led_by_n1,
    small_disk,
    three,
    unmountable,
    until_refused,
    untraceable,
)
from tests.support.cluster import passed

SIZES_MB = (480, 900, 2_000)
"""Of the survey that found queues which never took a message again."""

ROUNDS = 2
"""Two: leftovers of the first must not fill the disk in the second."""

HANG_SECONDS = 25.0

HANGING_GROWTH_MB_MAX = 160
"""Growth of a node in a hang: 64 MiB without a sync, 64 MiB of recent entries, and some slack."""

SLOW_SYNC_US = 400_000
"""Before the hang: a disk that is known as slow, and slow enough to be it while strace changes."""

BODY_BYTES = 200_000
PUBLISHERS = 4
MESSAGES_PER_SECOND = 50
"""10 MB/s, as in the survey."""


def memory_mb(nodes: Nodes) -> dict[str, int]:
    """Resident memory of each node."""
    found = {}
    for name, process in nodes.processes.items():
        text = Path(f"/proc/{process.pid}/status").read_text()
        (line,) = [line for line in text.splitlines() if line.startswith("VmRSS")]
        found[name] = int(line.split()[1]) // 1024
    return found


async def timed(client: fifo.Client, timeout: float) -> float:
    """Seconds until a publish is confirmed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await client.publish("orders", b"again", timeout=timeout)
    return loop.time() - began


# --- small disks ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Filled:
    """A size of disk: what was stored when it was full, and how soon it took messages again."""

    size_mb: int
    stored_mb: list[int] = field(default_factory=list)
    again_seconds: list[float] = field(default_factory=list)


async def fill_and_drain(size_mb: int, folder: Path) -> Filled:
    """Fill a queue until it is refused, drain it, publish again; twice, all nodes alike."""
    found = Filled(size_mb)
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(small_disk(folder / name, size_mb * 1_000_000))
        nodes = stack.enter_context(three(folder, LimitSettings()))
        async with led_by_n1(nodes) as client:
            for _ in range(ROUNDS):
                refusal = await until_refused(client)
                assert "is low" in refusal, refusal
                found.stored_mb.append((await client.queue("orders")).bytes // 1_000_000)
                await drained(client)
                found.again_seconds.append(await timed(client, ROOM_AGAIN_SECONDS))
                await drained(client)
        ended = [name for name, process in nodes.processes.items() if process.poll() is not None]
        assert not ended, ended
    return found


# --- disks that hang ------------------------------------------------------------------------------


@dataclass(slots=True)
class Hung:
    """A hang: memory of each node before it and at most, terms passed, times of publishes."""

    sick: str
    before_mb: dict[str, int]
    most_mb: dict[str, int]
    terms: int
    seconds: list[float]


@asynccontextmanager
async def publishing(client: fifo.Client) -> AsyncIterator[list[float]]:
    """Meanwhile messages are published at a steady rate; the seconds that each took."""
    took: list[float] = []
    loop = asyncio.get_running_loop()

    async def publish() -> None:
        due = loop.time()
        while True:
            began = loop.time()
            await client.publish("orders", bytes(BODY_BYTES))
            took.append(loop.time() - began)
            due = max(due + PUBLISHERS / MESSAGES_PER_SECOND, loop.time())
            await passed(due - loop.time())

    async def consume() -> None:
        async with client.consume("orders", prefetch=20) as messages:
            async for message in messages:
                await message.ack()

    tasks = [asyncio.create_task(publish()) for _ in range(PUBLISHERS)]
    tasks.append(asyncio.create_task(consume()))
    try:
        yield took
        assert not any(task.done() for task in tasks), tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def hang(role: str, folder: Path) -> Hung:
    """Make the disk of the leader, n1, or of a follower hang under a steady load."""
    sick = SICK if role == "leader" else "n2"
    with three(folder, LimitSettings()) as nodes:
        async with led_by_n1(nodes) as client, publishing(client) as took:
            with nodes.injected("fdatasync", f"delay_enter={SLOW_SYNC_US}", sick):
                await passed(5.0)
            before, term = memory_mb(nodes), await term_of(nodes)
            most = dict(before)
            took.clear()
            delay = f"delay_enter={int(4e6 * HANG_SECONDS)}"
            with nodes.injected("fdatasync", delay, sick):
                loop = asyncio.get_running_loop()
                until = loop.time() + HANG_SECONDS
                while loop.time() < until:
                    most = {name: max(most[name], mb) for name, mb in memory_mb(nodes).items()}
                    await passed(0.2)
            terms = await term_of(nodes) - term
            seconds = list(took)
        growth = {name: most[name] - before[name] for name in NAMES}
        assert max(growth.values()) <= HANGING_GROWTH_MB_MAX, (before, most)
    return Hung(sick, before, most, terms, seconds)


async def term_of(nodes: Nodes) -> int:
    """The highest term that a node knows."""
    found = [await nodes.status(name) for name in NAMES]
    return max(int(one["term"]) for one in found if one)


# --- the page -------------------------------------------------------------------------------------


def rows_of_filled(found: Sequence[Filled]) -> Iterator[str]:
    """The table of small disks."""
    yield "| disk | stored when full | takes messages again after the last ack |"
    yield "|--|--|--|"
    for one in found:
        stored = ", ".join(f"{mb} MB" for mb in one.stored_mb)
        again = ", ".join(f"{seconds:.1f} s" for seconds in one.again_seconds)
        yield f"| {one.size_mb} MB | {stored} | {again} |"


def rows_of_hung(found: dict[str, Hung]) -> Iterator[str]:
    """The table of disks that hang."""
    yield "| disk of | memory of n1, n2, n3, at most | new terms | publishes: p50, p99, worst |"
    yield "|--|--|--|--|"
    for role, one in found.items():
        memory = ", ".join(f"{one.before_mb[name]} to {one.most_mb[name]} MB" for name in NAMES)
        p99 = quantiles(one.seconds, n=100)[-1]
        p50, worst = median(one.seconds), max(one.seconds)
        times = f"{1000 * p50:.0f} ms, {1000 * p99:.0f} ms, {worst:.2f} s of {len(one.seconds)}"
        yield f"| the {role} {one.sick} | {memory} | {one.terms} | {times} |"


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder for one run."""
    with tempfile.TemporaryDirectory(prefix="fifo-disks-") as folder:
        yield Path(folder)


def main() -> int:
    """Print both tables; 2 where nothing can be run here."""
    parser = argparse.ArgumentParser(prog="python -m tests.node.cli.disk_runs", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES_MB)), help="MB, with commas")
    parser.add_argument("--hang", default="leader,follower", help="whose disks, with commas")
    options = parser.parse_args()
    why_not = unmountable() or untraceable()
    if why_not is not None:
        print(why_not, file=sys.stderr)
        return 2
    filled, hung = [], {}
    with contextlib.ExitStack():
        for size in filter(None, options.sizes.split(",")):
            with temporary() as folder:
                filled.append(asyncio.run(fill_and_drain(int(size), folder)))
            print(*rows_of_filled(filled[-1:]), sep="\n", flush=True)
        for role in filter(None, options.hang.split(",")):
            with temporary() as folder:
                hung[role] = asyncio.run(hang(role, folder))
            print(*rows_of_hung({role: hung[role]}), sep="\n", flush=True)
    print("", *rows_of_filled(filled), "", *rows_of_hung(hung), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
