"""Recipes of docs/spark.md whose drivers are killed with -9: by `make spark`, a minute for each.

What fits into `make test` is in `test_into_tables.py`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.processes import environment
from fifo.blocking import BlockingClient
from tests.spark.conftest import Cluster
from tests.spark.test_reading_cluster import fill

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 45
LIFE_S = 200
NEVER = -1


@pytest.mark.parametrize("recipe", ["store_parquet", "store_delta"])
def test_drivers_that_are_killed_behind_their_write_store_each_row_once(
    spark: SparkSession,
    cluster: Cluster,
    client: BlockingClient,
    queue: str,
    tmp_path: Path,
    recipe: str,
) -> None:
    fill(client, queue, ROWS)
    for killed_behind, ended in ((1, -signal.SIGKILL), (3, -signal.SIGKILL), (NEVER, 0)):
        life = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.recipe_driver", recipe),
                *(cluster.url, queue, str(tmp_path), str(killed_behind)),
            ],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIFE_S,
            check=False,
        )
        assert life.returncode == ended, life.stderr[-2000:]
    path = str(tmp_path / "table")
    if recipe == "store_delta":
        bodies = DeltaTable(path).to_pyarrow_table()["body"].to_pylist()
    else:
        bodies = [row.body for row in spark.read.parquet(path).select("body").collect()]
    assert sorted(int(body) for body in bodies) == list(range(ROWS))
    overview = client.queue(queue)
    assert (overview.messages, overview.counters["acked"]) == (0, ROWS)
