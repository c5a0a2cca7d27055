"""The columns of a publish, read out of the entry's area and checked against it and the limits.

Owns their reading alone: what of them is stored, and where, is `publish`'s.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from fifo.machine import limits
from fifo.machine.commands import Publish, PublishAcross
from fifo.machine.record import value
from fifo.machine.state.blocks import unpack, unpack_sizes
from fifo.machine.types import Column
from fifo.words import bounds


class InvalidColumn(Exception):
    """A column that cannot be; raised here, and caught by the verbs of publishers."""


@value
class Columns:
    """The columns that plain messages do not have, all of the batch's length or None."""

    key_lengths: "array[int] | None"
    header_lengths: "array[int] | None"
    priorities: bytes | None
    delays: "array[int] | None"
    ttls: "array[int] | None"
    dedup_ids: list[bytes] | None
    numbers: "array[int] | None"

    def part(self, low: int, high: int) -> "Columns":
        """The columns of messages low..high-1 but their numbers; one that is all default there is
        None, as if they had come alone."""
        if self is NO_COLUMNS:
            return self
        priorities, dedup_ids = self.priorities, self.dedup_ids
        if priorities is not None:
            priorities = priorities[low:high]
            if priorities.count(bounds.PRIORITY_DEFAULT) == len(priorities):
                priorities = None
        if dedup_ids is not None:
            dedup_ids = dedup_ids[low:high]
            dedup_ids = dedup_ids if any(dedup_ids) else None
        return Columns(
            _slice(self.key_lengths, low, high),
            _slice(self.header_lengths, low, high),
            priorities,
            _slice(self.delays, low, high),
            _slice(self.ttls, low, high),
            dedup_ids,
            None,
        )


NO_COLUMNS = Columns(None, None, None, None, None, None, None)
"""Those of a plain publish: one look tells that there are none."""


def _slice(column: "array[int] | None", low: int, high: int) -> "array[int] | None":
    return None if column is None else _unless_zero(column[low:high])


def _unless_zero(column: "array[int]") -> "array[int] | None":
    return column if any(column) else None


def parts(
    area: memoryview, command: PublishAcross, sizes: Sequence[int], columns: Columns
) -> Iterator[tuple[Publish, Sequence[int], int, Columns]]:
    """The parts of a publish to several queues, each as a publish to that queue alone with what
    `read` finds of it.

    Raises `InvalidColumn` before the first where a column that says so is not there.
    """
    count = len(command.queues)
    counts = unpack(area, command.counts_at, count, "I")
    previous = unpack(area, command.previous_at, count, "Q")
    numbers = unpack(area, command.numbers_at, count, "Q")
    below_at = command.below_at
    below = array("Q", [0]) * count if below_at is None else unpack(area, below_at, count, "Q")
    if counts is None or previous is None or numbers is None or below is None:
        raise InvalidColumn("a column of the queues exceeds the raw part of the publish")
    if sum(counts) != command.count or not all(counts):
        raise InvalidColumn(f"the queues' messages are not {command.count}, or one has none")
    queues = zip(command.queues, counts, previous, numbers, below, strict=True)
    return _parts(command, sizes, columns, queues)


def _parts(
    command: PublishAcross,
    sizes: Sequence[int],
    columns: Columns,
    queues: "Iterator[tuple[str, int, int, int, int]]",
) -> Iterator[tuple[Publish, Sequence[int], int, Columns]]:
    low, bodies_at = 0, command.bodies_at
    keys_at = command.keys[1] if command.keys else 0
    headers_at = command.headers[1] if command.headers else 0
    for queue, count, previous, number, below in queues:
        part = columns.part(low, low + count)
        own = sizes[low : low + count]
        bodies_bytes = sum(own)
        yield (
            Publish(
                command.session,
                command.producer,
                queue,
                previous,
                number,
                count,
                command.sizes_at,
                bodies_at,
                (0, keys_at),
                (0, headers_at),
                queue_below=below,
            ),
            own,
            bodies_bytes,
            part,
        )
        low += count
        bodies_at += bodies_bytes
        if part.key_lengths is not None:
            keys_at += sum(part.key_lengths)
        if part.header_lengths is not None:
            headers_at += sum(part.header_lengths)


def read(
    area: memoryview, command: Publish | PublishAcross, number: int, numbers_at: int | None
) -> tuple[Sequence[int], int, Columns]:
    """The sizes of bodies, their sum, and the columns beside them, of messages the first of which
    has this number where each has its own.

    Raises `InvalidColumn`.
    """
    sizes = unpack_sizes(area, command.sizes_at, command.count)
    bodies_bytes = 0 if sizes is None else sum(sizes)
    if sizes is None or command.bodies_at + bodies_bytes > len(area):
        raise InvalidColumn("the bodies exceed the raw part of the publish")
    # A body is no larger than all of them: as a rule their sum says enough.
    if bodies_bytes > bounds.BODY_BYTES_MAX and max(sizes) > bounds.BODY_BYTES_MAX:
        raise InvalidColumn(
            f"a body has {max(sizes)} bytes, at most {bounds.BODY_BYTES_MAX} are allowed"
        )
    if (
        command.keys is None
        and command.headers is None
        and command.priorities_at is None
        and command.delays_at is None
        and command.ttls_at is None
        and command.dedup is None
        and numbers_at is None
    ):
        return sizes, bodies_bytes, NO_COLUMNS
    return sizes, bodies_bytes, _read_others(area, command, number, numbers_at)


def _read_others(
    area: memoryview, command: Publish | PublishAcross, number: int, numbers_at: int | None
) -> Columns:
    count = command.count
    keys = headers = priorities = delays = ttls = dedup_ids = numbers = None
    if command.keys is not None:
        keys = _lengths(area, command.keys, count, bounds.KEY_BYTES_MAX, "key")
    if command.headers is not None:
        headers = _lengths(area, command.headers, count, bounds.HEADERS_BYTES_MAX, "header")
    if command.priorities_at is not None:
        priorities = _priorities(area, command.priorities_at, count)
    if command.delays_at is not None:
        delays = _column(area, command.delays_at, count, bounds.DURATION_MS_MAX, "delay")
    if command.ttls_at is not None:
        ttls = _column(area, command.ttls_at, count, bounds.DURATION_MS_MAX, "ttl")
    if command.dedup is not None:
        dedup_ids = _dedup_ids(area, command.dedup, count)
    if numbers_at is not None:
        numbers = _numbers(area, numbers_at, count, number)
    if delays is not None and not any(delays):
        delays = None
    return Columns(keys, headers, priorities, delays, ttls, dedup_ids, numbers)


def _priorities(area: memoryview, at: int, count: int) -> bytes:
    priorities = bytes(area[at : at + count])
    if len(priorities) != count or max(priorities) > bounds.PRIORITY_MAX:
        raise InvalidColumn(f"priorities must be 0 to {bounds.PRIORITY_MAX}, one per message")
    return priorities


def _numbers(area: memoryview, at: int, count: int, first: int) -> "array[int]":
    numbers = _column(area, at, count, limits.NUMBER_MAX, "number")
    if numbers[0] != first or not all(low < high for low, high in pairwise(numbers)):
        raise InvalidColumn(
            f"message numbers must be strictly increasing and start at {first}, not {numbers[0]}"
        )
    return numbers


def _column(area: memoryview, at: int, count: int, most: int, what: str) -> "array[int]":
    column = unpack(area, at, count, "Q")
    if column is None or max(column) > most:
        raise InvalidColumn(f"the {what} column does not fit, or a {what} is above {most}")
    return column


def _lengths(
    area: memoryview, column: Column, count: int, most: int, what: str
) -> "array[int] | None":
    lengths = unpack(area, column[0], count, "I")
    if lengths is None or column[1] + sum(lengths) > len(area) or max(lengths) > most:
        raise InvalidColumn(f"the {what} column does not fit, or a {what} is above {most} bytes")
    return lengths if any(lengths) else None


def _dedup_ids(area: memoryview, column: Column, count: int) -> list[bytes] | None:
    lengths = _lengths(area, column, count, bounds.DEDUP_ID_BYTES_MAX, "dedup id")
    if lengths is None:
        return None
    ends = list(accumulate(lengths, initial=column[1]))
    return [bytes(area[low:high]) for low, high in pairwise(ends)]
