"""Bodies with types, value by value: what fits a schema, what does not, and what is said of it."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from pyspark.sql import types as sql

import fifo
from fifo.spark import SourceError, columns, options
from fifo.spark.bodies import ddl, json_format
from fifo.spark.bodies.typed import Body, decoded, encoded, read_schema, written_schema
from fifo.spark.bodies.values import Misfit
from fifo.spark.options import BATCH_READ, BATCH_WRITE

pytestmark = pytest.mark.slow  # the imports of fastavro and protobuf alone

GIVEN = {"url": "fifo://h:1", "queue": "q"}


def body(**more: str) -> Body:
    """As the options say."""
    found = options.parse({**GIVEN, **more}, BATCH_READ).body
    assert found is not None
    copy: Body = pickle.loads(pickle.dumps(found))
    return copy


def as_json(kind: str, text: str) -> Any:
    return json_format.reading(ddl.parse(kind))(text.encode())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id long, total double", "struct<id:bigint,total:double>"),
        ("id: bigint NOT NULL COMMENT 'its', `a b` string", "struct<id:bigint,a b:string>"),
        ("struct<a:array<map<string,int>>>", "struct<a:array<map<string,int>>>"),
        ("array<decimal(10, 2)>", "array<decimal(10,2)>"),
        ("at timestamp, day date, raw binary", "struct<at:timestamp,day:date,raw:binary>"),
        ("decimal", "decimal(10,0)"),
    ],
)
def test_types_are_read_as_spark_writes_them(text: str, kind: str) -> None:
    found = ddl.parse(text)
    assert found.simpleString() == kind
    if isinstance(found, sql.StructType):
        assert ddl.parse(found.json()) == found
    assert ddl.parse("id long NOT NULL").fields[0].nullable is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id lng", "'lng' in the place of a type"),
        ("id long,", "its end in the place of the name of a field"),
        ("array<int", "its end in the place of '>'"),
        ("decimal(50)", "'50' in the place of a number from 1 to 38"),
        ("a int, a long", "names field 'a' twice"),
        ("a int; b int", "'; b int' is no type"),
        ("a int NOT b", "'b' in the place of NULL"),
        ("a int b int", "'b' in the place of ','"),
        ("<", "in the place of"),
        ('{"type": "nothing"}', "is no schema as Spark's schema.json"),
        ("a interval", "in the place of a type"),
    ],
)
def test_a_wrong_type_says_where(text: str, words: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=words):
        ddl.parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("id long, name string", '{"id": 7, "more": 1}', {"id": 7, "name": None}),
        ("a array<int>", '{"a": [1, null]}', {"a": [1, None]}),
        ("m map<string,double>", '{"m": {"x": 1}}', {"m": [("x", 1.0)]}),
        ("total decimal(5,2)", '{"total": 1.10}', {"total": Decimal("1.10")}),
        ("total decimal(38,20)", '{"total": "1.1"}', {"total": Decimal("1.1")}),
        ("s string", '{"s": {"a": [1, "b"]}}', {"s": '{"a":[1,"b"]}'}),
        ("s string, d decimal(3,1)", '{"s": 1.5, "d": 2}', {"s": "1.5", "d": Decimal(2)}),
        ("raw binary", '{"raw": "AAE="}', {"raw": b"\0\1"}),
        ("day date", '{"day": "2026-11-23"}', {"day": date(2026, 11, 23)}),
        (
            "at timestamp",
            '{"at": "2026-11-23T19:15:00+01:00"}',
            {"at": datetime(2026, 11, 23, 18, 15, tzinfo=UTC)},
        ),
        (
            "at timestamp",
            '{"at": "2026-11-23 19:15:00"}',
            {"at": datetime(2026, 11, 23, 19, 15, tzinfo=UTC)},
        ),
        (
            "at timestamp_ntz",
            '{"at": "2026-11-23T19:15:00"}',
            {"at": datetime(2026, 11, 23, 19, 15)},
        ),
        ("array<boolean>", "[true, false]", [True, False]),
        ("long", "5", 5),
    ],
)
def test_json_that_fits_becomes_its_value(kind: str, text: str, value: Any) -> None:
    assert as_json(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("id long", "{", "is no JSON"),
        ("id long", "\xff", "is no JSON"),
        ("id long", "null", "is null, not an object"),
        ("id long", "[1]", r"an object is expected, not \[1\]"),
        ("id int", '{"id": 2147483648}', "field id: int is expected, not 2147483648"),
        ("id int", '{"id": true}', "field id: int is expected, not True"),
        ("id int", '{"id": 1.0}', "field id: int is expected"),
        ("a struct<b:array<int>>", '{"a":{"b":[1,"x"]}}', r"field a.b\[1\]: int is expected"),
        ("id long NOT NULL", "{}", "field id: is missing, and may not be null"),
        ("x double", '{"x": "1"}', "double is expected"),
        ("x double", '{"x": 1' + "0" * 400 + "}", "double is expected"),
        ("x double", '{"x": 1e400}', "a finite double is expected, not inf"),
        ("x double", '{"x": NaN}', "a finite double is expected, not nan"),
        ("x string", '{"x": [Infinity]}', "field x: its value is too deep, or has no finite"),
        ("x decimal(4,2)", '{"x": 100}', r"decimal\(4,2\) is expected"),
        ("x decimal(4,2)", '{"x": 1.234}', r"decimal\(4,2\) is expected"),
        ("x decimal(4,2)", '{"x": "NaN"}', r"decimal\(4,2\) is expected"),
        ("x date", '{"x": "today"}', "a date such as"),
        ("x timestamp", '{"x": 5}', "a time such as"),
        ("x timestamp_ntz", '{"x": "2026-11-23T19:15:00Z"}', "without an offset"),
        ("x binary", '{"x": "?"}', "base64 is expected"),
        ("x map<string,int>", '{"x": 1}', "an object is expected"),
        ("x long", "[" * 100_000, "is no JSON"),
    ],
)
def test_json_that_does_not_fit_says_where(kind: str, text: str, words: str) -> None:
    with pytest.raises(Misfit, match=words) as found:
        as_json(kind, text)
    assert len(str(found.value)) < 300


AVRO = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "parts", "type": {"type": "array", "items": ["null", "double"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Two", "size": 2}},
    ],
}
ORDER = {
    "id": 1,
    "state": "PAID",
    "before": None,
    "tags": {"a": "b"},
    "parts": [1.5, None],
    "at": datetime(2026, 11, 23, 19, 15, tzinfo=UTC),
    "total": Decimal(12),
    "ref": "00000000-0000-0000-0000-000000000001",
    "hash": b"ab",
}


def avro(value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


def test_avro_bodies_are_read_and_written_with_every_type(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(AVRO))
    found = body(format="avro", bodySchemaFile=str(file))
    assert found.kind.simpleString() == (
        "struct<id:bigint,state:string,before:string,tags:map<string,string>,"
        "parts:array<double>,at:timestamp,total:decimal(9,0),ref:string,hash:binary>"
    )
    [row] = rows([avro(ORDER)], found)
    assert dict(row, tags=dict(row["tags"])) == ORDER
    batch = pa.record_batch({"body": typed([ORDER], found)})
    assert [one["body"] for one in written(batch, found)] == [avro(ORDER)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(b"", "EOF"), (avro(ORDER) + b"x", "1 bytes are left behind it"), (b"\x02\x08", "is not of")],
)
def test_avro_that_does_not_fit_says_so(wrong: bytes, words: str) -> None:
    found = body(format="avro", bodySchema=json.dumps(AVRO))
    with pytest.raises(SourceError, match=words):
        rows([wrong], found)


def descriptors() -> bytes:
    """As protoc --include_imports writes them."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    one, many, message = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE
    for number, (name, kind, label, of) in enumerate(
        [
            ("id", kinds.TYPE_UINT64, one, ""),
            ("state", kinds.TYPE_ENUM, one, ".shop.State"),
            ("first", message, one, ".shop.Item"),
            ("items", message, many, ".shop.Item"),
            ("marks", kinds.TYPE_SINT32, many, ""),
            ("tags", message, many, ".shop.Order.TagsEntry"),
            ("at", message, one, ".google.protobuf.Timestamp"),
            ("raw", kinds.TYPE_BYTES, one, ""),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=message, label=one, type_name=".shop.Node")
    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    found: bytes = descriptor_pb2.FileDescriptorSet(file=[time, file]).SerializeToString()
    return found


MESSAGE = {
    "id": Decimal(2**64 - 1),
    "state": "PAID",
    "first": None,
    "items": [{"sku": "a"}, {"sku": "b"}],
    "marks": [-1, 5],
    "tags": [("x", 1)],
    "at": datetime(2026, 11, 23, 19, 15, tzinfo=UTC),
    "raw": b"\0",
}


def test_protobuf_bodies_are_read_and_written_with_every_type(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptors())
    found = body(format="protobuf", bodySchema="shop.Order", bodySchemaFile=str(file))
    assert found.kind.simpleString() == (
        "struct<id:decimal(20,0),state:string,first:struct<sku:string>,"
        "items:array<struct<sku:string>>,marks:array<int>,tags:map<string,bigint>,"
        "at:timestamp,raw:binary>"
    )
    batch = pa.record_batch({"body": typed([MESSAGE, dict(MESSAGE, first={"sku": ""})], found)})
    bodies = [one["body"] for one in written(batch, found)]
    first, second = rows(bodies, found)
    assert first == MESSAGE
    assert second["first"] == {"sku": ""}
    assert rows([b""], found)[0]["items"] == []
    with pytest.raises(SourceError, match="is no such message"):
        rows([b"\xff"], found)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mode": "permissive"}, "option mode needs the option format"),
        ({"format": "csv"}, "option format: must be one of json, avro, protobuf"),
        ({"format": "json", "bodySchema": "id lng"}, "option bodySchema: has 'lng'"),
        ({"format": "json", "bodySchema": "m map<int,int>"}, "names in a JSON object are strings"),
        ({"format": "avro", "bodySchema": '{"type": "x"}'}, "option bodySchema: is no Avro schema"),
        ({"format": "avro", "bodySchema": '["int","string"]'}, "a union of 2 types"),
        ({"format": "protobuf", "bodySchema": "A"}, "option bodySchemaFile is missing: a file of"),
        ({"format": "protobuf"}, "option bodySchema is missing: the name of a message"),
        ({"format": "json", "bodySchemaFile": "/no/file"}, "/no/file cannot be read"),
        ({"format": "json", "mode": "dropmalformed"}, "mode: must be one of failfast, permissive"),
        ({"format": "json", "table": "locks"}, "format has no effect with the option table"),
    ],
)
def test_wrong_options_of_bodies_say_what_is_wrong(more: dict[str, str], words: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=words):
        options.parse({**GIVEN, **more}, BATCH_READ)


def test_a_typed_read_of_few_columns_keeps_the_body() -> None:
    found = body(format="json", bodySchema="id long", mode="permissive")
    plain_columns = columns.read_schema(binary_keys=False, names=("id", "body"))
    schema = read_schema(plain_columns, found)
    assert schema.simpleString() == (
        "struct<id:string,body:struct<id:bigint>,body_error:string,raw_body:binary>"
    )
    without = columns.read_schema(binary_keys=False, names=("id",))
    with pytest.raises(fifo.InvalidArgument, match="no effect without the column body"):
        read_schema(without, found)


def test_a_message_that_spark_cannot_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptors())
    given = {**GIVEN, "format": "protobuf", "bodySchemaFile": str(file)}
    for name, words in (("shop.Node", "shop.Node within itself"), ("shop.No", "not in the file")):
        with pytest.raises(fifo.InvalidArgument, match=words):
            options.parse({**given, "bodySchema": name}, BATCH_READ)
    file.write_bytes(b"no descriptors")
    with pytest.raises(fifo.InvalidArgument, match="as protoc --include_imports"):
        options.parse({**given, "bodySchema": "shop.Order"}, BATCH_READ)


def test_a_body_that_does_not_fit_fails_or_is_null_with_its_error() -> None:
    bodies = [b'{"id": 1}', b"[]", b'{"id": "\\ud800"}']
    strict = body(format="json", bodySchema="id string")
    with pytest.raises(SourceError, match=r"the body of message 1\.2\.1 does not fit: an object"):
        rows(bodies[:2], strict)
    with pytest.raises(SourceError, match=r"message 1\.2\.1 does not fit: cannot be a column"):
        rows([bodies[0], bodies[2]], strict)
    keeping = body(format="json", bodySchema="id string", mode="permissive")
    [found] = decoded(iter([plain(bodies)]), keeping, "queue 'q'")
    one, other, half = found.to_pylist()
    assert (one["body"], one["body_error"], one["raw_body"]) == ({"id": "1"}, None, None)
    assert (other["body"], other["raw_body"]) == (None, b"[]")
    assert other["body_error"] == "an object is expected, not []"
    assert (half["body"], half["raw_body"]) == (None, bodies[2])
    assert half["body_error"].startswith("cannot be a column")


def test_what_is_written_as_json_is_read_again() -> None:
    kind = "a array<int>, m map<string,decimal(5,2)>, at timestamp, d date, raw binary, n string"
    found = body(format="json", bodySchema=kind)
    at = datetime(2026, 11, 23, 19, 15, tzinfo=UTC)
    value = {
        "a": [1, None],
        "m": [("x", Decimal("1.10"))],
        "at": at,
        "d": date(2026, 11, 23),
        "raw": b"\0\1",
        "n": None,
    }
    [row] = written(pa.record_batch({"body": typed([value], found)}), found)
    assert json.loads(row["body"]) == {
        "a": [1, None],
        "m": {"x": "1.10"},
        "at": "2026-11-23T19:15:00Z",
        "d": "2026-11-23",
        "raw": "AAE=",
    }, "a field that is null is left out"
    assert rows([row["body"]], found) == [value]


def test_a_value_that_does_not_fit_is_named_by_its_row() -> None:
    found = body(
        format="avro",
        bodySchema='{"type":"record","name":"R","fields":[{"name":"i","type":"int"}]}',
    )
    kind = pa.struct([("i", pa.int64())])
    batches = [pa.record_batch({"body": pa.array([{"i": 1}], kind)}) for _ in range(2)]
    wrong = pa.record_batch({"body": pa.array([{"i": 1}, {"i": None}], kind)})
    with pytest.raises(fifo.InvalidArgument, match="row 4: body is not of the Avro schema"):
        list(encoded(iter([*batches, wrong]), found))


def test_a_number_that_json_has_not_is_named_by_its_row() -> None:
    batch = pa.record_batch({"body": pa.array([{"x": 1.0}, {"x": float("nan")}])})
    with pytest.raises(fifo.InvalidArgument, match="row 2: body has a number that is not finite"):
        list(encoded(iter([batch]), options.parse({**GIVEN, "format": "json"}, BATCH_WRITE).body))


def test_a_write_of_other_columns_is_refused_before_it_starts() -> None:
    given = {**GIVEN, "format": "avro", "bodySchema": json.dumps(AVRO)}
    found = options.parse(given, BATCH_WRITE).body
    with pytest.raises(fifo.InvalidArgument, match="body must be a struct, an array or a map"):
        written_schema(sql.StructType([sql.StructField("body", sql.StringType())]), found)
    nested = sql.StructType([sql.StructField("idd", sql.LongType())])
    with pytest.raises(fifo.InvalidArgument, match="a field 'idd' that the bodySchema has not"):
        written_schema(sql.StructType([sql.StructField("body", nested)]), found)


def plain(bodies: list[bytes]) -> pa.RecordBatch:
    """As they are read."""
    ids = [f"1.2.{number}" for number in range(len(bodies))]
    return pa.record_batch({"body": pa.array(bodies, pa.binary()), "id": ids})


def rows(bodies: list[bytes], found: Body) -> list[Any]:
    """The values of some bodies."""
    return [
        value
        for batch in decoded(iter([plain(bodies)]), found, "queue 'q'")
        for value in batch.column("body").to_pylist()
    ]


def typed(values: list[Any], found: Body) -> pa.Array:
    """A column of the schema's type."""
    from pyspark.sql.pandas.types import to_arrow_type

    texts = [
        dict(one, tags=list(one["tags"].items())) if isinstance(one.get("tags"), dict) else one
        for one in values
    ]
    return pa.array(texts, to_arrow_type(found.kind, timezone="UTC"))


def written(batch: pa.RecordBatch, found: Body) -> list[Any]:
    return [row for one in encoded(iter([batch]), found) for row in one.to_pylist()]
