"""The load job from the command line; `bench.load.__main__` calls it.

Owns the options, live progress, what a signal does, sweeps, and the exit code: 0 if everything that
was to be published was confirmed, 130 with the report so far after Ctrl-C, 1 with the report so far
where the job failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

import fifo
from bench.check.settings import write_settings
from bench.interrupts import EXIT_CODE, Interrupts
from bench.load import job, page, sweep
from bench.load.hub import Hub
from bench.load.medians import as_json, print_medians
from bench.load.partition import CONSUMER, PRODUCER, Row, Run
from bench.load.progress import Progress, progress
from bench.load.recorder import NoRecorder, Recorder, number
from bench.load.report import print_report, report_of
from bench.load.takes import Take, takes
from bench.load.workload import Workload, WorkloadWrong, checked, load, shipped
from bench.processes import Household
from bench.spark import JavaMissing, JobFailed, start_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark import SparkContext

    Contexts = Callable[[argparse.Namespace, Path, int], AbstractContextManager[SparkContext]]

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which then decides about master and settings."""

SHOW_S = 1.0

MESSAGES = 100_000
"""Without a workload and without a number."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, `takes` being the runs that they add up to; exits with code 2 where that is
    wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.load",
        description="Publish and consume through a queue from Spark partitions.",
        epilog=f"Workloads that come along: {', '.join(shipped())}. Example:"
        " python -m bench.load --url fifo://127.0.0.1:7101 --queue load --workload poison",
    )
    parser.add_argument("--url", default=os.environ.get("FIFO_URL"), help="else $FIFO_URL")
    parser.add_argument("--user", help="with --password-file; else those of the URL")
    parser.add_argument("--password-file", help="a file whose first line it is")
    parser.add_argument("--token-file", help="in the place of user and password")
    parser.add_argument("--ca", help="a file, on all hosts: who signs the nodes' certificates")
    parser.add_argument("--cert", help="a file, on all hosts: a certificate to log in with")
    parser.add_argument("--key", help="a file, on all hosts: its key, where it is not in --cert")
    parser.add_argument("--queue", required=True, help="is declared if it does not exist")
    parser.add_argument("--workload", help="a TOML file, or the name of one that comes along")
    parser.add_argument("--producers", type=int, help="partitions that publish")
    parser.add_argument("--consumers", type=int, help="partitions that consume")
    parser.add_argument("--messages", type=int, help="of all producers together")
    parser.add_argument("--size", type=int, help="bytes of a body")
    parser.add_argument("--window", type=int, help="unconfirmed, per producer")
    parser.add_argument("--prefetch", type=int, help="per consumer")
    parser.add_argument("--idle", type=float, help="seconds without a message end it")
    parser.add_argument(
        "--history", type=Path, help="a new folder: every event as Parquet (docs/history.md)"
    )
    parser.add_argument(
        "--runs", type=int, default=1, help="run so often, each on a queue of its own: medians"
    )
    parser.add_argument(
        "--sweep", help=f"run once per value: FIELD=V1,V2,... of {', '.join(sweep.FIELDS)}"
    )
    parser.add_argument("--report", type=Path, help="an HTML page; with --sweep, the curves")
    parser.add_argument(
        "--master", help="Spark's master URL (default: a slot per partition on this machine)"
    )
    parser.add_argument(
        "--driver-host", help="with --master: this machine's name for the executors (loopback)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if not options.url:
        parser.error("--url or $FIFO_URL is needed")
    if options.history is not None and options.history.exists():
        parser.error(f"--history {options.history}: exists already")
    if options.runs < 1:
        parser.error("--runs: must be above zero")
    if options.report is not None and not os.access(options.report.absolute().parent, os.W_OK):
        parser.error(f"--report {options.report}: no file can be written there")
    try:
        options.url = _with_login(options)
        options.workload = checked(_workload(options))
        options.sweep = sweep.parse(options.sweep) if options.sweep else None
        options.takes = takes(options)
    except (WorkloadWrong, fifo.InvalidArgument) as error:
        parser.error(str(error))
    return options


def _with_login(options: argparse.Namespace) -> str:
    """The url with user, secret and files, which need not be on the command line."""
    given = {
        "user": options.user,
        "passwordFile": options.password_file,
        "tokenFile": options.token_file,
        "ca": options.ca,
        "cert": options.cert,
        "key": options.key,
    }
    if not any(given.values()):
        return str(options.url)
    from fifo.spark.options import with_login

    return with_login(options.url, given)


def _workload(options: argparse.Namespace) -> Workload:
    plain = Workload(messages=MESSAGES)
    found = load(options.workload) if options.workload else plain
    names = ("producers", "consumers", "messages", "window", "idle")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.size is not None:
        given["body"] = replace(found.body, bytes=options.size)
    if options.prefetch is not None:
        given["consuming"] = replace(found.consuming, prefetch=options.prefetch)
    return replace(found, **given)


def main() -> int:
    """Run the job and print its report; 1 and one line on stderr where it failed."""
    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="fifo-load-"))
    household = Household(folder)
    interrupts = Interrupts()
    try:
        with interrupts.caught():
            return Command(options, folder, interrupts, own_context).run()
    except (JavaMissing, JobFailed, fifo.FifoError, OSError) as error:
        print(f"the load job failed: {error}", file=sys.stderr)
        return EXIT_CODE if interrupts.count else 1
    finally:
        household.end(hurry=lambda: True)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def own_context(options: argparse.Namespace, folder: Path, slots: int) -> Iterator[SparkContext]:
    """A context in a JVM that is started for this command, or spark-submit's; ended after it.
    PySpark's own handler of Ctrl-C, which cancels all jobs, is taken off.
    """
    heard = signal.getsignal(signal.SIGINT)
    try:
        context = _start(options, folder, slots)
    finally:
        signal.signal(signal.SIGINT, heard)
    try:
        yield context
    finally:
        context.stop()


def _start(options: argparse.Namespace, folder: Path, slots: int) -> SparkContext:
    if SUBMITTED in os.environ:
        from pyspark import SparkContext

        return SparkContext.getOrCreate()
    host = options.driver_host
    reached = {"spark.driver.host": host, "spark.driver.bindAddress": host} if host else {}
    return start_spark("fifo load", options.master or f"local[{slots}]", folder / "spark", reached)


class Command:
    """A command: its runs, what they print, and the exit code."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        interrupts: Interrupts,
        contexts: Contexts,
    ) -> None:
        """`contexts` opens Spark's context, with a number of slots."""
        self._options = options
        self._folder = folder
        self._interrupts = interrupts
        self._contexts = contexts
        self._console = Console(highlight=False)

    def run(self) -> int:
        """Prepare, run, report."""
        takes = self._options.takes
        self._prepare(takes[0])  # A cluster that is not there is said before a JVM starts.
        largest = max(one.workload.producers + one.workload.consumers for one in takes)
        reports: sweep.Reports = {}
        with self._contexts(self._options, self._folder, largest) as context:
            for place, take in enumerate(takes, 1):
                if len(takes) > 1:
                    print(f"run {place} of {len(takes)}: {take.name}", file=sys.stderr)
                if take is not takes[0]:
                    self._prepare(take)
                report = self._one(context, take)
                reports.setdefault(take.value, []).append(report)
                if self._interrupts.count or "failed" in report:
                    break
        return self._show(reports)

    def _prepare(self, take: Take) -> None:
        run = Run(self._options.url, take.name, take.workload)
        with self._recorder(take, "declare") as record:
            asyncio.run(job.prepare(run, record))

    def _events(self, take: Take) -> Path:
        return self._folder / take.name / "events"

    def _recorder(self, take: Take, name: str) -> Recorder:
        history = self._options.history is not None
        return Recorder(self._events(take), name) if history else NoRecorder()

    def _one(self, context: SparkContext, take: Take) -> dict[str, Any]:
        """A run: the job in a thread, progress and signals here."""
        history = self._options.history is not None
        seen: list[Progress] = []
        with Hub(*job.driver_of(context), self._events(take), take.workload.producers) as hub:
            run = Run(self._options.url, take.name, take.workload, hub.address, history)
            rows, failed = self._watched(context, run, hub, seen)
            told = hub.rows()
        if failed is not None:
            if not isinstance(failed, JobFailed) or not told:
                raise failed
            rows = [row for row, _ in told if row.role in (PRODUCER, CONSUMER)]
        report = report_of(run.workload, rows)
        report["progress"] = [one._asdict() for one in seen]
        if failed is not None:
            # Parts of its history are missing: a check would find losses in it.
            return {**report, "failed": str(failed)}
        if not self._interrupts.count:
            with self._recorder(take, "left") as record:
                report["left"] = asyncio.run(job.left(run, record))
        if history:
            target = self._options.history
            target = target / run.queue if len(self._options.takes) > 1 else target
            report["events"] = number(self._events(take), target)
            write_settings(target, report["workload"])
            report["history"] = str(target)
        return report

    def _watched(
        self, context: SparkContext, run: Run, hub: Hub, seen: list[Progress]
    ) -> tuple[list[Row], BaseException | None]:
        """The rows of the job, or why there are none."""
        rows: list[Row] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                rows.extend(job.run_job(context, run))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(SHOW_S)
            self._look(hub, seen)
            if self._interrupts.hurry():
                return rows, JobFailed("interrupted twice")
        return rows, failed[0] if failed else None

    def _look(self, hub: Hub, seen: list[Progress]) -> None:
        if self._interrupts.count and not hub.stops:
            print("interrupted: the job ends", file=sys.stderr, flush=True)
            hub.stop()
        now = progress(hub.rows())
        if now.confirmed + now.delivered:
            seen.append(now)
            if not self._options.json:
                end = "\r" if sys.stderr.isatty() else "\n"
                print(now.line(), file=sys.stderr, end=end, flush=True)

    def _show(self, reports: sweep.Reports) -> int:
        options = self._options
        if options.report is not None and not options.sweep:
            options.report.write_text(page.render(reports[0][0]), encoding="utf-8")
        if options.sweep:
            sweep.show(options.sweep.field, reports, options, self._console)
        elif options.runs > 1:
            self._show_medians(reports[0])
        else:
            self._show_one(reports[0][0])
        if self._interrupts.count:
            return EXIT_CODE
        return 0 if all(map(complete, itertools.chain(*reports.values()))) else 1

    def _show_medians(self, reports: list[dict[str, Any]]) -> None:
        if self._options.json:
            print(as_json(reports))
            return
        print_medians(reports, self._console)
        self._tell_histories(reports)

    def _show_one(self, report: dict[str, Any]) -> None:
        if self._options.json:
            print(json.dumps(report, indent=2))
            return
        print_report(report, self._console)
        if "failed" in report:
            print(f"the load job failed: {report['failed']}", file=sys.stderr)
        self._tell_histories([report])

    def _tell_histories(self, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            if "history" in report:
                self._console.print(
                    f"{report['events']:,} events: python -m bench.check {report['history']}"
                )


def complete(report: dict[str, Any]) -> bool:
    """Whether everything that was to be published was confirmed."""
    if "failed" in report:
        return False
    workload = report["workload"]
    wanted = workload["messages"] if workload["producers"] else 0
    return bool(not wanted or report["published"] >= wanted)
