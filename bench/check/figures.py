"""Rates, latencies and histograms of a history, per second and in all.

Owns what is measured, from the tables of `tables`. Times are seconds since the first event of the
run. Whether the history is right is for the rules.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.check.specs import Rare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BINS_MAX = 2000
"""A longer history gets bins of several seconds each."""

RUN = "(SELECT * FROM everything WHERE f NOT IN ('declare', 'stamp'))"
"""Events of the run itself: queues may be declared long before it begins."""

STEPS = 200
"""Waits are counted by so many steps to each factor of e: percentiles are exact to a quarter of a
percent of their value.
"""

SHORTEST_S = 1e-6
"""Least duration that is counted: clocks resolve no less."""

PERCENTS = (50, 95, 99)

COUNTED = {
    "published": "f = 'publish' AND type = 'invoke'",
    "confirmed": "f = 'publish' AND type = 'ok'",
    "delivered": "f = 'deliver'",
    "acked": "f = 'settle' AND type = 'ok' AND status = 'ok' AND verb = 'ack'",
    "returned": "f = 'settle' AND type = 'ok' AND status = 'ok' AND verb IN ('nack', 'release')",
}
"""Events counted per second."""

LATENCIES = {
    "publish to confirm": (
        "SELECT confirm_time AS at, confirm_time - invoke_time AS s FROM publishes"
        " WHERE confirm_time IS NOT NULL AND invoke_time IS NOT NULL"
    ),
    "publish to first delivery": (
        "SELECT first.time AS at, first.time - invoke_time AS s FROM messages"
        " WHERE first.attempt = 1 AND invoke_time IS NOT NULL AND coalesce(delay_s, 0) = 0"
        " UNION ALL SELECT deliver_time, deliver_time - invoke_time FROM ordinary_bodies"
    ),
    "settlement to receipt": (
        "SELECT answered_time AS at, answered_time - asked_time AS s FROM settled"
        " WHERE answered_time IS NOT NULL"
        " UNION ALL SELECT answered_time, answered_time - asked_time FROM ordinary_ids"
    ),
}
"""Durations: when each was over, and how many seconds it took."""

WAITS = """
SELECT name, bin, max(n) AS n, max(most) AS most, {percentiles}
FROM (
  SELECT name, bin, step, max(most) OVER whole AS most, sum(n) OVER whole AS n,
    sum(n) OVER (PARTITION BY name, bin ORDER BY step) AS below
  FROM (
    SELECT name, bin, step, sum(n) AS n, max(most) AS most FROM (
      SELECT name, bin, step, n, most FROM counted
      UNION ALL SELECT name, null, step, n, most FROM counted)
    GROUP BY name, bin, step)
  WINDOW whole AS (PARTITION BY name, bin))
GROUP BY name, bin
"""
"""Of all waits counted by step: per bin, and in all (no bin)."""


class Wait(NamedTuple):
    """Percentiles of one latency in milliseconds, of so many."""

    messages: int
    p50: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault from its begin to its end (None: to the end of the history)."""

    name: str
    begin_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that the page shows besides the verdict."""

    seconds: float
    bin_s: int
    rates: dict[str, dict[int, float]]
    """By name: per second, by bin."""
    waits: dict[str, dict[int, Wait]]
    """By name, by bin."""
    totals: dict[str, Wait]
    held: dict[int, int]
    """From delivery to settlement: power of two of milliseconds to count."""
    attempts: dict[int, int]
    outcomes: dict[str, int]
    faults: tuple[Fault, ...]
    leaders: tuple[tuple[float, str], ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(spark: SparkSession, rare: Rare) -> Figures:
    """All figures, from the views that `tables.make` made."""
    row = spark.sql(f"SELECT min(time) AS low, max(time) AS high FROM {RUN}").first()
    assert row is not None, "an aggregate has a row"
    zero = float(row["low"] or 0.0)
    seconds = float(row["high"] or 0.0) - zero
    bin_s = max(1, -(-int(seconds) // BINS_MAX))
    place = f"CAST(floor((time - {zero!r}) / {bin_s}) AS int)"
    counts = ", ".join(f"count_if({what}) AS {name}" for name, what in COUNTED.items())
    rates: dict[str, dict[int, float]] = {name: {} for name in COUNTED}
    for row in spark.sql(f"SELECT {place} AS bin, {counts} FROM {RUN} GROUP BY 1").collect():
        for name in COUNTED:
            rates[name][row["bin"]] = row[name] / bin_s
    waits, totals = _waits(spark, place.replace("time", "at"))
    return Figures(
        seconds=seconds,
        bin_s=bin_s,
        rates=rates,
        waits=waits,
        totals=totals,
        held=_histogram(
            spark,
            "SELECT CAST(floor(log2(greatest((asked_time - handed_time) * 1000, 1))) AS int)"
            " AS name FROM (SELECT asked_time, handed_time FROM settlements"
            "  UNION ALL SELECT asked_time, handed_time FROM ordinary_ids)"
            " WHERE handed_time IS NOT NULL",
        ),
        attempts=_histogram(
            spark,
            "SELECT attempt AS name FROM delivered WHERE first_seen"
            " UNION ALL SELECT 1 FROM ordinary_ids",
        ),
        outcomes=_histogram(
            spark,
            "SELECT concat(verb, ' ', CASE answer WHEN 'ok' THEN coalesce(status, 'ok')"
            " WHEN 'fail' THEN 'failed' ELSE 'unknown' END) AS name FROM settled"
            " UNION ALL SELECT 'ack ok' FROM ordinary_ids",
        ),
        faults=tuple(_faults(rare, zero)),
        leaders=tuple(
            (event["time"] - zero, f"{event['value']['node']} leads")
            for event in rare.by_kind["leader"]
        ),
    )


def _waits(spark: SparkSession, place: str) -> tuple[dict[str, dict[int, Wait]], dict[str, Wait]]:
    """Waits by name and bin, and by name."""
    every = " UNION ALL ".join(
        f"SELECT '{name}' AS name, at, s FROM ({query})" for name, query in LATENCIES.items()
    )
    step = f"CAST(floor(ln(greatest(s, {SHORTEST_S})) * {STEPS}) AS int)"
    counted = (
        f"SELECT name, {place} AS bin, {step} AS step, count(*) AS n, max(s) AS most"
        f" FROM ({every}) GROUP BY 1, 2, 3"
    )
    percentiles = ", ".join(
        f"min(step) FILTER (WHERE below >= n * {percent / 100}) AS p{percent}"
        for percent in PERCENTS
    )
    waits: dict[str, dict[int, Wait]] = {name: {} for name in LATENCIES}
    totals: dict[str, Wait] = {}
    spark.sql(counted).createOrReplaceTempView("counted")
    for row in spark.sql(WAITS.format(percentiles=percentiles)).collect():
        if row["bin"] is None:
            totals[row["name"]] = _wait(row)
        else:
            waits[row["name"]][row["bin"]] = _wait(row)
    return waits, {name: totals[name] for name in LATENCIES if name in totals}


def _wait(row: Any) -> Wait:
    most = row["most"]
    p50, p95, p99 = (
        min(math.exp((row[f"p{percent}"] + 0.5) / STEPS), most) * 1000 for percent in PERCENTS
    )
    return Wait(row["n"], p50, p95, p99, most * 1000)


def _histogram(spark: SparkSession, query: str) -> dict[Any, int]:
    rows = spark.sql(
        f"SELECT name, count(*) AS n FROM ({query}) WHERE name IS NOT NULL GROUP BY 1 ORDER BY 1"
    ).collect()
    return {row["name"]: row["n"] for row in rows}


def _faults(rare: Rare, zero: float) -> list[Fault]:
    found = []
    for event in rare.by_kind["nemesis"]:
        if event["type"] == "invoke" and event["value"]["fault"] != "heal":
            end = rare.end_of(event)
            nodes = event["value"].get("nodes")
            name = event["value"]["fault"]
            shown = f"{name} {', '.join(map(str, nodes))}" if isinstance(nodes, list) else name
            ends = None if end == float("inf") else end - zero
            found.append(Fault(shown, event["time"] - zero, ends))
    return found
