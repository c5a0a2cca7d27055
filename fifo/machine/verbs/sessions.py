"""Sessions: attaching, detaching, disconnecting, resuming, ending (semantics.md section 4).

Owns a session's epochs and flags. A change of leader is not written into every session: `sync`
brings one up to date before anything else is done to it. Disconnected is not dead: a session keeps
its locks until they run out or it ends.
"""

from itertools import islice

from fifo.machine import checkout, checks, consumers, limits, returns
from fifo.machine.commands import Attach, Detach, Disconnect, EndSession, Lead, NoticeAck
from fifo.machine.effects import Fenced, Notify, Resumed, SessionEnded
from fifo.machine.replies import Attached, Done, Led, Refused, Reply
from fifo.machine.state import locks
from fifo.machine.state.records import Consumer, Producer, Queue, Session, State, Step
from fifo.machine.types import Base, Cause, EndCause, Role, Suspicion, Use
from fifo.words import bounds
from fifo.words.codes import RefusalCode


def lead(step: Step, command: Lead) -> Reply:
    """A new term: all locks get a floor, all sessions are detached until they resume."""
    state = step.state
    if command.term <= state.term:
        return Refused(RefusalCode.STALE, f"term {state.term} already has a leader")
    state.term = command.term
    state.lead_epoch += 1
    state.lead_ms = step.now
    # Those that an earlier term detached, and that have not resumed, keep the time it gave them.
    del state.resumes[limits.RESUMES - 1 :]
    if state.sessions:
        state.resumes.append((state.lead_epoch, step.now + limits.RESUME_MS))
    state.unresumed = []
    return Led(len(state.sessions))


def sync(step: Step, session: Session) -> None:
    """Write down what the last change of leader did to this session."""
    state = step.state
    if session.lead_epoch == state.lead_epoch:
        return
    state.touch(session)
    held = [step.open_consumer(number) for number in session.consumers]
    for consumer in held:
        locks.write_floor(state, consumer)
    session.lead_epoch = state.lead_epoch
    session.attached = [False, False]
    for consumer in held:
        consumers.refresh(step, state.queues[consumer.queue], consumer)


def attach(step: Step, command: Attach) -> Reply:
    """Open a session, or resume it with the same locks and tokens."""
    number = step.state.session_ids.get(command.session_id)
    if number is None:
        return _open(step, command)
    session = step.open_session(number)
    if session.user != command.user:
        return Refused(RefusalCode.FORBIDDEN, "the session belongs to another user")
    if command.resume and session.incarnation != command.incarnation:
        return Refused(RefusalCode.SESSION_TAKEN, "another client object has taken this session")
    sync(step, session)
    role, other = command.role, 1 - command.role
    if session.incarnation != command.incarnation:
        for fenced in (role, other):
            if session.epochs[fenced]:
                step.effects.append(Fenced(number, fenced, session.epochs[fenced], taken=True))
        session.incarnation = command.incarnation
        session.epochs[other] += 1
        session.attached[other] = False
        # Its numbers begin anew: those of the other client object would make duplicates of them.
        forget_producer(step, session.producer)
        session.producer = _new_producer(step.state)
    elif session.attached[role]:
        step.effects.append(Fenced(number, role, session.epochs[role]))
    session.epochs[role] += 1
    session.address = command.address
    session.client = command.client
    _resume(step, session, role)
    listed = tuple(
        (held.number, held.tag, step.state.queues[held.queue].name, held.lock_ms)
        for held in (step.state.consumers[number] for number in session.consumers)
        if held.leaving is None and not step.state.queues[held.queue].deleted
    )
    return Attached(number, session.epochs[role], True, listed, session.handle_key)


def _open(step: Step, command: Attach) -> Reply:
    state = step.state
    if len(state.sessions) >= limits.SESSIONS:
        return Refused(RefusalCode.LIMIT, f"the maximum of {limits.SESSIONS} sessions is reached")
    producer = _new_producer(state)
    session = Session(state.next_session, command.session_id, command.user, producer)
    state.next_session += 1
    session.generation = state.generation
    session.incarnation = command.incarnation
    session.handle_key = command.handle_key
    session.address = command.address
    session.client = command.client
    session.epochs[command.role] = 1
    session.attached[command.role] = True
    session.lead_epoch = state.lead_epoch
    state.sessions[session.number] = session
    state.note_owned(session, 1)
    state.session_ids[command.session_id] = session.number
    return Attached(session.number, 1, False, (), session.handle_key)


def _new_producer(state: State) -> int:
    """A session's own producer: its number."""
    producer = Producer(state.next_producer, None)
    producer.generation = state.generation
    state.producers[producer.number] = producer
    state.next_producer += 1
    return producer.number


def _resume(step: Step, session: Session, role: int) -> None:
    state = step.state
    session.attached[role] = True
    if session.disconnected:
        session.disconnected = False
        step.arm(session, None)
    for number in session.consumers:
        consumer = step.open_consumer(number)
        step.arm(consumer, None)
        if consumer.suspicion == Suspicion.TIMEOUT_WHILE_DISCONNECTED:
            consumer.suspicion = int(Suspicion.NONE)
    if role == Role.DATA:
        begun = session.resend is not None
        session.resend = (0, 0)
        if not begun:  # else the chore of the resume before begins anew with all of it
            _send_again(step, session)
            if session.resend is not None:
                state.chores.append(("resend", session.number, 0))
    _reconsider(step, session)
    _send_activity(step, session)
    _send_notices(step, session)
    assert state.session_ids[session.session_id] == session.number, "a resumed session has its id"


def _send_again(step: Step, session: Session) -> None:
    """Send more of what a resumed session holds, and the mark behind the last of it."""
    checkout.send_again(step, session)
    if session.resend is None:
        step.effects.append(Resumed(session.number, session.epochs[Role.DATA]))


def _send_notices(step: Step, session: Session) -> None:
    """Send all that wait, under new numbers: another connection carries them from now on.

    An acknowledgement covers all numbers up to its own. Under their old numbers it would cover what
    was lost with the connection before, if the client got a later one on this connection.
    """
    waiting = list(session.notices.values())
    session.notices.clear()
    for notice in waiting:
        number = session.next_notice
        session.next_notice += 1
        session.notices[number] = notice
        step.effects.append(Notify(session.number, number, *notice))


def _send_activity(step: Step, session: Session) -> None:
    """Say which consumers are active: what was said while the client was away is lost."""
    for number in session.consumers:
        consumer = step.state.consumers[number]
        queue = step.state.queues[consumer.queue]
        if queue.spec.ordering == "single_active" and not queue.deleted:
            step.effects.append(consumers.activity(consumer, active=queue.active == number))


def _reconsider(step: Step, session: Session) -> None:
    """Update the consumers of a session whose state has changed: service order and activity."""
    electing: dict[int, Queue] = {}
    for number in session.consumers:
        consumer = step.open_consumer(number)
        queue = step.state.queues[consumer.queue]
        consumers.refresh(step, queue, consumer)
        # One that may not be active, and is not, decides nothing, unless it was to take over.
        if queue.handover or queue.active == number or consumers.is_eligible(step.state, consumer):
            electing[queue.number] = queue
    for queue in electing.values():
        consumers.elect(step, queue)


def go_on_resending(step: Step, number: int) -> None:
    """Send a resumed session more of what it holds; it is handed nothing new before all of that."""
    session = step.state.sessions.get(number)
    if session is None or session.resend is None:
        return
    session = step.open_session(number)
    if session.attached[Role.DATA] and session.lead_epoch == step.state.lead_epoch:
        _send_again(step, session)
    else:
        session.resend = None  # it went away meanwhile: its next resume begins anew
    if session.resend is not None:
        step.state.chores.append(("resend", number, 0))
    else:
        _reconsider(step, session)


def detach(step: Step, command: Detach) -> Reply:
    """A connection closed; a late close of an older one changes nothing."""
    session = step.state.sessions.get(command.session)
    if session is None or session.end_cause is not None:
        return Refused(RefusalCode.UNKNOWN_SESSION, "there is no such session, or it has ended")
    if session.epochs[command.role] != command.epoch:
        return Refused(RefusalCode.FENCED, "a newer connection of this session and role exists")
    if session.lead_epoch != step.state.lead_epoch:
        return Done()  # the change of leader detached it already, and it has not resumed since
    session = step.open_session(command.session)
    session.attached[command.role] = False
    _reconsider(step, session)
    if command.role == Role.CONTROL and session.attached[Role.DATA]:
        _send_notices(step, session)
    return Done()


def disconnect(step: Step, command: Disconnect) -> Reply:
    """The client is not heard any more: nothing new, and its locks stay."""
    session = step.state.sessions.get(command.session)
    if session is None or session.end_cause is not None:
        return Refused(RefusalCode.UNKNOWN_SESSION, "there is no such session, or it has ended")
    if session.epochs != [command.data_epoch, command.control_epoch]:
        # Before `sync`: a session brought up to date without a resume would count as resumed.
        return Refused(RefusalCode.FENCED, "the session has been attached since")
    session = step.open_session(command.session)
    sync(step, session)
    for number, granted_ms in command.floors:
        if number in session.consumers:
            locks.raise_floor(step.open_consumer(number), granted_ms)
    set_disconnected(step, session)
    return Done()


def set_disconnected(step: Step, session: Session) -> None:
    """The session is disconnected from now on, or over if it has done nothing that a client could
    come back for; again changes nothing."""
    session.attached = [False, False]
    if session.disconnected:
        return
    if session.use == Use.NONE:
        end(step, session, EndCause.EXPIRED)
        return
    for number in session.consumers:
        locks.renew_last(step.state, step.open_consumer(number), step.now)
    session.disconnected = True
    session.disconnected_ms = step.now
    step.arm(session, ends_ms(session))
    for number in session.consumers:
        arm_grace(step, session, step.open_consumer(number))
    _reconsider(step, session)


def ends_ms(session: Session) -> int:
    """When a disconnected session ends, if it is not resumed before."""
    consumes = session.use == Use.CONSUMING
    kept_ms = bounds.SESSION_TIMEOUT_MS if consumes else bounds.WRITING_SESSION_MS
    return session.disconnected_ms + kept_ms


def note_use(step: Step, number: int, use: Use) -> None:
    """The session, if there is such a one, has been used for this: it is kept for longer."""
    session = step.state.sessions.get(number)
    if session is None or session.end_cause is not None or session.use >= use:
        return
    session = step.open_session(number)
    session.use = int(use)
    if session.disconnected:  # proposed before that, applied after
        step.arm(session, ends_ms(session))


def arm_grace(step: Step, session: Session, consumer: Consumer) -> None:
    """Note until when a consumer of a disconnected session keeps its locks: its queue's
    `disconnect_grace`, and where it was cancelled a time of its own, the shorter of the two."""
    grace_ms = step.state.queues[consumer.queue].spec.disconnect_grace_ms
    if consumer.base == Base.CANCELLED:
        grace_ms = limits.CANCELLED_MS if grace_ms is None else min(grace_ms, limits.CANCELLED_MS)
    elif not consumer.held:
        grace_ms = None
    step.arm(consumer, None if grace_ms is None else session.disconnected_ms + grace_ms)


def grace_over(step: Step, number: int) -> bool:
    """A consumer's session has been disconnected for too long: what is still locked is returned,
    and a cancelled consumer goes. False where the budget was not enough for that.

    Every resume disarms the timer, so the session is disconnected in the epoch that armed it.
    """
    consumer = step.open_consumer(number)
    leases_end_ms = step.state.lead_ms + limits.LEASE_MS
    if step.now < leases_end_ms:
        # A former leader may still grant these locks, to a connection that it has.
        step.arm(consumer, leases_end_ms)
        return True
    session, queue = step.open_session(consumer.session), step.open_queue(consumer.queue)
    if queue.deleted:
        step.arm(consumer, None)  # it goes with its queue
        return True
    assert session.disconnected, "a grace runs only while its session is disconnected"
    decides = consumer.held > 0 or queue.active == number
    lost = returns.give_back_all(step, consumer, Cause.DISCONNECT)
    if lost:
        step.budget -= limits.CONSUMER_COST
        # The client hears of it as of any other lock that ended, when it is back.
        returns.notify(step, session, consumer, lost)
    if consumer.held:
        return False
    if consumer.base == Base.CANCELLED:
        consumers.drop(step, consumer, elects=decides)
        return True
    step.arm(consumer, None)
    if decides:
        consumers.elect(step, queue)
    return True


def end_session(step: Step, command: EndSession) -> Reply:
    """End a session: its client or an operator asked for it, or it has been away too long."""
    session = step.state.sessions.get(command.session)
    if session is None or session.end_cause is not None:
        return Refused(RefusalCode.UNKNOWN_SESSION, "there is no such session, or it has ended")
    if command.cause == EndCause.EXPIRED:
        if not session.disconnected or ends_ms(session) > step.now:
            return Refused(RefusalCode.SESSION_CONNECTED, "the session is not due to end")
    else:
        found = checks.session(step, command.session, command.fence)
        if isinstance(found, Refused):
            return found
    session = step.open_session(command.session)
    kept_ms = session.disconnected_ms + bounds.WRITING_SESSION_MS
    is_over = session.use == Use.NONE or (session.disconnected and kept_ms <= step.now)
    if command.cause == EndCause.OPERATOR and not is_over:
        _empty(step, session)
    else:
        end(step, session, EndCause(command.cause))
    return Done()


def _empty(step: Step, session: Session) -> None:
    """Take everything from a session but its numbers, which stay for a minute: its client may not
    know yet what it has published."""
    sync(step, session)
    for role in Role:
        if session.attached[role]:
            step.effects.append(Fenced(session.number, role, session.epochs[role]))
    set_disconnected(step, session)
    session.use = int(Use.WRITING)
    step.arm(session, ends_ms(session))
    _start_leaving_together(step, list(session.consumers), Cause.RELEASED)


def end(step: Step, session: Session, cause: EndCause) -> None:
    """Its tokens are void; what it held goes back, over as many steps as that takes."""
    state = step.state
    session.end_cause = int(cause)
    step.arm(session, None)
    del state.session_ids[session.session_id]
    session.notices.clear()
    step.effects.append(SessionEnded(session.number, int(cause)))
    returned_as = Cause.DISCONNECT if cause == EndCause.EXPIRED else Cause.RELEASED
    if not session.consumers:
        forget_if_over(step, session.number)
    _start_leaving_together(step, list(session.consumers), returned_as)


def _start_leaving_together(step: Step, numbers: list[int], cause: Cause) -> None:
    """The same for several consumers of a session. Who is active then is looked at once for each
    queue: a session may have a thousand consumers of one, and each look walks those that wait."""
    affected: dict[int, Queue] = {}
    for number in numbers:
        queue = step.state.queues[step.state.consumers[number].queue]
        affected[queue.number] = queue
        start_leaving(step, number, cause, elects=False)
    for queue in affected.values():
        consumers.elect(step, queue)


def start_leaving(step: Step, number: int, cause: Cause, *, elects: bool = True) -> None:
    """A consumer gets nothing more, is emptied and removed; at once, if the budget allows."""
    consumer = step.open_consumer(number)
    queue = step.state.queues[consumer.queue]
    if consumer.leaving is None:
        consumer.base = int(Base.CANCELLED)
        consumer.leaving = int(cause)
        if consumer.session:
            step.open_session(consumer.session).leaving += 1
        step.arm(consumer, None)
        consumers.refresh(step, queue, consumer)
    if not go_on_leaving(step, number, elects=elects):
        step.state.chores.append(("consumer", number, 0))


def go_on_leaving(step: Step, number: int, *, elects: bool = True) -> bool:
    """Empty a leaving consumer as far as the budget goes; whether it is gone."""
    state = step.state
    if number not in state.consumers:
        return True
    if step.budget <= 0:
        return False
    consumer = step.open_consumer(number)
    assert consumer.leaving is not None, "only a leaving consumer is emptied"
    queue = step.open_queue(consumer.queue)
    decides = consumer.held > 0 or queue.active == number
    if queue.deleted:
        consumers.leave_with_queue(step, queue, consumer)
    else:
        returns.give_back_all(step, consumer, Cause(consumer.leaving))
        if consumer.held:
            return False
        consumers.drop(step, consumer, elects=elects and decides)
    step.budget -= limits.CONSUMER_COST
    forget_if_over(step, consumer.session)
    return True


def forget_if_over(step: Step, number: int) -> None:
    """An ended session is forgotten, with its producer, when its last consumer is gone."""
    session = step.state.sessions.get(number)
    if session is None or session.end_cause is None or session.consumers:
        return
    step.state.touch(session)
    forget_producer(step, session.producer)
    del step.state.sessions[number]
    step.state.note_owned(session, -1)


def forget_producer(step: Step, number: int) -> None:
    """The producer is unknown from now on: publishing as it is refused, never taken as new. Its
    numbers in very many queues are forgotten in ticks, and none reads them until then."""
    state = step.state
    producer = state.producers[number]
    state.touch(producer)
    step.arm(producer, None)
    del state.producers[number]
    if len(producer.queues) > limits.STEP_OBJECTS:
        state.chores.append(("producer", number, 0))
    else:
        for queue_number in producer.queues:
            _forget_number(state, queue_number, number)
    if producer.name is not None:
        del state.producer_names[producer.name]
        state.note_owned(producer, -1)


def _forget_number(state: State, queue_number: int, producer: int) -> None:
    queue = state.queues.get(queue_number)
    if queue is not None and producer in queue.last_numbers:
        state.touch(queue)
        del queue.last_numbers[producer]


def go_on_forgetting(step: Step, number: int, cursor: int) -> None:
    """Forget the numbers of a producer that is gone, in the queues from `cursor` on."""
    state = step.state
    known = (
        queue.number
        for queue in state.queues.values()  # ascending, for numbers only grow
        if queue.number >= cursor and number in queue.last_numbers
    )
    most = max(step.budget, 0) // limits.CONSUMER_COST + 1
    found = list(islice(known, most + 1))
    for queue_number in found[:most]:
        _forget_number(state, queue_number, number)
    step.budget -= limits.CONSUMER_COST * len(found[:most])
    if len(found) > most:
        state.chores.append(("producer", number, found[most]))


def notice_ack(step: Step, command: NoticeAck) -> Reply:
    """The client's library has all notices up to this one. It proves nothing about the program."""
    found = checks.session(step, command.session, command.fence)
    if isinstance(found, Refused):
        return found
    session = step.open_session(command.session)
    while session.notices and (first := next(iter(session.notices))) <= command.notice:
        del session.notices[first]
    return Done()
