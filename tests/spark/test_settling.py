"""Verdicts on rows, and batches bounded by bytes, all by Spark's own scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.spark import SourceError
from tests.spark.conftest import Cluster
from tests.spark.tasks import WAIT_S, wait_for
from tests.spark.test_reading_cluster import depth, fill

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]

VERDICTS = """case cast(body as string) when '1' then 'terminate' when '2' then 'nack'
when '3' then 'release' when '4' then 'ack' end as verdict"""


@pytest.fixture
def dead(client: BlockingClient, queue: str) -> str:
    """The dead-letter queue of the queue."""
    client.update(queue, dead_letter=f"{queue}.dead")
    return f"{queue}.dead"


def run(rows: DataFrame, tmp_path: Path, work: Callable[[DataFrame, int], Any]) -> None:
    """A query that takes what is there, and ends."""
    writer = rows.writeStream.foreachBatch(work).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(WAIT_S)


def test_each_row_of_a_batch_has_a_verdict_of_its_own_and_the_batch_goes_on(
    spark: SparkSession,
    cluster: Cluster,
    client: BlockingClient,
    queue: str,
    dead: str,
    tmp_path: Path,
) -> None:
    fill(client, queue, 8)
    outcomes: list[fifo.spark.Settled] = []

    def work(rows: DataFrame, batch: int) -> None:
        judged = rows.selectExpr("token", VERDICTS, "60.0 as delay", "'not a number' as reason")
        outcomes.append(fifo.spark.settle(judged, cluster.url, queue, "r"))
        # As where the batch is run again behind its verdicts.
        outcomes.append(fifo.spark.settle(judged, cluster.url, queue, "r"))

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue)
    run(source.option("reservation", "r").option("partitions", 2).load(), tmp_path, work)
    assert outcomes[0] == (1, 1, 1, 1, 0, 0, ())
    assert outcomes[1] == (0, 0, 0, 0, 0, 0, ()), "rows that had a verdict are not read again"
    overview = client.queue(queue)
    assert (overview.locked, overview.ready, overview.delayed) == (0, 0, 2)
    assert overview.counters["acked"] == 5, "the ack, and what had no verdict with its batch"
    [letter] = client.peek(dead)
    assert letter.dead_letter is not None
    assert (letter.body, letter.dead_letter.detail) == (b"1", "not a number")


def test_each_row_may_have_a_reason_of_its_own(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, dead: str
) -> None:
    fill(client, queue, 200)
    with fifo.spark.taken(spark, cluster.url, queue, "r", partitions=2) as rows:
        judged = rows.selectExpr(
            "token", "'terminate' as verdict", "concat('row ', cast(body as string)) as reason"
        )
        assert fifo.spark.settle(judged, cluster.url, queue, "r").terminated == 200
    letters = [one.dead_letter for one in client.peek(dead, 200)]
    found = {one.detail for one in letters if one is not None}
    assert found == {f"row {number}" for number in range(200)}


@pytest.mark.slow
def test_nacks_at_the_limit_are_dead_letters_and_releases_are_not_counted(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, dead: str
) -> None:
    client.update(queue, max_deliveries=1)
    fill(client, queue, 3)
    with fifo.spark.taken(spark, cluster.url, queue, "r") as rows:
        judged = rows.selectExpr(
            "token",
            "case cast(body as string) when '0' then 'nack' when '1' then 'release' end as verdict",
            "make_dt_interval(0, 1) as delay",
        )
        found = fifo.spark.settle(judged, cluster.url, queue, "r")
    assert (found.nacked, found.dead_lettered, found.released) == (0, 1, 1)
    assert [one.body for one in client.peek(dead, 9)] == [b"0"]
    [later] = client.scan(queue)
    assert (later.body, later.failures) == (b"1", 0)
    overview = client.queue(queue)
    assert (overview.delayed, overview.counters["acked"]) == (1, 1)


def test_verdicts_of_a_batch_that_fails_behind_them_are_kept_and_the_rest_comes_again(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    fill(client, queue, 4)
    seen: list[list[bytes]] = []

    def work(rows: DataFrame, batch: int) -> None:
        seen.append([bytes(row.body) for row in rows.collect()])
        if len(seen) == 1:
            judged = rows.where("body = '2'").withColumn("verdict", lit("ack"))
            assert fifo.spark.settle(judged, cluster.url, queue, "r").acked == 1
            raise RuntimeError("behind its verdicts")

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue)
    rows = source.option("reservation", "r").load()
    with pytest.raises(Exception, match="behind its verdicts"):
        run(rows, tmp_path, work)
    run(rows, tmp_path, work)
    assert seen == [[b"0", b"1", b"2", b"3"], [b"0", b"1", b"3"]]
    assert client.queue(queue).messages == 0


def test_a_verdict_whose_lock_is_lost_is_counted_and_named(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)
    reader = spark.read.format("fifo").options(url=cluster.url, queue=queue, ackMode="manual")
    taken = reader.options(reservation="r", lock="1s", maxLock="1s").load()
    rows = spark.createDataFrame(taken.collect(), taken.schema).withColumn("verdict", lit("ack"))
    assert client.get(queue, 3, wait=30), "others get them once the locks are over"
    found = fifo.spark.settle(rows, cluster.url, queue, "r", fail_on_loss=False)
    tokens = sorted(row.token for row in rows.select("token").collect())
    assert (found.acked, found.lost, sorted(found.lost_tokens)) == (0, 3, tokens)
    with pytest.raises(SourceError, match=f"3 rows had lost their lock.* {tokens[0]}"):
        fifo.spark.settle(rows, cluster.url, queue, "r")


def test_rows_without_tokens_or_with_other_verdicts_are_refused(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 1)
    with pytest.raises(fifo.InvalidArgument, match="no column token"):
        fifo.spark.settle(spark.sql("select 'ack' as verdict"), cluster.url, queue, "r")
    rows = spark.sql("select '1.1' as token, 'nack' as verdict, 'soon' as delay")
    with pytest.raises(fifo.InvalidArgument, match="delay must be seconds"):
        fifo.spark.settle(rows, cluster.url, queue, "r")
    for token, verdict, words in (("x", "ack", "is no token"), ("1.1", "drop", "is no verdict")):
        rows = spark.sql(f"select '{token}' as token, '{verdict}' as verdict")
        with pytest.raises(Exception, match=words):
            fifo.spark.settle(rows, cluster.url, queue, "r")
    assert depth(client, queue) == (1, 0)


def test_a_batch_is_bounded_by_bytes_and_nothing_is_missing(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    size = 1 << 19
    client.publish_many(queue, [b"%d" % place * size for place in range(9)])
    batches: list[list[int]] = []

    def work(rows: DataFrame, batch: int) -> None:
        batches.append([row.size for row in rows.selectExpr("length(body) as size").collect()])

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue)
    rows = source.option("reservation", "r").option("maxBytesPerTrigger", "2m").load()
    run(rows, tmp_path, work)
    assert batches == [[size] * 4, [size] * 4, [size]]


MANY = 70_000
"""More than one durable consumer holds."""


@pytest.mark.slow
def test_a_batch_may_be_larger_than_what_one_consumer_holds(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    """Also where it comes again, with a verdict on a row of its second consumer."""
    fill(client, queue, MANY)
    seen: list[list[int]] = []

    def work(rows: DataFrame, batch: int) -> None:
        seen.append([int(bytes(row.body)) for row in rows.select("body").collect()])
        if len(seen) == 1:
            judged = rows.where(f"body = '{MANY - 1}'").withColumn("verdict", lit("ack"))
            assert fifo.spark.settle(judged, cluster.url, queue, "r").acked == 1
            raise RuntimeError("behind its verdict")

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue)
    wide = source.options(reservation="r", maxRowsPerTrigger=2 * MANY, partitions=2).load()
    with pytest.raises(Exception, match="behind its verdict"):
        run(wide, tmp_path, work)
    assert depth(client, queue) == (0, MANY - 1)
    run(wide, tmp_path, work)
    assert [len(one) for one in seen] == [MANY, MANY - 1]
    assert seen[0] == list(range(MANY)), "in the order of the queue"
    assert seen[1] == list(range(MANY - 1))
    assert client.queue(queue).messages == 0


@pytest.mark.slow
def test_a_block_may_have_more_messages_than_one_consumer_holds(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, MANY)
    given = {"maxMessages": MANY, "partitions": 2}

    def block() -> None:
        with fifo.spark.taken(spark, cluster.url, queue, "block", **given) as rows:
            assert rows.count() == MANY
            raise RuntimeError("of the block")

    with pytest.raises(RuntimeError, match="of the block"):
        block()
    wait_for(lambda: depth(client, queue) == (MANY, 0))  # the cluster gives them back in steps
    reader = spark.read.format("fifo").options(url=cluster.url, queue=queue, ackMode="manual")
    read = reader.options(reservation="by hand", **given).load()
    assert read.select("id").distinct().count() == read.count() == MANY
    fifo.spark.renew(cluster.url, queue, "by hand")
    assert fifo.spark.ack(cluster.url, queue, "by hand") == (MANY, 0)
    fifo.spark.release(cluster.url, queue, "by hand")
    wait_for(lambda: not client.consumers(queue))  # all that it had
