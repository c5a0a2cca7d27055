"""System tables: queues, consumers, locks, delayed messages and dead letters as rows.

Owns their names, columns and conversions. They are read from a pinned view, so that all rows of a
read are of one index. Must not connect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as sql

import fifo
from fifo.client import ScanKeywords

if TYPE_CHECKING:
    from fifo.blocking import BlockingPinnedView

QUEUES: Final = "queues"
CONSUMERS: Final = "consumers"
LOCKS: Final = "locks"
DELAYED: Final = "delayed"
DEAD_LETTERS: Final = "dead_letters"

WANTED: Final[dict[str | None, ScanKeywords]] = {
    None: {},
    LOCKS: {"state": "locked"},
    DELAYED: {"state": "delayed"},
    DEAD_LETTERS: {"state": "dead"},
}
"""The messages that the rows of a table are about."""

_TEXT, _LONG, _INT = sql.StringType(), sql.LongType(), sql.IntegerType()
_TIME, _FLAG = sql.TimestampType(), sql.BooleanType()

_COLUMNS: Final[dict[str, dict[str, sql.DataType]]] = {
    QUEUES: {
        "queue": _TEXT,
        "ready": _LONG,
        "locked": _LONG,
        "delayed": _LONG,
        "messages": _LONG,
        "bytes": _LONG,
        "consumers": _LONG,
        "paused": _FLAG,
        "spec": _TEXT,
        "counters": sql.MapType(_TEXT, _LONG),
    },
    CONSUMERS: {
        "queue": _TEXT,
        "consumer": _LONG,
        "tag": _TEXT,
        "label": _TEXT,
        "user": _TEXT,
        "client": _TEXT,
        "address": _TEXT,
        "session": _TEXT,
        "status": _TEXT,
        "flags": sql.ArrayType(_TEXT),
        "prefetch": _LONG,
        "held": _LONG,
        "durable": _LONG,
    },
    LOCKS: {
        "queue": _TEXT,
        "id": _TEXT,
        "key": _TEXT,
        "attempt": _INT,
        "consumer": _LONG,
        "token": _LONG,
        "tag": _TEXT,
        "user": _TEXT,
        "client": _TEXT,
        "address": _TEXT,
        "locked_at": _TIME,
        "locked_until": _TIME,
    },
    DELAYED: {
        "queue": _TEXT,
        "id": _TEXT,
        "key": _TEXT,
        "attempt": _INT,
        "failures": _INT,
        "cause": _TEXT,
        "due_at": _TIME,
    },
    DEAD_LETTERS: {
        "queue": _TEXT,
        "id": _TEXT,
        "key": _TEXT,
        "headers": sql.MapType(_TEXT, _TEXT),
        "body": sql.BinaryType(),
        "source": _TEXT,
        "reason": _TEXT,
        "detail": _TEXT,
        "description": _TEXT,
        "exception": _TEXT,
        "exception_type": _TEXT,
        "stack": _TEXT,
        "died_at": _TIME,
        "published_at": _TIME,
        "attempt": _INT,
    },
}


def schema_of(table: str) -> sql.StructType:
    """The columns of a system table."""
    return sql.StructType([sql.StructField(name, kind) for name, kind in _COLUMNS[table].items()])


def _arrow(table: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema_of(table), timezone="UTC")


def _batch(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    schema = _arrow(table)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def of_queues(queues: Sequence[fifo.QueueView]) -> pa.RecordBatch:
    """A row for each queue."""
    names = ("ready", "locked", "delayed", "messages", "bytes", "consumers", "paused")
    return _batch(
        QUEUES,
        [
            {
                "queue": one.name,
                "spec": json.dumps(dict(one.spec), default=str),
                "counters": list(one.counters.items()),
                **{name: getattr(one, name) for name in names},
            }
            for one in queues
        ],
    )


def of_consumers(queue: str, consumers: Sequence[fifo.ConsumerView]) -> pa.RecordBatch:
    """A row for each consumer of a queue."""
    rows = []
    for one in consumers:
        sent = one.as_dict()
        row = {name: sent.get(name) for name in _COLUMNS[CONSUMERS]}
        rows.append(row | {"queue": queue, "flags": list(sent.get("flags", ()))})
    return _batch(CONSUMERS, rows)


Holders = Mapping[int, Mapping[str, Any]]
"""The consumers of a queue by their numbers, each as the node sends it."""


def holders(table: str | None, view: BlockingPinnedView, queue: str) -> Holders:
    """The consumers of a queue, where the rows of the table name them."""
    if table != LOCKS:
        return {}
    return {one.consumer: one.as_dict() for one in view.consumers(queue)}


def of_messages(
    table: str, messages: Sequence[fifo.ScannedMessage], holders: Holders
) -> pa.RecordBatch:
    """A row for each message."""
    row = _ROWS[table]
    return _batch(table, [_common(one) | row(one, holders) for one in messages])


def _common(one: fifo.ScannedMessage) -> dict[str, Any]:
    key = one.key
    shown = key.decode(errors="replace") if isinstance(key, bytes) else key
    return {"queue": one.queue, "id": one.id, "key": shown, "attempt": one.attempt}


def _lock(one: fifo.ScannedMessage, holders: Holders) -> dict[str, Any]:
    holder = holders.get(one.consumer or 0, {})
    return {
        "consumer": one.consumer,
        "token": one.token,
        **{name: holder.get(name) for name in ("tag", "user", "client", "address")},
        "locked_at": one.locked_at,
        "locked_until": one.locked_until,
    }


def _delayed(one: fifo.ScannedMessage, holders: Holders) -> dict[str, Any]:
    return {"failures": one.failures, "cause": one.cause, "due_at": one.due_at}


def _dead(one: fifo.ScannedMessage, holders: Holders) -> dict[str, Any]:
    letter = one.dead_letter
    assert letter is not None, "the page was asked for dead letters"
    return {
        "headers": list(one.headers.items()),
        "body": one.body,
        **{
            name: getattr(letter, name)
            for name in ("source", "reason", "detail", "description", "exception", "stack")
        },
        "exception_type": letter.record.get("exception_type"),
        "died_at": letter.died_at,
        "published_at": one.published_at,
    }


_ROWS: Final[dict[str, Callable[[fifo.ScannedMessage, Holders], dict[str, Any]]]] = {
    LOCKS: _lock,
    DELAYED: _delayed,
    DEAD_LETTERS: _dead,
}
