"""Actions of an operator on one message by its id: semantics.md section 14.

Owns the eight actions, and which of them a ready, locked, delayed or dead message takes. The leader
has found where the message stands; here that is checked again, so that an action which comes late
does nothing. An action that takes a locked message from its holder notifies that holder's client.
"""

from array import array
from typing import NamedTuple

from fifo.machine import checks, consumers, deadletter, limits, overflow, returns
from fifo.machine.commands import MessageAction
from fifo.machine.deadletter import FRESH, LOCKED_ONCE, Death
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.replies import Done, Refused, Reply
from fifo.machine.state import locks, ordering, ready
from fifo.machine.state.blocks import Batch, key_hash
from fifo.machine.state.records import Consumer, Queue, Record, Step
from fifo.machine.types import NEVER_MS, Attempt, Cause, DeadLetter
from fifo.words import bounds
from fifo.words.actions import Action
from fifo.words.codes import RefusalCode
from fifo.words.settlement import AttemptOutcome, Reason


class _Found(NamedTuple):
    """A message where the leader found it; `holder` where it is locked."""

    queue: Queue
    position: int
    holder: Consumer | None
    command: MessageAction

    @property
    def record(self) -> Record:
        """Its record, or the one that stands for it."""
        return self.queue.records.get(self.position, LOCKED_ONCE if self.holder else FRESH)

    @property
    def letter(self) -> DeadLetter | None:
        """Why it is a dead letter; None where it is none."""
        return self.record.dead_letter

    @property
    def size(self) -> int:
        """Bytes of its body."""
        block = self.queue.blocks[self.position >> BLOCK_BITS]
        return block.sizes[self.position & ready.BLOCK_MASK]


def act(step: Step, command: MessageAction) -> Reply:
    """Do it, if the message still stands there and may be treated so; else change nothing."""
    queue = checks.queue_named(step, command.queue)
    if isinstance(queue, Refused):
        return queue
    found = _find(step, queue, command)
    if isinstance(found, Refused):
        return found
    match Action(command.action):
        case Action.RETRY:
            return _retry(step, found)
        case Action.UNLOCK:
            return _unlock(step, found)
        case Action.DELAY:
            return _delay(step, found)
        case Action.CANCEL | Action.DELETE:
            return _delete(step, found)
        case Action.TERMINATE:
            return _terminate(step, found)
        case Action.MOVE:
            return _move(step, found)
        case Action.RESEND:
            return _resend(step, found)


def _find(step: Step, queue: Queue, command: MessageAction) -> _Found | Refused:
    holder = None
    if command.consumer:
        holder = step.state.consumer(command.consumer)
        held = [] if holder is None else locks.held_in(holder, command.token, command.token)
        here = bool(held) and holder is not None and holder.queue == queue.number
        here = here and held[0][0].position == command.position
    else:
        here = ready.stands(queue, command.position)
    if not here or ready.message_id(queue, command.position) != command.message:
        shown = ".".join(map(str, command.message))
        text = (
            f"message {shown} does not stand in queue {queue.name!r} as it was found: it was handed"
            " out, settled, moved or returned meanwhile; look at it again"
        )
        return Refused(RefusalCode.MESSAGE_NOT_FOUND, text)
    return _Found(queue, command.position, holder, command)


def _locked(found: _Found, instead: str) -> Refused | None:
    if found.holder is None:
        return None
    text = f"the message is locked by consumer {found.holder.number}: {instead}"
    return Refused(RefusalCode.INVALID, text)


# --- actions that leave the message in its queue --------------------------------------------------


def _retry(step: Step, found: _Found) -> Reply:
    """A dead letter goes back to its source; any other message is ready now, for all."""
    refused = _locked(found, "take its lock back (unlock), or wait for its end")
    if refused is not None:
        return refused
    if found.letter is not None:
        return _send_on(step, found, found.command.target or found.letter.source, None)
    if found.command.target is not None:
        return Refused(RefusalCode.INVALID, "only a dead letter is retried in another queue: move")
    queue, position = found.queue, found.position
    taken = ready.take_delayed(queue, position) or ready.take_returned(queue, position)
    if taken and ordering.came_back(step, queue, position):
        ready.make_ready(queue, position)
    return Done()


def _unlock(step: Step, found: _Found) -> Reply:
    """Its holder loses it; it comes back uncounted, and not to the same consumer at once."""
    queue, holder, token = found.queue, found.holder, found.command.token
    if holder is None:
        return Refused(RefusalCode.INVALID, "the message is not locked: there is no lock to take")
    delay_ms = found.command.delay_ms
    way = returns.way_of(step, queue, holder, Cause.TAKEN_BACK, own=False, delay_ms=delay_ms)
    step.state.touch(holder)
    for held in locks.release(step.state, holder, token, token):
        returns.give_back(step, queue, holder, held, way)
    _lost(step, queue, holder, token)
    return Done()


def _delay(step: Step, found: _Found) -> Reply:
    """A ready message waits from now on, as one that was published so; a delayed one gets another
    time, and goes on to hold back what it does."""
    queue, position, delay_ms = found.queue, found.position, found.command.delay_ms
    refused = _locked(found, "take its lock back with a delay (unlock)")
    if refused is not None:
        return refused
    if not delay_ms:
        return Refused(RefusalCode.INVALID, "a delay of at least 1 ms is needed; else retry")
    due_ms = min(step.now + delay_ms, NEVER_MS)
    if position in queue.delayed:
        before_ms, cause = queue.delayed[position]
        queue.delays.remove((before_ms, position))
        queue.delays.add((due_ms, position))
        queue.delayed[position] = (due_ms, cause)
        return Done()
    taken = ready.take_ready(queue, position)
    assert taken, "a message to delay was not where it was found"
    ordering.finished(step, queue, position)
    ready.make_delayed(queue, position, due_ms, int(Cause.POSTPONED))
    return Done()


# --- actions that take it out ---------------------------------------------------------------------


def _delete(step: Step, found: _Found) -> Reply:
    """Take it out for good; a cancel spares what is being worked on."""
    if found.command.action == Action.CANCEL:
        refused = _locked(found, "it is worked on; delete it all the same, or wait")
        if refused is not None:
            return refused
    _take(step, found)
    found.queue.counters["deleted"] += 1
    ready.remove(found.queue, found.position, 1)
    return _done(step, found)


def _terminate(step: Step, found: _Found) -> Reply:
    """Send it to the queue's dead-letter queue, with the operator's words."""
    queue, command = found.queue, found.command
    if queue.spec.dead_letter is None:
        text = f"queue {queue.name!r} has no dead-letter queue: declare one, or delete the message"
        return Refused(RefusalCode.NO_DEAD_LETTER_QUEUE, text)
    number = 0 if found.holder is None else found.holder.number
    line = Attempt(number, int(AttemptOutcome.TERMINATED), step.wall)
    record = found.record
    record = record._replace(history=(*record.history, line))
    _take(step, found, dead=True)
    queue.counters["terms"] += 1
    death = Death(command.reason, command.description)
    deadletter.bury(step, queue, found.position, Reason.TERMINATED, record, death)
    return _done(step, found)


def _move(step: Step, found: _Found) -> Reply:
    """Put it at the end of another queue as it is, counts and dead letter kept."""
    target = found.command.target
    if target is None:
        return Refused(RefusalCode.INVALID, "a move needs a target queue")
    record = found.record._replace(consumer=0, token=0)
    if found.holder is not None:
        line = Attempt(found.holder.number, int(AttemptOutcome.TAKEN_BACK), step.wall)
        record = record._replace(history=(*record.history[1 - limits.HISTORY :], line))
    return _send_on(step, found, target, None if record == FRESH else record)


def _resend(step: Step, found: _Found) -> Reply:
    """Begin anew, at the end of its target, its source or its own queue; perhaps edited."""
    letter = found.letter
    source = found.queue.name if letter is None else letter.source
    content = found.command.content
    if content is not None:
        refused = _check(step, content)
        if refused is not None:
            return refused
    return _send_on(step, found, found.command.target or source, None, resends=True)


def _check(step: Step, content: tuple[tuple[int, int], ...]) -> Refused | None:
    most = (bounds.BODY_BYTES_MAX, bounds.KEY_BYTES_MAX, bounds.HEADERS_BYTES_MAX)
    for (at, size), bound, what in zip(content, most, ("body", "key", "headers"), strict=True):
        if size > bound:
            text = f"the {what} has {size} bytes, at most {bound} are allowed"
            return Refused(RefusalCode.TOO_LARGE, text)
        if at + size > len(step.area):
            return Refused(RefusalCode.INVALID, f"the {what} exceeds the raw part")
    return None


def _send_on(
    step: Step, found: _Found, name: str, record: Record | None, *, resends: bool = False
) -> Reply:
    """Move it to the end of a queue with this record, if there is room. Only a resend may name the
    queue that it is in."""
    queue, position = found.queue, found.position
    number = step.state.queue_names.get(name)
    if number is None:
        text = f"there is no queue {name!r}: declare it, or name another target"
        return Refused(RefusalCode.QUEUE_NOT_FOUND, text, {"queue": name})
    stays = number == queue.number
    if stays and not resends:
        return Refused(RefusalCode.INVALID, f"the message is in queue {name!r} already")
    target = step.open_queue(number)
    content = found.command.content if resends else None
    size = found.size if content is None else content[0][1]
    more = (0, size - found.size) if stays else (1, size)
    if overflow.is_over(target, more=more[0], more_bytes=more[1]):
        return overflow.full(target)
    _take(step, found)
    edited = None if content is None else _edited(step, queue, position, content)
    deadletter.transfer(step, queue, position, target, record, edited)
    return _done(step, found)


def _edited(step: Step, queue: Queue, position: int, content: tuple[tuple[int, int], ...]) -> Batch:
    """The message with another body, key and headers, which lie in this entry; its id stays."""
    (body_at, body), (key_at, key), (headers_at, headers) = content
    batch = queue.blocks[position >> BLOCK_BITS].take_out(position & ready.BLOCK_MASK)
    hashed = key_hash(bytes(step.area[key_at : key_at + key])) if key else 0
    extras = batch.extras._replace(
        keys_at=key_at,
        key_lengths=array("I", [key]) if key else None,
        headers_at=headers_at,
        header_lengths=array("I", [headers]) if headers else None,
        key_hashes=array("Q", [hashed]) if key else None,
    )
    sizes = array("I", [body])
    return batch._replace(
        index=step.index, bodies_at=body_at, sizes=sizes, bodies_bytes=body, extras=extras
    )


def _take(step: Step, found: _Found, *, dead: bool = False) -> None:
    """The message leaves its place: its holder has it no more, and nothing settles it late."""
    queue, position, holder = found.queue, found.position, found.holder
    deadletter.forget_late(step, found.record)
    if holder is None:
        taken = ready.take_delayed(queue, position) or ready.take_ready(queue, position)
        assert taken, "a message was not where it was found"
    else:
        token = found.command.token
        step.state.touch(holder)
        locks.release(step.state, holder, token, token)
        queue.locked -= 1
        consumers.add_taken(holder, token, token, dead=dead)
    ordering.finished(step, queue, position)


def _done(step: Step, found: _Found) -> Reply:
    if found.holder is not None:
        _lost(step, found.queue, found.holder, found.command.token)
    return Done()


def _lost(step: Step, queue: Queue, holder: Consumer, token: int) -> None:
    """Give a consumer that lost its lock room, its turn, and its notice."""
    consumers.refresh(step, queue, holder)
    consumers.elect(step, queue)
    session = step.state.sessions.get(holder.session)
    if session is not None and session.end_cause is None:
        returns.notify(step, session, holder, [(token, token)], "taken_back")
    consumers.drop_if_done(step, holder)
