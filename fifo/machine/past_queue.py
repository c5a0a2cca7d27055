"""A queue as a frozen view has it, read by place: page after page, each message where it stands.

Owns the walk in the order of positions, in bounded steps. Rows of a view have no index, so one is
made of numbers before the first page: for each block of positions, where its records and holds are.
Changes nothing. Must not know who reads, or where bodies lie.
"""

from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any, NamedTuple

from fifo.machine import checkout
from fifo.machine.effects import Run
from fifo.machine.limits import BLOCK_BITS, NUMBER_MAX, PAST_ROWS, PAST_RUNS
from fifo.machine.search import DELAYED, LOCKED, READY
from fifo.machine.state import locks, ready
from fifo.machine.state.blocks import key_hash
from fifo.machine.state.positions import Positions
from fifo.machine.state.records import LANE_SHIFT, LANES, Consumer, Queue, Record, State
from fifo.machine.types import Cause
from fifo.words.settlement import Reason

DEAD = "dead"
STATES = (READY, LOCKED, DELAYED, DEAD)
"""States to look for: a dead letter is one wherever it stands."""

_HOLD = 4
"""Numbers of a hold in the index: offset in the block, messages, consumer, first token."""


class Sought(NamedTuple):
    """The messages to look for: those of which all that is given here is true.

    `apart`: each in a run of its own, for the reader will choose among them.
    """

    state: str | None = None
    key: bytes | None = None
    reason: str | None = None
    exception_type: str | None = None
    apart: bool = False

    @property
    def one_by_one(self) -> bool:
        """Whether neighbours may differ in what is looked for."""
        return self.state == DEAD or self._replace(state=None) != Sought()


class Seen(NamedTuple):
    """Messages with consecutive positions that stand alike. Times are cluster time.

    Locked: by `consumer` under consecutive tokens from `token` on, since `since_ms`, no less than
    until `until_ms` by the replicated state. Delayed: until `until_ms`, for `cause`.
    """

    run: Run
    position: int
    place: str
    consumer: int = 0
    token: int = 0
    since_ms: int = 0
    until_ms: int = 0
    cause: str = ""


class _Stretch(NamedTuple):
    """Neighbours in one place, before their records are looked at."""

    first: int
    end: int
    like: tuple[str, int, int, int, int, str]  # the fields of `Seen` from `place` on


class PastQueue:
    """A queue of the past. `preparing` has to be exhausted before anything else is asked."""

    def __init__(self, state: State, queue: Queue, holders: list[Consumer]) -> None:
        """`state`: what else was true then; `holders`: those of its consumers that hold some. All
        of it is kept by a view, and does not change."""
        self._state = state
        self._queue = queue
        self._holders = {consumer.number: consumer for consumer in holders}
        self._ready = queue.returned
        self._records: dict[int, array[int]] = {}  # block -> page and offset, in one number
        self._pages: dict[int, dict[int, Record]] = {}
        self._holds: dict[int, array[int]] = {}  # block -> `_HOLD` numbers for each hold
        self._keys = sorted(queue.blocks)

    @property
    def messages(self) -> int:
        """All messages in the queue."""
        return self._queue.total

    def preparing(self) -> Iterator[None]:
        """Make the index, in bounded steps."""
        rows = 0
        for number, page in self._queue.records.pages():
            self._pages[number] = page
            for position in page:
                bucket = _of(self._records, position >> BLOCK_BITS)
                bucket.append(number << BLOCK_BITS | position & ready.BLOCK_MASK)
            rows += len(page)
            if rows >= PAST_ROWS:
                rows = 0
                yield
        yield from self._gather_ready()
        for consumer in self._holders.values():
            for lane in consumer.lanes.values():
                for held in lane.holds:
                    self._note_hold(consumer.number, held.first, held.position, held.count)
                    rows += 1
                    if rows >= PAST_ROWS:
                        rows = 0
                        yield

    def _gather_ready(self) -> Iterator[None]:
        """Join the places outside of the fresh ranges where ready messages stand."""
        queue = self._queue
        if not queue.avoided and not len(queue.waiting):
            return
        self._ready = Positions()
        sets = chain((queue.returned,), queue.avoided.values(), queue.waiting.values())
        for count, position in enumerate(chain.from_iterable(sets)):
            self._ready.add(position)
            if count % PAST_ROWS == PAST_ROWS - 1:
                yield

    def _note_hold(self, consumer: int, token: int, position: int, count: int) -> None:
        while count:
            offset = position & ready.BLOCK_MASK
            piece = min(count, ready.BLOCK_MASK + 1 - offset)
            _of(self._holds, position >> BLOCK_BITS).extend((offset, piece, consumer, token))
            position, token, count = position + piece, token + piece, count - piece

    def ranges(self, parts: int) -> list[tuple[int, int]]:
        """Cut the queue into up to `parts` ranges [first, end) of about as many messages each."""
        found: list[tuple[int, int]] = []
        first = count = 0
        for key in self._keys:
            enough = self.messages * (len(found) + 1) // parts
            if count and count >= enough and len(found) < parts - 1:
                found.append((first, key << BLOCK_BITS))
                first = key << BLOCK_BITS
            count += self._queue.live[key]
        return [*found, (first, NUMBER_MAX)]

    def page(
        self, sought: Sought, after: int, before: int, most: int
    ) -> Generator[None, None, tuple[list[Seen], int]]:
        """Up to `most` messages from position `after` on that stand before `before`, and where to
        look for more; 0 where there are none. A step for each block of positions."""
        found: list[Seen] = []
        count = 0
        hashed = None if sought.key is None else key_hash(sought.key)
        for key in self._keys[bisect_left(self._keys, after >> BLOCK_BITS) :]:
            base = key << BLOCK_BITS
            if base >= before:
                break
            if count >= most or len(found) >= PAST_RUNS:
                return found, base
            for seen in self._in_block(key, max(after, base), before, sought, hashed):
                if count >= most or len(found) >= PAST_RUNS:
                    return found, seen.position
                one = _cut(seen, most - count)
                found.append(one)
                count += one.run.count
                if one.run.count < seen.run.count:
                    return found, one.position + one.run.count
            yield
        return found, 0

    def _in_block(
        self, key: int, low: int, before: int, sought: Sought, hashed: int | None
    ) -> Iterator[Seen]:
        block = self._queue.blocks[key]
        hashes = block.key_hashes
        if hashed is not None and (hashes is None or hashed not in hashes):
            return
        end = min((key << BLOCK_BITS) + len(block.sizes), before)
        records = self._records_in(key)
        for first, stop, like in self._stretches(key, low, end):
            if sought.state not in (None, DEAD, like[0]):
                continue
            at = first
            while at < stop:
                alike = 1 if sought.one_by_one else _alike(records, at, stop)
                wrong_key = (
                    hashed is not None and hashes and (hashes[at & ready.BLOCK_MASK] != hashed)
                )
                if not wrong_key and _fits(sought, records.get(at)):
                    yield from self._seen(at, alike, records, like, at - first)
                at += alike

    def _records_in(self, key: int) -> dict[int, Record]:
        base = key << BLOCK_BITS
        found: dict[int, Record] = {}
        for place in self._records.get(key, ()):
            position = base | place & ready.BLOCK_MASK
            found[position] = self._pages[place >> BLOCK_BITS][position]
        return found

    def _stretches(self, key: int, low: int, end: int) -> list[_Stretch]:
        """Where each message of [low, end) in one block stands, in the order of positions; those
        that are gone are in none."""
        queue, lane = self._queue, low >> LANE_SHIFT
        nowhere = (READY, 0, 0, 0, 0, "")
        fresh = max(low, queue.heads[lane]), min(end, queue.tails[lane])
        found = [_Stretch(*gap, nowhere) for gap in queue.holes.gaps(*fresh)]
        found += [_Stretch(at, at + 1, nowhere) for at in self._ready.between(low, end)]
        for at in queue.delayed.between(low, end):
            due_ms, cause = queue.delayed[at]
            like = (DELAYED, 0, 0, 0, due_ms, Cause(cause).name.lower())
            found.append(_Stretch(at, at + 1, like))
        found += self._held(key, low, end)
        found.sort()
        return found

    def _held(self, key: int, low: int, end: int) -> Iterator[_Stretch]:
        numbers = self._holds.get(key, ())
        base = key << BLOCK_BITS
        for at in range(0, len(numbers), _HOLD):
            offset, count, holder, token = numbers[at : at + _HOLD]
            first, stop = max(base + offset, low), min(base + offset + count, end)
            if first >= stop:
                continue
            token += first - base - offset
            consumer, last = self._holders[holder], token + stop - first - 1
            (held, lock_ms), *_ = locks.held_in(consumer, token, token)
            # A floor may cover the first of them only: what is certain is what the last one has.
            floor = locks.floor_of(self._state, consumer)
            until_ms = locks.deadline_ms(consumer, held, last, lock_ms, floor)
            like = (LOCKED, holder, token, held.checkout_ms, until_ms, "")
            yield _Stretch(first, stop, like)

    def _seen(
        self,
        position: int,
        count: int,
        records: dict[int, Record],
        like: tuple[str, int, int, int, int, str],
        ahead: int,
    ) -> Iterator[Seen]:
        """Messages from `position` on as runs; `ahead`: how many of their stretch came before."""
        queue = self._queue
        runs = queue.blocks[position >> BLOCK_BITS].runs(position & ready.BLOCK_MASK, count)
        lane = position >> LANE_SHIFT
        if queue.spec.has_priorities and lane != ready.DEFAULT_LANE:
            level = bytes([LANES - 1 - lane])
            runs = [run._replace(priorities=level * run.count) for run in runs]
        if position in records:
            recorded = [records[at] for at in range(position, position + count)]
            runs = checkout.as_recorded(runs, recorded)
        place, consumer, token, since_ms, until_ms, cause = like
        for run in runs:
            held = token + ahead if consumer else 0
            yield Seen(run, position, place, consumer, held, since_ms, until_ms, cause)
            position += run.count
            ahead += run.count


def _of(index: "dict[int, array[int]]", key: int) -> "array[int]":
    bucket = index.get(key)
    if bucket is None:
        bucket = index[key] = array("Q")
    return bucket


def _alike(records: dict[int, Record], first: int, stop: int) -> int:
    """The number of messages from `first` on that are sent alike: none has a record, or all have
    one and none is a dead letter, or it is one dead letter."""
    record = records.get(first)
    if not records:
        return stop - first
    if record is not None and record.dead_letter is not None:
        return 1
    at = first + 1
    while at < stop:
        other = records.get(at)
        if (other is None) != (record is None) or (other is not None and other.dead_letter):
            break
        at += 1
    return at - first


def _fits(sought: Sought, record: Record | None) -> bool:
    letter = None if record is None else record.dead_letter
    if letter is None:
        return sought.state != DEAD and sought.reason is None and sought.exception_type is None
    if sought.reason is not None and Reason(letter.reason).name.lower() != sought.reason:
        return False
    return sought.exception_type in (None, letter.exception_type or "")


def _cut(seen: Seen, most: int) -> Seen:
    """The first `most` messages of a run."""
    run: Any = seen.run
    if run.count <= most:
        return seen
    sizes = run.sizes[:most]
    return seen._replace(
        run=run._replace(
            count=most,
            sizes=sizes,
            bodies_bytes=sum(sizes),
            keys=_head(run.keys, most),
            headers=_head(run.headers, most),
            priorities=None if run.priorities is None else run.priorities[:most],
            attempts=None if run.attempts is None else run.attempts[:most],
            failures=None if run.failures is None else run.failures[:most],
        )
    )


def _head(column: Any, most: int) -> Any:
    if column is None:
        return None
    lengths = column.lengths[:most]
    total = sum(lengths)
    return column._replace(lengths=lengths, blob_bytes=total) if total else None
