"""The cost of a backup to a busy cluster: `python -m bench.backup`.

Owns the measurement: a cluster that holds a backlog is loaded by `fifo bench` in turns, alone and
while `fifo backup` copies it again and again. The figures are ratios within one run, so that the
machine and the age of the cluster fall out. The cluster is `bench.cluster`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import fifo
from bench.cluster import FIFO, BenchCluster
from bench.hardware import describe, machine
from bench.loopback import ended
from bench.measuring import measured
from bench.runs import fifo_bench
from bench.statistics import spread

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Household

BACKLOG = "backlog"
PUBLISHED_AT_ONCE: Final = 1_000

BENCH_LIMIT_S: Final = 60.0
"""For one `fifo bench` beyond its seconds: its processes start and end meanwhile."""

BACKUP_LIMIT_S: Final = 600.0
"""For the backup under way when a round ends: it is waited for, so that no two overlap."""

FIGURES: Final = ("published_per_second", "acked_per_second")


@dataclass(slots=True)
class Result:
    """Outcome of the rounds: a report of `fifo bench` for each, and the whole backups."""

    alone: list[dict[str, Any]] = field(default_factory=list)
    beside: list[dict[str, Any]] = field(default_factory=list)
    backups: list[dict[str, Any]] = field(default_factory=list)

    def ratios(self, figure: str) -> list[float]:
        """Beside a backup by alone, round by round; without rounds in which nothing came."""
        pairs = zip(self.beside, self.alone, strict=True)
        return [one[figure] / other[figure] for one, other in pairs if other[figure]]


class Measurement:
    """A cluster with its backlog, and the rounds on it."""

    def __init__(self, household: Household, folder: Path, options: argparse.Namespace) -> None:
        self._household = household
        self._folder = folder
        self._options = options
        self._cluster = BenchCluster(household, folder / "cluster")
        self._result = Result()
        self._number = 0

    async def run(self) -> Result:
        """Start, fill, and measure each round both ways, the first of the two in turns."""
        await self._cluster.start()
        await self._fill()
        options, result = self._options, self._result
        for number in range(options.rounds):
            for beside in (False, True) if number % 2 == 0 else (True, False):
                report = await (self._beside() if beside else self._load())
                (result.beside if beside else result.alone).append(report)
                rates = ", ".join(f"{report[figure]:,.0f} {figure}" for figure in FIGURES)
                _say(f"round {number + 1} {'beside a backup' if beside else 'alone'}: {rates}")
        return result

    async def _fill(self) -> None:
        """The backlog that is copied: a queue that nothing takes from."""
        body = b"\0" * self._options.size
        async with fifo.connect(self._cluster.url) as client:
            await client.declare(fifo.QueueSpec(BACKLOG))
            left = self._options.messages
            while left > 0:
                count = min(left, PUBLISHED_AT_ONCE)
                await client.publish_many(BACKLOG, [body] * count)
                left -= count

    async def _load(self) -> dict[str, Any]:
        options = self._options
        seconds = ("--seconds", str(options.seconds), "--size", str(options.size))
        url = ("--url", self._cluster.url)
        limit_s = options.seconds + BENCH_LIMIT_S
        return await fifo_bench(self._household, self._folder, *seconds, *url, limit_s=limit_s)

    async def _beside(self) -> dict[str, Any]:
        """The load while backups follow each other; the last one is finished before the next."""
        over = asyncio.Event()
        copying = asyncio.ensure_future(self._copy(over))
        try:
            return await self._load()
        finally:
            over.set()
            await copying

    async def _copy(self, over: asyncio.Event) -> None:
        while not over.is_set():
            self._number += 1
            file = self._folder / f"{self._number}.backup"
            output = self._folder / f"backup-{self._number}.json"
            child = self._household.start(
                f"backup-{self._number}",
                *(*FIFO, "backup", "--json", "--to", str(file), "--url", self._cluster.url),
                stdout=output,
            )
            await ended(child, BACKUP_LIMIT_S)
            self._result.backups.append(json.loads(output.read_text()))
            file.unlink()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_result(result: Result) -> None:
    """The figures, in words."""
    for figure in FIGURES:
        ratios = result.ratios(figure)
        if not ratios:
            print(f"{figure}: nothing came, alone")
            continue
        alone = statistics.median(one[figure] for one in result.alone)
        found = spread(ratios)
        print(
            f"{figure}: {found.median:.2f} of the rate alone beside a backup (median of"
            f" {len(ratios)} rounds, {found.lowest:.2f} to {found.highest:.2f}); alone {alone:,.0f}"
        )
    print(f"{len(result.backups)} whole backups meanwhile")
    print(describe())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench.backup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of load in each half")
    parser.add_argument("--messages", type=int, default=200_000, help="of the backlog")
    parser.add_argument("--size", type=int, default=1_024, help="bytes of each body")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.messages < 1:
        parser.error("--rounds and --messages must be 1 or more")
    return options


def main() -> int:
    """Measure and print."""
    options = parse()
    result = measured(
        "backup", lambda household, folder: Measurement(household, folder, options).run()
    )
    if options.json:
        ratios = {figure: result.ratios(figure) for figure in FIGURES}
        figures = {
            "ratios": ratios, "alone": result.alone, "beside": result.beside,
            "backups": result.backups, "machine": machine(),
        }  # fmt: skip
        print(json.dumps(figures, indent=2))
    else:
        print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
