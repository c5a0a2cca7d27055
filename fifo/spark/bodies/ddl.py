"""Types as text, `id long, total decimal(10,2)`, read where there is no JVM to ask.

Owns the grammar: Spark's DDL without intervals, collations and defaults, or its JSON. Spark asks a
data source for its schema in a Python process of its own, in which PySpark cannot parse DDL.
"""

from __future__ import annotations

import json
import re
from typing import Final

from pyspark.sql import types as sql

import fifo

_TOKENS: Final = re.compile(r"\s*(`[^`]+`|'[^']*'|\w+|[<>(),:])")

_SIMPLE: Final[dict[str, sql.DataType]] = {
    "boolean": sql.BooleanType(),
    "tinyint": sql.ByteType(),
    "byte": sql.ByteType(),
    "smallint": sql.ShortType(),
    "short": sql.ShortType(),
    "int": sql.IntegerType(),
    "integer": sql.IntegerType(),
    "bigint": sql.LongType(),
    "long": sql.LongType(),
    "float": sql.FloatType(),
    "real": sql.FloatType(),
    "double": sql.DoubleType(),
    "string": sql.StringType(),
    "binary": sql.BinaryType(),
    "date": sql.DateType(),
    "timestamp": sql.TimestampType(),
    "timestamp_ltz": sql.TimestampType(),
    "timestamp_ntz": sql.TimestampNTZType(),
}
_DECIMAL_DEFAULT: Final = (10, 0)


def parse(text: str) -> sql.DataType:
    """A type, or the fields of a struct. Raises InvalidArgument with the place that is wrong."""
    if text.lstrip().startswith(("{", '"')):
        return _from_json(text)
    return _Parser(text).whole()


def _from_json(text: str) -> sql.DataType:
    try:
        return sql._parse_datatype_json_value(json.loads(text))
    except Exception as error:  # whatever PySpark makes of what is no schema
        raise fifo.InvalidArgument(
            f"is no schema as Spark's schema.json() gives it: {type(error).__name__}: {error}"
        ) from None


class _Parser:
    """Reads a text from its first token to its last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        place = 0
        while text[place:].strip():
            found = _TOKENS.match(text, place)
            if found is None:
                raise fifo.InvalidArgument(f"{text[place : place + 20]!r} is no type, nor a name")
            self._tokens.append(found[1])
            place = found.end()
        self._at = 0

    def whole(self) -> sql.DataType:
        """All of it."""
        single = self._tokens[1:2] in ([], ["<"], ["("])
        found = self._type() if single else sql.StructType(self._fields(""))
        if self._at < len(self._tokens):
            raise self._expected("the end")
        return found

    def _type(self) -> sql.DataType:
        word = self._next("a type")
        name = word.lower()
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name == "array":
            self._take("<")
            element = self._type()
            self._take(">")
            return sql.ArrayType(element)
        if name == "map":
            self._take("<")
            key = self._type()
            self._take(",")
            value = self._type()
            self._take(">")
            return sql.MapType(key, value)
        if name == "struct":
            self._take("<")
            fields = self._fields(">")
            self._take(">")
            return sql.StructType(fields)
        if name not in _SIMPLE:
            self._at -= 1
            raise self._expected(f"a type ({', '.join(_SIMPLE)}, decimal, array, map, struct)")
        return _SIMPLE[name]

    def _decimal(self) -> sql.DecimalType:
        if self._peek() != "(":
            return sql.DecimalType(*_DECIMAL_DEFAULT)
        self._take("(")
        digits, scale = self._number(1, 38), 0
        if self._peek() == ",":
            self._take(",")
            scale = self._number(0, digits)
        self._take(")")
        return sql.DecimalType(digits, scale)

    def _number(self, low: int, high: int) -> int:
        text = self._next("a number")
        if not (text.isascii() and text.isdigit()) or not low <= int(text[:9]) <= high:
            self._at -= 1
            raise self._expected(f"a number from {low} to {high}")
        return int(text)

    def _fields(self, end: str) -> list[sql.StructField]:
        fields: list[sql.StructField] = []
        while self._peek() != end or not fields:
            if fields:
                self._take(",")
            name = self._next("the name of a field")
            if not (name[0] == "`" or name[0].isalnum() or name[0] == "_"):
                self._at -= 1
                raise self._expected("the name of a field")
            if self._peek() == ":":
                self._take(":")
            kind = self._type()
            fields.append(sql.StructField(name.strip("`"), kind, not self._is_not_null()))
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise fifo.InvalidArgument(f"names field {twice!r} twice")
        return fields

    def _is_not_null(self) -> bool:
        found = self._peek().lower() == "not"
        if found:
            self._at += 1
            if self._next("NULL").lower() != "null":
                self._at -= 1
                raise self._expected("NULL")
        if self._peek().lower() == "comment":
            self._at += 1
            self._next("a comment")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str) -> str:
        if self._at == len(self._tokens):
            raise self._expected(wanted)
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, token: str) -> None:
        if self._peek() != token:
            raise self._expected(repr(token))
        self._at += 1

    def _expected(self, wanted: str) -> fifo.InvalidArgument:
        there = repr(self._peek()) if self._peek() else "its end"
        return fifo.InvalidArgument(f"has {there} in the place of {wanted}: {self._text[:80]!r}")
