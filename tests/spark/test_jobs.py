"""Spark itself on real nodes: jobs and queries, from the first row to the last ack."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.spark import options
from fifo.spark.writing import Sending
from tests.spark.conftest import Cluster
from tests.spark.reads import send
from tests.spark.tasks import WAIT_S, pausing, pausing_rows, places, wait_for
from tests.spark.test_reading_cluster import depth

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]


class Source:
    """`format("fifo")` on one queue of the cluster."""

    def __init__(self, spark: SparkSession, url: str, queue: str) -> None:
        self.spark, self.url, self.queue = spark, url, queue

    def read(self, **options: Any) -> DataFrame:
        reader: DataFrameReader = self.spark.read.format("fifo")
        return reader.options(url=self.url, queue=self.queue, **options).load()

    def stream(self, **options: Any) -> DataFrame:
        reader: DataStreamReader = self.spark.readStream.format("fifo")
        return reader.options(url=self.url, queue=self.queue, **options).load()

    def write(self, rows: DataFrame, **options: Any) -> None:
        writer: DataFrameWriter = rows.write.format("fifo").mode("append")
        writer.options(url=self.url, queue=self.queue, **options).save()


@pytest.fixture
def source(spark: SparkSession, cluster: Cluster, queue: str) -> Source:
    return Source(spark, cluster.url, queue)


def numbered(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("cast(id as string) as body")


def in_the_middle(tmp_path: Path, job: Callable[[], Any], act: Callable[[], object]) -> Any:
    """Run a job of which tasks wait behind row 1500; act while they do, and let them go on.

    The job runs in this thread: Spark finds the sink of a stream by the thread's own session.
    """
    before, after = places(tmp_path)
    over = threading.Event()

    def meanwhile() -> bool:
        try:
            wait_for(lambda: before.exists() or over.is_set())
            if before.exists():
                act()
            return before.exists()
        finally:
            after.touch()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(meanwhile)
        try:
            result = job()
        finally:
            over.set()
        assert acting.result(WAIT_S), "the job was over before its middle"
    return result


def ended(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(WAIT_S)
    return query


def last_line(error: BaseException) -> str:
    """The error of our side, cut out of all that Spark prints around it."""
    found = re.findall(r"fifo\.\S+Error: .*|fifo\.\S+InvalidArgument: .*", str(error))
    assert found, str(error)
    return str(found[-1])


def test_written_rows_are_read_with_every_column(source: Source, spark: SparkSession) -> None:
    rows = spark.sql(
        "select 'one' as body, 'k' as key, map('h', 'v') as headers, 7 as priority, 0.0 as delay"
    )
    source.write(rows)
    # Spark itself refuses a save() without a mode, before it asks the source anything.
    with pytest.raises(Exception, match=r"UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*Append"):
        rows.write.format("fifo").options(url=source.url, queue=source.queue).save()
    [row] = source.read().collect()
    assert (row.body, row.key, row.headers, row.priority) == (b"one", "k", {"h": "v"}, 7)
    assert (row.attempt, row.queue) == (1, source.queue)
    with pytest.raises(Exception, match="fifo") as refused:
        source.read(maxMessage="3").collect()
    assert last_line(refused.value).endswith("did you mean maxMessages?")


def test_a_write_outlives_the_leader_and_stores_each_row_once(
    source: Source, cluster: Cluster, client: BlockingClient, tmp_path: Path, spark: SparkSession
) -> None:
    count = 40_000

    def job() -> None:
        rows = numbered(spark, count).rdd.mapPartitions(pausing_rows(tmp_path))
        source.write(spark.createDataFrame(rows, "body string"))

    in_the_middle(tmp_path, job, cluster.kill_leader)
    bodies: Counter[bytes] = Counter()
    while found := client.get(source.queue, 1000):
        bodies.update(message.body for message in found)
        client.ack_many(found)
    assert len(bodies) == count
    assert set(bodies.values()) == {1}


def test_a_read_outlives_the_leader_and_gives_each_row_once(
    source: Source, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    count = 10_000
    client.publish_many(source.queue, [b"%d" % n for n in range(count)])

    def job() -> int:
        given = {"ackMode": "manual", "reservation": "r", "partitions": 2}
        rows = source.read(**given).select("body").rdd.map(lambda row: bytes(row.body))
        return rows.mapPartitions(pausing_rows(tmp_path)).distinct().count()

    assert in_the_middle(tmp_path, job, cluster.kill_leader) == count
    assert fifo.spark.ack(source.url, source.queue, "r") == (count, 0)


def test_a_task_that_is_tried_again_stores_nothing_twice(
    source: Source, client: BlockingClient, tmp_path: Path, spark: SparkSession
) -> None:
    mark = str(tmp_path / "failed")

    def fails_once(rows: Iterable[Any]) -> Iterator[Any]:
        yield from rows
        if not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("after the last row")

    rows = numbered(spark, 3000, 1).rdd.mapPartitions(fails_once)
    source.write(spark.createDataFrame(rows, "body string"))
    assert Path(mark).exists()
    assert client.queue(source.queue).ready == 3000


def test_two_attempts_of_a_partition_at_once_store_nothing_twice(
    source: Source, client: BlockingClient, tmp_path: Path, spark: SparkSession
) -> None:
    """Imitates speculation, in two workers of Spark that wait for each other half-way."""
    url, queue, count = source.url, source.queue, 4000

    def attempt(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        [number] = numbers

        def rows() -> Iterator[pa.RecordBatch]:
            for at in range(0, count, 100):
                if at == count // 2:
                    (tmp_path / f"half-way-{number}").touch()
                    wait_for(lambda: (tmp_path / f"half-way-{1 - number}").exists())
                texts = [str(n) for n in range(at, at + 100)]
                yield pa.table({"body": texts}).to_batches()[0]

        wanted = options.parse({"url": url, "queue": queue}, options.BATCH_WRITE)
        done = Sending(wanted, "spark/the-job/0", 0).run(rows())
        yield done.rows, done.duplicates

    done = spark.sparkContext.parallelize(range(2), 2).mapPartitions(attempt).collect()
    assert [rows for rows, _ in done] == [count, count]
    assert sum(duplicates for _, duplicates in done) == count
    bodies = [message.body for message in client.peek(queue, 1000)]
    assert bodies == [b"%d" % n for n in range(1000)]
    assert client.queue(queue).ready == count


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("repeat('x', 1048577)", "body: 1048577 bytes; .* at most 1048576"),
        ("null", "row 1001: body is null; filter such rows out"),
    ],
)
def test_a_row_that_cannot_be_stored_fails_the_job_and_earlier_rows_stay(
    source: Source, client: BlockingClient, spark: SparkSession, bad: str, words: str
) -> None:
    rows = spark.range(0, 1001, 1, 1).selectExpr(f"if(id = 1000, {bad}, 'fine') as body")
    with pytest.raises(Exception, match="fifo") as refused:
        source.write(rows, job="with-a-bad-row")
    said = last_line(refused.value)
    assert re.search(f"partition 0, rows 1001 to 1001: .*{words}", said), said
    assert client.queue(source.queue).ready == 1000


def test_a_named_job_that_is_run_again_stores_nothing_twice(
    source: Source, client: BlockingClient, spark: SparkSession
) -> None:
    for _ in range(2):
        source.write(numbered(spark, 100), job="nightly-2026-11-22")
    assert client.queue(source.queue).ready == 100
    source.write(numbered(spark, 100))
    assert client.queue(source.queue).ready == 200


@pytest.mark.parametrize("after", [4, 1], ids=["split", "merged"])
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "cut-short"])
def test_a_write_that_is_repeated_with_other_partitions_fails_and_says_so(
    source: Source, spark: SparkSession, after: int, is_whole: bool
) -> None:
    """The first write, of two partitions, succeeds or fails in the last chunk of the first one."""
    rows = numbered(spark, 3000)
    if is_whole:
        source.write(rows, job="nightly")
    else:
        bad = rows.selectExpr("if(body = '1499', null, body) as body")
        with pytest.raises(Exception, match="body is null"):
            source.write(bad, job="nightly")
        # Both begin at once, but a task ends with its job: let the second have stored its rows.
        send(source.url, source.queue, "spark/nightly/1", 0, map(str, range(1500, 3000)))
    with pytest.raises(Exception, match="fifo") as refused:
        source.write(numbered(spark, 3000, after), job="nightly")
    assert "an earlier attempt stored other rows" in last_line(refused.value)


def test_rows_with_ids_are_stored_once_whatever_partitions_they_come_in(
    source: Source, client: BlockingClient, spark: SparkSession, tmp_path: Path
) -> None:
    mark = str(tmp_path / "failed")

    @udf("string", useArrow=False)
    def flaky(body: str) -> str:
        if body == "900" and not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("the first attempt fails")
        return body

    rows = numbered(spark, 2000).selectExpr("body", "cast(body as int) as number")
    with pytest.raises(Exception, match="needs a queue that remembers ids") as refused:
        source.write(rows, idColumn="number")
    assert last_line(refused.value).endswith("--dedup-window 10m")
    client.update(source.queue, dedup_window=600)
    source.write(rows.withColumn("body", flaky("body")), idColumn="number")
    assert Path(mark).exists()
    for parts in (4, 1):
        source.write(rows.repartition(parts), idColumn="number")
    assert client.queue(source.queue).ready == 2000


def test_a_read_that_fails_later_loses_nothing_where_acks_are_manual(
    source: Source, client: BlockingClient, spark: SparkSession
) -> None:
    client.publish_many(source.queue, [b"1", b"2", b"x"])
    rows = source.read(ackMode="manual", reservation="nightly").selectExpr(
        "cast(cast(body as string) as int)"
    )
    spark.conf.set("spark.sql.ansi.enabled", "true")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        rows.collect()
    assert depth(client, source.queue) == (0, 3)
    again = source.read(ackMode="manual", reservation="nightly")
    assert again.count() == len(again.collect()) == 3
    assert fifo.spark.ack(source.url, source.queue, "nightly") == (3, 0)
    assert client.queue(source.queue).messages == 0


def test_a_stream_goes_from_queue_to_queue_over_a_killed_leader_once(
    source: Source, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    count, out = 9_000, f"{source.queue}.out"
    client.declare(fifo.QueueSpec(out))
    client.publish_many(source.queue, [b"%d" % n for n in range(count)])
    rows = source.stream(reservation="copy", maxRowsPerTrigger=5000, partitions=2)
    wait = pausing(tmp_path)

    @udf("int", useArrow=False)
    def slow(body: bytes) -> int:
        """Row 1500 of the first batch waits until the leader was killed."""
        if body == b"1500":
            wait()
        return 4

    def job() -> StreamingQuery:
        writing = rows.select("body", slow("body").alias("priority")).writeStream.format("fifo")
        query = writing.options(
            url=source.url, queue=out, checkpointLocation=str(tmp_path / "checkpoint")
        )
        return ended(query.trigger(availableNow=True).start())

    query = in_the_middle(tmp_path, job, cluster.kill_leader)
    assert [step["numInputRows"] for step in query.recentProgress][:2] == [5000, 4000]
    reported = [json.loads(step["sources"][0]["latestOffset"]) for step in query.recentProgress]
    assert all({"ready", "delayed", "held", "lost"} <= set(one) for one in reported), reported
    assert client.queue(source.queue).messages == 0, "the last batch is acked too"
    assert client.queue(out).ready == count
    bodies: set[bytes] = set()
    while found := client.get(out, 1000):
        bodies.update(message.body for message in found)
        client.ack_many(found)
    assert len(bodies) == count


def test_a_stream_that_fails_is_given_the_same_batch_when_it_starts_again(
    source: Source, client: BlockingClient, tmp_path: Path
) -> None:
    client.publish_many(source.queue, [b"%d" % n for n in range(7)])
    seen: list[tuple[int, list[str]]] = []

    def collect(batch: DataFrame, number: int) -> None:
        seen.append((number, [row.id for row in batch.collect()]))
        if len(seen) == 2:
            raise RuntimeError("a bug of the program's own")

    def start(reservation: str = "etl") -> StreamingQuery:
        rows = source.stream(reservation=reservation, maxRowsPerTrigger=3)
        query = rows.writeStream.foreachBatch(collect).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        return query.trigger(availableNow=True).start()

    failing = start()
    with pytest.raises(Exception, match="a bug of the program's own"):
        failing.awaitTermination(WAIT_S)
    assert depth(client, source.queue) == (1, 3), "the first batch is acked, the second kept"
    ended(start())
    assert [number for number, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2]
    assert len({one for _, ids in seen for one in ids}) == 7
    assert client.queue(source.queue).messages == 0
    stranger = start("another")
    with pytest.raises(Exception, match="fifo") as refused:
        stranger.awaitTermination(WAIT_S)
    assert "give this query a checkpointLocation of its own" in last_line(refused.value)


def test_a_running_stream_that_is_stopped_keeps_its_last_batch_or_has_acked_it(
    source: Source, client: BlockingClient, tmp_path: Path
) -> None:
    client.publish_many(source.queue, [b"%d" % n for n in range(5)])
    seen: list[int] = []
    rows = source.stream(reservation="live")
    query = (
        rows.writeStream.foreachBatch(lambda batch, number: seen.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_for(lambda: sum(seen) == 5)
        wait_for(lambda: client.queue(source.queue).messages == 0)
        client.publish(source.queue, b"later")
        wait_for(lambda: sum(seen) == 6)
        wait_for(lambda: client.queue(source.queue).messages == 0)
    finally:
        query.stop()
