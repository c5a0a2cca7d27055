"""Spark for a history of a given size: its settings, and the forms of tables.

Owns what keeps queries cheap: for many events parts and compiled code, for few of both as little as
can be, and for all plans that stay short. Knows no rule and no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

EVENTS_PER_PARTITION = 300_000
PARTITIONS_MAX = 400

COMPILED_FROM = 100_000
"""Events from which on it pays to compile every query: that takes longer than to judge a few."""

PARTS = "spark.sql.shuffle.partitions"


def tune(spark: SparkSession, events: int) -> None:
    """Set the session for queries over so many events. Every table is spread by message alike, so
    that none has to be spread again: that is why nothing may change the number of its parts.
    """
    large = events >= COMPILED_FROM
    parts = min(PARTITIONS_MAX, max(2, events // EVENTS_PER_PARTITION)) if large else 1
    for name, value in {
        PARTS: str(parts),
        "spark.sql.codegen.wholeStage": str(large).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if large else "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
    }.items():
        spark.conf.set(name, value)


def carried_out(spark: SparkSession, query: str) -> DataFrame:
    """The rows of a query, on disk. It is carried out now, and plans upon the rows see no more than
    these: they would grow with each table made of another, and Spark would think longer about the
    rules than it judges.
    """
    from pyspark import StorageLevel

    rows = spark.sql(query)
    if spark.conf.get(PARTS) == "1":
        rows = rows.coalesce(1)  # What is in one part is spread no more.
    return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def facts(spark: SparkSession, name: str, rows: Iterable[tuple[Any, ...]], form: str) -> None:
    """A view of a few rows that every task may have; Spark does not ask how few they are."""
    table = spark.createDataFrame(list(rows), form).coalesce(1).hint("broadcast")
    table.createOrReplaceTempView(name)
