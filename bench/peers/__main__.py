"""`python -m bench.peers`: the options, the run, the table.

Owns the command line. What is not installed is named and left out; the run is then about the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench.hardware import describe, filesystem, machine
from bench.interrupts import EXIT_CODE
from bench.measuring import measured
from bench.peers.choice import DriverMissing, driver_of
from bench.peers.figures import Row, rows_of
from bench.peers.nats import Nats
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.rounds import LOADS, Rounds
from bench.peers.servers import Fifo, System
from bench.processes import Household

if TYPE_CHECKING:
    from collections.abc import Sequence


FILE_WIDTH = 120
"""Columns of the table where it is not shown on a terminal."""


def systems(rabbitmq: Path | None = None) -> list[System]:
    """All that are known, this project first; `rabbitmq`: the folder of its programs."""
    return [Fifo(), RabbitMQ(rabbitmq), Nats(always=False), Nats(always=True)]


def usable(found: Sequence[System]) -> tuple[list[System], list[str]]:
    """Those that can run here, and a line on each that cannot."""
    good, left_out = [], []
    for system in found:
        why = system.missing()
        if why is None:
            try:
                driver_of(system.name)
            except DriverMissing as error:
                why = f"its Python client is not installed: {error}"
        if why is None:
            good.append(system)
        else:
            left_out.append(f"{system.name}: left out, {why}")
    return good, left_out


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="the median of them is shown")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each load")
    parser.add_argument(
        "--warm-up", type=float, default=1.0, help="seconds of load before each, unmeasured"
    )
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    names = dict.fromkeys(map(_short_name, systems()))
    parser.add_argument("--only", help=f"some of {', '.join(names)}, separated by commas")
    parser.add_argument("--dir", type=Path, help="where the disks are, else a temporary folder")
    parser.add_argument(
        "--rabbitmq", type=Path, help="folder of its programs (bench.peers.debian makes one)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0 or options.warm_up <= 0 or options.size < 8:
        parser.error("--rounds, --seconds and --warm-up must be above zero, --size 8 at least")
    options.only = options.only.split(",") if options.only else list(names)
    if unknown := set(options.only) - set(names):
        parser.error(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(names)}")
    if options.dir is not None and not options.dir.is_dir():
        parser.error(f"--dir {options.dir}: there is no such folder")
    return options


def _short_name(system: System) -> str:
    return system.name.split(",")[0]


def main() -> int:
    """Measure and print; 1 where a system failed, with the figures of the others."""
    options = parse()
    good, left_out = usable(
        [one for one in systems(options.rabbitmq) if _short_name(one) in options.only]
    )
    for line in left_out:
        print(line, file=sys.stderr)
    if not good:
        return 1
    interrupted = False

    async def work(household: Household, folder: Path) -> tuple[Rounds, str]:
        nonlocal interrupted
        rounds = Rounds(
            folder,
            good,
            seconds=options.seconds,
            warm_up_s=options.warm_up,
            size=options.size,
            say=lambda text: print(text, file=sys.stderr, flush=True),
            household=household,
        )
        try:
            await rounds.run(options.rounds)
        except asyncio.CancelledError:
            interrupted = True
            print("interrupted: the rounds so far", file=sys.stderr)
        return rounds, filesystem(folder)

    rounds, disk = measured("peers", work, within=options.dir)
    show(rounds, good, left_out, disk, options)
    if interrupted:
        return EXIT_CODE
    return 1 if rounds.failed else 0


def show(
    rounds: Rounds,
    good: Sequence[System],
    left_out: list[str],
    disk: str,
    options: argparse.Namespace,
) -> None:
    """The table, or the same as JSON."""
    rows = rows_of(rounds.measured)
    versions = {one.name: one.version() for one in good}
    if options.json:
        report: dict[str, Any] = {
            "figures": [asdict(row) for row in rows],
            "systems": {
                name: {"version": version, "durability": rounds.durability.get(name)}
                for name, version in versions.items()
            },
            "left_out": left_out,
            "failed": rounds.failed,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "size": options.size,
            "disk": disk,
            "machine": machine(),
        }
        print(json.dumps(report, indent=2))
        return
    width = None if sys.stdout.isatty() else FILE_WIDTH
    console = Console(highlight=False, soft_wrap=True, width=width)
    console.print(table_of(rows))
    for name, told in rounds.durability.items():
        console.print(f"{name} ({versions[name]}): {told}")
    for line in (*left_out, *(f"{name} failed: {why}" for name, why in rounds.failed.items())):
        console.print(line)
    console.print(
        f"{options.rounds} rounds of {options.seconds:g} s for each of {len(LOADS)} loads, bodies"
        f" of {options.size} bytes, three nodes each on loopback and on {disk}; every system is"
        " driven by its Python client"
    )
    console.print(describe())


def table_of(rows: Sequence[Row]) -> Table:
    """Medians with their spread, and how they compare."""
    table = Table("load", "figure", "system", "median", "lowest - highest", "fifo is better by")
    seen = ("", "")
    for row in rows:
        load = row.load if row.load != seen[0] else ""
        figure = row.figure if (row.load, row.figure) != seen else ""
        seen = (row.load, row.figure)
        times = ""
        if row.ratio:
            low, high = _short(row.ratio.lowest), _short(row.ratio.highest)
            times = f"{_short(row.ratio.median)} x ({low} - {high})"
        low, high = _short(row.values.lowest), _short(row.values.highest)
        table.add_row(load, figure, row.system, _short(row.values.median), f"{low} - {high}", times)
    return table


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"


if __name__ == "__main__":
    sys.exit(main())
