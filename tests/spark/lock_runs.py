"""Locks of a query that is away, or too slow, by Spark's own scheduler and in real time.

By `make spark`, half a minute for each: the hooks are tried one by one in
`test_streaming_cluster.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fifo.blocking import BlockingClient
from tests.spark.conftest import Cluster
from tests.spark.tasks import WAIT_S, wait_for
from tests.spark.test_reading_cluster import fill

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 20
LOCK_S = 24.0
LEFT_S = 8.0
"""Of the lock when the query comes back: it is what a session needs to begin a batch."""


@pytest.fixture
def run(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, queue: str, tmp_path: Path
) -> Callable[..., None]:
    """Run a query over some messages, from its checkpoint on, until nothing is left."""
    fill(client, queue, ROWS)

    def start(work: Callable[[DataFrame, int], Any], **more: Any) -> None:
        given = {"url": cluster.url, "queue": queue, "reservation": "r", "lock": LOCK_S, **more}
        rows = spark.readStream.format("fifo").options(**given).load()
        writer = rows.writeStream.foreachBatch(work).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(WAIT_S)

    return start


def test_a_query_that_is_back_in_time_keeps_its_batch(
    run: Callable[..., None], client: BlockingClient, queue: str
) -> None:
    seen: list[list[str]] = []

    def work(rows: DataFrame, batch: int) -> None:
        seen.append([row.token for row in rows.select("token").collect()])
        if len(seen) == 1:
            raise RuntimeError("away")
        over = time.monotonic() + 2 * LEFT_S
        wait_for(lambda: time.monotonic() > over)  # the first lock would have run out

    with pytest.raises(Exception, match="away"):
        run(work)
    wait_for(lambda: _left_s(client, queue) < LEFT_S)
    run(work)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    found = client.queue(queue)
    assert (found.messages, found.counters["acked"]) == (0, ROWS)


def _left_s(client: BlockingClient, queue: str) -> float:
    """The seconds that the locks of a queue still last."""
    left = [one.remaining_s for one in client.locks(queue)]
    assert len(left) == ROWS, "all of them are held"
    return min(left)


def test_a_batch_whose_locks_ran_out_before_its_commit_fails_the_query(
    run: Callable[..., None], client: BlockingClient, queue: str
) -> None:
    """Once: started again it goes on behind that batch, and the messages come again."""
    seen: list[int] = []

    def work(rows: DataFrame, batch: int) -> None:
        seen.append(rows.count())
        if len(seen) != 2:
            wait_for(lambda: client.queue(queue).locked == 0)

    with pytest.raises(Exception, match="their locks had expired before the batch was committed"):
        run(work, maxLock=LOCK_S)
    wait_for(lambda: client.queue(queue).ready == ROWS)
    run(work, maxLock=LOCK_S)
    assert seen == [ROWS, ROWS]
    assert client.queue(queue).messages == 0
