"""The verdict on a history: which rules are broken, how often, and by what.

Owns the order of the work on Spark, and what is kept of its findings: counts, and a few examples
with their events. Knows neither how rules are written nor how a verdict is shown.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.check import overtaken, rules, tables
from bench.check.specs import NEVER, Finding, Rare, judge
from bench.check.unjudged import Evidence, unjudged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from bench.check.reading import History

EXAMPLES = 5
"""Subjects shown per rule."""

RULES = {
    "S1": "nothing confirmed is lost",
    "S2": "nothing is delivered that was not published",
    "S2b": "one message, one id",
    "S3": "what is settled does not come back",
    "S4": "one holder at a time",
    "S5": "an old token settles nothing",
    "S6": "attempts and failures are counted",
    "S7": "a dead letter is dead, once, for a reason",
    "S8": "delays and backoff are waited for",
    "S9": "no lock ends early",
    "S10": "one active consumer",
    "S11": "order of keys and publishers",
    "S12": "nodes and counters agree",
    "V1": "a leader soon, and equal nodes",
    "V2": "a sick minority stops no other node",
    "V3": "queues drain",
    "V4": "no call outlives its timeout",
}
"""Every rule of one history (docs/history.md), in the order of the page."""


@dataclass(frozen=True, slots=True)
class Example:
    """A finding with its events as they stand in the history."""

    subject: str
    text: str
    events: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold."""

    rule: str
    subjects: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a history: its size, broken rules, complaints and notes."""

    events: int
    counts: dict[str, int]
    """Events by `f type`."""
    broken: tuple[Broken, ...]
    complaints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Limits of the verdict."""
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """Rules about which the history does not say enough, and why."""

    @property
    def ok(self) -> bool:
        """Every rule holds, over a history that is whole."""
        return not self.broken and not self.complaints


def all_findings(spark: SparkSession, rare: Rare) -> tuple[DataFrame, tables.Tables]:
    """Make the tables and judge: every finding as a row. The tables are the caller's to free."""
    made = tables.make(spark, rare)
    found = rules.find(spark, rare, made)
    more = [*judge(rare), *rules.slow_publishes(spark, rare)]
    rows = [(one.rule, one.subject, one.text, list(one.events)) for one in more]
    form = "rule string, subject string, text string, events array<bigint>"
    found = found.union(spark.createDataFrame(rows, form))
    late = overtaken.find(spark, rare, made)
    return found if late is None else found.union(late), made


def judge_history(
    spark: SparkSession, history: History, say: Callable[[str], None]
) -> tuple[Verdict, tables.Tables]:
    """The verdict; the tables stay for the figures."""
    history.events.createOrReplaceTempView("events")
    say("the rare events")
    rare = Rare.read(spark)
    evidence = Evidence.read(spark)
    say("the rules")
    found, made = all_findings(spark, rare)
    found.createOrReplaceTempView("findings")
    shown = spark.sql(
        "SELECT rule, subject, text, events, subjects FROM ("
        " SELECT *, row_number() OVER (PARTITION BY rule ORDER BY subject) AS place,"
        " count(*) OVER (PARTITION BY rule) AS subjects FROM ("
        "  SELECT rule, subject, shown.* FROM ("
        "   SELECT rule, subject, min(struct(text, events)) AS shown FROM findings"
        f"   GROUP BY rule, subject))) WHERE place <= {EXAMPLES}"
    ).collect()
    events = _events(spark, {index for row in shown for index in row["events"] or ()})
    examples: dict[str, list[Example]] = defaultdict(list)
    subjects: dict[str, int] = {}
    for row in shown:
        indexes = sorted({index for index in row["events"] or () if index in events})
        example = Example(row["subject"], row["text"], tuple(events[index] for index in indexes))
        examples[row["rule"]].append(example)
        subjects[row["rule"]] = int(row["subjects"])
    broken = tuple(
        Broken(rule, subjects[rule], tuple(sorted(examples[rule], key=lambda one: one.subject)))
        for rule in RULES
        if rule in subjects
    )
    complaints = (*history.complaints, *_unasked(spark, evidence.counts, made))
    notes = tuple(_notes(rare, traced=made.traced, counts=evidence.counts))
    silent = {
        rule: why
        for rule, why in unjudged(rare, evidence, made).items()
        if rule not in subjects  # What is broken was judged.
    }
    return Verdict(history.count, evidence.counts, broken, complaints, notes, silent), made


def _unasked(spark: SparkSession, counts: Mapping[str, int], made: tables.Tables) -> Iterator[str]:
    """Answers to settlements that no client asked for: the part with the question is missing."""
    answers = sum(counts.get(f"settle {kind}", 0) for kind in ("ok", "fail", "info"))
    known = spark.sql(f"SELECT count_if(answered <> {NEVER}) AS n FROM settled").first()
    assert known is not None, "an aggregate has a row"
    if answers == known["n"] + made.ordinary:
        return
    row = spark.sql(
        "SELECT count(*) AS n, min(index) AS first FROM ("
        " SELECT type, index, lag(type) OVER"
        "  (PARTITION BY id, process, consumer, token ORDER BY index) AS before"
        " FROM flat WHERE f = 'settle')"
        " WHERE type <> 'invoke' AND (before IS NULL OR before <> 'invoke')"
    ).first()
    assert row is not None, "an aggregate has a row"
    if row["n"]:
        yield f"a hole: {row['n']} answers to settlements without a request, first {row['first']}"


def _events(spark: SparkSession, indexes: set[int]) -> dict[int, dict[str, Any]]:
    if not indexes:
        return {}
    wanted = ", ".join(str(index) for index in sorted(indexes) if index < NEVER)
    rows = spark.sql(
        "SELECT to_json(struct(type, f, value, process, time, index)) AS line FROM events"
        f" WHERE index IN ({wanted})"
    ).collect()
    found = (json.loads(row["line"]) for row in rows)
    return {int(event["index"]): event for event in found}


def _notes(rare: Rare, *, traced: bool, counts: dict[str, int]) -> Iterable[str]:
    if not traced:
        yield "no checkout events: hand-outs are judged by what clients received"
    if not rare.by_kind["declare"]:
        yield "no declare events: queues are taken as plain, without limit or dead letters"
    if not overtaken.unrenewed(rare):
        yield "no consumer that says it renews nothing (subscribe): late ends of locks go unnoticed"
    if not any(name.startswith("deliver ") for name in counts):
        yield "no deliver events: nothing was consumed"


def state_of(verdict: Verdict, rule: str) -> str:
    """A rule in a few words: holds, broken by how many, or not judged and why."""
    broken = next((one for one in verdict.broken if one.rule == rule), None)
    if broken is not None:
        return f"broken by {broken.subjects:,}"
    why = verdict.unjudged.get(rule)
    return "holds" if why is None else f"not judged: {why}"


__all__ = [
    "RULES",
    "Broken",
    "Example",
    "Finding",
    "Verdict",
    "all_findings",
    "judge_history",
    "state_of",
]
