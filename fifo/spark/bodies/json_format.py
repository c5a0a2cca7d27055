"""JSON: a body of a Spark type, as `from_json` would have it, but never a value bent to fit.

Owns which JSON fits which type. A field that is missing is null, one that is not in the schema is
left out, a string takes any value as its text; all else fits or the body does not.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from pyspark.sql import types as sql

import fifo
from fifo.spark.bodies.values import Misfit, Read, Write, at, inside, shown

_Convert: TypeAlias = Callable[[Any, str], Any]
"""The value for Arrow of a value of JSON, which is never None, at a path; raises Misfit."""

_BITS: Final[dict[type[sql.DataType], int]] = {
    sql.ByteType: 8,
    sql.ShortType: 16,
    sql.IntegerType: 32,
    sql.LongType: 64,
}


def reading(kind: sql.DataType) -> Read:
    """The reader of bodies of this type. Raises InvalidArgument for one that JSON cannot have."""
    convert = _converter(kind)
    # A decimal keeps the digits that were sent.
    floats = Decimal if "decimal" in kind.simpleString() else float

    def read(body: bytes) -> Any:
        try:
            found = json.loads(body, parse_float=floats)
        except (ValueError, RecursionError) as error:
            raise Misfit(f"is no JSON: {error}") from None
        if found is None:
            raise Misfit(f"is null, not {_named(kind)}")
        return convert(found, "")

    return read


def _named(kind: sql.DataType) -> str:
    if isinstance(kind, sql.StructType):
        return "an object"
    return "an array" if isinstance(kind, sql.ArrayType) else kind.simpleString()


def _converter(kind: sql.DataType) -> _Convert:
    if isinstance(kind, sql.StructType):
        return _struct(kind)
    if isinstance(kind, sql.ArrayType):
        return _array(kind)
    if isinstance(kind, sql.MapType):
        return _map(kind)
    if isinstance(kind, sql.DecimalType):
        return _decimal(kind)
    if type(kind) in _BITS:
        return _whole(kind, _BITS[type(kind)])
    found = _SIMPLE.get(type(kind))
    if found is None:
        raise fifo.InvalidArgument(f"JSON has no value of type {kind.simpleString()}")
    return found


def _struct(kind: sql.StructType) -> _Convert:
    fields = [
        (field.name, _nullable(_converter(field.dataType), field.nullable)) for field in kind.fields
    ]

    def convert(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _other("an object", value, path)
        return {name: one(value.get(name), inside(path, name)) for name, one in fields}

    return convert


def _array(kind: sql.ArrayType) -> _Convert:
    element = _nullable(_converter(kind.elementType), kind.containsNull)

    def convert(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _other("an array", value, path)
        return [element(one, f"{path}[{place}]") for place, one in enumerate(value)]

    return convert


def _map(kind: sql.MapType) -> _Convert:
    if not isinstance(kind.keyType, sql.StringType):
        raise fifo.InvalidArgument(
            f"the names in a JSON object are strings, not {kind.keyType.simpleString()}"
        )
    element = _nullable(_converter(kind.valueType), kind.valueContainsNull)

    def convert(value: Any, path: str) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _other("an object", value, path)
        return [(name, element(one, inside(path, name))) for name, one in value.items()]

    return convert


def _nullable(convert: _Convert, nullable: bool) -> _Convert:
    def either(value: Any, path: str) -> Any:
        if value is not None:
            return convert(value, path)
        if not nullable:
            raise Misfit(f"{at(path)}is missing, and may not be null")
        return None

    return either


def _other(wanted: str, value: Any, path: str) -> Misfit:
    return Misfit(f"{at(path)}{wanted} is expected, not {shown(value)}")


def _whole(kind: sql.DataType, bits: int) -> _Convert:
    low, high, name = -(1 << bits - 1), (1 << bits - 1) - 1, kind.simpleString()

    def convert(value: Any, path: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _other(name, value, path)
        return value

    return convert


_DIGITS: Final = Context(prec=76)
"""More than any decimal of Spark has, 38."""


def _decimal(kind: sql.DecimalType) -> _Convert:
    name = kind.simpleString()
    step, bound = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any, path: str) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
            raise _other(name, value, path)
        try:
            found = Decimal(value)
            if not found.is_finite() or abs(found) >= bound:
                raise _other(name, value, path)
            exact = found.quantize(step, context=_DIGITS)
        except InvalidOperation:
            raise _other(name, value, path) from None
        if exact != found:
            raise _other(name, value, path)
        return exact

    return convert


def _text(value: Any, path: str) -> str:
    try:
        return value if isinstance(value, str) else _dumps(value)
    except (ValueError, RecursionError):
        raise Misfit(f"{at(path)}its value is too deep, or has no finite number") from None


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _other("boolean", value, path)
    return value


def _double(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _other("double", value, path)
    try:
        found = float(value)
    except OverflowError:
        raise _other("double", value, path) from None
    if not math.isfinite(found):
        raise _other("a finite double", value, path)
    return found


def _binary(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _other("base64", value, path) from None


def _date(value: Any, path: str) -> date:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _other("a date such as 2026-11-23", value, path) from None


def _timestamp(value: Any, path: str) -> datetime:
    found = _moment(value, path)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _local(value: Any, path: str) -> datetime:
    found = _moment(value, path)
    if found.tzinfo is not None:
        raise _other("a time without an offset", value, path)
    return found


def _moment(value: Any, path: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _other("a time such as 2026-11-23T19:15:00Z", value, path) from None


_SIMPLE: Final[dict[type[sql.DataType], _Convert]] = {
    sql.StringType: _text,
    sql.BooleanType: _boolean,
    sql.FloatType: _double,
    sql.DoubleType: _double,
    sql.BinaryType: _binary,
    sql.DateType: _date,
    sql.TimestampType: _timestamp,
    sql.TimestampNTZType: _local,
}


# What is written.


def writing(kind: sql.DataType) -> Write:
    """The writer of bodies of this type, as `to_json`: fields that are null are left out."""
    plain = _plainer(kind)

    def write(value: Any) -> bytes:
        try:
            return _dumps(plain(value)).encode()
        except ValueError:
            raise Misfit("has a number that is not finite, which JSON has not") from None

    return write


def _plainer(kind: sql.DataType) -> Callable[[Any], Any]:
    """From a value of Arrow to one of JSON."""
    if isinstance(kind, sql.StructType):
        fields = [(field.name, _plainer(field.dataType)) for field in kind.fields]
        return lambda value: {
            name: plain(value[name]) for name, plain in fields if value[name] is not None
        }
    if isinstance(kind, sql.ArrayType):
        element = _or_null(_plainer(kind.elementType))
        return lambda value: [element(one) for one in value]
    if isinstance(kind, sql.MapType):
        if not isinstance(kind.keyType, sql.StringType):
            raise fifo.InvalidArgument(
                f"the names in a JSON object are strings, not {kind.keyType.simpleString()}"
            )
        entry = _or_null(_plainer(kind.valueType))
        return lambda value: {name: entry(one) for name, one in _pairs(value)}
    return _PLAIN.get(type(kind), _as_it_is)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, Mapping) else value)


def _or_null(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else plain(value)


def _as_it_is(value: Any) -> Any:
    return value


def _moment_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


_PLAIN: Final[dict[type[sql.DataType], Callable[[Any], Any]]] = {
    sql.BinaryType: lambda value: base64.b64encode(value).decode(),
    sql.DateType: date.isoformat,
    sql.TimestampType: _moment_text,
    sql.TimestampNTZType: datetime.isoformat,
    sql.DecimalType: str,
    sql.DayTimeIntervalType: timedelta.total_seconds,
}


def _dumps(value: Any) -> str:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=float
    )
