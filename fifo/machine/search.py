"""Finding messages in a queue: by id, by key, or page by page, wherever they stand.

Owns the walk, in bounded steps: there is no index of ids, for a message is seldom looked for, and
an index would cost each publish. Changes nothing. What is found is checked once more in the last
step, for the state may change between two.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator
from typing import NamedTuple

from fifo.machine import checkout
from fifo.machine.effects import Run
from fifo.machine.limits import BLOCK_BITS, SEARCH_BLOCKS, SEARCH_HOLDS, SEARCH_MESSAGES
from fifo.machine.state import locks, ready
from fifo.machine.state.blocks import Block, key_hash
from fifo.machine.state.records import Queue, State
from fifo.machine.types import Cause

READY, LOCKED, DELAYED = "ready", "locked", "delayed"
PLACES = (READY, LOCKED, DELAYED)


class Wanted(NamedTuple):
    """The goal of a search: the message with this id, those with this key, or all; in one place."""

    message: tuple[int, int, int] | None = None
    key: bytes | None = None
    place: str | None = None


class Standing(NamedTuple):
    """A message where it stands. `attempts` are the deliveries so far.

    `consumer`, `token`, `checkout_ms`, `deadline_ms` (by the replicated state) where it is locked;
    `due_ms`, `cause` where it is delayed; else 0.
    """

    position: int
    place: str
    run: Run
    attempts: int
    consumer: int = 0
    token: int = 0
    checkout_ms: int = 0
    deadline_ms: int = 0
    due_ms: int = 0
    cause: str = ""


Steps = Generator[None, None, tuple[list[Standing], int]]
"""Bounded steps, and in the end what was found and where to look for more; 0 where nothing is."""

_Place = tuple[int, int, int]  # position, consumer, token


def search(state: State, name: str, wanted: Wanted, after: int, most: int) -> Steps:
    """Look for up to `most` messages from position `after` on, in the order of positions."""
    number = state.queue_names.get(name)
    if number is None:
        return [], 0
    queue = state.queues[number]
    places, unplaced, more = yield from _candidates(queue, wanted, after, most)
    if unplaced and wanted.place in (None, LOCKED):
        places += yield from _holders(state, queue, unplaced)
    places.sort()
    found: list[Standing] = []
    for place in places:
        one = _standing(state, queue, place) if number in state.queues else None
        if one is None or wanted.place not in (None, one.place):
            continue
        if len(found) == most:
            return found, place[0]
        found.append(one)
    return found, more


def _candidates(
    queue: Queue, wanted: Wanted, after: int, most: int
) -> Generator[None, None, tuple[list[_Place], list[int], int]]:
    """Those that are ready or delayed, those that are locked or gone, and where it stopped."""
    places: list[_Place] = []
    unplaced: list[int] = []
    hashed = None if wanted.key is None else key_hash(wanted.key)
    keys = [key for key in queue.blocks if key >= after >> BLOCK_BITS]
    for count, key in enumerate(sorted(keys)):
        block = queue.blocks.get(key)
        if block is None:
            continue
        base = key << BLOCK_BITS
        if len(places) >= most or len(unplaced) >= SEARCH_MESSAGES:
            return places, unplaced, base
        for offset in _offsets(block, wanted, hashed):
            position = base + offset
            if position < after:
                continue
            if ready.stands(queue, position):
                places.append((position, 0, 0))
            else:
                unplaced.append(position)
        if count % SEARCH_BLOCKS == SEARCH_BLOCKS - 1:
            yield
    return places, unplaced, 0


def _offsets(block: Block, wanted: Wanted, hashed: int | None) -> Iterator[int]:
    """Where in a block such messages may be."""
    if wanted.message is not None:
        yield from _of_id(block, *wanted.message)
    elif hashed is None:
        yield from range(len(block.sizes))
    elif block.key_hashes is not None and hashed in block.key_hashes:
        for offset, found in enumerate(block.key_hashes):
            if found == hashed:
                yield offset


def _of_id(block: Block, queue_number: int, producer: int, number: int) -> Iterator[int]:
    if producer not in block.producers:
        return
    ends = [*block.starts[1:], len(block.sizes)]
    for span, start in enumerate(block.starts):
        ahead = number - block.numbers[span]
        if (
            0 <= ahead < ends[span] - start
            and block.producers[span] == producer
            and block.queues[span] == queue_number
        ):
            yield start + ahead


def _holders(
    state: State, queue: Queue, unplaced: list[int]
) -> Generator[None, None, list[_Place]]:
    """Which of these positions are locked, and under which token; the others are gone."""
    found: list[_Place] = []
    looked = 0
    for number in list(queue.consumers):
        consumer = state.consumers.get(number)
        if consumer is None:
            continue
        for held, _ in locks.all_holds(consumer):
            looked += 1
            at = bisect_left(unplaced, held.position)
            while at < len(unplaced) and unplaced[at] < held.position + held.count:
                ahead = unplaced[at] - held.position
                found.append((unplaced[at], number, held.first + ahead))
                at += 1
        if looked >= SEARCH_HOLDS:
            looked = 0
            yield
    return found


def _standing(state: State, queue: Queue, place: _Place) -> Standing | None:
    """The message, if it still stands there."""
    position, number, _ = place
    if number:
        return _locked(state, queue, place)
    if not ready.stands(queue, position):
        return None
    record = queue.records.get(position)
    one = Standing(position, READY, _run(queue, position), record.attempts if record else 0)
    if position in queue.delayed:
        due_ms, cause = queue.delayed[position]
        return one._replace(place=DELAYED, due_ms=due_ms, cause=Cause(cause).name.lower())
    return one


def _locked(state: State, queue: Queue, place: _Place) -> Standing | None:
    position, number, token = place
    consumer = state.consumers.get(number)
    held = [] if consumer is None else locks.held_in(consumer, token, token)
    if consumer is None or not held or held[0][0].position != position:
        return None
    part, lock_ms = held[0]
    floor = locks.floor_of(state, consumer)
    deadline_ms = locks.deadline_ms(consumer, part, token, lock_ms, floor)
    record = queue.records.get(position)
    attempts = record.attempts if record else 1
    run = _run(queue, position)
    return Standing(position, LOCKED, run, attempts, number, token, part.checkout_ms, deadline_ms)


def _run(queue: Queue, position: int) -> Run:
    return checkout.runs_of(queue, position, 1)[0]
