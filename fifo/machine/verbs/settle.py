"""The four settlements: ack, nack, release, terminate, each token with its receipt.

Owns what is answered for every token, held or not (semantics.md section 8). What becomes of a
returned message is the business of `returns.py`, of a terminated one that of `deadletter.py`.
"""

from bisect import bisect_right
from itertools import islice

from fifo.machine import checks, consumers, deadletter, returns
from fifo.machine.commands import Settle
from fifo.machine.deadletter import LOCKED_ONCE, Death
from fifo.machine.replies import Receipt, Refused, Reply
from fifo.machine.state import locks, ordering, ready
from fifo.machine.state.records import Consumer, Hold, Queue, Record, State, Step
from fifo.machine.types import NEVER_MS, Attempt, Base, Cause, Text, TextPlace, Use
from fifo.words import bounds, handles
from fifo.words.codes import RefusalCode
from fifo.words.settlement import AttemptOutcome, Reason, Status, Verb

Line = tuple[int, int, int, bool]

# Members of an enum cost more to look up than a settlement of one message has to spare.
_ACK, _NACK, _TERMINATE = int(Verb.ACK), int(Verb.NACK), int(Verb.TERMINATE)
_CANCELLED = int(Base.CANCELLED)
_OK, _LOCK_LOST = int(Status.OK), int(Status.LOCK_LOST)
_DEAD_LETTERED, _ALREADY_SETTLED = int(Status.DEAD_LETTERED), int(Status.ALREADY_SETTLED)


def settle(step: Step, command: Settle) -> Reply:
    """Settle token ranges of one consumer with one verb."""
    session = checks.session(step, command.session, command.fence)
    if isinstance(session, Refused):
        return session
    if not session.use:
        step.open_session(command.session).use = int(Use.WRITING)
    tokens = 0
    for first, last in command.ranges:
        tokens += last - first + 1
    if tokens > bounds.SETTLE_MESSAGES_MAX:
        return too_many()
    state = step.state
    consumer = state.consumer(command.consumer)
    if consumer is None or (
        consumer.session != command.session and not _is_known(state, command.session, consumer)
    ):
        status = int(Status.UNKNOWN_CONSUMER)
        lines = tuple((first, last, status, False) for first, last in command.ranges)
        return Receipt(command.consumer, lines)
    if command.handles or consumer.session != command.session:
        refused = _check_handles(state, command, consumer, tokens)
        if refused is not None:
            return refused
    return settle_ranges(step, command, consumer)


def too_many() -> Refused:
    """The refusal of a settlement with more tokens than one command may have."""
    most = bounds.SETTLE_MESSAGES_MAX
    return Refused(RefusalCode.TOO_LARGE, f"more than {most} tokens in one command")


def settle_ranges(step: Step, command: Settle, consumer: Consumer) -> Reply:
    """Settle the ranges of a consumer that the command may settle."""
    state = step.state
    queue = step.open_queue(consumer.queue)
    if consumer.generation != state.generation:
        state.touch(consumer)
    way = None
    if command.verb == _TERMINATE:
        if queue.spec.dead_letter is None:
            return _no_dead_letter_queue(step, command, queue, consumer)
    elif command.verb != _ACK:
        cause = Cause.NACK if command.verb == _NACK else Cause.RELEASED
        way = returns.way_of(step, queue, consumer, cause, own=True, delay_ms=command.delay_ms)
    lines_out: list[Line] = []
    for first, last in command.ranges:
        settle_range(step, command, queue, consumer, first, last, lines_out, way)
    after(step, queue, consumer, command)
    return Receipt(consumer.number, tuple(lines_out))


def _no_dead_letter_queue(step: Step, command: Settle, queue: Queue, consumer: Consumer) -> Refused:
    if command.session == consumer.session and not command.automatic:
        consumers.prove_alive(step, consumer)
    text = f"queue {queue.name!r} has no dead-letter queue: the messages stay locked"
    return Refused(RefusalCode.NO_DEAD_LETTER_QUEUE, text)


def _is_known(state: State, session: int, consumer: Consumer) -> bool:
    """Another session of the same user as the consumer's; a durable one has its own verbs."""
    owner = state.sessions.get(consumer.session)
    return owner is not None and owner.user == state.sessions[session].user


def _check_handles(
    state: State, command: Settle, consumer: Consumer, tokens: int
) -> Refused | None:
    """Refuse another session that does not have the messages' handles, where there are users; and
    any session that names a handle which is not the message's."""
    owner = state.sessions[consumer.session]
    if not command.handles:
        if not owner.user:  # a cluster without users: its clients trust each other
            return None
        text = (
            f"consumer {consumer.number} belongs to another session, where a token alone settles"
            " nothing: pass the handle that came with the message (`message.handle`) as well"
        )
        return Refused(RefusalCode.FORBIDDEN, text)
    if len(command.handles) != tokens:
        text = f"{len(command.handles)} handles for {tokens} tokens: give one for each token"
        return Refused(RefusalCode.INVALID, text)
    named = [token for first, last in command.ranges for token in range(first, last + 1)]
    for token, handle in zip(named, command.handles, strict=True):
        if not handles.is_handle_of(handle, owner.handle_key, consumer.number, token):
            text = (
                f"this is not the handle of token {token} of consumer {consumer.number}: pass the"
                " one that came with that delivery; nothing was settled"
            )
            return Refused(RefusalCode.FORBIDDEN, text)
    return None


def after(step: Step, queue: Queue, consumer: Consumer, command: Settle) -> None:
    """Apply the side effects of a settlement: it proves life, makes room and resolves tokens."""
    if command.session == consumer.session:
        if (consumer.suspicion or consumer.lost_running) and not command.automatic:
            consumers.prove_alive(step, consumer)
        # Its client still asks about what it has just settled: the answer may get lost.
        mark = command.resolved_below
        if mark > consumer.resolved_below:
            below = min(mark, command.ranges[0][0]) if command.ranges else mark
            consumers.resolve(consumer, below)
    if consumer.service_key is None:  # it only makes room: who is served goes on being served
        consumers.refresh(step, queue, consumer)
    if queue.spec.ordering == "single_active":
        consumers.elect(step, queue)
    if consumer.base == _CANCELLED:
        consumers.drop_if_done(step, consumer)


def settle_range(
    step: Step,
    command: Settle,
    queue: Queue,
    consumer: Consumer,
    first: int,
    last: int,
    lines: list[Line],
    way: returns.Way | None = None,
) -> None:
    """Settle tokens first..last, and add what came of each to the receipt's lines.

    `way` is how a nack or release returns them; None for the other verbs.
    """
    if first < consumer.resolved_below:
        end = min(last, consumer.resolved_below - 1)
        add_line(lines, first, end, _LOCK_LOST)
        first = end + 1
        if first > last:
            return
    for held in locks.release(step.state, consumer, first, last):
        token, count, position, _ = held
        if token > first:
            _settle_unheld(step, command, queue, consumer, first, token - 1, lines)
        first = token + count
        if command.verb == _ACK:
            ack(step, queue, position, count)
            add_line(lines, token, first - 1, _OK)
        elif way is None:
            _terminate(step, command, queue, consumer, held)
            add_line(lines, token, first - 1, _OK)
        else:
            for low, high, dead in returns.give_back(step, queue, consumer, held, way):
                add_line(lines, low, high, _DEAD_LETTERED if dead else _OK)
    if first <= last:
        _settle_unheld(step, command, queue, consumer, first, last, lines)


def ack(step: Step, queue: Queue, first: int, count: int) -> None:
    """The messages are done, `count` of them from position `first` on: they leave the queue."""
    queue.locked -= count
    queue.counters["acked"] += count
    if queue.busy_keys.index:
        ordering.all_finished(step, queue, first, count)
    ready.remove(queue, first, count)


def _terminate(step: Step, command: Settle, queue: Queue, consumer: Consumer, held: Hold) -> None:
    death = death_of(step, command)
    queue.locked -= held.count
    queue.counters["terms"] += held.count
    for position in range(held.position, held.position + held.count):
        record = queue.records.get(position, LOCKED_ONCE)
        _bury_terminated(step, queue, consumer.number, position, record, death)


def _bury_terminated(
    step: Step,
    queue: Queue,
    consumer: int,
    position: int,
    before: Record,
    death: Death,
) -> None:
    line = Attempt(consumer, int(AttemptOutcome.TERMINATED), step.wall)
    record = before._replace(history=(*before.history, line))
    ordering.finished(step, queue, position)
    deadletter.bury(step, queue, position, Reason.TERMINATED, record, death)


def death_of(step: Step, command: Settle) -> Death:
    """The texts that the program gave, with handles to those too long for the state."""
    reason_at, description_at, exception_at, stack_at = command.texts_at or (None,) * 4
    return Death(
        _text(step, command.reason, reason_at),
        _text(step, command.description, description_at),
        command.exception_type,
        _text(step, command.exception_text, exception_at),
        _text(step, command.stack, stack_at),
    )


def _text(step: Step, text: str | None, place: tuple[int, int] | None) -> Text | None:
    if place is None or sum(place) > len(step.area):
        return text
    return TextPlace(step.index, *place)


def _settle_unheld(
    step: Step,
    command: Settle,
    queue: Queue,
    consumer: Consumer,
    first: int,
    last: int,
    lines: list[Line],
) -> None:
    """Answer for tokens that are not held; carry out a late ack or terminate where it is one.

    Not for a durable consumer: it acks all up to a token, also what it never got to see, because
    its lock ran out before it was fetched.
    """
    may_be_late = command.session == consumer.session and not consumer.durable
    may_be_late = may_be_late and command.verb in (_ACK, _TERMINATE) and bool(consumer.late)
    for low, high, status in classify(consumer, first, last):
        if status != _LOCK_LOST or not may_be_late:
            add_line(lines, low, high, status)
            continue
        for token in range(low, high + 1):
            if _settle_late(step, command, queue, consumer, token):
                add_line(lines, token, token, _OK, late=True)
            else:
                add_line(lines, token, token, status)


def classify(consumer: Consumer, first: int, last: int) -> list[tuple[int, int, int]]:
    """Statuses of tokens first..last, none of which is held nor below the resolved mark.

    A token that was never given out is answered `lock_lost`, which promises nothing.
    """
    found: list[tuple[int, int, int]] = []
    taken = consumer.taken
    start = max(bisect_right(taken, (first, NEVER_MS, True)) - 1, 0)
    for low, high, dead in islice(taken, start, None):
        if high < first:
            continue
        if low > last:
            break
        if first < low:
            found.append((first, low - 1, _ALREADY_SETTLED))
        end = min(high, last)
        found.append((max(first, low), end, _DEAD_LETTERED if dead else _LOCK_LOST))
        first = end + 1
    known = min(last, consumer.next_token - 1)
    if first <= known:
        found.append((first, known, _ALREADY_SETTLED))
        first = known + 1
    if first <= last:
        found.append((first, last, _LOCK_LOST))
    return found


def _settle_late(step: Step, command: Settle, queue: Queue, consumer: Consumer, token: int) -> bool:
    """Settle a message that was taken from this consumer and that no other has had since."""
    position = consumer.late.get(token)
    if position is None:
        return False
    record = queue.records[position]
    assert (record.consumer, record.token) == (consumer.number, token), "a late token is stale"
    if not (ready.take_delayed(queue, position) or ready.take_ready(queue, position)):
        return False
    del consumer.late[token]
    # It is settled now, so a retry hears that, not that it was taken.
    consumers.untake(consumer, token)
    queue.counters["late_acks"] += 1
    if command.verb == _ACK:
        queue.counters["acked"] += 1
        ordering.finished(step, queue, position)
        ready.remove(queue, position, 1)
    else:
        queue.counters["terms"] += 1
        death = death_of(step, command)
        _bury_terminated(step, queue, consumer.number, position, record, death)
    return True


def add_line(lines: list[Line], first: int, last: int, status: int, *, late: bool = False) -> None:
    """Append to a receipt, as part of its last line where that says the same."""
    if lines and lines[-1][1] + 1 == first and lines[-1][2:] == (status, late):
        lines[-1] = (lines[-1][0], last, status, late)
    else:
        lines.append((first, last, status, late))
