"""Dedup windows: ids that a queue remembers for a time, so that a second publish is not stored.

Owns `Queue.dedup`. An id is remembered if its message was stored, whatever became of the message
(semantics.md section 10). The bound is never weakened silently: at it, publishing with an id is
refused.
"""

from fifo.machine.replies import Refused
from fifo.machine.state import Queue, Step
from fifo.machine.types import Code


def admit(
    queue: Queue, ids: list[bytes], start: int, stop: int, refused: Refused | None
) -> tuple[int, Refused | None]:
    """How far messages start..stop may be stored, as far as their ids go."""
    if queue.spec.dedup_window_ms is None:
        return stop, refused
    room = queue.spec.dedup_max - len(queue.dedup)
    fresh: dict[bytes, None] = {}
    for place in range(start, stop):
        if ids[place] and ids[place] not in queue.dedup:
            fresh[ids[place]] = None
            if len(fresh) > room:
                text = f"the queue remembers {queue.spec.dedup_max} dedup ids already"
                return place, Refused(Code.DEDUP_FULL, text)
    return stop, refused


def known(step: Step, queue: Queue, ids: list[bytes], start: int, stop: int) -> list[int]:
    """The places in start..stop whose ids are remembered, or stand earlier in the batch."""
    if queue.spec.dedup_window_ms is None:
        return []
    found: list[int] = []
    earlier: dict[bytes, None] = {}
    for place in range(start, stop):
        name = ids[place]
        if name and (queue.dedup.get(name, 0) > step.now or name in earlier):
            found.append(place)
        earlier[name] = None
    return found


def remember(step: Step, queue: Queue, ids: list[bytes], start: int, stop: int) -> None:
    """Remember the ids of messages start..stop, which were stored just now or earlier."""
    window_ms = queue.spec.dedup_window_ms
    if window_ms is None:
        return
    until_ms = step.now + window_ms
    for name in ids[start:stop]:
        if name and queue.dedup.get(name, 0) <= step.now:
            queue.dedup[name] = until_ms
            queue.dedup_order.append((until_ms, name))


def forget_due(step: Step, queue: Queue) -> None:
    """Forget the ids whose window has passed, as far as the step's budget goes."""
    order = queue.dedup_order
    while order and order[0][0] <= step.now and step.budget > 0:
        until_ms, name = order.popleft()
        if queue.dedup.get(name) == until_ms:
            del queue.dedup[name]
        step.budget -= 1
