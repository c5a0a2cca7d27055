"""Queues as tables of Spark SQL: created, read, inserted into, all by Spark's own catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import udf

import fifo
from fifo.blocking import BlockingClient
from tests.spark.blocks import run_block
from tests.spark.conftest import Cluster
from tests.spark.tasks import Silent
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
    create(spark, "TEMPORARY VIEW", "front", url=cluster.url, queue=view)
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
    create(spark, "TEMPORARY VIEW", "failed", url=cluster.url, queue=dead)
    spark.sql(f"INSERT INTO {view} SELECT * FROM failed WHERE cast(body as string) = 'again'")
    [message] = client.peek(view, 5)
    found = (message.body, message.key, message.headers, message.priority)
    assert found == (b"again", "k", {"a": "1"}, 7)


@pytest.fixture
def backlog(spark: SparkSession, cluster: Cluster, queue: str) -> Iterator[str]:
    """The queue as a table of the catalog."""
    create(spark, "TABLE", "backlog", url=cluster.url, queue=queue)
    yield "backlog"
    spark.sql("DROP TABLE backlog")


def test_a_table_of_the_catalog_is_read_and_inserted_into_with_options(
    spark: SparkSession,
    cluster: Cluster,
    client: BlockingClient,
    queue: str,
    view: str,
    backlog: str,
) -> None:
    fill(client, queue, 2)
    assert spark.table(backlog).count() == 2
    target = {"url": cluster.url, "queue": queue}
    said = f"WITH (url = '{cluster.url}', queue = '{queue}')"
    spark.sql(f"INSERT INTO {backlog} {said} (key, body) SELECT 'sql', cast('x' as binary)")
    spark.sql(f"INSERT INTO {backlog} {said} SELECT * FROM {view} WHERE key = 'sql'")
    row = spark.sql("SELECT cast('y' as binary) AS body, 'df' AS key")
    row.writeTo(backlog).options(**target).append()
    row.write.format("fifo").options(**target).mode("append").saveAsTable(backlog)
    spark.sql(f"INSERT INTO {view} SELECT * FROM {backlog} WHERE key = 'df'")
    keys = [one.key for one in client.peek(queue, 20)]
    assert keys == [None, None, "sql", "sql", "df", "df", "df", "df"]


def test_an_insert_into_a_table_that_does_not_say_to_which_queue_is_refused(
    spark: SparkSession, client: BlockingClient, queue: str, backlog: str
) -> None:
    fill(client, queue, 2)
    row = spark.sql(f"SELECT * FROM {backlog}")
    for insert in (
        lambda: spark.sql(f"INSERT INTO {backlog} TABLE {backlog}"),
        lambda: spark.sql(f"INSERT INTO {backlog} (body) SELECT cast('x' as binary)"),
        lambda: row.write.insertInto(backlog),
        lambda: row.writeTo(backlog).append(),
    ):
        with pytest.raises(Exception, match="insert into a temporary view"):
            insert()
    assert depth(client, queue) == (2, 0)


def test_spark_gives_the_sink_of_a_table_no_options_of_the_table(spark: SparkSession) -> None:
    spark.dataSource.register(Silent)
    spark.sql("CREATE TABLE silent USING silent OPTIONS (queue 'q')")
    try:
        for said, options in (("", r"\[\]"), ("WITH (queue = 'q')", r"\['queue'\]")):
            with pytest.raises(Exception, match=f"the options: {options}"):
                spark.sql(f"INSERT INTO silent {said} SELECT cast('x' as binary) AS body")
    finally:
        spark.sql("DROP TABLE silent")


def test_a_redrive_in_sql_takes_what_it_has_sent(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, view: str
) -> None:
    dead = f"{queue}.dead"
    client.declare(fifo.QueueSpec(dead))
    client.publish_many(dead, [b"again", b"never"], keys=["k", None])
    redrive = run_block("redrive", spark=spark, url=cluster.url)["redrive"]
    assert redrive(dead, view, "cast(body as string) = 'again'") == 1
    assert [(one.body, one.key) for one in client.peek(queue, 9)] == [(b"again", "k")]
    assert [one.body for one in client.peek(dead, 9)] == [b"never"]


@pytest.mark.slow
def test_a_redrive_that_was_killed_between_its_statements_sends_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    dead, condition = f"{queue}.dead", "cast(body as string) = 'again'"
    client.update(queue, dedup_window=600)
    client.declare(fifo.QueueSpec(dead))
    client.publish_many(dead, [b"again", b"never"])
    create(spark, "TEMPORARY VIEW", "by_id", url=cluster.url, queue=queue, idColumn="id")
    create(spark, "TEMPORARY VIEW", "letters_of", url=cluster.url, queue=dead)
    spark.sql(f"INSERT INTO by_id SELECT * FROM letters_of WHERE {condition}")
    redrive = run_block("redrive", spark=spark, url=cluster.url)["redrive"]
    assert redrive(dead, "by_id", condition) == 1
    assert [one.body for one in client.peek(queue, 9)] == [b"again"]
    assert [one.body for one in client.peek(dead, 9)] == [b"never"]


def test_a_table_with_a_secret_or_a_list_of_columns_is_refused(
    spark: SparkSession, cluster: Cluster, queue: str
) -> None:
    for more, words in (
        ({"url": "fifo://me:secret@h:1"}, "leave secrets to passwordFile"),
        ({"user": "me", "password": "secret"}, "leave secrets to passwordFile"),
        ({"ackMod": "none"}, "did you mean ackMode"),
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


def test_system_tables_show_locks_delays_consumers_queues_and_dead_letters(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    work, dead = f"{queue}.work", f"{queue}.work.dead"
    client.declare(fifo.QueueSpec(work, dead_letter=dead))
    client.publish(work, b"poison", key="k", headers={"a": "1"})
    client.publish(work, b"held", key="k2")
    client.publish(work, b"later", delay=60)
    poison, held = client.get(work, 2)
    poison.terminate("bad", exception=ValueError("no"))

    def table(name: str, **options: str) -> list[Row]:
        read = spark.read.format("fifo").options(url=cluster.url, table=name, **options)
        return read.load().collect()

    (lock,) = table("locks", queue=work)
    assert (lock.id, lock.key, lock.attempt, lock.token) == (held.id, "k2", 1, held.token)
    assert (lock.client, lock.consumer) == ("fifo-python", held.consumer)
    assert (lock.locked_until - lock.locked_at).total_seconds() == 30
    (delayed,) = table("delayed", queue=work)
    assert (delayed.cause, delayed.failures) == ("published", 0)
    (letter,) = table("dead_letters", queue=dead)
    assert (letter.body, letter.source, letter.reason) == (b"poison", work, "terminated")
    assert (letter.exception_type, letter.exception) == ("ValueError", "ValueError: no")
    assert (letter.headers, letter.id) == ({"a": "1"}, poison.id)
    assert letter.stack is not None
    assert letter.died_at is not None
    (consumer,) = table("consumers", queue=work)
    assert (consumer.consumer, consumer.held) == (held.consumer, 1)
    rows = {row.queue: row for row in table("queues")}
    assert (rows[work].ready, rows[work].locked, rows[work].delayed) == (0, 1, 1)
    assert work in {row.queue for row in table("locks")}, "without a queue it is of all"
    held.ack()


def test_system_tables_are_tables_of_the_catalog(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)
    create(spark, "TABLE", "fifo_queues", url=cluster.url, table="queues")
    try:
        [row] = spark.sql(f"SELECT ready FROM fifo_queues WHERE queue = '{queue}'").collect()
        assert row.ready == 3
    finally:
        spark.sql("DROP TABLE fifo_queues")


def test_a_read_shows_all_even_where_a_task_fails_once_and_takes_nothing(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3_000)

    @udf("boolean", useArrow=False)
    def once(body: bytes) -> bool:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 0:
            raise RuntimeError("the first attempt fails")
        return True

    options = {"url": cluster.url, "queue": queue, "partitions": "2"}
    read = spark.read.format("fifo").options(**options).load()
    assert read.where(once("body")).count() == 3_000
    assert read.limit(5).count() == 5
    assert depth(client, queue) == (3_000, 0)
