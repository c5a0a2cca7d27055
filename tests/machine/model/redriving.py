"""Redrive in the model (semantics.md section 9): dead letters go back, each once, in order.

Owns its three commands. What the leader chose is given as messages, for their positions are the
machine's own.
"""

from dataclasses import dataclass

from fifo.machine import commands
from tests.machine.model import moving
from tests.machine.model.records import DELAYED, READY, Message, Queue, Redriving
from tests.machine.model.verbs import Answer
from tests.machine.model.world import World


@dataclass(frozen=True)
class Chosen:
    """A redrive's step as the model sees it: does its cursor fit, what does it name, is it the
    last one (its `until` lies behind everything that the redrive is about)."""

    queue: str
    fits: bool
    named: tuple[tuple[int, int, int], ...]
    last: bool


def start(world: World, command: commands.Redrive) -> Answer:
    """Begin a redrive of what stands in the queue now."""
    queue = world.queues.get(command.queue)
    if queue is None:
        return ("refused", "queue_not_found")
    if queue.redrive is not None and queue.redrive.status in ("running", "paused"):
        return ("refused", "redrive_running")
    if command.target == command.queue:
        return ("refused", "invalid")
    if command.target is not None and command.target not in world.queues:
        return ("refused", "queue_not_found")
    queue.redrive = Redriving(
        command.target,
        command.limit,
        command.rate_per_s,
        command.reset_counts,
        [(message, message.order) for message in world.in_queue(queue.name)],
        world.now_ms,
    )
    return ("done",)


def stop(world: World, name: str) -> Answer:
    """Cancel it; what was moved stays moved."""
    queue = world.queues.get(name)
    if queue is None:
        return ("refused", "queue_not_found")
    if queue.redrive is None or queue.redrive.status not in ("running", "paused"):
        return ("refused", "stale")
    queue.redrive.status = "cancelled"
    return ("done",)


def step(world: World, chosen: Chosen) -> Answer:
    """Move what was chosen, as far as it is still there and goes."""
    queue = world.queues.get(chosen.queue)
    if queue is None:
        return ("refused", "queue_not_found")
    redrive = queue.redrive
    if redrive is None or redrive.status not in ("running", "paused"):
        return ("refused", "stale")
    if not chosen.fits or world.now_ms < redrive.next_ms:
        return ("refused", "stale")
    before, waits = redrive.moved, False
    for message_id in chosen.named:
        if redrive.limit is not None and redrive.moved >= redrive.limit:
            break
        message = still_there(redrive, queue, message_id)
        if message is not None and not move_one(world, redrive, message):
            waits = True
            break
    moved = redrive.moved - before
    enough = redrive.limit is not None and redrive.moved >= redrive.limit
    redrive.status = "paused" if waits else "done" if enough or chosen.last else "running"
    redrive.next_ms = world.now_ms
    if redrive.rate_per_s is not None:
        redrive.next_ms += -(-moved * 1_000 // redrive.rate_per_s)
    return ("moved", moved)


def still_there(
    redrive: Redriving, queue: Queue, message_id: tuple[int, int, int]
) -> Message | None:
    """The message, where it stands as it stood when the redrive began."""
    for message, order in redrive.about:
        here = message.queue == queue.name and message.where in (READY, DELAYED)
        if message.message_id == message_id and here and message.order == order:
            return message
    return None


def move_one(world: World, redrive: Redriving, message: Message) -> bool:
    """Move or skip it; False where its target is missing, full, or its own queue."""
    dead = message.dead
    name = redrive.target or (dead.source if dead is not None else None)
    if name is None:
        redrive.skipped += 1
        return True
    target = world.queues.get(name)
    if target is None or name == message.queue:
        return False
    if moving.over_limit(world, target, 1, world.size(message)):
        return False
    if redrive.reset_counts:
        message.attempts = message.failures = 0
        message.history = []
    elif dead is not None:
        message.attempts += dead.attempts
        message.failures += dead.failures
        message.history = [*dead.history, *message.history]
    message.dead = None
    redrive.moved += 1
    moving.transfer(world, message, target)
    return True
