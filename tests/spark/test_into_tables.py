"""The recipes of docs/spark.md: from a queue into Parquet and Delta, each row once.

The code is that of the page. Drivers that are killed: `recipe_runs.py`, by `make spark`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.spark import SourceError, Transaction
from tests.spark.blocks import run_block
from tests.spark.conftest import Cluster
from tests.spark.test_reading_cluster import fill
from tests.spark.test_settling import run

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]

ROWS = 30
RESERVATION = "etl"


def failing_once(store: Callable[[DataFrame, int], None], batch: int) -> Any:
    """The store, and behind it, the first time that it has stored this batch, an error."""
    failed: list[int] = []

    def work(rows: DataFrame, number: int) -> None:
        store(rows, number)
        if number == batch and not failed:
            failed.append(number)
            raise RuntimeError("between the write and the commit")

    return work


def drain(
    spark: SparkSession, url: str, queue: str, tmp_path: Path, store: Callable[..., None]
) -> None:
    """Batches of ten; the second one fails behind its store, and comes again."""
    source = spark.readStream.format("fifo").options(url=url, queue=queue, partitions=2)
    rows = source.options(reservation=RESERVATION, maxRowsPerTrigger=10).load()
    work = failing_once(store, 1)
    with pytest.raises(Exception, match="between the write and the commit"):
        run(rows, tmp_path, work)
    run(rows, tmp_path, work)


def test_a_queue_goes_to_parquet_once_though_a_batch_comes_again(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    fill(client, queue, ROWS)
    path = str(tmp_path / "table")
    store = run_block("store_parquet", path=path)["store_parquet"]
    drain(spark, cluster.url, queue, tmp_path, store)
    found = spark.read.parquet(path).selectExpr("cast(body as string) as n", "batch").collect()
    assert sorted(int(row.n) for row in found) == list(range(ROWS))
    assert {row.batch for row in found} == {0, 1, 2}
    assert client.queue(queue).messages == 0


def test_a_queue_goes_to_delta_once_though_a_batch_comes_again(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    fill(client, queue, ROWS)
    path = str(tmp_path / "table")
    names = {"path": path, "url": cluster.url, "queue": queue, "reservation": RESERVATION}
    store = run_block("store_delta", **names)["store_delta"]
    drain(spark, cluster.url, queue, tmp_path, store)
    table = DeltaTable(path)
    found = [int(body) for body in table.to_pyarrow_table()["body"].to_pylist()]
    assert sorted(found) == list(range(ROWS))
    assert table.version() == 2, "one commit for each batch, none for the one that came again"
    assert client.queue(queue).messages == 0


def test_a_transaction_needs_every_lock_and_follows_from_the_tokens(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)
    read = spark.read.format("fifo").options(url=cluster.url, queue=queue, ackMode="manual")
    tokens = [row.token for row in read.options(reservation="r").load().collect()]
    consumer = tokens[0].partition(".")[0]
    found = fifo.spark.transaction(cluster.url, queue, "r", tokens)
    assert found == Transaction(f"fifo/{queue}/r/{consumer}", 3)
    rows = spark.createDataFrame([(tokens[1], "release")], "token string, verdict string")
    fifo.spark.settle(rows, cluster.url, queue, "r")
    with pytest.raises(SourceError, match=f"locks of 1 of 3 rows are lost.*: {tokens[1]}; do not"):
        fifo.spark.transaction(cluster.url, queue, "r", tokens)
    with pytest.raises(SourceError, match="tokens of 0 consumers"):
        fifo.spark.transaction(cluster.url, queue, "r", [])


@pytest.mark.slow
def test_a_batch_has_all_messages_of_a_key_in_order_without_key_order(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    """By the function of the page; also where the batch comes again."""
    count, keys = 300, 10
    bodies = [b"%d" % n for n in range(count)]
    client.publish_many(queue, bodies, keys=[f"k{n % keys}" for n in range(count)])
    in_order = run_block("in_order")["in_order"]
    batches: list[list[tuple[int, str, int]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        named = "spark_partition_id() as task", "key", "cast(cast(body as string) as int) as n"
        rows = in_order(batch).selectExpr(*named).collect()
        batches.append([(row.task, row.key, row.n) for row in rows])

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue, partitions=3)
    rows = source.options(reservation=RESERVATION, maxRowsPerTrigger=count // 2).load()
    with pytest.raises(Exception, match="between the write and the commit"):
        run(rows, tmp_path, failing_once(keep, 1))
    run(rows, tmp_path, keep)
    first, second, again = batches
    assert sorted(n for *_, n in first + again) == list(range(count))
    assert sorted(second) == sorted(again)
    for found in batches:
        assert len(found) == count // 2
        for key in range(keys):
            mine = [(task, n) for task, name, n in found if name == f"k{key}"]
            assert mine == sorted(mine), "in the order in which they were published"
            assert len({task for task, _ in mine}) == 1


@pytest.mark.slow
def test_few_keys_fill_a_batch_of_a_key_ordered_queue_in_order(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    """Through Spark's scheduler, by the function of the page; also where the batch comes again,
    and where a row is given back: it comes before all that follow it in its key."""
    keyed, count, keys = f"{queue}.keyed", 300, 10
    client.declare(fifo.QueueSpec(keyed, ordering="key"))
    bodies = [b"%d" % n for n in range(count)]
    client.publish_many(keyed, bodies, keys=[f"k{n % keys}" for n in range(count)])
    in_order = run_block("in_order")["in_order"]
    batches: list[list[tuple[int, str, int]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        named = "spark_partition_id() as task", "key", "cast(cast(body as string) as int) as n"
        rows = in_order(batch).selectExpr(*named, "token").collect()
        batches.append([(row.task, row.key, row.n) for row in rows])
        back = [(row.token, "release") for row in rows if row.n == LAST_BUT_ONE and number == 1]
        if back and len(batches) == 3:
            frame = batch.sparkSession.createDataFrame(back, "token string, verdict string")
            assert fifo.spark.settle(frame, cluster.url, keyed, RESERVATION).released == 1

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=keyed, partitions=3)
    rows = source.options(reservation=RESERVATION, maxRowsPerTrigger=100, keyRuns=True).load()
    with pytest.raises(Exception, match="between the write and the commit"):
        run(rows, tmp_path, failing_once(keep, 1))
    for _ in range(2):  # the last row became ready behind the beginning of the first
        run(rows, tmp_path, keep)
    first, second, again, *later = batches
    assert [len(found) for found in (first, second, again)] == [100, 100, 100]
    assert sorted(second) == sorted(again)
    for found in (first, second):
        for key in range(keys):
            mine = [(task, n) for task, name, n in found if name == f"k{key}"]
            assert mine == sorted(mine), "in the order in which they were published"
            assert len({task for task, _ in mine}) == 1
    of_its_key = [n for found in later for *_, n in found if n % keys == LAST_BUT_ONE % keys]
    assert of_its_key == [LAST_BUT_ONE, *range(200 + LAST_BUT_ONE % keys, count, keys)]
    everything = [n for found in (first, again, *later) for *_, n in found]
    assert sorted(everything) == sorted([*range(count), LAST_BUT_ONE])
    assert client.queue(keyed).messages == 0


LAST_BUT_ONE = 180
"""A row of the second batch that is given back, with another of its key behind it in that batch."""
