"""Queues as tables of Spark SQL: created, read, inserted into, all by Spark's own catalog."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import fifo
from fifo.blocking import BlockingClient
from tests.spark.conftest import Cluster
from tests.spark.test_reading_cluster import depth, fill

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def view(spark: SparkSession, cluster: Cluster, queue: str) -> str:
    """A temporary view of the queue, of the same name, to insert into."""
    create(spark, "TEMPORARY VIEW", queue, url=cluster.url, queue=queue)
    return queue


def create(spark: SparkSession, what: str, name: str, **options: str) -> None:
    given = ", ".join(f"{option} '{text}'" for option, text in options.items())
    spark.sql(f"CREATE {what} {name} USING fifo OPTIONS ({given})")


def test_a_view_is_inserted_into_and_read(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, view: str
) -> None:
    fill(client, view, 2)
    spark.sql(f"INSERT INTO {view} (key, body) SELECT 'k', cast('paid' as binary)")
    create(spark, "TEMPORARY VIEW", "front", url=cluster.url, queue=view, ackMode="peek")
    rows = spark.sql("SELECT cast(body as string) AS body, key, priority FROM front").collect()
    assert [tuple(row) for row in rows] == [("0", None, 4), ("1", None, 4), ("paid", "k", 4)]
    assert depth(client, view) == (3, 0)


def test_dead_letters_go_back_by_sql(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, view: str
) -> None:
    dead = f"{view}.dead"
    client.declare(fifo.QueueSpec(dead))
    client.publish(dead, b"again", key="k", headers={"a": "1"}, priority=7)
    client.publish(dead, b"never")
    create(spark, "TEMPORARY VIEW", "failed", url=cluster.url, queue=dead, ackMode="peek")
    spark.sql(f"INSERT INTO {view} SELECT * FROM failed WHERE cast(body as string) = 'again'")
    [message] = client.peek(view, 5)
    found = (message.body, message.key, message.headers, message.priority)
    assert found == (b"again", "k", {"a": "1"}, 7)


def test_a_table_of_the_catalog_is_read_and_not_inserted_into(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, view: str
) -> None:
    fill(client, queue, 2)
    create(spark, "TABLE", "backlog", url=cluster.url, queue=queue, ackMode="peek")
    try:
        assert spark.table("backlog").count() == 2
        for rows in ("TABLE backlog", "(body) SELECT cast('x' as binary)"):
            with pytest.raises(Exception, match="insert into a temporary view"):
                spark.sql(f"INSERT INTO backlog {rows}")
        spark.sql(f"INSERT INTO {view} TABLE backlog")
    finally:
        spark.sql("DROP TABLE backlog")
    assert depth(client, queue) == (4, 0)


def test_a_table_with_a_secret_or_a_list_of_columns_is_refused(
    spark: SparkSession, cluster: Cluster, queue: str
) -> None:
    for more, words in (
        ({"url": "fifo://me:secret@h:1"}, "leave secrets to passwordFile"),
        ({"user": "me", "password": "secret"}, "leave secrets to passwordFile"),
        ({"ackMod": "peek"}, "did you mean ackMode"),
    ):
        with pytest.raises(Exception, match=words) as refused:
            create(spark, "TABLE", "t", **{"url": cluster.url, "queue": queue, **more})
        assert "secret@" not in str(refused.value)
    create(spark, "TABLE", "t (body binary)", url=cluster.url, queue=queue)
    try:
        with pytest.raises(Exception, match="created without a list of columns"):
            spark.table("t").collect()
    finally:
        spark.sql("DROP TABLE t")


def test_nothing_is_overwritten(spark: SparkSession, client: BlockingClient, view: str) -> None:
    fill(client, view, 2)
    with pytest.raises(Exception, match="a queue can only be appended to"):
        spark.sql(f"INSERT OVERWRITE {view} (body) SELECT cast('x' as binary)")
    assert depth(client, view) == (2, 0)
