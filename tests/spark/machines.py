"""`make spark`: a standalone Spark cluster of two workers that share neither clock nor folder.

Owns the cluster, and the runs on it: load jobs, writes and reads of which Spark starts second
attempts, and the table of the last whole run in docs/spark-machines.md. Both workers are on this
machine; Spark takes them for two hosts, and `hosts` makes the second one far. What has to hold is
asserted. Must be a program of its own: it ends all processes below it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyarrow import parquet

import fifo
from bench.cluster import BenchCluster
from bench.hardware import describe
from bench.interrupts import Interrupts
from bench.java import find_java
from bench.load.command import Command, parse
from bench.load.link import clock_name
from bench.loopback import free_base
from bench.processes import Household
from bench.spark import start_spark
from fifo.client import from_url
from tests.docs.test_pages import LINE_COLUMNS
from tests.jepsen import checkers
from tests.spark import hosts

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Row, SparkSession

HOSTS = ("127.0.0.2", "127.0.0.3")
UP_S = 60.0
LOOK_S = 0.05
STALLED_S = 90.0
"""For which the first attempt of a task waits for the second."""

ROWS = 8_000
TASKS = 4
SLOW = 3
"""The task whose first attempt waits."""

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}


def why_not() -> str | None:
    """Why this cannot be run here, or None."""
    if find_java() is None:
        return "Spark needs a Java 17 or newer"
    return hosts.why_not()


class Machines:
    """The nodes, the master and two workers, and a session on them."""

    def __init__(self, household: Household, folder: Path) -> None:
        self._household = household
        self.folder = folder
        self._nodes = BenchCluster(household, folder / "cluster")
        self.master = ""

    def start(self) -> None:
        """Returns when both workers are registered."""
        asyncio.run(self._nodes.start())
        port = str(free_base((0,)))
        self.master = f"spark://127.0.0.1:{port}"
        log = self._daemon("master", "Master", (), "--host", "127.0.0.1", "--port", port)
        near, far = HOSTS
        self._daemon("near", "Worker", (), self.master, *self._place(near, self.folder))
        self._daemon(
            "far",
            "Worker",
            hosts.far(self.folder),
            self.master,
            *self._place(far, Path("/tmp/worker")),
        )
        _until(lambda: log.read_text(errors="replace").count("Registering worker") == len(HOSTS))

    @property
    def url(self) -> str:
        """Of the nodes."""
        return self._nodes.url

    def session(self) -> SparkSession:
        """With speculation."""
        from pyspark.sql import SparkSession

        context = start_spark("machines", self.master, self.folder / "driver", SETTINGS)
        context.setLogLevel("OFF")
        return SparkSession(context)

    def _place(self, host: str, folder: Path) -> tuple[str, ...]:
        work = str(folder / f"worker-{host}")
        return ("--host", host, "--cores", "2", "--memory", "1g", "--work-dir", work)

    def _daemon(self, name: str, kind: str, before: tuple[str, ...], *arguments: str) -> Path:
        java, home = find_java(), Path(pyspark.__file__).parent
        assert java is not None, "why_not says so"
        command = (
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
        )
        child = self._household.start(
            name,
            *before,
            *command,
            *arguments,
            *("--webui-port", "0"),
            env={
                "JAVA_HOME": str(java.home),
                "SPARK_HOME": str(home),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:-UsePerfData",
                "SPARK_LOCAL_DIRS": "/tmp/spark" if before else str(self.folder / "local"),
                "TMPDIR": "/tmp" if before else str(self.folder),
            },
        )
        return child.log


def _until(condition: Callable[[], object]) -> None:
    pause, deadline = threading.Event(), time.monotonic() + UP_S
    while not condition():
        assert time.monotonic() < deadline, f"not true within {UP_S} s"
        pause.wait(LOOK_S)


@dataclass
class Field:
    """The machines and the session of a run."""

    machines: Machines
    spark: SparkSession

    @property
    def url(self) -> str:
        """Of the nodes."""
        return self.machines.url

    @property
    def context(self) -> SparkContext:
        """Of the session."""
        return self.spark.sparkContext

    def options(self, queue: str, **more: object) -> dict[str, str]:
        """Options of the data source; the queue is declared."""
        with fifo.blocking.connect(self.url) as client:
            client.declare(fifo.QueueSpec(queue))
        given = {"url": self.url, "queue": queue, **more}
        return {name: str(value) for name, value in given.items()}

    def load(self, queue: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """A load job on this context: its exit code, and its report."""
        options = parse(["--url", self.url, "--queue", queue, "--json", *arguments])
        printed = io.StringIO()
        work = self.machines.folder / "load" / queue
        with contextlib.redirect_stdout(printed):
            session = contextlib.nullcontext(self.context)
            code = Command(options, work, Interrupts(), lambda *_: session).run()
        return code, json.loads(printed.getvalue())


def load(field: Field) -> str:
    """Producers and consumers on both hosts, a day apart by one clock and a week by the other; the
    plain checkers find nothing in their history."""
    return f"{_loaded(field, 'load', 2000)}; wall clocks {_wall_clocks_apart(field):,.0f} s apart"


def _wall_clocks_apart(field: Field) -> float:
    """By how much the hosts' wall clocks differ, as their tasks see them; looked at by a barrier
    stage, whose tasks are on both."""

    def look(_: Iterable[int]) -> Iterator[tuple[str, float]]:
        from pyspark import BarrierTaskContext

        BarrierTaskContext.get().barrier()
        yield clock_name(), time.time()

    seen = field.context.parallelize(range(TASKS), TASKS).barrier().mapPartitions(look).collect()
    assert len({name for name, _ in seen}) == len(HOSTS), seen
    apart_s = max(at for _, at in seen) - min(at for _, at in seen)
    assert abs(apart_s - hosts.WALL_BEHIND_S) < UP_S, seen
    return apart_s


def _loaded(field: Field, name: str, messages: int) -> str:
    """A load job with a history, which is judged."""
    history = field.machines.folder / f"history-{name}"
    code, report = field.load(
        name,
        *("--messages", str(messages), "--producers", "2", "--consumers", "2", "--idle", "1"),
        *("--history", str(history)),
    )
    assert code == 0, report
    assert (report["published"], report["acked"]) == (messages, messages), report
    error_ms = report["clock_error_ms"]
    assert 0 < error_ms < 500, f"of clocks a day apart: {error_ms}"
    slowest_ms = report["end_to_end_ms"]["p99"]
    assert slowest_ms < 60_000, "a day is in it"
    events = parquet.read_table(history).sort_by("index").to_pylist()
    assert [event["index"] for event in events] == list(range(report["events"]))
    given = [{**event, "value": _given(event["value"])} for event in events]
    assert checkers.find(given) == []
    return f"{len(events):,} events, none against a rule; clocks known to {error_ms:.3f} ms"


def _given(value: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that were written down."""
    given = {name: found for name, found in value.items() if found is not None}
    for name in ("spec", "queues"):
        if name in given:
            given[name] = json.loads(given[name])
    return {"reason": None, "delay_s": None, **given}


def poison(field: Field) -> str:
    """Consumers that die and come back, whose start is not in the measured time."""
    workload = field.machines.folder / "dying.toml"
    workload.write_text(
        "[run]\nproducers = 1\nconsumers = 2\nidle = 1.0\n[queue]\nlock = 2.0\n"
        "[failures]\ncrash = 0.002\n[[phases]]\nseconds = 4\nrate = 100\n"
    )
    code, report = field.load("dying", "--workload", str(workload))
    assert code == 0, report
    assert report["left"] == {"dying": 0}, report
    median_ms = report["end_to_end_ms"]["p50"]
    assert median_ms < 1_000, f"the start of a process is in it: {median_ms} ms"
    return f"publish to first delivery p50 {median_ms:.1f} ms"


def killed(field: Field) -> str:
    """A load job of which a task dies ends with an error, and the report so far."""
    workload = field.machines.folder / "long.toml"
    workload.write_text(
        "[run]\nproducers = 1\nconsumers = 1\n[[phases]]\nseconds = 600\nrate = 50\n"
    )
    cancelled = threading.Thread(target=_cancel_when_busy, args=(field,), daemon=True)
    cancelled.start()
    code, report = field.load("long", "--workload", str(workload))
    cancelled.join()
    assert code == 1, report
    assert report["failed"], report
    assert report["published"] > 0, report
    return f"{report['published']:,} were published, says its report"


def _cancel_when_busy(field: Field) -> None:
    with fifo.blocking.connect(field.url) as client:

        def busy() -> bool:
            try:
                return int(client.queue("long").counters.get("acked", 0)) > 50
            except fifo.QueueNotFound:
                return False

        _until(busy)
    field.context.cancelAllJobs()


def write(field: Field) -> str:
    """A task of which Spark starts a second attempt on the other host stores no row twice."""
    options = field.options("written")
    field.options("attempts")
    field.options("second")
    rows = field.spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) as body")
    slowed = field.spark.createDataFrame(rows.rdd.mapPartitions(_stalling(field.url)), rows.schema)
    slowed.write.format("fifo").mode("append").options(**options).save()
    _attempts(field)
    with fifo.blocking.connect(field.url) as client:
        stored = [int(one.body) for one in client.scan("written")]
    assert sorted(stored) == list(range(ROWS))
    return f"{ROWS:,} rows once each"


def read(field: Field) -> str:
    """The same of a read that reserves: every row comes once to the action."""
    options = field.options("read", ackMode="manual", reservation="r", partitions=TASKS)
    with fifo.blocking.connect(field.url) as client:
        client.publish_many("read", [str(number).encode() for number in range(ROWS)])
        client.purge("attempts")
        client.purge("second")
    taken = field.spark.read.format("fifo").options(**options).load()
    slowed = taken.select("body").rdd.mapPartitions(_stalling(field.url))
    assert sorted(int(bytes(row[0])) for row in slowed.collect()) == list(range(ROWS))
    _attempts(field)
    from fifo.spark import ack

    assert ack(field.url, "read", "r") == (ROWS, 0)
    return f"{ROWS:,} rows once each, and acked"


def _stalling(url: str) -> Callable[[Iterable[Row]], Iterator[Row]]:
    """Rows as they are; the first attempt of one task waits in the middle of them until the second
    has begun, and each says where it is: by queues, for there is no folder."""

    def work(rows: Iterable[Row]) -> Iterator[Row]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "Spark runs this in a task"
        if task.partitionId() != SLOW:
            yield from rows
            return
        with fifo.blocking.connect(url) as client:
            client.publish("attempts", f"{task.attemptNumber()} {clock_name()}".encode())
            if task.attemptNumber() > 0:
                client.publish("second", b"begun")
            for number, row in enumerate(rows):
                yield row
                if number == ROWS // TASKS // 2 and task.attemptNumber() == 0:
                    client.get("second", wait=STALLED_S)

    return work


def _attempts(field: Field) -> None:
    """There were two attempts, on hosts with different clocks."""
    with fifo.blocking.connect(field.url) as client:
        seen = sorted(bytes(one.body).decode() for one in client.scan("attempts"))
    assert [one.split()[0] for one in seen][:2] == ["0", "1"], seen
    assert len({one.split(maxsplit=1)[1] for one in seen}) == len(HOSTS), seen


def lossy(field: Field) -> str:
    """A load job, a write and a read while 2 % of all packets between clients and nodes are lost
    each way: nothing is missing, nothing comes twice."""
    reason = hosts.why_none_lost()
    assert reason is None, reason
    ports = [int(one.rpartition(":")[2]) for one in from_url(field.url).addresses]
    with hosts.losing(ports) as lost:
        found = _loaded(field, "lossy", 1000)
        options = field.options("through")
        rows = field.spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) as body")
        rows.write.format("fifo").mode("append").options(**options).save()
        there = field.spark.read.format("fifo").options(**options, partitions=str(TASKS)).load()
        bodies = sorted(int(bytes(row[0])) for row in there.select("body").collect())
    assert bodies == list(range(ROWS))
    assert lost.packets > 0
    return f"{lost.packets:,} packets lost; {found}; {ROWS:,} rows written and read once each"


RUNS: dict[str, Callable[[Field], str]] = {
    "load": load,
    "lossy": lossy,
    "write": write,
    "read": read,
    "poison": poison,
    "killed": killed,
}
"""In this order."""


def main() -> int:
    """Run some or all, and print a line for each; 1 where one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.machines", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--write", type=Path, help="the page whose last run is written anew")
    options = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(f"not run: {reason}", file=sys.stderr)
        return 2
    hosts.into_own_network("tests.spark.machines", sys.argv[1:])
    folder = Path(tempfile.mkdtemp(prefix="fifo-machines-"))
    household = Household(folder / "logs")
    try:
        machines = Machines(household, folder)
        machines.start()
        field = Field(machines, machines.session())
        lines = [_line(field, name) for name in options.only]
        field.context.stop()
    finally:
        household.end()
        shutil.rmtree(folder, ignore_errors=True)
    if options.write is not None:
        _write(options.write, lines)
    return 0


def _line(field: Field, name: str) -> str:
    began = time.monotonic()
    run = RUNS[name]
    found = run(field)
    seconds = time.monotonic() - began
    print(f"{name}: {found} ({seconds:.1f} s)", flush=True)
    return line_of(name, run.__doc__ or "", found, seconds)


def line_of(name: str, what: str, found: str, seconds: float) -> str:
    """A run as an item of the page's list, no wider than its lines may be."""
    text = f"- **{name}**, {seconds:.0f} s: {' '.join(what.split())} Seen: {found}."
    return textwrap.fill(
        text, LINE_COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


BEGIN, END = "<!-- last run -->", "<!-- end of the last run -->"


def _write(page: Path, lines: list[str]) -> None:
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    began = f"{_commit()}, {time.strftime('%Y-%m-%d', time.gmtime())}: all of these held."
    runs = "\n".join(
        [BEGIN, "", began, "", *lines, "", textwrap.fill(describe(), LINE_COLUMNS), "", END]
    )
    page.write_text(before + runs + rest.split(END)[1], encoding="utf-8")


def _commit() -> str:
    """The commit of this checkout, for the reader of the page."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return f"Commit {done.stdout.strip()}" if done.returncode == 0 else "No checkout of git"


if __name__ == "__main__":
    sys.exit(main())
