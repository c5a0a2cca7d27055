"""The prefilter: a cheap look at every message, before any is looked at exactly.

Owns what an ordinary life is, and which bodies and ids are odd. Nearly every message is published,
confirmed, delivered and acked once each, and then no rule about one message can be broken. Such are
set aside by two sums over hashes, of numbers only, so that the tables hold what is left. Hashes of
64 bits stand for texts: where two share one, both are judged exactly. Knows no rule by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.check.tuning import carried_out

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import DataFrame, SparkSession

BROADCAST_MAX = 2_000_000
"""So many hashes are held in memory by every task; more are joined like tables."""

EVENTS_OF_ORDINARY = 5
"""An ordinary message has one publish and its confirm, one delivery, one ack and its answer."""

ASKED, CONFIRMED, DELIVERED, REFUSED, DAMAGED, UNLIKE = 1, 2, 4, 8, 16, 32
"""Marks of a body's events; `UNLIKE` is on what needs a closer look."""

STORED, RECEIVED, SETTLING, SETTLED, OTHER = 1, 2, 4, 8, 16
"""Marks of an id's events. As many events as marks, and all the marks: each is there once."""

BY_BODY = f"""
SELECT body, min(id) AS id,
  count(*) = 3 AND bit_or(marks) = {ASKED | CONFIRMED | DELIVERED}
    AND coalesce(min(id) = max(id), false) AS alike,
  bit_or(marks) & {DELIVERED} > 0
    AND bit_or(marks) & {ASKED | REFUSED | DAMAGED} <> {ASKED}
    OR coalesce(min(id) <> max(id), false) AS odd,
  max(time) FILTER (WHERE marks = {ASKED}) AS invoke_time,
  max(time) FILTER (WHERE marks = {CONFIRMED}) AS confirm_time,
  max(time) FILTER (WHERE marks = {DELIVERED}) AS deliver_time
FROM (
  SELECT xxhash64(body) AS body, CASE WHEN id IS NOT NULL THEN xxhash64(id) END AS id, time,
    CASE WHEN f = 'deliver' THEN CASE WHEN intact THEN {DELIVERED}
        WHEN NOT intact THEN {DELIVERED | DAMAGED} ELSE {DELIVERED | UNLIKE} END
      WHEN type = 'invoke' THEN {ASKED} WHEN type = 'ok' THEN {CONFIRMED}
      WHEN type = 'fail' THEN {REFUSED} ELSE {UNLIKE} END
    | CASE WHEN body IS NOT NULL AND {{plain}} AND CASE
        WHEN f = 'deliver' THEN id IS NOT NULL AND attempt = 1 AND failures = 0
        WHEN type = 'invoke' THEN coalesce(delay_s, 0) = 0
        ELSE id IS NOT NULL END THEN 0 ELSE {UNLIKE} END AS marks
  FROM everything WHERE f IN ('publish', 'deliver'))
GROUP BY body
"""
"""`alike`: of an ordinary life so far. `odd`: delivered without being asked for, refused, damaged,
or under two ids.
"""

BY_ID = f"""
SELECT id, min(body) AS body,
  count(*) = 4 AND bit_or(marks) = {STORED | RECEIVED | SETTLING | SETTLED}
    AND coalesce(min(body) = max(body), false) AND min(hold) = max(hold)
    AND max(index) FILTER (WHERE marks = {RECEIVED})
      < max(index) FILTER (WHERE marks = {SETTLING})
    AND max(index) FILTER (WHERE marks = {SETTLING})
      < max(index) FILTER (WHERE marks = {SETTLED}) AS alike,
  coalesce(min(body) <> max(body), false) AS odd,
  max(time) FILTER (WHERE marks = {RECEIVED}) AS handed_time,
  max(time) FILTER (WHERE marks = {SETTLING}) AS asked_time,
  max(time) FILTER (WHERE marks = {SETTLED}) AS answered_time
FROM (
  SELECT xxhash64(id) AS id, CASE WHEN body IS NOT NULL THEN xxhash64(body) END AS body,
    CASE WHEN f <> 'publish' THEN xxhash64(consumer, token, process, queue) END AS hold,
    time, index,
    CASE WHEN f = 'publish' THEN {STORED}
      WHEN consumer IS NULL OR token IS NULL THEN {OTHER}
      WHEN f = 'deliver' THEN {RECEIVED}
      WHEN verb = 'ack' AND type = 'invoke' THEN {SETTLING}
      WHEN verb = 'ack' AND type = 'ok' AND status = 'ok' AND NOT coalesce(late, false)
        THEN {SETTLED}
      ELSE {OTHER} END AS marks
  FROM everything
  WHERE id IS NOT NULL AND (f IN ('deliver', 'settle') OR f = 'publish' AND type = 'ok'))
GROUP BY id
"""
"""`alike`: of an ordinary life. `odd`: an id of two bodies."""

SIZES = """
SELECT 'bodies' AS name, count_if(odd) AS odd, count_if(NOT alike) AS unlike FROM by_body
UNION ALL SELECT 'ids', count_if(odd), count_if(NOT alike) FROM by_id
"""

CLOSER = {
    "closer_bodies": """
SELECT body AS hash FROM by_body WHERE NOT alike
UNION ALL SELECT body FROM by_body LEFT SEMI JOIN unlike_ids u ON u.hash = id WHERE alike""",
    "closer_ids": """
SELECT id AS hash FROM by_id WHERE NOT alike
UNION ALL SELECT id FROM by_id LEFT SEMI JOIN unlike_bodies u ON u.hash = body WHERE alike""",
}
"""A message that is unlike by its body has to be looked at by its id as well, and the other way
round. That is all: what is alike has one id and one body only.
"""

OF_ORDINARY = """
SELECT * FROM everything LEFT ANTI JOIN closer_bodies c ON c.hash = xxhash64(body)"""

ORDINARY = {
    "ordinary_bodies": "SELECT * FROM by_body LEFT ANTI JOIN closer_bodies c ON c.hash = body",
    "ordinary_ids": "SELECT * FROM by_id LEFT ANTI JOIN closer_ids c ON c.hash = id",
    "ordinary_confirms": f"""
SELECT process, index FROM ({OF_ORDINARY} WHERE f = 'publish' AND type = 'ok')""",
    "ordinary_firsts": f"""
SELECT d.queue, d.time, d.index, d.transit_s, d.waited_s, p.index AS invoke_index
FROM ({OF_ORDINARY} WHERE f = 'deliver') d JOIN everything p
  ON p.body = d.body AND p.f = 'publish' AND p.type = 'invoke'""",
}
NONE = {
    "ordinary_bodies": "SELECT * FROM by_body WHERE false",
    "ordinary_ids": "SELECT * FROM by_id WHERE false",
    "ordinary_confirms": "SELECT process, index FROM everything WHERE false",
    "ordinary_firsts": """
SELECT queue, time, index, transit_s, waited_s, index AS invoke_index FROM everything
WHERE false""",
}

LOOKED_AT = """
SELECT * FROM everything LEFT SEMI JOIN closer_bodies c ON c.hash = xxhash64(body)
WHERE f IN ('publish', 'deliver')
UNION ALL SELECT * FROM everything LEFT SEMI JOIN closer_ids c ON c.hash = xxhash64(id)
WHERE f IN ('settle', 'holds', 'renew')
UNION ALL SELECT * FROM everything
WHERE f NOT IN ('publish', 'deliver', 'settle', 'holds', 'renew')
"""
"""All events but those of ordinary messages."""


class Screen:
    """Makes the views; `keep` gives what a query makes a place on disk."""

    def __init__(self, spark: SparkSession, keep: Callable[[str], DataFrame]) -> None:
        self._spark = spark
        self._keep = keep

    def look(self, special: Collection[str], *, traced: bool) -> int:
        """Set ordinary messages aside, and give their number.

        From the view `everything` it makes `flat`, the events to be looked at exactly; the hashes
        `odd_bodies` and `odd_ids`; what was set aside as `ordinary_bodies`, `ordinary_ids`,
        `ordinary_confirms` and `ordinary_firsts`. `special` are queues with rules beyond a single
        message. A `traced` history tells more of each message than an ordinary life has: nothing is
        set aside there.
        """
        names = ", ".join(map(_quoted, ("", *special)))
        self._keep(BY_BODY.format(plain=f"queue NOT IN ({names})")).createOrReplaceTempView(
            "by_body"
        )
        self._keep(BY_ID).createOrReplaceTempView("by_id")
        sizes = {row["name"]: row for row in self._spark.sql(SIZES).collect()}
        bodies, ids = sizes["bodies"], sizes["ids"]
        self._view("odd_bodies", "SELECT body AS hash FROM by_body WHERE odd", bodies["odd"])
        self._view("odd_ids", "SELECT id AS hash FROM by_id WHERE odd", ids["odd"])
        closer = bodies["unlike"] + ids["unlike"]
        if traced or closer > BROADCAST_MAX:
            for name, query in {"flat": "SELECT * FROM everything", **NONE}.items():
                self._view(name, query)
            return 0
        self._view("unlike_bodies", "SELECT body AS hash FROM by_body WHERE NOT alike", closer)
        self._view("unlike_ids", "SELECT id AS hash FROM by_id WHERE NOT alike", closer)
        for name, query in CLOSER.items():
            _name(carried_out(self._spark, query), name, closer)
        _name(carried_out(self._spark, LOOKED_AT), "flat")
        for name, query in ORDINARY.items():
            self._view(name, query)
        return self._spark.table("ordinary_ids").count()

    def _view(self, name: str, query: str, size: int | None = None) -> None:
        _name(self._spark.sql(query), name, size)


def _name(table: DataFrame, name: str, size: int | None = None) -> None:
    """As a view; what is known to be small goes to every task."""
    small = size is not None and size <= BROADCAST_MAX
    (table.hint("broadcast") if small else table).createOrReplaceTempView(name)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
