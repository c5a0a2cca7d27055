"""A queue's length limits: refusing the newcomer, or dropping the oldest.

Owns `max_length` and `max_bytes` (semantics.md section 11). All messages in the queue count, locked
ones too; victims are ready, then delayed messages, lowest priority first, then oldest, never locked
ones. A return never triggers a drop.
"""

from array import array
from bisect import bisect_right
from itertools import accumulate

from fifo.machine import deadletter, limits, ordering, ready
from fifo.machine.replies import Refused
from fifo.machine.state import LANE_SHIFT, LANES, Queue, Step
from fifo.machine.types import Code, Reason


def admit(
    step: Step, queue: Queue, sizes: "array[int]", start: int, priorities: bytes | None
) -> tuple[int, Refused | None]:
    """How far messages from `start` on may be stored, and why not further."""
    spec = queue.spec
    count = len(sizes)
    if spec.max_length is None and spec.max_bytes is None:
        return count, None
    stop = count
    room, room_bytes = _room(queue)
    if spec.overflow == "drop_oldest":
        lowest = min(priorities[start:]) if priorities and spec.has_priorities else None
        victims, victim_bytes = _victims(queue, lowest)
        room = None if room is None else room + victims
        room_bytes = None if room_bytes is None else room_bytes + victim_bytes
        # A newcomer may itself be the victim of one behind it, so a batch that is larger than the
        # whole queue still passes: what counts is that each fits on its own.
        if (room is None or room > 0) and (room_bytes is None or room_bytes >= max(sizes[start:])):
            return count, None
    if room is not None:
        stop = min(stop, start + max(room, 0))
    if room_bytes is not None:
        ends = list(accumulate(sizes[start:]))
        stop = min(stop, start + bisect_right(ends, room_bytes))
    if stop == count:
        return count, None
    return stop, Refused(Code.QUEUE_FULL, "the queue is at its limit", {"queue": queue.name})


def _room(queue: Queue) -> tuple[int | None, int | None]:
    """Messages and bytes that still fit; None is no limit."""
    spec = queue.spec
    room = None if spec.max_length is None else spec.max_length - queue.total
    room_bytes = None if spec.max_bytes is None else spec.max_bytes - queue.bytes
    return room, room_bytes


def _victims(queue: Queue, lowest: int | None) -> tuple[int, int]:
    """Messages that could be dropped for newcomers of this priority, and their bytes at most."""
    count = queue.ready + len(queue.delayed)
    if lowest is not None and count:
        first_lane = LANES - 1 - lowest
        held = _lane_counts(queue)
        count = sum(held[first_lane:])
    return count, queue.bytes if count else 0


def _lane_counts(queue: Queue) -> list[int]:
    """Ready and delayed messages per lane."""
    counts = [tail - head for head, tail in zip(queue.heads, queue.tails, strict=True)]
    for first, end in queue.holes:
        counts[first >> LANE_SHIFT] -= end - first
    for lane in range(LANES):
        low, high = lane << LANE_SHIFT, (lane + 1) << LANE_SHIFT
        counts[lane] += queue.returned.bisect_left(high) - queue.returned.bisect_left(low)
    for positions in queue.avoided.values():
        for position in positions:
            counts[position >> LANE_SHIFT] += 1
    for position in queue.delayed:
        counts[position >> LANE_SHIFT] += 1
    return counts


def enforce(step: Step, queue: Queue) -> None:
    """After something was added to a `drop_oldest` queue: drop until it fits, or nothing can go."""
    spec = queue.spec
    if spec.overflow != "drop_oldest":
        return
    dropped = 0
    while dropped < limits.STEP_MESSAGES and _is_over(queue):
        position = _next_victim(queue)
        if position is None:
            return
        _drop(step, queue, position)
        dropped += 1


def _is_over(queue: Queue) -> bool:
    spec = queue.spec
    return (spec.max_length is not None and queue.total > spec.max_length) or (
        spec.max_bytes is not None and queue.bytes > spec.max_bytes
    )


def _next_victim(queue: Queue) -> int | None:
    """Ready before delayed, lowest priority first, then oldest; taken out of its place."""
    for lane in range(LANES - 1, -1, -1):
        position = _oldest_ready(queue, lane)
        if position is not None:
            taken = ready.take_ready(queue, position)
            assert taken, "a victim was not where it was found"
            return position
    if not queue.delayed:
        return None
    position = max(
        queue.delayed, key=lambda place: (place >> LANE_SHIFT, -(place & ((1 << LANE_SHIFT) - 1)))
    )
    ready.take_delayed(queue, position)
    return position


def _oldest_ready(queue: Queue, lane: int) -> int | None:
    low, high = lane << LANE_SHIFT, (lane + 1) << LANE_SHIFT
    found: list[int] = []
    if queue.heads[lane] != queue.tails[lane]:
        found.append(queue.heads[lane])
    places = [queue.returned, *queue.avoided.values(), *queue.waiting.values()]
    for positions in places:
        at = positions.bisect_left(low)
        if at < len(positions) and positions[at] < high:
            found.append(positions[at])
    return min(found) if found else None


def _drop(step: Step, queue: Queue, position: int) -> None:
    record = queue.records.get(position, deadletter.FRESH)
    deadletter.forget_late(step, record)
    ordering.finished(step, queue, position)
    queue.counters["overflow_dropped"] += 1
    if queue.spec.dead_letter_overflow and record.dead_letter is None:
        deadletter.bury(step, queue, position, Reason.OVERFLOW, record)
    else:
        ready.remove(queue, position, 1)
