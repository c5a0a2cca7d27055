"""Every message of the registry: round trip, defaults, fields of newer peers, and field checks."""

from dataclasses import MISSING, fields
from typing import Any

import msgpack
import pytest

from fifo.wire import BadMessage, Buffer, Code, Decoder, Frame, LocalProtocolError, encode, limits
from fifo.wire.fields import (
    U32_MAX,
    U63_MAX,
    FieldError,
    integer,
    mapping,
    maybe,
    record,
    text,
)
from fifo.wire.frames import PREFIX
from fifo.wire.messages import REGISTRY, Error, Message, Ok, Ping, QueueQuery, from_fields
from tests.wire.examples import BY_NAME, EXAMPLES, joined


def framed(header: list[Any]) -> bytes:
    """Frame any header, also one that `encode` would refuse."""
    packed: bytes = msgpack.packb(header)
    return PREFIX.pack(len(packed), 0) + packed


def decode_one(data: bytes) -> Frame | BadMessage:
    (frame,) = Decoder().receive_data(data)
    return frame


def wire_values(message: Message) -> list[Any]:
    """List all fields as msgpack decodes them: by position, with trailing defaults, as lists."""
    values = [getattr(message, field.name) for field in fields(message)]
    listed: list[Any] = msgpack.unpackb(msgpack.packb(values))
    return listed


def with_field(name: str, field: str, value: Any) -> Frame | BadMessage:
    """Decode the example of this message with another value in one field."""
    example = BY_NAME[name]
    values = wire_values(example)
    values[[one.name for one in fields(example)].index(field)] = value
    return decode_one(framed([example.TYPE, 7, *values]))


def test_every_message_of_the_registry_has_one_example() -> None:
    assert [type(example) for example in EXAMPLES] == list(REGISTRY.values())


@pytest.mark.parametrize("name", BY_NAME)
def test_an_example_leaves_no_field_at_its_default(name: str) -> None:
    example = BY_NAME[name]
    for field in fields(example):
        assert field.default is MISSING or getattr(example, field.name) != field.default


@pytest.mark.parametrize("name", BY_NAME)
def test_a_message_round_trips(name: str) -> None:
    frame = decode_one(joined(BY_NAME[name], 12, b"raw part"))
    assert isinstance(frame, Frame)
    assert frame.message == BY_NAME[name]
    assert type(frame.message) is type(BY_NAME[name])
    assert (frame.correlation, bytes(frame.raw)) == (12, b"raw part")


@pytest.mark.parametrize("name", BY_NAME)
def test_trailing_fields_at_their_default_are_omitted_and_restored(name: str) -> None:
    example = BY_NAME[name]
    required = [field.name for field in fields(example) if field.default is MISSING]
    bare = type(example)(*(getattr(example, field) for field in required))
    assert len(bare.to_fields()) == len(required)
    frame = decode_one(joined(bare))
    assert isinstance(frame, Frame)
    assert frame.message == bare


@pytest.mark.parametrize("name", BY_NAME)
def test_explicit_defaults_equal_omitted_ones(name: str) -> None:
    example = BY_NAME[name]
    required = [field.name for field in fields(example) if field.default is MISSING]
    bare = type(example)(*(getattr(example, field) for field in required))
    frame = decode_one(framed([bare.TYPE, 0, *wire_values(bare)]))
    assert isinstance(frame, Frame)
    assert frame.message == bare


@pytest.mark.parametrize("name", BY_NAME)
def test_a_truncated_message_names_its_missing_field(name: str) -> None:
    example = BY_NAME[name]
    required = [field.name for field in fields(example) if field.default is MISSING]
    for kept, missing in enumerate(required):
        values = wire_values(example)[:kept]
        frame = decode_one(framed([example.TYPE, 7, *values]))
        assert frame == BadMessage(7, Code.INVALID_ARGUMENT, f"{name}.{missing}: is missing")


@pytest.mark.parametrize("name", BY_NAME)
def test_trailing_fields_of_a_newer_peer_are_ignored(name: str) -> None:
    example = BY_NAME[name]
    newer = [example.TYPE, 3, *wire_values(example), {"new": [1]}, None, 7]
    assert decode_one(framed(newer)) == Frame(example, 3)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_field_of_the_wrong_type_is_named(name: str) -> None:
    example = BY_NAME[name]
    free_form = {("Ok", "result"), ("Error", "detail")}
    for field in fields(example):
        if (name, field.name) in free_form:
            continue
        frame = with_field(name, field.name, 1.5)
        assert isinstance(frame, BadMessage)
        assert (frame.correlation, frame.code) == (7, Code.INVALID_ARGUMENT)
        assert frame.text.startswith(f"{name}.{field.name}: must be ")


def test_an_unknown_type_is_answered_and_the_stream_goes_on() -> None:
    data = joined(Ping(), 1) + framed([9_999, 2, "from", {"the": "future"}]) + joined(Ping(), 3)
    frames = Decoder().receive_data(data)
    text = "message type 9999 is not known to this version"
    assert frames == [Frame(Ping(), 1), BadMessage(2, Code.UNSUPPORTED, text), Frame(Ping(), 3)]


@pytest.mark.parametrize("kind", [0, -1, 2**63, 2**64 - 1])
def test_a_type_number_out_of_range_is_unknown(kind: int) -> None:
    frame = decode_one(framed([kind, 2]))
    assert isinstance(frame, BadMessage)
    assert frame.code is Code.UNSUPPORTED


def test_the_raw_part_of_a_bad_message_is_skipped() -> None:
    packed = msgpack.packb([9_999, 2])
    data = PREFIX.pack(len(packed), 5) + packed + b"bytes" + joined(Ping(), 3)
    assert [frame.correlation for frame in Decoder().receive_data(data)] == [2, 3]


LONGEST_NAME = "n" * limits.QUEUE_NAME_BYTES_MAX
NESTED_8: Any = [[[[[[[[1]]]]]]]]

ACCEPTED: list[tuple[str, str, Any]] = [
    ("Hello", "version_max", 65_535),
    ("Hello", "heartbeat_ms", 100),
    ("Hello", "heartbeat_ms", 600_000),
    ("Hello", "user", None),
    ("Welcome", "cluster", b""),
    ("Publish", "queue", LONGEST_NAME),
    ("Publish", "queue", "é" * 127),
    ("Publish", "number", U63_MAX),
    ("Publish", "count", limits.PUBLISH_MESSAGES_MAX),
    ("Publish", "columns", [[65_535, limits.FRAME_BYTES_MAX]] * 64),
    ("Confirms", "items", [[1, 2, 3, 4, 5]]),
    ("Subscribe", "tag", ""),
    ("Subscribe", "prefetch", limits.PREFETCH_MAX),
    ("Subscribe", "lock_ms", limits.DURATION_MS_MAX),
    ("Subscribe", "priority", -1000),
    ("Credit", "credit", U32_MAX),
    ("Settle", "tokens", []),
    ("Settle", "tokens", [[1, 1], [2, 2], [4, U63_MAX]]),
    ("Settle", "stack", "s" * limits.LETTER_TEXT_BYTES_MAX),
    ("Settle", "reason", "r" * limits.LETTER_TEXT_BYTES_MAX),
    ("Receipt", "results", [[1, 2, 0]]),
    ("Redirect", "leader", None),
    ("Ok", "result", NESTED_8),
    ("Ok", "result", 2**64 - 1),
    ("Ok", "result", [0] * (limits.PLAIN_VALUES_MAX - 1)),
    ("Declare", "spec", {"many": [0] * (limits.MAP_VALUES_MAX - 2)}),
    ("Error", "code", "a_code_of_a_newer_node"),
]

REFUSED: list[tuple[str, str, Any]] = [
    ("Hello", "version_min", 0),
    ("Hello", "version_min", 65_536),
    ("Hello", "role", 3),
    ("Hello", "role", True),
    ("Hello", "session", b"15 bytes of 16."),
    ("Hello", "session", b"17 bytes, not 16."),
    ("Hello", "session", "text of 16 chars"),
    ("Hello", "incarnation", b""),
    ("Hello", "features", ["x"] * 65),
    ("Hello", "features", "x"),
    ("Hello", "features", [1]),
    ("Hello", "heartbeat_ms", 99),
    ("Hello", "heartbeat_ms", 600_001),
    ("Hello", "resume", 1),
    ("Welcome", "cluster", b"17 bytes, not 16."),
    ("Welcome", "nodes", [["n1"]]),
    ("Welcome", "nodes", [["n1", "a", "b"]]),
    ("Welcome", "consumers", [[0, "tag", "orders", 1]]),
    ("Publish", "queue", ""),
    ("Publish", "queue", b"orders"),
    ("Publish", "queue", LONGEST_NAME + "n"),
    ("Publish", "queue", "é" * 128),  # 128 characters, 256 bytes
    ("Publish", "previous", -1),
    ("Publish", "number", 0),
    ("Publish", "number", U63_MAX + 1),
    ("Publish", "number", 1.0),
    ("Publish", "count", True),
    ("Publish", "count", 0),
    ("Publish", "count", limits.PUBLISH_MESSAGES_MAX + 1),
    ("Publish", "columns", [[0, 4]] * 65),
    ("Publish", "columns", [[65_536, 4]]),
    ("Publish", "columns", [[0, -1]]),
    ("Publish", "columns", [[0, limits.FRAME_BYTES_MAX + 1]]),
    ("Publish", "columns", {0: 4}),
    ("Confirms", "items", [[1, 2, 3, 4]]),
    ("Confirms", "items", [[1, 2, 3, 4, 5, None, 7]]),
    ("Confirms", "items", [[1, 2, 3, 4, 5, None, [[0, 0, 1, 1]]]]),
    ("Confirms", "items", [[1, 2, 3, 4, 5, None, [[0, 1, 1]]]]),
    ("Confirms", "items", [[1, 2, 3, 4, 5, None, [], 8]]),
    ("Confirms", "items", [[1, 2, 3, 4, 5, ["gap", "x"]]]),
    ("Subscribe", "prefetch", 0),
    ("Subscribe", "prefetch", limits.PREFETCH_MAX + 1),
    ("Subscribe", "lock_ms", limits.DURATION_MS_MAX + 1),
    ("Subscribe", "lock_ms", -1),
    ("Subscribe", "priority", 1001),
    ("Subscribe", "renewable", None),
    ("Credit", "credit", U32_MAX + 1),
    ("Settle", "consumer", 0),
    ("Settle", "verb", 4),
    ("Settle", "tokens", [[0, 1]]),
    ("Settle", "tokens", [[2, 1]]),
    ("Settle", "tokens", [[1, 2], [2, 3]]),
    ("Settle", "tokens", [[5, 6], [1, 2]]),
    ("Settle", "tokens", [[1, U63_MAX + 1]]),
    ("Settle", "tokens", [[1, 2, 3]]),
    ("Settle", "tokens", [[True, 2]]),
    ("Settle", "tokens", [1, 2]),
    ("Settle", "tokens", [b"\x01\x02"]),
    ("Settle", "tokens", [[n, n] for n in range(1, limits.RANGES_MAX + 2)]),
    ("Settle", "reason", "r" * (limits.LETTER_TEXT_BYTES_MAX + 1)),
    ("Settle", "stack", "s" * (limits.LETTER_TEXT_BYTES_MAX + 1)),
    ("Deliver", "runs", [[0, 1, 1, 1, 1]]),
    ("Deliver", "dead_letters", [[0, "terminated"]]),
    ("Declare", "spec", []),
    ("Declare", "spec", {1: 2}),
    ("Declare", "spec", {"deep": [NESTED_8]}),
    ("Declare", "spec", {"deep": {b"bytes": 1}}),
    ("Ok", "result", [NESTED_8]),
    ("Ok", "result", [0] * limits.PLAIN_VALUES_MAX),
    ("Declare", "spec", {"many": [0] * (limits.MAP_VALUES_MAX - 1)}),
    ("Declare", "spec", {"many": {str(at): [at] for at in range(limits.MAP_VALUES_MAX // 2)}}),
    ("Ok", "result", msgpack.Timestamp(1)),
]


@pytest.mark.parametrize(("name", "field", "value"), ACCEPTED)
def test_a_field_at_its_bound_is_accepted(name: str, field: str, value: Any) -> None:
    assert isinstance(with_field(name, field, value), Frame)


@pytest.mark.parametrize(("name", "field", "value"), REFUSED)
def test_a_field_out_of_its_bounds_is_refused_by_name(name: str, field: str, value: Any) -> None:
    frame = with_field(name, field, value)
    assert isinstance(frame, BadMessage)
    assert frame.code is Code.INVALID_ARGUMENT
    assert frame.text.startswith(f"{name}.{field}: ")
    assert len(frame.text) < 200


def test_the_refusal_of_a_long_value_does_not_repeat_it() -> None:
    frame = with_field("Publish", "queue", "q" * 100_000)
    text = "Publish.queue: must be 1 to 255 bytes long"
    assert frame == BadMessage(7, Code.INVALID_ARGUMENT, text)


def test_lists_become_tuples_except_in_free_form_values() -> None:
    frame = decode_one(joined(Ok([1, [2]])))
    assert isinstance(frame, Frame)
    assert frame.message == Ok([1, [2]])


@pytest.mark.parametrize(
    "message",
    [
        Ok(object()),
        Ok(2**64),
        Ok("\ud800"),
        Error("code", "text", detail={"a": {1, 2}}),
    ],
)
def test_a_value_that_msgpack_cannot_pack_is_a_local_error(message: Message) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be packed"):
        encode(message)
    assert decode_one(joined(Ping(), 1)) == Frame(Ping(), 1), "the next frame is whole"


def test_a_header_above_the_limit_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError, match="exceeds the frame limit"):
        encode(Ok("x" * limits.HEADER_BYTES_MAX))


def test_a_raw_part_above_the_limit_is_a_local_error() -> None:
    fitting = limits.FRAME_BYTES_MAX - len(joined(QueueQuery("orders", "list")))
    encode(QueueQuery("orders", "list"), 0, [bytes(fitting)])
    with pytest.raises(LocalProtocolError, match="exceeds the frame limit"):
        encode(QueueQuery("orders", "list"), 0, [bytes(fitting), b"x"])


def test_raw_parts_are_sent_without_a_copy() -> None:
    parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three")]
    encoded = encode(Ping(), 1, parts)
    assert all(out is part for out, part in zip(encoded[1:], parts, strict=True))


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, U32_MAX, U63_MAX, U63_MAX + 1, 1.5, "", "a", "ä", "ä" * 200),
    *("x" * 255, "x" * 256, b"", b"x", b"x" * 16, b"x" * 17, [], [1], [1, 2], [[1, 2]], [[2, 1]]),
    *([[1, 2], [3, 4]], [[1] * 5], [[1] * 5 + [None]], [[1, 1, 1, 1, -1]], [["a", "b"]], {}),
    *([[1] * 5 + [["c", "t", True]]], [[1] * 5 + [None, [[0, 1, 1, 1]]]], [[1] * 8], {"a": 1}),
)
"""Values that one check or another takes, and that others refuse."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_a_field_that_is_looked_at_at_once_is_what_its_check_makes_of_it(name: str) -> None:
    cls = type(BY_NAME[name])
    usual = wire_values(BY_NAME[name])
    for place in range(len(cls._CHECKS)):
        for value in ODD_VALUES:
            values = [*usual[:place], value, *usual[place + 1 :]]
            try:
                expected = cls(
                    *[one(each) for (_, one), each in zip(cls._CHECKS, values, strict=False)]
                )
            except FieldError:
                with pytest.raises(FieldError, match=f"^{name}."):
                    from_fields(cls, values)
            else:
                assert from_fields(cls, values) == expected


def test_a_record_is_the_same_whether_its_values_are_looked_at_one_by_one() -> None:
    quick = record(integer(1, 9), text(3), maybe(integer(0, 5)), mapping, required=2)
    for found, made in (
        ([1, "abc"], (1, "abc")),
        ([1, "ä"], (1, "ä")),  # Not ASCII: looked at by the check itself.
        ([9, "", None], (9, "", None)),
        ([9, "", 5], (9, "", 5)),
        ([9, "", 5, {"a": 1}], (9, "", 5, {"a": 1})),
    ):
        assert quick(found) == made
    for wrong in ([1], [0, "a"], [True, "a"], [1, "abcd"], [1, "äbc"], [1, "a", 6], (1, "a")):
        with pytest.raises(FieldError):
            quick(wrong)
    with pytest.raises(FieldError):
        quick([1, "a", None, None])
