"""Messages that leave a holder or a queue in the model: returns, dead letters, expiry, overflow.

Owns section 7 (causes, counting, backoff), section 9 (moves) and the limits of section 11, each
written as the sentence it comes from.
"""

from typing import Any

from fifo.machine import limits
from tests.machine.model import backoff
from tests.machine.model.records import DELAYED, LOCKED, READY, Consumer, Dead, Message, Queue
from tests.machine.model.world import World

NACK, TIMEOUT, DISCONNECT, RELEASED, TERMINATED, TAKEN_BACK = (
    "nack",
    "timeout",
    "disconnect",
    "released",
    "terminated",
    "taken_back",
)


def remove(world: World, message: Message) -> None:
    """The message is in no place any more."""
    world.messages.remove(message)


def forget_lock(message: Message) -> None:
    """Release the message from its last holder: no late settlement reaches it."""
    message.late_ok = False


def dead_letter(world: World, message: Message, reason: str, **why: str | None) -> None:
    """Move to the dead-letter queue of its queue, in this very command; never refused."""
    source = world.queues[message.queue]
    target = world.queues[source.spec.dead_letter]
    world.count(source.name, f"dead_lettered_{reason}")
    history = message.history[-limits.HISTORY :]
    message.dead = Dead(reason, source.name, message.attempts, message.failures, history, **why)
    message.history = []
    message.attempts = message.failures = 0
    if reason == "expired" or world.ticking:
        message.died_at = world.entry
    transfer(world, message, target)


def transfer(world: World, message: Message, target: Queue) -> None:
    """To the end of its lane in another queue: its ttl and delay end, the target's ttl holds."""
    message.expires_ms = None
    if target.spec.ttl_ms is not None:
        set_ttl(world, message, target.spec.ttl_ms)
    message.avoid_until_ms = message.avoid = 0
    message.late_ok = False
    target.ordered += 1
    message.queue, message.order, message.where = target.name, target.ordered, READY
    drop_own_oldest(world, target, message)


def drop_own_oldest(
    world: World, queue: Queue, newcomer: Message | None = None, *, further: bool = False
) -> None:
    """A drop_oldest queue that is over its limits drops its own, but not what just comes."""
    if queue.spec.overflow != "drop_oldest":
        return
    while over_limit(world, queue, 0, 0):
        victims = victims_for(world, queue, 0, newcomer)
        if not victims:
            return
        drop(world, queue, victims[0], further=further)


def drop(world: World, queue: Queue, victim: Message, *, further: bool) -> None:
    """A victim of the limits is counted, and dead-lettered if so configured."""
    world.count(queue.name, "overflow_dropped")
    if further and queue.spec.dead_letter_overflow:
        victim.where = READY
        dead_letter(world, victim, "overflow")
    else:
        remove(world, victim)


def over_limit(world: World, queue: Queue, messages: int, size: int) -> bool:
    """Whether the queue with so much more in it is over one of its limits."""
    length, room = queue.spec.max_length, queue.spec.max_bytes
    if length is None and room is None:
        return False
    there = world.in_queue(queue.name)
    if length is not None and len(there) + messages > length:
        return True
    return room is not None and sum(world.size(m) for m in there) + size > room


def victims_for(
    world: World, queue: Queue, lane: int, newcomer: Message | None = None
) -> list[Message]:
    """Ready, then delayed messages, lowest priority first, then oldest; never locked ones, none
    of a higher lane than `lane` (0 is priority 9)."""
    found = []
    for where in (READY, DELAYED):
        those = [m for m in world.in_queue(queue.name, where) if m is not newcomer]
        those = [m for m in those if world.place(m)[0] >= lane]
        found += sorted(those, key=lambda m: (-world.place(m)[0], m.order))
    return found


def set_ttl(world: World, message: Message, ttl_ms: int) -> None:
    """Expire the message after `ttl_ms`, which a machine may round up by less than 1/64."""
    message.expires_ms = world.now_ms + ttl_ms
    message.expires_slack_ms = 0  # the machine does not round: the promise allows 1/64


def expire(world: World, message: Message) -> None:
    """The ttl is over: to the dead-letter queue, or away."""
    queue = world.queues[message.queue]
    world.count(queue.name, "expired")
    if queue.spec.dead_letter is not None and queue.spec.dead_letter_expired:
        dead_letter(world, message, "expired")
    else:
        remove(world, message)


def counts_as_failure(queue: Queue, cause: str) -> bool:
    """The first column of section 7's table."""
    if cause == TIMEOUT:
        return bool(queue.spec.count_timeouts)
    return cause in (NACK, DISCONNECT)


def delay_of(queue: Queue, consumer: Consumer, message: Message, cause: str) -> int:
    """The second column of section 7's table, where no delay was named; `message.failures` is
    still without this one."""
    if cause == NACK:
        policy = consumer.nack_backoff or queue.spec.nack_backoff
        if policy is None:
            return limits.NACK_DELAY_MS_DEFAULT
        return backoff.delay_ms(policy, message.failures)
    if cause == TIMEOUT:
        policy = consumer.timeout_backoff or queue.spec.timeout_backoff
        return 0 if policy is None else backoff.delay_ms(policy, message.failures)
    return 0


def give_back(world: World, message: Message, cause: str, delay_ms: int | None = None) -> str:
    """A locked message comes back for this cause: "returned", or else "dead" or "gone"."""
    assert message.where == LOCKED
    consumer = world.consumers[message.consumer]
    queue = world.queues[message.queue]
    wait_ms = delay_of(queue, consumer, message, cause) if delay_ms is None else delay_ms
    message.history.append((consumer.number, cause, world.wall_ms))
    world.count(queue.name, f"redelivered_{cause}")  # returns by cause, whatever follows
    if counts_as_failure(queue, cause):
        message.failures += 1
        if message.failures == queue.spec.failures_max or (
            queue.spec.failures_max is not None and message.failures > queue.spec.failures_max
        ):
            exhaust(world, message)
            return became(world, message)
    if world.has_surely_expired(message):
        message.where = READY
        expire(world, message)
        return became(world, message)
    assert not world.has_expired(message), "a ttl in doubt: the driver leaves none"
    _end_run(world, message)
    message.cause, message.returned = cause, True
    message.blocks = queue.spec.on_delay == "block"
    message.avoid = message.avoid_until_ms = 0
    message.where, message.due_ms = READY, 0
    if wait_ms:
        message.where, message.due_ms = DELAYED, world.now_ms + wait_ms
    return "returned"


def _end_run(world: World, message: Message) -> None:
    """End the run that it was of: its holder gets no more of the key."""
    for other in world.in_queue(message.queue, LOCKED):
        if other.key == message.key:
            other.run = 0


def became(world: World, message: Message) -> str:
    """Whether a message that did not stay is a dead letter now, or nowhere."""
    return "dead" if message in world.messages else "gone"


def exhaust(world: World, message: Message) -> None:
    """The return that makes failures = max_deliveries."""
    queue = world.queues[message.queue]
    if queue.spec.dead_letter is not None and queue.spec.on_exhausted == "dead_letter":
        dead_letter(world, message, "max_deliveries")
    else:
        world.count(queue.name, "exhausted_dropped")
        remove(world, message)


def take(world: World, message: Message, cause: str) -> None:
    """Returned not by its holder's own command: the token is remembered as taken."""
    consumer, token = world.consumers[message.consumer], message.token
    fate = give_back(world, message, cause)
    remember_taken(consumer, token, fate)
    message.late_ok = fate == "returned"


def remember_taken(consumer: Consumer, token: int, fate: str) -> None:
    """The token was taken."""
    consumer.taken.setdefault(token, fate)
    bound_taken(consumer)


def bound_taken(consumer: Consumer) -> None:
    """Of too many ranges of taken tokens the two lowest become one that says returned."""
    ranges: list[list[Any]] = []
    for known in sorted(consumer.taken):
        dead = consumer.taken[known] == "dead"
        if ranges and ranges[-1][1] == known - 1 and ranges[-1][2] == dead:
            ranges[-1][1] = known
        else:
            ranges.append([known, known, dead])
    if len(ranges) > limits.TAKEN_RANGES:
        for covered in range(ranges[0][0], ranges[1][1] + 1):
            consumer.taken[covered] = "returned"


def cause_for(world: World, consumer: Consumer, cause: str) -> str:
    """The cause of a return: that of its disconnected session, or else `cause`."""
    session = world.sessions.get(consumer.session)
    return DISCONNECT if session is not None and session.disconnected else cause


def drop_if_done(world: World, consumer: Consumer) -> None:
    """A cancelled consumer is gone when its last token is settled and resolved."""
    if not consumer.cancelled or world.held_by(consumer):
        return
    if consumer.resolved_below >= consumer.next_token or consumer.next_token == 1:
        remove_consumer(world, consumer)


def remove_consumer(world: World, consumer: Consumer) -> None:
    """The consumer's number answers unknown_consumer from now on."""
    del world.consumers[consumer.number]
    queue = world.queues[consumer.queue]
    world.used(queue)
    if queue.active == consumer.number:
        queue.active = None
    for message in world.messages:
        if message.consumer == consumer.number:
            forget_lock(message)


def reseat(world: World, queue: Queue) -> None:
    """Give a single-active queue the consumer that section 6 says (nothing for other queues)."""
    if not world.is_single_active(queue):
        return
    holders = [c for c in world.consumers_of(queue.name) if world.held_by(c)]
    active = world.consumers.get(queue.active) if queue.active is not None else None
    if active is not None and active.suspicion != "none" and not world.held_by(active):
        queue.active = active = None
    if active is not None and holders and active not in holders:
        queue.active = active = None  # cancelled, it had kept its place until a session came to get
    eligible = [c for c in world.consumers_of(queue.name) if world.is_eligible(c)]
    if active is not None and eligible and not world.held_by(active):
        # It keeps its place without a successor: nothing is handed out meanwhile.
        replaced = not world.is_eligible(active) or world.challenger(queue) is not None
        queue.active = None if replaced else active.number
        active = None if replaced else active
    if active is not None or holders:
        return
    first = world.first_in_line(eligible)
    queue.active = first.number if first else None
