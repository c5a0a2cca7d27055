"""A driver with a JVM of its own, that runs a recipe of docs/spark.md and may be killed.

    python -m tests.spark.recipe_driver RECIPE URL QUEUE FOLDER KILLED_BEHIND

Owns one life: it takes what is there and ends, or kills itself behind its write of a batch, before
Spark has committed it. `recipe_runs` starts it again.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.spark import start_spark
from tests.spark.blocks import run_block
from tests.spark.tasks import WAIT_S

ROWS_PER_BATCH = 10


def main(recipe: str, url: str, queue: str, folder: Path, killed_behind: int) -> None:
    """Live once."""
    context = start_spark("recipe", "local[2,2]", folder / "spark")
    context.setLogLevel("OFF")
    names = {"path": str(folder / "table"), "url": url, "queue": queue, "reservation": "etl"}
    store = run_block(recipe, **names)[recipe]

    def work(batch: DataFrame, number: int) -> None:
        store(batch, number)
        if number == killed_behind:
            os.kill(os.getpid(), signal.SIGKILL)

    source = SparkSession(context).readStream.format("fifo").options(url=url, queue=queue)
    rows = source.options(reservation="etl", partitions=2, maxRowsPerTrigger=ROWS_PER_BATCH).load()
    writer = rows.writeStream.foreachBatch(work).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert query.awaitTermination(WAIT_S)
    context.stop()


if __name__ == "__main__":
    recipe, url, queue, folder, killed_behind = sys.argv[1:]
    main(recipe, url, queue, Path(folder), int(killed_behind))
