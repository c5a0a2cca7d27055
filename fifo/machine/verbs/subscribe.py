"""A program's verbs about its consumers: subscribe, cancel, credit, get, alive; named producers.

Owns what these verbs check and answer; how a consumer then lives is the business of `consumers.py`.
"""

from fifo.machine import checkout, checks, consumers, limits, returns, spec
from fifo.machine.commands import (
    Alive,
    Cancel,
    Credit,
    ForgetProducer,
    Get,
    OpenProducer,
    Subscribe,
)
from fifo.machine.replies import (
    Credited,
    Done,
    Got,
    ProducerOpened,
    Refused,
    Reply,
    Subscribed,
)
from fifo.machine.spec import SpecError
from fifo.machine.state import locks
from fifo.machine.state.records import Consumer, Producer, Queue, Session, Step
from fifo.machine.types import Base, Cause, Use
from fifo.machine.verbs import sessions
from fifo.words import bounds
from fifo.words.codes import RefusalCode
from fifo.words.consumer_options import ConsumerOptions


def subscribe(step: Step, command: Subscribe) -> Reply:
    """Become a consumer, or change what one asked for; the same tag keeps its number."""
    queue = checks.queue_for_session(step, command.session, command.fence, command.queue)
    if isinstance(queue, Refused):
        return queue
    try:
        options = spec.consumer_options(command.options)
    except SpecError as error:
        return Refused(RefusalCode.INVALID, str(error))
    session = step.open_session(command.session)
    known = _staying(step, session.tags.get((queue.number, command.tag)))
    refused = _check(step, queue, session, options, known)
    if refused is not None:
        return refused
    if known is None:
        consumer = consumers.add(step, queue, session.number, command.tag, session.user)
        session.tags[(queue.number, command.tag)] = consumer.number
    else:
        consumer = step.open_consumer(known)
        locks.renew_last(step.state, consumer, step.now)
    _set_options(queue, consumer, options)
    sessions.note_use(step, session.number, Use.CONSUMING)
    queue.used_ms = step.now
    if consumer.service_key is not None:
        consumers.leave_service(queue, consumer)
    consumer.suspicion = consumer.lost_running = 0
    if queue.spec.ordering != "single_active" or queue.active == consumer.number:
        consumer.base = int(Base.ACTIVE)
    else:
        consumer.base = int(Base.WAITING)
    if session.disconnected:  # proposed before that, applied after
        sessions.arm_grace(step, session, consumer)
    consumers.refresh(step, queue, consumer)
    consumers.elect(step, queue)
    active = consumer.base == Base.ACTIVE
    return Subscribed(consumer.number, queue.number, consumer.lock_ms, consumer.prefetch, active)


def _staying(step: Step, number: int | None) -> int | None:
    """The number of a consumer that is subscribed again; one that is being removed is not."""
    leaves = number is not None and step.state.consumers[number].leaving is not None
    return None if leaves else number


def _check_of_session(session: Session) -> Refused | None:
    most = limits.CONSUMERS_PER_SESSION
    if len(session.consumers) - session.leaving < most:
        return None
    return Refused(RefusalCode.LIMIT, f"a session has at most {most} consumers")


def _check(
    step: Step,
    queue: Queue,
    session: Session,
    options: ConsumerOptions,
    known: int | None,
) -> Refused | None:
    refused = _check_of_session(session) if known is None else None
    if refused is not None:
        return refused
    if known is None and len(queue.consumers) >= limits.CONSUMERS_PER_QUEUE:
        return Refused(
            RefusalCode.LIMIT, f"a queue has at most {limits.CONSUMERS_PER_QUEUE} consumers"
        )
    most = limits.SINGLE_ACTIVE_PREFETCH
    if queue.spec.ordering == "single_active" and options.prefetch > most:
        return Refused(RefusalCode.INVALID, f"prefetch: at most {most} on a single-active queue")
    lock_ms = options.lock_ms or queue.spec.lock_ms
    if options.max_lock_ms is not None and options.max_lock_ms < lock_ms:
        return Refused(RefusalCode.INVALID, "max_lock_ms: below lock_ms")
    if known is not None:
        return _check_durations(step.state.consumers[known], lock_ms)
    return None


def _check_durations(consumer: Consumer, lock_ms: int) -> Refused | None:
    if lock_ms in consumer.lanes or len(consumer.lanes) < limits.LOCK_DURATIONS:
        return None
    most = limits.LOCK_DURATIONS
    return Refused(RefusalCode.LIMIT, f"the consumer holds locks of {most} different durations")


def _set_options(queue: Queue, consumer: Consumer, options: ConsumerOptions) -> None:
    consumer.lock_ms = options.lock_ms or queue.spec.lock_ms
    consumer.max_lock_ms = options.max_lock_ms or max(queue.spec.max_lock_ms, consumer.lock_ms)
    consumer.renewals = options.renewals or 0
    if consumer.renewals:
        longest_ms = consumer.lock_ms * (consumer.renewals + 1)
        consumer.max_lock_ms = min(consumer.max_lock_ms, longest_ms)
    consumer.prefetch = options.prefetch
    queue.note_rank(consumer.priority, -1)
    consumer.priority = options.priority
    queue.note_rank(consumer.priority, 1)
    consumer.renewable = options.renewable
    consumer.label = options.label or ""
    consumer.nack_backoff = options.nack_backoff
    consumer.timeout_backoff = options.timeout_backoff
    if options.pull and not consumer.explicit_credit:
        consumer.credit = 0
    consumer.explicit_credit = options.pull


def cancel(step: Step, command: Cancel) -> Reply:
    """No more for this consumer, and it finishes what it holds: a drain."""
    consumer = checks.own_consumer(step, command.session, command.fence, command.consumer)
    if isinstance(consumer, Refused):
        return consumer
    if sum(last - first + 1 for first, last in command.unopened) > bounds.SETTLE_MESSAGES_MAX:
        return Refused(
            RefusalCode.TOO_LARGE, f"more than {bounds.SETTLE_MESSAGES_MAX} tokens in one command"
        )
    queue = step.open_queue(consumer.queue)
    consumer.base = int(Base.CANCELLED)
    way = returns.way_of(step, queue, consumer, Cause.RELEASED, own=True)
    for first, last in command.unopened:
        for held in locks.release(step.state, consumer, first, last):
            returns.give_back(step, queue, consumer, held, way)
    queue.used_ms = step.now
    consumers.refresh(step, queue, consumer)
    consumers.elect(step, queue)
    session = step.open_session(command.session)
    if session.disconnected:  # proposed before that, applied after
        sessions.arm_grace(step, session, consumer)
    consumers.drop_if_done(step, consumer)
    return Done()


def credit(step: Step, command: Credit) -> Reply:
    """Set an explicit credit and hand out what is ready for it; a drain takes the rest back.

    Of a consumer without explicit credit it sets the prefetch.
    """
    consumer = checks.own_consumer(step, command.session, command.fence, command.consumer)
    if isinstance(consumer, Refused):
        return consumer
    queue = step.open_queue(consumer.queue)
    refused = _check_credit(queue, consumer, command)
    if refused is not None:
        return refused
    if consumer.explicit_credit:
        consumer.credit = command.credit
    else:
        consumer.prefetch = command.credit
    if not command.automatic:
        consumers.prove_alive(step, consumer)
    consumers.refresh(step, queue, consumer)
    checkout.checkout(step, queue)
    if not consumer.explicit_credit:
        return Credited(consumer.prefetch, more=False)
    left, more = consumer.credit, False
    if command.drain:
        serves = consumer.service_key is not None
        more = serves and checkout.is_cut_short(step, queue, consumer)
        consumer.credit = 0
        consumers.refresh(step, queue, consumer)
    return Credited(left if more else consumer.credit, more)


def _check_credit(queue: Queue, consumer: Consumer, command: Credit) -> Refused | None:
    if consumer.explicit_credit:
        return None
    if command.drain or consumer.implicit:
        return Refused(RefusalCode.INVALID, "the consumer did not subscribe with explicit credit")
    single = queue.spec.ordering == "single_active"
    most = limits.SINGLE_ACTIVE_PREFETCH if single else bounds.PREFETCH_MAX
    if 1 <= command.credit <= most:
        return None
    return Refused(RefusalCode.INVALID, f"a prefetch of {command.credit} is not from 1 to {most}")


def get(step: Step, command: Get) -> Reply:
    """Hand out messages now, to the session's implicit consumer of the queue."""
    queue = checks.queue_for_session(step, command.session, command.fence, command.queue)
    if isinstance(queue, Refused):
        return queue
    if queue.spec.ordering == "single_active" and _is_subscribed(step, queue):
        return Refused(RefusalCode.SUBSCRIBED, "the queue is single-active and has a subscriber")
    session = step.open_session(command.session)
    lock_ms = command.lock_ms or queue.spec.lock_ms
    known = _staying(step, session.gets.get(queue.number))
    if known is None:
        refused = _check_of_session(session)
        if refused is not None:
            return refused
        consumer = consumers.add(step, queue, session.number, "", session.user, implicit=True)
        consumer.prefetch = limits.HELD_BY_GET
        consumer.renewable = True
        session.gets[queue.number] = consumer.number
    else:
        consumer = step.open_consumer(known)
    refused = _check_durations(consumer, lock_ms)
    if refused is not None:
        return refused
    consumer.lock_ms = lock_ms
    consumer.max_lock_ms = max(queue.spec.max_lock_ms, lock_ms)
    sessions.note_use(step, session.number, Use.CONSUMING)
    queue.used_ms = step.now
    first_token = consumer.next_token
    count, more = _get(step, queue, consumer, command.count)
    consumers.elect(step, queue)
    return Got(consumer.number, first_token, count, more)


def _get(step: Step, queue: Queue, consumer: Consumer, count: int) -> tuple[int, bool]:
    """Count what was handed out, and say whether asking again may give more."""
    held_by_others = queue.locked - consumer.held
    if not consumers.is_present(step.state, step.state.sessions.get(consumer.session)):
        # Proposed before the session was detached or disconnected, applied after.
        return 0, False
    if queue.paused or (queue.spec.ordering == "single_active" and held_by_others):
        return 0, False
    most = min(count, consumer.prefetch - consumer.held)
    if most <= 0:
        return 0, False
    got = checkout.deliver(step, queue, consumer, most, consumer.lock_ms)
    return got, got < most and checkout.is_cut_short(step, queue, consumer)


def _is_subscribed(step: Step, queue: Queue) -> bool:
    for number in queue.consumers if queue.subscribed else ():
        consumer = step.state.consumers[number]
        if not consumer.implicit and consumer.base != Base.CANCELLED:
            return True
    return False


def alive(step: Step, command: Alive) -> Reply:
    """The program itself says that its consumer works, or asks for the next message."""
    consumer = checks.own_consumer(step, command.session, command.fence, command.consumer)
    if isinstance(consumer, Refused):
        return consumer
    if command.lost is None:
        consumers.prove_alive(step, consumer)
    else:
        consumers.asked(step, consumer, command.lost)
    return Done()


def open_producer(step: Step, command: OpenProducer) -> Reply:
    """Find or create a named producer."""
    state = step.state
    number = state.producer_names.get(command.name)
    if number is None:
        if len(state.producer_names) >= limits.NAMED_PRODUCERS:
            return Refused(
                RefusalCode.LIMIT,
                f"the maximum of {limits.NAMED_PRODUCERS} named producers is reached",
            )
        producer = Producer(state.next_producer, command.name, command.user)
        state.next_producer += 1
        producer.generation = state.generation
        state.producers[producer.number] = producer
        state.producer_names[command.name] = producer.number
        state.note_owned(producer, 1)
        step.arm(producer, step.now + limits.PRODUCER_MS)
    else:
        producer = state.producers[number]
        state.touch(producer)
    producer.used_ms = step.now
    last = tuple(
        (state.queues[queue].name, queue, state.queues[queue].last_numbers[producer.number])
        for queue in producer.queues
        if state.queue(queue) is not None
    )
    return ProducerOpened(producer.number, last)


def forget_producer(step: Step, command: ForgetProducer) -> Reply:
    """Forget a named producer and its numbers in every queue; its messages stay."""
    number = step.state.producer_names.get(command.name)
    if number is None:
        return Refused(RefusalCode.UNKNOWN_PRODUCER, f"there is no producer named {command.name!r}")
    sessions.forget_producer(step, number)
    return Done()
