"""The schema of JSON bodies, found by looking at some of them.

Owns `infer`. Spark's own inference finds it, over messages that are read and not taken.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import fifo
from fifo.spark import limits
from fifo.spark.errors import SourceError

_WRONG = "_corrupt_record"


def infer(
    spark: SparkSession,
    url: str,
    queue: str,
    *,
    messages: int = limits.INFER_MESSAGES,
    **more: str | float | bool,
) -> StructType:
    """Return the schema of the first messages of a queue, whose bodies are JSON objects.

    `.option("bodySchema", schema.json())` reads with it. Fields that a later message has besides
    are left out then. `more` are options of a read, such as `state="dead"`. Raises SourceError
    where no body is an object.
    """
    if messages < 1:
        raise fifo.InvalidArgument(f"messages: 1 or more, not {messages}")
    texts = {name: str(value) for name, value in more.items()}
    given = {**texts, "url": url, "queue": queue, "maxMessages": str(messages)}
    rows = spark.read.format("fifo").options(**given).load()
    bodies = rows.selectExpr("cast(body as string) as value")
    found = spark.read.json(bodies, columnNameOfCorruptRecord=_WRONG).schema
    fields = [field for field in found.fields if field.name != _WRONG]
    if not fields:
        raise SourceError(
            f"queue {queue!r}: none of the first {messages} messages is a JSON object with fields:"
            " publish one first, or write the bodySchema by hand"
        )
    return StructType(fields)
