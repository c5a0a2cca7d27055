"""Bugs put back on purpose, each of which the simulator has to find within its seed limit.

Owns the faulty behaviours, as patches for the length of one run; nothing in production can reach
them. `test_mutants.py` runs them. A mutant that survives is a defect of the checks or the faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest.mock import patch

from fifo.machine import consumers, returns
from fifo.machine.commands import Lead
from fifo.machine.replies import Reply
from fifo.machine.state import locks
from fifo.machine.state.records import Consumer, State, Step
from fifo.machine.verbs import sessions, settle, tick
from fifo.wire import Frame
from fifo.words.settlement import Status, Verb
from node.broker import limits
from node.broker.broker import Broker
from node.broker.clock import ClusterClock
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Session
from node.broker.lock_clock import LockClock
from node.broker.requests.requests import Requests
from tests.sim.plan import Consuming, Fault, Plan, basic
from tests.sim.run import run
from tests.support.simdisk import SimFile


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: how it is put back, a seed that finds it, in how many one must, and by which plans."""

    name: str
    patched: Callable[[], Any]
    known: int
    limit: int
    plan: Callable[[int], Plan] = basic


# --- faulty behaviours ----------------------------------------------------------------------------

_Positions = dict[tuple[int, int, int], tuple[int, int]]


@contextmanager
def _remembering() -> Iterator[_Positions]:
    """Where each token's message stood: what a machine without fencing would go by."""
    positions: _Positions = {}
    hold = locks.hold

    def remember(
        state: State, consumer: Consumer, lock_ms: int, position: int, count: int, now_ms: int
    ) -> int:
        first = hold(state, consumer, lock_ms, position, count, now_ms)
        for place in range(count):
            key = (id(state), consumer.number, first + place)
            positions[key] = (consumer.queue, position + place)
        return first

    with patch.object(locks, "hold", remember):
        yield positions


def _holder(state: State, at: tuple[int, int] | None) -> tuple[int, int] | None:
    """(consumer, token) of whoever holds the message that stands there."""
    for consumer in state.consumers.values():
        if at is not None and consumer.queue == at[0]:
            for held, _ in locks.all_holds(consumer):
                if held.position <= at[1] < held.position + held.count:
                    return consumer.number, held.first + at[1] - held.position
    return None


@contextmanager
def token_not_compared() -> Iterator[None]:
    """An ack settles the message, whoever holds it by now."""
    unheld = settle._settle_unheld

    with _remembering() as positions:

        def settle_anyhow(
            step: Step, command: Any, queue: Any, consumer: Any, first: int, last: int, lines: Any
        ) -> None:
            for token in range(first, last + 1):
                at = positions.get((id(step.state), consumer.number, token))
                found = _holder(step.state, at) if command.verb == Verb.ACK else None
                if found is None:
                    unheld(step, command, queue, consumer, token, token, lines)
                    continue
                holder = step.open_consumer(found[0])
                for held in locks.release(step.state, holder, found[1], found[1]):
                    settle.ack(step, queue, held.position, held.count)
                consumers.refresh(step, queue, holder)
                settle.add_line(lines, token, token, Status.OK)

        with patch.object(settle, "_settle_unheld", settle_anyhow):
            yield


@contextmanager
def nothing_synced() -> Iterator[None]:
    """fdatasync returns at once and does nothing."""

    def sync(file: SimFile) -> None:
        file._storage.syncs += 1

    with patch.object(SimFile, "sync", sync):
        yield


@contextmanager
def confirms_early() -> Iterator[None]:
    """The leader confirms what it has only proposed."""
    publish = Requests.publish

    def confirm(requests: Requests, connection: Connection, session: Session, frame: Frame) -> None:
        message: Any = frame.message
        state = requests._host.machine.state
        queue = state.queue_names.get(message.queue)
        waiting = connection._requests
        publish(requests, connection, session, frame)
        if queue is not None and connection._requests > waiting:
            producer = message.producer or state.sessions[session.number].producer
            item = (frame.correlation, queue, producer, 0, message.count, None)
            connection.confirm(item)

    # The handlers are bound when a broker is made, so the class is the place.
    with patch.object(Requests, "publish", confirm):
        yield


@contextmanager
def no_floors() -> Iterator[None]:
    """A new leader goes by the replicated deadlines alone."""

    def floor_of(_state: State, consumer: Consumer) -> tuple[int, int]:
        return consumer.floor_ms, consumer.floor_token

    with patch.object(locks, "floor_of", floor_of):
        yield


@contextmanager
def local_time() -> Iterator[None]:
    """Each leader stamps its own monotonic clock."""

    def now_ms(clock: ClusterClock) -> int:
        return int(clock._monotonic() * 1000)

    with patch.object(ClusterClock, "now_ms", now_ms):
        yield


@contextmanager
def no_lease() -> Iterator[None]:
    """Renewals are granted by whoever believes to lead."""

    def may_answer(broker: Broker) -> bool:
        return broker.led

    # The renewer asks this; it is bound when a broker is made, so the class is the place.
    with patch.object(Broker, "may_answer", may_answer):
        yield


@contextmanager
def no_recheck() -> Iterator[None]:
    """An evaluation takes the messages it was about from whoever holds them by now."""
    with _remembering() as positions:

        def evaluate(step: Step, named: tuple[tuple[int, int, int], ...]) -> None:
            for number, first, last in named:
                for token in range(first, last + 1):
                    found = _holder(step.state, positions.get((id(step.state), number, token)))
                    if found is not None:
                        consumer = step.open_consumer(found[0])
                        returns.time_out(step, consumer, [(found[1], found[1])])

        with patch.object(tick, "_evaluate", evaluate):
            yield


@contextmanager
def counts_reset() -> Iterator[None]:
    """Attempts and failures begin anew with every term."""
    lead = sessions.lead

    def forget(step: Step, command: Lead) -> Reply:
        for number in step.state.queues:
            queue = step.open_queue(number)
            for position, record in list(queue.records.items()):
                queue.records[position] = record._replace(attempts=1, failures=0)
        return lead(step, command)

    with patch.object(sessions, "lead", forget):
        yield


@contextmanager
def seldom_looks() -> Iterator[None]:
    """A leader looks for what is due every 0.6 s, not every 0.05 s."""
    with patch.object(limits, "LOOK_SECONDS", 0.6):
        yield


@contextmanager
def skips_looks() -> Iterator[None]:
    """The lock clock finds nothing in nine of ten looks."""
    look = LockClock.look
    looks = count()

    def lazy(clock: LockClock, now_ms: int) -> tuple[tuple[int, int, int], ...]:
        return () if next(looks) % 10 else look(clock, now_ms)

    with patch.object(LockClock, "look", lazy):
        yield


def reads_on_the_loop() -> Any:
    """What a delivery needs is read by the loop, which stands meanwhile. Found by a scenario."""

    def read(broker: Broker, index: int) -> memoryview:
        return broker._raft.read(index)

    return patch.object(Broker, "_read", read)


# --- schedules for what chance finds too seldom ---------------------------------------------------


_SLOW = Consuming(prefetch=1, lock_s=3.0, workers=1, auto_renew=True, slow=1.0)
_QUICK = Consuming(prefetch=20, lock_s=1.0, workers=1, auto_renew=True, slow=0.0)


_RENEWING = Consuming(prefetch=1, lock_s=2.0, workers=1, auto_renew=True, slow=1.0)


def paused_leader(seed: int) -> Plan:
    """A leader stops for two seconds while a slow handler renews that finds no other leader."""
    faults = (
        Fault(4.5, "client_cut_from_followers", "n1", "c1"),
        Fault(4.6, "pause_leader", "n1"),
        Fault(6.5 + 0.05 * (seed % 8), "resume", "n1"),
    )
    return Plan(seed, 3, (25, 25), (_RENEWING, _RENEWING, _QUICK), max_deliveries=20, faults=faults)


def killed_leader(seed: int) -> Plan:
    """A leader dies while slow handlers hold what only renewals keep locked."""
    faults = (Fault(5.0 + 0.1 * (seed % 10), "kill_leader", "n1"), Fault(6.5, "restart", "n1"))
    consumers = (_SLOW, _SLOW, _SLOW, _QUICK, _QUICK, _QUICK)
    return Plan(seed, 3, (25, 25), consumers, max_deliveries=20, faults=faults)


def slow_commits(seed: int) -> Plan:
    """Settlements race the evaluation of their own locks: a commit takes a fifth of a lock."""
    hasty = Consuming(prefetch=5, lock_s=1.0, workers=5, auto_renew=False, slow=1.0)
    names = ("n1", "n2", "n3")
    faults = tuple(
        Fault(1.2, "slow", one, other, 25) for one in names for other in names if one != other
    )
    return Plan(seed, 3, (45, 45), (hasty, hasty, hasty), max_deliveries=20, faults=faults)


def overdue(seed: int) -> Plan:
    """Handlers that outlive their locks, and ack all the same."""
    late = Consuming(prefetch=3, lock_s=1.0, workers=3, auto_renew=False, slow=1.0)
    return Plan(seed, 3, (30, 30), (late, late, late), max_deliveries=20, faults=())


def outliving(seed: int) -> Plan:
    """The same with locks so long that some end when all is healed and a leader is in place."""
    late = Consuming(prefetch=3, lock_s=3.0, workers=3, auto_renew=False, slow=1.0)
    return Plan(seed, 3, (30, 30), (late, late, late), max_deliveries=20, faults=())


MUTANTS = (
    Mutant("lock token not compared on ack", token_not_compared, 0, 10, overdue),
    Mutant("nothing is fsynced", nothing_synced, 3, 20),
    Mutant("leader confirms before commit", confirms_early, 4, 50),
    Mutant("new leader does not raise the floors", no_floors, 0, 20, killed_leader),
    Mutant("deadline in leader-local time", local_time, 3, 50),
    Mutant("renewal without the lease", no_lease, 5, 50, paused_leader),
    Mutant("eval_consumer_timeouts without re-check", no_recheck, 1, 50, slow_commits),
    Mutant("delivery count reset at fail-over", counts_reset, 2, 20),
    Mutant("what is due is looked for too seldom", seldom_looks, 0, 10, outliving),
    Mutant("lock clock skips looks", skips_looks, 3, 10, outliving),
)


def noticed(mutant: Mutant, seed: int) -> str | None:
    """What a seed says while the mutant is switched on: the violation, or None."""
    try:
        run(mutant.plan(seed))
    except AssertionError as error:
        return str(error)
    return None


def found_by(mutant: Mutant, seed: int) -> str | None:
    """What a seed says of a mutant: the violation, or None where it goes unnoticed."""
    with mutant.patched():
        return noticed(mutant, seed)
