"""The rates of this machine: `make bench`, or `python -m bench.rates`.

Owns which workloads are run, how often, and the table of medians and spread. Each runs through
`fifo bench` against a cluster of three nodes of its own, in rounds, so that a noisy minute of the
machine falls on all of them; the change of leader is measured here. Asserts nothing: figures are
for people to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe, machine
from bench.measuring import measured
from bench.processes import Household
from bench.runs import fifo_bench
from bench.statistics import Spread, longest_gap, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP_QUEUE = "gap"
GAP_BEFORE_S = 1.0
GAP_AFTER_S = 6.0
"""Seconds of publishing before the leader is killed, and after: twice a change of leader."""

BODY = b"x" * 1024

PATIENCE_S = 60.0
"""Time that `fifo bench` may take beyond the seconds that it measures."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A call of `fifo bench`, and which of its figures are shown: (path, name, aim)."""

    name: str
    options: tuple[str, ...]
    figures: tuple[tuple[str, str, str], ...]


def _both(aim: str) -> tuple[tuple[str, str, str], ...]:
    return (
        ("published_per_second", "published per second", aim),
        ("acked_per_second", "acked per second", aim),
    )


WORKLOADS = (
    Workload("1 publisher, 1 consumer", (), _both("40,000")),
    Workload(
        "8 publishers, 8 consumers", ("--publishers", "8", "--consumers", "8"), _both("20,000")
    ),
    Workload("1 and 1, window 100", ("--window", "100"), _both("")),
    Workload(
        "one confirm at a time",
        ("--consumers", "0", "--window", "1"),
        (("confirm_ms.p50", "p50 ms", "1"), ("confirm_ms.p99", "p99 ms", "")),
    ),
)
"""The options are those of `fifo bench`; an aim is the least, or for times the most, that is
wanted."""

QUEUES = 1_000
SPREAD = (f"{QUEUES:,} queues, one message each", "published per second", "80,000")
"""`publish()` once for each queue, all at once, and again when all are confirmed."""

GAP = ("leader killed", "pause of confirms, s", "3")


class Bench:
    """A series of rounds on one cluster."""

    def __init__(self, household: Household, folder: Path, runs: int, seconds: float) -> None:
        self._household = household
        self._folder = folder
        self._runs = runs
        self._seconds = seconds
        self._cluster = BenchCluster(household, folder / "cluster")
        self.measured: dict[tuple[str, str], list[float]] = {}

    async def measure(self) -> None:
        """Run every workload `runs` times."""
        await self._cluster.start()
        for number in range(self._runs):
            for workload in WORKLOADS:
                _say(f"round {number + 1} of {self._runs}: {workload.name}")
                report = await self._bench(workload)
                for path, figure, _ in workload.figures:
                    self._note(workload.name, figure, _figure(report, path))
            _say(f"round {number + 1} of {self._runs}: {SPREAD[0]}")
            self._note(*SPREAD[:2], await self._spread())
            _say(f"round {number + 1} of {self._runs}: {GAP[0]}")
            self._note(*GAP[:2], await self._gap())

    def _note(self, name: str, figure: str, value: float) -> None:
        self.measured.setdefault((name, figure), []).append(value)

    async def _bench(self, workload: Workload) -> dict[str, Any]:
        return await fifo_bench(
            self._household,
            self._folder,
            *("--url", self._cluster.url, "--seconds", str(self._seconds), *workload.options),
            limit_s=self._seconds + PATIENCE_S,
        )

    async def _spread(self) -> float:
        """Publish to many queues in turn; messages per second."""
        names = [f"spread-{number}" for number in range(QUEUES)]
        published = 0
        async with fifo.connect(self._cluster.url) as client:
            for name in names:
                await client.declare(fifo.QueueSpec(name))
            began = time.monotonic()
            while time.monotonic() - began < self._seconds:
                await asyncio.gather(*[client.publish(name, BODY) for name in names])
                published += QUEUES
            lasted = time.monotonic() - began
            for name in names:
                await client.delete(name)
        return published / lasted

    async def _gap(self) -> float:
        """Publish one by one, kill the leader, and see how long nothing is confirmed."""
        confirmed: list[float] = []
        async with fifo.connect(self._cluster.url) as client:
            await client.declare(fifo.QueueSpec(GAP_QUEUE))
            publishing = asyncio.create_task(_publish_on(client, confirmed))
            try:
                await asyncio.sleep(GAP_BEFORE_S)
                leader, term = await self._cluster.leader()
                await self._cluster.kill(leader)
                killed = time.monotonic()
                await asyncio.wait((publishing,), timeout=GAP_AFTER_S)
            finally:
                publishing.cancel()
            if publishing.done() and not publishing.cancelled():
                publishing.result()
        await self._cluster.leader(above_term=term)
        await self._cluster.restart(leader)
        await self._cluster.caught_up(leader)
        return longest_gap(confirmed, killed - GAP_BEFORE_S, killed + GAP_AFTER_S)


async def _publish_on(client: fifo.Client, confirmed: list[float]) -> None:
    while True:
        await client.publish(GAP_QUEUE, BODY)
        confirmed.append(time.monotonic())


def _figure(report: dict[str, Any], path: str) -> float:
    value: Any = report
    for part in path.split("."):
        value = value[part]
    return float(value)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rows_of(measured: dict[tuple[str, str], list[float]]) -> list[tuple[str, str, Spread, str]]:
    """(workload, figure, spread over the runs, aim), in the order of the table."""
    wanted = [
        (workload.name, figure, aim)
        for workload in WORKLOADS
        for _, figure, aim in workload.figures
    ]
    return [
        (name, figure, spread(measured[name, figure]), aim)
        for name, figure, aim in (*wanted, SPREAD, GAP)
    ]


def print_table(rows: Sequence[tuple[str, str, Spread, str]], runs: int, console: Console) -> None:
    """Medians, lowest and highest, and what was aimed at."""
    table = Table("workload", "figure", "median", "lowest", "highest", "aim")
    before = ""
    for name, figure, values, aim in rows:
        cells = (f"{value:,.2f}" if value < 1000 else f"{value:,.0f}" for value in values)
        table.add_row("" if name == before else name, figure, *cells, aim)
        before = name
    console.print(table)
    console.print(f"{runs} rounds, 3 nodes, 1 KB bodies, fsync before every confirm")
    console.print(describe())


def main() -> int:
    """Measure and print; SystemExit where the cluster failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.rates", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds; the median is shown")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of each")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()

    async def work(household: Household, folder: Path) -> Bench:
        bench = Bench(household, folder, max(1, options.runs), options.seconds)
        await bench.measure()
        return bench

    bench = measured("bench", work)
    rows = rows_of(bench.measured)
    if options.json:
        figures = [
            {"workload": name, "figure": figure, **values._asdict(), "aim": aim}
            for name, figure, values, aim in rows
        ]
        print(json.dumps({"figures": figures, "machine": machine()}, indent=2))
    else:
        print_table(rows, options.runs, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
