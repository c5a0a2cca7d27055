"""`make locks`: renewed locks on real processes, while the leader is paused, killed or cut off.

Owns runs of one kind: workers that hold a hundred locks each, rivals that would take whatever comes
back, one fault of the leader on real processes. A run is good if no message was handed out again
and every acknowledgement is committed. `tests.sim.held_locks` does the same in virtual time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import fifo
from bench.processes import Household
from tests.jepsen.cluster import Cluster, until

LOCKS = 100
"""Of each worker."""

LOCK_SECONDS = (2.0, 3.0, 5.0)
"""Of the workers, one each."""

FAULT_S = 6.0
"""With the next second longer than an election and a lock: what no client renews is lost."""

AFTER_S = 1.0
"""The old leader is back for this long before the locks are settled."""

READY_S = 30.0
"""Longest wait for all nodes, or for a worker's messages."""

Fault = Callable[[Cluster, str], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def pause(cluster: Cluster, leader: str) -> AsyncIterator[None]:
    """SIGSTOP."""
    cluster.signal(leader, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal(leader, signal.SIGCONT)


@asynccontextmanager
async def kill(cluster: Cluster, leader: str) -> AsyncIterator[None]:
    """SIGKILL; it starts again."""
    await cluster.kill(leader)
    yield
    await cluster.bring_up(leader)


@asynccontextmanager
async def cut(cluster: Cluster, leader: str) -> AsyncIterator[None]:
    """Nothing passes between it and the other nodes; its clients still reach it."""
    for other in cluster.names:
        if other != leader:
            cluster.network.cut(leader, other)
            cluster.network.cut(other, leader)
    try:
        yield
    finally:
        cluster.network.heal()


FAULTS: dict[str, Fault] = {"pause": pause, "kill": kill, "cut": cut}


@dataclass
class Worker:
    """A client that holds locks of one duration, and one that would take them."""

    queue: str
    lock_s: float
    client: fifo.Client
    rival: fifo.Client
    held: list[fifo.Message] = field(default_factory=list)
    taken: list[fifo.Message] = field(default_factory=list)
    moved_s: float | None = None
    """Seconds from the fault until its data connection was at another leader."""

    async def hold(self, stack: AsyncExitStack) -> None:
        """Take all messages of a new queue, and let the rival wait for them."""
        await self.client.declare(fifo.QueueSpec(self.queue))
        await self.client.publish_many(self.queue, [b"%d" % number for number in range(LOCKS)])
        mine = await stack.enter_async_context(
            self.client.consume(self.queue, prefetch=2 * LOCKS, lock=self.lock_s)
        )
        while len(self.held) < LOCKS:
            message = await mine.next(timeout=READY_S)
            assert message is not None, f"{self.queue}: {len(self.held)} messages of {LOCKS}"
            self.held.append(message)
        theirs = await stack.enter_async_context(
            self.rival.consume(self.queue, prefetch=LOCKS, lock=60.0)
        )
        for consumer in (mine, theirs):
            task = asyncio.ensure_future(self._take(consumer))
            stack.callback(task.cancel)

    async def _take(self, consumer: fifo.Consumer[fifo.Message]) -> None:
        async for message in consumer:
            self.taken.append(message)

    async def settle(self) -> str | None:
        """Acknowledge all; what is wrong, or None."""
        outcomes = await asyncio.gather(
            *[message.ack(receipt=True) for message in self.held], return_exceptions=True
        )
        bad = [one for one in outcomes if isinstance(one, BaseException) or one.status != "ok"]
        if not bad and not self.taken:
            return None
        return (
            f"{self.queue}: {len(self.taken)} messages were handed out again,"
            f" {len(bad)} acknowledgements ended otherwise, such as {bad[:1]}"
        )


async def run(
    cluster: Cluster, fault: str, number: int, *, locks: tuple[float, ...], fault_s: float
) -> tuple[str | None, list[float]]:
    """Hit the leader once: what is wrong, and how long the clients took to move."""
    rng = random.Random(f"{cluster.seed} {fault} {number}")
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        workers = [
            Worker(
                f"{fault}-{number}-{lock_s:g}",
                lock_s,
                await stack.enter_async_context(fifo.connect(cluster.url)),
                await stack.enter_async_context(fifo.connect(cluster.url)),
            )
            for lock_s in locks
        ]
        await asyncio.gather(*[worker.hold(stack) for worker in workers])
        # At any point between two renewals.
        await asyncio.sleep(max(locks) / 3 * rng.random())
        leader = await cluster.leader()
        began = loop.time()

        def moved(worker: Worker, _address: str) -> None:
            worker.moved_s = worker.moved_s or loop.time() - began

        for worker in workers:
            worker.client.on_connected = partial(moved, worker)
        async with FAULTS[fault](cluster, leader):
            await asyncio.sleep(fault_s)
        await asyncio.sleep(AFTER_S)
        wrong = [one for worker in workers if (one := await worker.settle())]
        for worker in workers:
            await worker.client.delete(worker.queue)
    times = [worker.moved_s for worker in workers if worker.moved_s is not None]
    if len(times) < len(workers):
        wrong.append(f"{len(workers) - len(times)} clients stayed where they were")
    if not await until(lambda: len(cluster.views) == len(cluster.names), READY_S):
        wrong.append(f"only {sorted(cluster.views)} answer")
    return "; ".join(wrong) or None, times


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Cluster]:
    """Three nodes as processes, with a leader."""
    cluster = Cluster(Household(folder / "logs"), folder / "cluster", 1)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def runs(folder: Path, count: int, kinds: list[str]) -> int:
    """So many runs of each kind, one after the other; the number of bad ones."""
    bad = 0
    async with started(folder) as cluster:
        for kind in kinds:
            good, times = 0, [0.0]
            for number in range(count):
                wrong, took = await run(cluster, kind, number, locks=LOCK_SECONDS, fault_s=FAULT_S)
                times += took
                good += wrong is None
                if wrong is not None:
                    print(f"{kind} {number}: {wrong}", flush=True)
            bad += count - good
            print(
                f"{kind}: {good} of {count} runs without a lost lock; clients had moved after"
                f" {median(times[1:] or times):.2f} s (median), {max(times):.2f} s (longest)",
                flush=True,
            )
    return bad


def main() -> int:
    """Returns the process's exit code: 1 where a lock was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.jepsen.held_locks",
        description="Runs of each kind of fault, with a hundred locks of 2, 3 and 5 s in each.",
    )
    parser.add_argument("--runs", type=int, default=30, help="of each kind (default 30)")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only this kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fifo-locks-") as folder:
        bad = asyncio.run(runs(Path(folder), options.runs, options.fault or list(FAULTS)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
