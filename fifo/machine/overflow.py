"""A queue's length limits: how much fits, and which messages are evicted where the oldest give way.

Owns `max_length` and `max_bytes` (semantics.md section 11). All messages in the queue count, locked
ones too; victims are ready, then delayed messages, lowest priority first, then oldest, never locked
ones. A return never triggers a drop. What becomes of a victim is the business of `deadletter.py`.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from fifo.machine.limits import BLOCK_BITS
from fifo.machine.replies import Refused
from fifo.machine.state import ready
from fifo.machine.state.records import LANE_SHIFT, LANES, Queue
from fifo.words.codes import RefusalCode


def full(queue: Queue) -> Refused:
    """The refusal of a publish to a full queue."""
    return Refused(
        RefusalCode.QUEUE_FULL, f"queue {queue.name!r} is at its limit", {"queue": queue.name}
    )


def room(queue: Queue, sizes: Sequence[int], start: int) -> int:
    """The first message from `start` on that does not fit into the queue as it is."""
    spec = queue.spec
    stop = len(sizes)
    if spec.max_length is not None:
        stop = min(stop, start + max(spec.max_length - queue.total, 0))
    if spec.max_bytes is not None:
        ends = list(accumulate(sizes[start:]))
        stop = min(stop, start + bisect_right(ends, spec.max_bytes - queue.bytes))
    return stop


def admit(
    queue: Queue, sizes: Sequence[int], start: int, known: Sequence[int] = ()
) -> tuple[int, Refused | None]:
    """The place up to which messages from `start` on fit, where nothing is evicted for them.

    Those at the places `known` are duplicates, which need no room.
    """
    spec = queue.spec
    if spec.overflow == "drop_oldest":
        return len(sizes), None
    if known:
        left_out = dict.fromkeys(known)
        places = [place for place in range(start, len(sizes)) if place not in left_out]
        fits = room(queue, array("I", [sizes[place] for place in places]), 0)
        stop = places[fits] if fits < len(places) else len(sizes)
    else:
        stop = room(queue, sizes, start)
    return stop, None if stop == len(sizes) else full(queue)


def victims_for(queue: Queue, size: int, lane: int, most: int) -> list[int] | None:
    """The messages to evict for a newcomer of `size` bytes, in the order of eviction.

    Only what has no higher priority than the newcomer's `lane` may go. None where that is not
    enough, or takes more than `most`: then nothing is evicted, and the newcomer is refused.
    """
    messages, size_bytes = queue.total + 1, queue.bytes + size
    found: list[int] = []
    going = _in_order_of_going(queue, lane)
    while not _fits(queue, messages, size_bytes):
        position = next(going, None) if len(found) < most else None
        if position is None:
            return None
        found.append(position)
        messages -= 1
        size_bytes -= queue.blocks[position >> BLOCK_BITS].sizes[position & ready.BLOCK_MASK]
    return found


def _fits(queue: Queue, messages: int, size_bytes: int) -> bool:
    spec = queue.spec
    return (spec.max_length is None or messages <= spec.max_length) and (
        spec.max_bytes is None or size_bytes <= spec.max_bytes
    )


def is_over(queue: Queue, *, more: int = 0, more_bytes: int = 0) -> bool:
    """Whether the queue is over its limits, with so much more in it."""
    return not _fits(queue, queue.total + more, queue.bytes + more_bytes)


def next_victim(queue: Queue) -> int | None:
    """The first message to evict from a queue over its limits; None where all are locked."""
    return next(_in_order_of_going(queue, 0), None)


def _in_order_of_going(queue: Queue, highest_lane: int) -> Iterator[int]:
    """Ready before delayed, lowest priority first, then oldest; never what is locked."""
    lanes = [
        (lane << LANE_SHIFT, queue.tails[lane]) for lane in range(LANES - 1, highest_lane - 1, -1)
    ]
    for low, end in lanes:
        yield from ready.ready_from(queue, low, end)
    for low, end in lanes:
        yield from queue.delayed.between(low, end)


def all_fresh(queue: Queue) -> bool:
    """Whether all that may go stands in the fresh ranges, so that it can go in stretches."""
    return not (queue.records or queue.returned or queue.avoided or queue.in_line or queue.delayed)


def stretches(victims: Sequence[int]) -> list[tuple[int, int]]:
    """Positions side by side as (first, count), in the order of their going."""
    found: list[tuple[int, int]] = []
    first = end = -1
    for position in victims:
        if position != end:
            if end > first:
                found.append((first, end - first))
            first = position
        end = position + 1
    if end > first:
        found.append((first, end - first))
    return found


def take(queue: Queue, position: int) -> None:
    """A victim leaves its place."""
    taken = ready.take_ready(queue, position) or ready.take_delayed(queue, position)
    assert taken, "a victim was not where it was found"
