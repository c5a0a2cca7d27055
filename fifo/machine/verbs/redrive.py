"""Redrive and move: messages that a person or program sends to another queue.

Owns the record of a redrive (semantics.md section 9). The leader reads and filters, and proposes
steps; here a step with another cursor is refused, and what is not there any more is left out, so
that each message is moved once, whichever node leads. Later arrivals are not part of it.
"""

from typing import Any

from fifo.machine import checks, deadletter, limits, overflow, validators
from fifo.machine.commands import Move, Redrive, RedriveStep, RedriveStop
from fifo.machine.deadletter import FRESH
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.replies import Done, Moved, Refused, Reply
from fifo.machine.state import ordering, ready
from fifo.machine.state.records import LANE_SHIFT, LANES, RUNNING, Queue, RedriveState, Step
from fifo.machine.types import NEVER_MS
from fifo.words import stacks
from fifo.words.codes import RefusalCode

_FILTERS: dict[str, validators.Checker] = {
    "reason": validators.text(32),
    "source": validators.name,
    "exception_type": validators.text(limits.EXCEPTION_TYPE_BYTES),
    "stack_line": validators.text(stacks.LINE_BYTES_MAX),
    "headers": validators.mapping(limits.SPEC_FIELDS),
    "older_than_ms": validators.natural,
    "min_attempts": validators.natural,
}
"""The fields that the leader filters by; here they are only kept and shown."""


def start(step: Step, command: Redrive) -> Reply:
    """Begin a redrive of everything that is in the queue now."""
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    if queue.redrive is not None and queue.redrive.status in RUNNING:
        return Refused(
            RefusalCode.REDRIVE_RUNNING, f"a redrive of queue {queue.name!r} is running already"
        )
    if command.target == queue.name:
        return Refused(RefusalCode.INVALID, f"queue {queue.name!r} cannot be redriven to itself")
    if command.target is not None and command.target not in step.state.queue_names:
        return Refused(
            RefusalCode.QUEUE_NOT_FOUND,
            f"there is no queue {command.target!r}",
            {"queue": command.target},
        )
    try:
        chosen = parse_filter(command.filter)
    except ValueError as error:
        return Refused(RefusalCode.INVALID, str(error))
    queue.redrive = RedriveState(
        command.target,
        chosen,
        command.limit,
        command.rate_per_s,
        command.reset_counts,
        tuple(queue.tails),
        0,
        0,
        step.now,
        "running",
        "",
    )
    return Done()


def parse_filter(given: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A filter as the record keeps it, sorted by name. Raises ValueError on what is unknown."""
    found = []
    for name in sorted(given):
        check = _FILTERS.get(name)
        if check is None:
            raise ValueError(f"filter {name[:40]}: unknown")
        try:
            value = check(given[name])
        except ValueError as error:
            raise ValueError(f"filter {name}: {error}") from None
        if isinstance(value, dict):
            if not all(type(header) is str for header in value.values()):
                raise ValueError(f"filter {name}: a header's value is not text")
            value = tuple(sorted(value.items()))
        found.append((name, value))
    return tuple(found)


def go_on(step: Step, command: RedriveStep) -> Reply:
    """Move what the leader chose before `until`, as far as it is still there and the target takes
    it. An `until` behind the last message ends the redrive."""
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    redrive = queue.redrive
    if redrive is None or redrive.status not in RUNNING:
        return Refused(RefusalCode.STALE, "no redrive of this queue is running")
    if command.cursor != redrive.cursor or step.now < redrive.next_ms:
        return Refused(RefusalCode.STALE, "another step of the redrive", {"cursor": redrive.cursor})
    cursor, moved, skipped, reason = _move_chosen(step, queue, redrive, command)
    moved_in_all = redrive.moved + moved
    exhausted = redrive.limit is not None and moved_in_all >= redrive.limit
    done = not reason and (exhausted or cursor >= end_of(redrive))
    status = "done" if done else "paused" if reason else "running"
    next_ms = step.now
    if redrive.rate_per_s is not None:
        next_ms += -(-moved * 1_000 // redrive.rate_per_s)
    queue.redrive = redrive._replace(
        cursor=cursor,
        moved=moved_in_all,
        next_ms=next_ms,
        status=status,
        reason=reason,
        skipped=redrive.skipped + skipped,
    )
    return Moved(moved, 0 if done else cursor)


def end_of(redrive: RedriveState) -> int:
    """The position behind all messages that the redrive is about."""
    return max(
        (end for lane, end in enumerate(redrive.ends) if end != lane << LANE_SHIFT), default=0
    )


def _move_chosen(
    step: Step, queue: Queue, redrive: RedriveState, command: RedriveStep
) -> tuple[int, int, int, str]:
    """(new cursor, messages moved, messages skipped, why it stopped before the step's end)."""
    cursor, moved, skipped = redrive.cursor, 0, 0
    left = NEVER_MS if redrive.limit is None else redrive.limit - redrive.moved
    for position in command.positions:
        if moved >= left:
            return cursor, moved, skipped, ""
        lane = position >> LANE_SHIFT
        if lane >= LANES or not cursor <= position < command.until:
            continue  # out of the step's own order: not moved twice
        if position < redrive.ends[lane] and ready.stands(queue, position):
            name = redrive.target or _source(queue, position)
            target = _target(step, queue, name, position) if name is not None else None
            if isinstance(target, str):
                return cursor, moved, skipped, target
            if target is None:
                skipped += 1
            else:
                _take_and_move(step, queue, position, target, reset=redrive.reset_counts)
                moved += 1
        cursor = position + 1
    return max(cursor, command.until), moved, skipped, ""


def _source(queue: Queue, position: int) -> str | None:
    """Where a dead letter came from; None for a message that was published right here."""
    record = queue.records.get(position)
    letter = record.dead_letter if record is not None else None
    return None if letter is None else letter.source


def _target(step: Step, queue: Queue, name: str, position: int) -> Queue | str:
    """Where the message goes, or why it cannot go now."""
    number = step.state.queue_names.get(name)
    if number is None:
        return f"the target {name!r} does not exist"
    target = step.open_queue(number)
    if target.number == queue.number:
        return "a message would be moved to its own queue"
    if not _fits(queue, position, target):
        return f"the target {name!r} is full"
    return target


def _fits(queue: Queue, position: int, target: Queue) -> bool:
    """Whether the target has room as it is. Nothing is dropped for a message that is moved: what
    is in the target is alive, and what moves can wait."""
    size = queue.blocks[position >> BLOCK_BITS].sizes[position & ready.BLOCK_MASK]
    return not overflow.is_over(target, more=1, more_bytes=size)


def _take_and_move(step: Step, queue: Queue, position: int, target: Queue, *, reset: bool) -> None:
    taken = ready.take_delayed(queue, position) or ready.take_ready(queue, position)
    assert taken, "a message to move was not where it was found"
    record = queue.records.get(position, FRESH)
    deadletter.forget_late(step, record)
    ordering.finished(step, queue, position)
    letter = record.dead_letter
    kept = None
    if not reset:
        attempts = record.attempts + (letter.attempts if letter is not None else 0)
        failures = record.failures + (letter.failures if letter is not None else 0)
        history = (letter.history if letter is not None else ()) + record.history
        kept = FRESH._replace(
            attempts=attempts, failures=failures, history=history[-limits.HISTORY :]
        )
    deadletter.transfer(step, queue, position, target, kept)


def stop(step: Step, command: RedriveStop) -> Reply:
    """Cancel a redrive; what was moved stays moved."""
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    if queue.redrive is None or queue.redrive.status not in RUNNING:
        return Refused(RefusalCode.STALE, "no redrive of this queue is running")
    queue.redrive = queue.redrive._replace(status="cancelled", reason="")
    return Done()


def move(step: Step, command: Move) -> Reply:
    """Move ready messages from the front to another queue, counts and dead letters kept."""
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    target = checks.queue_named(step, command.target)
    if isinstance(target, Refused):
        return target
    if target.number == queue.number:
        return Refused(RefusalCode.INVALID, "a queue cannot be moved to itself")
    moved = 0
    while moved < command.limit:
        position = _front(queue)
        if position is None:
            break
        if not _fits(queue, position, target):
            if moved:
                break
            return overflow.full(target)
        taken = ready.take_ready(queue, position)
        assert taken, "a message to move was not where it was found"
        record = queue.records.get(position)
        if record is not None:
            deadletter.forget_late(step, record)
            record = record._replace(consumer=0, token=0)
        ordering.finished(step, queue, position)
        deadletter.transfer(step, queue, position, target, record)
        moved += 1
    return Moved(moved, 0)


def _front(queue: Queue) -> int | None:
    """The first ready message, avoided ones included."""
    fresh = ready.fresh_front(queue)
    found = [] if fresh is None else [fresh[0]]
    places = (queue.returned, queue.in_line, *queue.avoided.values())
    found += [held.first() for held in places if held]
    return min(found, default=None)
