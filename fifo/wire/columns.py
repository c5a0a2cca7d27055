"""The raw part of publish and delivery frames: columns first, then the bodies end to end.

Owns the column tags and their packing. A column holds one thing for all messages of the frame;
an absent one means that every message has the default. Numbers are little-endian arrays; keys,
headers and dedup ids are two columns each, lengths (u32) and one blob; length 0 means none.
The header of the frame lists `[tag, bytes]` in the order in which the columns lie in the raw part.
A publish to several queues has columns with an item for each queue too: whose the messages are.
Must not know queues or sessions. `docs/protocol.md` lists the tags: change them together.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from fifo.wire import limits
from fifo.wire.errors import Code
from fifo.wire.fields import U63_MAX
from fifo.wire.frames import Buffer
from fifo.words.bounds import PRIORITY_DEFAULT, PRIORITY_MAX

SIZES: Final = 0
KEY_LENGTHS: Final = 1
KEY_BLOB: Final = 2
HEADER_LENGTHS: Final = 3
HEADER_BLOB: Final = 4
PRIORITIES: Final = 5
DELAYS_MS: Final = 6
TTLS_MS: Final = 7
DEDUP_LENGTHS: Final = 8
DEDUP_BLOB: Final = 9
NUMBERS: Final = 10
QUEUE_CORRELATIONS: Final = 11
QUEUE_COUNTS: Final = 12
QUEUE_PREVIOUS: Final = 13
QUEUE_NUMBERS: Final = 14
QUEUES_BELOW: Final = 15
ATTEMPTS: Final = 16
FAILURES: Final = 17

IGNORABLE: Final = 0x8000
"""A tag with this bit may be skipped by who does not know it; any other is `unsupported`."""


_WIDTH: Final[dict[int, int]] = {
    SIZES: 4,
    KEY_LENGTHS: 4,
    HEADER_LENGTHS: 4,
    PRIORITIES: 1,
    DELAYS_MS: 8,
    TTLS_MS: 8,
    DEDUP_LENGTHS: 4,
    NUMBERS: 8,
    ATTEMPTS: 4,
    FAILURES: 4,
}
"""Bytes per message of the fixed-width columns."""

_QUEUE_WIDTH: Final[dict[int, int]] = {
    QUEUE_CORRELATIONS: 8,
    QUEUE_COUNTS: 4,
    QUEUE_PREVIOUS: 8,
    QUEUE_NUMBERS: 8,
    QUEUES_BELOW: 8,
}
"""Bytes per queue of the columns with an item for each queue."""

_BLOBS: Final[dict[int, tuple[int, int]]] = {
    KEY_LENGTHS: (KEY_BLOB, limits.KEY_BYTES_MAX),
    HEADER_LENGTHS: (HEADER_BLOB, limits.HEADERS_BYTES_MAX),
    DEDUP_LENGTHS: (DEDUP_BLOB, limits.DEDUP_ID_BYTES_MAX),
}
"""Length column to its blob and to the longest single item."""

PUBLISH_TAGS: Final = frozenset(range(NUMBERS + 1))
ACROSS_TAGS: Final = PUBLISH_TAGS - {NUMBERS} | _QUEUE_WIDTH.keys()
DELIVER_TAGS: Final = frozenset(
    {
        SIZES,
        KEY_LENGTHS,
        KEY_BLOB,
        HEADER_LENGTHS,
        HEADER_BLOB,
        PRIORITIES,
        ATTEMPTS,
        FAILURES,
    }
)

_SWAP: Final = sys.byteorder == "big"


class ColumnError(ValueError):
    """The raw part does not hold what the header says; `code` is what to answer."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def _unpack(code: str, column: Buffer) -> array[int]:
    values = array(code)
    values.frombytes(column)
    if _SWAP:
        values.byteswap()
    return values


unpack_u32: Final = partial(_unpack, "I")
"""A u32 column as an array."""

unpack_u64: Final = partial(_unpack, "Q")
"""A u64 column as an array."""


def pack_u32(values: Sequence[int]) -> bytes:
    """A u32 column from numbers."""
    return _pack("I", values)


def pack_u64(values: Sequence[int]) -> bytes:
    """A u64 column from numbers."""
    return _pack("Q", values)


def _pack(code: str, values: Sequence[int]) -> bytes:
    packed = array(code, values)
    if _SWAP:
        packed.byteswap()
    return packed.tobytes()


@dataclass(slots=True)  # not frozen: that would cost each publish a microsecond
class Layout:
    """Where everything lies in a raw part: columns by tag as (offset, bytes), and the bodies."""

    count: int
    places: Mapping[int, tuple[int, int]]
    bodies_at: int
    bodies_bytes: int
    raw: memoryview

    def column(self, tag: int) -> memoryview | None:
        """The bytes of one column, or None where it is absent."""
        place = self.places.get(tag)
        return None if place is None else self.raw[place[0] : place[0] + place[1]]

    def at(self, tag: int) -> int | None:
        """Where the column begins in the raw part, or None where it is absent."""
        place = self.places.get(tag)
        return None if place is None else place[0]

    def blobs(self, lengths_tag: int) -> list[bytes] | None:
        """Keys, headers or dedup ids, one per message (empty: none), or None if all are absent."""
        lengths = self.column(lengths_tag)
        blob = self.column(_BLOBS[lengths_tag][0])
        if lengths is None or blob is None:
            return None
        return cut(blob, unpack_u32(lengths))

    def bodies(self) -> list[bytes]:
        """Every body, copied out of the frame."""
        if self.count == 0:
            return []
        sizes = self.column(SIZES)
        assert sizes is not None, "lay_out refuses messages without sizes"
        end = self.bodies_at + self.bodies_bytes
        return cut(self.raw[self.bodies_at : end], unpack_u32(sizes))


def cut(blob: Buffer, lengths: Sequence[int]) -> list[bytes]:
    """Slices of a blob, end to end, with these lengths."""
    data = bytes(blob)
    return [data[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]


def differs(layout: Layout) -> bool:
    """Whether messages have another priority than their neighbours, or numbers with gaps."""
    priorities, numbers = layout.column(PRIORITIES), layout.column(NUMBERS)
    if priorities is not None and len(set(priorities)) > 1:
        return True
    if numbers is None:
        return False
    listed = unpack_u64(numbers)
    return listed[-1] - listed[0] >= layout.count


def split(layout: Layout, most: int) -> Iterator[Layout]:
    """The same messages in parts of at most `most`, each the layout of a raw part of its own."""
    return cut_up(layout, [*range(0, layout.count, most), layout.count])


def cut_up(layout: Layout, cuts: Sequence[int]) -> Iterator[Layout]:
    """The same messages in parts, each the layout of a raw part of its own; `cuts`: where the first
    begins, and where each ends. Columns with an item for each queue are left out."""
    sizes = unpack_u32(layout.column(SIZES) or b"")
    ends = {SIZES: list(accumulate(sizes, initial=0))}
    for tag in _BLOBS:
        lengths = layout.column(tag)
        if lengths is not None:
            ends[tag] = list(accumulate(unpack_u32(lengths), initial=0))
    for low, high in pairwise(cuts):
        yield _part(layout, ends, low, high)


def _part(layout: Layout, ends: Mapping[int, Sequence[int]], low: int, high: int) -> Layout:
    """Messages low..high of a publish; `ends`: where bodies, keys and the like end, from 0 on."""
    blob_of = {blob: lengths for lengths, (blob, _) in _BLOBS.items()}
    places: dict[int, tuple[int, int]] = {}
    parts: list[memoryview] = []
    at = 0
    for tag in layout.places:
        column = layout.column(tag)
        assert column is not None, "the tag is one of the layout's"
        if tag in _WIDTH:
            part = column[low * _WIDTH[tag] : high * _WIDTH[tag]]
        elif tag in blob_of:
            part = column[ends[blob_of[tag]][low] : ends[blob_of[tag]][high]]
        else:
            continue  # ignorable and unknown, or about queues
        places[tag] = (at, len(part))
        parts.append(part)
        at += len(part)
    first, end = ends[SIZES][low], ends[SIZES][high]
    parts.append(layout.raw[layout.bodies_at + first : layout.bodies_at + end])
    return Layout(high - low, places, at, end - first, memoryview(b"".join(parts)))


def lay_out(
    columns: Sequence[tuple[int, int]],
    raw: memoryview,
    count: int,
    known: frozenset[int],
    queues: int = 1,
) -> Layout:
    """Find the columns in a raw part, and check every length once. Raises ColumnError."""
    places: dict[int, tuple[int, int]] = {}
    at = 0
    for tag, size in columns:
        if tag in places:
            raise ColumnError(Code.INVALID_ARGUMENT, f"column {tag} appears twice")
        if tag not in known and not tag & IGNORABLE:
            raise ColumnError(Code.UNSUPPORTED, f"column {tag} is not known to this version")
        width = _WIDTH.get(tag)
        if width is not None and size != width * count:
            raise ColumnError(
                Code.INVALID_ARGUMENT, f"column {tag} must have {width} bytes per message"
            )
        width = _QUEUE_WIDTH.get(tag)
        if width is not None and tag in known and size != width * queues:
            raise ColumnError(
                Code.INVALID_ARGUMENT, f"column {tag} must have {width} bytes per queue"
            )
        places[tag] = (at, size)
        at += size
    layout = Layout(count, places, at, len(raw) - at, raw)
    _check_bodies(layout)
    for lengths_tag, (blob_tag, longest) in _BLOBS.items():
        if lengths_tag in places or blob_tag in places:
            _check_blob(layout, lengths_tag, blob_tag, longest)
    return layout


def _check_bodies(layout: Layout) -> None:
    if layout.bodies_bytes < 0:
        raise ColumnError(Code.INVALID_ARGUMENT, "the raw part is shorter than its columns")
    sizes = layout.column(SIZES)
    if sizes is None and layout.count > 0:
        raise ColumnError(Code.INVALID_ARGUMENT, f"column {SIZES}, the sizes, is missing")
    values = unpack_u32(sizes or b"")
    if sum(values) != layout.bodies_bytes:
        raise ColumnError(
            Code.INVALID_ARGUMENT, "the sizes do not add up to the length of the bodies"
        )
    if max(values, default=0) > limits.BODY_BYTES_MAX:
        raise ColumnError(Code.TOO_LARGE, f"a body is larger than {limits.BODY_BYTES_MAX} bytes")


def _check_blob(layout: Layout, lengths_tag: int, blob_tag: int, longest: int) -> None:
    lengths, blob = layout.column(lengths_tag), layout.column(blob_tag)
    if lengths is None or blob is None:
        raise ColumnError(
            Code.INVALID_ARGUMENT, f"columns {lengths_tag} and {blob_tag} go together"
        )
    values = unpack_u32(lengths)
    if sum(values) != len(blob):
        raise ColumnError(
            Code.INVALID_ARGUMENT, f"column {lengths_tag} does not add up to column {blob_tag}"
        )
    if max(values, default=0) > longest:
        raise ColumnError(
            Code.TOO_LARGE, f"an item of column {blob_tag} is larger than {longest} bytes"
        )


def check_publish(layout: Layout) -> None:
    """Check a publish frame beyond its layout: total size, and the values of its columns."""
    if layout.count > 1 and layout.bodies_bytes > limits.PUBLISH_BYTES_MAX:
        raise ColumnError(
            Code.TOO_LARGE,
            f"the bodies of one publish frame exceed {limits.PUBLISH_BYTES_MAX} bytes; split it",
        )
    if len(layout.raw) - layout.bodies_bytes > limits.PUBLISH_BYTES_MAX // 2:
        raise ColumnError(
            Code.TOO_LARGE,
            f"keys, headers and columns exceed {limits.PUBLISH_BYTES_MAX // 2} bytes; split it",
        )
    if len(layout.places) == 1:
        return  # Sizes alone, which were checked; or no message.
    priorities = layout.column(PRIORITIES)
    if priorities is not None and max(priorities, default=0) > PRIORITY_MAX:
        raise ColumnError(Code.INVALID_ARGUMENT, f"a priority is above {PRIORITY_MAX}")
    for tag, what in ((DELAYS_MS, "delay"), (TTLS_MS, "ttl")):
        column = layout.column(tag)
        if column is not None and max(unpack_u64(column), default=0) > limits.DURATION_MS_MAX:
            raise ColumnError(Code.INVALID_ARGUMENT, f"a {what} is above ten years")
    numbers = layout.column(NUMBERS)
    if numbers is not None:
        _check_numbers(unpack_u64(numbers))


class QueueColumns(NamedTuple):
    """The columns of a publish to several queues that have an item for each queue.

    `previous`, `numbers` and `below` are those of a publish to that queue alone; a column of the
    last that is missing says that nothing is sent again.
    """

    correlations: Sequence[int]
    counts: Sequence[int]
    previous: Sequence[int]
    numbers: Sequence[int]
    below: Sequence[int]


def queue_columns(layout: Layout, queues: int) -> QueueColumns:
    """The columns of a publish to several queues that are about queues. Raises ColumnError."""
    found: list[Sequence[int]] = []
    for tag in _QUEUE_WIDTH:
        column = layout.column(tag)
        if column is not None:
            found.append((unpack_u32 if _QUEUE_WIDTH[tag] == 4 else unpack_u64)(column))
        elif tag == QUEUES_BELOW:
            found.append([0] * queues)
        else:
            raise ColumnError(Code.INVALID_ARGUMENT, f"column {tag} is missing")
    columns = QueueColumns(*found)
    counts = columns.counts
    if sum(counts) != layout.count or not all(counts):
        raise ColumnError(
            Code.INVALID_ARGUMENT,
            f"column {QUEUE_COUNTS} must hold 1 or more for each queue, {layout.count} in all",
        )
    if max(map(max, columns)) > U63_MAX - limits.PUBLISH_ACROSS_MESSAGES_MAX:
        raise ColumnError(Code.INVALID_ARGUMENT, "a number of a queue's column is above 2^63 - 501")
    for previous, number in zip(columns.previous, columns.numbers, strict=True):
        if previous >= number:
            raise ColumnError(
                Code.INVALID_ARGUMENT, f"number {number} must be above the one before, {previous}"
            )
    return columns


def check_headers(layout: Layout) -> Iterator[int]:
    """Check the headers of all messages, a message at a time: the bytes of each that was checked.

    Half a MiB of short ones takes 20 ms; the caller may do something else in between.
    """
    for one in set(layout.blobs(HEADER_LENGTHS) or ()):
        decode_headers(one)
        yield len(one)


def _check_numbers(numbers: Sequence[int]) -> None:
    below = 0
    for number in numbers:
        if not below < number <= U63_MAX:
            raise ColumnError(Code.INVALID_ARGUMENT, f"numbers must ascend, up to {U63_MAX}")
        below = number


@dataclass(slots=True)  # not frozen, as `Layout`
class Publication:
    """The messages of one publish frame: bodies, and per message whatever differs.

    Each optional sequence is None (all default) or has one item per body; `b""` stands for no key,
    no headers, no dedup id; 0 for no delay; 0 for no ttl.
    """

    bodies: Sequence[Buffer]
    keys: Sequence[bytes] | None = None
    headers: Sequence[bytes] | None = None
    priorities: Sequence[int] | None = None
    delays_ms: Sequence[int] | None = None
    ttls_ms: Sequence[int] | None = None
    dedup_ids: Sequence[bytes] | None = None
    numbers: Sequence[int] | None = None


_beyond_bodies = attrgetter(
    *("keys", "headers", "priorities", "delays_ms", "ttls_ms", "dedup_ids", "numbers")
)
_NOTHING_MORE: Final = (None,) * 7


def pack_publication(publication: Publication) -> tuple[tuple[tuple[int, int], ...], list[Buffer]]:
    """The columns list and the raw parts of a publish frame."""
    p = publication
    sizes = _pack("I", list(map(len, p.bodies)))
    if _beyond_bodies(p) == _NOTHING_MORE:
        return ((SIZES, len(sizes)),), [sizes, *p.bodies]
    parts: list[tuple[int, bytes]] = [(SIZES, sizes)]
    for tag, items in (
        (KEY_LENGTHS, p.keys),
        (HEADER_LENGTHS, p.headers),
        (DEDUP_LENGTHS, p.dedup_ids),
    ):
        if items is not None:
            parts.append((tag, pack_u32([len(item) for item in items])))
            parts.append((_BLOBS[tag][0], b"".join(items)))
    if p.priorities is not None:
        parts.append((PRIORITIES, bytes(p.priorities)))
    for tag, values in ((DELAYS_MS, p.delays_ms), (TTLS_MS, p.ttls_ms), (NUMBERS, p.numbers)):
        if values is not None:
            parts.append((tag, pack_u64(values)))
    listed = tuple((tag, len(part)) for tag, part in parts)
    return listed, [*(part for _, part in parts), *p.bodies]


Part: TypeAlias = tuple[int, int, int, int, Publication]
"""The messages of one queue in a publish to several, behind what the queue's columns say: its
correlation, the number before the first one, that number, and the bound of the queue's own."""


def pack_parts(parts: Sequence[Part]) -> tuple[int, tuple[tuple[int, int], ...], list[Buffer]]:
    """The number of messages, the columns list and the raw parts of a publish to several queues;
    `numbers` of the publications are left out: a part's ascend by one."""
    correlations, previous, numbers, below, publications = zip(*parts, strict=True)
    counts = [len(one.bodies) for one in publications]
    columns = [
        (QUEUE_CORRELATIONS, pack_u64(correlations)),
        (QUEUE_COUNTS, pack_u32(counts)),
        (QUEUE_PREVIOUS, pack_u64(previous)),
        (QUEUE_NUMBERS, pack_u64(numbers)),
    ]
    if any(below):
        columns.append((QUEUES_BELOW, pack_u64(below)))
    listed, raw = pack_publication(joined(publications))
    before = [(tag, len(column)) for tag, column in columns]
    return sum(counts), (*before, *listed), [*(column for _, column in columns), *raw]


def joined(publications: Sequence[Publication]) -> Publication:
    """Several as one; a column that one of them has gets the default for the messages of the
    others."""
    bodies = list(chain.from_iterable([one.bodies for one in publications]))
    if all(map(_is_plain, publications)):
        return Publication(bodies)

    def column(name: str, default: Any) -> Sequence[Any] | None:
        found = [(one, getattr(one, name)) for one in publications]
        if all(values is None for _, values in found):
            return None
        lacking = [
            [default] * len(one.bodies) if values is None else values for one, values in found
        ]
        return list(chain.from_iterable(lacking))

    return Publication(
        bodies,
        keys=column("keys", b""),
        headers=column("headers", b""),
        priorities=column("priorities", PRIORITY_DEFAULT),
        delays_ms=column("delays_ms", 0),
        ttls_ms=column("ttls_ms", 0),
        dedup_ids=column("dedup_ids", b""),
    )


_columns_of = attrgetter("keys", "headers", "priorities", "delays_ms", "ttls_ms", "dedup_ids")


def _is_plain(publication: Publication) -> bool:
    return not any(_columns_of(publication))


_NAME_LENGTH: Final = struct.Struct("<H")
_VALUE_LENGTH: Final = struct.Struct("<I")


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Headers of one message: u16 length, name, u32 length, value, repeated; empty: none.

    Raises ValueError where names or values are not text, or all of it is too large.
    """
    parts: list[bytes] = []
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str:
            raise ValueError("header names and values must be text")
        name_bytes, value_bytes = name.encode(), value.encode()
        if not 0 < len(name_bytes) <= 0xFFFF:
            raise ValueError("a header name must be 1 to 65535 bytes long")
        parts += (
            _NAME_LENGTH.pack(len(name_bytes)),
            name_bytes,
            _VALUE_LENGTH.pack(len(value_bytes)),
            value_bytes,
        )
    encoded = b"".join(parts)
    if len(encoded) > limits.HEADERS_BYTES_MAX:
        raise ValueError(f"headers are larger than {limits.HEADERS_BYTES_MAX} bytes")
    return encoded


def decode_headers(encoded: Buffer) -> dict[str, str]:
    """The headers of one message. Raises ColumnError where they are malformed."""
    data = bytes(encoded)
    headers: dict[str, str] = {}
    at, size, count = 0, len(data), 0
    try:
        while at < size:
            (name_bytes,) = _NAME_LENGTH.unpack_from(data, at)
            start = at + _NAME_LENGTH.size
            split = start + name_bytes
            (value_bytes,) = _VALUE_LENGTH.unpack_from(data, split)
            at = split + _VALUE_LENGTH.size + value_bytes
            headers[data[start:split].decode()] = data[at - value_bytes : at].decode()
            count += 1
    except (struct.error, UnicodeDecodeError):
        raise ColumnError(Code.INVALID_ARGUMENT, "headers are malformed") from None
    if at != size:
        raise ColumnError(Code.INVALID_ARGUMENT, "headers end before their declared length")
    if len(headers) != count or "" in headers:
        raise ColumnError(Code.INVALID_ARGUMENT, "a header name is empty, or appears twice")
    return headers
