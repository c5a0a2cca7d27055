"""Messages as columns: a block holds up to 1024 messages of one lane, in arrays.

Owns how what is needed to find a message again (its place in the log, size, key, headers, ttl) is
packed: one size per message, and one *span* per stretch of messages that came in one publish. Knows
nothing of ready, locked or delayed: a block is only appended to, and dropped when it is empty.
A block that a frozen view may hold is copied before it is appended to (see `records.State.freeze`).
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from fifo.machine import limits
from fifo.machine.effects import BlobColumn, Run
from fifo.machine.limits import BLOCK_MESSAGES
from fifo.machine.record import maker
from fifo.machine.types import NEVER_MS
from fifo.words.bounds import PRIORITY_DEFAULT

_LITTLE = sys.byteorder == "little"
_new_run = maker(Run)
_ONE = Struct("<I")


class Extras(NamedTuple):
    """Columns that plain messages do not have; one that is None is all default."""

    keys_at: int
    key_lengths: "array[int] | None"
    headers_at: int
    header_lengths: "array[int] | None"
    priorities: bytes | None
    expires: "array[int] | None"
    key_hashes: "array[int] | None"

    def part(self, start: int, stop: int) -> "Extras":
        """Those of messages `start` to `stop`."""
        keys, headers = self.key_lengths, self.header_lengths
        return Extras(
            self.keys_at + sum(keys[:start]) if keys else 0,
            keys[start:stop] if keys else None,
            self.headers_at + sum(headers[:start]) if headers else 0,
            headers[start:stop] if headers else None,
            self.priorities[start:stop] if self.priorities else None,
            self.expires[start:stop] if self.expires else None,
            self.key_hashes[start:stop] if self.key_hashes else None,
        )


PLAIN = Extras(0, None, 0, None, None, None, None)


class Batch(NamedTuple):
    """A stretch of messages to append: one entry, one producer, consecutive numbers.

    `bodies_at` and the blobs' offsets are relative to the area of entry `index`.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which a batch has no use for
    bodies_at: int
    sizes: Sequence[int]
    bodies_bytes: int
    producer: int
    number: int
    queue_number: int
    wall_ms: int
    stamp_ms: int
    extras: Extras

    def part(self, start: int, stop: int) -> "Batch":
        """Messages `start` to `stop` of this batch as a batch of their own."""
        sizes = self.sizes[start:stop]
        return Batch(
            self.index,
            self.bodies_at + sum(self.sizes[:start]),
            sizes,
            sum(sizes),
            self.producer,
            self.number + start,
            self.queue_number,
            self.wall_ms,
            self.stamp_ms,
            self.extras if self.extras is PLAIN else self.extras.part(start, stop),
        )


new_batch = maker(Batch)


class Block:
    """Columns of up to `BLOCK_MESSAGES` messages with consecutive positions.

    `is_plain`: none of them has extras, so that all those columns are None.
    """

    __slots__ = (
        "expires",
        "generation",
        "header_lengths",
        "headers_at",
        "indexes",
        "is_plain",
        "key_hashes",
        "key_lengths",
        "keys_at",
        "numbers",
        "places",
        "priorities",
        "producers",
        "queues",
        "sizes",
        "stamps",
        "starts",
        "walls",
    )

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.is_plain = True
        self.sizes = array("I")
        self.starts = array("H")
        self.indexes = array("Q")
        self.places = array("I")
        self.producers = array("Q")
        self.numbers = array("Q")
        self.queues = array("I")
        self.walls = array("Q")
        self.stamps = array("Q")
        self.keys_at: array[int] | None = None
        self.key_lengths: array[int] | None = None
        self.headers_at: array[int] | None = None
        self.header_lengths: array[int] | None = None
        self.priorities: bytearray | None = None
        self.expires: array[int] | None = None
        self.key_hashes: array[int] | None = None

    def copy(self, generation: int) -> "Block":
        """A block with columns of its own."""
        twin = Block(generation)
        twin.is_plain = self.is_plain
        for column in BLOCK_COLUMNS:
            values = getattr(self, column)
            setattr(twin, column, values[:] if values is not None else None)
        return twin

    def append(self, batch: Batch) -> None:
        """Put the messages of `batch` behind those that are there; there must be room."""
        index, bodies_at, sizes, _, producer, number, queue, wall_ms, stamp_ms, extras = batch
        count, added = len(self.sizes), len(sizes)
        assert count + added <= BLOCK_MESSAGES, "a block overflows"
        # First, while `starts` still counts the spans before this one: blobs are filled up to it.
        if not self.is_plain or extras is not PLAIN:
            self._append_extras(extras, count, added)
        self.starts.append(count)
        self.indexes.append(index)
        self.places.append(bodies_at)
        self.producers.append(producer)
        self.numbers.append(number)
        self.queues.append(queue)
        self.walls.append(wall_ms)
        self.stamps.append(stamp_ms)
        self.sizes.extend(sizes)

    def _append_extras(self, extras: Extras, count: int, added: int) -> None:
        """The other columns grow by `added`; one that was absent so far is filled with defaults."""
        self.is_plain = False
        spans = len(self.starts)
        keys_at, keys, headers_at, headers, priorities, expires, hashes = extras
        if keys is not None or self.key_lengths is not None:
            self.keys_at, self.key_lengths = _blobs(
                self.keys_at, self.key_lengths, keys_at, keys, spans, count, added
            )
        if headers is not None or self.header_lengths is not None:
            self.headers_at, self.header_lengths = _blobs(
                self.headers_at, self.header_lengths, headers_at, headers, spans, count, added
            )
        if priorities is not None or self.priorities is not None:
            if self.priorities is None:
                self.priorities = bytearray([PRIORITY_DEFAULT]) * count
            self.priorities += priorities or bytes([PRIORITY_DEFAULT]) * added
        if expires is not None or self.expires is not None:
            if self.expires is None:
                self.expires = array("Q", [NEVER_MS]) * count
            self.expires += expires or array("Q", [NEVER_MS]) * added
        if hashes is not None or self.key_hashes is not None:
            if self.key_hashes is None:
                self.key_hashes = array("Q", [0]) * count
            self.key_hashes += hashes or array("Q", [0]) * added

    def runs(self, offset: int, count: int) -> list[Run]:
        """The messages from `offset` on as runs, fresh ones: first attempt, no failures."""
        starts = self.starts
        end = offset + count
        # Columns per span (index, place, producer, number) hold for its first message; that of
        # another follows by counting: numbers are consecutive, bodies lie end to end.
        span = len(starts) - 1
        if starts[span] > offset:  # what was published last is what is wanted most
            span = bisect_right(starts, offset) - 1
        if count == 1:
            return [self._run(span, offset, end)]
        found = []
        while offset < end:
            # The last span has no successor: what was asked for ends in it.
            stop = starts[span + 1] if span + 1 < len(starts) else end
            if stop > end:
                stop = end
            found.append(self._run(span, offset, stop))
            offset = stop
            span += 1
        return found

    def _run(self, span: int, offset: int, stop: int) -> Run:
        start = self.starts[span]
        count = stop - offset
        sizes = self.sizes[offset:stop]
        bodies_at = self.places[span]
        number = self.numbers[span]
        if offset != start:
            bodies_at += sum(self.sizes[start:offset])
            number += offset - start
        keys = headers = priorities = None
        if not self.is_plain:
            if self.key_lengths is not None and self.keys_at is not None:
                keys = _blob_column(self.key_lengths, self.keys_at[span], start, offset, stop)
            if self.header_lengths is not None and self.headers_at is not None:
                at = self.headers_at[span]
                headers = _blob_column(self.header_lengths, at, start, offset, stop)
            if self.priorities is not None:
                priorities = bytes(self.priorities[offset:stop])
                if priorities.count(PRIORITY_DEFAULT) == len(priorities):
                    priorities = None
        return _new_run(
            (
                self.indexes[span],
                count,
                bodies_at,
                sizes,
                sizes[0] if count == 1 else sum(sizes),
                keys,
                headers,
                self.producers[span],
                number,
                self.queues[span],
                self.walls[span],
                priorities,
                None,
                None,
                None,
            )
        )

    def stamp_ms(self, offset: int) -> int:
        """Cluster time at which the message was published."""
        return self.stamps[bisect_right(self.starts, offset) - 1]

    def take_out(self, offset: int) -> Batch:
        """Copy a message as a batch of one, to append elsewhere: same id, same place in the log.

        Its ttl ends with the move; its priority is what it was published with.
        """
        span = bisect_right(self.starts, offset) - 1
        run = self._run(span, offset, offset + 1)
        return Batch(
            run.index,
            run.bodies_at,
            run.sizes,
            run.bodies_bytes,
            run.producer,
            run.number,
            run.queue_number,
            run.published_wall_ms,
            self.stamps[span],
            Extras(
                run.keys.blob_at if run.keys else 0,
                run.keys.lengths if run.keys else None,
                run.headers.blob_at if run.headers else 0,
                run.headers.lengths if run.headers else None,
                run.priorities,
                None,
                self.key_hashes[offset : offset + 1] if self.key_hashes is not None else None,
            ),
        )


BLOCK_COLUMNS = tuple(name for name in Block.__slots__ if name not in ("generation", "is_plain"))

EXTRA_COLUMNS = tuple(name for name in BLOCK_COLUMNS if getattr(Block(0), name) is None)


def _blobs(
    blobs_at: "array[int] | None",
    lengths: "array[int] | None",
    batch_at: int,
    batch_lengths: "array[int] | None",
    spans: int,
    count: int,
    added: int,
) -> "tuple[array[int], array[int]]":
    """The two columns of keys or headers with a span added; absent ones are filled with zeros."""
    if blobs_at is None or lengths is None:
        blobs_at, lengths = array("I", bytes(4 * spans)), array("I", bytes(4 * count))
    blobs_at.append(batch_at)
    lengths += batch_lengths if batch_lengths is not None else array("I", bytes(4 * added))
    return blobs_at, lengths


def _blob_column(
    lengths: "array[int]", blob_at: int, start: int, offset: int, stop: int
) -> BlobColumn | None:
    wanted = lengths[offset:stop]
    total = sum(wanted)
    if total == 0:
        return None
    if offset != start:
        blob_at += sum(lengths[start:offset])
    return BlobColumn(blob_at, wanted, total)


@lru_cache(limits.KEY_HASHES)
def key_hash(key: bytes) -> int:
    """The hash by which a key-ordered queue orders a key, the same in all queues; never 0."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little") or 1


def unpack_sizes(area: memoryview, at: int, count: int) -> Sequence[int] | None:
    """A column of lengths like `unpack`; of one message a tuple, which takes a third of the time of
    an array."""
    if count != 1:
        return unpack(area, at, count, "I")
    return _ONE.unpack_from(area, at) if 0 <= at <= len(area) - _ONE.size else None


def unpack(area: memoryview, at: int, count: int, kind: str) -> "array[int] | None":
    """A packed little-endian column of the entry's area; None where it does not fit in there."""
    column = array(kind)
    end = at + count * column.itemsize
    if at < 0 or end > len(area):
        return None
    column.frombytes(area[at:end])
    if not _LITTLE:
        column.byteswap()
    return column
