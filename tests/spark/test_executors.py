"""Spark's executors need the client alone: every task of this folder's tests runs where `import
node` fails, and so do those of the load job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifo
from bench.load import job
from bench.load.hub import Hub
from bench.load.partition import CONSUMER, PRODUCER, Run
from bench.load.recorder import NoRecorder
from bench.load.workload import Workload
from fifo.blocking import BlockingClient
from tests.spark.conftest import Cluster
from tests.spark.tasks import import_node

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(240)]

COUNT = 20


def test_source_sink_and_load_job_run_on_workers_without_the_server(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    """Each twice, in as many workers as there are slots: none of them has `node`."""
    context, url = spark.sparkContext, cluster.url
    errors = context.parallelize(range(2), 2).map(import_node).collect()
    assert all(error.startswith("import of node halted") for error in errors), errors
    rows = spark.range(0, COUNT, 1, 2).selectExpr("cast(id as string) as body")
    for queue in ("batch", "stream"):
        client.declare(fifo.QueueSpec(queue))
        rows.write.format("fifo").mode("append").options(url=url, queue=queue).save()
    read = spark.read.format("fifo").options(url=url, queue="batch").load()
    assert len(read.collect()) == COUNT
    source = spark.readStream.format("fifo").options(url=url, queue="stream", reservation="r")
    query = source.load().writeStream.format("memory").queryName("streamed")
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("streamed").count() == COUNT
    workload = Workload(producers=1, consumers=1, messages=COUNT, idle=1.0)
    with Hub(*job.driver_of(context), tmp_path / "load", 1) as hub:
        run = Run(url, "load", workload, hub.address)
        asyncio.run(job.prepare(run, NoRecorder()))
        done = {row.role: row.messages for row in job.run_job(context, run)}
    assert done == {PRODUCER: COUNT, CONSUMER: COUNT}
