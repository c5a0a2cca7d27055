"""A queue's own verbs: declare, update, delete, purge, pause, resume.

Owns the table of queues by name, and the rule that dead-letter queues form no cycle and are not
deleted while another queue names them.
"""

from itertools import islice

from fifo.machine import checks, consumers, deadletter, garbage, limits, spec
from fifo.machine.commands import Declare, DeleteQueue, PauseQueue, Purge, ResumeQueue, UpdateQueue
from fifo.machine.effects import ConsumerRemoved
from fifo.machine.replies import Declared, Deleted, Done, Purged, Refused, Reply
from fifo.machine.spec import QueueSpec, SpecError
from fifo.machine.state import ordering, ready
from fifo.machine.state.records import LANE_SHIFT, LANES, Consumer, Queue, Step
from fifo.machine.verbs import sessions
from fifo.words.codes import RefusalCode


def declare(step: Step, command: Declare) -> Reply:
    """Create the queue, and its dead-letter queue; or find it with the very same spec."""
    state = step.state
    try:
        wanted = spec.queue_spec(command.spec)
    except SpecError as error:
        return Refused(RefusalCode.INVALID, str(error))
    number = state.queue_names.get(command.name)
    if number is not None:
        queue = step.open_queue(number)
        found = spec.differences(queue.spec, wanted)
        if found:
            shown = ", ".join(
                f"{name} is {_word(old)}, not {_word(new)}" for name, (old, new) in found.items()
            )
            detail = {name: [old, new] for name, (old, new) in found.items()}
            text = f"queue {command.name!r} exists: {shown}"
            return Refused(RefusalCode.QUEUE_EXISTS, text, {"differences": detail})
        queue.used_ms = step.now
        return Declared(number, created=False)
    refused = _dead_letter_queue(step, command.name, wanted, command.user, new=1)
    if refused is not None:
        return refused
    return Declared(_create(step, command.name, wanted, command.user).number, created=True)


def _word(value: object) -> str:
    """A value of an option for people."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _create(step: Step, name: str, wanted: QueueSpec, user: str) -> Queue:
    state = step.state
    queue = Queue(state.next_queue, name, wanted, user)
    state.next_queue += 1
    queue.generation = state.generation
    queue.used_ms = step.now
    state.queues[queue.number] = queue
    state.note_owned(queue, 1)
    state.queue_names[name] = queue.number
    state.note_dead_letter(wanted.dead_letter, 1)
    step.touched[queue.number] = queue
    return queue


def _dead_letter_queue(
    step: Step, name: str, wanted: QueueSpec, user: str, *, new: int
) -> Refused | None:
    """Check the queue's dead-letter queue, and create it if it is not there."""
    state = step.state
    target = wanted.dead_letter
    walked = target
    while walked is not None:  # ends: the chain has no cycle without this queue
        if walked == name:
            return Refused(RefusalCode.CYCLE, "dead-letter queues would form a cycle")
        number = state.queue_names.get(walked)
        walked = None if number is None else state.queues[number].spec.dead_letter
    missing = target is not None and target not in state.queue_names
    if len(state.queue_names) + new + missing > limits.QUEUES:
        return Refused(RefusalCode.LIMIT, f"the maximum of {limits.QUEUES} queues is reached")
    if target is not None and missing:
        _create(step, target, QueueSpec(), user)
    return None


def update(step: Step, command: UpdateQueue) -> Reply:
    """Change what can be changed on a live queue; consumers keep what they subscribed with."""
    queue = checks.queue_named(step, command.name)
    if isinstance(queue, Refused):
        return queue
    try:
        changed = spec.updated_spec(queue.spec, command.changes)
    except SpecError as error:
        return Refused(RefusalCode.INVALID, str(error))
    refused = _dead_letter_queue(step, queue.name, changed, command.user, new=0)
    if refused is not None:
        return refused
    step.state.note_dead_letter(queue.spec.dead_letter, -1)
    step.state.note_dead_letter(changed.dead_letter, 1)
    skips_now = changed.on_delay == "skip" and queue.spec.on_delay != "skip"
    queue.spec = changed
    queue.used_ms = step.now
    if skips_now:
        go_on_skipping(step, queue.number, 0)
    if changed.overflow == "drop_oldest":
        deadletter.trim(step, queue, further=True)
    return Done()


def go_on_skipping(step: Step, number: int, cursor: int) -> None:
    """Where delayed messages block nothing any more, free what they hold, from `cursor` on."""
    queue = step.state.queue(number)
    if queue is not None and queue.spec.on_delay == "skip":
        cursor_after = ordering.skip(step, step.open_queue(number), cursor)
        if cursor_after is not None:
            step.state.chores.append(("skip", number, cursor_after))


def delete(step: Step, command: DeleteQueue) -> Reply:
    """Remove the queue with all that is in it, unless it is somebody's dead-letter queue."""
    queue = checks.queue_named(step, command.name)
    if isinstance(queue, Refused):
        return queue
    if queue.name in step.state.dead_letter_users:
        users = _named_by(step, queue.name)
        text = f"queue {queue.name!r} is the dead-letter queue of {', '.join(users[:3])}"
        return Refused(RefusalCode.IN_USE, text, {"queues": users[:100]})
    return Deleted(remove(step, queue))


def _named_by(step: Step, name: str) -> list[str]:
    """The queues that have this one as their dead-letter queue."""
    return [
        queue.name
        for queue in step.state.queues.values()
        if queue.spec.dead_letter == name and not queue.deleted
    ]


def remove(step: Step, queue: Queue) -> int:
    """Remove the queue and return the number of messages it had. Its name is free from now on; it
    hands nothing out, and what does not fit into this step follows in ticks."""
    state = step.state
    messages = queue.total
    for name, count in queue.counters.items():
        if count:
            state.gone_counters[name] = state.gone_counters.get(name, 0) + count
    step.arm(queue, None)
    queue.deleted = True
    del state.queue_names[queue.name]
    state.note_owned(queue, -1)
    state.note_dead_letter(queue.spec.dead_letter, -1)
    state.pending.pop(queue.number, None)
    if not go_on_removing(step, queue.number):
        state.chores.append(("delete", queue.number, 0))
    return messages


def go_on_removing(step: Step, number: int) -> bool:
    """Remove a deleted queue's consumers and notify them, as far as the budget goes; whether all
    are gone, and so is the queue."""
    state = step.state
    queue = step.open_queue(number)
    gone: list[Consumer] = []
    most = max(-(-step.budget // limits.GONE_COST), 1)
    for one in list(islice(queue.consumers, most)):
        consumer = state.consumers[one]
        consumers.leave_with_queue(step, queue, consumer)
        gone.append(consumer)
        session = state.sessions.get(consumer.session)
        if session is not None and session.end_cause is None:
            removed = ConsumerRemoved(session.number, one, "queue_deleted", consumer.label)
            step.effects.append(removed)
        else:
            sessions.forget_if_over(step, consumer.session)
    step.budget -= limits.GONE_COST * len(gone)
    if gone:
        state.remains.append(gone)
    if queue.consumers:
        return False
    del state.queues[number]
    step.touched.pop(number, None)
    garbage.leave(state, queue)
    return True


def pause(step: Step, command: PauseQueue) -> Reply:
    """Hand nothing out until resumed."""
    return _set_paused(step, command.name, paused=True)


def resume(step: Step, command: ResumeQueue) -> Reply:
    """Hand out again."""
    return _set_paused(step, command.name, paused=False)


def _set_paused(step: Step, name: str, *, paused: bool) -> Reply:
    queue = checks.queue_named(step, name)
    if isinstance(queue, Refused):
        return queue
    queue.paused = paused
    return Done()


def purge(step: Step, command: Purge) -> Reply:
    """Remove what is ready or delayed now; what is locked can still be settled."""
    queue = checks.queue_named(step, command.name)
    if isinstance(queue, Refused):
        return queue
    begun = queue.purge_below is not None
    queue.purge_below = queue.tails[:]
    before = queue.counters["purged"]
    done = go_on_purging(step, queue.number)
    if not done and not begun:
        step.state.chores.append(("purge", queue.number, 0))
    return Purged(queue.counters["purged"] - before, more=not done)


def go_on_purging(step: Step, number: int) -> bool:
    """Purge as far as the budget goes; whether the purge is complete."""
    if step.state.queue(number) is None:
        return True
    queue = step.open_queue(number)
    below = queue.purge_below
    if below is None:
        return True
    _purge_fresh(step, queue, below)
    for position in _purgeable(queue, below, -(-max(step.budget, 0) // limits.RECORD_COST)):
        taken = ready.take_delayed(queue, position) or ready.take_ready(queue, position)
        assert taken, "a message to purge was not where it was found"
        record = queue.records.get(position)
        if record is not None:
            deadletter.forget_late(step, record)
        ordering.finished(step, queue, position)
        _purged(step, queue, position, 1)
        step.budget -= limits.RECORD_COST - 1
    if step.budget <= 0:
        return False
    queue.purge_below = None
    return True


def _purge_fresh(step: Step, queue: Queue, below: list[int]) -> None:
    """Purge the fresh ranges up to where they ended: what was published since stays."""
    for lane, end in enumerate(below):
        while step.budget > 0 and queue.heads[lane] < end:
            position, count = ready.fresh_in(queue, lane)
            count = min(count, end - position, step.budget)
            ready.take_fresh(queue, position, count)
            _purged(step, queue, position, count)


def _purged(step: Step, queue: Queue, position: int, count: int) -> None:
    queue.counters["purged"] += count
    ready.remove(queue, position, count)
    step.budget -= count


def _purgeable(queue: Queue, below: list[int], most: int) -> list[int]:
    """Up to `most` positions of messages outside the fresh ranges that the purge is about."""
    found: list[int] = []
    for lane in range(LANES):
        here = ready.ready_from(queue, lane << LANE_SHIFT, below[lane])
        found += islice(here, most - len(found))
    for _, position in queue.delays:
        if len(found) >= most:
            break
        if position < below[position >> LANE_SHIFT]:
            found.append(position)
    return found
