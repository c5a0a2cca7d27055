"""A Spark driver that uses fifo in every way a task can; run by `test_executors.py` as a program.

Owns the jobs: the sink, the batch source, the streaming source and the tasks of the load job. Its
Python workers are set up by the test; prints a JSON object with the outcome of each job.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fifo
import fifo.blocking
import fifo.spark
from bench.load import job
from bench.load.workload import Workload
from bench.spark import start_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

COUNT = 20


def import_node(_: int) -> str:
    """Import the server's package in a task, and report the error."""
    try:
        import node
    except ModuleNotFoundError as error:
        return str(error)
    return f"imported from {node.__path__}"


def transferred(spark: SparkSession, url: str) -> tuple[int, int]:
    """Write two queues through the sink; read one as a batch and one as a stream."""
    spark.dataSource.register(fifo.spark.FifoDataSource)
    rows = spark.range(0, COUNT, 1, 2).selectExpr("cast(id as string) as body")
    with fifo.blocking.connect(url) as client:
        for queue in ("batch", "stream"):
            client.declare(fifo.QueueSpec(queue))
            rows.write.format("fifo").mode("append").options(url=url, queue=queue).save()
    read = spark.read.format("fifo").options(url=url, queue="batch", ackMode="read").load()
    source = spark.readStream.format("fifo").options(url=url, queue="stream", reservation="r")
    query = source.load().writeStream.format("memory").queryName("streamed")
    query.trigger(availableNow=True).start().awaitTermination()
    return len(read.collect()), spark.table("streamed").count()


def loaded(context: SparkContext, url: str, folder: Path) -> dict[str, int]:
    """Run the load job with one producer and one consumer; messages by role."""
    workload = Workload(producers=1, consumers=1, messages=COUNT, idle=1.0)
    run = job.new_run(url, "load", workload, folder, history=False)
    asyncio.run(job.prepare(run))
    return {row.role: row.messages for row in job.run_job(context, run)}


def main(url: str, folder: Path) -> None:
    """Run every job and print its outcome."""
    from pyspark.sql import SparkSession

    context = start_spark("executors", "local[2]", folder / "spark")
    try:
        outcome: dict[str, Any] = {"node": context.parallelize([0], 1).map(import_node).first()}
        outcome["read"], outcome["streamed"] = transferred(SparkSession(context), url)
        outcome["load"] = loaded(context, url, folder / "load")
    finally:
        context.stop()
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
