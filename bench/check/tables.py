"""The tables that the rules are written on: messages by body, hand-outs, settlements, holds.

Owns how events become these tables, as docs/history.md defines the words. Each is a temporary view
of the session. What an ordinary message did is no row of them: `screen` has set it aside. The rest
is spread by message id once, and what follows stays within those partitions. Knows no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.check.prefilter import EVENTS_OF_ORDINARY, Screen
from bench.check.specs import NEVER, Rare
from bench.check.tuning import carried_out, facts, tune

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLAT = "SELECT type, f, process, time, index, value.* FROM events"

BODIES = """
SELECT body,
  invoked.index AS invoke_index, invoked.time AS invoke_time, invoked.process AS invoke_process,
  invoked.queue AS invoke_queue, invoked.key AS key, invoked.delay_s AS delay_s,
  coalesce(invoked.delay_s, 0) = 0 AND invoked.priority IS NULL AS plain,
  confirmed.index AS confirm_index, confirmed.time AS confirm_time, confirmed.id AS id,
  coalesce(confirmed.queue, '') AS confirm_queue, confirmed.process AS confirm_process,
  first_confirm, refused, full_time
FROM (
  SELECT body,
    max(struct(index, time, process, queue, key, delay_s, priority))
      FILTER (WHERE type = 'invoke') AS invoked,
    max(struct(index, time, id, queue, process)) FILTER (WHERE type = 'ok') AS confirmed,
    min(index) FILTER (WHERE type = 'ok') AS first_confirm,
    max(index) FILTER (WHERE type = 'fail') AS refused,
    max(time) FILTER (WHERE type = 'fail' AND startswith(error, 'QueueFull')) AS full_time
  FROM flat WHERE f = 'publish' GROUP BY body)
"""
"""Publishes: of several events of one kind the last one counts."""

DELIVERED = """
SELECT *, row_number() OVER (PARTITION BY id, consumer, token ORDER BY index) = 1 AS first_seen
FROM (
  SELECT id, consumer, token, index, time, queue, body, intact, attempt, failures, reason, at_ms,
    lock_ms, transit_s, waited_s
  FROM flat WHERE f = 'deliver' DISTRIBUTE BY id)
"""
"""Only what rules ask for: a table is written with every column that it has."""

SETTLED = f"""
SELECT id, queue, process, consumer, token, verb, delay_s, delay_max_s,
  index AS asked, time AS asked_time,
  coalesce(next.type, 'info') AS answer, coalesce(next.index, {NEVER}) AS answered,
  next.time AS answered_time, next.status AS status, coalesce(next.late, false) AS late,
  coalesce(next.type = 'ok' AND next.status = 'ok', false) AS done
FROM (
  SELECT *, lead(struct(type, index, time, status, late)) OVER
    (PARTITION BY id, consumer, token, process ORDER BY index) AS next
  FROM (SELECT * FROM flat WHERE f = 'settle' DISTRIBUTE BY id))
WHERE type = 'invoke' AND (next IS NULL OR next.type <> 'invoke')
"""
"""Each settlement with its answer: an `info` at the end of time where none came."""

ANSWERS = """
SELECT id, consumer, token, last.asked AS own_asked, last.done AS own_done, last.verb AS own_verb
FROM (SELECT id, consumer, token, max(struct(answered, asked, done, verb)) AS last
  FROM settled GROUP BY id, consumer, token)
"""
"""The last action of the holder of a delivery."""

RAW_HAND_OUTS = """
SELECT d.*, coalesce(q.grave, false) AS in_grave, coalesce(q.single, false) AS single,
  q.max_deliveries AS max_deliveries{since}
FROM (SELECT id, coalesce(queue, '') AS queue, consumer, token, index, time, attempt, failures,
    at_ms, lock_ms, transit_s, waited_s
  FROM {source}) d LEFT JOIN queues q ON q.name = d.queue
"""

BEGUN = """,
  min(coalesce(q.begun, {elsewhere})) OVER (PARTITION BY d.id) AS begun"""
"""Since when the message may have come back from its grave."""

PLACED = """
SELECT *, row_number() OVER (PARTITION BY id ORDER BY {order}) AS place FROM raw_hand_outs
"""

HAND_OUTS = """
SELECT h.*,
  min(index) OVER newer AS newer_min, max(index) OVER newer AS newer_max,
  lead(struct(index, time, in_grave, attempt)) OVER by_place AS next,
  lag(struct(queue, attempt, failures, index, consumer, token)) OVER by_place AS before,
  lag(struct(index, time, attempt, failures, at_ms, lock_ms, transit_s, single, consumer, token))
    OVER alive AS live_before,
  {first_of_key} AS first_of_key,
  min(CASE WHEN in_grave THEN struct(place, index, time) END) OVER (PARTITION BY id) AS buried
FROM placed h
WINDOW by_place AS (PARTITION BY id ORDER BY {order}),
  newer AS
    (PARTITION BY id ORDER BY {order} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING),
  alive AS (PARTITION BY id, in_grave ORDER BY {order})
"""
"""Hand-outs with what came before and after; `newer_*` is of the hand-outs after this one. All
windows have the one order, so that it is sorted once.
"""

FIRST_OF_KEY = "row_number() OVER (PARTITION BY id, consumer, token ORDER BY place) = 1"
"""Without checkouts a hand-out is the first delivery of its key already."""

STAYS = """
SELECT *, place - max(CASE WHEN fresh THEN place END) OVER
  (PARTITION BY id ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) + 1
  AS number
FROM (
  SELECT *, before IS NULL OR before.queue <> queue{restart} AS fresh FROM hand_outs)
"""
"""Hand-outs by their stay in a queue: `number` counts from 1 within it."""

SETTLEMENTS = """
SELECT s.*, h.queue AS held_queue, h.in_grave AS in_grave, h.single AS single,
  h.newer_min AS newer_min, h.newer_max AS newer_max, h.place AS place, h.next AS next,
  h.index AS handed, h.time AS handed_time
FROM settled s LEFT JOIN (SELECT * FROM hand_outs WHERE first_of_key) h
  ON h.id = s.id AND h.consumer = s.consumer AND h.token = s.token
"""
"""Settlements with the hand-out that they are about."""

HELD = """
SELECT s.id, s.consumer, s.token, s.asked, d.index AS received, coalesce(d.queue, '') AS queue,
  coalesce(q.single, false) AS single
FROM settled s JOIN (SELECT * FROM delivered WHERE first_seen) d
  ON d.id = s.id AND d.consumer = s.consumer AND d.token = s.token
  LEFT JOIN queues q ON q.name = d.queue
WHERE s.done AND NOT s.late
"""
"""Confirmed holds: from a delivery to the asking for its settlement."""

HANDED = """
SELECT id,
  min(index) FILTER (WHERE NOT in_grave) AS alive_first,
  max(struct(place, failures)) FILTER (WHERE NOT in_grave) AS alive_last,
  min(buried) AS buried,
  max(index) FILTER (WHERE NOT in_grave AND index > buried.index{surely}) AS alive_after,
  min(struct(place, index, time, consumer, token, attempt, in_grave)) AS first
FROM hand_outs GROUP BY id
"""
"""The fate of a message, by its hand-outs."""

ENDED = """
SELECT id,
  max(verb = 'ack' AND answer <> 'fail'
    AND coalesce(status, '') NOT IN ('lock_lost', 'unknown_consumer')) AS may_have_acked,
  min(asked) FILTER (WHERE done AND verb = 'terminate' AND NOT in_grave) AS terminated,
  max(newer_min IS NOT NULL)
    FILTER (WHERE done AND verb = 'terminate' AND NOT in_grave) AS came_back,
  min(asked) FILTER (WHERE done AND verb = 'ack' AND NOT in_grave) AS acked,
  min(asked) FILTER (WHERE done AND verb IN ('ack', 'terminate')) AS finished,
  max(answer = 'info' AND verb IN ('ack', 'terminate')) AS open_end
FROM settlements GROUP BY id
"""
"""The fate of a message, by its settlements."""

BY_MESSAGE = """
SELECT h.*, e.may_have_acked, e.terminated, e.came_back, e.acked, e.finished, e.open_end
FROM handed h LEFT JOIN ended e ON e.id = h.id
UNION ALL
SELECT e.id, null, null, null, null, null,
  e.may_have_acked, e.terminated, e.came_back, e.acked, e.finished, e.open_end
FROM ended e LEFT ANTI JOIN handed h ON h.id = e.id
"""
"""Both. A full join would forget that all of it is spread by message already."""

MESSAGES = """
SELECT b.*, m.first AS first, m.alive_first AS alive_first,
  coalesce(m.may_have_acked, false) AS may_have_acked,
  CASE WHEN m.buried IS NULL AND NOT coalesce(m.open_end, false) THEN m.finished END AS finished
FROM (SELECT * FROM bodies WHERE id IS NOT NULL) b LEFT JOIN by_message m ON m.id = b.id
"""
"""Confirmed bodies with what became of the message."""


KEPT = """
SELECT process, min(first) AS first_kept, max(last) AS last_kept FROM (
  SELECT confirm_process AS process, min(confirm_index) AS first, max(confirm_index) AS last
  FROM messages WHERE may_have_acked GROUP BY 1
  UNION ALL SELECT process, min(index), max(index) FROM ordinary_confirms GROUP BY 1)
GROUP BY process
"""
"""Between which confirms of a process its messages were not lost."""

PUBLISHES = """
SELECT invoke_time, confirm_time, coalesce(confirm_time, full_time) AS answer_time FROM bodies
UNION ALL SELECT invoke_time, confirm_time, confirm_time FROM ordinary_bodies
"""
"""That a queue is full is an answer, which only a cluster that serves can give."""

PUBLISHERS = """
SELECT queue, count(DISTINCT process) AS publishers FROM everything
WHERE f = 'publish' AND type IN ('invoke', 'ok') GROUP BY queue
"""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables made: whether the machine was seen (`checkout`), and what is cached on disk."""

    traced: bool
    lined_up: frozenset[str]
    """Queues without keys whose first deliveries have an order: a single publisher, or consumer."""
    kept: list[DataFrame]
    ordinary: int = 0
    """Messages that no table has."""

    def free(self) -> None:
        """Give back what is cached; rows that were carried out go when no view has them."""
        for table in self.kept:
            table.unpersist()


def make(spark: SparkSession, rare: Rare) -> Tables:
    """Make all views on top of the view `events`."""
    kept: list[DataFrame] = []

    def kept_on_disk(query: str) -> DataFrame:
        from pyspark import StorageLevel

        kept.append(spark.sql(query).persist(StorageLevel.DISK_ONLY))
        return kept[-1]

    def view(name: str, query: str, *, keep: bool = False) -> None:
        table = carried_out(spark, query) if keep else spark.sql(query)
        table.createOrReplaceTempView(name)

    view("everything", FLAT)
    rows = spark.sql("SELECT 1 FROM everything WHERE f = 'checkout' LIMIT 1").take(1)
    traced = bool(rows)
    _queues(spark, rare)
    lined_up = _lined_up(spark, rare)
    ordinary = Screen(spark, kept_on_disk).look(_special(rare, lined_up), traced=traced)
    if ordinary:
        tune(spark, spark.table("events").count() - EVENTS_OF_ORDINARY * ordinary)
    view("bodies", BODIES, keep=True)
    view("delivered", DELIVERED, keep=True)
    view("settled", SETTLED, keep=True)
    view("answers", ANSWERS)
    view(
        "cancelled", "SELECT consumer, max(index) AS index FROM flat WHERE f = 'cancel' GROUP BY 1"
    )
    if traced:
        view("checkouts", "SELECT * FROM flat WHERE f = 'checkout' DISTRIBUTE BY id")
    source = "checkouts" if traced else "delivered WHERE first_seen"
    since = BEGUN.format(elsewhere=rare.redriven_since("")) if rare.redriven else ""
    view("raw_hand_outs", RAW_HAND_OUTS.format(source=source, since=since))
    order = _order(rare, traced=traced)
    view("placed", PLACED.format(order=order))
    first_of_key = FIRST_OF_KEY if traced else "true"
    view("hand_outs", HAND_OUTS.format(order=order, first_of_key=first_of_key), keep=True)
    restart = " OR attempt <= before.attempt" if rare.redriven else ""
    view("stays", STAYS.format(restart=restart, order=order))
    view("settlements", SETTLEMENTS, keep=True)
    view("held", HELD)
    surely = "" if traced else " AND time - transit_s - COALESCE(waited_s, 0) > buried.time"
    view("handed", HANDED.format(surely=surely))
    view("ended", ENDED)
    view("by_message", BY_MESSAGE, keep=True)
    view("messages", MESSAGES, keep=True)
    view("kept", KEPT)
    view("publishes", PUBLISHES)
    return Tables(traced, lined_up, kept, ordinary)


def _order(rare: Rare, *, traced: bool) -> str:
    """The order of a message's hand-outs: by index once attempts may have started again."""
    if traced:
        return "index"
    if not rare.redriven:
        return "in_grave, attempt, index"
    return "index > begun, index < begun AND in_grave, if(index < begun, attempt, 0), index"


def _special(rare: Rare, lined_up: frozenset[str]) -> set[str]:
    """Queues with rules about more than one message at a time, or about any that is in them."""
    found = {
        queue.name for queue in rare.queues().values() if queue.is_grave or queue.ordering != "none"
    }
    return found | lined_up


def _lined_up(spark: SparkSession, rare: Rare) -> frozenset[str]:
    rows = spark.sql(PUBLISHERS).collect()
    alone = {row["queue"] for row in rows if row["publishers"] == 1}
    found = frozenset(
        queue.name
        for queue in rare.queues().values()
        if not queue.is_grave
        and queue.ordering != "key"
        and (queue.ordering == "single_active" or queue.name in alone)
    )
    facts(spark, "lined_up", [(name,) for name in sorted(found)], "name string")
    return found


def _queues(spark: SparkSession, rare: Rare) -> None:
    queues = rare.queues().values()
    rows = [
        (
            queue.name,
            queue.is_grave,
            queue.ordering == "single_active",
            queue.ordering,
            queue.max_deliveries,
            queue.source.max_deliveries if queue.source is not None else None,
            list(queue.reasons),
            rare.redriven_since(queue.name),
        )
        for queue in queues
    ]
    form = (
        "name string, grave boolean, single boolean, ordering string, max_deliveries bigint,"
        " source_max bigint, reasons array<string>, begun bigint"
    )
    facts(spark, "queues", rows, form)
