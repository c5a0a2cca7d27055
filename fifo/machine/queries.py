"""The leader's read side: views of the state as plain data. Nothing here changes anything.

Owns what users see of queues, consumers, locks, delayed messages and sessions. Bounded by what is
asked for, and by the counts that the state keeps: no view walks all messages of a queue.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any, NamedTuple

from fifo.machine import checkout, consumers, spec
from fifo.machine.effects import Run
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.state import locks, ready
from fifo.machine.state.records import LANE_SHIFT, Consumer, Hold, HoldLane, Producer, Queue, State
from fifo.machine.types import Base, Cause, Range, Suspicion, Use
from fifo.words.handles import is_handle_of

Plain = dict[str, Any]


class HeldRange(NamedTuple):
    """Held tokens with one checkout time and one lock duration."""

    first: int
    last: int
    checkout_ms: int
    lock_ms: int
    deadline_ms: int  # at most, of the last of them by the state's word, floors included


class Held(NamedTuple):
    """The part of some tokens that a consumer holds, for a renewal."""

    session: int
    renewable: bool
    clears: bool  # a command of the program would clear a suspicion, or free a place
    max_lock_ms: int
    ranges: tuple[HeldRange, ...]


def first_deadline_ms(state: State, number: int) -> int | None:
    """When the consumer's first lock ends by the state's word; None without locks."""
    consumer = state.consumer(number)
    if consumer is None or not consumer.held:
        return None
    return locks.expired(state, consumer, -1, 0)[1]


def expired(state: State, number: int, now_ms: int, most: int) -> tuple[list[Range], int | None]:
    """(token ranges that ended by `now_ms`, no later than the next deadline among the rest)."""
    consumer = state.consumer(number)
    if consumer is None:
        return [], None
    ranges, next_ms = locks.expired(state, consumer, now_ms, most)
    if next_ms is not None and locks.is_renewed(state, consumer):
        # A disconnect may end the renewals at any moment, and the locks one lock later.
        next_ms = min(next_ms, now_ms + max(consumer.lanes))
    return ranges, next_ms


def lock_consumers(state: State) -> Iterator[tuple[int, int]]:
    """(lower bound of its first deadline, consumer), of those that hold something; one per consumer
    and lock duration."""
    for bound_ms, number, _ in state.lock_index:
        consumer = state.consumer(number)
        if consumer is not None and consumer.held:
            yield bound_ms, number


def held(
    state: State, number: int, ranges: Sequence[Range], renewed_ms: int | None = None
) -> Held | None:
    """The part of the named tokens that the consumer holds; None where there is no such consumer.

    With `renewed_ms` deadlines are those that are certain at that time, and neighbours are one
    range where a renewal then gives all of them a whole lock: a thousand locks cost little more
    than one.
    """
    consumer = state.consumer(number)
    if consumer is None:
        return None
    if renewed_ms is None:
        floor = locks.floor_of(state, consumer)
    else:
        floor = locks.certain_floor_of(state, consumer, renewed_ms)
    found = []
    for first, last in ranges:
        for lane in consumer.lanes.values():
            alike = None if renewed_ms is None else _alike(consumer, lane, renewed_ms, floor)
            apart = last if alike is None else min(last, alike.first - 1)
            for part in locks.held_in_lane(lane, first, apart):
                end = part.first + part.count - 1
                deadline = locks.deadline_ms(consumer, part, end, lane.lock_ms, floor)
                found.append(HeldRange(part.first, end, part.checkout_ms, lane.lock_ms, deadline))
            if alike is not None:
                for low, high in locks.runs_in(lane, max(first, alike.first), last):
                    found.append(alike._replace(first=low, last=high))
    found.sort()
    clears = consumer.suspicion != Suspicion.NONE or consumer.lost_running > 0
    return Held(consumer.session, consumer.renewable, clears, consumer.max_lock_ms, tuple(found))


def are_handles(
    state: State, number: int, ranges: Sequence[Range], handles: Sequence[bytes]
) -> bool:
    """Whether these are the handles of the consumer's tokens, one for each, in their order."""
    consumer = state.consumer(number)
    owner = None if consumer is None else state.sessions.get(consumer.session)
    if owner is None or sum(last - first + 1 for first, last in ranges) != len(handles):
        return False
    tokens = chain.from_iterable(range(first, last + 1) for first, last in ranges)
    return all(
        is_handle_of(handle, owner.handle_key, number, token)
        for token, handle in zip(tokens, handles, strict=True)
    )


def locks_end_together(state: State, number: int) -> bool:
    """Whether the first lock of the consumer that ends takes all others along."""
    consumer = state.consumer(number)
    if consumer is None or consumer.durable:
        return False
    return state.queues[consumer.queue].spec.ordering == "single_active"


def handed_out(state: State, number: int, ranges: Sequence[Range]) -> list[Range]:
    """The named tokens that the consumer was ever given; all of them if it is gone meanwhile.

    None of a consumer that no entry of this state has made.
    """
    if number >= state.next_consumer:
        return []
    consumer = state.consumer(number)
    if consumer is None:
        return list(ranges)
    last_token = consumer.next_token - 1
    return [(first, min(last, last_token)) for first, last in ranges if first <= last_token]


def _alike(
    consumer: Consumer, lane: HoldLane, renewed_ms: int, floor: tuple[int, int]
) -> HeldRange | None:
    """The holds at the end of a lane to which a renewal gives a whole lock, as one; None for none.

    Holds are in the order of their checkouts: those before are near the longest that they may last.
    """
    holds = lane.holds
    until_ms = renewed_ms + lane.lock_ms
    since = bisect_left(holds, until_ms - consumer.max_lock_ms, key=_checkout_ms)
    if since == len(holds):
        return None
    oldest, newest = holds[since], holds[-1]
    deadline_ms = max(newest.checkout_ms + lane.lock_ms, floor[0])
    if deadline_ms > until_ms:
        return None
    last = newest.first + newest.count - 1
    return HeldRange(oldest.first, last, oldest.checkout_ms, lane.lock_ms, deadline_ms)


def _checkout_ms(held: Hold) -> int:
    return held.checkout_ms


def _named(state: State, name: str) -> Queue | None:
    number = state.queue_names.get(name)
    return None if number is None else state.queues[number]


def queue_overview(state: State, name: str, *, brief: bool = False) -> Plain | None:
    """Counts, spec and counters of a queue; only the counts where it is to be `brief`."""
    queue = _named(state, name)
    if queue is None:
        return None
    found = {
        "name": queue.name,
        "number": queue.number,
        "ready": queue.ready,
        "locked": queue.locked,
        "delayed": len(queue.delayed),
        "messages": queue.total,
        "bytes": queue.bytes,
        "paused": queue.paused,
        "consumers": len(queue.consumers),
        "active": queue.active,
    }
    if not brief:
        found |= {"spec": spec.plain(queue.spec), "counters": dict(queue.counters)}
    return found


def flags_of(state: State, consumer: Consumer) -> list[str]:
    """The flags that stand beside a consumer's base status."""
    flags = []
    session = state.sessions.get(consumer.session)
    if session is not None:
        if session.disconnected:
            flags.append("disconnected")
        elif not consumers.is_present(state, session):
            flags.append("detached")
    if consumer.suspicion:
        flags.append("suspected")
    return flags


def oldest_ready_ms(queue: Queue) -> int | None:
    """When the oldest message was published of those that stand first in line, one per priority."""
    found: int | None = None
    for lane, tail in enumerate(queue.tails) if queue.ready else ():
        low = lane << LANE_SHIFT
        first = next(ready.ready_from(queue, low, tail), None) if tail != low else None
        if first is not None:
            stamp_ms = queue.blocks[first >> BLOCK_BITS].stamp_ms(first & ready.BLOCK_MASK)
            found = stamp_ms if found is None else min(found, stamp_ms)
    return found


def producers_of(state: State, name: str, limit: int, after: int | None = None) -> list[Plain]:
    """The named producers that have published to a queue, with the number last stored there;
    with `after` those of higher numbers, in their order."""
    queue = _named(state, name)
    if queue is None:
        return []
    numbers = queue.last_numbers if after is None else _above(queue.last_numbers, after)
    named = (
        (state.producers[number], queue.last_numbers[number])
        for number in numbers
        if number in state.producers and state.producers[number].name is not None
    )
    return [
        {
            "name": producer.name,
            "producer": producer.number,
            "last": last,
            "queues": len(_queues_of(state, producer)),
            "used_ms": producer.used_ms,
        }
        for producer, last in islice(named, limit)
    ]


def queues_of_producer(state: State, name: str) -> list[str]:
    """The queues that a named producer has published to, those left out that were deleted."""
    number = state.producer_names.get(name)
    return [] if number is None else _queues_of(state, state.producers[number])


def opener_of_producer(state: State, name: str) -> str | None:
    """The user who opened a named producer first; None without such a producer."""
    number = state.producer_names.get(name)
    return None if number is None else state.producers[number].user


def _queues_of(state: State, producer: Producer) -> list[str]:
    """A deleted queue does not walk its producers: they may know of queues that are gone."""
    return [queue.name for number in producer.queues if (queue := state.queue(number)) is not None]


def _above(numbers: Iterable[int], after: int) -> list[int]:
    """Those above a number, in order: a page goes on there, whatever came or went meanwhile."""
    return sorted(number for number in numbers if number > after)


def consumers_of(
    state: State,
    name: str,
    limit: int | None = None,
    only: int | None = None,
    after: int | None = None,
) -> list[Plain]:
    """The consumers of a queue, or the first so many; `only` the one with this number, with `after`
    those of higher numbers, in their order."""
    queue = _named(state, name)
    if queue is None:
        return []
    found = []
    numbers: Iterable[int] = queue.consumers
    if only is not None:
        numbers = [only] if only in queue.consumers else []
    elif after is not None:
        numbers = _above(numbers, after)
    for number in islice(numbers, limit):
        consumer = state.consumers[number]
        session = state.sessions.get(consumer.session)
        found.append(
            {
                "consumer": number,
                "tag": consumer.tag,
                "label": consumer.label,
                "session": consumer.session,
                "user": session.user if session else "",
                "client": session.client if session else "",
                "address": session.address if session else "",
                "status": Base(consumer.base).name.lower(),
                "flags": flags_of(state, consumer),
                "suspected": Suspicion(consumer.suspicion).name.lower(),
                "lost_running": consumer.lost_running,
                "implicit": consumer.implicit,
                "durable": consumer.durable,
                "priority": consumer.priority,
                "prefetch": consumer.prefetch,
                "credit": consumer.credit if consumer.explicit_credit else None,
                "held": consumer.held,
                "lock_ms": consumer.lock_ms,
                "renewable": consumer.renewable,
                "renewals": consumer.renewals,
                "next_token": consumer.next_token,
            }
        )
    return found


def locks_of(
    state: State, name: str, limit: int, after: tuple[int, int] | None = None
) -> list[Plain]:
    """Up to `limit` locked messages, by consumer and token; with `after` (consumer, token) those
    behind it, consumers in the order of their numbers. The leader adds the renewals."""
    queue = _named(state, name)
    if queue is None:
        return []
    found: list[Plain] = []
    last, last_token = (0, 0) if after is None else after
    numbers = queue.consumers if after is None else _above(queue.consumers, last - 1)
    for number in numbers:
        consumer = state.consumers[number]
        session = state.sessions.get(consumer.session)
        floor = locks.floor_of(state, consumer)
        held = locks.all_holds(consumer)
        if number == last:
            held = list(locks.holds_from(consumer, last_token + 1))
        for hold, lock_ms in held:
            for offset in range(min(hold.count, limit - len(found))):
                token = hold.first + offset
                record = queue.records.get(hold.position + offset)
                deadline = locks.deadline_ms(consumer, hold, token, lock_ms, floor)
                found.append(
                    {
                        "consumer": number,
                        "tag": consumer.tag,
                        "label": consumer.label,
                        "token": token,
                        "session": consumer.session,
                        "user": session.user if session else "",
                        "client": session.client if session else "",
                        "address": session.address if session else "",
                        "attempt": record.attempts if record else 1,
                        "failures": record.failures if record else 0,
                        "checkout_ms": hold.checkout_ms,
                        "lock_ms": lock_ms,
                        "renewals_max": consumer.renewals,
                        "remaining_ms": max(deadline - state.cluster_time_ms, 0),
                        "message": ready.message_id(queue, hold.position + offset),
                    }
                )
            if len(found) >= limit:
                return found
    return found


def delayed_of(
    state: State, name: str, limit: int, after: tuple[int, int] | None = None
) -> list[Plain]:
    """Up to `limit` delayed messages, the first to be due first; with `after` (due time, position)
    those behind it."""
    queue = _named(state, name)
    if queue is None:
        return []
    found: list[Plain] = []
    delays = queue.delays if after is None else queue.delays.irange(after, inclusive=(False, False))
    for due_ms, position in islice(delays, limit):
        record = queue.records.get(position)
        found.append(
            {
                "message": ready.message_id(queue, position),
                "cause": Cause(queue.delayed[position][1]).name.lower(),
                "due_ms": due_ms,
                "position": position,
                "attempts": record.attempts if record else 0,
                "failures": record.failures if record else 0,
            }
        )
    return found


def peek(state: State, name: str, count: int) -> tuple[Run, ...]:
    """The first `count` ready messages in their order, those that wait for their key included."""
    queue = _named(state, name)
    if queue is None:
        return ()
    lanes = ((lane << LANE_SHIFT, tail) for lane, tail in enumerate(queue.tails))
    positions = chain.from_iterable(ready.ready_from(queue, low, end) for low, end in lanes)
    return tuple(
        run for place in islice(positions, count) for run in checkout.runs_of(queue, place, 1)
    )


def redrive_of(state: State, name: str) -> Plain | None:
    """The progress of the queue's redrive, or the end of the last one; None without any."""
    queue = _named(state, name)
    if queue is None or queue.redrive is None:
        return None
    view = queue.redrive._asdict()
    return {**view, "filter": dict(view["filter"]), "ends": list(view["ends"])}


def redrive_candidates(state: State, name: str, most: int) -> tuple[list[tuple[int, Run]], int]:
    """The next messages that a running redrive is about, for the leader to filter: (position, run
    of one) of up to `most`, and the `until` for a step that has decided on all of them."""
    queue = _named(state, name)
    if queue is None or queue.redrive is None:
        return [], 0
    return standing(state, name, queue.redrive.cursor, queue.redrive.ends, most)


def standing(
    state: State, name: str, cursor: int, ends: Sequence[int], most: int
) -> tuple[list[tuple[int, Run]], int]:
    """Up to `most` ready or delayed messages from `cursor` on and before `ends` (one per lane), as
    (position, run of one), and the position from which on to look for more."""
    queue = _named(state, name)
    if queue is None:
        return [], 0
    found: list[tuple[int, Run]] = []
    for lane, end in enumerate(ends):
        low = max(cursor, lane << LANE_SHIFT)
        places = _standing(queue, low, end, most - len(found))
        found += [(position, checkout.runs_of(queue, position, 1)[0]) for position in places]
        if len(found) >= most:
            return found, found[-1][0] + 1
    return found, max(ends)


def _standing(queue: Queue, low: int, end: int, most: int) -> list[int]:
    """The first `most` positions in [low, end) of what is ready or delayed, in order."""
    delayed = queue.delayed.between(low, end)
    return list(islice(merge(ready.ready_from(queue, low, end), delayed), most))


def session_summary(state: State, number: int) -> Plain | None:
    """A session in a line: whose it is, its status, what it has, and when it ends."""
    session = state.sessions.get(number)
    if session is None:
        return None
    status = "connected" if consumers.is_present(state, session) else "detached"
    return {
        "session_id": session.session_id,
        "number": number,
        "user": session.user,
        "client": session.client,
        "address": session.address,
        "status": "disconnected" if session.disconnected else status,
        "use": Use(session.use).name.lower(),
        "consumers": len(session.consumers),
        "held": sum([state.consumers[one].held for one in session.consumers]),
        "ends_ms": session.timer_ms,
    }


def session_view(state: State, number: int) -> Plain | None:
    """Epochs, flags, consumers and pending notices of a session."""
    session = state.sessions.get(number)
    if session is None:
        return None
    current = session.lead_epoch == state.lead_epoch
    return {
        "session": number,
        "session_id": session.session_id,
        "user": session.user,
        "client": session.client,
        "address": session.address,
        "data_epoch": session.epochs[0],
        "control_epoch": session.epochs[1],
        "data_attached": session.attached[0] and current,
        "control_attached": session.attached[1] and current,
        "disconnected": session.disconnected,
        "ending": session.end_cause is not None,
        "use": Use(session.use).name.lower(),
        "producer": session.producer,
        "consumers": list(session.consumers),
        "notices": list(session.notices),
    }
