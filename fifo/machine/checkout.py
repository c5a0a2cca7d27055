"""The delivery loop: take the next message, serve the next consumer, as far as credit goes.

Owns handing out: after every batch over the queues that it touched, and at a get. Messages are
taken in runs, so that a plain batch is one lock, one run and one effect. Knows nothing of why a
message is where it stands.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from fifo.machine import consumers, deadletter, limits
from fifo.machine.effects import Deliver, Run
from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES
from fifo.machine.state import locks, ordering, ready
from fifo.machine.state.blocks import Block
from fifo.machine.state.records import (
    LANE_SHIFT,
    Consumer,
    Hold,
    Queue,
    Record,
    Session,
    State,
    Step,
)
from fifo.machine.types import NEVER_MS
from fifo.words.versions import EVEN_SHARES


def checkout(step: Step, queue: Queue) -> None:
    """Serve the queue's consumers in their turn until messages, consumers or budget run out."""
    state = step.state
    if state.pending:
        state.pending.pop(queue.number, None)
    service = queue.service
    place = 0
    # A round is over when all have had a turn since; without even shares none ever is.
    begun = queue.turns if state.version >= EVEN_SHARES else NEVER_MS
    while queue.ready and place < len(service) and not queue.paused:
        if step.checkouts <= 0:
            state.pending[queue.number] = None
            return
        consumer = step.open_consumer(service[place][2])
        if not consumers.is_present(state, state.sessions.get(consumer.session)):
            # A change of leader detached it: it comes back when its session resumes.
            consumers.leave_service(queue, consumer)
            continue
        room = consumers.capacity(consumer)
        if consumer.turn > begun:
            begun = queue.turns
        share = queue.ready
        if len(service) - place > 1:
            share = _share(queue, consumer, place, begun)
        most = share if share < room else room
        count = deliver(step, queue, consumer, most, consumer.lock_ms)
        if not count:
            # What is ready is not for this one: it has just released it.
            place += 1
            continue
        place = 0
        if consumer.explicit_credit:
            consumer.credit -= count
        if len(service) > 1:
            consumers.served(queue, consumer)
        if count >= room:
            consumers.leave_service(queue, consumer)


def _share(queue: Queue, consumer: Consumer, place: int, begun: int) -> int:
    """An even part of what is ready among the consumers of this one's priority that have had no
    turn since `begun`."""
    peers = bisect_right(queue.service, (-consumer.priority, begun, NEVER_MS)) - place
    return -(-queue.ready // peers)


def deliver(
    step: Step,
    queue: Queue,
    consumer: Consumer,
    most: int,
    lock_ms: int,
    session: int | None = None,
    room: int | None = None,
    key_runs: bool = False,
) -> int:
    """Hand out up to `most` messages to the consumer, under new locks; how many there were.

    They go to its own session, or for a durable consumer to the `session` that asked; with `room`
    up to the message whose body makes it so many bytes; with `key_runs` several of a key.
    """
    if queue.ready == queue.in_line.count and not key_runs:
        return 0  # all that is ready waits for its key
    if key_runs:
        step.checkouts -= ordering.call_for(queue, consumer.number, step.checkouts // 2)
    state = step.state
    assert most <= consumer.prefetch - consumer.held, "nothing is handed out above the prefetch"
    first_token = consumer.next_token
    runs: list[Run] = []
    count = 0
    start = end = -1  # what was taken last and lies side by side: together it makes few runs
    while count < most and (room is None or room > 0):
        taken = take_next(step, queue, consumer, most - count, room, key_runs)
        if taken is None:
            break
        position, piece = taken
        locks.hold(state, consumer, lock_ms, position, piece, step.now)
        if queue.records.index and _handed_out(step, queue, position):
            step.checkouts -= limits.HAND_OUT_COST - 1
        elif queue.spec.ordering == "key":
            alone = queue.blocks[position >> BLOCK_BITS].key_hashes is None
            step.checkouts -= (limits.RECORD_COST - 1) * (1 if alone else piece)
        if position != end:
            if count:
                runs += runs_of(queue, start, end - start)
            start = position
        end = position + piece
        count += piece
        step.checkouts -= piece
        if room is not None:
            room -= ready.body_bytes(queue, position, piece)
    if count:
        runs += runs_of(queue, start, end - start)
        queue.locked += count
        queue.counters["delivered"] += count
        step.checkouts -= limits.DELIVERY_COST
        step.effects.append(
            # By place: that is half the price of a record where some fields are named.
            Deliver(
                consumer.session if session is None else session,
                consumer.number,
                queue.name,
                first_token,
                lock_ms,
                step.now + lock_ms,
                tuple(runs),
                False,
                consumer.label,
            )
        )
    return count


def is_cut_short(step: Step, queue: Queue, consumer: Consumer) -> bool:
    """Whether the entry's budget ended before all was looked at that may be for this consumer."""
    if step.checkouts > 0:
        return False
    return (
        ready.fresh_front(queue) is not None
        or ready.returned_front(queue, consumer.number) is not None
    )


def take_next(
    step: Step,
    queue: Queue,
    consumer: Consumer,
    most: int,
    room: int | None = None,
    key_runs: bool = False,
) -> tuple[int, int] | None:
    """Take the first stretch of messages that the consumer may have: (position, count).

    What has expired or waits for its key is put where it belongs on the way, at the same budget.
    With `room` the stretch ends with the message whose body makes it so many bytes.
    """
    kind = queue.spec.ordering
    runner = consumer.number if key_runs else 0
    # Positions ascend in the order of delivery, so the next message is the lower one of two fronts:
    # fresh ones go in stretches, returned ones one by one, as each has a record of its own. The
    # loop ends: every round takes a message from its place, and pays for those it does not give.
    in_turn = kind == "key" and not key_runs and room is None
    while step.checkouts > 0:
        if in_turn:
            taken = _take_in_turn(step, queue, consumer, most)
            if taken is not None or step.checkouts <= 0:
                return taken
        bound = _bound(queue, consumer) if kind == "single_active" else NEVER_MS
        fresh = ready.fresh_front(queue)
        back = None
        if queue.returned.count or queue.avoided:
            back = ready.returned_front(queue, consumer.number)
        if back is not None and (fresh is None or back < fresh[0]):
            if back >= bound:
                return None
            ready.take_returned(queue, back)
            position, count = back, 1
            block = queue.blocks[position >> BLOCK_BITS]
        elif fresh is None or fresh[0] >= bound:
            return None
        else:
            position, count = fresh
            if count > most:
                count = most
            if count > bound - position:
                count = bound - position
            # A fresh stretch lies in one block, so one look at its columns is enough.
            block = queue.blocks[position >> BLOCK_BITS]
            if block.expires is not None or kind == "key":
                count = _stretch(step, block, position & ready.BLOCK_MASK, count, kind)
            if room is not None:
                count = ready.reaching(queue, position, count, room)
            ready.take_fresh(queue, position, count)
        # The first message speaks for all of the stretch: `_stretch` has cut it there.
        if block.expires is not None and ready.expires_ms(queue, position) <= step.now:
            ordering.finished(step, queue, position)
            deadletter.expire(step, queue, position)
            step.checkouts -= limits.LEAVE_COST
        elif kind != "key" or ordering.take_key(queue, position, runner):
            return position, count
        else:
            step.checkouts -= limits.RECORD_COST
    return None


def _take_in_turn(
    step: Step, queue: Queue, consumer: Consumer, most: int
) -> tuple[int, int] | None:
    """Where keys order: the first stretch of messages whose keys are free, or reserved for them;
    those before it whose keys are busy wait for them from now on.

    What comes of it is what the same messages one by one come to. None where the first one has to
    be looked at alone.
    """
    while step.checkouts > 0:
        affordable = -(-step.checkouts // limits.RECORD_COST)
        fresh = ready.fresh_front(queue)
        back = None
        if queue.returned.count or queue.avoided:
            back = ready.returned_front(queue, consumer.number)
        if back is not None and (fresh is None or back < fresh[0]):
            if queue.records.index:
                return None
            count = _living(step, queue, back, queue.returned.run_length(back))
            count = ordering.reserved(queue, back, min(count, most, affordable))
            queue.returned.remove_range(back, back + count)
            queue.ready -= count
            return (back, count) if count else None
        if fresh is None:
            return None
        position, count = fresh
        count = min(_living(step, queue, position, count), affordable)
        free = ordering.take_keys(queue, position, min(count, most))
        if free:
            ready.take_fresh(queue, position, free)
            return position, free
        waits = ordering.wait_for_keys(queue, position, count)
        if not waits:
            return None
        ready.take_fresh(queue, position, waits)
        step.checkouts -= limits.RECORD_COST * waits
    return None


def _living(step: Step, queue: Queue, position: int, count: int) -> int:
    """The number of the first of `count` messages of a block that have not expired; 0 where that
    has no keys."""
    block = queue.blocks[position >> BLOCK_BITS]
    if block.key_hashes is None:
        return 0
    return _unexpired(step, block, position & ready.BLOCK_MASK, count)


def _bound(queue: Queue, consumer: Consumer) -> int:
    """The position from which on a single-active queue hands nothing out, for its order's sake."""
    bound: int = queue.blocking.first() if queue.blocking else NEVER_MS
    avoided = queue.avoided.get(consumer.number)
    return min(bound, avoided.first()) if avoided else bound


def _stretch(step: Step, block: Block, offset: int, count: int, kind: str) -> int:
    """The number of `count` fresh messages to treat alike: none has expired nor has a key."""
    if kind == "key" and block.key_hashes is not None:
        return 1
    return max(_unexpired(step, block, offset, count), 1)


def _unexpired(step: Step, block: Block, offset: int, count: int) -> int:
    """The number of the first of `count` messages that have not expired."""
    if block.expires is not None and count:
        expires = block.expires[offset : offset + count]
        if min(expires) <= step.now:
            for living, ends_ms in enumerate(expires):
                if ends_ms <= step.now:
                    return living
    return count


def _handed_out(step: Step, queue: Queue, position: int) -> bool:
    """Note that a message with a record is out again: one attempt more, no late settlement.

    Whether it has a record.
    """
    record = queue.records.get(position)
    if record is not None:
        if record.consumer:
            deadletter.forget_late(step, record)
        queue.records[position] = Record(
            record.attempts + 1, record.failures, 0, 0, record.history, record.dead_letter
        )
    return record is not None


def runs_of(queue: Queue, position: int, count: int) -> list[Run]:
    """Messages from `position` on as they are delivered: few runs where they came in few batches,
    but a dead letter alone."""
    found: list[Run] = []
    while True:
        offset = position & ready.BLOCK_MASK
        piece = BLOCK_MESSAGES - offset
        if piece > count:
            piece = count
        records: list[Record] | None = None
        if queue.records.index:
            piece, records = _alike(queue, position, piece)
        runs = queue.blocks[position >> BLOCK_BITS].runs(offset, piece)
        if queue.has_priorities and position >> LANE_SHIFT != ready.DEFAULT_LANE:
            level = bytes([queue.priority_of(position)])
            runs = [run._replace(priorities=level * run.count) for run in runs]
        if records:
            runs = as_recorded(runs, records)
        if found:
            found += runs
        else:
            found = runs
        if piece == count:
            return found
        position += piece
        count -= piece


def _alike(queue: Queue, position: int, count: int) -> tuple[int, list[Record]]:
    """The number of `count` messages from `position` on to deliver alike, and their records:
    none has one, or all have, or it is one dead letter."""
    records = queue.records
    first = records.get(position)
    if first is None:
        index = records.index
        for place in range(position + 1, position + count):
            if place in index:
                return place - position, []
        return count, []
    found = [first]
    if first.dead_letter is None:
        for place in range(position + 1, position + count):
            record = records.get(place)
            if record is None or record.dead_letter is not None:
                break
            found.append(record)
    return len(found), found


def as_recorded(runs: list[Run], records: Sequence[Record]) -> list[Run]:
    """Runs of messages that all have a record, with what those say."""
    found: list[Run] = []
    start = 0
    for run in runs:
        here = records[start : start + run.count]
        start += run.count
        attempts = array("I", [record.attempts for record in here])
        failures = array("I", [record.failures for record in here])
        found.append(
            run._replace(
                attempts=attempts if attempts.count(1) < run.count else None,
                failures=failures if any(failures) else None,
                dead_letter=here[0].dead_letter,
            )
        )
    return found


def send_again(step: Step, session: Session) -> None:
    """Send again what the session's consumers hold, under the same tokens, from `session.resend` on
    and as far as the budget goes; that is None then where it was all."""
    assert session.resend is not None, "nothing is to be sent again"
    begun, token = session.resend
    for number in session.consumers:  # ascending, for numbers only grow
        if number < begun:
            continue
        consumer = step.state.consumers[number]
        if step.state.queues[consumer.queue].deleted:
            continue
        holds = locks.holds_from(consumer, token if number == begun else 0)
        rest, _ = repeat_all(step, consumer, holds, session.number)
        if rest:
            session.resend = (number, rest)
            return
    session.resend = None


def repeat_all(
    step: Step,
    consumer: Consumer,
    holds: Iterable[tuple[Hold, int]],
    session: int,
    room: int | None = None,
) -> tuple[int, int]:
    """Send holds, each with its lock duration, once more, as far as the budget goes; with `room` up
    to the message whose body makes it so many bytes.

    The token to go on with, 0 at the end, and the number of messages sent.
    """
    sent = 0
    for held, lock_ms in holds:
        first, end = held.first, held.first + held.count
        while first < end:
            if step.budget <= 0 or (room is not None and room <= 0):
                return first, sent
            count = min(end - first, max(step.budget // limits.RECORD_COST, 1))
            if room is not None:
                position = held.position + first - held.first
                count = ready.reaching(step.state.queues[consumer.queue], position, count, room)
            part = locks.part(held, first, first + count)
            again = repeat(step.state, consumer, part, lock_ms, session)
            step.effects.append(again)
            step.budget -= count + limits.RECORD_COST * len(again.runs) + limits.REPEAT_COST
            first += count
            sent += count
            if room is not None:
                room -= sum([run.bodies_bytes for run in again.runs])
    return 0, sent


def repeat(state: State, consumer: Consumer, held: Hold, lock_ms: int, session: int) -> Deliver:
    """A hold as a delivery that was made before."""
    queue = state.queues[consumer.queue]
    floor = locks.certain_floor_of(state, consumer, state.cluster_time_ms)
    return Deliver(
        session,
        consumer.number,
        queue.name,
        held.first,
        lock_ms,
        locks.deadline_ms(consumer, held, held.first, lock_ms, floor),
        tuple(runs_of(queue, held.position, held.count)),
        repeat=True,
        label=consumer.label,
    )
