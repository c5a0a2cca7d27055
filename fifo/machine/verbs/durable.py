"""Durable consumers: a name that outlives every session, and reads the same tokens again and again.

Owns their verbs (semantics.md section 11). A durable consumer is a consumer without a session: it
is never suspected or disconnected, and its renewals go through the log, as a floor of its locks.
Each opening raises the generation, and every command carries it: who was replaced is refused.
"""

from itertools import islice

from fifo.machine import checkout, checks, consumers, limits, returns, spec
from fifo.machine.commands import (
    AckUpto,
    Fetch,
    Forget,
    OpenDurable,
    RenewDurable,
    Reserve,
    Settle,
)
from fifo.machine.effects import Deliver
from fifo.machine.replies import Done, DurableOpened, Receipt, Refused, Reply, Reserved
from fifo.machine.spec import SpecError
from fifo.machine.state import locks
from fifo.machine.state.records import Consumer, Hold, Step
from fifo.machine.types import Cause, Range, Use
from fifo.machine.verbs import sessions, settle
from fifo.words import bounds
from fifo.words.codes import RefusalCode
from fifo.words.settlement import Status, Verb
from fifo.words.versions import KEY_RUNS

DurableCommand = Reserve | Fetch | AckUpto | RenewDurable | Forget | Settle


def open_durable(step: Step, command: OpenDurable) -> Reply:
    """Find or create the durable consumer, and take it over."""
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    if queue.spec.ordering == "single_active":
        return Refused(RefusalCode.INVALID, "a single-active queue has no durable consumers")
    try:
        options = spec.consumer_options(command.options)
    except SpecError as error:
        return Refused(RefusalCode.INVALID, str(error))
    number = queue.durables.get(command.name)
    if number is None:
        if len(queue.durables) >= limits.DURABLES_PER_QUEUE:
            most = limits.DURABLES_PER_QUEUE
            return Refused(RefusalCode.LIMIT, f"a queue has at most {most} durable consumers")
        consumer = consumers.add(step, queue, 0, command.name, command.user)
        queue.durables[command.name] = consumer.number
    else:
        consumer = step.open_consumer(number)
        if consumer.leaving is not None:
            return Refused(RefusalCode.STALE, "the durable consumer is being forgotten: try again")
    lock_ms = options.lock_ms or queue.spec.lock_ms
    if lock_ms not in consumer.lanes and len(consumer.lanes) >= limits.LOCK_DURATIONS:
        most = limits.LOCK_DURATIONS
        return Refused(RefusalCode.LIMIT, f"the consumer holds locks of {most} different durations")
    consumer.lock_ms = lock_ms
    consumer.max_lock_ms = options.max_lock_ms or max(queue.spec.max_lock_ms, lock_ms)
    consumer.prefetch = bounds.PREFETCH_MAX
    consumer.nack_backoff = options.nack_backoff
    consumer.timeout_backoff = options.timeout_backoff
    consumer.durable += 1
    _used(step, consumer)
    holds = locks.all_holds(consumer)
    held = returns.joined([(part.first, part.first + part.count - 1) for part, _ in holds])
    lost = _lost(consumer, holds, consumer.resolved_below, consumer.next_token - 1)
    return DurableOpened(
        consumer.number, consumer.durable, consumer.next_token, tuple(held), tuple(lost)
    )


def _lost(consumer: Consumer, held: list[tuple[Hold, int]], first: int, last: int) -> list[Range]:
    """The tokens of first..last that were taken from the consumer, of which it has these; and
    those below its mark, of which nothing is known any more.

    A range of taken tokens may cover one that is held (see `consumers.add_taken`).
    """
    found: list[Range] = []
    place = 0
    for begin, end, _ in ((1, consumer.resolved_below - 1, False), *consumer.taken):
        low, high = max(begin, first), min(end, last)
        while low <= high and place < len(held) and held[place][0].first <= high:
            part = held[place][0]
            if low < part.first:
                found.append((low, part.first - 1))
            low = max(low, part.first + part.count)
            place += 1
        if low <= high:
            found.append((low, high))
        place = max(place - 1, 0)  # it may reach into the next range
    return returns.joined(found)


def _find(step: Step, command: DurableCommand) -> Consumer | Refused:
    found = step.state.consumer(command.consumer)
    if found is None or not found.durable or found.leaving is not None:
        return Refused(RefusalCode.UNKNOWN_CONSUMER, "there is no such durable consumer")
    if found.durable != command.generation:
        detail = {"generation": found.durable}
        return Refused(
            RefusalCode.OLD_GENERATION, "the durable consumer was opened elsewhere", detail
        )
    consumer = step.open_consumer(command.consumer)
    _used(step, consumer)
    return consumer


def _used(step: Step, consumer: Consumer) -> None:
    consumer.used_ms = step.now
    step.open_queue(consumer.queue).used_ms = step.now
    if consumer.timer_ms is None:
        step.arm(consumer, step.now + limits.DURABLE_MS)


def unused(step: Step, number: int) -> bool:
    """The time to look whether it is still used has come; False where it is due again at once."""
    consumer = step.open_consumer(number)
    ends_ms = consumer.used_ms + limits.DURABLE_MS
    if ends_ms > step.now:
        step.arm(consumer, ends_ms)
        return True
    step.arm(consumer, None)
    sessions.start_leaving(step, number, Cause.RELEASED)
    return True


def reserve(step: Step, command: Reserve) -> Reply:
    """Lock the next messages under the next tokens, and send them to the session that asks."""
    if command.runs and step.state.version < KEY_RUNS:
        return Refused(RefusalCode.INVALID, f"runs of a key come with version {KEY_RUNS}")
    consumer = _find(step, command)
    if isinstance(consumer, Refused):
        return consumer
    if command.session:
        sessions.note_use(step, command.session, Use.CONSUMING)
    queue = step.open_queue(consumer.queue)
    first, before = consumer.next_token, len(step.effects)
    most = min(command.count, consumer.prefetch - consumer.held)
    count, more = 0, False
    room = command.max_bytes or None
    if not queue.paused and most > 0:
        count = checkout.deliver(
            step,
            queue,
            consumer,
            most,
            consumer.lock_ms,
            session=command.session,
            room=room,
            key_runs=command.runs and queue.spec.ordering == "key",
        )
        more = count < most and checkout.is_cut_short(step, queue, consumer)
    handed_out = [one for one in step.effects[before:] if isinstance(one, Deliver)]
    body_bytes = sum([run.bodies_bytes for one in handed_out for run in one.runs])
    left_bytes = max(command.max_bytes - body_bytes, 0)
    return Reserved(consumer.number, first, count, more=more, left_bytes=left_bytes)


def fetch(step: Step, command: Fetch) -> Reply:
    """Send what is still locked of tokens first..last, in order; holes stay holes. What the step
    has no budget for, or is beyond the bytes, is left to another fetch, from `rest` on."""
    consumer = _find(step, command)
    if isinstance(consumer, Refused):
        return consumer
    if command.session:
        sessions.note_use(step, command.session, Use.CONSUMING)
    if locks.count_in(consumer, command.first, command.last) > limits.STEP_MESSAGES:
        return Refused(
            RefusalCode.TOO_LARGE, f"more than {limits.STEP_MESSAGES} messages in one fetch"
        )
    # No more of them than a step has the budget for: the rest is behind the last of these.
    most = limits.STEP_MESSAGES // limits.REPEAT_COST
    parts = list(islice(locks.held_from(consumer, command.first, command.last), most))
    room = command.max_bytes or None
    rest, sent = checkout.repeat_all(step, consumer, parts, command.session, room)
    lost = _lost(consumer, parts, command.first, rest - 1 if rest else command.last)
    return Reserved(consumer.number, command.first, sent, rest, lost=tuple(lost))


def settle_tokens(step: Step, command: Settle) -> Reply:
    """Settle single tokens with any verb, whichever session asks."""
    session = checks.session(step, command.session, command.fence)
    if isinstance(session, Refused):
        return session
    consumer = _find(step, command)
    if isinstance(consumer, Refused):
        return consumer
    tokens = sum(last - first + 1 for first, last in command.ranges)
    if tokens > bounds.SETTLE_MESSAGES_MAX:
        return settle.too_many()
    return settle.settle_ranges(step, command, consumer)


def ack_upto(step: Step, command: AckUpto) -> Reply:
    """Ack every token up to `upto`, again without harm; the receipt names what could not be.

    From the first of those on all of them are named again, in case the answer was lost.
    """
    consumer = _find(step, command)
    if isinstance(consumer, Refused):
        return consumer
    consumers.resolve(consumer, command.answered_below)
    first = max(consumer.resolved_below, command.first, 1)
    last = min(command.upto, consumer.next_token - 1)
    if last < first:
        return Receipt(consumer.number, ())
    if last - first >= limits.ACK_UPTO_MESSAGES:
        most = limits.ACK_UPTO_MESSAGES
        return Refused(RefusalCode.TOO_LARGE, f"more than {most} tokens at once: ack in steps")
    queue = step.open_queue(consumer.queue)
    lines: list[settle.Line] = []
    acking = Settle(0, consumer.number, int(Verb.ACK), ((first, last),))
    settle.settle_range(step, acking, queue, consumer, first, last, lines)
    # What was settled before, one by one, was settled as well.
    settled = (Status.OK, Status.ALREADY_SETTLED)
    lost = tuple(line for line in lines if line[2] not in settled)
    if first <= max(consumer.resolved_below, 1):
        consumers.resolve(consumer, lost[0][0] if lost else last + 1)
    return Receipt(consumer.number, lost)


def renew(step: Step, command: RenewDurable) -> Reply:
    """Everything it holds is locked anew from now on, within the longest lock."""
    consumer = _find(step, command)
    if isinstance(consumer, Refused):
        return consumer
    if consumer.held:
        locks.raise_floor(consumer, step.now + max(consumer.lanes))
    return Done()


def forget(step: Step, command: Forget) -> Reply:
    """End the durable consumer: what it holds is returned, uncounted."""
    consumer = _find(step, command)
    if isinstance(consumer, Refused):
        return consumer
    step.arm(consumer, None)
    sessions.start_leaving(step, consumer.number, Cause.RELEASED)
    return Done()
