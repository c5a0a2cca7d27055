"""Rules on which a history says too little: which, and why.

Owns what each rule needs to be judged at all. That a rule holds is said only where there was
something that could have broken it. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.check.specs import Rare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.check.tables import Tables

DELAYS = "value.delay_s > 0 AND type = 'invoke'"
"""Settlements and publishes after which something has to be waited for."""

IN_TIME = "value.transit_s < value.lock_ms / 1000"
"""Deliveries that were not on their way for as long as their lock."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Kinds of events that a history holds."""

    counts: dict[str, int]
    """Events by `f type`."""
    delays: int = 0
    in_time: int = 0
    """Deliveries of which it is known that they came before their lock was over."""

    @classmethod
    def read(cls, spark: SparkSession) -> Evidence:
        """From the view `events`."""
        rows = spark.sql(
            f"SELECT f, type, count(*) AS n, count_if({DELAYS}) AS delays,"
            f" count_if({IN_TIME}) AS in_time FROM events GROUP BY f, type ORDER BY f, type"
        ).collect()
        return cls(
            {f"{row['f']} {row['type']}": int(row["n"]) for row in rows},
            sum(row["delays"] for row in rows if row["f"] in ("settle", "publish")),
            sum(row["in_time"] for row in rows if row["f"] == "deliver"),
        )

    def has(self, kind: str) -> bool:
        """Whether there are such events."""
        return any(name.split()[0] == kind for name in self.counts)


def unjudged(rare: Rare, evidence: Evidence, made: Tables) -> dict[str, str]:
    """Rules that this history cannot break, whatever happened: why, by rule."""
    found = dict(_about_messages(rare, evidence, made))
    return {**found, **dict(_about_the_cluster(rare, evidence))}


def _about_messages(rare: Rare, evidence: Evidence, made: Tables) -> Iterator[tuple[str, str]]:
    queues = rare.queues().values()
    if not evidence.counts.get("publish ok"):
        yield "S1", "no publish was confirmed"
    if not evidence.has("deliver"):
        for rule in ("S2", "S2b", "S3", "S4", "S6"):
            yield rule, "nothing was delivered"
    if not evidence.counts.get("settle ok"):
        for rule in ("S3", "S5"):
            yield rule, "no settlement was answered"
    if not any(queue.is_grave for queue in queues):
        yield "S7", "no queue has a dead-letter queue"
    if not evidence.delays:
        yield "S8", "no publish and no settlement says how long its delay is (delay_s)"
    if not made.traced and not evidence.in_time:
        yield "S9", "no delivery says that it came within its lock (transit_s, lock_ms)"
    if all(queue.ordering != "single_active" for queue in queues):
        yield "S10", "no queue has a single active consumer"
    if rare.redriven:
        yield "S11", "dead letters went back to their queues (redrive)"
    elif not made.lined_up and all(queue.ordering != "key" for queue in queues):
        yield "S11", "no queue is ordered, or has a single publisher"


def _about_the_cluster(rare: Rare, evidence: Evidence) -> Iterator[tuple[str, str]]:
    if not rare.by_kind["state"]:
        yield "S12", "no node was looked into (state)"
    if not rare.by_kind["state"] and not rare.by_kind["nemesis"]:
        yield "V1", "there were no faults, and no node was looked into (nemesis, state)"
    if not any(True for _ in rare.lasting()):
        yield "V2", "no fault lasted while the cluster had to serve (nemesis)"
    if not rare.drained:
        yield "V3", "the messages left in the queues were not counted (left)"
    if not evidence.has("call"):
        yield "V4", "no call was timed (call)"
