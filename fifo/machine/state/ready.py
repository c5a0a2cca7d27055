"""Where the messages of one queue stand, and how they get there: places, not reasons.

Owns the fresh ranges, holes, returned, avoided and delayed messages, expiry bounds and the counts
of them. Knows no consumer (but as a number) and no cause. Every function keeps the rule that a
message is in exactly one place; `invariants.py` checks it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from itertools import accumulate, chain, starmap

from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES
from fifo.machine.state.blocks import PLAIN, Batch, Block
from fifo.machine.state.records import LANE_SHIFT, LANES, Queue
from fifo.machine.types import NEVER_MS
from fifo.words.bounds import PRIORITY_DEFAULT

BLOCK_MASK = BLOCK_MESSAGES - 1


DEFAULT_LANE = LANES - 1 - PRIORITY_DEFAULT


def lane_of(queue: Queue, priority: int) -> int:
    """The lane that a message of this priority is put into: lower lanes are served first."""
    return LANES - 1 - priority if queue.has_priorities else DEFAULT_LANE


def append(queue: Queue, batch: Batch, lane: int, generation: int) -> int:
    """Put a batch at the end of its lane's fresh range; the position of its first message."""
    tails, blocks, live = queue.tails, queue.blocks, queue.live
    first = position = tails[lane]
    count = len(batch.sizes)
    end = first + count
    while position < end:
        key = position >> BLOCK_BITS
        stop = (key + 1) << BLOCK_BITS
        if stop > end:
            stop = end
        block = blocks.get(key)
        if block is None:
            block = blocks[key] = Block(generation)
            live[key] = 0
        elif block.generation != generation:
            block = blocks[key] = block.copy(generation)
        added = stop - position
        piece = batch if added == count else batch.part(position - first, stop - first)
        block.append(piece)
        live[key] += added
        if piece.extras is not PLAIN and piece.extras.expires is not None:
            note_expiry(queue, key, min(piece.extras.expires))
        position = stop
    tails[lane] = end
    if lane < queue.front_lane:
        queue.front_lane = lane
    queue.ready += count
    queue.bytes += batch.bodies_bytes
    return first


def add_hole(queue: Queue, first: int, end: int) -> None:
    """Positions [first, end) of a fresh range are not ready there any more.

    The caller counts them where they are now, or as gone.
    """
    lane = first >> LANE_SHIFT
    if first == queue.heads[lane]:
        queue.heads[lane] = queue.holes.pass_from(end)
    else:
        queue.holes.add_range(first, end)


def fresh_front(queue: Queue) -> tuple[int, int] | None:
    """The first fresh message and how many stand behind each other from there in one block."""
    lane, heads, tails = queue.front_lane, queue.heads, queue.tails
    while lane < LANES:
        if heads[lane] != tails[lane]:
            queue.front_lane = lane
            return fresh_in(queue, lane)
        lane += 1
    queue.front_lane = lane
    return None


def fresh_in(queue: Queue, lane: int) -> tuple[int, int]:
    """The same for one lane, in which something is fresh."""
    head, tail = queue.heads[lane], queue.tails[lane]
    end = (head | BLOCK_MASK) + 1
    if tail < end:
        end = tail
    if queue.holes.count:
        end = queue.holes.first_from(head, end)
    return head, end - head


def take_fresh(queue: Queue, position: int, count: int) -> None:
    """Messages from the front of a fresh range leave it; the caller puts them elsewhere."""
    lane = position >> LANE_SHIFT
    heads, head = queue.heads, position + count
    assert heads[lane] == position, "only the front of a fresh range can be taken"
    heads[lane] = queue.holes.pass_from(head) if queue.holes.count else head
    queue.ready -= count


def is_fresh(queue: Queue, position: int) -> bool:
    """Whether the message is ready in its fresh range."""
    lane = position >> LANE_SHIFT
    return queue.heads[lane] <= position < queue.tails[lane] and position not in queue.holes


def stands(queue: Queue, position: int) -> bool:
    """Whether a message is ready or delayed there; what is locked or gone is not."""
    if position >> LANE_SHIFT >= LANES:
        return False
    if position in queue.delayed or position in queue.returned or is_fresh(queue, position):
        return True
    return position in queue.avoid_ms or position in queue.in_line


def message_id(queue: Queue, position: int) -> tuple[int, int, int]:
    """(queue it was published to, producer, number) of the message at a position."""
    block = queue.blocks[position >> BLOCK_BITS]
    run = block.runs(position & BLOCK_MASK, 1)[0]
    return run.queue_number, run.producer, run.number


def ready_from(queue: Queue, low: int, end: int) -> Iterator[int]:
    """The positions in [low, end) of one lane of what is ready, wherever it stands, in order.

    To be read before anything is taken.
    """
    places = [held for held in (queue.returned, queue.in_line, *queue.avoided.values()) if held]
    fresh = _fresh_positions(queue, low, end)
    if not places:
        return fresh
    return merge(fresh, *(held.between(low, end) for held in places))


def _fresh_positions(queue: Queue, low: int, end: int) -> Iterator[int]:
    lane = low >> LANE_SHIFT
    first, stop = max(low, queue.heads[lane]), min(end, queue.tails[lane])
    return chain.from_iterable(starmap(range, queue.holes.gaps(first, stop)))


def returned_front(queue: Queue, consumer: int) -> int | None:
    """The first message outside the fresh ranges that is ready for this consumer."""
    best: int | None = queue.returned.first() if queue.returned else None
    for avoider, positions in queue.avoided.items():
        if avoider != consumer and (best is None or positions.first() < best):
            best = positions.first()
    return best


def take_returned(queue: Queue, position: int) -> bool:
    """A ready message outside the fresh ranges leaves its place; False if it is not there."""
    if queue.returned.discard(position):
        queue.ready -= 1
        return True
    for avoider, positions in queue.avoided.items():
        if position in positions:
            _take_avoided(queue, position, avoider)
            del queue.avoid_ms[position]
            queue.ready -= 1
            return True
    return False


def _take_avoided(queue: Queue, position: int, avoider: int) -> None:
    positions = queue.own(queue.avoided, avoider)
    positions.discard(position)
    if not positions:
        del queue.avoided[avoider]


def take_ready(queue: Queue, position: int) -> bool:
    """A ready message, wherever it stands, leaves its place; False if it is not ready."""
    if take_returned(queue, position):
        return True
    if is_fresh(queue, position):
        add_hole(queue, position, position + 1)
        queue.ready -= 1
        return True
    return take_waiting(queue, position)


def take_waiting(queue: Queue, position: int) -> bool:
    """A message that waits for its key leaves its place; False if it does not."""
    if not queue.waiting:
        return False
    block = queue.blocks.get(position >> BLOCK_BITS)
    if block is None or block.key_hashes is None:
        return False
    key = block.key_hashes[position & BLOCK_MASK]
    if not queue.in_line.discard(position):
        return False
    positions = queue.own(queue.waiting, key)
    positions.discard(position)
    if not positions:
        del queue.waiting[key]
    queue.ready -= 1
    return True


def make_ready(queue: Queue, position: int) -> None:
    """A message that is in no place becomes ready at its original place."""
    queue.returned.add(position)
    queue.ready += 1


def avoid(queue: Queue, position: int, consumer: int, until_ms: int) -> None:
    """`consumer` does not get the message before `until_ms`, wherever it stands until then; the
    calls come in the order of these times."""
    queue.avoid_ms[position] = until_ms
    queue.avoid_until.append((until_ms, position, consumer))


def make_avoided(queue: Queue, position: int, consumer: int) -> None:
    """A message that `consumer` avoids and that is in no place becomes ready for all others."""
    assert position in queue.avoid_ms, "a message is avoided for ever"
    queue.own(queue.avoided, consumer).add(position)
    queue.ready += 1


def stop_avoiding(queue: Queue, now_ms: int, most: int) -> int:
    """Make ready for all what was avoided long enough; return the number of entries looked at."""
    looked = 0
    while queue.avoid_until and queue.avoid_until.first()[0] <= now_ms and looked < most:
        until_ms, position, consumer = queue.avoid_until.popleft()
        looked += 1
        if queue.avoid_ms.get(position) != until_ms:
            continue  # it has been handed out since, and perhaps been released again
        if consumer in queue.avoided and position in queue.avoided[consumer]:
            del queue.avoid_ms[position]
            _take_avoided(queue, position, consumer)
            queue.returned.add(position)
        elif position in queue.delayed:
            del queue.avoid_ms[position]
        # Else somebody else released it in the same millisecond, whose own entry is to come.
    return looked


def make_delayed(
    queue: Queue, position: int, due_ms: int, cause: int, *, blocking: bool = False
) -> None:
    """A message that is in no place is parked until `due_ms`."""
    queue.delayed[position] = (due_ms, cause)
    queue.delays.add((due_ms, position))
    if blocking:
        queue.blocking.add(position)


def take_delayed(queue: Queue, position: int) -> bool:
    """A delayed message leaves its place; False if it is not delayed."""
    entry = queue.delayed.take(position)
    if entry is None:
        return False
    if queue.avoid_ms:
        queue.avoid_ms.take(position)
    queue.delays.remove((entry[0], position))
    if queue.blocking:
        queue.blocking.discard(position)
    return True


def remove(queue: Queue, position: int, count: int) -> None:
    """Messages that are in no place any more leave the queue for good."""
    records = queue.records
    if records.index:
        for gone in range(position, position + count):
            if gone in records.index:
                del records[gone]
    while count:
        key, offset = position >> BLOCK_BITS, position & BLOCK_MASK
        piece = BLOCK_MESSAGES - offset
        if piece > count:
            piece = count
        sizes = queue.blocks[key].sizes
        queue.bytes -= sizes[offset] if piece == 1 else sum(sizes[offset : offset + piece])
        live = queue.live
        left = live[key] - piece
        assert left >= 0, "a block lost more messages than it had"
        if left or (key + 1) << BLOCK_BITS > queue.tails[position >> LANE_SHIFT]:
            live[key] = left
        else:
            drop_block(queue, key)
        position += piece
        count -= piece


def body_bytes(queue: Queue, position: int, count: int) -> int:
    """The bytes of the bodies of `count` messages from `position` on."""
    return sum([sum(sizes) for sizes in _sizes(queue, position, count)])


def reaching(queue: Queue, position: int, count: int, room: int) -> int:
    """The number of `count` messages from `position` on up to the one whose body makes it `room`
    bytes; all of them where none does."""
    passed = 0
    for sizes in _sizes(queue, position, count):
        size = sum(sizes)
        if size >= room:
            return passed + bisect_left(list(accumulate(sizes)), room) + 1
        room -= size
        passed += len(sizes)
    return count


def _sizes(queue: Queue, position: int, count: int) -> "Iterator[array[int]]":
    """The sizes of the bodies of `count` messages from `position` on, block by block."""
    while count:
        offset = position & BLOCK_MASK
        sizes = queue.blocks[position >> BLOCK_BITS].sizes[offset : offset + count]
        assert sizes, "messages that stand nowhere have no size"
        yield sizes
        position += len(sizes)
        count -= len(sizes)


def drop_block(queue: Queue, key: int) -> None:
    """Forget a block in which nothing lives and to which nothing will be appended."""
    del queue.blocks[key], queue.live[key]
    bound_ms = queue.expiry_of.pop(key, None)
    if bound_ms is not None:
        queue.expiries.remove((bound_ms, key))


def tidy(queue: Queue) -> None:
    """When nothing is left in the queue, forget expiry times of what has gone.

    Else the last block of an idle queue would make a tick due for every message that was in it.
    """
    if queue.ready or queue.locked or queue.delayed:
        return
    for key in sorted(queue.expiry_of):
        lane = key >> (LANE_SHIFT - BLOCK_BITS)
        assert queue.live[key] == 0, "an empty queue has a living block"
        if key == queue.tails[lane] >> BLOCK_BITS:
            queue.heads[lane] = queue.tails[lane] = (key + 1) << BLOCK_BITS
        drop_block(queue, key)


def note_expiry(queue: Queue, key: int, expires_ms: int) -> None:
    """A block has a message that expires then: keep its lower bound."""
    bound_ms = queue.expiry_of.get(key)
    if bound_ms is not None:
        if bound_ms <= expires_ms:
            return
        queue.expiries.remove((bound_ms, key))
        del queue.expiry_of[key]
    if expires_ms != NEVER_MS:
        queue.expiries.add((expires_ms, key))
        queue.expiry_of[key] = expires_ms


def expires_ms(queue: Queue, position: int) -> int:
    """When the message's ttl passes; NEVER_MS where it has none."""
    expires = queue.blocks[position >> BLOCK_BITS].expires
    return expires[position & BLOCK_MASK] if expires is not None else NEVER_MS
