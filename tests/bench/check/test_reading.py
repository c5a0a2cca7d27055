"""Histories that are no histories: every fault is named with its place, and nothing hangs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.check.reading import HistoryBroken, broken_lines, read
from tests.jepsen import stories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = (stories.FOLDER / "good-acked.jsonl").read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{\n", "not JSON"),
        ('{"type":"o', "not JSON: the last line is cut"),
        ("[]\n", "not an event: no JSON object"),
        ('{"type":"ok","f":"x"}\n', "not an event: no value, process, time, index"),
        (GOOD[0].replace('"type": "ok"', '"type": "maybe"'), "not an event: type 'maybe' is none"),
        (GOOD[0].replace('"index": 0', '"index": "0"'), "not an event: a field has the wrong type"),
        (GOOD[-2].replace('"token": 1', '"token": "a"'), "not an event: a field has the wrong ty"),
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(GOOD) + line)
    ((number, text),) = broken_lines(path)
    assert number == len(GOOD) + 1
    assert text.startswith(why)


def test_a_compressed_file_that_ends_too_early_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    path.write_bytes(gzip.compress("".join(GOOD).encode())[:-20])
    assert "the compressed file ends too early" in [why for _, why in broken_lines(path)]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_broken_and_missing_records_are_counted_and_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join([*GOOD[:2], "{\n", *GOOD[3:], "nothing\n"]))
    history = read(spark, path, tmp_path / "work")
    assert history.count == len(GOOD) - 1
    assert history.complaints == (
        f"{path}:3: not JSON",
        f"{path}:{len(GOOD) + 1}: not JSON",
        "a hole: no event between index 1 and 3",
    )


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_parts_of_a_folder_are_one_history_and_time_runs_forward(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(GOOD[:4]))
    with gzip.open(folder / "b.jsonl.gz", "wt") as file:
        file.writelines(GOOD[4:])
    history = read(spark, folder, tmp_path / "work")
    assert (history.count, history.complaints) == (len(GOOD), ())
    events = [json.loads(line) for line in GOOD]
    late = [{**event, "time": 99.0, "index": 3000 + n} for n, event in enumerate(events)]
    early = [{**event, "time": -1.0, "index": 5000 + n} for n, event in enumerate(events)]
    (folder / "c.jsonl").write_text("".join(json.dumps(event) + "\n" for event in late + early))
    history = read(spark, folder, tmp_path / "again")
    assert "time runs backwards near index 5000" in history.complaints[-1]


@pytest.mark.spark
def test_a_file_that_is_no_history_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryBroken, match="no such file"):
        read(spark, tmp_path / "none", tmp_path)
    with pytest.raises(HistoryBroken, match="no history in it; expected Parquet, or JSON lines"):
        read(spark, tmp_path, tmp_path / "work")
    spark.range(3).write.parquet(str(tmp_path / "other.parquet"))
    with pytest.raises(HistoryBroken, match="not a history, it has no column type, f, value"):
        read(spark, tmp_path / "other.parquet", tmp_path / "work")
