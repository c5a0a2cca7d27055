"""`python -m bench.rates`: the rows of one checkout, or of this and another one in turn.

Owns the turns and the table of medians and spread. Each round starts a cluster of each checkout, in
changing order, and runs all rows on it, so that a noisy minute of the machine falls on both. A row
that a checkout cannot run has no figure of it. Asserts nothing: figures are for people to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench.hardware import describe, machine
from bench.loopback import ClusterFailed
from bench.measuring import measured
from bench.rates.checkout import Checkout, Measuring
from bench.rates.rows import ROWS, Row
from bench.statistics import spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.processes import Household

Figures = dict[tuple[str, str, str], list[float]]
"""By row, figure and checkout: one of each round."""


async def measure(
    household: Household,
    folder: Path,
    checkouts: Sequence[Checkout],
    rows: Sequence[Row],
    *,
    rounds: int,
    seconds: float,
) -> Figures:
    """Run every row of every checkout in each round."""
    found: Figures = {}
    for number in range(rounds):
        turned = checkouts if number % 2 == 0 else checkouts[::-1]
        for checkout in turned:
            place = folder / f"{checkout.root.name}-{number}"
            measuring = Measuring(checkout, household, place)
            await measuring.start()
            for row in rows:
                _say(f"round {number + 1} of {rounds}, {checkout.name}: {row.name}")
                try:
                    figures = await measuring.run(row, seconds)
                except ClusterFailed as error:
                    _say(f"  left out: {error}")
                    continue
                for figure in row.aims.keys() & figures.keys():
                    found.setdefault((row.name, figure, checkout.name), []).append(figures[figure])
            await asyncio.shield(asyncio.to_thread(household.end, lambda: True))
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    return found


def table_of(found: Figures, checkouts: Sequence[Checkout], rows: Sequence[Row]) -> list[list[str]]:
    """The cells of the table, a line of each row's figure: medians with lowest and highest, and of
    two checkouts the ratio of the second's to the first's."""
    lines = []
    for row in rows:
        for figure, aim in row.aims.items():
            values = [found.get((row.name, figure, one.name), []) for one in checkouts]
            cells = [_cell(one) for one in values]
            if len(checkouts) > 1:
                medians = [spread(one).median if one else 0.0 for one in values]
                cells.append(f"x {medians[1] / medians[0]:.2f}" if all(medians) else "")
            lines.append([row.name, figure, *cells, aim])
    return lines


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    digits = 0 if max(values) >= 1_000 else 2
    median, lowest, highest = (f"{value:,.{digits}f}" for value in spread(values))
    return median if len(values) == 1 else f"{median} ({lowest} to {highest})"


def print_table(
    lines: Sequence[Sequence[str]], checkouts: Sequence[Checkout], console: Console
) -> None:
    """For people; each row's name once."""
    ratios = ["ratio"] if len(checkouts) > 1 else []
    table = Table("workload", "figure", *(one.name for one in checkouts), *ratios, "aim")
    before = ""
    for name, *cells in lines:
        table.add_row("" if name == before else name, *cells)
        before = name
    console.print(table)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure and print; SystemExit where a cluster failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.rates", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds; the median is shown")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each")
    parser.add_argument("--beside", type=Path, help="another checkout, with a .venv: first")
    parser.add_argument("--only", metavar="TEXT", action="append", help="rows whose name has it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    texts = options.only or [""]
    rows = [row for row in ROWS if any(text in row.name for text in texts)]
    if not rows:
        names = "\n  ".join(row.name for row in ROWS)
        parser.error(f"no row's name has {' or '.join(texts)!r}; the rows are\n  {names}")
    try:
        others = [] if options.beside is None else [Checkout.at(options.beside)]
    except ClusterFailed as error:
        parser.error(str(error))
    checkouts = [*others, Checkout.here()]
    rounds = max(1, options.runs)

    async def work(household: Household, folder: Path) -> Figures:
        return await measure(
            household, folder, checkouts, rows, rounds=rounds, seconds=options.seconds
        )

    found = measured("bench", work)
    if options.json:
        figures = [
            {"workload": name, "figure": figure, "checkout": checkout, "values": values}
            for (name, figure, checkout), values in found.items()
        ]
        print(json.dumps({"figures": figures, "machine": machine()}, indent=2))
    else:
        console = Console(highlight=False)
        print_table(table_of(found, checkouts, rows), checkouts, console)
        console.print(
            f"{rounds} rounds of {options.seconds:g} s, 3 nodes, 1 KB bodies,"
            " fsync before every confirm"
        )
        console.print(describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
