"""Handing out in the model. semantics.md leaves open which of several equal consumers is served,
so the model follows the machine's choice, after asking whether it was a legal one, and whether
a message was left that a consumer should have got.

Owns the rules of a checkout: strict order, priorities of consumers, prefetch and credit, the second
after a release, keys and single active, ttl.
"""

from dataclasses import dataclass

from tests.machine.model import moving
from tests.machine.model.records import LOCKED, READY, Consumer, Message
from tests.machine.model.world import World


@dataclass(frozen=True)
class Handed:
    """A message that the machine reports as a fresh delivery."""

    session: int
    consumer: int
    token: int
    message_id: tuple[int, int, int]


def hand(
    world: World, message: Message, consumer: Consumer, lock_ms: int, *, runs: bool = False
) -> None:
    """Lock the message for this consumer, under its next token."""
    assert message.where == READY
    world.count(message.queue, "delivered")
    message.where = LOCKED
    message.attempts += 1
    message.consumer, message.token = consumer.number, consumer.next_token
    message.checkout_ms, message.lock_ms = world.now_ms, lock_ms
    message.run = consumer.number if runs else 0
    message.late_ok = False
    message.avoid = message.avoid_until_ms = 0
    message.cause = "published"
    consumer.next_token += 1


def follow(world: World, handed: Handed) -> Message:
    """Hand out what the machine handed out, if a checkout may do so."""
    consumer = world.consumers.get(handed.consumer)
    assert consumer is not None, f"delivered to a consumer that is not there: {handed}"
    assert consumer.session == handed.session, f"delivered to another session: {handed}"
    assert world.may_get_more(consumer), f"delivered to a consumer that may not: {handed}"
    assert consumer.next_token == handed.token, f"a token out of turn: {handed}"
    message = find_ready(world, consumer.queue, handed)
    judge(world, message, consumer, handed)
    hand(world, message, consumer, consumer.lock_ms)
    if consumer.explicit:
        consumer.credit -= 1
    return message


def find_ready(world: World, queue: str, handed: Handed) -> Message:
    """The ready message with this id."""
    for message in world.in_queue(queue, READY):
        if message.message_id == handed.message_id:
            return message
    raise AssertionError(f"delivered what is not ready in {queue}: {handed}")


def judge(world: World, message: Message, consumer: Consumer, handed: Handed) -> None:
    """Whether this message may go to this consumer before any other."""
    assert not world.has_surely_expired(message), f"handed out an expired message: {handed}"
    assert not world.is_blocked(message), f"handed out past the queue's order: {handed}"
    sure = world.is_avoided(message, consumer) and message.avoid_sure
    assert not sure, f"back to its releaser within a second: {handed}"
    takers = [c for c in world.consumers_of(message.queue) if world.may_get_more(c)]
    for earlier in world.in_queue(message.queue, READY):
        if earlier is message:
            break
        if world.is_blocked(earlier) or world.has_expired(earlier):
            continue
        # One that this consumer has just released waits for another, in this very checkout.
        passed = not world.may_be_avoided(earlier, consumer)
        assert not passed, f"passed over {earlier.message_id} for {handed}"
    for other in takers:
        if other.priority > consumer.priority:
            fine = world.may_be_avoided(message, other)
            assert fine, f"consumer {other.number} of higher priority was passed over: {handed}"


def nothing_left_lying(world: World) -> None:
    """After an entry: no deliverable message is left; then drained credit is gone."""
    _look_for_lying(world)
    for consumer in world.consumers.values():
        if consumer.drains:
            consumer.credit, consumer.drains = 0, False


def _look_for_lying(world: World) -> None:
    for queue in world.queues.values():
        takers = [c for c in world.consumers_of(queue.name) if world.may_get_more(c)]
        if not takers:
            continue
        for message in world.in_queue(queue.name, READY):
            if world.is_blocked(message) or world.has_expired(message):
                continue
            able = [c for c in takers if not world.may_be_avoided(message, c)]
            names = [c.number for c in able]
            assert not able, f"{message.message_id} lies in {queue.name}, {names} could have it"


def expire_gone(world: World, queue: str, shown: list[tuple[int, int, int]], ready: int) -> bool:
    """A checkout expires what it meets: those that the machine shows no more (`shown`: delivered or
    ready), of which `ready` were there before it delivered. Whether any had expired.

    A message that waits for its key is never shown: of those the first are taken, by the count.
    """
    there = [m for m in world.in_queue(queue, READY) if world.has_expired(m)]
    gone = [m for m in there if m.message_id not in shown]
    gone = gone[: max(0, len(world.in_queue(queue, READY)) - ready)]
    for message in gone:
        moving.expire(world, message)
    return bool(gone)


def order_of_deaths(world: World, queue: str, shown: list[tuple[int, int, int]]) -> None:
    """In which order one entry dead-letters what expired, and one tick anything, is open: the
    machine's is taken over. So is that of what the same entry published beside them."""
    there = world.in_queue(queue, READY)
    new = [m for m in there if m.died_at == world.entry]
    if new:
        new = [m for m in there if world.entry in (m.died_at, m.published_at)]
    orders = sorted(m.order for m in new)
    places = {message_id: place for place, message_id in enumerate(shown)}
    new.sort(key=lambda m: places.get(m.message_id, len(shown)))
    places_before = {(id(m), m.order): order for m, order in zip(new, orders, strict=True)}
    for message, order in zip(new, orders, strict=True):
        message.order = order
    redrive = world.queues[queue].redrive
    if redrive is not None:  # perhaps begun in this very entry, about some of them
        redrive.about = [
            (message, places_before.get((id(message), order), order))
            for message, order in redrive.about
        ]
