"""Rounds in turn, and what they add up to.

Owns the order (every system once per round, started and ended within it, so that a noisy minute of
the machine falls on all), the loads, and the ratios: each within one round, so that they hold on a
machine whose speed changes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.peers.servers import Fifo, System, SystemFailed
from bench.peers.worker import CONSUMER, PUBLISHER, Job
from bench.processes import Child, Household
from bench.statistics import Spread, spread
from node.cli.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

GRACE_S = 90.0
"""What a worker may take beyond its end: the answer to its last call."""

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """What every system gets alike."""

    name: str
    publishers: int
    consumers: int
    window: int


LOADS = (
    Load("1 publisher, 1 consumer", 1, 1, 1000),
    Load("4 publishers, 4 consumers", 4, 4, 1000),
    Load("one confirm at a time", 1, 0, 1),
)

FIGURES = (
    "published per second",
    "acked per second",
    "confirm p50 ms",
    "confirm p99 ms",
    "end to end p50 ms",
    "end to end p99 ms",
)
"""In the order of the table; the first two are rates, of which more is better."""

RATES = frozenset(FIGURES[:2])

Measured = dict[tuple[str, str, str], list[float]]
"""(load, figure, system) to one value per round."""


class Rounds:
    """One series of rounds."""

    def __init__(
        self,
        folder: Path,
        systems: Sequence[System],
        *,
        seconds: float,
        warm_up_s: float,
        size: int,
        say: Callable[[str], None],
        household: Household,
    ) -> None:
        self._folder = folder
        self._systems = systems
        self._seconds = seconds
        self._warm_up_s = warm_up_s
        self._size = size
        self._say = say
        self._household = household
        self.measured: Measured = {}

    async def run(self, rounds: int, loads: Sequence[Load] = LOADS) -> None:
        """Every system once per round; who goes first changes. Raises SystemFailed."""
        for number in range(rounds):
            turn = number % len(self._systems)
            for system in (*self._systems[turn:], *self._systems[:turn]):
                self._say(f"round {number + 1} of {rounds}: {system.name}")
                await self._one(system, number, loads)

    async def _one(self, system: System, number: int, loads: Sequence[Load]) -> None:
        place = self._folder / f"r{number}-{system.name.replace(', ', '-').replace(' ', '-')}"
        try:
            url = await system.start(self._household, place)
            for index, load in enumerate(loads):
                figures = await self._load(system, url, load, f"{place.name}-{index}")
                for figure, value in figures.items():
                    self.measured.setdefault((load.name, figure, system.name), []).append(value)
        finally:
            await asyncio.shield(asyncio.to_thread(self._household.end, lambda: True))

    async def _load(self, system: System, url: str, load: Load, name: str) -> dict[str, float]:
        begin = time.monotonic_ns() + int(self._warm_up_s * 1e9)
        roles = [PUBLISHER] * load.publishers + [CONSUMER] * load.consumers
        workers = []
        for place, role in enumerate(roles):
            window = max(1, load.window // load.publishers) if role == PUBLISHER else load.window
            job = Job(
                system.name, url, role, self._size, window, begin, begin + int(self._seconds * 1e9)
            )
            workers.append(self._start(f"{name}-{place}", job))
        results = [await self._result(*worker) for worker in workers]
        return figures_of(list(zip(roles, results, strict=True)), self._seconds)

    def _start(self, name: str, job: Job) -> tuple[Child, Path]:
        output = self._folder / f"{name}.json"
        command = (sys.executable, "-m", "bench.peers.worker", json.dumps(asdict(job)))
        return self._household.start(name, *command, stdout=output), output

    async def _result(self, child: Child, output: Path) -> dict[str, Any]:
        deadline = time.monotonic() + self._warm_up_s + self._seconds + GRACE_S
        while (code := child.exit_code()) is None:
            if time.monotonic() > deadline:
                raise SystemFailed(f"{child.name} does not end")
            await asyncio.sleep(POLL_S)
        if code != 0:
            raise SystemFailed(child.last_lines(1) or f"{child.name} ended with code {code}")
        return _parsed(output)


def _parsed(output: Path) -> dict[str, Any]:
    return dict(json.loads(output.read_text()))


def figures_of(results: Sequence[tuple[str, dict[str, Any]]], seconds: float) -> dict[str, float]:
    """The figures of one load from what its workers counted; those without a worker are absent."""
    figures: dict[str, float] = {}
    for role, rate, latency in (
        (PUBLISHER, FIGURES[0], "confirm"),
        (CONSUMER, FIGURES[1], "end to end"),
    ):
        mine = [result for of, result in results if of == role]
        if not mine:
            continue
        total = Histogram()
        for result in mine:
            total.merge(Histogram.from_pairs([(a, b) for a, b in result["latency"]]))
        figures[rate] = sum(result["messages"] for result in mine) / seconds
        for name, percent in (("p50", 50.0), ("p99", 99.0)):
            figures[f"{latency} {name} ms"] = total.percentile_ms(percent) or 0.0
    return figures


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one system. `ratio`: how many times better this project is, per round."""

    load: str
    figure: str
    system: str
    values: Spread
    ratio: Spread | None


def rows_of(measured: Measured) -> list[Row]:
    """Every figure with its spread, and its ratio to this project's of the same round."""
    rows = []
    for load, figure, system in measured:
        values = measured[load, figure, system]
        ours = measured.get((load, figure, Fifo.name), [])
        pairs = [(a, b) for a, b in zip(ours, values, strict=False) if a > 0 and b > 0]
        ratio = None
        if system != Fifo.name and pairs:
            better = [a / b if figure in RATES else b / a for a, b in pairs]
            ratio = spread(better)
        rows.append(Row(load, figure, system, spread(values), ratio))
    order = {load.name: place for place, load in enumerate(LOADS)}
    return sorted(rows, key=lambda row: (order[row.load], FIGURES.index(row.figure)))
