"""The cost of a killed leader to holders of locks: `python -m bench.failover`.

Owns the measurement: so many consumers hold so many locks while the leader is killed again and
again. Two figures: how long nothing is delivered, and how many messages were delivered again to
consumers that lived all the time, which has to be none: locks survive. The cluster is
`bench.cluster`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe, machine
from bench.measuring import measured
from bench.processes import Household
from bench.statistics import Spread, longest_gap, spread

HELD, FLOW = "held", "flow"

CLIENTS = 10
"""Sessions, each with its share of the consumers, and one that takes what flows."""

PUBLISH_PAUSE_S = 0.005
FLOW_PREFETCH = 10
BEFORE_S = 1.0
AFTER_S = 5.0
"""Time for which deliveries are watched before a kill and after it."""

HOLD_LIMIT_S = 120.0
AIM_S = 1.5
RETURNS = tuple(f"redelivered_{cause}" for cause in ("nack", "timeout", "disconnect", "released"))


class Failover:
    """A cluster, its consumers, and what was seen of each kill."""

    def __init__(self, cluster: BenchCluster, consumers: int, locks: int) -> None:
        self._cluster = cluster
        self._consumers = consumers
        self._locks = locks
        self._held: list[fifo.Message] = []
        self._delivered: list[float] = []
        self.gaps: list[float] = []
        self.again = 0
        """Deliveries of a message that was delivered before."""
        self.returned = 0
        """The same as the nodes count it."""
        self.unsettled = 0
        """Messages whose ack, in the end, came too late or met another holder."""

    async def measure(self, kills: int) -> None:
        """Take the locks, kill so often, settle everything."""
        await self._cluster.start()
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(fifo.connect(self._cluster.url))
                for _ in range(CLIENTS)
            ]
            tasks = [asyncio.create_task(one) for one in await self._begin(clients, stack)]
            try:
                for number in range(kills):
                    gap = await self._kill()
                    self.gaps.append(gap)
                    _say(f"kill {number + 1} of {kills}: {gap:.2f} s without a delivery")
                await self._settle(clients[0])
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, fifo.FifoError):
                    raise error

    async def _begin(
        self, clients: list[fifo.Client], stack: AsyncExitStack
    ) -> list[Coroutine[Any, Any, None]]:
        for queue in (HELD, FLOW):
            await clients[0].declare(fifo.QueueSpec(queue))
        await clients[0].publish_many(HELD, [b"%d" % n for n in range(self._locks)])
        share = self._locks // self._consumers
        holding = []
        for client in itertools.islice(itertools.cycle(clients), self._consumers):
            consumer = client.consume(HELD, prefetch=share)
            holding.append(self._hold(await stack.enter_async_context(consumer), share))
        async with asyncio.timeout(HOLD_LIMIT_S):
            await asyncio.gather(*holding)
        _say(f"{len(self._held)} locks are held by {self._consumers} consumers")
        flowing = [self._take(client) for client in clients]
        return [*flowing, self._publish(clients[0])]

    async def _hold(self, consumer: Any, share: int) -> None:
        """Take one's share and keep it."""
        while share > 0:
            messages = await consumer.next_batch(share)
            self._look_at(messages)
            self._held += messages
            share -= len(messages)

    async def _take(self, client: fifo.Client) -> None:
        async with client.consume(FLOW, prefetch=FLOW_PREFETCH) as consumer:
            async for message in consumer:
                self._delivered.append(time.monotonic())
                self._look_at([message])
                await message.ack()

    def _look_at(self, messages: list[fifo.Message]) -> None:
        self.again += sum(1 for message in messages if message.attempt > 1)

    async def _publish(self, client: fifo.Client) -> None:
        """Publish one message after the other; a change of leader may leave some unknown."""
        while True:
            try:
                await client.publish(FLOW, b"x" * 100)
            except fifo.FifoError as error:
                if not (error.unknown or error.retryable):
                    raise
            await asyncio.sleep(PUBLISH_PAUSE_S)

    async def _kill(self) -> float:
        """Kill the leader; how long nothing was delivered."""
        await asyncio.sleep(BEFORE_S + random.random())
        leader, term = await self._cluster.leader()
        await self._cluster.kill(leader)
        killed = time.monotonic()
        await asyncio.sleep(AFTER_S)
        gap = longest_gap([*self._delivered, time.monotonic()], killed - BEFORE_S, killed + AFTER_S)
        await self._cluster.leader(above_term=term)
        await self._cluster.restart(leader)
        await self._cluster.caught_up(leader)
        return gap

    async def _settle(self, client: fifo.Client) -> None:
        """Ack what is held: each under the token of its first delivery."""
        results = await asyncio.gather(*[message.ack(receipt=True) for message in self._held])
        # An ack that is sent again, for its receipt was slow, finds itself carried out.
        own = ("ok", "already_settled")
        self.unsettled = sum(1 for one in results if one.status not in own or one.late)
        for queue in (HELD, FLOW):
            counters = (await client.queue(queue)).counters
            self.returned += sum(counters[name] for name in RETURNS)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_result(result: Failover, gaps: Spread) -> None:
    """The figures, in words."""
    print(
        f"{len(result.gaps)} leaders killed: deliveries resumed after {gaps.median:.2f} s (median),"
        f" {gaps.highest:.2f} s (worst; aim {AIM_S} s)"
    )
    print(
        f"redelivered: {result.again} as clients saw it, {result.returned} as nodes count it;"
        f" acks refused or late in the end: {result.unsettled}"
    )
    print(describe())


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--locks", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.kills < 1 or options.consumers < 1 or options.locks % options.consumers:
        parser.error("--locks must be so many for each of --consumers, and --kills at least 1")
    return options


def main() -> int:
    """Measure and print; 1 where anything was delivered again."""
    options = parse()

    async def work(household: Household, folder: Path) -> Failover:
        cluster = BenchCluster(household, folder / "cluster")
        result = Failover(cluster, options.consumers, options.locks)
        await result.measure(options.kills)
        return result

    result = measured("failover", work)
    gaps = spread(result.gaps)
    again = result.again + result.returned + result.unsettled
    if options.json:
        figures = {
            "gaps_s": result.gaps, "redelivered": result.again, "returned": result.returned,
            "unsettled": result.unsettled, "aim_s": AIM_S, "machine": machine(),
        }  # fmt: skip
        print(json.dumps(figures, indent=2))
    else:
        print_result(result, gaps)
    return 1 if again else 0


if __name__ == "__main__":
    sys.exit(main())
