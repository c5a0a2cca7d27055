"""Bodies with types through Spark's own scheduler: batches, streams, views, tables and verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.spark import SourceError
from tests.spark.conftest import Cluster
from tests.spark.test_bodies import AVRO, ORDER, avro, descriptors
from tests.spark.test_reading_cluster import depth
from tests.spark.test_settling import run

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]

BODIES = [b'{"id": 1, "total": 1.5}', b'{"id": 2, "tags": ["a"]}', b"no json", b'{"id": "x"}']


def test_json_is_inferred_read_and_written_with_types(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    client.publish_many(queue, BODIES[:3])
    schema = fifo.spark.infer(spark, cluster.url, queue)
    assert schema.simpleString() == "struct<id:bigint,tags:array<string>,total:double>"
    options = {"url": cluster.url, "queue": queue, "format": "json"}
    typed = spark.read.format("fifo").options(bodySchema=schema.json(), **options)
    with pytest.raises(Exception, match=r"the body of message \d+\.\d+\.\d+ does not fit: is no"):
        typed.load().select("body.id").collect()
    rows = typed.option("mode", "permissive").load().orderBy("id")
    found = [(row.id, row.total, row.body_error) for row in rows.select("body.*", "*").collect()]
    assert [one[:2] for one in found] == [(1, 1.5), (2, None), (None, None)]
    assert found[2][2].startswith("is no JSON")
    good = rows.where("body_error is null").withColumn("body", struct("body.id", "body.total"))
    good.select("body").write.format("fifo").mode("append").options(**options).save()
    assert [json.loads(one.body) for one in client.peek(queue, 9)[3:]] == [
        {"id": 1, "total": 1.5},
        {"id": 2},
    ]
    assert depth(client, queue) == (5, 0)


def test_a_queue_without_json_cannot_be_inferred(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    client.publish(queue, b"no json")
    with pytest.raises(SourceError, match="none of the first 10 messages is a JSON object"):
        fifo.spark.infer(spark, cluster.url, queue, messages=10)


@pytest.mark.slow
def test_a_schema_may_be_inferred_of_one_state(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    """And what is no JSON object has no part in it."""
    client.publish_many(queue, [b'{"ready": 1}', b"[1]", b"7"])
    client.publish(queue, b'{"later": 1}', delay=600)
    for state, name in (("ready", "ready"), ("delayed", "later")):
        found = fifo.spark.infer(spark, cluster.url, queue, state=state)
        assert found.fieldNames() == [name]
    assert depth(client, queue) == (3, 0)


def test_a_typed_view_is_read_and_inserted_into(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW {queue} USING fifo OPTIONS (url '{cluster.url}', queue '{queue}',"
        " format 'json', bodySchema 'id bigint, total decimal(9,2)', mode 'permissive')"
    )
    spark.sql(f"INSERT INTO {queue} (key, body) SELECT 'k', named_struct('id', 7, 'total', 1.5)")
    client.publish(queue, b"{}")
    rows = spark.sql(f"SELECT body.total, key FROM {queue} WHERE body.id = 7").collect()
    assert [(str(row.total), row.key) for row in rows] == [("1.50", "k")]
    spark.sql(f"INSERT INTO {queue} SELECT * FROM {queue} WHERE key = 'k'")
    assert depth(client, queue) == (3, 0)


def test_a_typed_table_of_the_catalog_is_read_and_inserted_into(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    typed = "format 'json', bodySchema 'id bigint NOT NULL, name string'"
    spark.sql(
        f"CREATE TABLE typed USING fifo OPTIONS (url '{cluster.url}', queue '{queue}', {typed})"
    )
    try:
        said = f"WITH (url = '{cluster.url}', queue = '{queue}', format = 'json')"
        spark.sql(f"INSERT INTO typed {said} (body) SELECT named_struct('id', 7L, 'name', 'seven')")
        assert spark.sql("SELECT body.* FROM typed").collect() == [(7, "seven")]
    finally:
        spark.sql("DROP TABLE typed")
    assert [one.body for one in client.peek(queue, 9)] == [b'{"id":7,"name":"seven"}']


def test_avro_and_protobuf_go_through_spark_both_ways(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptors())
    url = cluster.url
    avro_options = {"format": "avro", "bodySchema": json.dumps(AVRO)}
    proto = {"format": "protobuf", "bodySchema": "shop.Order", "bodySchemaFile": str(file)}
    client.publish(queue, avro(ORDER))
    read = spark.read.format("fifo").options(url=url, queue=queue)
    rows = read.options(**avro_options).load()
    assert rows.selectExpr("body.state", "body.tags['a'] as a").collect() == [("PAID", "b")]
    other = f"{queue}.proto"
    client.declare(fifo.QueueSpec(other))
    as_proto = rows.selectExpr(
        "named_struct('id', cast(body.id as decimal(20,0)), 'state', body.state, 'at', body.at,"
        " 'tags', map('x', 5L), 'items', array(named_struct('sku', 'a'))) as body"
    )
    write = as_proto.write.format("fifo").mode("append")
    write.options(url=url, queue=other, **proto).save()
    back = spark.read.format("fifo").options(url=url, queue=other, **proto).load()
    [row] = back.selectExpr("body.*").collect()
    assert (int(row.id), row.state, row.tags, row["items"]) == (1, "PAID", {"x": 5}, [("a",)])
    assert row.at.timestamp() == ORDER["at"].timestamp()  # type: ignore[attr-defined]
    rows.select("body").write.format("fifo").mode("append").options(
        url=url, queue=queue, **avro_options
    ).save()
    assert [one.body for one in client.peek(queue, 9)] == [avro(ORDER)] * 2


def test_a_body_that_does_not_fit_gets_its_verdict_and_the_stream_goes_on(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    client.update(queue, dead_letter=f"{queue}.dead")
    client.publish_many(queue, BODIES)
    good: list[int] = []

    def work(rows: DataFrame, batch: int) -> None:
        wrong = rows.where("body_error is not null")
        judged = wrong.selectExpr("token", "'terminate' as verdict", "body_error as reason")
        assert fifo.spark.settle(judged, cluster.url, queue, "r").terminated == 2
        good.extend(row.id for row in rows.where("body_error is null").select("body.id").collect())

    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue, reservation="r")
    typed = source.options(format="json", bodySchema="id bigint", mode="permissive")
    run(typed.load(), tmp_path, work)
    assert good == [1, 2]
    assert client.queue(queue).messages == 0
    letters = [one.dead_letter for one in client.peek(f"{queue}.dead", 9)]
    details = sorted(one.detail or "" for one in letters if one is not None)  # By several tasks.
    assert details[0] == "field id: bigint is expected, not 'x'"
    assert details[1].startswith("is no JSON")


def test_a_strict_stream_fails_on_a_body_that_does_not_fit_and_loses_nothing(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    client.publish_many(queue, BODIES)
    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue, reservation="r")
    typed = source.options(format="json", bodySchema="id bigint").load()
    with pytest.raises(Exception, match="does not fit: is no JSON"):
        run(typed, tmp_path, lambda rows, _: rows.collect())
    assert depth(client, queue) == (0, 4)
    assert client.queue(queue).counters["acked"] == 0
