"""Rates of `format("fifo")` on this machine: `python -m bench.spark_rates`.

Owns the ways in which rows are written and read, those of the data source beside what one would
write by hand, and another checkout measured in the same run (`--beside`). Each checkout has nodes
and a Spark of its own (`local[2]`), in rounds; the table has medians, and ratios of the same round.
Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fifo
from bench.hardware import describe
from bench.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

PARTITIONS = 2
HELD = 65_535
"""Messages that one reservation holds."""

SEND = 500
"""Rows that the writers by hand publish at once."""

PATIENCE_S = 300.0

WORKER = Path(__file__).resolve()
"""Run by the Python of each checkout, in its folder: this file knows the older data source too."""


class Ways:
    """Each way to write or read `rows` messages of 200 bytes, timed."""

    def __init__(self, spark: SparkSession, url: str, rows: int, size: int) -> None:
        self._spark = spark
        self._url = url
        self._rows = rows
        self._size = size
        self._queues = 0

    def measure(self) -> dict[str, float]:
        """Rows per second, by name; the queue of one way is read by the next."""
        self._written("warm-up", self._write, 4 * SEND)
        found = {"write, foreachPartition by hand": self._timed(self._by_partition)}
        if find_spec("pandas"):  # which PySpark asks for, though Arrow would do
            found["write, mapInArrow by hand"] = self._timed(self._by_arrow)
        queue = self._queue()
        found["write"] = self._rows / _seconds(lambda: self._write(queue, self._rows))
        found |= self._by_ids()
        found |= self._read(queue)
        found |= self._manual()
        found["stream"], found["stream, behind its start"] = self._stream()
        if _rows_max() > HELD:
            found["stream, all rows in one batch"] = self._stream(maxRowsPerTrigger=self._rows)[0]
        return found

    def _queue(self) -> str:
        self._queues += 1
        name = f"spark-{self._queues}"
        with fifo.blocking.connect(self._url) as client:
            client.declare(fifo.QueueSpec(name))
        return name

    def _options(self, queue: str, **more: object) -> dict[str, str]:
        given = {"url": self._url, "queue": queue, **more}
        return {name: str(value) for name, value in given.items()}

    def _by_ids(self) -> dict[str, float]:
        """Rows with ids of their own, where the checkout has such."""
        if not _knows("idColumn"):
            return {}
        queue = self._queue()
        with fifo.blocking.connect(self._url) as client:
            client.update(queue, dedup_window=600)
        options = self._options(queue, idColumn="id")
        rows = self._spark.range(0, self._rows, 1, PARTITIONS).selectExpr(self._body(), "id")
        writer = rows.write.format("fifo").mode("append").options(**options)
        return {"write, by idColumn": self._rows / _seconds(writer.save)}

    def _body(self) -> str:
        return f"rpad(cast(id as string), {self._size}, 'x') as body"

    def _made(self, rows: int) -> DataFrame:
        """Rows of one column, made by the JVM."""
        return self._spark.range(0, rows, 1, PARTITIONS).selectExpr(self._body())

    def _timed(self, write: Callable[[str], None]) -> float:
        queue = self._queue()
        return self._rows / _seconds(lambda: write(queue))

    def _written(self, name: str, write: Callable[[str, int], None], rows: int) -> str:
        queue = self._queue()
        write(queue, rows)
        return queue

    def _write(self, queue: str, rows: int) -> None:
        self._made(rows).write.format("fifo").mode("append").options(**self._options(queue)).save()

    def _by_partition(self, queue: str) -> None:
        url = self._url

        def send(rows: Iterable[Row]) -> None:
            with fifo.blocking.connect(url) as client:
                some: list[bytes] = []
                for row in rows:
                    some.append(row[0].encode())
                    if len(some) == SEND:
                        client.publish_many(queue, some)
                        some = []
                client.publish_many(queue, some)

        self._made(self._rows).rdd.foreachPartition(send)

    def _by_arrow(self, queue: str) -> None:
        url = self._url

        def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with fifo.blocking.connect(url) as client:
                for batch in batches:
                    bodies = batch.column(0).cast("binary").to_pylist()
                    client.publish_many(queue, bodies)
                    yield batch.slice(0, 0)

        rows = self._made(self._rows).mapInArrow(send, "body string")
        rows.write.format("noop").mode("overwrite").save()

    def _read(self, queue: str) -> dict[str, float]:
        """All rows of a queue: what the checkout's way to read all is called, differs."""
        given = {"partitions": PARTITIONS}
        # 6c30e38 acks what it reads by default, and cannot read all without.
        seconds = _seconds(lambda: self._drain(queue, **given))
        return {"read": self._rows / seconds}

    def _drain(self, queue: str, **given: object) -> None:
        read = self._spark.read.format("fifo").options(**self._options(queue, **given)).load()
        read.write.format("noop").mode("overwrite").save()

    def _manual(self) -> dict[str, float]:
        queue = self._written("manual", self._write, HELD)
        given = {"ackMode": "manual", "reservation": "bench", "partitions": PARTITIONS}
        first = HELD / _seconds(lambda: self._drain(queue, **given))
        again = HELD / _seconds(lambda: self._drain(queue, **given))
        from fifo.spark import ack

        ack(self._url, queue, "bench")
        return {"manual, first": first, "manual, again": again}

    def _stream(self, **more: object) -> tuple[float, float]:
        """A backlog, with Trigger.AvailableNow and the default size of a batch; from the start of
        the query to its end, and by Spark's own time of the batches alone."""
        queue = self._written("stream", self._write, self._rows)
        options = self._options(queue, reservation="bench", partitions=PARTITIONS, **more)
        with tempfile.TemporaryDirectory(prefix="fifo-spark-rates-") as folder:
            source = self._spark.readStream.format("fifo").options(**options).load()
            sink = source.writeStream.format("noop").option("checkpointLocation", folder)
            began = time.monotonic()
            query = sink.trigger(availableNow=True).start()
            query.awaitTermination()
            whole_s = time.monotonic() - began
            batches_ms = sum(one.durationMs["triggerExecution"] for one in query.recentProgress)
            return self._rows / whole_s, self._rows / batches_ms * 1_000


def _knows(option: str) -> bool:
    """Whether this checkout has such an option."""
    from fifo.spark.options import OPTIONS

    return any(one.name == option for one in OPTIONS)


def _rows_max() -> int:
    """The largest batch of this checkout's streams."""
    from fifo.spark import limits

    return int(getattr(limits, "ROWS_MAX", HELD))


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def work(url: str, rows: int, size: int) -> None:
    """In the Python of a checkout: measure, and print one line of JSON for each line of stdin."""
    from pyspark.sql import SparkSession

    from bench.spark import start_spark
    from fifo.spark import FifoDataSource

    with tempfile.TemporaryDirectory(prefix="fifo-spark-rates-") as folder:
        context = start_spark("fifo rates", f"local[{PARTITIONS}]", Path(folder))
        spark = SparkSession(context)
        spark.dataSource.register(FifoDataSource)
        ways = Ways(spark, url, rows, size)
        for _ in sys.stdin:
            print(json.dumps(ways.measure()), flush=True)
        context.stop()


class Checkout:
    """A checkout with nodes and a Spark of its own, in processes that a `with` ends."""

    def __init__(self, folder: Path, rows: int, size: int) -> None:
        self.folder = folder
        self._python = str(folder / ".venv" / "bin" / "python")
        self._work = tempfile.TemporaryDirectory(prefix="fifo-spark-rates-")
        self._rows, self._size = rows, size

    def __enter__(self) -> Checkout:
        started = self._node("start", "--detach", "--json", "--base-port", str(_free_base()))
        self._url = str(json.loads(started)["url"])
        self._worker = subprocess.Popen(
            [
                # -P: beside this file lies a statistics.py, which is not Python's.
                *(self._python, "-P", str(WORKER), "--work", self._url),
                *("--rows", str(self._rows), "--size", str(self._size)),
            ],
            cwd=self.folder,
            env=_environment(self.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._worker.stdin is not None
        self._worker.stdin.close()
        try:
            self._worker.wait(30)
        except subprocess.TimeoutExpired:
            self._worker.kill()
        self._node("stop")
        self._work.cleanup()

    def measure(self) -> dict[str, float]:
        """Measure once."""
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        print("measure", file=self._worker.stdin, flush=True)
        for line in self._worker.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise SystemExit(f"{self.folder}: its worker has died; its error is above")

    def _node(self, verb: str, *arguments: str) -> str:
        command = [self._python, "-m", "node", "cluster", verb, "--dir", f"{self._work.name}/nodes"]
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.folder,
            env=_environment(self.folder),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        )
        return done.stdout


def _free_base() -> int:
    from bench.cluster import NODE_PORTS
    from bench.loopback import free_base

    return free_base(NODE_PORTS)


def _environment(folder: Path) -> dict[str, str]:
    from bench.processes import environment

    return environment({"PYTHONPATH": str(folder)})


def show(rounds: list[list[dict[str, float]]], folders: list[Path]) -> str:
    """A Markdown table: a way per line, a checkout per column, and the ratio to the last."""
    heads = [folder.name for folder in folders] + (["ratio"] if len(folders) > 1 else [])
    lines = [f"| rows per second | {' | '.join(heads)} |", "|--" * (len(heads) + 1) + "|"]
    for way in rounds[0][0]:
        cells = [
            _cell([one[at][way] for one in rounds]) if way in rounds[0][at] else "not measured"
            for at in range(len(folders))
        ]
        if len(folders) > 1 and way not in rounds[0][-1]:
            cells.append("")
        elif len(folders) > 1:
            ratios = [one[0][way] / one[-1][way] for one in rounds]
            cells.append(f"{statistics.median(ratios):.2f}")
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    median = statistics.median(values)
    return f"{median:,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main() -> None:
    """The options, and the rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_rates", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout, with a .venv")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.rows, options.size)
        return
    if find_java() is None:
        parser.error("Spark needs a Java 17 or newer")
    folders = [WORKER.parents[1], *([options.beside.resolve()] if options.beside else [])]
    rounds: list[list[dict[str, Any]]] = []
    for number in range(options.rounds):
        found: dict[Path, dict[str, float]] = {}
        # One at a time, the first one last in every other round.
        for folder in folders if number % 2 == 0 else reversed(folders):
            print(f"round {number + 1} of {options.rounds}: {folder}", file=sys.stderr)
            with Checkout(folder, options.rows, options.size) as checkout:
                checkout.measure()  # the JVM compiles, and the workers start
                found[folder] = checkout.measure()
        rounds.append([found[folder] for folder in folders])
    print(show(rounds, folders))
    print(describe())


if __name__ == "__main__":
    main()
