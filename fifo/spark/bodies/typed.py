"""Typed bodies around batches of Arrow: bytes in, the column `body` of a type out, and back.

Owns the options' meaning, the columns of a read that has them, and what becomes of a body that does
not fit. Must not know how a batch is read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as sql
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fifo
from fifo.spark.bodies import ddl, json_format
from fifo.spark.bodies.avro_format import Avro
from fifo.spark.bodies.protobuf_format import Protobuf
from fifo.spark.bodies.values import Misfit, Read, Write
from fifo.spark.errors import SourceError

JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
FORMATS: Final = (JSON, AVRO, PROTOBUF)

FAIL: Final = "failfast"
KEEP: Final = "permissive"
MODES: Final = (FAIL, KEEP)

ERROR: Final = "body_error"
RAW: Final = "raw_body"
EXTRAS: Final = {ERROR: sql.StringType(), RAW: sql.BinaryType()}
"""Columns that say what is wrong with a body, where that does not fail the read."""

_ERROR_CHARS: Final = 400
"""Characters of such an error: it may become the reason of a dead letter."""


@dataclass(frozen=True)
class Body:
    """The options of typed bodies, checked; pickled to the tasks."""

    format: str
    schema: str = ""
    """A type as text, an Avro schema, or the name of a protobuf message."""
    descriptors: bytes = b""
    """Of protobuf."""
    keep: bool = False
    """Whether a body that does not fit is a row that says so."""

    def __getstate__(self) -> dict[str, Any]:
        # Schemas of fastavro and protobuf are made anew in each process.
        return {name: value for name, value in self.__dict__.items() if name in _PICKLED}

    @cached_property
    def _codec(self) -> Avro | Protobuf | None:
        if self.format == AVRO:
            return Avro(self.schema)
        return Protobuf(self.schema, self.descriptors) if self.format == PROTOBUF else None

    @cached_property
    def kind(self) -> sql.DataType:
        """The type of the column `body`."""
        return ddl.parse(self.schema) if self._codec is None else self._codec.kind

    def reading(self) -> Read:
        """The reader of bodies."""
        return json_format.reading(self.kind) if self._codec is None else self._codec.reading()

    def writing(self, kind: sql.DataType) -> Write:
        """The writer of bodies from values of this type."""
        return json_format.writing(kind) if self._codec is None else self._codec.writing(kind)


_PICKLED: Final = ("format", "schema", "descriptors", "keep")


def of_options(
    body_format: str | None, schema: str | None, file: bytes | None, mode: str | None
) -> Body | None:
    """The typed bodies that these options ask for. Raises InvalidArgument, naming the option."""
    given = {"bodySchema": schema, "bodySchemaFile": file, "mode": mode}
    if body_format is None:
        alone = next((name for name, value in given.items() if value is not None), None)
        if alone is not None:
            raise fifo.InvalidArgument(
                f"option {alone} needs the option format: one of {', '.join(FORMATS)}"
            )
        return None
    if body_format == PROTOBUF:
        _needs(schema, "bodySchema", "the name of a message, such as shop.Order")
        _needs(file, "bodySchemaFile", "a file of protoc --include_imports --descriptor_set_out")
    elif schema is not None and file is not None:
        raise fifo.InvalidArgument("option bodySchemaFile: there is a bodySchema as well")
    descriptors = (file or b"") if body_format == PROTOBUF else b""
    found = Body(body_format, schema or _text(file), descriptors, mode == KEEP)
    if found.schema:
        try:
            found.reading()
        except fifo.InvalidArgument as error:
            raise fifo.InvalidArgument(f"option bodySchema: {error}") from None
    return found


def _needs(value: Any, name: str, what: str) -> None:
    if not value:
        raise fifo.InvalidArgument(f"option {name} is missing: {what}")


def _text(file: bytes | None) -> str:
    try:
        return (file or b"").decode()
    except UnicodeDecodeError:
        raise fifo.InvalidArgument("option bodySchemaFile: is not UTF-8") from None


def check_read(body: Body) -> None:
    """Refuse a read that says no type."""
    _needs(body.schema, "bodySchema", f"a schema of the {body.format} bodies; see fifo.spark.infer")


def read_schema(plain: sql.StructType, body: Body | None) -> sql.StructType:
    """The columns of a read, with the type of its bodies."""
    if body is None:
        return plain
    check_read(body)
    if "body" not in plain.fieldNames():
        raise fifo.InvalidArgument("option format has no effect without the column body")
    extras = EXTRAS if body.keep else {}
    return sql.StructType(
        [
            sql.StructField(one.name, body.kind if one.name == "body" else one.dataType)
            for one in plain.fields
        ]
        + [sql.StructField(name, kind) for name, kind in extras.items()]
    )


class TypedReader(DataSourceReader):
    """A batch read whose bodies have a type."""

    def __init__(self, reader: DataSourceReader, body: Body, where: str) -> None:
        self._reader = reader
        self._body = body
        self._where = where

    def partitions(self) -> Any:
        """As the read without types."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return decoded(self._reader.read(partition), self._body, self._where)


def decoded(
    batches: Iterator[pa.RecordBatch], body: Body | None, where: str
) -> Iterator[pa.RecordBatch]:
    """The same rows with bodies of their type. Raises SourceError for one that does not fit."""
    if body is None:
        yield from batches
        return
    decoder = _Decoder(body, where)
    for batch in batches:
        yield decoder.decode(batch)


class _Decoder:
    """Makes typed batches of plain ones, all of one schema."""

    def __init__(self, body: Body, where: str) -> None:
        self._body = body
        self._where = where
        self._read = body.reading()
        self._kind = _arrow_type(body.kind)

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decode one batch."""
        place = batch.schema.get_field_index("body")
        raw = batch.column(place).to_pylist()
        values: list[Any] = [None] * len(raw)
        errors: list[str | None] = [None] * len(raw)
        for row, body in enumerate(raw):
            try:
                values[row] = self._read(body)
            except Misfit as error:
                self._misfit(batch, row, errors, str(error))
        typed = self._array(batch, values, errors)
        fields = list(batch.schema)
        arrays = list(batch.columns)
        fields[place], arrays[place] = pa.field("body", self._kind), typed
        if self._body.keep:
            fields += [pa.field(ERROR, pa.string()), pa.field(RAW, pa.binary())]
            wrong = [one if error else None for one, error in zip(raw, errors, strict=True)]
            arrays += [pa.array(errors, pa.string()), pa.array(wrong, pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _array(
        self, batch: pa.RecordBatch, values: list[Any], errors: list[str | None]
    ) -> pa.Array:
        """The column; row by row where one has a value that Arrow cannot hold, such as half of a
        character."""
        try:
            return pa.array(values, self._kind)
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            for row, value in enumerate(values):
                try:
                    pa.array([value], self._kind)
                except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
                    values[row] = None
                    self._misfit(batch, row, errors, f"cannot be a column: {error}")
        return pa.array(values, self._kind)

    def _misfit(self, batch: pa.RecordBatch, row: int, errors: list[str | None], text: str) -> None:
        text = " ".join(text.split())[:_ERROR_CHARS]
        if self._body.keep:
            errors[row] = text
            return
        ids = batch.schema.get_field_index("id")
        name = f" of message {batch.column(ids)[row].as_py()}" if ids >= 0 else ""
        raise SourceError(
            f'{self._where}: the body{name} does not fit: {text}; .option("mode", "permissive")'
            f" reads it as null, with the columns {ERROR} and {RAW}"
        )


def _arrow_type(kind: sql.DataType) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC")


# What is written.


def written_schema(schema: sql.StructType, body: Body | None) -> sql.StructType:
    """The columns as they are sent, with bytes for a body. Raises InvalidArgument where the type of
    `body` cannot be encoded."""
    if body is None or "body" not in schema.fieldNames():
        return schema
    kind = schema["body"].dataType
    if not isinstance(kind, (sql.StructType, sql.ArrayType, sql.MapType)):
        raise fifo.InvalidArgument(
            f"column body must be a struct, an array or a map with the option format, not"
            f" {kind.simpleString()}: select struct(...) as body, or leave the option out"
        )
    if body.format != JSON:
        check_read(body)
        _check_names(kind, body.kind)
    body.writing(kind)
    return sql.StructType(
        [
            sql.StructField(one.name, sql.BinaryType() if one.name == "body" else one.dataType)
            for one in schema.fields
        ]
    )


def _check_names(given: sql.DataType, wanted: sql.DataType) -> None:
    if not isinstance(given, sql.StructType) or not isinstance(wanted, sql.StructType):
        return
    for name in given.fieldNames():
        if name not in wanted.fieldNames():
            raise fifo.InvalidArgument(
                f"column body has a field {name!r} that the bodySchema has not; it has"
                f" {', '.join(wanted.fieldNames())}"
            )


def encoded(batches: Iterator[pa.RecordBatch], body: Body | None) -> Iterator[pa.RecordBatch]:
    """The same rows with the bytes of their bodies. Raises InvalidArgument with the row that does
    not fit."""
    if body is None:
        yield from batches
        return
    write: Write | None = None
    first = 1
    for batch in batches:
        place = batch.schema.get_field_index("body")
        if write is None:
            write = body.writing(_spark_type(batch.schema.field(place).type))
        values = batch.column(place).to_pylist()
        bodies = [_encode(write, value, first + row) for row, value in enumerate(values)]
        first += batch.num_rows
        arrays = list(batch.columns)
        arrays[place] = pa.array(bodies, pa.binary())
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _encode(write: Callable[[Any], bytes], value: Any, row: int) -> bytes | None:
    """Null stays null, for the writer to refuse."""
    if value is None:
        return None
    try:
        return write(value)
    except Misfit as error:
        raise fifo.InvalidArgument(f"row {row}: body {error}") from None


def _spark_type(kind: pa.DataType) -> sql.DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)
