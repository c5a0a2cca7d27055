"""The dead letters, read by Spark as a stream, with a record of each.

Owns the query: a micro-batch at a time, acked when it is committed. Runs on Spark's driver.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.demo.flights import row_of
from bench.demo.records import DEAD, Delivery, Recorder, now_ms

RESERVATION = "demo"


class DeadLetters:
    """A running query over the dead-letter queue."""

    def __init__(self, spark: SparkSession, url: str, queue: str, folder: Path) -> None:
        self._recorder = Recorder(folder / "records", DEAD, "stream")
        letters = spark.readStream.format("fifo").options(
            url=url, queue=queue, reservation=RESERVATION
        )
        self._query: StreamingQuery = (
            letters.load()
            .writeStream.foreachBatch(self._record)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

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
