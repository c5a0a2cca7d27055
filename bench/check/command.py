"""The checker from the command line; `bench.check.__main__` calls it.

Owns the options, what is printed, and the exit code: 0 where every rule holds, 1 where one is
broken, 2 where the history cannot be judged (or the options make no sense).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.check.figures import Figures, measure
from bench.check.page import headline, render
from bench.check.reading import HistoryBroken, read
from bench.check.settings import SETTINGS, flat
from bench.check.specs import Rare
from bench.check.tuning import tune
from bench.check.verdict import RULES, Verdict, judge_history, state_of
from bench.hardware import describe
from bench.processes import Household
from bench.spark import JavaMissing, JobFailed, start_spark, task_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

BROKEN, UNJUDGED = 1, 2

MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.check",
        description="Check a recorded history against every rule of docs/history.md.",
        epilog="Exit code: 0 all rules hold, 1 a rule is broken, 2 the history cannot be judged.",
    )
    parser.add_argument(
        "history", type=Path, help="JSON lines (also .gz) or Parquet; a file or a folder"
    )
    parser.add_argument("--report", type=Path, help="write an HTML page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--skip-broken",
        action="store_true",
        help="judge what is there although lines are broken or events are missing",
    )
    parser.add_argument("--memory", default="3g", help="of the JVM, as 3g or 800m")
    parser.add_argument("--master", default="local[*]", help="Spark's")
    options = parser.parse_args(arguments)
    if options.report is not None:
        folder = options.report.absolute().parent
        if not os.access(folder, os.W_OK) or options.report.is_dir():
            parser.error(f"--report {options.report}: no file can be written there")
    if not MEMORY.fullmatch(options.memory):
        parser.error(f"--memory {options.memory}: write it as 3g or 800m")
    return options


def main() -> int:
    """Check, print, leave nothing behind."""
    options = parse()
    if not options.history.exists():  # Said before a JVM is started.
        print(f"{options.history}: there is no such file or folder", file=sys.stderr)
        return UNJUDGED
    folder = Path(tempfile.mkdtemp(prefix="fifo-check-"))
    household = Household(folder)
    try:
        return run(options, folder, own_session)
    except (HistoryBroken, JavaMissing, JobFailed) as error:
        print(f"the history cannot be judged: {error}", file=sys.stderr)
        return UNJUDGED
    finally:
        household.end(hurry=lambda: True)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def own_session(options: argparse.Namespace, folder: Path) -> Iterator[SparkSession]:
    """A session in a JVM that is started for this check, and ended after it."""
    changes = {"spark.driver.memory": options.memory}
    context = start_spark("fifo check", options.master, folder / "spark", changes)
    try:
        from pyspark.sql import SparkSession

        yield SparkSession(context)
    finally:
        context.stop()


def run(
    options: argparse.Namespace,
    folder: Path,
    session: Callable[[argparse.Namespace, Path], AbstractContextManager[SparkSession]],
) -> int:
    """Check in a session, print, write the report; gives the exit code."""
    began = time.monotonic()

    def say(text: str) -> None:
        if not options.json:
            print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    say("starting Spark")
    with session(options, folder) as spark, task_errors():
        found = check(spark, options, folder, say)
    if found is None:
        return UNJUDGED
    verdict, figures = found
    show(verdict, figures, options)
    if options.report is not None:
        settings = [("history", str(options.history)), ("machine", describe())]
        settings += workload_of(options.history)
        page = render(verdict, figures, settings)
        options.report.write_text(page, encoding="utf-8")
        say(f"the report: {options.report}")
    return 0 if not verdict.broken else BROKEN


def check(
    spark: SparkSession, options: argparse.Namespace, folder: Path, say: Callable[[str], None]
) -> tuple[Verdict, Figures] | None:
    """Verdict and figures; None, and the complaints on stderr, where it is not whole."""
    say("reading")
    history = read(spark, options.history, folder)
    if history.complaints and not options.skip_broken:
        _complain(history.complaints)
        return None
    say(f"{history.count:,} events")
    verdict, made = judge_history(spark, history, say)
    try:
        if verdict.complaints and not options.skip_broken:
            _complain(verdict.complaints)
            return None
        say("figures")
        tune(spark, history.count)
        return verdict, measure(spark, Rare.read(spark))
    finally:
        made.free()


def workload_of(history: Path) -> list[tuple[str, str]]:
    """The settings of the load job that wrote it, name by name; none where another did."""
    try:
        found = json.loads((history / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return list(flat(found))


def _complain(complaints: tuple[str, ...]) -> None:
    for line in complaints:
        print(line, file=sys.stderr)
    print(
        "the history is not whole, so nothing can be said of it"
        " (--skip-broken judges what is there)",
        file=sys.stderr,
    )


def show(verdict: Verdict, figures: Figures, options: argparse.Namespace) -> None:
    """The verdict on the terminal, or all of it as JSON."""
    if options.json:
        report: dict[str, Any] = {
            "ok": verdict.ok,
            **asdict(verdict),
            "figures": figures.plain(),
        }
        print(json.dumps(report, indent=2))
        return
    console = Console(highlight=False)
    table = Table("rule", "", "")
    for rule, words in RULES.items():
        state = state_of(verdict, rule)
        table.add_row(rule, words, state, style="bold red" if state.startswith("broken") else "")
    console.print(table)
    for one in verdict.broken:
        console.print(Text(f"{one.rule}: {RULES[one.rule]}", style="bold red"))
        for example in one.examples:
            console.print(Text(f"  {example.subject}: {example.text}"))
            for event in example.events:
                console.print(Text(f"    {json.dumps(event)}"), soft_wrap=True)
        if one.subjects > len(one.examples):
            console.print(f"  and {one.subjects - len(one.examples):,} more")
    for line in (*verdict.complaints, *verdict.notes):
        console.print(Text(f"note: {line}"))
    for name, wait in figures.totals.items():
        console.print(
            f"{name}: p50 {wait.p50:,.2f} ms, p95 {wait.p95:,.2f}, p99 {wait.p99:,.2f},"
            f" max {wait.most:,.2f} ({wait.messages:,})"
        )
    console.print(
        Text(headline(verdict), style="bold green" if verdict.ok else "bold red"), soft_wrap=True
    )


__all__ = ["main", "parse"]
