"""The cost of a check by the size of the history: `python -m bench.check.cost`.

Owns the series of sizes, each generated and checked by the commands a user calls, what each took of
time and memory, and the picture that shows whether the cost grows in a straight line. Asserts
nothing: figures are for people.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.check import charts
from bench.check.page import STYLE
from bench.hardware import describe
from bench.interrupts import EXIT_CODE
from bench.processes import Child, Household, descendants

SIZES = (1_000_000, 5_000_000, 10_000_000, 20_000_000)
POLL_S = 0.5
"""Between two looks at the memory: Spark fills and empties its heap over seconds."""

WRITTEN = "_SUCCESS"
"""The last file that Spark writes into a folder."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """CPU, memory and time of a command, with every process below it."""

    seconds: float
    cpu_seconds: float
    rss_mib: float
    """At most, at any of the looks."""


class CostFailed(Exception):
    """A command ended otherwise than it should; the text quotes what it said."""


def run(household: Household, name: str, *command: str) -> Cost:
    """Run a command and measure it. Raises CostFailed."""
    began, most = time.monotonic(), 0
    cpu_ticks: dict[int, int] = {}
    child = household.start(name, sys.executable, "-m", *command)
    pause = threading.Event()
    while child.exit_code() is None:
        most = max(most, _look(child, cpu_ticks))
        pause.wait(POLL_S)
    if child.exit_code() != 0:
        raise CostFailed(f"{name}: {child.last_lines()}")
    cpu_seconds = sum(cpu_ticks.values()) / TICKS_PER_SECOND
    return Cost(time.monotonic() - began, cpu_seconds, most / (1 << 20))


def _look(child: Child, cpu_ticks: dict[int, int]) -> int:
    """Bytes of memory that the child and all below it have now; notes what each has run so far."""
    rss_bytes = 0
    for pid in {child.pid, *descendants(child.pid, set())}:
        with contextlib.suppress(OSError):  # It has just ended.
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            cpu_ticks[pid] = int(stat[11]) + int(stat[12])
            rss_bytes += int(stat[21]) * PAGE_BYTES
    return rss_bytes


def measure(sizes: list[int], folder: Path, kept: Path | None, memory: str) -> dict[int, Cost]:
    """Measure checks by number of events. Histories are made in `kept`, unless they are there;
    without it each is made in `folder`, and deleted after its check.
    """
    household = Household(folder / "logs")
    found = {}
    try:
        for size in sizes:
            history = (kept or folder) / f"history-{size}"
            _generate(household, history, size)
            _say(f"{size:,} events: checking")
            found[size] = run(
                household,
                f"check-{size}",
                *("bench.check", str(history), "--memory", memory),
            )
            if kept is None:
                shutil.rmtree(history)
    finally:
        household.end(hurry=lambda: True)
    return found


def _generate(household: Household, history: Path, size: int) -> None:
    if (history / WRITTEN).exists():
        _say(f"{size:,} events: {history}")
        return
    shutil.rmtree(history, ignore_errors=True)  # What was interrupted.
    _say(f"{size:,} events: generating")
    command = ("bench.check.generate", str(history), "--events", str(size))
    run(household, f"generate-{size}", *command)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure and print; 1 and one line on stderr where a check failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.check.cost", description=__doc__)
    parser.add_argument("--events", type=int, nargs="*", default=list(SIZES), help="sizes")
    parser.add_argument("--memory", default="3g", help="of the checker's JVM")
    parser.add_argument("--report", type=Path, help="an HTML page with the picture")
    parser.add_argument("--picture", type=Path, help="the picture alone, as SVG")
    parser.add_argument(
        "--keep", type=Path, help="histories are made in this folder, and used again if there"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    for path in (options.report, options.picture):
        if path is not None:  # Before the long work, that an error comes soon.
            path.absolute().parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fifo-cost-"))
    try:
        found = measure(sorted(options.events), folder, options.keep, options.memory)
    except CostFailed as error:
        print(f"the measurement failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_CODE
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        costs = {size: cost._asdict() for size, cost in found.items()}
        print(json.dumps({"costs": costs, "cores": os.cpu_count(), "machine": describe()}))
    else:
        _show(found)
    seconds = {size: cost.seconds for size, cost in found.items()}
    picture = charts.curve(seconds, "events", "seconds", line=True)
    if options.picture is not None:
        options.picture.write_text(picture, encoding="utf-8")
    if options.report is not None:
        options.report.write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>fifo: cost of a check'
            f"</title><style>{STYLE}</style><h1>What a check costs</h1><figure>{picture}</figure>"
            f"<p>{describe()}</p></html>\n",
            encoding="utf-8",
        )
    return 0


def _show(found: dict[int, Cost]) -> None:
    table = Table("events", "seconds", "microseconds per event", "of processors", "peak MiB")
    for size, cost in found.items():
        each = (cost.seconds / size * 1e6, cost.cpu_seconds / size * 1e6)
        table.add_row(
            f"{size:,}", f"{cost.seconds:,.0f}", *(f"{one:,.1f}" for one in each),
            f"{cost.rss_mib:,.0f}",
        )  # fmt: skip
    console = Console(highlight=False)
    console.print(table)
    console.print(describe())


if __name__ == "__main__":
    sys.exit(main())
