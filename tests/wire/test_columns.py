"""Columns: packing and unpacking round-trip, and malformed columns are refused with their code."""

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifo.wire import Buffer, Code, columns, limits
from fifo.wire.columns import (
    DEDUP_BLOB,
    DEDUP_LENGTHS,
    DELAYS_MS,
    DELIVER_TAGS,
    HEADER_BLOB,
    HEADER_LENGTHS,
    IGNORABLE,
    KEY_BLOB,
    KEY_LENGTHS,
    NUMBERS,
    PRIORITIES,
    PUBLISH_TAGS,
    SIZES,
    TTLS_MS,
    ColumnError,
    Layout,
    Publication,
    check_headers,
    check_publish,
    decode_headers,
    encode_headers,
    lay_out,
    pack_publication,
    pack_u32,
    pack_u64,
    unpack_u32,
    unpack_u64,
)
from fifo.wire.fields import U32_MAX, U63_MAX

TEN_YEARS_MS = limits.DURATION_MS_MAX

header_names = st.text(min_size=1, max_size=10)
header_maps = st.dictionaries(header_names, st.text(max_size=20), max_size=4)


@st.composite
def publications(draw: st.DrawFn) -> Publication:
    """Any publication that a node accepts; each column present or absent."""
    bodies: list[Buffer] = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=20))

    def column(item: st.SearchStrategy[Any]) -> Any:
        whole = st.lists(item, min_size=len(bodies), max_size=len(bodies))
        return draw(st.none() | whole)

    numbers = st.sets(st.integers(1, U63_MAX), min_size=len(bodies), max_size=len(bodies))
    return Publication(
        bodies,
        keys=column(st.binary(max_size=10)),
        headers=column(header_maps.map(encode_headers)),
        priorities=column(st.integers(0, 9)),
        delays_ms=column(st.integers(0, TEN_YEARS_MS)),
        ttls_ms=column(st.integers(0, TEN_YEARS_MS)),
        dedup_ids=column(st.binary(max_size=10)),
        numbers=draw(st.none() | numbers.map(sorted)),
    )


def laid_out(publication: Publication) -> Layout:
    listed, parts = pack_publication(publication)
    raw = memoryview(b"".join(parts))
    return lay_out(listed, raw, len(publication.bodies), PUBLISH_TAGS)


def numbers_of(layout: Layout, tag: int) -> list[int] | None:
    column = layout.column(tag)
    return None if column is None else list(unpack_u64(column))


@pytest.mark.slow
@settings(deadline=None)
@given(publications())
def test_a_publication_round_trips_column_by_column(publication: Publication) -> None:
    layout = laid_out(publication)
    check_publish(layout)
    assert sum(check_headers(layout)) >= 0
    assert layout.bodies() == publication.bodies
    assert layout.blobs(KEY_LENGTHS) == publication.keys
    assert layout.blobs(HEADER_LENGTHS) == publication.headers
    assert layout.blobs(DEDUP_LENGTHS) == publication.dedup_ids
    assert numbers_of(layout, DELAYS_MS) == publication.delays_ms
    assert numbers_of(layout, TTLS_MS) == publication.ttls_ms
    assert numbers_of(layout, NUMBERS) == publication.numbers
    priorities = layout.column(PRIORITIES)
    assert (None if priorities is None else list(priorities)) == publication.priorities


@pytest.mark.slow
@settings(deadline=None)
@given(publications())
def test_the_place_of_a_column_is_where_its_bytes_are(publication: Publication) -> None:
    layout = laid_out(publication)
    for tag in PUBLISH_TAGS:
        at, column = layout.at(tag), layout.column(tag)
        assert (at is None) == (column is None)
        if at is not None and column is not None:
            assert layout.raw[at : at + len(column)] == column
    assert layout.bodies_at + layout.bodies_bytes == len(layout.raw)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    publications(),
    st.lists(st.tuples(st.integers(0, 70_000), st.integers(0, 2**31)), max_size=14),
    st.integers(0, 25),
    st.integers(-3, 3),
)
def test_inconsistent_columns_raise_only_a_column_error(
    publication: Publication, listed: list[tuple[int, int]], count: int, cut: int
) -> None:
    sound, parts = pack_publication(publication)
    raw = b"".join(parts) + bytes(max(cut, 0))
    raw = raw[: len(raw) + min(cut, 0)]
    for claimed in (listed, [*sound, *listed], sound):
        try:
            layout = lay_out(claimed, memoryview(raw), count, PUBLISH_TAGS)
            check_publish(layout)
            assert sum(check_headers(layout)) >= 0
        except ColumnError:
            continue
        assert len(layout.bodies()) == count


def test_numbers_lie_little_endian_in_the_columns() -> None:
    assert pack_u32([1, U32_MAX]) == struct.pack("<2I", 1, U32_MAX)
    assert pack_u64([1, U63_MAX]) == struct.pack("<2Q", 1, U63_MAX)
    assert list(unpack_u32(struct.pack("<2I", 1, U32_MAX))) == [1, U32_MAX]
    assert list(unpack_u64(struct.pack("<2Q", 1, U63_MAX))) == [1, U63_MAX]


def test_numbers_lie_little_endian_on_a_big_endian_machine_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "_SWAP", True)
    assert pack_u32([1, 2]) == bytes([0, 0, 0, 1, 0, 0, 0, 2])
    assert list(unpack_u64(pack_u64([1, 2]))) == [1, 2]


def test_plain_messages_have_only_the_column_of_sizes() -> None:
    listed, parts = pack_publication(Publication([b"one", b"three"]))
    assert listed == ((SIZES, 8),)
    assert b"".join(parts) == struct.pack("<2I", 3, 5) + b"onethree"


SOUND: Mapping[int, bytes] = {SIZES: pack_u32([3, 5])}
BODIES = b"onethree"


def lay(
    parts: Mapping[int, bytes],
    bodies: bytes = BODIES,
    count: int = 2,
    known: frozenset[int] = PUBLISH_TAGS,
) -> Layout:
    listed = [(tag, len(part)) for tag, part in parts.items()]
    raw = b"".join(parts.values()) + bodies
    layout = lay_out(listed, memoryview(raw), count, known)
    check_publish(layout)
    assert sum(check_headers(layout)) >= 0
    return layout


MALFORMED: list[tuple[str, Mapping[int, bytes], bytes, Code]] = [
    ("no sizes", {}, BODIES, Code.INVALID_ARGUMENT),
    ("sizes for one", {SIZES: pack_u32([8])}, BODIES, Code.INVALID_ARGUMENT),
    ("sizes too small", {SIZES: pack_u32([3, 4])}, BODIES, Code.INVALID_ARGUMENT),
    ("sizes too large", {SIZES: pack_u32([3, U32_MAX])}, BODIES, Code.INVALID_ARGUMENT),
    ("no bodies", SOUND, b"", Code.INVALID_ARGUMENT),
    ("an unknown column", {**SOUND, 11: b"x"}, BODIES, Code.UNSUPPORTED),
    ("a column of deliveries", {**SOUND, 16: bytes(8)}, BODIES, Code.UNSUPPORTED),
    ("lengths alone", {**SOUND, KEY_LENGTHS: pack_u32([0, 0])}, BODIES, Code.INVALID_ARGUMENT),
    ("a blob alone", {**SOUND, KEY_BLOB: b"kk"}, BODIES, Code.INVALID_ARGUMENT),
    (
        "lengths beyond the blob",
        {**SOUND, KEY_LENGTHS: pack_u32([1, 2]), KEY_BLOB: b"kk"},
        BODIES,
        Code.INVALID_ARGUMENT,
    ),
    (
        "a blob beyond the lengths",
        {**SOUND, DEDUP_LENGTHS: pack_u32([1, 0]), DEDUP_BLOB: b"kk"},
        BODIES,
        Code.INVALID_ARGUMENT,
    ),
    (
        "a long key",
        {**SOUND, KEY_LENGTHS: pack_u32([1025, 0]), KEY_BLOB: bytes(1025)},
        BODIES,
        Code.TOO_LARGE,
    ),
    (
        "a long dedup id",
        {**SOUND, DEDUP_LENGTHS: pack_u32([256, 0]), DEDUP_BLOB: bytes(256)},
        BODIES,
        Code.TOO_LARGE,
    ),
    (
        "long headers",
        {**SOUND, HEADER_LENGTHS: pack_u32([65_537, 0]), HEADER_BLOB: bytes(65_537)},
        BODIES,
        Code.TOO_LARGE,
    ),
    (
        "headers that are none",
        {**SOUND, HEADER_LENGTHS: pack_u32([2, 0]), HEADER_BLOB: b"\xff\xff"},
        BODIES,
        Code.INVALID_ARGUMENT,
    ),
    ("one priority", {**SOUND, PRIORITIES: b"\x04"}, BODIES, Code.INVALID_ARGUMENT),
    ("priority 10", {**SOUND, PRIORITIES: b"\x00\x0a"}, BODIES, Code.INVALID_ARGUMENT),
    (
        "a delay beyond ten years",
        {**SOUND, DELAYS_MS: pack_u64([0, TEN_YEARS_MS + 1])},
        BODIES,
        Code.INVALID_ARGUMENT,
    ),
    (
        "a ttl beyond ten years",
        {**SOUND, TTLS_MS: pack_u64([0, TEN_YEARS_MS + 1])},
        BODIES,
        Code.INVALID_ARGUMENT,
    ),
    ("number 0", {**SOUND, NUMBERS: pack_u64([0, 1])}, BODIES, Code.INVALID_ARGUMENT),
    ("a number twice", {**SOUND, NUMBERS: pack_u64([7, 7])}, BODIES, Code.INVALID_ARGUMENT),
    ("numbers that fall", {**SOUND, NUMBERS: pack_u64([8, 7])}, BODIES, Code.INVALID_ARGUMENT),
    (
        "a number above 2^63",
        {**SOUND, NUMBERS: pack_u64([7, U63_MAX + 1])},
        BODIES,
        Code.INVALID_ARGUMENT,
    ),
]


@pytest.mark.parametrize(
    ("parts", "bodies", "code"),
    [case[1:] for case in MALFORMED],
    ids=[case[0] for case in MALFORMED],
)
def test_a_malformed_raw_part_is_refused_with_its_code(
    parts: Mapping[int, bytes], bodies: bytes, code: Code
) -> None:
    with pytest.raises(ColumnError) as caught:
        lay(parts, bodies)
    assert caught.value.code is code


def test_a_repeated_column_is_refused() -> None:
    raw = memoryview(pack_u32([3, 5]) * 2 + BODIES)
    with pytest.raises(ColumnError, match="appears twice"):
        lay_out([(SIZES, 8), (SIZES, 8)], raw, 2, PUBLISH_TAGS)


def test_columns_longer_than_the_raw_part_are_refused() -> None:
    with pytest.raises(ColumnError, match="shorter than its columns"):
        lay_out([(SIZES, 8)], memoryview(b"1234567"), 2, PUBLISH_TAGS)


def test_an_unknown_ignorable_column_is_skipped() -> None:
    layout = lay({IGNORABLE | 7: b"something new", **SOUND})
    assert layout.bodies() == [b"one", b"three"]


def test_columns_may_lie_in_any_order() -> None:
    layout = lay({PRIORITIES: b"\x00\x09", KEY_BLOB: b"kk", KEY_LENGTHS: pack_u32([0, 2]), **SOUND})
    assert layout.bodies() == [b"one", b"three"]
    assert layout.blobs(KEY_LENGTHS) == [b"", b"kk"]


def test_a_frame_without_messages_needs_no_columns() -> None:
    layout = lay_out((), memoryview(b""), 0, DELIVER_TAGS)
    assert layout.bodies() == []
    check_publish(layout)
    assert sum(check_headers(layout)) >= 0


def test_empty_columns_of_no_messages_are_accepted() -> None:
    layout = lay(dict.fromkeys(sorted(PUBLISH_TAGS), b""), b"", 0)
    assert layout.bodies() == []
    assert layout.blobs(KEY_LENGTHS) == []


def test_a_body_at_the_limit_passes_and_above_it_does_not() -> None:
    most = limits.BODY_BYTES_MAX
    assert lay({SIZES: pack_u32([most])}, bytes(most), 1).bodies() == [bytes(most)]
    with pytest.raises(ColumnError) as caught:
        lay({SIZES: pack_u32([most + 1])}, bytes(most + 1), 1)
    assert caught.value.code is Code.TOO_LARGE


def test_several_bodies_above_the_limit_of_a_frame_are_refused() -> None:
    half = limits.PUBLISH_BYTES_MAX // 2
    assert len(lay({SIZES: pack_u32([half, half])}, bytes(2 * half)).bodies()) == 2
    with pytest.raises(ColumnError, match="split it") as caught:
        lay({SIZES: pack_u32([half, half + 1])}, bytes(2 * half + 1))
    assert caught.value.code is Code.TOO_LARGE


def test_columns_above_their_share_of_a_frame_are_refused() -> None:
    keys = [bytes(1024)] * 512
    with pytest.raises(ColumnError, match="keys, headers and columns") as caught:
        check_publish(laid_out(Publication([b""] * 512, keys=keys)))
    assert caught.value.code is Code.TOO_LARGE


@pytest.mark.slow
@settings(deadline=None)
@given(publications(), st.integers(1, 7))
def test_the_parts_of_a_publication_are_its_messages_in_order(
    publication: Publication, most: int
) -> None:
    whole = laid_out(publication)
    parts = list(columns.split(whole, most))
    assert [part.count for part in parts[:-1]] == [most] * (len(parts) - 1)
    for tag in PUBLISH_TAGS:
        assert b"".join(bytes(part.column(tag) or b"") for part in parts) == (
            whole.column(tag) or b""
        )
    assert [body for part in parts for body in part.bodies()] == whole.bodies()
    for part in parts:
        again = lay_out(
            [(tag, size) for tag, (_, size) in part.places.items()],
            part.raw,
            part.count,
            PUBLISH_TAGS,
        )
        assert again == part


@pytest.mark.slow
@settings(deadline=None)
@given(header_maps)
def test_headers_round_trip(headers: dict[str, str]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=40) | header_maps.map(encode_headers), st.integers(0, 60))
def test_truncated_or_random_headers_raise_only_a_column_error(data: bytes, cut: int) -> None:
    try:
        headers = decode_headers(data[:cut])
    except ColumnError as error:
        assert error.code is Code.INVALID_ARGUMENT  # noqa: PT017 - both outcomes are right here
    else:
        assert encode_headers(headers) == data[:cut]


def test_a_header_is_length_name_length_value() -> None:
    assert encode_headers({"a": "bc"}) == b"\x01\x00a\x02\x00\x00\x00bc"
    assert encode_headers({}) == b""


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x01",
        b"\x01\x00",
        b"\x01\x00a",
        b"\x01\x00a\x02\x00\x00\x00b",
        b"\x00\x00\x01\x00\x00\x00b",
        b"\x01\x00\xff\x00\x00\x00\x00",
        b"\x01\x00a\x01\x00\x00\x00\xff",
        b"\x01\x00a\xff\xff\xff\xff",
        b"\x01\x00a\x00\x00\x00\x00" * 2,
    ],
)
def test_malformed_headers_are_refused(encoded: bytes) -> None:
    with pytest.raises(ColumnError) as caught:
        decode_headers(encoded)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "headers",
    [{"": "x"}, {"a": 1}, {1: "a"}, {"a": "x" * 65_536}, {"n" * 65_536: ""}, {"\ud800": ""}],
)
def test_headers_that_no_client_may_send_raise_a_value_error(headers: Any) -> None:
    with pytest.raises(ValueError, match=r"header|surrogates"):
        encode_headers(headers)
