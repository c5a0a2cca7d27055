"""Messages that leave their queue without being acked: dead letters, expiry, drops.

Owns the move between queues (one command, so it neither loses nor duplicates) and what a dead
letter carries. A move is never refused by the target's limits (semantics.md section 9). The message
must be in no place when these are called: the caller took it out of wherever it stood.
"""

from array import array
from typing import NamedTuple

from fifo.machine import limits, overflow
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.state import ordering, ready
from fifo.machine.state.blocks import Batch
from fifo.machine.state.records import Queue, Record, Step
from fifo.machine.types import DeadLetter, Text
from fifo.words.bounds import PRIORITY_DEFAULT
from fifo.words.settlement import Reason

FRESH = Record(0, 0, 0, 0, (), None)
"""The record that stands for a message without one that was never handed out."""

LOCKED_ONCE = FRESH._replace(attempts=1)
"""The record that stands for a locked message without one: this is its first delivery."""


class Death(NamedTuple):
    """The texts of a terminate; all None where the machine itself dead-letters."""

    detail: Text | None = None
    description: Text | None = None
    exception_type: str | None = None
    exception_text: Text | None = None
    stack: Text | None = None


SILENT = Death()


def bury(
    step: Step, queue: Queue, position: int, reason: Reason, record: Record, death: Death = SILENT
) -> None:
    """Move the message to the queue's dead-letter queue; there must be one."""
    assert queue.spec.dead_letter is not None, "a dead letter needs a dead-letter queue"
    target = step.open_queue(step.state.queue_names[queue.spec.dead_letter])
    letter = DeadLetter(
        int(reason),
        death.description,
        death.exception_type,
        death.exception_text,
        death.stack,
        queue.name,
        death.detail,
        step.wall,
        record.history[-limits.HISTORY :],
        record.attempts,
        record.failures,
    )
    queue.counters["dead_lettered_" + reason.name.lower()] += 1
    transfer(step, queue, position, target, FRESH._replace(dead_letter=letter))


def transfer(
    step: Step,
    source: Queue,
    position: int,
    target: Queue,
    record: Record | None,
    edited: Batch | None = None,
) -> int:
    """Move a message to the end of its lane in another queue; its position there.

    Its id, key (and what orders it by that), headers and priority stay, its ttl and delay end; the
    target's own ttl holds. `edited`: the same with another body, key or headers.
    """
    priority = source.priority_of(position)
    block = source.blocks[position >> BLOCK_BITS]
    batch = block.take_out(position & ready.BLOCK_MASK) if edited is None else edited
    priorities = None if priority == PRIORITY_DEFAULT else bytes([priority])
    ttl_ms = target.spec.ttl_ms
    if ttl_ms is not None or priorities != batch.extras.priorities:  # else no copy is needed
        expires = None if ttl_ms is None else array("Q", [step.now + ttl_ms])
        extras = batch.extras._replace(priorities=priorities, expires=expires)
        batch = batch._replace(extras=extras)
    lane = ready.lane_of(target, priority)
    ready.remove(source, position, 1)
    if target.spec.overflow == "drop_oldest":
        # Before it comes, so that it is never its own victim: a move is not refused.
        trim(step, target, further=False, more=1, more_bytes=batch.sizes[0])
    moved_to = ready.append(target, batch, lane, step.state.generation)
    if record is not None:
        # What has a record is never served from a fresh range.
        ready.add_hole(target, moved_to, moved_to + 1)
        target.returned.add(moved_to)
        target.records[moved_to] = record
    target.counters["moved_in"] += 1
    source.counters["moved_out"] += 1
    return moved_to


def exhaust(step: Step, queue: Queue, position: int, record: Record) -> bool:
    """The message has failed too often: dead-letter or drop it. Whether it is a dead letter now."""
    if queue.spec.dead_letter is not None and queue.spec.on_exhausted == "dead_letter":
        bury(step, queue, position, Reason.MAX_DELIVERIES, record)
        return True
    queue.counters["exhausted_dropped"] += 1
    ready.remove(queue, position, 1)
    return False


def expire(step: Step, queue: Queue, position: int) -> bool:
    """The message's ttl has passed: dead-letter or drop it. Whether it is a dead letter now."""
    queue.counters["expired"] += 1
    if queue.spec.dead_letter is not None and queue.spec.dead_letter_expired:
        record = queue.records.get(position, FRESH)
        forget_late(step, record)
        bury(step, queue, position, Reason.EXPIRED, record)
        return True
    forget_late(step, queue.records.get(position, FRESH))
    ready.remove(queue, position, 1)
    return False


def trim(step: Step, queue: Queue, *, further: bool, more: int = 0, more_bytes: int = 0) -> None:
    """Drop the oldest of a `drop_oldest` queue until it fits, with so much more; nothing locked.

    `further`: what is dropped is dead-lettered, if the spec wants that. What does not fit into
    this step goes on in the next tick.
    """
    chore = ("trim", queue.number, 0)
    while overflow.is_over(queue, more=more, more_bytes=more_bytes):
        if step.budget <= 0:
            if chore not in step.state.chores:
                step.state.chores.append(chore)
            return
        position = overflow.next_victim(queue)
        if position is None:
            return
        drop(step, queue, position, further=further)
        step.budget -= limits.LEAVE_COST


def make_room(step: Step, queue: Queue, size: int, lane: int) -> bool:
    """Drop until one message more of `size` bytes fits; False where that cannot be within this
    step, and then nothing is dropped."""
    plain = not queue.spec.dead_letter_overflow and overflow.all_fresh(queue)
    cost = 1 if plain else limits.RECORD_COST
    if queue.spec.dead_letter_overflow:
        cost = limits.DROP_COST
    victims = overflow.victims_for(queue, size, lane, step.budget // cost)
    if victims is None:
        return False
    step.budget -= cost * len(victims)
    if plain:
        queue.counters["overflow_dropped"] += len(victims)
        for position, count in overflow.stretches(victims):
            ready.take_fresh(queue, position, count)
            ready.remove(queue, position, count)
    else:
        for position in victims:
            drop(step, queue, position, further=True)
    return True


def drop(step: Step, queue: Queue, position: int, *, further: bool) -> None:
    """A victim of the queue's limits is dropped and counted."""
    overflow.take(queue, position)
    record = queue.records.get(position, FRESH)
    forget_late(step, record)
    ordering.finished(step, queue, position)
    queue.counters["overflow_dropped"] += 1
    if further and queue.spec.dead_letter_overflow:
        bury(step, queue, position, Reason.OVERFLOW, record)
    else:
        ready.remove(queue, position, 1)


def forget_late(step: Step, record: Record) -> None:
    """The message cannot be settled late any more by the one it was taken from."""
    if record.consumer and record.consumer in step.state.consumers:
        step.open_consumer(record.consumer).late.take(record.token)
