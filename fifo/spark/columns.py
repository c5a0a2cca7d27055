"""Messages as columns: the schema that is read, the columns that can be written, and both ways.

Owns names and types, and what is refused of a DataFrame. Works on Arrow batches. Must not connect.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as sql

import fifo
from fifo.spark.bodies.typed import EXTRAS
from fifo.spark.errors import SourceError
from fifo.words.bounds import PRIORITY_DEFAULT

_READ_FIELDS: Final[dict[str, sql.DataType]] = {
    "body": sql.BinaryType(),
    "key": sql.StringType(),
    "headers": sql.MapType(sql.StringType(), sql.StringType()),
    "priority": sql.IntegerType(),
    "id": sql.StringType(),
    "attempt": sql.IntegerType(),
    "published_at": sql.TimestampType(),
    "queue": sql.StringType(),
    "token": sql.StringType(),
}


READ: Final = tuple(_READ_FIELDS)
"""The names of all columns of a read."""

AT_THE_BROKER: Final = frozenset({"body", "key", "headers"})
"""Columns that a read leaves at the broker, where it wants none of them."""


def want_bodies(names: Sequence[str] | None) -> bool:
    """Whether a read of these columns, or of all, needs what lies in the log."""
    return names is None or bool(AT_THE_BROKER & {*names})


def read_schema(*, binary_keys: bool, names: Sequence[str] | None = None) -> sql.StructType:
    """Return the schema of a read: of these columns, or of all."""
    fields = dict(_READ_FIELDS, key=sql.BinaryType()) if binary_keys else _READ_FIELDS
    return sql.StructType([sql.StructField(name, fields[name]) for name in names or READ])


def arrow_schema(*, binary_keys: bool, names: Sequence[str] | None = None) -> pa.Schema:
    """The same for Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(read_schema(binary_keys=binary_keys, names=names), timezone="UTC")


TABLE: Final = "fifo.options"
"""The metadata of the first column that keeps a table's options: Spark gives the reader of a table
in its catalog no option, but the schema that was found when it was created."""


def table_schema(schema: sql.StructType, given: Mapping[str, str]) -> sql.StructType:
    """Return the schema of a table in Spark's catalog, which knows these options."""
    first, *others = schema.fields
    kept = {TABLE: json.dumps(dict(given))}
    return sql.StructType(
        [sql.StructField(first.name, first.dataType, first.nullable, kept), *others]
    )


def table_options(schema: sql.StructType) -> dict[str, str] | None:
    """The options that a table's schema keeps; None where it is no table's."""
    kept = schema.fields[0].metadata.get(TABLE) if schema.fields else None
    return None if kept is None else dict(json.loads(kept))


def sent(schema: sql.StructType, id_column: str | None = None) -> sql.StructType:
    """The columns that are written of those given: an INSERT has all columns of a read, and what
    only a read can have is left out then, but for the column of ids."""
    if [name for name in schema.fieldNames() if name not in EXTRAS] != list(_READ_FIELDS):
        return schema
    wanted = {*_WRITTEN, id_column}
    return sql.StructType([field for field in schema.fields if field.name in wanted])


def check_read_schema(given: sql.StructType, ours: sql.StructType) -> None:
    """Refuse a schema that the user gave and that is another one."""
    if [(field.name, field.dataType.simpleString()) for field in given.fields] != [
        (field.name, field.dataType.simpleString()) for field in ours.fields
    ]:
        raise fifo.InvalidArgument(
            f"the schema of format fifo is fixed: leave .schema(...) out and select from"
            f" {ours.simpleString()}"
        )


def token_of(consumer: int, token: int) -> str:
    """The column `token`: the reservation's number and the message's place in it."""
    return f"{consumer}.{token}"


def parse_token(text: str) -> tuple[int, int]:
    """(consumer, token) of a column `token`."""
    consumer, _, token = text.partition(".")
    if not (consumer.isascii() and consumer.isdigit() and token.isascii() and token.isdigit()):
        raise SourceError(f"{text[:40]!r} is no token: use the column token of a read")
    return int(consumer), int(token)


# What is written.

_TEXT_OR_BYTES: Final = (sql.StringType, sql.BinaryType, sql.VarcharType, sql.CharType)
_WHOLE: Final = (sql.ByteType, sql.ShortType, sql.IntegerType, sql.LongType)
_SECONDS: Final = (
    *_WHOLE,
    sql.FloatType,
    sql.DoubleType,
    sql.DecimalType,
    sql.DayTimeIntervalType,
)


def is_seconds(kind: sql.DataType) -> bool:
    """Whether a column of this type can be a delay."""
    return isinstance(kind, _SECONDS)


_WRITTEN: Final[dict[str, tuple[str, Callable[[sql.DataType], bool]]]] = {
    "body": ("binary or string", lambda kind: isinstance(kind, _TEXT_OR_BYTES)),
    "key": ("string or binary", lambda kind: isinstance(kind, _TEXT_OR_BYTES)),
    "headers": (
        "map<string,string>",
        lambda kind: (
            isinstance(kind, sql.MapType)
            and isinstance(kind.keyType, sql.StringType)
            and isinstance(kind.valueType, sql.StringType)
        ),
    ),
    "priority": ("a whole number from 0 to 9", lambda kind: isinstance(kind, _WHOLE)),
    "delay": ("seconds or an interval", is_seconds),
}


def check_written(schema: sql.StructType, id_column: str | None = None) -> None:
    """Refuse a DataFrame that has no body, columns that mean nothing, or other types."""
    if id_column is not None:
        _check_ids(schema, id_column)
    for field in schema.fields:
        known = _WRITTEN.get(field.name)
        if known is None and field.name == id_column:
            continue
        if known is None:
            raise fifo.InvalidArgument(_no_such_column(field.name))
        wanted, fits = known
        if not fits(field.dataType):
            raise fifo.InvalidArgument(
                f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}:"
                " cast it before writing"
            )
    if "body" not in schema.fieldNames():
        raise fifo.InvalidArgument(
            'there is no column body: select what is to be sent, such as to_json(...).alias("body")'
        )


def _check_ids(schema: sql.StructType, name: str) -> None:
    if name not in schema.fieldNames():
        raise fifo.InvalidArgument(f"option idColumn: the DataFrame has no column {name!r}")
    kind = schema[name].dataType
    if not isinstance(kind, (*_TEXT_OR_BYTES, *_WHOLE)):
        raise fifo.InvalidArgument(
            f"option idColumn: column {name} must be a string, binary or a whole number, not"
            f" {kind.simpleString()}: cast it before writing"
        )


def _no_such_column(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), _WRITTEN, 1)
    hint = f"did you mean {close[0]}?" if close else f"select only {', '.join(_WRITTEN)}"
    return f"column {name!r} cannot be written to a queue; {hint}"


class Written(NamedTuple):
    """Rows as `send_many` takes them; None for a column that is not there."""

    bodies: list[bytes]
    columns: dict[str, Any]


def to_messages(
    batch: pa.RecordBatch | pa.Table, first_row: int, id_column: str | None = None
) -> Written:
    """The columns of some rows for the client; raises InvalidArgument for a null where none may be.

    `first_row` is the number of the first of them in its partition, for the error.
    """
    bodies = batch.column("body")
    if bodies.null_count:
        row = first_row + bodies.is_null().to_pylist().index(True)
        raise fifo.InvalidArgument(
            f"row {row}: body is null; filter such rows out, or coalesce to a default"
        )
    columns = {
        argument: convert(batch.column(name).to_pylist(), first_row)
        for name, (argument, convert) in _CONVERTED.items()
        if name in batch.schema.names
    }
    if id_column is not None:
        columns["dedup_ids"] = _ids(batch.column(id_column), id_column, first_row)
    return Written(bodies.cast(pa.binary()).to_pylist(), columns)


def _ids(values: pa.Array | pa.ChunkedArray, name: str, first_row: int) -> list[str | bytes]:
    if values.null_count:
        row = first_row + values.is_null().to_pylist().index(True)
        raise fifo.InvalidArgument(f"row {row}: {name} is null; every row needs an id of its own")
    return [one if isinstance(one, (str, bytes)) else str(one) for one in values.to_pylist()]


def _as_they_are(values: list[Any], first_row: int) -> list[Any]:
    return values


def _headers(values: list[Any], first_row: int) -> list[Mapping[str, str] | None]:
    maps: list[Mapping[str, str] | None] = [
        None if value is None else dict(value) for value in values
    ]
    for row, found in enumerate(maps, first_row):
        if found and None in found.values():
            raise fifo.InvalidArgument(f"row {row}: a header is null; leave it out of the map")
    return maps


def _priorities(values: list[Any], first_row: int) -> list[int]:
    return [PRIORITY_DEFAULT if value is None else value for value in values]


def _delays(values: list[Any], first_row: int) -> list[float | timedelta | None]:
    return [
        value if value is None or isinstance(value, timedelta) else float(value) for value in values
    ]


_CONVERTED: Final[dict[str, tuple[str, Callable[[list[Any], int], list[Any]]]]] = {
    "key": ("keys", _as_they_are),
    "headers": ("headers", _headers),
    "priority": ("priorities", _priorities),
    "delay": ("delays", _delays),
}
