"""A history from files: JSON lines (plain or gzip) or Parquet, one file or a folder of them.

Owns what counts as a broken line or a hole, and the words for it. JSON is turned into Parquet once,
because every table of the check reads the events anew. Knows no rule.
"""

from __future__ import annotations

import functools
import gzip
import json
import operator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from bench.check.form import FIELDS, KINDS, VALUES, schema
from bench.check.tuning import tune

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

NAMED = 5
"""Broken lines and holes that are named one by one; the rest is counted."""

BLOCK = 1000
"""Events between two looks at whether time runs backwards."""

SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
BROKEN = "_broken"


class HistoryBroken(Exception):
    """This is no history, or not all of one; the text names file, line and what to do."""


@dataclass(frozen=True, slots=True)
class History:
    """The events, how many, and what is wrong with them in words, one per line."""

    events: DataFrame
    count: int
    complaints: tuple[str, ...]


def read(spark: SparkSession, path: Path, work: Path) -> History:
    """The events of a file or a folder; `work` is for what is written on the way.

    Raises HistoryBroken where there is nothing to read. What is broken or missing in it is left to
    the caller: it stands in `complaints`, and the rest in `events`.
    """
    files, form = _files(path)
    complaints: tuple[str, ...] = ()
    tune(spark, 0)
    if form == "parquet":
        events = _parquet(spark, path)
    else:
        events, complaints = _json(spark, files, work / "events")
    count, holes = _holes(spark, events)
    if count == 0 and not complaints:
        raise HistoryBroken(f"{path}: an empty history")
    tune(spark, count)
    return History(events, count, (*complaints, *holes))


def _files(path: Path) -> tuple[list[Path], str]:
    if not path.exists():
        raise HistoryBroken(f"{path}: there is no such file or folder")
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    shown = [one for one in inside if one.is_file() and not one.name.startswith((".", "_"))]
    parquet = [one for one in shown if one.suffix == ".parquet"]
    lines = [one for one in shown if one.name.endswith(SUFFIXES)]
    if parquet and lines:
        raise HistoryBroken(f"{path}: holds Parquet and JSON lines; name the one to check")
    if not parquet and not lines:
        raise HistoryBroken(
            f"{path}: no history in it; expected Parquet, or JSON lines named"
            f" {', '.join('*' + suffix for suffix in SUFFIXES)}"
        )
    return (parquet, "parquet") if parquet else (lines, "json")


def _parquet(spark: SparkSession, path: Path) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    found = spark.read.parquet(str(path))
    missing = [name for name in FIELDS if name not in found.columns]
    if missing:
        raise HistoryBroken(f"{path}: not a history, it has no column {', '.join(missing)}")
    value = found.schema["value"].dataType
    if not isinstance(value, StructType):
        raise HistoryBroken(f"{path}: not a history, its column value is no struct")
    there = set(value.fieldNames())
    fields = [
        (F.col(f"value.{name}") if name in there else F.lit(None)).cast(kind).alias(name)
        for name, kind in VALUES.items()
    ]
    return found.select(
        "type",
        "f",
        F.struct(*fields).alias("value"),
        "process",
        F.col("time").cast("double").alias("time"),
        F.col("index").cast("bigint").alias("index"),
    )


def _json(spark: SparkSession, files: list[Path], work: Path) -> tuple[DataFrame, tuple[str, ...]]:
    from pyspark.sql import functions as F

    lines = (
        spark.read.schema(schema(BROKEN))
        .option("columnNameOfCorruptRecord", BROKEN)
        .json([str(one) for one in files])
        .withColumn("file", F.col("_metadata.file_path"))
    )
    whole = F.col(BROKEN).isNull() & F.col("type").isin(*KINDS)
    for name in ("f", "value", "process", "time", "index"):
        whole &= F.col(name).isNotNull()
    lines.withColumn("whole", whole).drop(BROKEN).write.mode("overwrite").parquet(str(work))
    written = spark.read.parquet(str(work))
    broken = {
        row["file"]: int(row["count"])
        for row in written.where("not whole").groupBy("file").count().collect()
    }
    complaints = tuple(
        complaint for file, count in sorted(broken.items()) for complaint in _named(file, count)
    )
    return written.where("whole").drop("whole", "file"), complaints


def _named(file: str, count: int) -> Iterator[str]:
    path = Path(unquote(urlparse(file).path))
    named = 0
    for number, why in broken_lines(path):
        named += 1
        yield f"{path}:{number}: {why}"
        if named == min(NAMED, count):
            break
    if count > named:
        yield f"{path}: and {count - named} more broken lines"


def broken_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers of lines that are no events, from 1, and what is wrong with each."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                why = _wrong(line)
                if why:
                    yield number, why
        except EOFError:
            yield number + 1, "the compressed file ends too early"


def _wrong(line: bytes) -> str | None:
    try:
        event: Any = json.loads(line)
    except ValueError:
        return "not JSON" if line.endswith(b"\n") else "not JSON: the last line is cut"
    if not isinstance(event, dict):
        return "not an event: no JSON object"
    missing = [name for name in FIELDS if event.get(name) is None]
    if missing:
        return f"not an event: no {', '.join(missing)}"
    if event["type"] not in KINDS:
        return f"not an event: type {event['type']!r} is none of {', '.join(KINDS)}"
    return "not an event: a field has the wrong type" if _misfits(event) else None


def _misfits(event: dict[str, Any]) -> bool:
    numbers = {"bigint": int, "double": (int, float)}
    if not isinstance(event["value"], dict) or not isinstance(event["index"], int):
        return True
    for name, kind in VALUES.items():
        value = event["value"].get(name)
        if value is not None and kind in numbers and not isinstance(value, numbers[kind]):  # type: ignore[arg-type]
            return True
        if value is not None and kind == "boolean" and not isinstance(value, bool):
            return True
    return not isinstance(event["time"], int | float)


def _holes(spark: SparkSession, events: DataFrame) -> tuple[int, tuple[str, ...]]:
    """Number of events; which indexes are missing or double; where time runs back."""
    events.createOrReplaceTempView("events_read")
    blocks = spark.sql(
        f"SELECT index div {BLOCK} AS block, count(*) AS n, min(index) AS low, max(index) AS high,"
        " bit_xor(xxhash64(index)) AS hash, min(time) AS earliest, max(time) AS latest"
        " FROM events_read GROUP BY 1 ORDER BY 1"
    ).collect()
    count = sum(row["n"] for row in blocks)
    if count == 0:
        return 0, ()
    low, high = blocks[0]["low"], blocks[-1]["high"]
    whole = low == 0 and high == count - 1
    row = spark.sql(f"SELECT bit_xor(xxhash64(id)) AS hash FROM range({count})").first()
    assert row is not None, "an aggregate has a row"
    complaints: tuple[str, ...] = ()
    if not (whole and row["hash"] == functools.reduce(operator.xor, (b["hash"] for b in blocks))):
        complaints = tuple(_gaps(spark, low))
    return count, (*complaints, *_backwards(blocks))


def _gaps(spark: SparkSession, low: int) -> Iterator[str]:
    if low != 0:
        yield f"a hole: the first index is {low}, not 0"
    rows = spark.sql(
        "SELECT index, before FROM ("
        " SELECT index, lag(index) OVER (ORDER BY index) AS before FROM events_read)"
        " WHERE index <> before + 1 ORDER BY index"
    )
    found = rows.take(NAMED)
    for row in found:
        if row["index"] == row["before"]:
            yield f"index {row['index']} is there twice"
        else:
            yield f"a hole: no event between index {row['before']} and {row['index']}"
    more = rows.count() - len(found) if len(found) == NAMED else 0
    if more:
        yield f"and {more} more holes or doubles"


def _backwards(blocks: Sequence[Row]) -> Iterator[str]:
    for before, row in pairwise(blocks):
        if row["earliest"] < before["latest"]:
            yield (
                f"time runs backwards near index {row['block'] * BLOCK}:"
                f" {row['earliest']} s after {before['latest']} s"
            )
            return
