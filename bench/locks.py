"""The cost of locks and sessions while nothing happens: `python -m bench.locks`.

Owns four workloads, each against a cluster of three nodes of its own: locks that run out all at
once, a million locks that are only held, a hundred thousand that are renewed, and ten thousand idle
connections. Figures of the nodes' processes come from the system, those of the broker from
`/metrics`. Asserts nothing: figures are for people to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe, machine
from bench.idle import descriptors, open_idle
from bench.loopback import until
from bench.measuring import measured
from bench.nodes import Nodes
from bench.processes import Household

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE = "locks"
BODY = b"x" * 16
BATCH = 5_000
PREFETCH_MAX = 65_000
PATIENCE_S = 300.0
TAKEN_PER_S = 20_000
"""Locks that consumers are given time to take, before the first of them runs out."""

SOON = 100_000
"""Locks whose lateness has the aim of a single one."""

LOOK_S = 0.1
"""Interval of looks at a node that is being measured: rare enough to cost it nothing."""

SETTLE_S = 3.0
"""Between the end of a load and the measuring of what is left of it."""

_LONGEST = re.compile(r'fifo_loop_longest_seconds{kind="(\w+)"} (\S+)')
_BUCKET = re.compile(r'fifo_lock_expiry_lateness_seconds_bucket\{le="(\S+)"\} (\d+)')


@dataclass(frozen=True, slots=True)
class LockFigure:
    """A line of the report."""

    workload: str
    name: str
    value: float
    aim: str = ""


@dataclass(frozen=True, slots=True)
class LockSizes:
    """Amounts of one size of the benchmark."""

    expiring: int
    held: int
    renewed: int
    connections: int
    seconds: float


# --- workloads -----------------------------------------------------------------------------------


async def expire_at_once(cluster: BenchCluster, sizes: LockSizes) -> list[LockFigure]:
    """Locks of ten consumers or more that were taken at one moment and run out at another."""
    nodes = Nodes(cluster)
    holders = max(10, -(-sizes.expiring // PREFETCH_MAX))
    lock_s = 5 + sizes.expiring // TAKEN_PER_S
    async with fifo.connect(cluster.url) as client, AsyncExitStack() as consumers:
        await client.declare(fifo.QueueSpec(QUEUE))
        await _publish(client, sizes.expiring)
        await client.pause(QUEUE)
        for _ in range(holders):
            consumer = client.consume(
                QUEUE, prefetch=-(-sizes.expiring // holders), lock=lock_s, auto_renew=False
            )
            await consumers.enter_async_context(consumer)
        await client.resume(QUEUE)
        await _until_locked(client, sizes.expiring)

        began: list[float] = []
        before: list[float] = []

        async def expired() -> bool:
            used = [*nodes.cpu_seconds(), time.process_time()]
            count = await nodes.metric("fifo_lock_expiry_lateness_seconds_count")
            if count:
                began.append(time.monotonic())
            else:
                before[:] = used
            return count >= sizes.expiring

        await until(expired, PATIENCE_S, f"not all of {sizes.expiring} locks expired", LOOK_S)
        lasted = time.monotonic() - began[0]
        after = [*nodes.cpu_seconds(), time.process_time()]
        leader, *followers, program = [now - then for now, then in zip(after, before, strict=True)]
    page = await nodes.metrics()
    title = f"{sizes.expiring:,} locks of {holders} consumers run out at once"
    aim = "250" if sizes.expiring <= SOON else "2000"
    return [
        LockFigure(title, "lateness p50, ms", _quantile_ms(page, 0.50)),
        LockFigure(title, "lateness p99, ms", _quantile_ms(page, 0.99), aim),
        LockFigure(title, "from the first to the last, s", lasted),
        LockFigure(title, "CPU of the leader, s", leader),
        LockFigure(title, "CPU of a follower, s", max(followers)),
        LockFigure(title, "CPU of the program that holds them, s", program),
        *[
            LockFigure(title, f"longest {kind} of the loop, ms of CPU", 1000 * float(seconds), "20")
            for kind, seconds in _LONGEST.findall(page)
            if kind in ("turn", "look")
        ],
    ]


def _quantile_ms(page: str, fraction: float) -> float:
    """A quantile of the histogram, by even spread within its bucket."""
    steps = [(0.0, 0), *((float(le), int(count)) for le, count in _BUCKET.findall(page))]
    wanted = fraction * steps[-1][1]
    for (low, below), (high, upto) in pairwise(steps):
        if upto >= wanted and upto > below:
            if high == float("inf"):
                return low * 1000
            return 1000 * (low + (high - low) * (wanted - below) / (upto - below))
    return 0.0


async def hold(cluster: BenchCluster, sizes: LockSizes) -> list[LockFigure]:
    """Locks that no client touches: their cost, against the same nodes before."""
    nodes = Nodes(cluster)
    title = f"{sizes.held:,} locks held"
    async with fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec(QUEUE, lock=300))
        await asyncio.sleep(SETTLE_S)
        idle = await nodes.busy(sizes.seconds)
        memory = nodes.memory_mib()
        async with AsyncExitStack() as consumers:
            left = sizes.held
            while left > 0:
                prefetch = min(left, PREFETCH_MAX)
                left -= prefetch
                consumer = client.consume(QUEUE, prefetch=prefetch, lock=300, auto_renew=False)
                await consumers.enter_async_context(consumer)
            await _publish(client, sizes.held)
            await _until_locked(client, sizes.held)
            await asyncio.sleep(SETTLE_S)
            busy = await nodes.busy(sizes.seconds)
            grown = nodes.grown_mib(memory)
    return [
        LockFigure(title, "leader idle without, % of a core", 100 * idle[0]),
        LockFigure(title, "leader idle with, % of a core", 100 * busy[0], "the same"),
        LockFigure(title, "follower idle without, % of a core", 100 * max(idle[1:])),
        LockFigure(title, "follower idle with, % of a core", 100 * max(busy[1:]), "the same"),
        LockFigure(title, "leader's memory grew, MiB", grown[0]),
        LockFigure(title, "a follower's memory grew, MiB", max(grown[1:])),
    ]


async def renew(cluster: BenchCluster, sizes: LockSizes) -> list[LockFigure]:
    """Locks of a hundred clients, renewed every 10 s: 30 s of lock, and a third of it."""
    nodes = Nodes(cluster)
    title = f"{sizes.renewed:,} locks of 100 sessions renewed every 10 s"
    each = -(-sizes.renewed // 100)
    async with fifo.connect(cluster.url) as client, AsyncExitStack() as clients:
        await client.declare(fifo.QueueSpec(QUEUE, lock=30, max_lock=3600))
        await asyncio.sleep(SETTLE_S)
        idle = await nodes.busy(sizes.seconds)
        for _ in range(100):
            one = await clients.enter_async_context(fifo.connect(cluster.url))
            consumer = one.consume(QUEUE, prefetch=each, lock=30)
            await clients.enter_async_context(consumer)
        await _publish(client, 100 * each)
        await _until_locked(client, 100 * each)
        await asyncio.sleep(15.0)
        seconds = max(30.0, sizes.seconds)
        entries = await nodes.metric("fifo_raft_commit_index")
        renewals = await nodes.metric("fifo_lock_renewals_total")
        busy = await nodes.busy(seconds)
        entries = await nodes.metric("fifo_raft_commit_index") - entries
        renewals = await nodes.metric("fifo_lock_renewals_total") - renewals
        await _until_locked(client, 100 * each)
    return [
        LockFigure(title, "renewals per second", renewals / seconds, f"{100 * each / 10:,.0f}"),
        LockFigure(title, "leader, % of a core above idle", 100 * (busy[0] - idle[0]), "2"),
        LockFigure(title, "log entries per 10 s", entries / seconds * 10, "1"),
    ]


async def stay(cluster: BenchCluster, sizes: LockSizes) -> list[LockFigure]:
    """Connections that only answer pings."""
    count = descriptors(sizes.connections)
    nodes = Nodes(cluster)
    title = f"{count:,} idle connections, {count // 2:,} sessions"
    idle = await nodes.busy(sizes.seconds)
    memory = nodes.memory_mib()
    began = time.monotonic()
    opened = await open_idle(nodes.client, count)
    lasted = time.monotonic() - began
    await asyncio.sleep(SETTLE_S)
    busy = await nodes.busy(max(sizes.seconds, 30.0))
    grown = nodes.grown_mib(memory)
    there = await nodes.metric("fifo_connections")
    for one in opened:
        one.close()
    return [
        LockFigure(title, "still open at the end", there, f"{count:,}"),
        LockFigure(title, "opened per second", count / lasted),
        LockFigure(title, "leader, % of a core above idle", 100 * (busy[0] - idle[0])),
        LockFigure(title, "leader's memory per connection, KiB", grown[0] * 1024 / count),
        LockFigure(title, "a follower's memory per session, KiB", max(grown[1:]) * 2048 / count),
    ]


async def _publish(client: fifo.Client, count: int) -> None:
    for at in range(0, count, BATCH):
        await client.publish_many(QUEUE, [BODY] * min(BATCH, count - at), timeout=PATIENCE_S)


async def _until_locked(client: fifo.Client, count: int) -> None:
    async def locked() -> bool:
        return (await client.queue(QUEUE)).locked >= count

    await until(locked, PATIENCE_S, f"{QUEUE}: fewer than {count} locks", LOOK_S)


WORKLOADS: dict[str, Callable[[BenchCluster, LockSizes], Awaitable[list[LockFigure]]]] = {
    "expire": expire_at_once,
    "hold": hold,
    "renew": renew,
    "idle": stay,
}


async def measure(
    household: Household, folder: Path, names: Sequence[str], sizes: LockSizes
) -> list[LockFigure]:
    """Each workload on a cluster of its own."""
    found: list[LockFigure] = []
    for name in names:
        print(f"{name}: {WORKLOADS[name].__doc__}", file=sys.stderr, flush=True)
        cluster = BenchCluster(household, folder / name)
        await cluster.start()
        try:
            found += await WORKLOADS[name](cluster, sizes)
        finally:
            await asyncio.to_thread(cluster.stop)
    return found


def print_table(figures: Sequence[LockFigure], console: Console) -> None:
    """Every figure beside its aim."""
    table = Table("workload", "figure", "measured", "aim")
    before = ""
    for one in figures:
        name = "" if one.workload == before else one.workload
        table.add_row(name, one.name, f"{one.value:,.2f}", one.aim)
        before = one.workload
    console.print(table)
    console.print(describe())


def main() -> int:
    """Measure and print; SystemExit where the cluster failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.locks", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; all by default")
    parser.add_argument("--expiring", type=int, default=10_000)
    parser.add_argument("--held", type=int, default=1_000_000)
    parser.add_argument("--renewed", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring CPU, each time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    names = options.workloads or list(WORKLOADS)
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    sizes = LockSizes(
        options.expiring, options.held, options.renewed, options.connections, options.seconds
    )
    figures = measured("locks", lambda home, folder: measure(home, folder, names, sizes))
    if options.json:
        listed = [
            {"workload": one.workload, "figure": one.name, "value": one.value, "aim": one.aim}
            for one in figures
        ]
        print(json.dumps({"figures": listed, "machine": machine()}, indent=2))
    else:
        print_table(figures, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
