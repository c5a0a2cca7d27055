"""The numbers of a written partition, which an attempt with the same rows repeats.

Owns the bits of a number: batch, chunk, digest, place. Where an earlier attempt stopped, its number
has the digest of all rows up to there, so that other rows are noticed. Must not connect.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

import fifo
from fifo.spark import limits

_END: Final = b"end of the partition"
_DIGEST_SHIFT: Final = limits.PLACE_BITS
_CHUNK_SHIFT: Final = _DIGEST_SHIFT + limits.DIGEST_BITS
_BATCH_SHIFT: Final = _CHUNK_SHIFT + limits.CHUNK_BITS


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, bool]]:
    """Chunks of SEND_MESSAGES rows wherever Spark's batches end; and whether each is the last."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            if count == limits.SEND_MESSAGES:
                yield pa.Table.from_batches(held), False
                held, count = [], 0
            held.append(batch.slice(at, limits.SEND_MESSAGES - count))
            at += held[-1].num_rows
            count += held[-1].num_rows
    if held:
        yield pa.Table.from_batches(held), True


class _Stored(NamedTuple):
    """The parts of the number that was stored last; chunks count from 1."""

    batch: int
    chunk: int
    digest: int


class Numbering:
    """Numbers the rows of one partition and batch, chunk by chunk."""

    def __init__(self, batch: int, last: int) -> None:
        """`last`: the number that the queue has stored last for this producer; 0 for none."""
        self._batch = batch % (1 << limits.BATCH_BITS)
        self._stored = _Stored(
            last >> _BATCH_SHIFT,
            (last >> _CHUNK_SHIFT) % (1 << limits.CHUNK_BITS),
            (last >> _DIGEST_SHIFT) % (1 << limits.DIGEST_BITS),
        )
        self._chunk = 0
        self._sum = 0

    def next(self, bodies: pa.ChunkedArray, *, is_last: bool) -> range:
        """Number the next chunk. Raises InvalidArgument where other rows have its numbers."""
        self._chunk += 1
        if self._chunk >> limits.CHUNK_BITS:
            most = ((1 << limits.CHUNK_BITS) - 1) * limits.SEND_MESSAGES
            raise fifo.InvalidArgument(
                f"a partition may have {most} rows: write with more partitions"
            )
        for blob in _joined(bodies):
            self._sum = zlib.crc32(blob, self._sum)
        if is_last:
            self._sum = zlib.crc32(_END, self._sum)
        digest = self._sum % (1 << limits.DIGEST_BITS)
        if self._stored[:2] == (self._batch, self._chunk) and self._stored.digest != digest:
            raise _changed()
        high = self._batch << _BATCH_SHIFT | self._chunk << _CHUNK_SHIFT
        first = (high | digest << _DIGEST_SHIFT) + 1
        return range(first, first + len(bodies))

    def end(self) -> None:
        """No more rows. Raises InvalidArgument where an earlier attempt stored more."""
        if self._stored.batch == self._batch and self._stored.chunk > self._chunk:
            raise _changed()


def _joined(bodies: pa.ChunkedArray) -> Iterator[memoryview[Any]]:
    """The bytes of all bodies, end to end, as they lie in Arrow's buffers."""
    for chunk in bodies.cast(pa.binary()).chunks:
        _, ends, blob = chunk.buffers()
        if blob is not None:
            offsets = memoryview(ends).cast("i")
            yield memoryview(blob)[offsets[chunk.offset] : offsets[chunk.offset + len(chunk)]]


def _changed() -> fifo.InvalidArgument:
    return fifo.InvalidArgument(
        "an earlier attempt stored other rows in their place: write with the partitions and the"
        " order of before (checkpoint() a plan that is not deterministic), or under another job or"
        " checkpointLocation, which stores all rows again"
    )
