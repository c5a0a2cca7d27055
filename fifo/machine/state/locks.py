"""Locks: holds, the index of deadlines, floors, and the expired tokens.

Owns `HoldLane`, `State.lock_index` and a consumer's floor. Deadlines here are the replicated ones;
renewals live in the leader's memory only (semantics.md section 5). Knows nothing of what becomes of
a message whose lock ended.

The index has one entry (bound, consumer, lock duration) per lane of holds: while its lock duration
is constant a consumer's holds are in deadline order, so the first one decides, and the bound may
lag behind it. So finding what expired costs in proportion to what expired. The last lane of a
consumer stays with its entry when it empties, for the next message to come: there is an empty one
only where the consumer holds nothing, and one at the most.
"""

from bisect import bisect_right
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING

from fifo.machine import limits
from fifo.machine.record import maker
from fifo.machine.state.records import Consumer, Hold, HoldLane, State
from fifo.machine.types import NEVER_MS, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HIGH = 1 << 62
_hold = maker(Hold)


def hold(
    state: State, consumer: Consumer, lock_ms: int, position: int, count: int, now_ms: int
) -> int:
    """Lock `count` messages from `position` on for the consumer; the first token."""
    first = consumer.next_token
    lane = consumer.lanes.get(lock_ms)
    if lane is None:
        lane = _new_lane(state, consumer, lock_ms, now_ms)
    holds = lane.holds
    consumer.held += count
    consumer.next_token = first + count
    if holds:
        start, held, place, at_ms = holds[-1]
        if at_ms == now_ms and start + held == first and place + held == position:
            holds[-1] = _hold((start, held + count, place, now_ms))
            return first
    holds.append(_hold((first, count, position, now_ms)))
    return first


def _new_lane(state: State, consumer: Consumer, lock_ms: int, now_ms: int) -> HoldLane:
    if consumer.lanes and not consumer.held:
        drop_lanes(state, consumer)
    lane = consumer.lanes[lock_ms] = HoldLane(lock_ms)
    lane.bound_ms = now_ms + lock_ms
    state.lock_index.add((lane.bound_ms, consumer.number, lock_ms))
    return lane


def _drop_lane(state: State, consumer: Consumer, lane: HoldLane) -> None:
    state.lock_index.remove((lane.bound_ms, consumer.number, lane.lock_ms))
    del consumer.lanes[lane.lock_ms]


def drop_lanes(state: State, consumer: Consumer) -> None:
    """Forget all lanes of a consumer and their entries in the index; what they hold with them."""
    for lane in list(consumer.lanes.values()):
        _drop_lane(state, consumer, lane)


def release(state: State, consumer: Consumer, first: int, last: int) -> list[Hold]:
    """End the locks of what is held of tokens first..last; those, in token order."""
    lanes = consumer.lanes
    found: list[Hold] = []
    for lane in lanes.values():
        cut_out = _cut_out(lane.holds, first, last)
        found = found + cut_out if found else cut_out
    for _, count, _, _ in found:
        consumer.held -= count
    if len(lanes) > 1:
        found.sort()
        for lane in [lane for lane in lanes.values() if not lane.holds]:
            if len(lanes) > 1:
                _drop_lane(state, consumer, lane)
    return found


def _cut_out(holds: list[Hold], first: int, last: int) -> list[Hold]:
    """Take what has tokens first..last out of holds, and return it; what sticks out at either end
    stays."""
    start = 0 if holds and holds[0][0] >= first else _with(holds, first)
    if start < len(holds):
        token, count, _, _ = holds[start]
        if token == first and token + count == last + 1:  # it alone, and all of it
            return [holds.pop(start)]
    stop = bisect_right(holds, (last, _HIGH), start)
    found = holds[start:stop]
    if not found:
        return found
    del holds[start:stop]
    token, count, _, _ = tail = found[-1]
    if token + count > last + 1:
        holds.insert(start, part(tail, last + 1, token + count))
        found[-1] = part(tail, token, last + 1)
    token, count, _, _ = head = found[0]
    if token < first:
        holds.insert(start, part(head, token, first))
        found[0] = part(head, first, token + count)
    return found


def _overlap(holds: list[Hold], first: int, last: int) -> tuple[int, int]:
    """The slice of holds that have a token in first..last."""
    return _with(holds, first), bisect_right(holds, (last, _HIGH))


def _with(holds: list[Hold], first: int) -> int:
    """Where the first hold stands that has a token from `first` on."""
    start = bisect_right(holds, (first, _HIGH))
    if start:
        token, count, _, _ = holds[start - 1]
        if token + count > first:
            return start - 1
    return start


def part(held: Hold, first: int, end: int) -> Hold:
    """Tokens first..end-1 of a hold."""
    return Hold(first, end - first, held.position + first - held.first, held.checkout_ms)


def held_in(consumer: Consumer, first: int, last: int) -> "list[tuple[Hold, int]]":
    """(part that is held of tokens first..last, its lock duration), in token order."""
    found = [
        (held, lane.lock_ms)
        for lane in consumer.lanes.values()
        for held in held_in_lane(lane, first, last)
    ]
    found.sort()
    return found


def held_in_lane(lane: HoldLane, first: int, last: int) -> list[Hold]:
    """The parts of one lane's holds that tokens first..last name, in their order."""
    start, stop = _overlap(lane.holds, first, last)
    return [
        part(held, max(first, held.first), min(last + 1, held.first + held.count))
        for held in lane.holds[start:stop]
    ]


def runs_in(lane: HoldLane, first: int, last: int) -> "list[Range]":
    """The tokens of first..last that a lane holds, neighbours joined: a step or two per hold."""
    holds = lane.holds
    stop = bisect_right(holds, (last, _HIGH))
    found: list[Range] = []
    low, end = 0, -1
    for token, count, _, _ in islice(holds, _with(holds, first), stop):
        if token != end:
            if end > 0:
                found.append((low, end - 1))
            low = max(first, token)
        end = token + count
    if end > 0:
        found.append((low, min(last, end - 1)))
    return found


def all_holds(consumer: Consumer) -> "list[tuple[Hold, int]]":
    """(hold, its lock duration) of everything held, in token order."""
    found = [(held, lane.lock_ms) for lane in consumer.lanes.values() for held in lane.holds]
    if len(consumer.lanes) > 1:
        found.sort()
    return found


def oldest_checkout_ms(consumer: Consumer) -> int | None:
    """When the message was handed out that the consumer has held for longest; None for none."""
    held = [lane.holds[0].checkout_ms for lane in consumer.lanes.values() if lane.holds]
    return min(held, default=None)


def holds_from(consumer: Consumer, token: int) -> "Iterator[tuple[Hold, int]]":
    """(hold, its lock duration) of what is held of `token` and behind it, in token order."""

    def walk(lane: HoldLane) -> "Iterator[tuple[Hold, int]]":
        start, _ = _overlap(lane.holds, token, token)
        for held in islice(lane.holds, start, None):
            low = max(held.first, token)
            yield part(held, low, held.first + held.count), lane.lock_ms

    return merge(*(walk(lane) for lane in consumer.lanes.values()))


def held_from(consumer: Consumer, first: int, last: int) -> "Iterator[tuple[Hold, int]]":
    """The same, and no token behind `last`."""
    for held, lock_ms in holds_from(consumer, first):
        if held.first > last:
            return
        yield part(held, held.first, min(last + 1, held.first + held.count)), lock_ms


def count_in(consumer: Consumer, first: int, last: int) -> int:
    """The number of tokens first..last that the consumer holds."""
    total = 0
    for lane in consumer.lanes.values():
        start, stop = _overlap(lane.holds, first, last)
        holds = lane.holds[start:stop]
        if holds:
            total += sum([count for _, count, _, _ in holds])
            total -= max(first - holds[0].first, 0)
            total -= max(holds[-1].first + holds[-1].count - 1 - last, 0)
    return total


def last_of_first(consumer: Consumer, most: int) -> int:
    """The token up to which the consumer holds `most` messages, each hold counted as one more, or
    all it holds; 0 for none."""
    if consumer.held + sum(len(lane.holds) for lane in consumer.lanes.values()) <= most:
        return consumer.next_token - 1
    last = 0
    walk: Iterator[Hold] = merge(*(lane.holds for lane in consumer.lanes.values()))
    for held in walk:
        if held.count >= most:
            return held.first + most - 1 if most > 0 else last
        most -= held.count + 1
        last = held.first + held.count - 1
    return last


def is_renewed(state: State, consumer: Consumer) -> bool:
    """Whether the leader renews the consumer's locks: it asked for that, and is connected."""
    if not consumer.renewals:
        return False
    session = state.sessions.get(consumer.session)
    return session is not None and not session.disconnected


def floor_of(state: State, consumer: Consumer) -> tuple[int, int]:
    """(floor, last token it holds for), renewals by the leader included.

    These are no acts but this rule, so that every leader goes on with them: while they last no lock
    ends before the longest that it may take.
    """
    if is_renewed(state, consumer):
        return NEVER_MS, consumer.next_token - 1
    return _written_floor(state, consumer)


def certain_floor_of(state: State, consumer: Consumer, now_ms: int) -> tuple[int, int]:
    """The floor that holds whatever becomes of the connection: at the next moment it may be lost,
    and the leader then renews for the last time."""
    floor_ms, token = _written_floor(state, consumer)
    if not is_renewed(state, consumer) or not consumer.held:
        return floor_ms, token
    return max(standing_floor_ms(consumer), now_ms + max(consumer.lanes)), consumer.next_token - 1


def _written_floor(state: State, consumer: Consumer) -> tuple[int, int]:
    """A change of leader counts before it was written down: a former leader may grant a lock from
    memory until its lease ends, after this one was elected.

    All locks of a session that has not come back since the last `lead` are older than it.
    """
    session = state.sessions.get(consumer.session)
    lagging = session is not None and session.lead_epoch != state.lead_epoch
    if session is not None and lagging and not session.disconnected and consumer.held:
        floor_ms = state.lead_ms + limits.LEASE_MS + max(consumer.lanes)
        return max(standing_floor_ms(consumer), floor_ms), consumer.next_token - 1
    return consumer.floor_ms, consumer.floor_token


def standing_floor_ms(consumer: Consumer) -> int:
    """The floor that still holds for some lock; 0 where all that it was about have ended.

    There is one floor per consumer: a new one is at least as high as the one that stands, so locks
    between may be lengthened, never shortened.
    """
    if not consumer.held:
        return 0
    first = min(lane.holds[0].first for lane in consumer.lanes.values())
    return consumer.floor_ms if first <= consumer.floor_token else 0


def write_floor(state: State, consumer: Consumer) -> None:
    """Write down the floor of the last `lead`; before the consumer's session changes its status."""
    consumer.floor_ms, consumer.floor_token = _written_floor(state, consumer)


def raise_floor(consumer: Consumer, floor_ms: int) -> None:
    """No lock that the consumer holds now ends before this."""
    consumer.floor_ms = max(standing_floor_ms(consumer), floor_ms)
    consumer.floor_token = consumer.next_token - 1


def renew_last(state: State, consumer: Consumer, now_ms: int) -> None:
    """Renew for the last time what the leader renews: from now on it does no more."""
    if consumer.held and is_renewed(state, consumer):
        raise_floor(consumer, now_ms + max(consumer.lanes))


def deadline_ms(
    consumer: Consumer, held: Hold, token: int, lock_ms: int, floor: tuple[int, int]
) -> int:
    """When the lock of `token` ends by the replicated state: its deadline, or its floor."""
    deadline = held.checkout_ms + lock_ms
    floor_ms, floor_token = floor
    if token > floor_token or floor_ms <= deadline:
        return deadline
    return max(deadline, min(floor_ms, held.checkout_ms + consumer.max_lock_ms))


def _parts_by_floor(held: Hold, floor_token: int) -> tuple[Hold, ...]:
    """A hold as at most two parts: what a floor may lengthen, and what it does not."""
    end = held.first + held.count
    if held.first <= floor_token < end - 1:
        return part(held, held.first, floor_token + 1), part(held, floor_token + 1, end)
    return (held,)


def expired_in(
    state: State, consumer: Consumer, first: int, last: int, now_ms: int, most: int
) -> tuple[list[Range], int]:
    """The token ranges in first..last whose locks are held and have ended by the state's word, and
    how many were looked at; of the first `most` tokens held there, each hold as one more."""
    floor = floor_of(state, consumer)
    found: list[Range] = []
    left = most
    for held, lock_ms in holds_from(consumer, first):
        end = min(last + 1, held.first + held.count, held.first + left)
        if held.first >= end:
            break
        left -= end - held.first + 1
        for piece in _parts_by_floor(part(held, held.first, end), floor[1]):
            if deadline_ms(consumer, piece, piece.first, lock_ms, floor) <= now_ms:
                _extend(found, piece.first, piece.first + piece.count - 1)
    return found, most - left


def expired(
    state: State, consumer: Consumer, now_ms: int, most: int
) -> tuple[list[Range], int | None]:
    """At most `most` expired tokens as ranges, and the next deadline of what is left."""
    floor = floor_of(state, consumer)
    found: list[Range] = []
    next_ms: int | None = None
    for lane in consumer.lanes.values():
        # Both the part that a floor covers and the part behind it are in deadline order, but a
        # floor may end after the first deadline behind it: two walks, each up to what holds.
        for walk in _walks(lane.holds, floor[1]):
            for held in walk:
                ends_ms = deadline_ms(consumer, held, held.first, lane.lock_ms, floor)
                if ends_ms > now_ms:
                    next_ms = ends_ms if next_ms is None else min(next_ms, ends_ms)
                    break
                count = min(held.count, most)
                if count:
                    _extend(found, held.first, held.first + count - 1)
                most -= count
                if count < held.count:
                    return sorted(found), now_ms
    return sorted(found), next_ms


def _walks(holds: list[Hold], floor_token: int) -> "tuple[Iterable[Hold], Iterable[Hold]]":
    """The holds that the floor covers and those behind it, the one in between cut in two."""
    split = bisect_right(holds, (floor_token, _HIGH))
    if not split:
        return (), islice(holds, 0, None)
    border = _parts_by_floor(holds[split - 1], floor_token)
    covered = chain(islice(holds, split - 1), border[:1])
    return covered, chain(border[1:], islice(holds, split, None))


def _extend(ranges: list[Range], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))


def raise_bounds(state: State, consumer: Consumer) -> None:
    """Bring the consumer's entries in the index up to its first deadlines."""
    if not consumer.held:
        return
    for lane in consumer.lanes.values():
        bound_ms = lane.holds[0].checkout_ms + lane.lock_ms
        if bound_ms != lane.bound_ms:
            state.lock_index.remove((lane.bound_ms, consumer.number, lane.lock_ms))
            lane.bound_ms = bound_ms
            state.lock_index.add((bound_ms, consumer.number, lane.lock_ms))
