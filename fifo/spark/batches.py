"""Deliveries as Arrow batches: the columns of the wire become those of a read.

Owns the way from a frame to a batch without an object for each cell: lengths become offsets, runs
become repeated or counted values. Only headers are looked at one by one, where there are any. The
names and types are those of `columns`. Must not connect.

Arrays are made of buffers, and no value of Python's is given to Arrow but for headers: at the first
one it imports pandas where that is installed, half a second of CPU in each process of Spark's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import fifo
from fifo.client import Delivered, Delivery
from fifo.spark.errors import SourceError
from fifo.words.bounds import PRIORITY_DEFAULT

_ATTEMPT_DEFAULT: Final = 1
_US_PER_MS: Final = 1_000


def to_batches(
    messages: Delivered[fifo.StoredMessage], schema: pa.Schema, *, consumer: int = 0
) -> Iterator[pa.RecordBatch]:
    """A batch for each frame, with the columns of this schema; `consumer`: that of the tokens, 0
    where nothing was taken."""
    for delivery, first, size in messages.stretches:
        arrays = [_array(delivery, field, consumer) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema).slice(first, size)


def _array(delivery: Delivery, field: pa.Field, consumer: int) -> pa.Array:
    if field.name == "token":
        return _tokens(delivery, field.type, consumer)
    return _MADE[field.name](delivery, field.type)


def _bodies(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    return _cut(delivery.count, delivery.wire.sizes, delivery.body_blob(), kind)


def _keys(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    wire = delivery.wire
    if wire.key_lengths is None:
        return pa.nulls(delivery.count, kind)
    found = _cut(delivery.count, wire.key_lengths, wire.keys, pa.binary())
    lengths = pc.binary_length(found)
    missing = pc.equal(lengths, _same(pa.int32(), 0, delivery.count))
    found = pc.if_else(missing, pa.nulls(delivery.count, pa.binary()), found)
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        raise _no_text(delivery, found) from None


def _no_text(delivery: Delivery, keys: pa.Array) -> SourceError:
    """The error that names the first message whose key is no text."""
    for index, key in enumerate(keys.to_pylist()):
        try:
            (key or b"").decode()
        except UnicodeDecodeError:
            return SourceError(
                f"queue {delivery.queue!r}: the key of message {delivery.id(index)} is not UTF-8;"
                ' read with .option("binaryKeys", "true")'
            )
    raise AssertionError("one of the keys is not UTF-8")


def _headers(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    wire = delivery.wire
    if wire.header_lengths is None:
        ends = _same(pa.int32(), 0, delivery.count + 1)
        return pa.MapArray.from_arrays(ends, pa.nulls(0, pa.string()), pa.nulls(0, pa.string()))
    encoded = _cut(delivery.count, wire.header_lengths, wire.headers, pa.binary())
    # Messages of one program mostly have the same headers: each is decoded once.
    alike = encoded.dictionary_encode()
    decoded = [list(wire.decode(one).items()) for one in alike.dictionary.to_pylist()]
    return pa.array(decoded, kind).take(alike.indices)


def _priorities(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    column = delivery.wire.priorities
    if column is None:
        return _same(kind, PRIORITY_DEFAULT, delivery.count)
    return _numbers(pa.uint8(), delivery.count, column).cast(kind)


def _attempts(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    column = delivery.wire.attempts
    if column is None:
        return _same(kind, _ATTEMPT_DEFAULT, delivery.count)
    return _numbers(pa.uint32(), delivery.count, column).cast(kind)


def _ids(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    """`queue.producer.number`: of each run, whose numbers follow each other, the first is given."""
    runs = delivery.runs
    numbers = array("q", chain.from_iterable([range(run[3], run[3] + run[0]) for run in runs]))
    # As few pieces as there are queues and producers that follow each other: mostly one.
    alike = groupby(runs, lambda run: f"{run[1]}.{run[2]}.")
    heads = [_repeated(kind, head, sum([run[0] for run in one])) for head, one in alike]
    head = heads[0] if len(heads) == 1 else pa.concat_arrays(heads)
    return _joined(head, _of(numbers).cast(kind))


def _published(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    runs = delivery.runs
    times = [_same(kind, run[4] * _US_PER_MS, run[0]) for run in runs]
    return times[0] if len(times) == 1 else pa.concat_arrays(times)


def _queues(delivery: Delivery, kind: pa.DataType) -> pa.Array:
    return _repeated(kind, delivery.queue, delivery.count)


def _tokens(delivery: Delivery, kind: pa.DataType, consumer: int) -> pa.Array:
    if not consumer:
        return pa.nulls(delivery.count, kind)
    first = delivery.first_token
    tokens = _of(array("q", range(first, first + delivery.count)))
    return _joined(_repeated(kind, f"{consumer}.", delivery.count), tokens.cast(kind))


_MADE: Final[dict[str, Callable[[Delivery, pa.DataType], pa.Array]]] = {
    "body": _bodies,
    "key": _keys,
    "headers": _headers,
    "priority": _priorities,
    "id": _ids,
    "attempt": _attempts,
    "published_at": _published,
    "queue": _queues,
}
"""A column for each field of a read, but for the token."""


def _cut(count: int, lengths: bytes, blob: bytes, kind: pa.DataType) -> pa.Array:
    """Items that lie end to end in a blob."""
    ends = _numbers(pa.uint32(), count, lengths).cast(pa.int32())
    offsets = pa.concat_arrays([_NOUGHT, pc.cumulative_sum(ends)])
    return pa.Array.from_buffers(
        kind, count, [None, offsets.buffers()[1], pa.py_buffer(blob)], null_count=0
    )


def _joined(heads: pa.Array, tails: pa.Array) -> pa.Array:
    nothing = _repeated(heads.type, "", len(heads))
    return pc.binary_join_element_wise(heads, tails, nothing)


def _same(kind: pa.DataType, value: int, count: int) -> pa.Array:
    """The same whole number for each message; a time is one as well."""
    values = array(_CODES[kind.bit_width], (value,)) * count
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)], null_count=0)


_CODES: Final = {32: "i", 64: "q"}
"""Kinds of numbers by their bits."""


def _repeated(kind: pa.DataType, text: str, count: int) -> pa.Array:
    """The same text for each message."""
    data = text.encode()
    ends = array("i", range(0, len(data) * count + 1, len(data))) if data else bytes(4 * count + 4)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(kind, count, buffers, null_count=0)


_NOUGHT: Final = _same(pa.int32(), 0, 1)


def _numbers(kind: pa.DataType, count: int, column: bytes) -> pa.Array:
    """A column of numbers as it lies in the frame, which is Arrow's form too: little-endian."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)], null_count=0)


def _of(numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(numbers)], null_count=0
    )
