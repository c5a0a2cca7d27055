"""Avro: a body is one value in Avro's binary encoding, without a header, of a schema that is given.

Owns which Spark type an Avro type is, which are those of Spark's `from_avro`. Needs fastavro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyspark.sql import types as sql

import fifo
from fifo.spark.bodies.values import Misfit, Read, Write

MISSING: Final = (
    "option format: avro needs fastavro: pip install 'fifo-quorum[avro]', on the executors too"
)

_Convert: TypeAlias = Callable[[Any], Any]

_PRIMITIVE: Final[dict[str, sql.DataType]] = {
    "boolean": sql.BooleanType(),
    "int": sql.IntegerType(),
    "long": sql.LongType(),
    "float": sql.FloatType(),
    "double": sql.DoubleType(),
    "bytes": sql.BinaryType(),
    "string": sql.StringType(),
}
_LOGICAL: Final[dict[str, sql.DataType]] = {
    "date": sql.DateType(),
    "timestamp-millis": sql.TimestampType(),
    "timestamp-micros": sql.TimestampType(),
    "local-timestamp-millis": sql.TimestampNTZType(),
    "local-timestamp-micros": sql.TimestampNTZType(),
    "uuid": sql.StringType(),
}


class Avro:
    """A schema of Avro: its Spark type, a reader and a writer of bodies."""

    def __init__(self, text: str) -> None:
        """Raises InvalidArgument for a text that is no schema, or has a type that Spark lacks."""
        try:
            import fastavro
        except ImportError:
            raise fifo.InvalidArgument(MISSING) from None
        try:
            self._schema = fastavro.parse_schema(json.loads(text))
        except Exception as error:  # of fastavro's, and what it makes of JSON that is no schema
            raise fifo.InvalidArgument(
                f"is no Avro schema: {type(error).__name__}: {error}"
            ) from None
        self.kind, self._arrow = _AvroTypes().type_of(self._schema)

    def reading(self) -> Read:
        """The reader of bodies."""
        from fastavro import schemaless_reader

        schema, convert = self._schema, self._arrow

        def read(body: bytes) -> Any:
            stream = io.BytesIO(body)
            try:
                found = schemaless_reader(stream, schema, None)
            except Exception as error:  # bytes of anything else fail in as many ways
                raise Misfit(
                    f"is not of the Avro schema: {type(error).__name__}: {error}"
                ) from None
            if stream.tell() < len(body):
                more = len(body) - stream.tell()
                raise Misfit(f"is not of the Avro schema: {more} bytes are left behind it")
            if found is None:
                raise Misfit("is null")
            return convert(found)

        return read

    def writing(self, kind: sql.DataType) -> Write:
        """The writer of bodies from values of this type."""
        from fastavro import schemaless_writer

        schema, plain = self._schema, maps_as_dicts(kind)

        def write(value: Any) -> bytes:
            stream = io.BytesIO()
            try:
                schemaless_writer(stream, schema, plain(value), strict_allow_default=True)
            except Exception as error:  # values of another shape fail in as many ways
                raise Misfit(
                    f"is not of the Avro schema: {type(error).__name__}: {error}"
                ) from None
            return stream.getvalue()

        return write


def maps_as_dicts(kind: sql.DataType) -> _Convert:
    """From a value of Arrow, whose maps are lists of pairs, to one with dicts."""
    if isinstance(kind, sql.StructType):
        fields = [(field.name, _or_null(maps_as_dicts(field.dataType))) for field in kind.fields]
        return lambda value: {name: one(value[name]) for name, one in fields}
    if isinstance(kind, sql.ArrayType):
        element = _or_null(maps_as_dicts(kind.elementType))
        return lambda value: [element(one) for one in value]
    if isinstance(kind, sql.MapType):
        entry = _or_null(maps_as_dicts(kind.valueType))
        return lambda value: {name: entry(one) for name, one in value}
    return lambda value: value


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


class _AvroTypes:
    """Goes through a parsed schema; knows the types that have names."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def type_of(self, schema: Any) -> tuple[sql.DataType, _Convert]:
        """The Spark type, and what makes a value of fastavro one for Arrow."""
        if isinstance(schema, list):
            return self._union(schema)[:2]
        if isinstance(schema, str):
            return self._by_name(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "enum":
            self._named[schema["name"]] = schema
            return sql.StringType(), _same
        if kind == "fixed":
            self._named[schema["name"]] = schema
        if kind == "array":
            element, convert = self._element(schema["items"])
            return sql.ArrayType(*element), lambda value: [convert(one) for one in value]
        if kind == "map":
            element, convert = self._element(schema["values"])
            return sql.MapType(sql.StringType(), *element), lambda value: [
                (name, convert(one)) for name, one in value.items()
            ]
        return self._logical(schema) or self.type_of("bytes" if kind == "fixed" else kind)

    def _by_name(self, name: str) -> tuple[sql.DataType, _Convert]:
        if name in _PRIMITIVE:
            return _PRIMITIVE[name], _same
        if name in self._open:
            raise fifo.InvalidArgument(f"has {name} within itself, which no Spark type can have")
        if name not in self._named:
            raise fifo.InvalidArgument(f"has type {name}, which Spark has not")
        return self.type_of(self._named[name])

    def _logical(self, schema: dict[str, Any]) -> tuple[sql.DataType, _Convert] | None:
        logical = schema.get("logicalType")
        if logical == "decimal":
            return sql.DecimalType(schema["precision"], schema.get("scale", 0)), _same
        if logical in ("time-millis", "time-micros"):
            raise fifo.InvalidArgument(f"has the logical type {logical}, which Spark has not")
        if logical not in _LOGICAL:
            return None
        return _LOGICAL[logical], _text_of_uuid if logical == "uuid" else _same

    def _record(self, schema: dict[str, Any]) -> tuple[sql.DataType, _Convert]:
        name = schema["name"]
        self._named[name] = schema
        self._open.append(name)
        fields, converts = [], []
        for field in schema["fields"]:
            (kind, nullable), convert = self._element(field["type"])
            fields.append(sql.StructField(field["name"], kind, nullable))
            converts.append((field["name"], convert))
        self._open.pop()
        return sql.StructType(fields), lambda value: {
            name: convert(value[name]) for name, convert in converts
        }

    def _element(self, schema: Any) -> tuple[tuple[sql.DataType, bool], _Convert]:
        """The type within another one, and whether it may be null."""
        if not isinstance(schema, list):
            kind, convert = self.type_of(schema)
            return (kind, False), convert
        kind, convert, nullable = self._union(schema)
        return (kind, nullable), _or_null(convert)

    def _union(self, schema: list[Any]) -> tuple[sql.DataType, _Convert, bool]:
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            kind, convert = self.type_of(others[0])
        elif sorted(map(str, others)) == ["int", "long"]:
            kind, convert = sql.LongType(), _same
        elif sorted(map(str, others)) == ["double", "float"]:
            kind, convert = sql.DoubleType(), _same
        else:
            raise fifo.InvalidArgument(
                f"has a union of {len(others)} types: Spark has one type, which may be null"
            )
        return kind, convert, len(others) < len(schema)


def _text_of_uuid(value: UUID) -> str:
    return str(value)
