"""Protobuf: a body is one message of a type in a descriptor set, as `protoc` writes it.

Owns which Spark type a field is, which are those of Spark's `from_protobuf`. Needs protobuf.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Any, Final, TypeAlias

from pyspark.sql import types as sql

import fifo
from fifo.spark.bodies.values import Misfit, Read, Write

MISSING: Final = (
    "option format: protobuf needs protobuf: pip install 'fifo-quorum[protobuf]', on the executors"
    " too"
)

_TIMESTAMP: Final = "google.protobuf.Timestamp"

_Get: TypeAlias = Callable[[Any], Any]
"""The value for Arrow of a value of protobuf."""

_Put: TypeAlias = Callable[[Any, Any], None]
"""Puts a value of Arrow, which is not None, into a message."""

_KINDS: Final[dict[str, sql.DataType]] = {
    "INT32": sql.IntegerType(),
    "SINT32": sql.IntegerType(),
    "SFIXED32": sql.IntegerType(),
    "UINT32": sql.LongType(),
    "FIXED32": sql.LongType(),
    "INT64": sql.LongType(),
    "SINT64": sql.LongType(),
    "SFIXED64": sql.LongType(),
    "UINT64": sql.DecimalType(20, 0),
    "FIXED64": sql.DecimalType(20, 0),
    "BOOL": sql.BooleanType(),
    "FLOAT": sql.FloatType(),
    "DOUBLE": sql.DoubleType(),
    "STRING": sql.StringType(),
    "BYTES": sql.BinaryType(),
    "ENUM": sql.StringType(),
}


class Protobuf:
    """A type of messages: its Spark type, a reader and a writer of bodies."""

    def __init__(self, message: str, descriptors: bytes) -> None:
        """Raises InvalidArgument where the set lacks the message, or Spark one of its types."""
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        except ImportError:
            raise fifo.InvalidArgument(MISSING) from None
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
                pool.Add(file)
            found = pool.FindMessageTypeByName(message)
        except KeyError:
            raise fifo.InvalidArgument(
                f"names message {message!r}, which is not in the file"
            ) from None
        except Exception as error:  # of protobuf's own, which differ by implementation
            raise fifo.InvalidArgument(
                "needs a file as protoc --include_imports --descriptor_set_out=FILE writes it:"
                f" {type(error).__name__}: {error}"
            ) from None
        self._class: Any = message_factory.GetMessageClass(found)
        walk = _MessageTypes(descriptor_pb2.FieldDescriptorProto)
        self.kind, self._get, self._put = walk.message(found)

    def reading(self) -> Read:
        """The reader of bodies."""
        parse, get = self._class.FromString, self._get

        def read(body: bytes) -> Any:
            try:
                return get(parse(body))
            except Exception as error:  # of protobuf's own, which differ by implementation
                raise Misfit(f"is no such message: {type(error).__name__}: {error}") from None

        return read

    def writing(self, kind: sql.DataType) -> Write:
        """The writer of bodies."""

        def write(value: Any) -> bytes:
            found = self._class()
            try:
                self._put(found, value)
                body: bytes = found.SerializeToString(deterministic=True)
            except Exception as error:  # values of another shape fail in as many ways
                raise Misfit(f"is no such message: {type(error).__name__}: {error}") from None
            return body

        return write


class _MessageTypes:
    """Goes through descriptors."""

    def __init__(self, field: Any) -> None:
        self._types = {number: name.removeprefix("TYPE_") for name, number in field.Type.items()}
        self._open: list[str] = []

    def message(self, descriptor: Any) -> tuple[sql.DataType, _Get, _Put]:
        """The Spark type of a message; from it, and into it."""
        if descriptor.full_name == _TIMESTAMP:
            return sql.TimestampType(), lambda found: found.ToDatetime(UTC), _put_time
        if descriptor.full_name in self._open:
            raise fifo.InvalidArgument(
                f"has {descriptor.full_name} within itself, which no Spark type can have"
            )
        self._open.append(descriptor.full_name)
        fields, gets, puts = [], [], {}
        for field in descriptor.fields:
            kind, get, put = self._field(field)
            fields.append(sql.StructField(field.name, kind))
            gets.append((field.name, get))
            puts[field.name] = put
        self._open.pop()

        def put_all(found: Any, value: Any) -> None:
            for name, one in value.items():
                if one is not None:
                    puts[name](found, one)

        return (
            sql.StructType(fields),
            lambda found: {name: get(found) for name, get in gets},
            put_all,
        )

    def _field(self, field: Any) -> tuple[sql.DataType, _Get, _Put]:
        """A field: its type, its value out of the message that has it, and into it."""
        name = field.name
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            return self._map(field)
        kind, get, put = self._value(field)
        if _is_repeated(field):
            if put is None:
                return (
                    sql.ArrayType(kind, containsNull=False),
                    lambda found: [get(one) for one in getattr(found, name)],
                    lambda found, value: getattr(found, name).extend(value),
                )

            def put_each(found: Any, value: Any) -> None:
                for one in value:
                    put(getattr(found, name).add(), one)

            return (
                sql.ArrayType(kind, containsNull=False),
                lambda found: [get(one) for one in getattr(found, name)],
                put_each,
            )
        if put is not None:

            def put_message(found: Any, value: Any) -> None:
                getattr(found, name).SetInParent()
                put(getattr(found, name), value)

            return kind, _present(name, get), put_message
        there = (
            _present(name, get) if field.has_presence else lambda found: get(getattr(found, name))
        )
        return kind, there, lambda found, value: setattr(found, name, _plain(kind, value))

    def _value(self, field: Any) -> tuple[sql.DataType, _Get, _Put | None]:
        """The type of a field's values; what puts one where it is a message."""
        if field.message_type is not None:
            return self.message(field.message_type)
        type_name = self._types[field.type]
        if type_name not in _KINDS:
            raise fifo.InvalidArgument(f"has a field of type {type_name}, which Spark has not")
        if type_name == "ENUM":
            names = field.enum_type.values_by_number
            return _KINDS[type_name], lambda value: _name_of(names, value), None
        return _KINDS[type_name], lambda value: value, None

    def _map(self, field: Any) -> tuple[sql.DataType, _Get, _Put]:
        name = field.name
        entry = field.message_type.fields_by_name
        key, get_key, _ = self._value(entry["key"])
        kind, get, put = self._value(entry["value"])

        def put_pairs(found: Any, value: Any) -> None:
            target = getattr(found, name)
            for one, of_it in value:
                if put is None:
                    target[one] = of_it
                else:
                    target[one].SetInParent()
                    put(target[one], of_it)

        return (
            sql.MapType(key, kind, valueContainsNull=False),
            lambda found: [
                (get_key(one), get(getattr(found, name)[one])) for one in getattr(found, name)
            ],
            put_pairs,
        )


def _is_repeated(field: Any) -> bool:
    """Newer versions of protobuf warn of `label`."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def _present(name: str, get: _Get) -> _Get:
    return lambda found: get(getattr(found, name)) if found.HasField(name) else None


def _name_of(names: Any, value: int) -> str:
    """The name of an enum's value; a number that the schema has not yet, as it is."""
    known = names.get(value)
    return str(value) if known is None else known.name


def _put_time(found: Any, value: Any) -> None:
    found.FromDatetime(value)


def _plain(kind: sql.DataType, value: Any) -> Any:
    return int(value) if isinstance(kind, sql.DecimalType) else value
