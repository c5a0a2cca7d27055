"""Actions of an operator on one message, in the model (semantics.md 14).

Owns the eight actions. Where the message stands is given in the model's words, for positions are
the machine's own.
"""

from dataclasses import dataclass

from fifo.machine import commands
from fifo.words.actions import Action
from tests.machine.model import lives, moving, verbs
from tests.machine.model.records import DELAYED, LOCKED, READY, Message, Queue
from tests.machine.model.verbs import Answer
from tests.machine.model.world import World


@dataclass(frozen=True)
class Acted:
    """An action as the model sees it: does the position fit the message."""

    command: commands.MessageAction
    fits: bool
    body: bytes | None = None
    key: bytes = b""
    headers: bytes = b""


def act(world: World, acted: Acted) -> Answer:
    """Carry out one action on one message."""
    command = acted.command
    queue = world.queues.get(command.queue)
    if queue is None:
        return ("refused", "queue_not_found")
    message = found(world, acted)
    if message is None:
        return ("refused", "message_not_found")
    match Action(command.action):
        case Action.RETRY:
            return retry(world, command, message)
        case Action.UNLOCK:
            return unlock(world, command, message)
        case Action.DELAY:
            return delay(world, command, message)
        case Action.CANCEL | Action.DELETE:
            if message.where == LOCKED and command.action == Action.CANCEL:
                return ("refused", "invalid")
            was_locked = take(world, message, "gone")
            world.count(queue.name, "deleted")
            moving.remove(world, message)
            return done(world, command, was_locked=was_locked)
        case Action.TERMINATE:
            return terminate(world, queue, command, message)
        case Action.MOVE:
            return move(world, command, message)
        case Action.RESEND:
            return resend(world, acted, message)


def found(world: World, acted: Acted) -> Message | None:
    """The message, if it stands in this queue as the command says."""
    command = acted.command
    for message in world.in_queue(command.queue):
        if message.message_id != command.message or not acted.fits:
            continue
        if message.where == LOCKED:
            lock = (message.consumer, message.token)
            return message if (command.consumer, command.token) == lock else None
        return None if command.consumer else message
    return None


def retry(world: World, command: commands.MessageAction, message: Message) -> Answer:
    """Ready now, for all; a dead letter in its source."""
    if message.where == LOCKED:
        return ("refused", "invalid")
    if message.dead is not None:
        return send_on(world, command, message, command.target or message.dead.source)
    if command.target is not None:
        return ("refused", "invalid")
    message.where = READY
    message.avoid = message.avoid_until_ms = 0
    return ("done",)


def unlock(world: World, command: commands.MessageAction, message: Message) -> Answer:
    """Back to its place, uncounted; not to the same consumer for a second."""
    if message.where != LOCKED:
        return ("refused", "invalid")
    consumer, token = world.consumers[message.consumer], message.token
    keyed = world.queues[consumer.queue].spec.ordering == "key"
    fate = moving.give_back(world, message, moving.TAKEN_BACK, command.delay_ms)
    moving.remember_taken(consumer, token, fate)
    message.late_ok = fate == "returned"
    if fate == "returned" and not consumer.cancelled:
        verbs.avoid(world, message, consumer, sure=not keyed)
    return done(world, command, was_locked=True)


def delay(world: World, command: commands.MessageAction, message: Message) -> Answer:
    """Another time; what was ready waits like a message that was published so."""
    if message.where == LOCKED or not command.delay_ms:
        return ("refused", "invalid")
    message.due_ms = world.now_ms + command.delay_ms
    if message.where == READY:
        message.where, message.cause = DELAYED, "postponed"
        message.returned = message.blocks = False
        message.avoid = message.avoid_until_ms = 0
    return ("done",)


def terminate(
    world: World, queue: Queue, command: commands.MessageAction, message: Message
) -> Answer:
    """To the dead-letter queue, with the operator's words."""
    if queue.spec.dead_letter is None:
        return ("refused", "no_dead_letter_queue")
    holder = message.consumer if message.where == LOCKED else 0
    was_locked = take(world, message, "dead")
    world.count(queue.name, "terms")
    message.history.append((holder, moving.TERMINATED, world.wall_ms))
    why = {"detail": command.reason, "description": command.description}
    moving.dead_letter(world, message, "terminated", **why)
    return done(world, command, was_locked=was_locked)


def move(world: World, command: commands.MessageAction, message: Message) -> Answer:
    """To the end of another queue, as it is."""
    if command.target is None:
        return ("refused", "invalid")
    return send_on(world, command, message, command.target, keeps=True)


def resend(world: World, acted: Acted, message: Message) -> Answer:
    """Anew at the end of its target, its source or its own queue; perhaps edited."""
    command = acted.command
    if acted.body is not None and len(acted.key) > 1024:
        return ("refused", "too_large")
    source = message.queue if message.dead is None else message.dead.source
    return send_on(world, command, message, command.target or source, edited=acted)


def send_on(
    world: World,
    command: commands.MessageAction,
    message: Message,
    name: str,
    *,
    keeps: bool = False,
    edited: Acted | None = None,
) -> Answer:
    """To the end of a queue that has room; `keeps` counts and dead letter."""
    target = world.queues.get(name)
    if target is None:
        return ("refused", "queue_not_found")
    stays = name == message.queue
    if stays and edited is None:
        return ("refused", "invalid")
    body = message.body if edited is None or edited.body is None else edited.body
    more = len(body) - (world.size(message) if stays else 0)
    if moving.over_limit(world, target, 0 if stays else 1, more):
        return ("refused", "queue_full")
    if message.where == LOCKED and keeps:
        message.history.append((message.consumer, moving.TAKEN_BACK, world.wall_ms))
    was_locked = take(world, message, "gone")
    if not keeps:
        message.attempts = message.failures = 0
        message.history, message.dead = [], None
    if edited is not None and edited.body is not None:
        message.body, message.key, message.headers = body, edited.key, edited.headers
    moving.transfer(world, message, target)
    return done(world, command, was_locked=was_locked)


def take(world: World, message: Message, fate: str) -> bool:
    """Out of its place; whether it was locked, and its holder has lost it."""
    was_locked = message.where == LOCKED
    if was_locked:
        moving.remember_taken(world.consumers[message.consumer], message.token, fate)
    message.late_ok = False
    message.where = READY
    return was_locked


def done(world: World, command: commands.MessageAction, *, was_locked: bool) -> Answer:
    """The holder's client is notified, and its consumer has a place more."""
    if was_locked:
        consumer = world.consumers[command.consumer]
        session = world.sessions.get(consumer.session)
        if session is not None:
            lives.notify(world, session, consumer, {command.token})
        moving.drop_if_done(world, consumer)
    moving.reseat(world, world.queues[command.queue])
    return ("done",)
