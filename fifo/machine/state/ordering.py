"""The ordering of a queue, added to its places: keys that are held, and returns that block.

Owns `busy_keys`, `runs`, `runners`, `waiting` and which delayed messages block what is behind them
(semantics.md sections 6 and 11). With ordering "none" all of this is a test that says no.

What holds a key is *out*: it is locked, or delayed after its return, or ready with the key reserved
for it, and then alone. `busy_keys` has one of each key, `runs` the others, which only a reservation
that asks for runs gets. While it may get more of a run it is the key's runner.
"""

from array import array
from itertools import islice

from fifo.machine import limits
from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES
from fifo.machine.state import ready
from fifo.machine.state.records import Queue, Step
from fifo.machine.types import NEVER_MS

_NONE = array("Q")


def key_of(queue: Queue, position: int) -> int:
    """The hash of the message's key, 0 where it has none or keys do not order this queue."""
    if queue.spec.ordering != "key":
        return 0
    hashes = queue.blocks[position >> BLOCK_BITS].key_hashes
    return hashes[position & ready.BLOCK_MASK] if hashes is not None else 0


def take_key(queue: Queue, position: int, runner: int = 0) -> bool:
    """Before a message is handed out: its key becomes busy with it.

    False where the key is busy: the message, which the caller took from its place, waits for it
    now (it still counts as ready). A `runner` gets more of the keys of which it has all that is
    out, and is the number of a consumer.
    """
    key = key_of(queue, position)
    holder = queue.busy_keys.get(key) if key else None
    if not key:
        return True
    if holder is not None and holder != position:
        if runner and _follows(queue, key, position, runner):
            queue.own(queue.runs, key).add(position)
            _call(queue, key)
            return True
        # One of higher priority passes one that only has the key reserved: priority is strict.
        if not (holder > position and _give_way(queue, key, holder)):
            _wait(queue, key, position)
            return False
    if holder != position:
        queue.busy_keys[key] = position
    if runner:
        queue.runners[key] = runner
        _call(queue, key)
    return True


def take_keys(queue: Queue, position: int, count: int) -> int:
    """Before fresh messages of one block are handed out: the number of the first of them whose keys
    are free, which become busy with them; what `take_key` of each comes to."""
    keys: dict[int, int] = {}
    busy, end = queue.busy_keys.index, position
    for key in _hashes_from(queue, position, count):
        if key:
            if key in busy or key in keys:
                break
            keys[key] = end
        end += 1
    queue.busy_keys.put_new(list(keys), list(keys.values()))
    return end - position


def wait_for_keys(queue: Queue, position: int, count: int) -> int:
    """Of fresh messages of one block the first ones, whose keys are busy with messages before them,
    wait for those; their number. The caller takes them from their places."""
    holder_of, waiting, end = queue.busy_keys.get, queue.waiting, position
    for key in _hashes_from(queue, position, count):
        if holder_of(key, end) >= end:
            break
        queue.own(waiting, key).add(end)
        end += 1
    queue.in_line.add_range(position, end)
    queue.ready += end - position
    return end - position


def reserved(queue: Queue, position: int, count: int) -> int:
    """The number of the first of these ready messages of one block whose keys are reserved for
    them, so that `take_key` of each would change nothing."""
    holder_of, end = queue.busy_keys.get, position
    for key in _hashes_from(queue, position, count):
        if key and holder_of(key) != end:
            break
        end += 1
    return end - position


def _hashes_from(queue: Queue, position: int, count: int) -> "array[int]":
    hashes = queue.blocks[position >> BLOCK_BITS].key_hashes
    if hashes is None or not count:
        return _NONE
    offset = position & ready.BLOCK_MASK
    return hashes[offset : offset + count]


def _follows(queue: Queue, key: int, position: int, runner: int) -> bool:
    """Whether the message is the next one of a run that this consumer has."""
    if queue.runners.get(key) != runner:
        return False
    waiting = queue.waiting.get(key)
    return waiting is None or waiting.first() > position


def _call(queue: Queue, key: int) -> None:
    """The first that waits for a key that has a runner is ready, for it alone: any other that
    comes by puts it back."""
    if key in queue.waiting:
        queue.returned.add(_first_of(queue, key))


def _first_of(queue: Queue, key: int) -> int:
    """Take the first that waits for the key out of the line; it goes on counting as ready."""
    waiting = queue.own(queue.waiting, key)
    following = waiting.pop_first()
    queue.in_line.discard(following)
    if not waiting.count:
        del queue.waiting[key]
    return following


def call_for(queue: Queue, runner: int, most: int) -> int:
    """Before this consumer is served: of its runs the next ones that wait are ready, so that what
    it gets is in the order of the queue. The number of keys that were looked at."""
    if not queue.waiting or not queue.runners:
        return 0
    fewer = queue.waiting if len(queue.waiting) < len(queue.runners) else queue.runners
    keys = list(islice(fewer, most))
    for key in keys:
        if queue.runners.get(key) == runner:
            _call(queue, key)
    return len(keys)


def _wait(queue: Queue, key: int, position: int) -> None:
    """A message that is in no place waits for its key; it counts as ready."""
    queue.own(queue.waiting, key).add(position)
    queue.in_line.add(position)
    queue.ready += 1


def _give_way(queue: Queue, key: int, holder: int) -> bool:
    """Whether the holder only had the key reserved, being ready: then it waits for it like others.

    Left where it was, those behind it that do wait would get the key before it.
    """
    if not ready.take_returned(queue, holder):
        return False
    _wait(queue, key, holder)
    return True


def finished(step: Step, queue: Queue, position: int) -> None:
    """The message is settled or leaves the queue: its key goes to the next one that waits for it.

    Also for a message that never had the key. The next one is ready with the key reserved for it,
    so that whatever takes it away instead of a delivery passes the key on as well.
    """
    key = key_of(queue, position)
    if not key or _leaves_others(queue, key, position) or queue.busy_keys.get(key) != position:
        return
    queue.runners.take(key)
    if key in queue.waiting:
        following = queue.busy_keys[key] = _first_of(queue, key)
        queue.returned.add(following)
    else:
        del queue.busy_keys[key]
    step.touched[queue.number] = queue


def all_finished(step: Step, queue: Queue, first: int, count: int) -> None:
    """`finished` of `count` messages from `first` on."""
    if queue.runs.index or queue.runners.index:
        for position in range(first, first + count):
            finished(step, queue, position)
        return
    called: list[int] = []
    while count:
        piece = min(count, BLOCK_MESSAGES - (first & ready.BLOCK_MASK))
        called += _pass_on(queue, first, piece)
        first += piece
        count -= piece
    queue.in_line.remove_all(called)
    queue.returned.extend(called)
    step.touched[queue.number] = queue


def _pass_on(queue: Queue, first: int, count: int) -> list[int]:
    """The keys that these messages of one block have go to the next ones that wait for them; those,
    which are in no place yet."""
    busy, waiting, generation = queue.busy_keys, queue.waiting, queue.generation
    called: list[int] = []
    for position, key in enumerate(_hashes_from(queue, first, count), first):
        if busy.get(key) != position:
            continue
        behind = waiting.get(key)
        if behind is None:
            del busy[key]
            continue
        if behind.generation != generation:
            behind = queue.own(waiting, key)
        following = busy[key] = behind.pop_first()
        if not behind.count:
            del waiting[key]
        called.append(following)
    return called


def _leaves_others(queue: Queue, key: int, position: int) -> bool:
    """Whether others of the key stay out; then this one, if it was, is out no more."""
    if key not in queue.runs:
        return False
    others = queue.own(queue.runs, key)
    if queue.busy_keys[key] == position:
        queue.busy_keys[key] = others.pop_first()
    else:
        others.discard(position)
    if not others:
        del queue.runs[key]
    return True


def _end_run(queue: Queue, key: int, position: int) -> None:
    """End the run of which one comes back.

    Nothing of the key is handed out until the others are settled or back as well, for what came
    back stands before all that would come next.
    """
    if key in queue.runners and _is_out(queue, key, position):
        del queue.runners[key]


def _is_out(queue: Queue, key: int, position: int) -> bool:
    if queue.busy_keys.get(key) == position:
        return True
    others = queue.runs.get(key)
    return others is not None and position in others


def came_back(step: Step, queue: Queue, position: int) -> bool:
    """The message is about to be ready again: of its key, the first in order is handed out next.

    One that stands behind it and only has the key reserved gives way. False where the message has
    been put to wait for its key; else the caller makes it ready.
    """
    key = key_of(queue, position)
    holder = queue.busy_keys.get(key) if key else None
    if holder is None:
        return True
    _end_run(queue, key, position)
    if _leaves_others(queue, key, position):
        _wait(queue, key, position)
        return False
    if holder == position:
        waiting = queue.waiting.get(key)
        if not waiting or waiting.first() > position:
            return True
        finished(step, queue, position)
    elif holder > position and _give_way(queue, key, holder):
        queue.busy_keys[key] = position
        return True
    _wait(queue, key, position)
    return False


def delay(step: Step, queue: Queue, position: int, due_ms: int, cause: int) -> None:
    """A returned message is delayed: it blocks what its order says, unless the spec skips it."""
    skip = queue.spec.on_delay == "skip"
    if queue.runners:
        _end_run(queue, key_of(queue, position), position)
    if skip:
        finished(step, queue, position)
    blocking = queue.spec.ordering == "single_active" and not skip
    ready.make_delayed(queue, position, due_ms, cause, blocking=blocking)


def due(step: Step, queue: Queue, position: int) -> None:
    """A delayed message's time has come. Who released it less than a second ago does not get it."""
    avoided_ms = queue.avoid_ms.get(position, 0)
    ready.take_delayed(queue, position)
    if not came_back(step, queue, position):
        return
    if avoided_ms > step.now:
        queue.avoid_ms[position] = avoided_ms
        ready.make_avoided(queue, position, queue.records[position].history[-1].consumer)
    else:
        ready.make_ready(queue, position)


def skip(step: Step, queue: Queue, cursor: int) -> int | None:
    """The spec says from now on that delayed messages block nothing: what they hold is freed, as
    far as the budget goes. Where to go on, None at the end."""
    queue.blocking.clear()
    if queue.spec.ordering != "key":
        return None
    # Only what has waited for a key is behind one; most delayed messages have none there.
    most = -(-max(step.budget, 0) // limits.RECORD_COST)
    positions = list(islice(queue.delayed.between(cursor, NEVER_MS), most + 1))
    for position in positions[:most]:
        finished(step, queue, position)
    step.budget -= limits.RECORD_COST * len(positions[:most])
    return positions[most] if len(positions) > most else None
