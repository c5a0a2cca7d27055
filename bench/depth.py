"""Deep queues and long logs in whole nodes: `python -m bench.depth`.

Owns four workloads on clusters of three nodes: the memory that a deep queue takes, its rates beside
an empty queue's in the same cluster, how long all nodes take to serve again after they were killed
on top of it, and how fast a follower catches up that was away, through the log and through a
snapshot, while the others serve. Asserts nothing: figures are for people to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import fifo
from bench.cluster import BenchCluster, applied, commit_index
from bench.hardware import describe, machine
from bench.loopback import NODES, until
from bench.measuring import measured
from bench.nodes import Nodes
from bench.processes import Household
from bench.runs import fifo_bench
from bench.statistics import percentile, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUE = "deep"
BODY_BYTES = 1024
BATCH = 2_000
PUBLISHERS = 4
CALL_TIMEOUT_S = 120.0
PATIENCE_S = 900.0
"""For one long thing: a restart on a large journal, or catching up."""

STEADY_S = 0.01
"""Between two publishes of the load under which a follower catches up: it is there, no more."""

STEADY_BEFORE_S = 3.0
"""Time for which that load is measured alone."""

STAMP_BYTES = 8
"""`fifo bench` finds the time of publishing in the first bytes of a body."""

NO_SNAPSHOT_BYTES = 1 << 40
"""Between two snapshots where the log is to have everything."""

USUAL_SNAPSHOT_BYTES = 256 << 20
"""Between two snapshots, as a node does by default: docs/storage.md."""


@dataclass(frozen=True, slots=True)
class DepthSizes:
    """Amounts of one size of the benchmark."""

    messages: int
    restart_messages: int
    behind_bytes: int
    runs: int
    seconds: float


@dataclass(slots=True)
class Measured:
    """Every figure that was taken: (workload, figure) to its values and its aim."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    aims: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, workload: str, figure: str, value: float, aim: str = "") -> None:
        """Add a value of a figure and print it at once, because the rest may take long."""
        self.values.setdefault((workload, figure), []).append(value)
        self.aims[workload, figure] = aim
        _say(f"  {figure}: {value:,.2f}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload runs: its processes, its folder, and how much it does."""

    household: Household
    folder: Path
    sizes: DepthSizes
    measured: Measured


# --- load ----------------------------------------------------------------------------------------


async def fill(url: str, count: int) -> float:
    """Publish so many messages of 1 KB into the queue; how many a second were confirmed."""
    left = count
    told = began = time.monotonic()

    async def publish(client: fifo.Client) -> None:
        nonlocal left, told
        padding = b"x" * (BODY_BYTES - STAMP_BYTES)
        while (size := min(BATCH, left)) > 0:
            left -= size
            stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "little")
            await client.publish_many(QUEUE, [stamp + padding] * size, timeout=CALL_TIMEOUT_S)
            if (now := time.monotonic()) > told + 5:
                told = now
                _say(f"  {count - left:,} of {count:,} messages published")

    async with fifo.connect(url) as client:
        await client.declare(fifo.QueueSpec(QUEUE))
        await asyncio.gather(*(publish(client) for _ in range(PUBLISHERS)))
    return count / (time.monotonic() - began)


async def serve_again(url: str) -> None:
    """Wait until a message was published and another delivered, under any leader."""

    async def look() -> bool:
        try:
            async with fifo.connect(url, timeout=1.0) as client:
                await client.publish(QUEUE, b"x" * BODY_BYTES, timeout=5.0)
                return bool(await client.get(QUEUE, timeout=5.0))
        except (fifo.FifoError, OSError):
            return False

    await until(look, PATIENCE_S, "the cluster does not serve")


@asynccontextmanager
async def steady_load(url: str) -> AsyncIterator[list[float]]:
    """Somebody publishes and waits for each confirm all the while: how long each took, in ms."""
    taken: list[float] = []

    async def publish() -> None:
        async with fifo.connect(url) as client:
            await client.declare(fifo.QueueSpec("steady"))
            while True:
                began = time.monotonic()
                await client.publish("steady", b"x" * BODY_BYTES, timeout=CALL_TIMEOUT_S)
                taken.append((time.monotonic() - began) * 1000)
                await asyncio.sleep(STEADY_S)

    publishing = asyncio.create_task(publish())
    try:
        yield taken
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


# --- workloads -----------------------------------------------------------------------------------


async def depth(place: Place) -> None:
    """A queue that holds the messages: memory, and rates beside an empty queue."""
    sizes = place.sizes
    title = f"{sizes.messages:,} messages of 1 KB queued"
    async with _cluster(place, "depth") as cluster:
        nodes = Nodes(cluster)
        before = max(nodes.memory_mib())
        place.measured.note(title, "published per second", await fill(cluster.url, sizes.messages))
        place.measured.note(title, "memory of a node before, MiB", before)
        place.measured.note(title, "memory of a node, MiB", max(nodes.memory_mib()), "1,024")
        for _ in range(sizes.runs):
            rates = {}
            for name, options in (("empty", ()), ("deep", ("--queue", QUEUE))):
                report = await fifo_bench(
                    place.household,
                    place.folder,
                    *("--url", cluster.url, "--seconds", str(sizes.seconds), "--pace", "0"),
                    *options,
                    limit_s=sizes.seconds + PATIENCE_S,
                )
                for verb in ("published", "acked"):
                    rates[verb, name] = rate = float(report[f"{verb}_per_second"])
                    place.measured.note(title, f"{verb} per second, {name} queue", rate)
            for verb in ("published", "acked"):
                ratio = rates[verb, "deep"] / max(rates[verb, "empty"], 1.0)
                place.measured.note(title, f"{verb}, deep / empty", ratio, "0.8")
        place.measured.note(title, "memory after that, MiB", max(nodes.memory_mib()), "1,024")


async def restart(place: Place) -> None:
    """All nodes killed on a long journal, and started: how long until they serve."""
    count = place.sizes.restart_messages
    title = f"restart on {count * BODY_BYTES / 1e9:,.1f} GB of bodies"
    async with _cluster(place, "restart") as cluster:
        await fill(cluster.url, count)
        for _ in range(place.sizes.runs):
            await cluster.kill(*cluster.nodes)
            began = time.monotonic()
            cluster.begin_restart(cluster.nodes)
            await serve_again(cluster.url)
            place.measured.note(title, "serving after, s", time.monotonic() - began, "60")
            for node in cluster.nodes:
                await cluster.caught_up(node)
            place.measured.note(title, "all caught up after, s", time.monotonic() - began)
            place.measured.note(title, "memory of a node, MiB", max(Nodes(cluster).memory_mib()))


async def through_log(place: Place) -> None:
    """A follower that was away, from a leader that still has every entry."""
    await _catch_up(place, "log", NO_SNAPSHOT_BYTES)


async def through_snapshot(place: Place) -> None:
    """A follower that was away for longer than the leader's log goes back."""
    behind = place.sizes.behind_bytes
    await _catch_up(place, "snapshot", min(USUAL_SNAPSHOT_BYTES, behind // 4))


async def _catch_up(place: Place, way: str, snapshot_bytes: int) -> None:
    sizes = place.sizes
    title = f"away for {sizes.behind_bytes / 1e9:,.1f} GB, through the {way}"
    async with _cluster(place, way, snapshot_bytes) as cluster:
        for _ in range(sizes.runs):
            leader, _ = await cluster.leader()
            follower = next(node for node in cluster.nodes if node != leader)
            await cluster.kill(follower)
            await fill(cluster.url, sizes.behind_bytes // BODY_BYTES)
            async with steady_load(cluster.url) as taken:
                await asyncio.sleep(STEADY_BEFORE_S)
                before, taken[:] = sorted(taken), []
                goal = await commit_index(leader)
                began = time.monotonic()
                cluster.begin_restart((follower,))
                await applied(follower, 1, PATIENCE_S)
                started = time.monotonic()
                await applied(follower, goal, PATIENCE_S)
                caught_up = time.monotonic()
                during = sorted(taken)
            note = place.measured.note
            megabytes = sizes.behind_bytes / 1e6
            note(title, "process answers after, s", started - began)
            note(title, "caught up after, s", caught_up - began)
            note(title, "MB/s, the start included", megabytes / (caught_up - began), "50")
            note(title, "confirm p99 alone, ms", percentile(before, 99))
            note(title, "confirm p99 meanwhile, ms", percentile(during, 99))
            note(title, "longest confirm meanwhile, ms", percentile(during, 100))


@asynccontextmanager
async def _cluster(
    place: Place, name: str, snapshot_bytes: int | None = None
) -> AsyncIterator[BenchCluster]:
    """A cluster of its own, whose files are gone afterwards: several would not fit on a disk."""
    folder = place.folder / name
    cluster = BenchCluster(place.household, folder, snapshot_bytes)
    await cluster.start()
    try:
        yield cluster
    finally:
        await asyncio.to_thread(place.household.end)
        shutil.rmtree(folder, ignore_errors=True)


WORKLOADS: dict[str, Callable[[Place], Awaitable[None]]] = {
    "depth": depth,
    "restart": restart,
    "log": through_log,
    "snapshot": through_snapshot,
}


# --- the command ---------------------------------------------------------------------------------


def print_table(measured: Measured, console: Console) -> None:
    """Median, lowest and highest of every figure, beside its aim."""
    table = Table("workload", "figure", "median", "lowest", "highest", "aim")
    before = ""
    for (workload, figure), values in measured.values.items():
        cells = (f"{value:,.2f}" if value < 1000 else f"{value:,.0f}" for value in spread(values))
        aim = measured.aims[workload, figure]
        table.add_row("" if workload == before else workload, figure, *cells, aim)
        before = workload
    console.print(table)
    console.print(f"{NODES} nodes and the clients on one machine, fsync before every confirm")
    console.print(describe())


def as_json(measured: Measured) -> str:
    """The same as plain data, with the machine."""
    figures = [
        {"workload": workload, "figure": figure, **spread(values)._asdict(), "aim": aim}
        for (workload, figure), values in measured.values.items()
        for aim in (measured.aims[workload, figure],)
    ]
    return json.dumps({"figures": figures, "machine": machine()}, indent=2)


async def measure(place: Place, names: Sequence[str]) -> None:
    """Run one workload after the other; each ends what it started."""
    for name in names:
        _say(f"{name}: {WORKLOADS[name].__doc__}")
        await WORKLOADS[name](place)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.depth", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; all by default")
    parser.add_argument("--messages", type=int, default=2_000_000, help="held by the deep queue")
    parser.add_argument("--restart-gb", type=float, default=10.0, help="bodies in the journal")
    parser.add_argument("--behind-gb", type=float, default=1.0, help="what a follower misses")
    parser.add_argument("--runs", type=int, default=3, help="of what can be repeated")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of a rate")
    parser.add_argument("--dir", type=Path, help="where the journals are; a temporary folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    return options


def main() -> int:
    """Measure and print; SystemExit where the cluster failed."""
    options = _options()
    sizes = DepthSizes(
        options.messages,
        int(options.restart_gb * 1e9) // BODY_BYTES,
        int(options.behind_gb * 1e9),
        max(1, options.runs),
        options.seconds,
    )
    taken = Measured()

    async def work(household: Household, folder: Path) -> None:
        place = Place(household, folder, sizes, taken)
        await measure(place, options.workloads or list(WORKLOADS))

    measured("depth", work, within=options.dir)
    if options.json:
        print(as_json(taken))
    else:
        print_table(taken, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
