"""A program of a user of Spark Connect, with a server of its own: reads, verdicts, writes.

    python -m tests.spark.connect_program URL QUEUE

Prints what it saw as JSON. A process cannot have both kinds of sessions, so `connect_runs` starts
this one.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

import fifo.spark
from bench.java import find_java

RESERVATION = "r"


def main(url: str, queue: str) -> None:
    """Print a JSON object."""
    java = find_java()
    assert java is not None
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    schema = fifo.spark.infer(spark, url, queue)
    typed = {"format": "json", "bodySchema": schema.json(), "mode": "permissive"}
    with fifo.spark.taken(spark, url, queue, RESERVATION, partitions=2, **typed) as rows:
        judged = rows.selectExpr(
            "token",
            "case when body_error is not null then 'terminate' when body.n = 1 then 'nack' end"
            " as verdict",
            "body_error as reason",
            "interval 60 seconds as delay",
        )
        settled = fifo.spark.settle(judged, url, queue, RESERVATION)
        good = rows.where("body.n > 1").select("body.n").collect()
    print(
        json.dumps(
            {
                "kind": type(spark).__module__,
                "schema": schema.simpleString(),
                "settled": settled._asdict(),
                "good": sorted(row.n for row in good),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
