"""Nothing is lost by reading: tasks that fail, actions that stop early, blocks that raise.

All by Spark's own scheduler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.spark import SourceError
from tests.spark.conftest import Cluster
from tests.spark.test_reading_cluster import depth, fill

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]

COUNT = 1000


def raised(frame: DataFrame) -> None:
    """An action of which a later expression fails."""
    with pytest.raises(Exception, match="a bad row"):
        frame.selectExpr("raise_error('a bad row')").collect()


LOOKS: dict[str, Callable[[DataFrame], Any]] = {
    "first": lambda frame: frame.first(),
    "limit": lambda frame: frame.limit(5).collect(),
    "show": lambda frame: frame.select("id").show(3),
    "isEmpty": lambda frame: frame.isEmpty(),
    "filter": lambda frame: frame.filter("attempt > 99").count(),
    "a later failure": raised,
}


def test_no_action_on_a_read_without_a_mode_takes_anything(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, COUNT)
    reader = spark.read.format("fifo").options(url=cluster.url, queue=queue)
    for look in LOOKS.values():
        look(reader.load())
    assert reader.load().count() == COUNT
    assert depth(client, queue) == (COUNT, 0)


def test_no_action_on_what_is_reserved_acks_anything(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, COUNT)
    with fifo.spark.taken(spark, cluster.url, queue, "r", partitions=2) as rows:
        for name, look in LOOKS.items():
            look(rows)
            assert depth(client, queue) == (0, COUNT), name
        assert rows.count() == COUNT
    assert depth(client, queue) == (0, 0)
    assert client.queue(queue).counters["acked"] == COUNT


def test_a_task_that_fails_once_costs_no_row(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    found = fill(client, queue, COUNT)
    mark = str(tmp_path / "failed")

    @udf("string", useArrow=False)
    def flaky(body: bytes) -> str:
        if not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("the first attempt fails")
        return body.decode()

    with fifo.spark.taken(spark, cluster.url, queue, "r") as rows:
        seen = [row.text for row in rows.select(flaky("body").alias("text")).collect()]
    assert Path(mark).exists()
    assert seen == [body.decode() for body in found]
    assert client.queue(queue).counters["acked"] == COUNT


def test_a_block_that_raises_gives_all_back_uncounted(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)

    def work() -> None:
        with fifo.spark.taken(spark, cluster.url, queue, "r") as rows:
            assert rows.count() == 3
            raise RuntimeError("the sink is full")

    with pytest.raises(RuntimeError, match="the sink is full"):
        work()
    assert depth(client, queue) == (3, 0)
    assert [message.failures for message in client.peek(queue, 3)] == [0, 0, 0]


def test_a_block_after_a_crash_has_the_same_messages(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    found = fill(client, queue, 5)
    # What a driver leaves that was killed in its block: a reservation that holds messages.
    left = spark.read.format("fifo").options(
        url=cluster.url, queue=queue, ackMode="manual", reservation="r", maxMessages=3
    )
    assert left.load().count() == 3
    with fifo.spark.taken(spark, cluster.url, queue, "r") as rows:
        assert [bytes(row.body) for row in rows.collect()] == found[:3]
    assert depth(client, queue) == (2, 0)


def test_a_block_renews_between_its_actions(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)
    with fifo.spark.taken(spark, cluster.url, queue, "r", lock="1s") as rows:
        threading.Event().wait(1.5)
        assert rows.count() == 3
    assert client.queue(queue).counters["acked"] == 3


def test_a_block_on_an_empty_queue_has_no_rows_and_leaves_what_comes_meanwhile(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    with fifo.spark.taken(spark, cluster.url, queue, "r") as rows:
        fill(client, queue, 3)
        assert rows.select("body", "id").collect() == []
    assert depth(client, queue) == (3, 0)


def test_a_block_whose_locks_ran_out_says_so(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)

    def work() -> None:
        with fifo.spark.taken(spark, cluster.url, queue, "r", lock="1s", maxLock="1s") as rows:
            assert rows.count() == 3
            assert client.get(queue, 3, wait=30), "others get them once the locks are over"

    with pytest.raises(SourceError, match="3 messages ran out before their ack"):
        work()
