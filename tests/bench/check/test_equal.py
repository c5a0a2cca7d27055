"""The checker on Spark finds what the plain checkers find, in every shared history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.check.reading import read
from bench.check.specs import Rare, judge
from bench.check.tuning import COMPILED_FROM
from bench.check.verdict import RULES, all_findings
from tests.bench.merged import Kind, lines, merged
from tests.jepsen import checkers, stories
from tests.jepsen.history import Event, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHOUT_SPARK = frozenset({"S12", "V1", "V3"})
"""Judged by `specs.judge` from the few events that they are about."""

PATHS = sorted(stories.FOLDER.glob("*.jsonl"))


def shared() -> dict[str, list[Event]]:
    return {path.stem: load(path) for path in PATHS}


def plain(events: list[Event]) -> set[tuple[str, str]]:
    return {(violation.rule, violation.subject) for violation in checkers.find(events)}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_needs_no_table_is_found_in_each_shared_history(path: Path) -> None:
    events = load(path)
    found = {(finding.rule, finding.subject) for finding in judge(Rare.of(events))}
    assert found == {one for one in plain(events) if one[0] in WITHOUT_SPARK}


KINDS: list[Kind] = sorted({kind for kind, _ in merged(shared())})


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_all_shared_histories_give_the_same_findings(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    """Those of one kind as one large history; `expected.json` says what is to be found."""
    expected = json.loads((stories.FOLDER / "expected.json").read_text())
    histories = shared()
    wanted = {
        (rule, f"{name}/{subject}")
        for name, _ in histories.items()
        for rule, subject in expected.get(f"{name}.jsonl", ())
        if rule not in WITHOUT_SPARK
    }
    for one, events in merged(histories):
        if one == kind:
            path = tmp_path / "history.jsonl"
            path.write_text(lines(events))
            names = {event["process"].split("/")[0] for event in events}
    history = read(spark, path, tmp_path / "work")
    assert history.complaints == ()
    found = findings(spark, history.events)
    assert found == {(rule, subject) for rule, subject in wanted if subject.split("/")[0] in names}


def findings(spark: SparkSession, events: DataFrame) -> set[tuple[str, str]]:
    """Rules and subjects, as Spark finds them."""
    events.createOrReplaceTempView("events")
    found, made = all_findings(spark, Rare.read(spark))
    try:
        return {(row["rule"], row["subject"]) for row in found.collect()}
    finally:
        made.free()


def test_both_checkers_have_the_same_rules() -> None:
    assert list(RULES) == list(checkers.RULES)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_damage_to_a_large_history_is_found_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Queries over so many are compiled. One message is lost, one is delivered as another."""
    from pyspark.sql import functions as F

    from bench.check import generate

    generate.write(spark, tmp_path / "good", COMPILED_FROM)
    history = read(spark, tmp_path / "good", tmp_path)
    assert history.complaints == ()
    assert history.count >= COMPILED_FROM
    body, verb = F.col("value.body"), F.col("value.verb")
    lost = (F.col("f") == "settle") & (verb == "ack") & (F.col("value.id") == "1.3.4002")
    changed = F.when(lost, F.lit("release")).otherwise(verb)
    stranger = F.when(body == "p1-4001", F.lit("p9-9")).otherwise(body)
    damaged = history.events.withColumn(
        "value",
        F.col("value")
        .withField("verb", changed)
        .withField("body", F.when(F.col("f") == "deliver", stranger).otherwise(body)),
    )
    assert findings(spark, damaged) == {
        ("S1", "p2-4002"),
        ("S2", "p9-9"),
        ("S2b", "p9-9"),
    }
