"""Dedup windows: ids that a queue remembers for a time, so that a second publish is not stored.

Owns `Queue.dedup`. An id is remembered if its message was stored, whatever became of the message,
and with it which message that was: a second publish is confirmed by that one's id (semantics.md
section 10). The bound is never weakened silently: at it, publishing with an id is refused.
"""

from collections.abc import Sequence

from fifo.machine.replies import Refused, Repeat
from fifo.machine.state.records import Queue, Remembered, Step
from fifo.words.codes import RefusalCode


def admit(
    queue: Queue, ids: list[bytes], start: int, stop: int, refused: Refused | None
) -> tuple[int, Refused | None]:
    """The place up to which the dedup ids of messages start..stop fit."""
    if queue.spec.dedup_window_ms is None:
        return stop, refused
    room = queue.spec.dedup_max - len(queue.dedup)
    fresh: dict[bytes, None] = {}
    for place in range(start, stop):
        if ids[place] and ids[place] not in queue.dedup:
            fresh[ids[place]] = None
            if len(fresh) > room:
                text = (
                    f"the queue already remembers its maximum of {queue.spec.dedup_max} dedup ids"
                )
                return place, Refused(RefusalCode.DEDUP_FULL, text)
    return stop, refused


def known(step: Step, queue: Queue, ids: list[bytes], start: int, stop: int) -> list[int]:
    """The places in start..stop whose ids are remembered, or stand earlier in the batch."""
    if queue.spec.dedup_window_ms is None:
        return []
    found: list[int] = []
    earlier: dict[bytes, None] = {}
    for place in range(start, stop):
        name = ids[place]
        if name and (_remembers(step, queue, name) or name in earlier):
            found.append(place)
        earlier[name] = None
    return found


def _remembers(step: Step, queue: Queue, name: bytes) -> bool:
    held = queue.dedup.get(name)
    return held is not None and held.until_ms > step.now


def remember(
    step: Step,
    queue: Queue,
    producer: int,
    numbers: Sequence[int],
    ids: list[bytes],
    start: int,
    stop: int,
) -> None:
    """Remember the ids of messages start..stop, which were stored just now or earlier."""
    window_ms = queue.spec.dedup_window_ms
    if window_ms is None:
        return
    until_ms = step.now + window_ms
    for place in range(start, stop):
        name = ids[place]
        if name and not _remembers(step, queue, name):
            queue.dedup[name] = Remembered(until_ms, producer, numbers[place])
            queue.dedup_order.append((until_ms, name))


def repeats(
    step: Step, queue: Queue, producer: int, numbers: Sequence[int], ids: list[bytes], stop: int
) -> tuple[Repeat, ...]:
    """Which of the first `stop` messages, all confirmed, are another that was stored before them.

    Also of those that the producer's numbers alone have shown to be sent again: the first time the
    answer may have been the same. What is not remembered any more is confirmed as itself.
    """
    if queue.spec.dedup_window_ms is None:
        return ()
    found: list[Repeat] = []
    for place in range(stop):
        held = queue.dedup.get(ids[place])
        if held is None or held.until_ms <= step.now:
            continue
        if held.producer == producer and held.number >= numbers[place]:
            continue  # itself, or what came after it
        last = found[-1] if found else None
        if last is not None and last.follows(place, held.producer, held.number):
            found[-1] = last._replace(count=last.count + 1)
        else:
            found.append(Repeat(place, 1, held.producer, held.number))
    return tuple(found)


def forget_due(step: Step, queue: Queue) -> None:
    """Forget the ids whose window has passed, as far as the step's budget goes."""
    order = queue.dedup_order
    while order and order.first()[0] <= step.now and step.budget > 0:
        until_ms, name = order.popleft()
        held = queue.dedup.get(name)
        if held is not None and held.until_ms == until_ms:
            del queue.dedup[name]
        step.budget -= 1
