"""What a queue's ordering adds to places: keys that are held, and returns that block.

Owns `busy_keys`, `waiting` and which delayed messages block what is behind them (semantics.md
sections 6 and 11). With ordering "none" all of this is a test that says no.
"""

from sortedcontainers import SortedList

from fifo.machine import ready
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.state import Queue, Step


def key_of(queue: Queue, position: int) -> int:
    """The hash of the message's key, 0 where it has none or keys do not order this queue."""
    if queue.spec.ordering != "key":
        return 0
    hashes = queue.blocks[position >> BLOCK_BITS].key_hashes
    return hashes[position & ready.BLOCK_MASK] if hashes is not None else 0


def take_key(queue: Queue, position: int) -> bool:
    """Before a message is handed out: its key becomes busy with it.

    False where the key is busy: the message, which the caller took from its place, waits for it
    now (it still counts as ready).
    """
    key = key_of(queue, position)
    holder = queue.busy_keys.get(key) if key else None
    if not key or holder == position:
        return True
    # One of higher priority passes one that only has the key reserved: priority is strict.
    if holder is not None and not (holder > position and _is_reserved(queue, holder)):
        waiting = queue.waiting.get(key)
        if waiting is None:
            waiting = queue.waiting[key] = SortedList()
        waiting.add(position)
        queue.ready += 1
        return False
    queue.busy_keys[key] = position
    return True


def finished(step: Step, queue: Queue, position: int) -> None:
    """The message is settled or leaves the queue: its key goes to the next one that waits for it.

    Also for a message that never had the key. The next one is ready with the key reserved for it,
    so that whatever takes it away instead of a delivery passes the key on as well.
    """
    key = key_of(queue, position)
    if not key or queue.busy_keys.get(key) != position:
        return
    del queue.busy_keys[key]
    waiting = queue.waiting.get(key)
    if waiting:
        following = waiting.pop(0)
        queue.busy_keys[key] = following
        queue.returned.add(following)
        if not waiting:
            del queue.waiting[key]
    step.touched[queue.number] = queue


def came_back(step: Step, queue: Queue, position: int) -> None:
    """The message is about to be ready again: of its key, whoever stands first is handed out next.

    One that stands behind it and only has the key reserved gives way.
    """
    key = key_of(queue, position)
    holder = queue.busy_keys.get(key) if key else None
    if holder is None:
        return
    if holder == position:
        waiting = queue.waiting.get(key)
        if waiting and waiting[0] < position:
            finished(step, queue, position)
    elif holder > position and _is_reserved(queue, holder):
        queue.busy_keys[key] = position


def _is_reserved(queue: Queue, position: int) -> bool:
    """Whether the message that has its key is ready, not out or delayed."""
    if position in queue.returned:
        return True
    return any(position in held for held in queue.avoided.values())


def delay(step: Step, queue: Queue, position: int, due_ms: int, cause: int) -> None:
    """A returned message is delayed: it blocks what its order says, unless the spec skips it."""
    skip = queue.spec.on_delay == "skip"
    if skip:
        finished(step, queue, position)
    blocking = queue.spec.ordering == "single_active" and not skip
    ready.make_delayed(queue, position, due_ms, cause, blocking=blocking)


def due(step: Step, queue: Queue, position: int) -> None:
    """A delayed message's time has come; it was taken out of `delayed`."""
    came_back(step, queue, position)
    ready.make_ready(queue, position)
