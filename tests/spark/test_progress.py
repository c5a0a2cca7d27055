"""Spark's progress, the report of a write, and the alert of docs/spark.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import fifo
from fifo.blocking import BlockingClient
from tests.spark.blocks import run_block
from tests.spark.conftest import Cluster
from tests.spark.tasks import WAIT_S, wait_for
from tests.spark.test_reading_cluster import fill
from tests.spark.test_settling import run

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]


def test_an_alert_sees_the_backlog_and_its_age(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    alerts: list[str] = []
    fill(client, queue, 5)
    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue, reservation="r")
    rows = source.option("maxRowsPerTrigger", 1).load()
    names = {"alert": alerts.append, "ready_max": 2, "age_max_s": 3600.0}
    listener: Any = run_block("Backlog", **names)["Backlog"]()
    spark.streams.addListener(listener)
    try:
        run(rows, tmp_path, lambda batch, _: batch.collect())
        wait_for(lambda: alerts)
    finally:
        spark.streams.removeListener(listener)
    assert any(f"{queue}: 4 messages wait" in one for one in alerts), alerts
    assert not any("is old" in one for one in alerts)


def test_the_progress_has_the_age_of_what_is_first_in_line(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    fill(client, queue, 3)
    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue, reservation="r")
    rows = source.option("maxRowsPerTrigger", 2).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    ends = [json.loads(one.sources[0].latestOffset) for one in query.recentProgress]
    assert ends[0]["ready"] == 1
    assert 0 <= ends[0]["oldest_s"] < WAIT_S
    assert ends[-1]["ready"] == ends[-1]["oldest_s"] == 0


def test_a_write_reports_its_rows_and_duplicates(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    reports = f"{queue}.reports"
    rows = spark.range(0, 20, 1, 2).selectExpr("cast(id as string) as body")
    given = {"url": cluster.url, "queue": queue, "job": "nightly", "reportQueue": reports}

    def write() -> None:
        rows.write.format("fifo").mode("append").options(**given).save()

    with pytest.raises(Exception, match=f"{reports}.*does not exist|no queue.*{reports}"):
        write()
    client.declare(fifo.QueueSpec(reports))
    write()
    write()
    assert [
        {name: one[name] for name in ("queue", "name", "batch", "rows", "duplicates", "partitions")}
        for one in bodies(client, reports)
    ] == [
        {**REPORT, "queue": queue, "name": "nightly", "duplicates": 0},
        {**REPORT, "queue": queue, "name": "nightly", "duplicates": 20},
    ]


REPORT = {"batch": None, "rows": 20, "partitions": 2}


def test_each_batch_of_a_stream_reports_once(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> None:
    reports, target = f"{queue}.reports", f"{queue}.target"
    for name in (reports, target):
        client.declare(fifo.QueueSpec(name))
    fill(client, queue, 5)
    source = spark.readStream.format("fifo").options(url=cluster.url, queue=queue, reservation="r")
    rows: DataFrame = source.option("maxRowsPerTrigger", 3).load().select("body")
    writer = rows.writeStream.format("fifo").options(url=cluster.url, queue=target)
    writer = writer.options(reportQueue=reports, checkpointLocation=str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    found = [(one["batch"], one["rows"], one["duplicates"]) for one in bodies(client, reports)]
    assert found == [(0, 3, 0), (1, 2, 0)]
    assert {one["name"] for one in bodies(client, reports)} == {query.id}
    written = [one.sink.numOutputRows for one in query.recentProgress]
    assert [one for one in written if one > 0] == [3, 2], "Spark counts the rows of a sink"


def bodies(client: BlockingClient, queue: str) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in client.peek(queue, 9)]
