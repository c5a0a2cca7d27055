"""The cost of a task beside a message alone: `python -m bench.tasks`.

Owns pairs of runs on one cluster, in one process: the same number of messages through
`message.process()` and through a worker's task, taken by the same number of loops with the same
prefetch. CPU time of this process is compared, so the nodes' share of the machine is not in it.
Asserts nothing: figures are for people to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe, machine
from bench.measuring import measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.processes import Household

QUEUE = "tasks"
BATCH = 5_000
CONCURRENCY = 100
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class TaskPair:
    """CPU microseconds per message of one pair of runs."""

    alone_us: float
    task_us: float

    @property
    def overhead_us(self) -> float:
        """The cost of the task above the message."""
        return self.task_us - self.alone_us


class Counter:
    """Counts messages up to a number; every handler of a run uses it."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.done = asyncio.Event()

    def one(self) -> None:
        """Count one."""
        self._left -= 1
        if not self._left:
            self.done.set()


async def _publish(client: fifo.Client, count: int) -> None:
    headers = {"task": "count", "content-type": "application/json"}
    for at in range(0, count, BATCH):
        bodies = [b'{"number":%d}' % number for number in range(at, min(count, at + BATCH))]
        listed = [headers] * len(bodies)
        await client.publish_many(QUEUE, bodies, headers=listed, timeout=PATIENCE_S)


async def _alone(url: str, count: int) -> None:
    """Messages through `process()`, in as many loops as the worker has."""
    counter = Counter(count)

    async def handle(message: fifo.Message) -> None:
        counter.one()

    async def serve(messages: fifo.Consumer[fifo.Message]) -> None:
        async for message in messages:
            async with message.process():
                await handle(message)

    async with (
        fifo.connect(url) as client,
        client.consume(QUEUE, prefetch=CONCURRENCY) as messages,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(CONCURRENCY):
            group.create_task(serve(messages))
        await counter.done.wait()
        await messages.cancel()


async def _as_tasks(url: str, count: int) -> None:
    """The same as tasks with one argument each."""
    counter = Counter(count)
    app = fifo.App(url)

    @app.task(fifo.QueueSpec(QUEUE), name="count")
    async def handle(number: int) -> None:
        counter.one()

    async with fifo.connect(url) as client, fifo.Worker(app, client, concurrency=CONCURRENCY):
        await counter.done.wait()


async def _timed(url: str, count: int, *, tasks: bool) -> float:
    """CPU microseconds per message, from connecting to the last receipt."""
    async with fifo.connect(url) as client:
        await client.purge(QUEUE)
        await _publish(client, count)
    began = time.process_time()
    async with asyncio.timeout(PATIENCE_S):
        await (_as_tasks if tasks else _alone)(url, count)
    return 1e6 * (time.process_time() - began) / count


async def measure(household: Household, folder: Path, pairs: int, count: int) -> list[TaskPair]:
    """Pairs on one cluster, each in the other order than the one before."""
    cluster = BenchCluster(household, folder / "tasks")
    await cluster.start()
    try:
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec(QUEUE))
        for tasks in (False, True):  # warm, and not counted
            await _timed(cluster.url, BATCH, tasks=tasks)
        found = []
        for number in range(pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            cost = {tasks: await _timed(cluster.url, count, tasks=tasks) for tasks in order}
            found.append(TaskPair(cost[False], cost[True]))
            print(f"pair {number + 1}: {found[-1]}", file=sys.stderr, flush=True)
        return found
    finally:
        await asyncio.to_thread(cluster.stop)


def print_table(pairs: Sequence[TaskPair], console: Console) -> None:
    """Medians and spread over the pairs."""
    table = Table("CPU of the client, us per message", "median", "least", "most", "aim")
    rows = (
        ("message.process()", [one.alone_us for one in pairs], ""),
        ("a task with one argument", [one.task_us for one in pairs], ""),
        ("difference, pair by pair", [one.overhead_us for one in pairs], "30"),
    )
    for name, values, aim in rows:
        shown = (statistics.median(values), min(values), max(values))
        table.add_row(name, *(f"{value:.1f}" for value in shown), aim)
    console.print(table)
    console.print(describe())


def main() -> int:
    """Measure and print; SystemExit where the cluster failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    logging.getLogger("fifo").setLevel(logging.WARNING)
    pairs = measured(
        "tasks", lambda home, folder: measure(home, folder, options.pairs, options.messages)
    )
    if options.json:
        listed = [{"alone_us": one.alone_us, "task_us": one.task_us} for one in pairs]
        print(json.dumps({"pairs": listed, "machine": machine()}, indent=2))
    else:
        print_table(pairs, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
