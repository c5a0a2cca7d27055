"""Consumers: who may be served, in which turn, and how one comes and goes.

Owns a consumer's base status, suspicion, credit and place in the queue's service order, and the
single active consumer (semantics.md section 6). Status is a base (active, waiting, cancelled) plus
independent flags; detached and disconnected are the session's.

Every change of what eligibility depends on is followed by `refresh`. What a consumer
holds is given back by `returns.py`, never here.
"""

from bisect import bisect_left, bisect_right, insort
from itertools import islice

from fifo.machine import garbage, limits
from fifo.machine.effects import Activity
from fifo.machine.state import locks
from fifo.machine.state.records import Consumer, Queue, Session, State, Step
from fifo.machine.types import NEVER_MS, Base, Range, Role, Suspicion

# Members of an enum cost more to look up than a settlement of one message has to spare.
_ACTIVE, _CANCELLED, _DATA = int(Base.ACTIVE), int(Base.CANCELLED), int(Role.DATA)


_FEW = 16
"""Messages whose locks are let go with their consumer: less than a look at where they are kept."""


def is_present(state: State, session: Session | None) -> bool:
    """Whether the session can be sent something: its data connection is there, in this term."""
    return (
        session is not None
        and session.attached[_DATA]
        and session.lead_epoch == state.lead_epoch
        and not session.disconnected
        and session.end_cause is None
        and session.resend is None  # what is new comes after what it has had before
    )


def is_eligible(state: State, consumer: Consumer) -> bool:
    """Not suspected, detached, disconnected or cancelled; for the active one of a single-active
    queue that says whether it may stay, for a waiting one whether it may become active."""
    return (
        consumer.base != _CANCELLED
        and not consumer.suspicion
        and not consumer.implicit
        and not consumer.durable
        and is_present(state, state.sessions.get(consumer.session))
    )


def capacity(consumer: Consumer) -> int:
    """The number of messages that it may be handed now, eligibility aside."""
    room = consumer.prefetch - consumer.held - consumer.lost_running
    return min(room, consumer.credit) if consumer.explicit_credit else room


def refresh(step: Step, queue: Queue, consumer: Consumer) -> None:
    """Put the consumer into the service order or take it out, as its state now wants. Of the queue
    that changes nothing that a frozen view keeps."""
    wanted = (
        consumer.base == _ACTIVE
        and capacity(consumer) > 0
        and is_eligible(step.state, consumer)
        and not (queue.handover and queue.active == consumer.number)
    )
    if wanted and consumer.service_key is None:
        enter_service(queue, consumer)
    elif not wanted and consumer.service_key is not None:
        leave_service(queue, consumer)
    step.touched[queue.number] = queue


def enter_service(queue: Queue, consumer: Consumer) -> None:
    """Join the service order at the place of the consumer's last turn."""
    consumer.service_key = (-consumer.priority, consumer.turn, consumer.number)
    insort(queue.service, consumer.service_key)


def leave_service(queue: Queue, consumer: Consumer) -> None:
    """Leave the service order."""
    assert consumer.service_key is not None, "only who is in the service order leaves it"
    place = bisect_left(queue.service, consumer.service_key)
    assert queue.service[place] == consumer.service_key, "the service order lost a consumer"
    del queue.service[place]
    consumer.service_key = None


def served(queue: Queue, consumer: Consumer) -> None:
    """Put a consumer that was served last among those of its priority."""
    queue.turns += 1
    consumer.turn = queue.turns
    if consumer.service_key is not None:
        leave_service(queue, consumer)
        enter_service(queue, consumer)


def suspect(step: Step, queue: Queue, consumer: Consumer, *, disconnected: bool) -> None:
    """A lock of it expired: nothing new until its program speaks."""
    if consumer.implicit or consumer.durable or consumer.suspicion == Suspicion.TIMEOUT:
        return
    consumer.suspicion = int(
        Suspicion.TIMEOUT_WHILE_DISCONNECTED if disconnected else Suspicion.TIMEOUT
    )
    refresh(step, queue, consumer)


def prove_alive(step: Step, consumer: Consumer) -> None:
    """A command from the program clears the suspicion, whatever became of the command, and frees
    the places of lost messages."""
    if consumer.suspicion or consumer.lost_running:
        queue = step.open_queue(consumer.queue)
        consumer.suspicion = int(Suspicion.NONE)
        consumer.lost_running = 0
        refresh(step, queue, consumer)
        elect(step, queue)


def asked(step: Step, consumer: Consumer, lost: int) -> None:
    """The program asked for the next message; the handlers of `lost` lost ones still run.

    That clears the suspicion where a place is left beside those, unless order is promised: there
    the lost message must not be worked on twice, and no other may overtake it.
    """
    queue = step.open_queue(consumer.queue)
    if not consumer.suspicion:  # a command of the program came since, and freed their places
        lost = min(lost, consumer.lost_running)
    consumer.lost_running = lost
    free = queue.spec.ordering == "none" and consumer.held + lost < consumer.prefetch
    clears = consumer.suspicion and (free or not lost)
    if clears:
        consumer.suspicion = int(Suspicion.NONE)
    refresh(step, queue, consumer)
    if clears:
        elect(step, queue)


def add(
    step: Step, queue: Queue, session: int, tag: str, user: str, *, implicit: bool = False
) -> Consumer:
    """A new consumer with the next number, not yet in service."""
    state = step.state
    consumer = Consumer(state.next_consumer, session, queue.number, tag, user)
    state.next_consumer += 1
    consumer.generation = state.generation
    consumer.arrival = consumer.number
    consumer.implicit = implicit
    consumer.turn = queue.turns
    state.consumers[consumer.number] = consumer
    state.note_owned(consumer, 1)
    queue.consumers[consumer.number] = None
    queue.note_rank(consumer.priority, 1)
    queue.subscribed += not implicit
    if session:
        step.open_session(session).consumers[consumer.number] = None
    return consumer


def drop(step: Step, consumer: Consumer, *, elects: bool = True) -> None:
    """The consumer is gone; it holds nothing any more. Its number never comes again.

    Without `elects` the caller looks who is active, once for all that go together.
    """
    assert consumer.held == 0, "a consumer that holds messages cannot go"
    state = step.state
    queue = step.open_queue(consumer.queue)
    state.touch(consumer)
    step.arm(consumer, None)
    locks.drop_lanes(state, consumer)
    if consumer.service_key is not None:
        leave_service(queue, consumer)
    _take_out(state, queue, consumer)
    session = state.sessions.get(consumer.session)
    if session is not None:
        state.touch(session)
        session.consumers.pop(consumer.number, None)
        session.leaving -= consumer.leaving is not None
        if session.tags.get((queue.number, consumer.tag)) == consumer.number:
            del session.tags[(queue.number, consumer.tag)]
        if session.gets.get(queue.number) == consumer.number:
            del session.gets[queue.number]
    if queue.durables.get(consumer.tag) == consumer.number:
        del queue.durables[consumer.tag]
    queue.used_ms = step.now
    if elects:
        elect(step, queue)


def _take_out(state: State, queue: Queue, consumer: Consumer) -> None:
    del state.consumers[consumer.number], queue.consumers[consumer.number]
    state.note_owned(consumer, -1)
    queue.note_rank(consumer.priority, -1)
    queue.subscribed -= not consumer.implicit


def leave_with_queue(step: Step, queue: Queue, consumer: Consumer) -> None:
    """The consumer of a deleted queue, open for change, is gone, with what it holds. There may be
    ten thousand: little for each."""
    state = step.state
    if consumer.service_key is not None:
        place = bisect_left(queue.service, consumer.service_key)
        del queue.service[place]
    for lane in consumer.lanes.values():
        state.lock_index.remove((lane.bound_ms, consumer.number, lane.lock_ms))
    if consumer.timer_ms is not None:
        state.timers.remove((consumer.timer_ms, consumer.kind, consumer.number))
    _take_out(state, queue, consumer)
    if consumer.session:
        session = step.open_session(consumer.session)
        session.consumers.pop(consumer.number, None)
        session.leaving -= consumer.leaving is not None
        session.gets.pop(queue.number, None)
        session.tags.pop((queue.number, consumer.tag), None)
    if consumer.held > _FEW or consumer.late:
        state.touch(consumer)
        garbage.leave(state, consumer)
    else:
        state.leave(consumer)


def drop_if_done(step: Step, consumer: Consumer) -> None:
    """A cancelled consumer goes when its last token is settled and resolved."""
    if (
        consumer.base == _CANCELLED
        and consumer.held == 0
        # One that never got a token has nothing to resolve, and no command to say so with.
        and (consumer.resolved_below >= consumer.next_token or consumer.next_token == 1)
        and consumer.leaving is None
        and consumer.number in step.state.consumers
    ):
        drop(step, consumer)


def elect(step: Step, queue: Queue) -> None:
    """Decide who is the active one of a single-active queue; nothing to do on other queues."""
    if queue.spec.ordering != "single_active" or queue.deleted:
        return
    state = step.state
    state.touch(queue)
    active = None if queue.active is None else state.consumers.get(queue.active)
    if active is None:
        queue.active = None
        queue.handover = False
    if active is None:
        # No consumer is activated while another holds any: a get, or one whose turn is over.
        best = _best_waiting(state, queue) if queue.locked == 0 else None
        if best is not None:
            activate(step, queue, best)
        return
    stays = is_eligible(state, active)
    if active.held == 0:
        queue.handover = False
        best = _challenger(state, queue, active, stays=stays)
        # Only a get holds beside an active one, whose seat was kept though it had been cancelled.
        if queue.locked or best is not None:
            deactivate(step, queue, active)
            if best is not None and queue.locked == 0:
                activate(step, queue, best)
            return
    else:
        # It gets nothing more and hands over when it has settled; if the challenger goes away
        # first, it carries on.
        queue.handover = stays and _challenger(state, queue, active, stays=True) is not None
    if active.generation != state.generation:
        state.touch(active)
    refresh(step, queue, active)


def _challenger(state: State, queue: Queue, active: Consumer, *, stays: bool) -> Consumer | None:
    """The consumer that takes over from the active one: the next where that may not stay, else only
    one of higher priority. Waiting ones are walked only where there may be such a one."""
    if stays and max(queue.ranks) <= active.priority:
        return None
    best = _best_waiting(state, queue)
    return None if best is None or (stays and best.priority <= active.priority) else best


def _best_waiting(state: State, queue: Queue) -> Consumer | None:
    """Of those that wait and may become active the first by priority, then by arrival."""
    best: Consumer | None = None
    for number in queue.consumers:
        consumer = state.consumers[number]
        if consumer.base != Base.WAITING or not is_eligible(state, consumer):
            continue
        if best is None or (-consumer.priority, consumer.arrival) < (-best.priority, best.arrival):
            best = consumer
    return best


def activity(consumer: Consumer, *, active: bool) -> Activity:
    """Notify its client of whether it is the active one."""
    return Activity(consumer.session, consumer.number, active, consumer.label)


def activate(step: Step, queue: Queue, consumer: Consumer) -> None:
    """Make the consumer the active one, and notify its client."""
    assert queue.active is None, "there are never two active consumers"
    step.state.touch(consumer)
    queue.active = consumer.number
    consumer.base = int(Base.ACTIVE)
    step.effects.append(activity(consumer, active=True))
    refresh(step, queue, consumer)


def deactivate(step: Step, queue: Queue, consumer: Consumer) -> None:
    """Make the active consumer wait, and notify its client; a cancelled one only stops."""
    step.state.touch(consumer)
    queue.active = None
    queue.handover = False
    if consumer.base == Base.ACTIVE:
        consumer.base = int(Base.WAITING)
        step.effects.append(activity(consumer, active=False))
    refresh(step, queue, consumer)


def add_taken(consumer: Consumer, first: int, last: int, *, dead: bool) -> None:
    """Tokens first..last were taken from it (semantics.md section 8).

    Above the bound the two lowest ranges become one that says "returned": in doubt, lock lost. Such
    a range may cover what was held when it was made, and then it goes on to speak for that.
    """
    for low, high in _uncovered(consumer.taken, first, last):
        _add_range(consumer.taken, low, high, dead=dead)


def _uncovered(taken: list[tuple[int, int, bool]], first: int, last: int) -> list[Range]:
    """The parts of first..last that are in no range."""
    found: list[Range] = []
    start = max(bisect_right(taken, (first, NEVER_MS, True)) - 1, 0)
    for low, high, _ in islice(taken, start, None):
        if low > last:
            break
        if first < low:
            found.append((first, low - 1))
        first = max(first, high + 1)
    if first <= last:
        found.append((first, last))
    return found


def _add_range(taken: list[tuple[int, int, bool]], first: int, last: int, *, dead: bool) -> None:
    place = bisect_left(taken, (first, last, dead))
    if place and taken[place - 1][1] + 1 == first and taken[place - 1][2] == dead:
        place -= 1
        first = taken.pop(place)[0]
    if place < len(taken) and last + 1 == taken[place][0] and taken[place][2] == dead:
        last = taken.pop(place)[1]
    taken.insert(place, (first, last, dead))
    _merge_lowest(taken)


def _merge_lowest(taken: list[tuple[int, int, bool]]) -> None:
    """Merge the two lowest ranges if a new one exceeds the bound."""
    if len(taken) > limits.TAKEN_RANGES:
        taken[:2] = [(taken[0][0], taken[1][1], False)]


def untake(consumer: Consumer, token: int) -> None:
    """A token that was taken has been settled late: it is taken no more, and parts its range."""
    taken = consumer.taken
    place = bisect_right(taken, (token, NEVER_MS, True)) - 1
    first, last, dead = taken[place]
    assert first <= token <= last, "a token that can be settled late was not taken"
    parts = ((first, token - 1, dead), (token + 1, last, dead))
    taken[place : place + 1] = [part for part in parts if part[0] <= part[1]]
    _merge_lowest(taken)


def resolve(consumer: Consumer, below: int) -> None:
    """The client never asks about tokens under `below` again: their ranges are forgotten."""
    if below <= consumer.resolved_below:
        return
    below = min(below, consumer.next_token)
    consumer.resolved_below = below
    taken = consumer.taken
    place = bisect_left(taken, (below, 0, False))
    if place and taken[place - 1][1] >= below:
        place -= 1
        taken[place] = (below, taken[place][1], taken[place][2])
    del taken[:place]
