"""The dead letters, read by Spark as a stream, with a record of each.

Owns the query: a micro-batch at a time, acked when it is committed. Runs on Spark's driver.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.demo.flights import row_of
from bench.demo.records import DEAD, Delivery, Recorder, now_ms

RESERVATION = "demo"

STARTS = 3
TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a stream's Python process ten seconds to start, which a machine that is busy starting
all else may miss. From its checkpoint a query can be started as often as it takes."""


class DeadLetters:
    """A running query over the dead-letter queue."""

    def __init__(self, spark: SparkSession, url: str, queue: str, folder: Path) -> None:
        """Returns when the query has looked at the queue once."""
        self._recorder = Recorder(folder / "records", DEAD, "stream")
        letters = spark.readStream.format("fifo").options(
            url=url, queue=queue, reservation=RESERVATION
        )
        writing = letters.load().writeStream.foreachBatch(self._record)
        self._writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        self._query = self._started()

    def _started(self) -> StreamingQuery:
        for left in reversed(range(STARTS)):
            query = self._writing.start()
            try:
                query.processAllAvailable()
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error) or not left:
                    raise
            else:
                return query
        raise AssertionError("the last start returns or raises")

    def _record(self, letters: DataFrame, number: int) -> None:
        received_ms = now_ms()
        for letter in letters.collect():
            self._recorder.write(
                Delivery(
                    row=row_of(bytes(letter.body)),
                    attempt=letter.attempt,
                    failures=0,
                    outcome="acked",
                    message_id=letter.id,
                    published_ms=int(letter.published_at.timestamp() * 1000),
                    received_ms=received_ms,
                    settled_ms=now_ms(),
                )
            )
        self._recorder.flush()

    def end(self) -> None:
        """Read what is left, and stop; raises what the query failed with."""
        self._query.processAllAvailable()
        self._query.stop()
