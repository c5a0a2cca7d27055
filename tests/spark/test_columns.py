"""Schema and conversion: what is read, what can be written, what is refused."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import types as sql

import fifo
from fifo.spark import columns
from fifo.spark.holding import count
from fifo.spark.reservation import split
from fifo.spark.streaming import split_at

KINDS: dict[str, sql.DataType] = {
    "map<string,string>": sql.MapType(sql.StringType(), sql.StringType()),
    "map<string,int>": sql.MapType(sql.StringType(), sql.IntegerType()),
    "struct<a:int>": sql.StructType([sql.StructField("a", sql.IntegerType())]),
    "interval": sql.DayTimeIntervalType(),
    "decimal": sql.DecimalType(4, 1),
    "string": sql.StringType(),
    "binary": sql.BinaryType(),
    "tinyint": sql.ByteType(),
    "bigint": sql.LongType(),
    "double": sql.DoubleType(),
    "timestamp": sql.TimestampType(),
}


def schema(text: str) -> sql.StructType:
    """`name kind, name kind`; Spark's own parser needs a JVM."""
    fields = [field.split() for field in text.split(", ")]
    return sql.StructType([sql.StructField(name, KINDS[kind]) for name, kind in fields])


def test_a_read_has_these_columns() -> None:
    expected = (
        "struct<body:binary,key:string,headers:map<string,string>,priority:int,id:string,"
        "attempt:int,published_at:timestamp,queue:string,token:string>"
    )
    assert columns.read_schema(binary_keys=False).simpleString() == expected
    assert "key:binary" in columns.read_schema(binary_keys=True).simpleString()


def test_another_schema_for_a_read_is_refused() -> None:
    ours = columns.read_schema(binary_keys=False)
    columns.check_read_schema(ours, ours)
    with pytest.raises(fifo.InvalidArgument, match=r"leave \.schema\(\.\.\.\) out"):
        columns.check_read_schema(schema("body string"), ours)


@pytest.mark.parametrize(
    "text",
    [
        "body binary",
        "body string, key binary, headers map<string,string>, priority tinyint, delay double",
        "body string, key string, priority bigint, delay interval",
        "body string, delay decimal",
    ],
)
def test_these_can_be_written(text: str) -> None:
    columns.check_written(schema(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("key string", "there is no column body: select"),
        ("body struct<a:int>", "column body must be binary or string, not struct<a:int>: cast"),
        ("body string, priority string", "priority must be a whole number from 0 to 9, not string"),
        ("body string, headers map<string,int>", r"headers must be map<string,string>"),
        ("body string, delay string", "delay must be seconds or an interval"),
        ("body string, kye string", "column 'kye' cannot be written.*did you mean key?"),
        ("body string, published_at timestamp", "select only body, key, headers, priority, delay"),
    ],
)
def test_others_are_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=words):
        columns.check_written(schema(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("body string", "idColumn: the DataFrame has no column 'number'"),
        ("body string, number double", "column number must be a string, binary or a whole number"),
    ],
)
def test_a_column_that_holds_no_ids_is_refused(text: str, words: str) -> None:
    columns.check_written(schema("body string, number bigint"), "number")
    with pytest.raises(fifo.InvalidArgument, match=words):
        columns.check_written(schema(text), "number")


def test_a_row_of_a_read_may_have_its_own_id_for_its_number() -> None:
    ours = columns.read_schema(binary_keys=False)
    columns.check_written(columns.sent(ours, "id"), "id")
    assert "id" not in columns.sent(ours).fieldNames()


def test_ids_become_texts_and_none_is_null() -> None:
    batch = pa.table({"body": ["a", "b"], "number": [7, 8]}).to_batches()[0]
    assert columns.to_messages(batch, 1, "number").columns == {"dedup_ids": ["7", "8"]}
    batch = pa.table({"body": ["a", "b"], "number": [7, None]}).to_batches()[0]
    with pytest.raises(fifo.InvalidArgument, match="row 4: number is null"):
        columns.to_messages(batch, 3, "number")


def test_rows_become_publications() -> None:
    batch = pa.table(
        {
            "body": ["é", "b"],
            "key": [b"\xff", None],
            "headers": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
            "priority": [None, 9],
            "delay": pa.array([timedelta(seconds=1.5), None], pa.duration("us")),
        }
    ).to_batches()[0]
    bodies, given = columns.to_messages(batch, 1)
    assert bodies == ["é".encode(), b"b"]
    assert given == {
        "keys": [b"\xff", None],
        "headers": [{"a": "1"}, None],
        "priorities": [4, 9],
        "delays": [timedelta(seconds=1.5), None],
    }


def test_a_null_where_none_may_be_is_named_by_its_row() -> None:
    batch = pa.table({"body": ["a", None]}).to_batches()[0]
    with pytest.raises(fifo.InvalidArgument, match="row 12: body is null; filter"):
        columns.to_messages(batch, 11)
    headers = pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))
    batch = pa.table({"body": ["a"], "headers": headers}).to_batches()[0]
    with pytest.raises(fifo.InvalidArgument, match="row 1: a header is null"):
        columns.to_messages(batch, 1)


def test_held_ranges_are_split_into_even_parts_in_order() -> None:
    held = ((1, 4), (7, 7), (10, 14))
    assert split(held, 3) == [((1, 3),), ((4, 4), (7, 7), (10, 10)), ((11, 14),)]
    assert split(held, 1) == [held]
    assert [count(part) for part in split(((1, 3),), 5)] == [1, 1, 1]
    assert split((), 4) == []
    assert split_at(held, 5) == ((1, 4), (7, 7))
    assert split_at(held, 6) == ((1, 4), (7, 7), (10, 10))
