"""Messages that come back: by nack, timeout, disconnect or release (semantics.md section 7).

Owns counting, backoff and the choice between ready, delayed, dead and expired. The locks of what is
returned have been ended by the caller; the message stands in no place while it is here.
"""

from itertools import repeat
from typing import NamedTuple

from fifo.machine import backoff, consumers, deadletter, limits
from fifo.machine.effects import Notify
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.state import locks, ordering, ready
from fifo.machine.state.records import Consumer, Hold, Notice, Queue, Record, Session, Step
from fifo.machine.types import NEVER_MS, Attempt, Base, Cause, Range
from fifo.words.backoff import Backoff, FixedDelay, parse

COUNTER_OF = {
    Cause.NACK: "redelivered_nack",
    Cause.TIMEOUT: "redelivered_timeout",
    Cause.DISCONNECT: "redelivered_disconnect",
    Cause.RELEASED: "redelivered_released",
    Cause.TAKEN_BACK: "redelivered_taken_back",
}


def give_back(
    step: Step, queue: Queue, consumer: Consumer, held: Hold, way: "Way"
) -> list[tuple[int, int, bool]]:
    """Return what was just unlocked; ranges (first token, last token, whether dead-lettered)."""
    queue.locked -= held.count
    queue.counters[way.counter] += held.count
    if _returns_whole(queue, held, way):
        _return_whole(queue, consumer, held, way)
        outcome = [(held.first, held.first + held.count - 1, False)]
    else:
        outcome = _return_each(step, queue, consumer, held, way)
    for first, last, dead in outcome:
        # A retry of the nack that reached the limit must hear what the nack itself heard. Not of a
        # durable consumer, whose ack names what was taken from it.
        if not way.own or (dead and not consumer.durable):
            consumers.add_taken(consumer, first, last, dead=dead)
    step.budget -= held.count if way.own else (held.count + 1) * cost_of(queue)
    return outcome


def _return_each(
    step: Step, queue: Queue, consumer: Consumer, held: Hold, way: "Way"
) -> list[tuple[int, int, bool]]:
    """Return the messages one after the other; ranges (first token, last, whether dead)."""
    outcome: list[tuple[int, int, bool]] = []
    token = held.first
    for position in range(held.position, held.position + held.count):
        dead = _return_one(step, queue, consumer, position, token, way)
        if outcome and outcome[-1][2] == dead:
            outcome[-1] = (outcome[-1][0], token, dead)
        else:
            outcome.append((token, token, dead))
        token += 1
    return outcome


def _returns_whole(queue: Queue, held: Hold, way: "Way") -> bool:
    """Whether all messages of a hold come to the same: each is back for the first time, and ready
    at once. Then they go as a stretch, an eighth of the cost of each alone."""
    if way.own or way.avoid_ms or held.count < _STRETCH:
        return False
    failures = way.first.failures
    if way.limit is not None and failures >= way.limit:
        return False
    if queue.busy_keys.index or backoff.delay_ms(way.delay, failures - way.counts):
        return False
    end = held.position + held.count
    blocks = range(held.position >> BLOCK_BITS, (end - 1 >> BLOCK_BITS) + 1)
    if any(queue.blocks[key].expires is not None for key in blocks):
        return False
    known = queue.records
    return not len(known) or not known.has_any(range(held.position, end))


def _return_whole(queue: Queue, consumer: Consumer, held: Hold, way: "Way") -> None:
    attempts, failures, _, _, history, dead_letter = way.first
    positions = range(held.position, held.position + held.count)
    tokens = range(held.first, held.first + held.count)
    before = [repeat(one) for one in (attempts, failures, consumer.number)]
    fields = zip(*before, tokens, repeat(history), repeat(dead_letter))
    # As Record(...) would, which costs three times as much.
    queue.records.put_new(positions, list(map(tuple.__new__, repeat(Record), fields)))
    consumer.late.put_new(tokens, positions)
    queue.returned.add_range(positions.start, positions.stop)
    queue.ready += held.count


_STRETCH = 2
"""Messages of a hold from which on it is worth a look whether all of them come to the same."""


def cost_of(queue: Queue) -> int:
    """The cost of taking a message from its holder: more where it may become a dead letter."""
    return limits.RECORD_COST if queue.spec.dead_letter is None else limits.DROP_COST


class Way(NamedTuple):
    """The treatment of all messages that one command returns for one cause.

    `own`: by the consumer's own command, so that its tokens are settled, not taken from it.
    """

    cause: int
    counter: str
    counts: bool
    limit: int | None  # failures that exhaust a message
    delay: Backoff
    line: Attempt
    first: Record  # of a message that comes back for the first time, its holder left aside
    own: bool
    avoid_ms: int  # until when its releaser does not get it back; 0 where none avoids it


def way_of(
    step: Step,
    queue: Queue,
    consumer: Consumer,
    cause: Cause,
    *,
    own: bool,
    delay_ms: int | None = None,
) -> Way:
    """The way in which a command returns messages of this consumer for this cause."""
    spec = queue.spec
    counts = cause in (Cause.NACK, Cause.DISCONNECT) or (
        cause == Cause.TIMEOUT and spec.count_timeouts
    )
    line = Attempt(consumer.number, int(cause), step.wall)
    loses = cause == Cause.TAKEN_BACK or (cause == Cause.RELEASED and own)
    avoids = loses and consumer.base != Base.CANCELLED
    return Way(
        int(cause),
        COUNTER_OF[cause],
        counts,
        spec.failures_max if counts else None,
        _delay(queue, consumer, cause, delay_ms),
        line,
        deadletter.LOCKED_ONCE._replace(failures=int(counts), history=(line,)),
        own,
        step.now + limits.RELEASE_AVOID_MS if avoids else 0,
    )


def _return_one(
    step: Step, queue: Queue, consumer: Consumer, position: int, token: int, way: Way
) -> bool:
    """Return one message; whether it is a dead letter now."""
    before = queue.records.get(position)
    record = way.first if before is None else _once_more(before, way)
    if not way.own:
        record = Record(
            record.attempts,
            record.failures,
            consumer.number,
            token,
            record.history,
            record.dead_letter,
        )
    if way.limit is not None and record.failures >= way.limit:
        ordering.finished(step, queue, position)
        return deadletter.exhaust(step, queue, position, record)
    queue.records[position] = record
    if ready.expires_ms(queue, position) <= step.now:
        ordering.finished(step, queue, position)
        return deadletter.expire(step, queue, position)
    if not way.own:
        consumer.late[token] = position
    wait_ms = backoff.delay_ms(way.delay, record.failures - way.counts)
    if wait_ms:
        ordering.delay(step, queue, position, min(step.now + wait_ms, NEVER_MS), way.cause)
        if way.avoid_ms > step.now + wait_ms:
            ready.avoid(queue, position, consumer.number, way.avoid_ms)
    elif ordering.came_back(step, queue, position):
        if way.avoid_ms:
            ready.avoid(queue, position, consumer.number, way.avoid_ms)
            ready.make_avoided(queue, position, consumer.number)
        else:
            ready.make_ready(queue, position)
    return False


def _once_more(before: Record, way: Way) -> Record:
    history = (*before.history[1 - limits.HISTORY :], way.line)
    failures = before.failures + way.counts
    return Record(before.attempts, failures, 0, 0, history, before.dead_letter)


_AT_ONCE = FixedDelay(0)
_NACKED = FixedDelay(limits.NACK_DELAY_MS_DEFAULT)


def _delay(queue: Queue, consumer: Consumer, cause: Cause, delay_ms: int | None) -> Backoff:
    """By what a returned message waits: the explicit delay, else the policy for its cause."""
    if delay_ms is not None:
        return FixedDelay(delay_ms)
    if cause == Cause.NACK:
        policy = consumer.nack_backoff or queue.spec.nack_backoff
        return _NACKED if policy is None else _policy(policy)
    if cause == Cause.TIMEOUT:
        policy = consumer.timeout_backoff or queue.spec.timeout_backoff
        return _AT_ONCE if policy is None else _policy(policy)
    return _AT_ONCE


_POLICIES: dict[str, Backoff] = {}


def _policy(text: str) -> Backoff:
    """The parsed policy. The cache is no state: it holds what parsing the text would give."""
    policy = _POLICIES.get(text)
    if policy is None:
        if len(_POLICIES) >= limits.QUEUES:
            _POLICIES.clear()
        policy = _POLICIES[text] = parse(text)
    return policy


def give_back_all(step: Step, consumer: Consumer, cause: Cause) -> list[Range]:
    """Return everything the consumer holds, as far as the budget goes; the tokens that went."""
    queue = step.open_queue(consumer.queue)
    if consumer.generation != step.state.generation:
        step.state.touch(consumer)
    way = way_of(step, queue, consumer, cause, own=False)
    last = locks.last_of_first(consumer, -(-max(step.budget, 0) // cost_of(queue)))
    gone: list[Range] = []
    for held in locks.release(step.state, consumer, 1, last):
        give_back(step, queue, consumer, held, way)
        gone.append((held.first, held.first + held.count - 1))
    consumers.refresh(step, queue, consumer)
    return joined(gone)


def time_out(step: Step, consumer: Consumer, ranges: list[Range]) -> None:
    """Locks of the consumer have expired: return the messages, suspect it, tell its client."""
    state = step.state
    queue = step.open_queue(consumer.queue)
    session = state.sessions.get(consumer.session)
    disconnected = session is not None and session.disconnected
    cause = Cause.DISCONNECT if disconnected else Cause.TIMEOUT
    way = way_of(step, queue, consumer, cause, own=False)
    for first, last in ranges:
        for held in locks.release(state, consumer, first, last):
            if cause == Cause.TIMEOUT:
                queue.counters["lock_timeouts"] += held.count
            give_back(step, queue, consumer, held, way)
    lost = list(ranges)
    consumers.suspect(step, queue, consumer, disconnected=disconnected)
    if queue.spec.ordering == "single_active" and not consumer.durable:
        # Order is kept only if it loses everything: the rest goes back uncounted.
        rest_cause = Cause.DISCONNECT if disconnected else Cause.RELEASED
        rest = way_of(step, queue, consumer, rest_cause, own=False)
        for held, _ in locks.all_holds(consumer):
            last = held.first + held.count - 1
            lost.append((held.first, last))
            for piece in locks.release(state, consumer, held.first, last):
                give_back(step, queue, consumer, piece, rest)
        if queue.active == consumer.number:
            consumers.deactivate(step, queue, consumer)
        consumers.elect(step, queue)
    locks.raise_bounds(state, consumer)
    consumers.refresh(step, queue, consumer)
    if session is not None and session.end_cause is None:
        notify(step, session, consumer, joined(lost))
    consumers.drop_if_done(step, consumer)


def joined(ranges: list[Range]) -> list[Range]:
    """The same tokens as ascending ranges that do not touch."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def notify(
    step: Step,
    session: Session,
    holder: Consumer,
    ranges: list[Range],
    kind: str = "message_timeout",
) -> None:
    """Keep a notice for the client, and send it."""
    consumer = holder.number
    step.state.touch(session)
    if len(session.notices) >= limits.NOTICES:
        # The newest of this consumer takes the new ranges along, under a new number.
        for number in reversed(session.notices):
            kept = session.notices[number]
            if (kept.consumer, kept.kind) == (consumer, kind):
                ranges = joined([*session.notices.pop(number).ranges, *ranges])
                break
        else:
            del session.notices[next(iter(session.notices))]
    number = session.next_notice
    session.next_notice += 1
    last = tuple(ranges[-limits.NOTICE_RANGES :])
    notice = session.notices[number] = Notice(kind, consumer, last, holder.label)
    step.effects.append(Notify(session.number, number, *notice))
