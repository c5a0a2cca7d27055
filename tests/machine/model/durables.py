"""Durable consumers in the model (semantics.md section 11): a name that outlives every session.

Owns their commands. A durable consumer is a consumer record without a session.
"""

from typing import assert_never

from fifo.machine import commands
from fifo.machine.spec import consumer_options
from fifo.words import bounds
from tests.machine.model import moving, verbs
from tests.machine.model.handing import hand
from tests.machine.model.records import Consumer
from tests.machine.model.verbs import Answer
from tests.machine.model.world import World

Durable = (
    commands.OpenDurable
    | commands.Reserve
    | commands.Fetch
    | commands.AckUpto
    | commands.RenewDurable
    | commands.Forget
    | commands.Settle
)
Texts = dict[str, str | None]


def durable(world: World, command: Durable, texts: Texts | None = None) -> Answer:
    """Apply a command of a durable consumer; an older generation is refused."""
    if isinstance(command, commands.OpenDurable):
        return open_durable(world, command)
    if isinstance(command, commands.Settle) and command.session not in world.sessions:
        return ("refused", "unknown_session")
    if isinstance(command, commands.Reserve) and command.runs and world.version < 2:
        return ("refused", "invalid")
    consumer = world.consumers.get(command.consumer)
    if consumer is None or not consumer.generation:
        return ("refused", "unknown_consumer")
    if command.generation != consumer.generation:
        return ("refused", "old_generation")
    consumer.used_ms = world.now_ms
    world.used(world.queues[consumer.queue])
    match command:
        case commands.Reserve():
            world.note_use(command.session, "consuming")
            return reserve(world, consumer, command)
        case commands.Fetch():
            world.note_use(command.session, "consuming")
            return fetch(world, consumer, command)
        case commands.AckUpto():
            return ack_upto(world, consumer, command)
        case commands.Settle():
            return verbs.settle_each(world, consumer, command, texts or {}, own=False)
        case commands.RenewDurable():
            return renew(world, consumer)
        case commands.Forget():
            end(world, consumer)
            return ("done",)
        case _:
            assert_never(command)


def open_durable(world: World, command: commands.OpenDurable) -> Answer:
    """Find or create it, and take it over."""
    queue_name, name, options = command.queue, command.name, consumer_options(command.options)
    queue = world.queues.get(queue_name)
    if queue is None:
        return ("refused", "queue_not_found")
    if world.is_single_active(queue):
        return ("refused", "invalid")
    there = [c for c in world.consumers_of(queue_name) if c.generation and c.tag == name]
    consumer = there[0] if there else verbs.new_consumer(world, 0, queue, name, options, True)
    if not there:
        consumer.user = command.user
    consumer.lock_ms = options.lock_ms or queue.spec.lock_ms
    consumer.max_lock_ms = options.max_lock_ms or queue.spec.max_lock_ms
    consumer.nack_backoff = options.nack_backoff
    consumer.timeout_backoff = options.timeout_backoff
    consumer.prefetch = bounds.PREFETCH_MAX
    consumer.generation += 1
    consumer.used_ms = world.now_ms
    world.used(queue)
    held = [message.token for message in world.held_by(consumer)]
    lost = lost_of(world, consumer, consumer.resolved_below, consumer.next_token)
    return ("durable", consumer.number, consumer.generation, consumer.next_token, held, lost)


def lost_of(world: World, consumer: Consumer, first: int, end: int) -> list[int]:
    """The tokens that were taken from it, not by its own verdict, and those below its mark."""
    held = {message.token for message in world.held_by(consumer)}
    gone = {*consumer.taken, *range(1, consumer.resolved_below)} - held
    return sorted(token for token in gone if first <= token < end)


def reserve(world: World, consumer: Consumer, command: commands.Reserve) -> Answer:
    """Check out the next messages under its own growing numbers, up to the one that fills the
    bytes."""
    queue = world.queues[consumer.queue]
    first, got, size = consumer.next_token, 0, 0
    while got < command.count and not queue.paused:
        if command.max_bytes and size >= command.max_bytes:
            break
        found = verbs.next_for(world, queue, consumer, runs=command.runs)
        if found is None:
            break
        hand(world, found, consumer, consumer.lock_ms, runs=command.runs)
        world.got.add((consumer.number, found.token))
        got += 1
        size += world.size(found)
    return ("reserved", consumer.number, first, got, 0, max(command.max_bytes - size, 0), [])


def fetch(world: World, consumer: Consumer, command: commands.Fetch) -> Answer:
    """Fetch the same tokens again, at each request; a token that is gone is a hole."""
    found = [m for m in world.held_by(consumer) if command.first <= m.token <= command.last]
    size = sent = rest = 0
    for message in found:
        if command.max_bytes and size >= command.max_bytes:
            rest = message.token
            break
        world.effects.append(("repeat", command.session, consumer.number, message.token))
        size += world.size(message)
        sent += 1
    lost = lost_of(world, consumer, command.first, rest or command.last + 1)
    return ("reserved", consumer.number, command.first, sent, rest, 0, lost)


def ack_upto(world: World, consumer: Consumer, command: commands.AckUpto) -> Answer:
    """Settle everything up to a token (idempotent); name the tokens that could not be settled."""
    resolve(consumer, min(command.answered_below, consumer.next_token))
    first = max(consumer.resolved_below, command.first, 1)
    last = min(command.upto, consumer.next_token - 1)
    lost = []
    for token in range(first, last + 1):
        status, _ = verbs.settle_one(world, consumer, token, "ack", None, {}, own=False)
        if status not in ("ok", "already_settled"):
            lost.append((token, status, False))
    if first <= min(last, max(consumer.resolved_below, 1)):
        resolve(consumer, lost[0][0] if lost else last + 1)
    return ("receipt", consumer.number, lost)


def resolve(consumer: Consumer, below: int) -> None:
    """Raise the resolved mark: no client asks about the tokens below again."""
    consumer.resolved_below = max(consumer.resolved_below, below)
    consumer.taken = {t: b for t, b in consumer.taken.items() if t >= consumer.resolved_below}


def renew(world: World, consumer: Consumer) -> Answer:
    """Lock its messages anew from now on: one floor, by the longest lock that it holds."""
    held = world.held_by(consumer)
    if held:
        floor_ms = world.now_ms + max(message.lock_ms for message in held)
        consumer.floor_ms = max(world.standing_floor_ms(consumer), floor_ms)
        consumer.floor_last = consumer.next_token - 1
    return ("done",)


def end(world: World, consumer: Consumer) -> None:
    """End it, forgotten or unused for seven days: its messages are returned, uncounted."""
    for message in world.held_by(consumer):
        moving.take(world, message, moving.RELEASED)
    moving.remove_consumer(world, consumer)
