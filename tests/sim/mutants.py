"""Bugs put back on purpose, each of which the simulator has to find within its seed limit.

Owns the faulty behaviours, as patches for the length of one run, and the runs that find them;
nothing in production can reach them. A mutant that survives is a defect of the checks or faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fifo.client.connection.control import Control
from fifo.machine import consumers, returns
from fifo.machine.commands import Lead
from fifo.machine.replies import Reply
from fifo.machine.state import locks
from fifo.machine.state.records import Consumer, State, Step
from fifo.machine.verbs import sessions, settle, tick
from fifo.wire import Frame
from fifo.words.settlement import Status, Verb
from node.broker import limits
from node.broker.clock import ClusterClock
from node.broker.connections.connection import Binding, Connection
from node.broker.leadership import Leadership
from node.broker.lock_clock import LockClock
from node.broker.requests.notices import NoticeAcks
from node.broker.requests.publishing import Publishing
from node.broker.requests.renewal import Renewals
from node.journal.segments import Preallocation
from node.raft import RaftNode
from node.raft.core import Core
from node.testing.disk import SimFile
from tests.mutants.hunting import Mutant, named, scenario, seeds
from tests.mutants.switch import Switch, edited
from tests.node.broker import test_sessions
from tests.sim import held_locks, test_expiries, test_renewals, test_slow_reads
from tests.sim.plan import Consuming, Fault, Plan, basic, disks, members
from tests.sim.run import run
from tests.support import identity_mutants, member_mutants, repair_mutants
from tests.support.cluster import running


@dataclass(frozen=True, slots=True)
class Search:
    """Runs that find a bug: a seed that does, in how many seeds one must, and of which plans."""

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
    """(consumer, token) of the holder of the message at this position, or None."""
    for consumer in state.consumers.values():
        if at is not None and consumer.queue == at[0]:
            for held, _ in locks.all_holds(consumer):
                if held.position <= at[1] < held.position + held.count:
                    return consumer.number, held.first + at[1] - held.position
    return None


@contextmanager
def token_not_compared() -> Iterator[None]:
    """An ack settles the message, even if another consumer holds it by now."""
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
    publish = Publishing.publish

    def confirm(
        requests: Publishing, connection: Connection, session: Binding, frame: Frame
    ) -> None:
        message: Any = frame.message
        state = requests._machine.state
        queue = state.queue_names.get(message.queue)
        waiting = connection._requests
        publish(requests, connection, session, frame)
        if queue is not None and connection._requests > waiting:
            producer = message.producer or state.sessions[session.number].producer
            item = (queue, producer, 0, message.count, None)
            connection.confirm(frame.correlation, item)

    # Handlers are bound when a term begins, so the class is patched.
    with patch.object(Publishing, "publish", confirm):
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
    """Any node that believes it leads grants renewals."""

    def may_grant(leadership: Leadership) -> bool:
        return leadership.led

    # The handler of renewals has it bound when a term begins, so the class is patched.
    with patch.object(Leadership, "may_grant", may_grant):
        yield


@contextmanager
def no_recheck() -> Iterator[None]:
    """An evaluation takes the messages it was about from their present holders."""
    with _remembering() as positions:

        def evaluate(step: Step, named: tuple[tuple[int, int, int], ...]) -> bool:
            for number, first, last in named:
                for token in range(first, last + 1):
                    found = _holder(step.state, positions.get((id(step.state), number, token)))
                    if found is not None:
                        consumer = step.open_consumer(found[0])
                        returns.time_out(step, consumer, [(found[1], found[1])])
            return False

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


def core(mutant: type[Core]) -> Switch:
    """Have every member run without one of the rules of raft.md."""
    return partial(patch.object, RaftNode, "core_class", mutant)


# --- schedules for what chance finds too seldom ---------------------------------------------------


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


def abandoned_leader(seed: int) -> Plan:
    """The others lose a leader that lives on, and renews what slow handlers hold that find no other
    leader."""
    lost_at = 4.5 + 0.05 * (seed % 8)
    faults = (
        Fault(lost_at - 0.1, "client_cut_from_followers", "n1", "c1"),
        Fault(lost_at, "abandon_leader", "n1"),
        Fault(lost_at + 2.5, "heal", "n1"),
    )
    return Plan(seed, 3, (25, 25), (_RENEWING, _RENEWING, _QUICK), max_deliveries=20, faults=faults)


def twice_abandoned_leader(seed: int) -> Plan:
    """The same with five nodes, of which two live on as leaders, within the lease of the first."""
    plan = abandoned_leader(seed)
    cut, lost, healed = plan.faults
    again = Fault(lost.at + 0.2, "abandon_leader", "n1")
    return replace(plan, nodes=5, faults=(cut, lost, again, healed))


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
    """The same with longer locks: some end when all is healed and a leader is in place."""
    late = Consuming(prefetch=3, lock_s=3.0, workers=3, auto_renew=False, slow=1.0)
    return Plan(seed, 3, (30, 30), (late, late, late), max_deliveries=20, faults=())


def lying(seed: int) -> Plan:
    """A disk lies while messages are published, and then loses its power."""
    faults = (
        Fault(1.5, "disk_lies", f"n{seed % 3 + 1}"),
        Fault(4.0 + 0.1 * seed, "disk_was_lying", f"n{seed % 3 + 1}"),
    )
    return Plan(seed, 3, (45, 45), (_QUICK,), max_deliveries=20, faults=faults)


def filling(seed: int) -> Plan:
    """Disks get full in turn while messages are published and settled, and lose their power."""
    faults = []
    for place in range(6):
        name, at = f"n{place % 3 + 1}", 1.5 + place
        faults += [
            Fault(at, "disk_small", name),
            Fault(at + 0.5, "power", name),
            Fault(at + 0.6, "disk_roomy", name),
            Fault(at + 0.7, "restart", name),
        ]
    return Plan(seed, 3, (45, 45, 45), (_QUICK, _QUICK), max_deliveries=20, faults=tuple(faults))


SEARCHES: tuple[tuple[str, Switch, Search], ...] = (
    ("lock token not compared on ack", token_not_compared, Search(0, 10, overdue)),
    ("nothing is fsynced", nothing_synced, Search(3, 20)),
    ("leader confirms before commit", confirms_early, Search(4, 50)),
    ("new leader does not raise the floors", no_floors, Search(2, 20, paused_leader)),
    ("deadline in leader-local time", local_time, Search(3, 50)),
    (
        "floors cover no lease of the leader before",
        edited(locks, "_written_floor", " + limits.LEASE_MS", ""),
        Search(7, 20, abandoned_leader),
    ),
    ("renewal without the lease", no_lease, Search(5, 50, paused_leader)),
    ("eval_consumer_timeouts without re-check", no_recheck, Search(1, 50, slow_commits)),
    ("delivery count reset at fail-over", counts_reset, Search(2, 20)),
    ("what is due is looked for too seldom", seldom_looks, Search(0, 10, outliving)),
    ("lock clock skips looks", skips_looks, Search(3, 10, outliving)),
    (
        "a leader ends the changes of members that it began itself alone",
        core(member_mutants.LeavesChangesOfOthers),
        Search(0, 10, members),
    ),
    (
        "a node goes by the members of its file",
        core(member_mutants.ForgetsConfigurations),
        Search(4, 20, members),
    ),
    (
        "a journal counts that no member knows",
        core(identity_mutants.CountsUnknownJournals),
        Search(11, 20, disks),
    ),
    (
        "what a disk that lies has acknowledged is not remembered",
        core(identity_mutants.ForgetsAcknowledgements),
        Search(2, 10, lying),
    ),
    (
        "what a full disk did not take counts as written",
        edited(Preallocation, "_write_without", "raise problem", "return"),
        Search(1, 10, filling),
    ),
    ("a flipped bit is not looked for", core(repair_mutants.ReadsNothing), Search(1, 10, disks)),
    (
        "a damaged entry is not asked of the others",
        core(repair_mutants.AsksNobody),
        Search(5, 20, disks),
    ),
)
"""The rule each breaks, the switch that breaks it, and the runs that must find it."""


def noticed(search: Search, seed: int) -> str | None:
    """Run one seed and return the violation, or None; the bug is on, or nothing is found."""
    try:
        run(search.plan(seed))
    except AssertionError as error:
        return str(error)
    return None


def found_by(switch: Switch, search: Search, seed: int) -> str | None:
    """Put the bug back for one seed and return the violation, or None where it goes unnoticed."""
    with switch():
        return noticed(search, seed)


_UNKNOWN = test_sessions.test_a_token_that_was_never_handed_out_is_not_called_lost


def _renew_the_unknown() -> None:
    """Renew on a node what it has never handed out."""

    async def whole() -> None:
        with TemporaryDirectory() as folder:
            async with running(Path(folder), count=1) as cluster:
                leader = await cluster.leader()
                await _UNKNOWN(leader)

    asyncio.run(whole())


_DIRECTED = test_slow_reads.a_slow_read_delays_no_other_client

ENTRIES: tuple[tuple[str, Switch, Callable[[], None]], ...] = (
    (
        "a tick that took locks is followed by a look at once",
        edited(Leadership, "_tick", "if self._tick_again:", "if self._tick_again or expired:"),
        test_expiries.test_expiries_that_trickle_cost_one_entry_per_look,
    ),
    (
        "an acknowledgement of a notice does not wait for room in an entry",
        edited(NoticeAcks, "look", "full and self._now()", "False and self._now()"),
        test_expiries.test_expiries_beside_other_due_work_cost_little_more,
    ),
    (
        "an explicit renewal is an entry though it changes nothing",
        edited(Renewals, "_grant", "held.clears and not (", "not ("),
        test_renewals.test_explicit_renewals_of_a_held_lock_commit_nothing,
    ),
)
"""The bugs that cost an entry too many, found by counting entries."""

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "cluster",
        "old bodies are read on the loop",
        "old bodies are read on the loop",
        test_slow_reads.reads_on_the_loop,
        (scenario(_DIRECTED, _DIRECTED.__name__),),
    ),
    Mutant(
        "cluster",
        "what was never handed out is called lost",
        "what was never handed out is called lost",
        edited(
            Renewals,
            "_pieces",
            "self._machine.handed_out(consumer, piece)",
            "list(piece)",
        ),
        (
            scenario(
                _renew_the_unknown,
                named(test_sessions.test_a_token_that_was_never_handed_out_is_not_called_lost),
            ),
        ),
    ),
    Mutant(
        "cluster",
        "a silent leader is never left for another",
        "a silent leader is never left for another",
        edited(Control, "_stay", "if search is None and silent", "if False"),
        (seeds(partial(held_locks.wrong, fault="pause", lock_s=2.0), "simulator", 5),),
    ),
    *(
        Mutant("cluster", breaks, breaks, switch, (scenario(work, named(work)),))
        for breaks, switch, work in ENTRIES
    ),
    *(
        Mutant(
            "cluster",
            breaks,
            breaks,
            switch,
            (seeds(partial(noticed, search), "simulator", search.limit),),
        )
        for breaks, switch, search in SEARCHES
    ),
)
