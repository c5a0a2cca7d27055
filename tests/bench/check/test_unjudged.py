"""Rules on which a history says too little are named with the reason, and never called held."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bench.check.specs import Rare
from bench.check.tables import Tables
from bench.check.unjudged import Evidence, unjudged
from bench.check.verdict import RULES, Verdict, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def event(f: str, kind: str = "ok", **value: Any) -> dict[str, Any]:
    return {"type": kind, "f": f, "value": value, "process": "p", "time": 1.0, "index": 0}


QUEUES = (
    event("declare", queue="line", spec={"ordering": "single_active", "dead_letter": "dead"}),
    event("declare", queue="dead", spec={}),
)
CLUSTER = (
    event("state", node="n1"),
    event("nemesis", "invoke", fault="kill", lasting=True),
    event("left", queues={}),
)
ALL = Evidence(
    {"publish ok": 1, "deliver ok": 1, "settle ok": 1, "call ok": 1}, delays=1, in_time=1
)  # fmt: skip
MADE = Tables(traced=False, lined_up=frozenset({"line"}), kept=[])


def silent(*events: dict[str, Any], evidence: Evidence = ALL, made: Tables = MADE) -> set[str]:
    return set(unjudged(Rare.of(events), evidence, made))


def test_a_complete_history_leaves_no_rule_unjudged() -> None:
    assert silent(*QUEUES, *CLUSTER) == set()


def test_an_empty_history_leaves_every_rule_unjudged() -> None:
    made = replace(MADE, lined_up=frozenset())
    assert silent(evidence=Evidence({}), made=made) == set(RULES)


@pytest.mark.parametrize(
    ("evidence", "rules"),
    [
        (replace(ALL, delays=0), {"S8"}),
        (replace(ALL, in_time=0), {"S9"}),
        (replace(ALL, counts={"publish ok": 1, "deliver ok": 1, "call ok": 1}), {"S3", "S5"}),
        (replace(ALL, counts={"deliver ok": 1, "settle ok": 1, "call ok": 1}), {"S1"}),
        (replace(ALL, counts={"publish ok": 1, "deliver ok": 1, "settle ok": 1}), {"V4"}),
    ],
)
def test_each_rule_needs_its_own_events(evidence: Evidence, rules: set[str]) -> None:
    assert silent(*QUEUES, *CLUSTER, evidence=evidence) == rules


def test_a_machines_own_history_needs_no_transit_time_from_clients() -> None:
    evidence = replace(ALL, in_time=0)
    assert silent(*QUEUES, *CLUSTER, evidence=evidence, made=replace(MADE, traced=True)) == set()


def test_queues_without_an_order_or_a_grave_are_not_judged_by_these() -> None:
    plain = event("declare", queue="line", spec={})
    made = replace(MADE, lined_up=frozenset())
    assert silent(plain, *CLUSTER, made=made) == {"S7", "S10", "S11"}


def test_an_unjudged_rule_is_shown_with_its_reason() -> None:
    verdict = Verdict(1, {}, (), unjudged={"S9": "no delivery says it"})
    assert state_of(verdict, "S9") == "not judged: no delivery says it"
    assert state_of(verdict, "S8") == "holds"


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_evidence_counts_events_by_kind(spark: SparkSession, tmp_path: Path) -> None:
    from bench.check.reading import read
    from tests.bench.merged import lines

    held: dict[str, Any] = {"id": "1.1.1", "consumer": 1, "token": 1, "queue": "q"}
    events = [
        event("deliver", **held, lock_ms=1000, transit_s=0.5),
        event("deliver", **held, lock_ms=1000, transit_s=1.5),
        event("deliver", **held, lock_ms=1000),
        event("settle", "invoke", **held, verb="nack", delay_s=1.0),
        event("settle", **held, verb="nack", delay_s=1.0, status="ok"),
        event("publish", "invoke", queue="q", body="b", delay_s=0.0),
    ]
    path = tmp_path / "history.jsonl"
    path.write_text(lines({**one, "index": n} for n, one in enumerate(events)))
    read(spark, path, tmp_path / "work").events.createOrReplaceTempView("events")
    found = Evidence.read(spark)
    assert (found.delays, found.in_time) == (1, 1)
    assert found.counts == {
        "deliver ok": 3, "publish invoke": 1, "settle invoke": 1, "settle ok": 1
    }  # fmt: skip
