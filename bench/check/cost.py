"""What a check costs by the size of the history: `python -m bench.check.cost`.

Owns the series of sizes, each generated and checked by the commands a user calls, and the picture
that shows whether the cost grows in a straight line. Asserts nothing: figures are for people.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.check import charts
from bench.check.page import STYLE
from bench.hardware import describe
from bench.interrupts import EXIT_CODE
from bench.processes import Household

SIZES = (1_000_000, 5_000_000, 10_000_000, 20_000_000)
POLL_S = 0.2


class CostFailed(Exception):
    """A command ended otherwise than it should; the text quotes what it said."""


def run(household: Household, name: str, *command: str) -> float:
    """The seconds that a command took. Raises CostFailed."""
    began = time.monotonic()
    child = household.start(name, sys.executable, "-m", *command)
    pause = threading.Event()
    while child.exit_code() is None:
        pause.wait(POLL_S)
    if child.exit_code() != 0:
        raise CostFailed(f"{name}: {child.last_lines()}")
    return time.monotonic() - began


def measure(sizes: list[int], folder: Path, memory: str) -> dict[int, float]:
    """Seconds of a check by number of events."""
    household = Household(folder / "logs")
    found = {}
    try:
        for size in sizes:
            history = folder / f"history-{size}"
            _say(f"{size:,} events: generating")
            run(
                household,
                f"generate-{size}",
                *("bench.check.generate", str(history), "--events", str(size)),
            )
            _say(f"{size:,} events: checking")
            found[size] = run(
                household,
                f"check-{size}",
                *("bench.check", str(history), "--memory", memory),
            )
            shutil.rmtree(history)
    finally:
        household.end(hurry=lambda: True)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure and print; 1 and one line on stderr where a check failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.check.cost", description=__doc__)
    parser.add_argument("--events", type=int, nargs="*", default=list(SIZES), help="sizes")
    parser.add_argument("--memory", default="3g", help="of the checker's JVM")
    parser.add_argument("--report", type=Path, help="an HTML page with the picture")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fifo-cost-"))
    try:
        found = measure(sorted(options.events), folder, options.memory)
    except CostFailed as error:
        print(f"the measurement failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_CODE
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps({"seconds": found, "cores": os.cpu_count(), "machine": describe()}))
    else:
        _show(found)
    if options.report is not None:
        picture = charts.curve(found, "events", "seconds", line=True)
        options.report.write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>fifo: cost of a check'
            f"</title><style>{STYLE}</style><h1>What a check costs</h1><figure>{picture}</figure>"
            f"<p>{describe()}</p></html>\n",
            encoding="utf-8",
        )
    return 0


def _show(found: dict[int, float]) -> None:
    table = Table("events", "seconds", "microseconds per event")
    for size, seconds in found.items():
        table.add_row(f"{size:,}", f"{seconds:,.0f}", f"{seconds / size * 1e6:,.1f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(describe())


if __name__ == "__main__":
    sys.exit(main())
