"""Rates, latencies and histograms of a history, per second and in all.

Owns what is measured, from the tables of `tables`. Times are seconds since the first event of the
run. Whether the history is right is for the rules.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.check.specs import Rare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BINS_MAX = 2000
"""A longer history gets bins of several seconds each."""

RUN = "(SELECT * FROM flat WHERE f NOT IN ('declare', 'stamp'))"
"""What belongs to the run itself: queues may be declared long before it begins."""

ACCURACY = 1000
"""Percentiles are exact to a thousandth of their rank."""

PERCENTS = (50, 95, 99)

COUNTED = {
    "published": "f = 'publish' AND type = 'invoke'",
    "confirmed": "f = 'publish' AND type = 'ok'",
    "delivered": "f = 'deliver'",
    "acked": "f = 'settle' AND type = 'ok' AND status = 'ok' AND verb = 'ack'",
    "returned": "f = 'settle' AND type = 'ok' AND status = 'ok' AND verb IN ('nack', 'release')",
}
"""What is counted per second."""

LATENCIES = {
    "publish to confirm": (
        "SELECT confirm_time AS at, confirm_time - invoke_time AS s FROM bodies"
        " WHERE confirm_time IS NOT NULL AND invoke_time IS NOT NULL"
    ),
    "publish to first delivery": (
        "SELECT first.time AS at, first.time - invoke_time AS s FROM messages"
        " WHERE first.attempt = 1 AND invoke_time IS NOT NULL AND coalesce(delay_s, 0) = 0"
    ),
    "settlement to receipt": (
        "SELECT answered_time AS at, answered_time - asked_time AS s FROM settled"
        " WHERE answered_time IS NOT NULL"
    ),
}
"""What takes time: when it was over, and how many seconds it took."""


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
    waits: dict[str, dict[int, Wait]] = {}
    totals = {}
    for name, query in LATENCIES.items():
        waits[name], total = _waits(spark, query, place.replace("time", "at"))
        if total is not None:
            totals[name] = total
    return Figures(
        seconds=seconds,
        bin_s=bin_s,
        rates=rates,
        waits=waits,
        totals=totals,
        held=_histogram(
            spark,
            "SELECT CAST(floor(log2(greatest((asked_time - handed_time) * 1000, 1))) AS int)"
            " AS name FROM settlements WHERE handed_time IS NOT NULL",
        ),
        attempts=_histogram(spark, "SELECT attempt AS name FROM delivered WHERE first_seen"),
        outcomes=_histogram(
            spark,
            "SELECT concat(verb, ' ', CASE answer WHEN 'ok' THEN coalesce(status, 'ok')"
            " WHEN 'fail' THEN 'failed' ELSE 'unknown' END) AS name FROM settled",
        ),
        faults=tuple(_faults(rare, zero)),
        leaders=tuple(
            (event["time"] - zero, f"{event['value']['node']} leads")
            for event in rare.by_kind["leader"]
        ),
    )


def _waits(spark: SparkSession, query: str, place: str) -> tuple[dict[int, Wait], Wait | None]:
    percents = ", ".join(str(percent / 100) for percent in PERCENTS)
    p = f"percentile_approx(s, array({percents}), {ACCURACY}) AS p"
    what = f"count(*) AS n, {p}, max(s) AS most"
    rows = spark.sql(f"SELECT {place} AS bin, {what} FROM ({query}) GROUP BY 1").collect()
    found = {row["bin"]: _wait(row) for row in rows}
    total = spark.sql(f"SELECT {what} FROM ({query})").first()
    return found, _wait(total) if total is not None and total["n"] else None


def _wait(row: Any) -> Wait:
    p50, p95, p99 = (value * 1000 for value in row["p"])
    return Wait(row["n"], p50, p95, p99, row["most"] * 1000)


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
