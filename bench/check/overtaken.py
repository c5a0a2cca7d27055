"""S8 and S9 from the other side: what was due, and overtaken by what stood behind it.

Owns the upper bounds of both rules on Spark (docs/history.md): who was due and came late, and who
was handed out last before that. Asks for everything else only where somebody was late.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from bench.check.rules import RATE_ERROR
from bench.check.tuning import carried_out, facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.check.specs import Rare
    from bench.check.tables import Tables

LATE_S = 2.0
"""A message that is due may be overtaken for this long."""

SEEN_S = 2.0
"""A new leader was there for this long at most before somebody saw it."""

NEVER_S = 1e18
"""A time before (negative) or after all others, in seconds."""

SLOWER = 1 + RATE_ERROR

LOCKS_OVER = f"""
SELECT h.id, h.queue, h.live_before.index AS shown, h.index AS back,
  h.live_before.consumer AS consumer, h.live_before.token AS token,
  h.live_before.time + h.live_before.lock_ms / 1000 * {SLOWER} AS due, u.lock_s * {SLOWER} AS grace,
  {{handed}} AS handed
FROM hand_outs h JOIN unrenewed u ON u.consumer = h.live_before.consumer
WHERE NOT h.in_grave AND h.attempt = h.live_before.attempt + 1
"""

UNTOUCHED = """
SELECT 'S9' AS rule, id, queue, shown, back, due, grace, handed FROM (
  SELECT * FROM locks_over WHERE handed > due + {late}) c
LEFT ANTI JOIN settled s
  ON s.id = c.id AND s.consumer = c.consumer AND s.token = c.token AND s.asked < c.back
LEFT ANTI JOIN (SELECT id, consumer, token FROM flat WHERE f = 'renew') r
  ON r.id = c.id AND r.consumer = c.consumer AND r.token = c.token
LEFT ANTI JOIN backing_off q ON q.name = c.queue
"""

RETURNED = f"""
SELECT 'S8' AS rule, h.id, h.queue, s.answered AS shown, h.index AS back,
  s.answered_time + s.delay_max_s * {SLOWER} AS due, 0D AS grace, {{handed}} AS handed
FROM hand_outs h JOIN settled s
  ON s.id = h.id AND s.consumer = h.before.consumer AND s.token = h.before.token
WHERE s.done AND s.verb IN ('nack', 'release') AND s.delay_max_s IS NOT NULL
  AND NOT h.in_grave AND h.attempt = h.before.attempt + 1
"""

DELAYED = f"""
SELECT 'S8' AS rule, h.id, h.queue, b.confirm_index AS shown, h.index AS back,
  b.confirm_time + b.delay_s * {SLOWER} AS due, 0D AS grace, {{handed}} AS handed
FROM hand_outs h JOIN bodies b ON b.id = h.id
WHERE h.place = 1 AND h.attempt = 1 AND NOT h.in_grave AND b.delay_s > 0
"""

CAME_LATE = """
SELECT c.*, b.confirm_index FROM (SELECT * FROM due_again WHERE handed > due + {late}) c
JOIN (SELECT id, confirm_index FROM bodies WHERE id IS NOT NULL) b ON b.id = c.id
LEFT ANTI JOIN out_of_place q ON q.name = c.queue
"""

FIRSTS = """
SELECT h.queue, h.time, h.index, h.transit_s, h.waited_s, b.invoke_index
FROM hand_outs h JOIN bodies b ON b.id = h.id
WHERE h.place = 1 AND h.attempt = 1 AND NOT h.in_grave
UNION ALL SELECT * FROM ordinary_firsts
"""
"""First hand-outs of all messages: an ordinary one may have overtaken."""

BEFORE_THEM = """
SELECT queue, at, late, last_value(younger, true) OVER (
  PARTITION BY queue ORDER BY at, kind, index
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS younger
FROM (
  SELECT queue, handed AS at, 0 AS kind, back AS index, NULL AS younger,
    struct(rule, id, shown, back, due, grace, confirm_index) AS late
  FROM came_late
  UNION ALL
  SELECT h.queue, h.time, 1, h.index,
    named_struct('index', h.index, 'time', h.time, 'handed', {handed},
      'invoke_index', h.invoke_index), NULL
  FROM firsts h
  WHERE {handed} IS NOT NULL AND h.queue IN (SELECT queue FROM came_late))
"""

OVERTAKEN = """
SELECT late.rule AS rule, late.id AS subject,
  concat('it was due, and a younger one was handed out ', round(younger.handed - late.due, 3),
    ' s later') AS text,
  array(late.shown, younger.index, late.back) AS events
FROM (SELECT * FROM before_them WHERE late IS NOT NULL AND younger IS NOT NULL)
JOIN wrong w ON younger.time >= w.since AND younger.time < w.next
WHERE younger.invoke_index > late.confirm_index
  AND younger.handed > greatest(late.due, w.until + late.grace) + {late}
"""


def unrenewed(rare: Rare) -> dict[int, float]:
    """Consumers whose client renews nothing automatically, with their locks in seconds."""
    return {
        event["value"]["consumer"]: event["value"]["lock_s"]
        for event in rare.by_kind["subscribe"]
        if event["value"].get("renews") is False
    }


def find(spark: SparkSession, rare: Rare, made: Tables) -> DataFrame | None:
    """Messages overtaken: rule, subject, text, events. None where none can have been."""
    if rare.redriven:
        return None
    handed = "h.time" if made.traced else "h.time - h.transit_s - h.waited_s"
    _specs(spark, rare)
    parts = [RETURNED, DELAYED]
    holders = sorted(unrenewed(rare).items())
    if holders:
        facts(spark, "unrenewed", holders, "consumer bigint, lock_s double")
        spark.sql(LOCKS_OVER.format(handed=handed)).createOrReplaceTempView("locks_over")
        parts.append(UNTOUCHED.format(late=LATE_S))
    due = spark.sql(" UNION ALL ".join(f"({part.format(handed=handed)})" for part in parts))
    due.select(
        "rule", "id", "queue", "shown", "back", "due", "grace", "handed"
    ).createOrReplaceTempView("due_again")
    late = carried_out(spark, CAME_LATE.format(late=LATE_S))
    if late.isEmpty():
        return None
    late.createOrReplaceTempView("came_late")
    spark.sql(FIRSTS).createOrReplaceTempView("firsts")
    spark.sql(BEFORE_THEM.format(handed=handed)).createOrReplaceTempView("before_them")
    facts(spark, "wrong", _wrong(rare), "since double, next double, until double")
    return spark.sql(OVERTAKEN.format(late=LATE_S))


def _wrong(rare: Rare) -> list[tuple[float, float, float]]:
    """From when to when what was wrong before was over at the latest: (since, next, until)."""
    spans = [
        (begun["time"], min(rare.end_of(begun), NEVER_S))
        for begun in rare.by_kind["nemesis"]
        if begun["type"] == "invoke"
    ]
    terms: set[int] = set()
    for one in rare.by_kind["leader"]:
        if one["value"]["term"] not in terms:
            terms.add(one["value"]["term"])
            spans.append((one["time"] - SEEN_S, one["time"]))
    spans = [(-NEVER_S, -NEVER_S), *sorted(spans)]
    since = [begin for begin, _ in spans]
    until = accumulate((end for _, end in spans), max)
    return list(zip(since, [*since[1:], NEVER_S], until, strict=True))


def _specs(spark: SparkSession, rare: Rare) -> None:
    """Queues to which a message does not go back in its place, or not at once."""
    specs = {
        event["value"]["queue"]: event["value"].get("spec") or {}
        for event in rare.by_kind["declare"]
        if event["type"] == "ok"
    }
    out_of_place = [
        (name,)
        for name, spec in specs.items()
        if (spec.get("ordering") or "none") != "none" or spec.get("priorities")
    ]
    backing_off = [(name,) for name, spec in specs.items() if spec.get("timeout_backoff")]
    facts(spark, "out_of_place", out_of_place, "name string")
    facts(spark, "backing_off", backing_off, "name string")
