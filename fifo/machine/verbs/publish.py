"""Publishing: what of a batch is stored, is a duplicate, or is refused, and storing it.

Owns numbering per (producer, queue), and the queue's limits. What is stored is always a prefix of
what was sent to a queue (semantics.md section 10): a refused message ends its batch, and everything
of that producer to that queue behind it is refused as a gap.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from fifo.machine import checks, deadletter, dedup, limits, overflow
from fifo.machine.commands import Publish, PublishAcross
from fifo.machine.replies import Published, PublishedAcross, Refused, Repeat, Reply
from fifo.machine.state import ready
from fifo.machine.state.blocks import PLAIN, Batch, Extras, key_hash, new_batch
from fifo.machine.state.records import Producer, Queue, Session, Step
from fifo.machine.types import NEVER_MS, Cause, Use
from fifo.machine.verbs.columns import (
    NO_COLUMNS,
    Columns,
    InvalidColumn,
    parts,
    read,
)
from fifo.words.codes import RefusalCode


def publish(step: Step, command: Publish) -> Reply:
    """Store what of the batch may be stored."""
    session = _check_session(step, command)
    if isinstance(session, Refused):
        return session
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    if command.count > limits.DROPPING_MESSAGES and queue.spec.overflow == "drop_oldest":
        text = (
            f"a publish to a queue with overflow=drop_oldest has at most"
            f" {limits.DROPPING_MESSAGES} messages, not {command.count}"
        )
        return Refused(RefusalCode.TOO_LARGE, text)
    producer = _producer(step, command, session)
    if producer is None:
        return _no_producer()
    try:
        found = read(step.area, command, command.number, command.numbers_at)
    except InvalidColumn as error:
        return Refused(RefusalCode.INVALID, str(error))
    sizes, bodies_bytes, columns = found
    return _store(step, command, queue, producer, sizes, bodies_bytes, columns)


def publish_across(step: Step, command: PublishAcross) -> Reply:
    """The same for each of several queues: one that refuses its messages refuses no other's."""
    session = _check_session(step, command)
    if isinstance(session, Refused):
        return session
    producer = _producer(step, command, session)
    if producer is None:
        return _no_producer()
    try:
        sizes, _, columns = read(step.area, command, 0, None)
        found = parts(step.area, command, sizes, columns)
    except InvalidColumn as error:
        return Refused(RefusalCode.INVALID, str(error))
    return PublishedAcross(tuple([_store_part(step, producer, *part) for part in found]))


def _store_part(
    step: Step,
    producer: Producer,
    part: Publish,
    sizes: Sequence[int],
    bodies_bytes: int,
    columns: Columns,
) -> Published | Refused:
    queue = checks.queue_named(step, part.queue)
    if isinstance(queue, Refused):
        return queue
    return _store(step, part, queue, producer, sizes, bodies_bytes, columns)


def _check_session(step: Step, command: Publish | PublishAcross) -> Session | Refused | None:
    """The session, where it may publish, with a note that it has; None for a named producer that
    comes without one."""
    if command.producer and not command.session:
        return None
    session = checks.session(step, command.session, command.fence)
    if isinstance(session, Session) and not session.use:
        step.open_session(command.session).use = int(Use.WRITING)
    return session


def _no_producer() -> Refused:
    return Refused(RefusalCode.UNKNOWN_PRODUCER, "there is no such producer: open it again")


def _producer(
    step: Step, command: Publish | PublishAcross, session: Session | None
) -> Producer | None:
    state = step.state
    own = 0 if session is None else session.producer
    producer = state.producers.get(command.producer or own)
    if producer is None:
        return None
    if producer.name is None:
        return producer if producer.number == own else None
    if producer.used_ms != step.now:
        state.touch(producer)
        producer.used_ms = step.now
    return producer


def _store(
    step: Step,
    command: Publish,
    queue: Queue,
    producer: Producer,
    sizes: Sequence[int],
    bodies_bytes: int,
    columns: Columns,
) -> Published | Refused:
    number, count = command.number, command.count
    if not command.previous < number or number + count > limits.NUMBER_MAX:
        return _misnumbered(command)
    last = queue.last_numbers.get(producer.number, 0)
    # A number that this queue knows was stored here: it was made before this was sent first.
    if 0 < command.queue_below <= queue.number and last < number:
        queue.counters["refused"] += count
        text = f"queue {queue.name!r} may be another than the one that this was sent to first"
        replaced = Refused(RefusalCode.QUEUE_REPLACED, text, {"expected": last})
        return Published(queue.number, producer.number, 0, 0, replaced)
    stop = count
    duplicates = 0 if last < number else _duplicates(command, columns, last)
    refused = None
    spec = queue.spec
    if not duplicates and command.previous > last:
        text = f"message {command.previous} of this producer was not stored"
        refused = Refused(RefusalCode.GAP, text, {"expected": last})
        stop = 0
    elif duplicates < stop:
        known: tuple[int, ...] | list[int] = ()
        if columns.dedup_ids is not None:
            dedup.forget_due(step, queue)
            known = dedup.known(step, queue, columns.dedup_ids, duplicates, stop)
        if spec.max_length is not None or spec.max_bytes is not None:
            stop, refused = overflow.admit(queue, sizes, duplicates, known)
        if columns.dedup_ids is not None:
            stop, refused = dedup.admit(queue, columns.dedup_ids, duplicates, stop, refused)
    appended = stored = 0
    if stop > duplicates:
        plain = columns is NO_COLUMNS and spec.ttl_ms is None
        extras = PLAIN if plain else _extras(step, command, queue, columns)
        batch = new_batch(
            (
                step.index,
                command.bodies_at,
                sizes,
                bodies_bytes,
                producer.number,
                number,
                queue.number,
                step.wall,
                step.now,
                extras,
            )
        )
        if plain and spec.overflow != "drop_oldest":
            # The common case, and the fast one: a whole batch is one span of one block, whatever
            # its size.
            appended = stop - duplicates
            piece = batch if appended == count else batch.part(duplicates, stop)
            ready.append(queue, piece, ready.DEFAULT_LANE, step.state.generation)
        else:
            stop, refused, appended = _append(
                step, command, queue, batch, columns, duplicates, stop, refused
            )
        queue.counters["published"] += appended
        stored = stop - duplicates
    if stored:
        if not last:
            _begin(step, producer, queue)
        queue.last_numbers[producer.number] = (
            number + stop - 1 if columns.numbers is None else columns.numbers[stop - 1]
        )
    if appended != count:
        queue.counters["duplicates"] += duplicates + max(stored - appended, 0)
        queue.counters["refused"] += count - duplicates - stored
    repeats: tuple[Repeat, ...] = ()
    if columns.dedup_ids is not None and queue.dedup:
        sent = _numbers_of(command, columns)
        confirmed = duplicates + stored
        repeats = dedup.repeats(step, queue, producer.number, sent, columns.dedup_ids, confirmed)
    return Published(queue.number, producer.number, stored, duplicates, refused, repeats)


def _misnumbered(command: Publish) -> Refused:
    text = f"number {command.number} follows {command.previous}"
    return Refused(
        RefusalCode.INVALID, f"message numbers must be strictly increasing and below 2**63: {text}"
    )


def _duplicates(command: Publish, columns: Columns, last: int) -> int:
    """Count the messages of the batch with numbers up to `last`: the producer has used those."""
    if columns.numbers is not None:
        return bisect_right(columns.numbers, last)
    return min(last - command.number + 1, command.count)


def _numbers_of(command: Publish, columns: Columns) -> Sequence[int]:
    return columns.numbers or range(command.number, command.number + command.count)


def _begin(step: Step, producer: Producer, queue: Queue) -> None:
    """Its first message in this queue. A deleted queue does not walk its producers: what they knew
    of such queues they forget here."""
    state = step.state
    state.touch(producer)
    known = len(producer.queues)
    if not known & (known - 1):  # at each doubling, so that each queue is looked at twice at most
        for number in [number for number in producer.queues if number not in state.queues]:
            del producer.queues[number]
    producer.queues[queue.number] = None


def _append(
    step: Step,
    command: Publish,
    queue: Queue,
    batch: Batch,
    columns: Columns,
    start: int,
    stop: int,
    refused: Refused | None,
) -> tuple[int, Refused | None, int]:
    """Store messages start..stop of the batch, those left out that a dedup window knows already:
    how far it came, why no further, and how many were stored.

    A `drop_oldest` queue drops for each message that does not fit, in turn, as if each had come
    alone; where nothing may be dropped for one, it is refused with all behind it.
    """
    known: list[int] = []
    if columns.dedup_ids is not None:
        known = dedup.known(step, queue, columns.dedup_ids, start, stop)
    appended = 0
    free = stop
    if queue.spec.overflow == "drop_oldest":  # elsewhere only what fits has been admitted
        free = overflow.room(queue, batch.sizes, start)
    for low, high in _stretches(queue, columns, known, start, stop, free):
        lane = ready.DEFAULT_LANE
        if columns.priorities is not None:
            lane = ready.lane_of(queue, columns.priorities[low])
        if low >= free and not deadletter.make_room(step, queue, batch.sizes[low], lane):
            stop, refused = low, overflow.full(queue)
            break
        piece = batch if high - low == command.count else batch.part(low, high)
        if columns.numbers is not None:
            piece = piece._replace(number=columns.numbers[low])
        position = ready.append(queue, piece, lane, step.state.generation)
        appended += high - low
        if columns.delays is not None:
            _delay(step, queue, position, columns.delays[low:high])
    if columns.dedup_ids is not None:
        sent = _numbers_of(command, columns)
        dedup.remember(step, queue, batch.producer, sent, columns.dedup_ids, start, stop)
    return stop, refused, appended


def _stretches(
    queue: Queue, columns: Columns, known: list[int], start: int, stop: int, free: int
) -> list[tuple[int, int]]:
    """The batch in stretches of one lane and consecutive numbers, without what is known; from
    `free` on, where each message needs another dropped, one by one."""
    lanes = columns.priorities if queue.has_priorities else None
    numbers = columns.numbers
    if lanes is None and numbers is None and not known and free >= stop:
        return [(start, stop)]
    # A span of a block is one lane, one producer and consecutive numbers, so each change of these
    # is a cut. A duplicate is cut out on both sides, for its number is not stored here.
    cuts = [start, stop]
    for place in known:
        cuts += (place, place + 1)
    for place in range(start + 1, stop):
        if (
            # From here on room is made message by message: an eviction may free more bytes than
            # the newcomer needs, and the next one has to see that before it evicts again.
            place >= free
            or (lanes is not None and lanes[place] != lanes[place - 1])
            or (numbers is not None and numbers[place] != numbers[place - 1] + 1)
        ):
            cuts.append(place)
    ordered = sorted(dict.fromkeys(cuts))
    left_out = dict.fromkeys(known)
    return [(low, high) for low, high in pairwise(ordered) if low not in left_out]


def _delay(step: Step, queue: Queue, position: int, delays: "array[int]") -> None:
    """Park the messages that were published with a delay; they take their places when due."""
    place = 0
    count = len(delays)
    while place < count:
        if not delays[place]:
            place += 1
            continue
        end = place
        while end < count and delays[end]:
            due_ms = step.now + delays[end]
            ready.make_delayed(queue, position + end, due_ms, int(Cause.PUBLISHED))
            end += 1
        ready.add_hole(queue, position + place, position + end)
        queue.ready -= end - place
        place = end


def _extras(step: Step, command: Publish, queue: Queue, columns: Columns) -> Extras:
    keys, headers, priorities = columns.key_lengths, columns.header_lengths, columns.priorities
    expires = key_hashes = None
    if columns.ttls is not None or queue.spec.ttl_ms is not None:
        expires = _expires(step, queue, columns, command.count)
    elif keys is None and headers is None and priorities is None:
        return PLAIN
    if keys is not None:
        key_hashes = _hashes(step, command, keys)
    return Extras(
        command.keys[1] if command.keys else 0,
        keys,
        command.headers[1] if command.headers else 0,
        headers,
        None if queue.has_priorities else priorities,  # there the lane says it
        expires,
        key_hashes,
    )


def _expires(step: Step, queue: Queue, columns: Columns, count: int) -> "array[int]":
    """When each message expires: by its own ttl or the queue's, whichever is shorter."""
    ttls, default = columns.ttls, queue.spec.ttl_ms
    longest = NEVER_MS - step.now if default is None else default
    if ttls is None:
        return array("Q", [step.now + longest]) * count
    if ttls.count(ttls[0]) == count:
        return array("Q", [step.now + min(ttls[0] or longest, longest)]) * count
    return array("Q", [step.now + min(ttl or longest, longest) for ttl in ttls])


def _hashes(step: Step, command: Publish, lengths: "array[int]") -> "array[int]":
    """64-bit hashes of the keys, by which a key-ordered queue orders them; 0 where there is no key.

    In every queue: a message may be moved, and its key lies in the log, which apply does not read.
    """
    assert command.keys is not None, "there are keys only with a column of them"
    hashes = array("Q")
    area, at = step.area, command.keys[1]
    for length in lengths:
        hashes.append(key_hash(bytes(area[at : at + length])) if length else 0)
        at += length
    return hashes
