"""Time every case of the sweep, and print a table or plain data."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench import hardware
from bench.sweep import gathered, messages, people  # noqa: F401  # they declare the cases
from bench.sweep.case import CASES, Case
from bench.sweep.world import World
from node.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Sequence

AIM_MS = 20.0
"""CPU time that no apply takes, on the machine of docs/machine.md."""

LATER_ENTRIES = 100
"""Ticks that are watched after the command, of those that what it left is due in."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Milliseconds of CPU of one run of a case: the command, and the longest tick after it."""

    first_ms: float
    later_ms: float
    ticks: int


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its medians: alone, as the first change after a freeze, and the longest tick that
    goes on with it."""

    case: Case
    alone_ms: float
    frozen_ms: float
    later_ms: float
    ticks: int

    @property
    def longest_ms(self) -> float:
        """The figure that the aim is about."""
        return max(self.alone_ms, self.frozen_ms, self.later_ms)


def _cpu_ms() -> float:
    return time.process_time_ns() / 1e6


def run(case: Case, *, size: int | None = None, frozen: bool, collector: Collector) -> Timed:
    """Fill a machine for the case, apply its command and what is due after it."""
    world = World(collector.look)
    entry = case.build(world, size or case.size)
    collector.look()
    view = world.machine.freeze() if frozen else None
    started = _cpu_ms()
    world.apply(entry)
    first_ms = _cpu_ms() - started
    later_ms, ticks = 0.0, 0
    while ticks < LATER_ENTRIES and (following := world.next_tick()) is not None:
        collector.look()
        started = _cpu_ms()
        world.apply(following)
        later_ms = max(later_ms, _cpu_ms() - started)
        ticks += 1
    if view is not None:
        view.release()
    return Timed(first_ms, later_ms, ticks)


def measure(case: Case, repeats: int, collector: Collector) -> Row:
    """The medians of a case, each run on a machine of its own."""
    alone, frozen = (
        [run(case, frozen=mode, collector=collector) for _ in range(repeats)]
        for mode in (False, True)
    )
    return Row(
        case,
        statistics.median(each.first_ms for each in alone),
        statistics.median(each.first_ms for each in frozen),
        statistics.median(each.later_ms for each in frozen),
        max(each.ticks for each in frozen),
    )


def _table(rows: Sequence[Row]) -> Table:
    table = Table("command", "what", "size", "alone, ms", "after a freeze", "later tick", "ticks")
    for row in rows:
        name = row.case.name if row.longest_ms <= AIM_MS else f"[bold]{row.case.name}[/bold]"
        figures = (f"{value:.1f}" for value in (row.alone_ms, row.frozen_ms, row.later_ms))
        table.add_row(row.case.kind, name, f"{row.case.size:,}", *figures, str(row.ticks))
    return table


def main(arguments: list[str] | None = None) -> int:
    """Print all cases, the longest first; 1 where one misses the aim."""
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases whose command or name has one of them")
    parser.add_argument("--repeats", type=int, default=3, help="of every case; odd is best")
    parser.add_argument("--json", action="store_true", help="print plain data, not a table")
    options = parser.parse_args(arguments)
    rows = []
    with Collector() as collector:
        for case in CASES:
            full = f"{case.kind} {case.name}"
            if options.names and not any(name in full for name in options.names):
                continue
            rows.append(measure(case, options.repeats, collector))
            print(f"{rows[-1].longest_ms:8.1f} ms  {full}", file=sys.stderr, flush=True)
            gc.collect()
    rows.sort(key=lambda row: -row.longest_ms)
    if options.json:
        figures = [
            {
                "command": row.case.kind,
                "what": row.case.name,
                "size": row.case.size,
                "alone_ms": row.alone_ms,
                "after_freeze_ms": row.frozen_ms,
                "later_tick_ms": row.later_ms,
                "ticks": row.ticks,
            }
            for row in rows
        ]
        print(json.dumps({"machine": hardware.machine(), "figures": figures}, indent=2))
    else:
        console = Console(highlight=False, width=120)
        console.print(_table(rows))
        console.print(hardware.describe())
    return 0 if all(row.longest_ms <= AIM_MS for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
