"""Events of many writers as one history: in order of time, numbered from 0.

Owns how rows that lie in many parts get numbers without ever being in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.check.form import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

ROW_BITS = 33
"""`monotonically_increasing_id` has the part above these bits, and the row within it below."""


def write_numbered(
    events: DataFrame,
    folder: Path,
    parts: int,
    *,
    order: str,
    finish: Callable[[DataFrame], DataFrame] = lambda ordered: ordered,
) -> int:
    """Write events as Parquet by time, then `order`; gives how many. The folder must not exist.

    `finish` makes events of rows that have no more than what it needs, a time and this order: small
    rows are put in order sooner.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    ordered = (
        events.repartitionByRange(parts, "time")
        .sortWithinPartitions("time", order)
        .persist(StorageLevel.DISK_ONLY)
    )
    part = F.spark_partition_id()
    counts = {
        int(row["part"]): int(row["count"])
        for row in ordered.groupBy(part.alias("part")).count().collect()
    }
    begins, total = [], 0
    for number in range(parts):
        begins.append(total)
        total += counts.get(number, 0)
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << ROW_BITS) - 1))
    index = F.element_at(F.lit(begins), part + 1) + row
    numbered = ordered.withColumn("index", index.cast("bigint"))
    finish(numbered).select(*FIELDS).write.parquet(str(folder))
    ordered.unpersist()
    return total
