"""The form of a history as Spark sees it: one row per event, `value` with every field there is.

Owns the schema. Update with it: docs/history.md, where the fields are explained. Objects of free
form (`spec`, `queues`, `nodes`) stay JSON text. Knows no rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KINDS = ("invoke", "ok", "fail", "info")

FIELDS = ("type", "f", "value", "process", "time", "index")

VALUES = {
    "queue": "string",
    "body": "string",
    "id": "string",
    "consumer": "bigint",
    "token": "bigint",
    "attempt": "bigint",
    "failures": "bigint",
    "intact": "boolean",
    "reason": "string",
    "key": "string",
    "at_ms": "bigint",
    "lock_ms": "double",
    "transit_s": "double",
    "waited_s": "double",
    "remaining_s": "double",
    "verb": "string",
    "delay_s": "double",
    "delay_max_s": "double",
    "status": "string",
    "late": "boolean",
    "priority": "bigint",
    "ttl_s": "double",
    "dedup_id": "string",
    "prefetch": "bigint",
    "lock_s": "double",
    "renews": "boolean",
    "active": "boolean",
    "count": "bigint",
    "moved": "bigint",
    "what": "string",
    "seconds": "double",
    "limit_s": "double",
    "fault": "string",
    "nodes": "string",
    "lasting": "boolean",
    "node": "string",
    "term": "bigint",
    "applied": "bigint",
    "hash": "string",
    "queues": "string",
    "spec": "string",
    "cluster_ms": "bigint",
    "wall_ms": "bigint",
    "error": "string",
}
"""Every field of every kind of event; what a history has besides is ignored."""

TEXTS_OF_JSON = ("spec", "queues", "nodes")


def value_type() -> str:
    """The type of `value`, as Spark writes types."""
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in VALUES.items())
    return f"struct<{fields}>"


def schema(*more: str) -> StructType:
    """The schema of a history's rows, and further text columns."""
    from pyspark.sql.types import StructType

    columns = [
        "`type` string",
        "`f` string",
        f"`value` {value_type()}",
        "`process` string",
        "`time` double",
        "`index` bigint",
        *(f"`{name}` string" for name in more),
    ]
    found = StructType.fromDDL(", ".join(columns))
    assert isinstance(found, StructType), "columns make a struct"
    return found
