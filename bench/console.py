"""The cost of ten browsers: `python -m bench.console` opens a leader's console as its page does.

Owns the streams, and the pairs of stretches with and without them. The queues are 1,000; some of
them, or all, are busy all the time, so that rows change. Needs no browser: a page hears what
changes once a second, and what it then draws costs the node nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe
from bench.measuring import measured
from bench.nodes import Nodes
from bench.processes import Household

QUEUES: Final = 1_000
BUSY: Final = 50
BUSY_S: Final = 2.0
"""Each busy queue gets a message in this time, which is taken and acked at once."""

AT_ONCE: Final = 8
"""Busy queues at a time."""

BROWSERS: Final = 10
EVERY_S: Final = 1.0

LINE_BYTES: Final = 4 * 1024 * 1024
"""More than all rows."""


class Browser:
    """A browser with the overview open."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self.answers = self.bytes = self.rows = 0

    async def look(self) -> None:
        """Hear what the node pushes, until cancelled."""
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=LINE_BYTES)
        writer.write(f"GET /console/feed/stream HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        try:
            while line := await reader.readline():
                # An answer is a line of its own, between those of the chunks.
                if line.startswith(b"data: "):
                    self.answers += 1
                    self.bytes += len(line)
                    self.rows += len(json.loads(line.removeprefix(b"data: "))["queues"]["rows"])
        finally:
            writer.close()


async def keep_busy(url: str, queues: int) -> None:
    """Messages through so many of the queues, until cancelled."""
    async with fifo.connect(url) as client:

        async def through(first: int) -> None:
            while True:
                for number in range(first, queues, AT_ONCE):
                    await client.publish(f"q{number:04}", b"x")
                    for message in await client.get(f"q{number:04}"):
                        await message.ack()
                    await asyncio.sleep(BUSY_S * AT_ONCE / queues)

        await asyncio.gather(*map(through, range(AT_ONCE)))


class Stretch(NamedTuple):
    """The leader's CPU as a part of a core; per browser and second: answers, rows, bytes."""

    cpu: float
    answers: float
    rows: float
    bytes: float


async def stretch(nodes: Nodes, http: str, browsers: int, seconds: float) -> Stretch:
    """Measure the leader for this long with so many browsers."""
    open_ones = [Browser(http) for _ in range(browsers)]
    tasks = [asyncio.ensure_future(one.look()) for one in open_ones]
    try:
        await asyncio.sleep(2 * EVERY_S)  # the first answer has all queues
        before = [(one.answers, one.rows, one.bytes) for one in open_ones]
        (leader, *_) = await nodes.busy(seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    grown = [
        (one.answers - was[0], one.rows - was[1], one.bytes - was[2])
        for one, was in zip(open_ones, before, strict=True)
    ]
    sums = [sum(column) / len(grown) / seconds for column in zip(*grown, strict=True)] or [0.0] * 3
    return Stretch(leader, *sums)


async def measure(
    household: Household, folder: Path, pairs: int, seconds: float, busy: int
) -> None:
    """Print the CPU of the leader without and with the browsers, in pairs."""
    cluster = BenchCluster(household, folder / "cluster")
    await cluster.start()
    async with fifo.connect(cluster.url) as client:
        for number in range(QUEUES):
            await client.declare(fifo.QueueSpec(f"q{number:04}"))
    nodes = Nodes(cluster)
    http = next(view["http"] for view in cluster.views() if view["role"] == "leader")
    work = [asyncio.ensure_future(keep_busy(cluster.url, busy))] if busy else []
    extra = []
    print(f"{QUEUES} queues, {busy} busy, {BROWSERS} browsers; {describe()}")
    for _ in range(pairs):
        without = await stretch(nodes, http, 0, seconds)
        found = await stretch(nodes, http, BROWSERS, seconds)
        extra.append(found.cpu - without.cpu)
        print(
            f"leader {without.cpu:.2%} of a core without, {found.cpu:.2%} with them:"
            f" {extra[-1]:+.2%}; each gets {found.answers:.2f} answers a second,"
            f" {found.rows:.0f} rows, {found.bytes / 1000:.1f} kB",
            flush=True,
        )
    print(f"median {median(extra):+.2%}, {min(extra):+.2%} to {max(extra):+.2%}")
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    cluster.stop()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--busy", type=int, default=BUSY, help="queues with traffic, 0 to 1,000")
    given = parser.parse_args()

    async def work(household: Household, folder: Path) -> None:
        await measure(household, folder, given.pairs, given.seconds, given.busy)

    measured("console", work)


if __name__ == "__main__":
    main()
