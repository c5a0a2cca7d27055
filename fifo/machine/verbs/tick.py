"""Everything that time does, in one command: expired locks, and what the state's own index has due.

Owns the order in which a tick works and what each kind of timer does: expired locks as the leader
names them, then timers by the time at which they ended, at equal times by kind and number
(semantics.md 4.9). Bounded by the step's budget; what is left stays due. A second tick with the
same evaluation finds nothing to do.
"""

from fifo.machine import deadletter, dedup, limits, returns
from fifo.machine.commands import Tick
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.replies import Reply, Ticked
from fifo.machine.state import locks, ordering, ready
from fifo.machine.state.records import Queue, Session, State, Step
from fifo.machine.types import NEVER_MS, EndCause, Range
from fifo.machine.verbs import durable, queues, sessions


def tick(step: Step, command: Tick) -> Reply:
    """Do what is due, as far as one step goes."""
    cut_short = _evaluate(step, command.eval_consumer_timeouts)
    _disconnect_unresumed(step)
    _fire_timers(step)
    _do_chores(step)
    due_ms = next_due_ms(step.state)
    return Ticked(more=cut_short or (due_ms is not None and due_ms <= step.now))


def _evaluate(step: Step, named: tuple[tuple[int, int, int], ...]) -> bool:
    """The locks that the leader found expired: what the state confirms is returned. Whether the
    step was too small for all of them."""
    lost: dict[int, list[Range]] = {}
    left = step.budget
    for number, first, last in named:
        consumer = step.state.consumer(number)
        if consumer is None or left <= 0:
            continue
        cost = returns.cost_of(step.state.queues[consumer.queue])
        most = -(-left // cost)
        ranges, used = locks.expired_in(step.state, consumer, first, last, step.now, most)
        left -= cost * used
        if ranges and not lost.get(number):
            left -= limits.CONSUMER_COST
        lost.setdefault(number, []).extend(ranges)
    for number, ranges in lost.items():
        if ranges and number in step.state.consumers:
            step.budget -= limits.CONSUMER_COST
            returns.time_out(step, step.open_consumer(number), returns.joined(ranges))
    return left <= 0


def _disconnect_unresumed(step: Step) -> None:
    """Sessions that a change of leader detached and that have not come back in time."""
    state = step.state
    objects = limits.STEP_OBJECTS
    while state.resumes and state.resumes[0][1] <= step.now:
        if not state.unresumed:
            while len(state.resumes) > 1 and state.resumes[1][1] <= step.now:
                del state.resumes[0]  # the later one is about the same sessions, and more
        epoch, _ = state.resumes[0]
        if not state.unresumed:
            state.unresumed = [
                number
                for number, session in state.sessions.items()
                if _is_unresumed(session, epoch)
            ]
            state.unresumed.reverse()
        while state.unresumed and objects > 0 and step.budget > 0:
            objects -= _disconnect_if_unresumed(step, state.unresumed.pop(), epoch)
        if state.unresumed:
            return
        del state.resumes[0]


def _is_unresumed(session: Session, epoch: int) -> bool:
    """Whether the session was there before this change of leader and has not resumed since."""
    return session.lead_epoch < epoch and not session.disconnected and session.end_cause is None


def _disconnect_if_unresumed(step: Step, number: int, epoch: int) -> int:
    """Disconnect the session unless it has resumed meanwhile; the objects that were looked at."""
    session = step.state.sessions.get(number)
    if session is None or not _is_unresumed(session, epoch):
        return 1
    session = step.open_session(number)
    sessions.sync(step, session)
    sessions.set_disconnected(step, session)
    return 1 + len(session.consumers)


def _fire_timers(step: Step) -> None:
    state = step.state
    objects = limits.STEP_OBJECTS
    while state.timers and objects > 0 and step.budget > 0:
        due_ms, kind, number = state.timers[0]
        if due_ms > step.now:
            return
        objects -= 1 if kind != "session" else 1 + len(state.sessions[number].consumers)
        if not _fire(step, kind, number):
            return


def _fire(step: Step, kind: str, number: int) -> bool:
    """Do what one timer says; False where it is still due because the budget is used up."""
    if kind == "queue":
        queue = step.open_queue(number)
        queue_due(step, queue)
        reschedule(step, queue)
        return queue.timer_ms is None or queue.timer_ms > step.now
    if kind == "consumer":
        if step.state.consumers[number].durable:
            return durable.unused(step, number)
        return sessions.grace_over(step, number)
    if kind == "session":
        sessions.end(step, step.open_session(number), EndCause.EXPIRED)
        return True
    assert kind == "producer", "a timer of unknown kind"
    _producer_due(step, number)
    return True


def _producer_due(step: Step, number: int) -> None:
    producer = step.state.producers[number]
    ends_ms = producer.used_ms + limits.PRODUCER_MS
    if ends_ms > step.now:
        step.state.touch(producer)
        step.arm(producer, ends_ms)
    else:
        sessions.forget_producer(step, number)


def _do_chores(step: Step) -> None:
    """Go on with what did not fit into an earlier command."""
    state = step.state
    for _ in range(len(state.chores)):
        if step.budget <= 0:
            return
        kind, number, cursor = state.chores.popleft()
        if not _go_on(step, kind, number, cursor):
            state.chores.append((kind, number, cursor))


def _go_on(step: Step, kind: str, number: int, cursor: int) -> bool:
    """A step more of one chore; False where it has to come again as it is."""
    if kind == "consumer":
        return sessions.go_on_leaving(step, number)
    if kind == "delete":
        return queues.go_on_removing(step, number)
    if kind == "purge":
        return queues.go_on_purging(step, number)
    if kind == "resend":
        sessions.go_on_resending(step, number)
    elif kind == "skip":
        queues.go_on_skipping(step, number, cursor)
    elif kind == "producer":
        sessions.go_on_forgetting(step, number, cursor)
    else:
        assert kind == "trim", "a chore of unknown kind"
        if step.state.queue(number) is not None:
            deadletter.trim(step, step.open_queue(number), further=True)
    return True  # those note by themselves what is left


def queue_due(step: Step, queue: Queue) -> None:
    """Do what is due in one queue: delays, expiries, avoided messages, dedup ids, disuse."""
    while queue.delays and queue.delays[0][0] <= step.now and step.budget > 0:
        position = queue.delays[0][1]
        ordering.due(step, queue, position)
        step.budget -= limits.LEAVE_COST
    most = -(-max(step.budget, 0) // limits.RECORD_COST)
    step.budget -= limits.RECORD_COST * ready.stop_avoiding(queue, step.now, most)
    while queue.expiries and queue.expiries[0][0] <= step.now and step.budget > 0:
        _expire_block(step, queue, queue.expiries[0][1])
    dedup.forget_due(step, queue)
    unused_ms = _unused_ms(queue)
    if unused_ms is not None and unused_ms <= step.now:
        if queue.name in step.state.dead_letter_users:
            queue.used_ms = step.now  # it is in use as a dead-letter queue: looked at again later
        else:
            queues.remove(step, queue)


def _expire_block(step: Step, queue: Queue, key: int) -> None:
    """Expire what is ready or delayed in one block and due; the block's next time is noted.

    What expired before the block's bound was done then, or is locked and expires at its return.
    """
    expires = queue.blocks[key].expires
    assert expires is not None, "a block without ttls has an expiry bound"
    bound_ms = queue.expiry_of[key]
    step.budget -= limits.BLOCK_COST
    due = [place for place, ends_ms in enumerate(expires) if bound_ms <= ends_ms <= step.now]
    next_ms = min((ends_ms for ends_ms in expires if ends_ms > step.now), default=NEVER_MS)
    base = key << BLOCK_BITS
    for place in due:
        position = base + place
        if not (ready.take_delayed(queue, position) or ready.take_ready(queue, position)):
            step.budget -= 1  # and on to the end: locked ones alone never stop a block half-way
            continue
        ordering.finished(step, queue, position)
        dead = deadletter.expire(step, queue, position)
        step.budget -= limits.LEAVE_COST if dead else limits.RECORD_COST
        if step.budget <= 0 and place != due[-1]:
            return  # the bound stays: the rest of the block is found again
    if key in queue.expiry_of:
        queue.expiries.remove((bound_ms, key))
        del queue.expiry_of[key]
        ready.note_expiry(queue, key, next_ms)


def _unused_ms(queue: Queue) -> int | None:
    """When the queue ends for want of use; None while it is in use, or for ever."""
    if queue.spec.expires_unused_ms is None:
        return None
    if queue.subscribed or queue.locked:
        return None
    return queue.used_ms + queue.spec.expires_unused_ms


def reschedule(step: Step, queue: Queue) -> None:
    """Bring the queue's entry in the index of times up to date, after it was changed."""
    if queue.deleted:
        return
    due_ms: int | None = None
    if queue.delayed.count:
        due_ms = queue.delays[0][0]
    if queue.expiry_of and (due_ms is None or queue.expiries[0][0] < due_ms):
        due_ms = queue.expiries[0][0]
    if queue.avoid_until.count and (due_ms is None or queue.avoid_until.first()[0] < due_ms):
        due_ms = queue.avoid_until.first()[0]
    if queue.dedup_order.count and (due_ms is None or queue.dedup_order.first()[0] < due_ms):
        due_ms = queue.dedup_order.first()[0]
    if queue.spec.expires_unused_ms is not None:
        unused_ms = _unused_ms(queue)
        if unused_ms is not None and (due_ms is None or unused_ms < due_ms):
            due_ms = unused_ms
    if due_ms != queue.timer_ms:
        step.arm(queue, due_ms)


def next_due_ms(state: State) -> int | None:
    """The earliest cluster time at which a tick would do something, lock timeouts left aside."""
    if state.chores or state.pending:
        return state.cluster_time_ms
    due_ms: int | None = state.timers[0][0] if state.timers else None
    if state.resumes and (due_ms is None or state.resumes[0][1] < due_ms):
        due_ms = state.resumes[0][1]
    return due_ms
