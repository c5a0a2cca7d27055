"""Sessions, time and queues in the model: attach, leave, lead, tick, declare, delete.

Owns sections 2 to 5 as far as the machine sees them, and the queue commands of section 11.
"""

from collections.abc import Sequence
from typing import Any

from fifo.machine import limits
from fifo.machine import spec as specs
from fifo.machine.types import NEVER_MS
from fifo.words import bounds
from tests.machine.model import durables, moving
from tests.machine.model.records import DELAYED, READY, Consumer, Producer, Queue, Session
from tests.machine.model.verbs import Answer
from tests.machine.model.world import LEASE_MS, World

DRAIN_MS = 10_000
"""For this long a cancelled consumer keeps its locks while its session is disconnected (4.12)."""


def attach(world: World, command: Any) -> Answer:
    """Open or resume a session in one role."""
    session_id, role, user = command.session_id, command.role, command.user
    incarnation = command.incarnation
    known = [s for s in world.sessions.values() if s.session_id == session_id]
    if not known:
        session = Session(
            world.number("session"), session_id, incarnation, user, world.number("producer"),
            command.handle_key,
        )  # fmt: skip
        world.producers[session.producer] = Producer(session.producer, None, world.now_ms)
        world.sessions[session.number] = session
    else:
        session = known[0]
        if session.user != user:
            return ("refused", "forbidden")
        if command.resume and session.incarnation != incarnation:
            return ("refused", "session_taken")
        world.keep_floors(session)
        if session.incarnation != incarnation:
            for other in (0, 1):
                if session.attached[other]:
                    world.effects.append(("fenced", session.number, other, session.epochs[other]))
            session.attached = [False, False]
            session.epochs[1 - role] += 1  # its connection is an older one from now on
            del world.producers[session.producer]
            session.producer = world.number("producer")
            world.producers[session.producer] = Producer(session.producer, None, world.now_ms)
        elif session.attached[role]:
            world.effects.append(("fenced", session.number, role, session.epochs[role]))
    session.incarnation = incarnation
    session.attached[role] = True
    session.epochs[role] += 1
    session.resume_by_ms = None
    if session.disconnected:
        session.disconnected = False
        for consumer in world.of_session(session):
            if consumer.suspicion == "timeout_while_disconnected":
                consumer.suspicion = "none"
    reseat_all(world, world.of_session(session))
    if role == 0:
        for consumer in world.of_session(session):
            for message in world.held_by(consumer):
                world.effects.append(("repeat", session.number, consumer.number, message.token))
        if known:
            world.effects.append(("mark", session.number, session.epochs[role]))
    send_notices(world, session)
    listed = {(c.number, c.tag, c.queue, c.lock_ms) for c in world.of_session(session)}
    return ("attached", session.number, bool(known), listed, session.handle_key)


def send_notices(world: World, session: Session) -> None:
    """Send the waiting notices again, under new numbers, which no older ack covers."""
    waiting = list(session.notices.values())
    session.notices = {}
    for consumer, tokens in waiting:
        session.last_notice += 1
        session.notices[session.last_notice] = (consumer, tokens)
        world.effects.append(("notice", session.number, session.last_notice))


def reseat_all(world: World, consumers: list[Consumer]) -> None:
    """Every single-active queue of these consumers looks again who is active."""
    for name in dict.fromkeys(c.queue for c in consumers):
        moving.reseat(world, world.queues[name])


def detach(world: World, number: int, role: int, epoch: int) -> Answer:
    """Close a connection; the close of an older one has no effect."""
    session = world.sessions.get(number)
    if session is None:
        return ("refused", "unknown_session")
    if epoch != session.epochs[role]:
        return ("refused", "fenced")
    session.attached[role] = False
    reseat_all(world, world.of_session(session))
    if role == 1 and session.attached[0]:
        send_notices(world, session)
    return ("done",)


def disconnect(
    world: World, number: int, epochs: tuple[int, int], floors: Sequence[tuple[int, int]]
) -> Answer:
    """No connection is left, said of these epochs."""
    session = world.sessions.get(number)
    if session is None:
        return ("refused", "unknown_session")
    if epochs != tuple(session.epochs):
        return ("refused", "fenced")
    world.keep_floors(session)
    for consumer_number, floor_ms in floors:
        consumer = world.consumers.get(consumer_number)
        if consumer is not None and consumer.session == number:
            raise_floor(world, consumer, floor_ms)
    if not session.disconnected:
        become_disconnected(world, session)
    return ("done",)


def raise_floor(world: World, consumer: Consumer, floor_ms: int) -> None:
    """A floor for every token so far; it never lowers one."""
    consumer.floor_ms = max(world.standing_floor_ms(consumer), floor_ms)
    consumer.floor_last = consumer.next_token - 1


def become_disconnected(world: World, session: Session) -> None:
    """Its consumers keep their locks; it is over where it has done nothing."""
    if session.use == "none":
        over(world, session, 1)
        return
    for consumer in world.of_session(session):
        world.renew_last(consumer)
        consumer.grace_held_ms = 0
    session.disconnected, session.disconnected_ms = True, world.now_ms
    session.attached, session.resume_by_ms = [False, False], None
    reseat_all(world, world.of_session(session))


def end_session(world: World, number: int, cause: int) -> Answer:
    """Closed by its client, or expired if it is still disconnected and due."""
    session = world.sessions.get(number)
    if session is None:
        return ("refused", "unknown_session")
    due = session.disconnected and is_due(world, session)
    if cause == 1 and not due:
        return ("refused", "session_connected")
    kept_ms = session.disconnected_ms + bounds.WRITING_SESSION_MS
    is_over = session.use == "none" or (session.disconnected and kept_ms <= world.now_ms)
    if cause == 2 and not is_over:
        for role in (0, 1):
            if session.attached[role]:
                world.effects.append(("fenced", number, role, session.epochs[role]))
        world.keep_floors(session)
        if not session.disconnected:
            become_disconnected(world, session)
        session.use = "writing"
        give_all_back(world, session, moving.RELEASED)
        return ("done",)
    over(world, session, cause)
    return ("done",)


def is_due(world: World, session: Session) -> bool:
    """Whether it has been disconnected for the session timeout."""
    return session.disconnected_ms + world.session_timeout_ms(session) <= world.now_ms


def over(world: World, session: Session, cause: int) -> None:
    """Everything is returned, and the session and what it owned are gone."""
    consumers = give_all_back(world, session, moving.DISCONNECT if cause == 1 else moving.RELEASED)
    del world.producers[session.producer]
    del world.sessions[session.number]
    reseat_all(world, consumers)
    world.effects.append(("ended", session.number, cause))


def give_all_back(world: World, session: Session, cause: str) -> list[Consumer]:
    """All that its consumers hold is returned, and they are gone."""
    consumers = world.of_session(session)
    for consumer in consumers:
        for message in world.held_by(consumer):
            moving.take(world, message, cause)
    for consumer in consumers:
        moving.remove_consumer(world, consumer)
    reseat_all(world, consumers)
    return consumers


def lead(world: World, term: int) -> Answer:
    """Every session is detached; every lock of a connected one gets a floor."""
    if term <= world.term:
        return ("refused", "stale")
    world.term, world.lead_ms = term, world.now_ms
    for session in world.sessions.values():
        session.attached = [False, False]
        if session.disconnected:
            continue
        if session.resume_by_ms is None:  # else a further change of leader prolongs nothing
            session.resume_by_ms = world.now_ms + limits.RESUME_MS
        for consumer in world.of_session(session):
            consumer.lead_ms, consumer.lead_last = world.now_ms, consumer.next_token - 1
    for queue in world.queues.values():
        moving.reseat(world, queue)
    return ("led", len(world.sessions))


def notice_ack(world: World, number: int, notice: int) -> Answer:
    """Acknowledge the notices up to this one."""
    session = world.sessions.get(number)
    if session is None:
        return ("refused", "unknown_session")
    session.notices = {one: held for one, held in session.notices.items() if one > notice}
    return ("done",)


def tick(world: World, named: Sequence[tuple[int, int, int]]) -> Answer:
    """Apply every effect of time."""
    unused = [queue.name for queue in world.queues.values() if world.is_unused(queue)]
    expired_locks(world, named)
    for session in list(world.sessions.values()):
        if session.resume_by_ms is not None and session.resume_by_ms <= world.now_ms:
            world.keep_floors(session)
            become_disconnected(world, session)
        if session.disconnected and session.number in world.sessions:
            grace(world, session)
            if is_due(world, session):
                over(world, session, 1)
    for message in list(world.messages):
        if message.where == DELAYED and message.due_ms <= world.now_ms:
            message.where = READY
    # In which order is open: those that a full dead-letter queue dropped again came first.
    for message in sorted(world.messages, key=lambda m: m.message_id in world.survivors):
        if message.where in (READY, DELAYED) and world.has_surely_expired(message):
            moving.expire(world, message)
    for message in world.messages:
        if message.avoid_until_ms and message.avoid_until_ms <= world.now_ms:
            message.avoid = message.avoid_until_ms = 0
    for consumer in list(world.consumers.values()):
        if consumer.generation and consumer.used_ms + limits.DURABLE_MS <= world.now_ms:
            durables.end(world, consumer)
    for producer in list(world.producers.values()):
        if producer.name and producer.used_ms + limits.PRODUCER_MS <= world.now_ms:
            del world.producers[producer.number]
    unused_queues(world, unused)
    return ("ticked",)


def unused_queues(world: World, unused_before: list[str]) -> None:
    """End the unused queues; a queue that others name as dead-letter queue is in use.

    Whether such a one or a session with a consumer on it ends first, when both are due, is open.
    One whose last lock ended in this very entry may wait for the next tick.
    """
    first = [name for name in unused_before if name not in world.queues_after]
    waiting = world.queues_after - world.unused_at_first
    due = [
        q
        for q in world.queues.values()
        if (world.is_unused(q) and q.name not in waiting) or q.name in first
    ]
    named = {queue.name for queue in due if world.names_as_dead_letter(queue.name)}
    for queue in due:
        # Whether those that name it end first, when all end at once, is open.
        if queue.name in named and queue.name in world.queues_after:
            world.used(queue)
        else:
            vanish(world, queue.name)


def expired_locks(world: World, named: Sequence[tuple[int, int, int]]) -> None:
    """Expire the locks whose very token is still held and whose deadline has come (section 3)."""
    for number in dict.fromkeys(number for number, _, _ in named):
        consumer = world.consumers.get(number)
        if consumer is None:
            continue
        ranges = [(first, last) for other, first, last in named if other == number]
        lost = []
        for message in world.held_by(consumer):
            meant = any(first <= message.token <= last for first, last in ranges)
            if meant and world.deadline_ms(message) <= world.now_ms:
                lost.append(message)
        for message in lost:
            cause = moving.cause_for(world, consumer, moving.TIMEOUT)
            if cause == moving.TIMEOUT:
                world.count(consumer.queue, "lock_timeouts")
            moving.take(world, message, cause)
        if lost:
            timed_out(world, consumer, [message.token for message in lost])


def timed_out(world: World, consumer: Consumer, tokens: list[int]) -> None:
    """Suspect and notify the consumer; on a single-active queue it returns everything."""
    queue = world.queues[consumer.queue]
    session = world.sessions.get(consumer.session)
    if session is None:
        return  # a durable consumer is never suspected, and is notified when it fetches or acks
    lost = set(tokens)
    if world.is_single_active(queue):
        # Order is kept only if it gives everything back. While its session is disconnected all that
        # is returned has that cause (section 4), else the rest is released.
        for message in world.held_by(consumer):
            lost.add(message.token)
            moving.take(world, message, moving.cause_for(world, consumer, moving.RELEASED))
    if not consumer.implicit and consumer.suspicion == "none":
        away = session.disconnected
        consumer.suspicion = "timeout_while_disconnected" if away else "timeout"
    notify(world, session, consumer, lost)
    moving.drop_if_done(world, consumer)
    moving.reseat(world, queue)


def grace(world: World, session: Session) -> None:
    """Return what a disconnected session still holds where its time is over: that of the queue's
    `disconnect_grace`, or of a drain, which ends with it. What ends first goes first."""
    ends = {
        consumer.number: grace_ends_ms(world, session, consumer)
        for consumer in world.of_session(session)
    }
    for consumer in sorted(
        world.of_session(session), key=lambda one: (ends[one.number], one.number)
    ):
        queue = world.queues[consumer.queue]
        if ends[consumer.number] > world.now_ms:
            continue
        leases_end_ms = world.lead_ms + LEASE_MS
        if leases_end_ms > world.now_ms:  # a former leader may still grant
            consumer.grace_held_ms = leases_end_ms
            continue
        held = world.held_by(consumer)
        for message in held:
            moving.take(world, message, moving.DISCONNECT)
        if held:
            notify(world, session, consumer, {message.token for message in held})
        if consumer.cancelled:
            moving.remove_consumer(world, consumer)
        moving.reseat(world, queue)


def grace_ends_ms(world: World, session: Session, consumer: Consumer) -> int:
    """When the time of a disconnected consumer is over, as a tick looks at it."""
    grace_ms = world.queues[consumer.queue].spec.disconnect_grace_ms
    waits_ms = [grace_ms, DRAIN_MS if consumer.cancelled else None]
    ends_ms = [session.disconnected_ms + wait for wait in waits_ms if wait is not None]
    return max(min(ends_ms, default=NEVER_MS), consumer.grace_held_ms)


def notify(world: World, session: Session, consumer: Consumer, tokens: set[int]) -> None:
    """Notify the client of its lost tokens; kept until it acknowledges the notice."""
    session.last_notice += 1
    session.notices[session.last_notice] = (consumer.number, tokens)
    world.effects.append(("notice", session.number, session.last_notice))


def open_producer(world: World, name: str, user: str) -> Answer:
    """Find or create a named producer."""
    known = [p for p in world.producers.values() if p.name == name]
    producer = known[0] if known else Producer(world.number("producer"), name, world.now_ms, user)
    producer.used_ms = world.now_ms
    world.producers[producer.number] = producer
    return ("producer", producer.number, dict(producer.last))


def forget_producer(world: World, name: str) -> Answer:
    """Remove a named producer."""
    known = [p for p in world.producers.values() if p.name == name]
    if not known:
        return ("refused", "unknown_producer")
    del world.producers[known[0].number]
    return ("done",)


def declare(world: World, name: str, given: dict[str, Any], user: str) -> Answer:
    """Create a queue, and its dead-letter queue where there is none."""
    try:
        spec = specs.queue_spec(given)
    except specs.SpecError:
        return ("refused", "invalid")
    if name in world.queues:
        there = world.queues[name]
        if specs.differences(there.spec, spec):
            return ("refused", "queue_exists")
        world.used(there)
        return ("declared", there.number, False)
    if leads_back(world, name, spec.dead_letter):
        return ("refused", "cycle")
    create_target(world, spec, user)
    found = create(world, name, spec, user)
    return ("declared", found.number, True)


def create(world: World, name: str, spec: Any, user: str) -> Queue:
    """A queue with a number that none had."""
    found = Queue(name, world.number("queue"), spec, user, unused_since_ms=world.now_ms)
    world.queues[name] = found
    return found


def create_target(world: World, spec: Any, user: str) -> None:
    """The dead-letter queue is created with the policy."""
    if spec.dead_letter is not None and spec.dead_letter not in world.queues:
        create(world, spec.dead_letter, specs.queue_spec({}), user)


def leads_back(world: World, name: str, target: str | None) -> bool:
    """Whether dead letters of this queue would come back to it."""
    while target is not None:
        if target == name:
            return True
        there = world.queues.get(target)
        target = there.spec.dead_letter if there is not None else None
    return False


def update(world: World, name: str, changes: dict[str, Any], user: str) -> Answer:
    """Change a live queue."""
    queue = world.queues.get(name)
    if queue is None:
        return ("refused", "queue_not_found")
    try:
        spec = specs.updated_spec(queue.spec, changes)
    except specs.SpecError:
        return ("refused", "invalid")
    if leads_back(world, name, spec.dead_letter):
        return ("refused", "cycle")
    queue.spec = spec
    world.used(queue)
    if spec.on_delay == "skip":
        for message in world.in_queue(name, DELAYED):
            message.blocks = False
    create_target(world, spec, user)
    moving.drop_own_oldest(world, queue, further=True)
    return ("done",)


def delete(world: World, name: str) -> Answer:
    """Remove a queue with all that is in it."""
    queue = world.queues.get(name)
    if queue is None:
        return ("refused", "queue_not_found")
    if world.names_as_dead_letter(name):
        return ("refused", "in_use")
    return ("deleted", vanish(world, name))


def vanish(world: World, name: str) -> int:
    """The queue is gone with all that is in it; how many messages went with it."""
    gone = world.in_queue(name)
    for message in gone:
        moving.remove(world, message)
    for consumer in world.consumers_of(name):
        if not consumer.generation:
            world.effects.append(("removed", consumer.session, consumer.number))
        moving.remove_consumer(world, consumer)
    del world.queues[name]
    for producer in world.producers.values():
        producer.last.pop(name, None)
    return len(gone)


def purge(world: World, name: str) -> Answer:
    """Remove what is ready or delayed."""
    if name not in world.queues:
        return ("refused", "queue_not_found")
    gone = world.in_queue(name, READY, DELAYED)
    for message in gone:
        moving.remove(world, message)
    world.count(name, "purged", len(gone))
    return ("purged", len(gone))


def pause(world: World, name: str, *, paused: bool) -> Answer:
    """Hand nothing out, or again."""
    if name not in world.queues:
        return ("refused", "queue_not_found")
    world.queues[name].paused = paused
    return ("done",)


def move(world: World, name: str, target_name: str, limit: int) -> Answer:
    """Ready messages from the front go to another queue, in order, counts kept, ttl ended."""
    queue, target = world.queues.get(name), world.queues.get(target_name)
    if queue is None or target is None:
        return ("refused", "queue_not_found")
    if queue is target:
        return ("refused", "invalid")
    moved = 0
    for message in world.in_queue(name, READY)[:limit]:
        if moving.over_limit(world, target, 1, world.size(message)):
            return ("moved", moved) if moved else ("refused", "queue_full")
        moving.transfer(world, message, target)
        moved += 1
    return ("moved", moved)
