"""What may break a rule about bodies: a cheap look at hashes, before anything is looked at exactly.

Owns which bodies and ids are odd. Rules about them would join every delivery with every publish by
text; of a good history nothing is left to join. Hashes only choose what is judged: where two texts
share one, too much is judged, and the verdict stays exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

BROADCAST_MAX = 1_000_000
"""So many odd hashes are held in memory by every task; more are joined like tables."""

SEEN = """
SELECT xxhash64(body) AS body, xxhash64(id) AS id, invoke_index IS NOT NULL AS asked,
  refused IS NOT NULL AS wrong, false AS seen
FROM bodies
UNION ALL SELECT xxhash64(body), xxhash64(id), false, NOT intact, true FROM delivered
"""

NO_ID = "xxhash64(CAST(null AS string))"
"""Of a confirm that named none, or of a publish without a confirm."""

ODD = {
    "odd_bodies": f"""
SELECT body AS hash FROM ({SEEN}) GROUP BY body
HAVING max(seen) AND (NOT max(asked) OR max(wrong))
  OR min(id) FILTER (WHERE id <> {NO_ID}) <> max(id) FILTER (WHERE id <> {NO_ID})""",
    "odd_ids": f"""
SELECT id AS hash FROM ({SEEN}) WHERE id <> {NO_ID} GROUP BY id HAVING min(body) <> max(body)""",
}
"""Delivered without being asked for, refused, damaged, or under two ids; ids with two bodies."""


def screen(spark: SparkSession, keep: Callable[[DataFrame], DataFrame]) -> None:
    """Make the views `odd_bodies` and `odd_ids`, each of hashes."""
    for name, query in ODD.items():
        found = keep(spark.sql(query))
        if found.count() <= BROADCAST_MAX:
            found = found.hint("broadcast")
        found.createOrReplaceTempView(name)
