"""A queue's length limits: how much fits, and who is dropped where the oldest give way.

Owns `max_length` and `max_bytes` (semantics.md section 11). All messages in the queue count, locked
ones too; victims are ready, then delayed messages, lowest priority first, then oldest, never locked
ones. A return never triggers a drop. What becomes of a victim is the business of `deadletter.py`.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from fifo.machine import ready
from fifo.machine.replies import Refused
from fifo.machine.state import LANE_SHIFT, Queue
from fifo.machine.types import Code


def full(queue: Queue) -> Refused:
    """What a publisher is told."""
    return Refused(Code.QUEUE_FULL, "the queue is at its limit", {"queue": queue.name})


def room(queue: Queue, sizes: "array[int]", start: int) -> int:
    """The first message from `start` on that does not fit into the queue as it is."""
    spec = queue.spec
    if spec.max_length is None and spec.max_bytes is None:
        return len(sizes)
    stop = len(sizes)
    if spec.max_length is not None:
        stop = min(stop, start + max(spec.max_length - queue.total, 0))
    if spec.max_bytes is not None:
        ends = list(accumulate(sizes[start:]))
        stop = min(stop, start + bisect_right(ends, spec.max_bytes - queue.bytes))
    return stop


def admit(
    queue: Queue, sizes: "array[int]", start: int, known: Sequence[int] = ()
) -> tuple[int, Refused | None]:
    """How far messages from `start` on may be stored where nothing is dropped for them.

    Those at the places `known` are duplicates, which need no room.
    """
    spec = queue.spec
    if spec.overflow == "drop_oldest" or (spec.max_length is None and spec.max_bytes is None):
        return len(sizes), None
    if known:
        left_out = dict.fromkeys(known)
        places = [place for place in range(start, len(sizes)) if place not in left_out]
        fits = room(queue, array("I", [sizes[place] for place in places]), 0)
        stop = places[fits] if fits < len(places) else len(sizes)
    else:
        stop = room(queue, sizes, start)
    return stop, None if stop == len(sizes) else full(queue)


def is_over(queue: Queue, *, more: int = 0, more_bytes: int = 0) -> bool:
    """Whether the queue is over its limits, with so much more in it."""
    spec = queue.spec
    return (spec.max_length is not None and queue.total + more > spec.max_length) or (
        spec.max_bytes is not None and queue.bytes + more_bytes > spec.max_bytes
    )


def take_victim(queue: Queue, lowest_lane: int, highest_lane: int) -> int | None:
    """Take the next victim out of its place: ready before delayed, lowest priority, then oldest.

    Lanes are looked at from `lowest_lane` (of the least priority) to `highest_lane`.
    """
    for lane in range(lowest_lane, highest_lane - 1, -1):
        position = _oldest_ready(queue, lane)
        if position is not None:
            taken = ready.take_ready(queue, position)
            assert taken, "a victim was not where it was found"
            return position
    for lane in range(lowest_lane, highest_lane - 1, -1):
        low, high = lane << LANE_SHIFT, (lane + 1) << LANE_SHIFT
        found: int | None = next(queue.delayed.irange(low, high, (True, False)), None)
        if found is not None:
            ready.take_delayed(queue, found)
            return found
    return None


def _oldest_ready(queue: Queue, lane: int) -> int | None:
    low, high = lane << LANE_SHIFT, (lane + 1) << LANE_SHIFT
    found: list[int] = []
    if queue.heads[lane] != queue.tails[lane]:
        found.append(queue.heads[lane])
    for positions in (queue.returned, *queue.avoided.values(), *queue.waiting.values()):
        at = positions.bisect_left(low)
        if at < len(positions) and positions[at] < high:
            found.append(positions[at])
    return min(found) if found else None
