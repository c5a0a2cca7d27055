"""The cost of ten browsers: `python -m bench.console` polls a leader's console as its page does.

Owns the polling, and the pairs of stretches with and without it. The queues are 1,000; a few of
them are busy all the time, so that rows change. Needs no browser: a page asks once a second, and
what it then draws costs the node nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from statistics import median
from typing import Final

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe
from bench.measuring import measured
from bench.nodes import Nodes
from bench.processes import Household

QUEUES: Final = 1_000
BUSY: Final = 50
BUSY_S: Final = 0.5
"""Each busy queue gets a message in this time, which is taken and acked at once."""

BROWSERS: Final = 10
EVERY_S: Final = 1.0


class Browser:
    """A browser with the overview open."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self.answers = self.bytes = 0

    async def look(self) -> None:
        """Ask once a second, until cancelled."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        since, boot, after = 0, "", 0
        try:
            while True:
                path = f"/console/feed?boot={boot}&since={since}&after={after}"
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                found = json.loads(await reader.readexactly(size))
                self.answers += 1
                self.bytes += size
                since, boot = found["queues"]["version"], found["boot"]
                after = found["history"]["next"]
                await asyncio.sleep(EVERY_S)
        finally:
            writer.close()


async def keep_busy(url: str) -> None:
    """Messages through some of the queues, until cancelled."""
    async with fifo.connect(url) as client:
        while True:
            for number in range(BUSY):
                name = f"q{number:04}"
                await client.publish(name, b"x")
                for message in await client.get(name):
                    await message.ack()
                await asyncio.sleep(BUSY_S / BUSY)


async def stretch(nodes: Nodes, http: str, browsers: int, seconds: float) -> tuple[float, float]:
    """CPU of the leader as a part of a core, and bytes of an answer."""
    open_ones = [Browser(http) for _ in range(browsers)]
    tasks = [asyncio.ensure_future(one.look()) for one in open_ones]
    try:
        await asyncio.sleep(2 * EVERY_S)  # the first answer has all queues
        before = [(one.answers, one.bytes) for one in open_ones]
        (leader, *_) = await nodes.busy(seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    answers = sum(one.answers - was[0] for one, was in zip(open_ones, before, strict=True))
    received = sum(one.bytes - was[1] for one, was in zip(open_ones, before, strict=True))
    return leader, received / answers if answers else 0.0


async def measure(
    household: Household, folder: Path, pairs: int, seconds: float, *, busy: bool
) -> None:
    """Print the CPU of the leader without and with the browsers, in pairs."""
    cluster = BenchCluster(household, folder / "cluster")
    await cluster.start()
    async with fifo.connect(cluster.url) as client:
        for number in range(QUEUES):
            await client.declare(fifo.QueueSpec(f"q{number:04}"))
    nodes = Nodes(cluster)
    http = next(view["http"] for view in cluster.views() if view["role"] == "leader")
    work = [asyncio.ensure_future(keep_busy(cluster.url))] if busy else []
    extra = []
    print(f"{QUEUES} queues, {BUSY if busy else 0} busy, {BROWSERS} browsers; {describe()}")
    for _ in range(pairs):
        without, _ = await stretch(nodes, http, 0, seconds)
        with_them, size = await stretch(nodes, http, BROWSERS, seconds)
        extra.append(with_them - without)
        print(
            f"leader {without:.2%} of a core without, {with_them:.2%} with them:"
            f" {extra[-1]:+.2%}, {size / 1000:.1f} kB an answer"
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
    parser.add_argument("--idle", action="store_true", help="no traffic")
    given = parser.parse_args()

    async def work(household: Household, folder: Path) -> None:
        await measure(household, folder, given.pairs, given.seconds, busy=not given.idle)

    measured("console", work)


if __name__ == "__main__":
    main()
