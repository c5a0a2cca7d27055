"""`python -m bench.peers`: the options, the run, the table.

Owns the command line. What is not installed is named and left out; the run is then about the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench.cluster import ClusterFailed
from bench.hardware import describe, machine
from bench.interrupts import EXIT_CODE, Interrupts
from bench.peers.choice import DriverMissing, driver_of
from bench.peers.nats import Nats
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.rounds import Rounds, Row, rows_of
from bench.peers.servers import Fifo, System, SystemFailed
from bench.processes import Household

if TYPE_CHECKING:
    from collections.abc import Sequence


def systems() -> list[System]:
    """All that are known, this project first."""
    return [Fifo(), RabbitMQ(), Nats(always=False), Nats(always=True)]


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
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of each load")
    parser.add_argument(
        "--warm-up", type=float, default=4.0, help="seconds before each, unmeasured"
    )
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--only", help="names of systems, separated by commas")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0 or options.warm_up <= 0 or options.size < 8:
        parser.error("--rounds, --seconds and --warm-up must be above zero, --size 8 at least")
    return options


def main() -> int:
    """Measure and print; 1 and one line on stderr where a system failed."""
    options = parse()
    wanted = systems()
    if options.only:
        wanted = [one for one in wanted if one.name.split(",")[0] in options.only.split(",")]
    good, left_out = usable(wanted)
    for line in left_out:
        print(line, file=sys.stderr)
    interrupts = Interrupts()
    with interrupts.caught():
        folder = Path(tempfile.mkdtemp(prefix="fifo-peers-"))
        household = Household(folder / "logs")
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
            interrupts.run(rounds.run(options.rounds))
        except asyncio.CancelledError:
            print("interrupted: the rounds so far", file=sys.stderr)
        except (SystemFailed, ClusterFailed) as error:
            print(f"the comparison failed: {error}", file=sys.stderr)
            return 1
        finally:
            household.end(hurry=interrupts.hurry)
            shutil.rmtree(folder, ignore_errors=True)
    show(rows_of(rounds.measured), good, left_out, options)
    return EXIT_CODE if interrupts.count else 0


def show(
    rows: list[Row], good: Sequence[System], left_out: list[str], options: argparse.Namespace
) -> None:
    """The table, or the same as JSON."""
    if options.json:
        report: dict[str, Any] = {
            "figures": [asdict(row) for row in rows],
            "systems": {
                one.name: {"version": one.version(), "durability": one.durability} for one in good
            },
            "left_out": left_out,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "size": options.size,
            "machine": machine(),
        }
        print(json.dumps(report, indent=2))
        return
    console = Console(highlight=False)
    table = Table("load", "figure", "system", "median", "lowest - highest", "fifo is better by")
    seen = ("", "")
    for row in rows:
        load = row.load if row.load != seen[0] else ""
        figure = row.figure if (row.load, row.figure) != seen else ""
        seen = (row.load, row.figure)
        times = (
            f"{row.ratio.median:.1f} x ({row.ratio.lowest:.1f} - {row.ratio.highest:.1f})"
            if row.ratio
            else ""
        )
        low, high = _short(row.values.lowest), _short(row.values.highest)
        table.add_row(load, figure, row.system, _short(row.values.median), f"{low} - {high}", times)
    console.print(table)
    for system in good:
        console.print(f"{system.name} ({system.version()}): {system.durability}")
    console.print(
        f"{options.rounds} rounds of {options.seconds:g} s, bodies of {options.size} bytes, three"
        " nodes each on loopback; every system is driven by its Python client"
    )
    console.print(describe())


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"


if __name__ == "__main__":
    sys.exit(main())
