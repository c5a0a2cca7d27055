"""The side of the replicated state: all that happened, by the entries of the log.

Owns the record of what was stored, handed out, settled and lost, made from the entries of the log
where each is applied first (committed: a majority has it). Must not know clients, or what they
hear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fifo.machine import Machine, commands
from fifo.machine.effects import Deliver
from fifo.machine.replies import (
    Attached,
    Declared,
    Deleted,
    Published,
    PublishedAcross,
    Purged,
    Receipt,
    Reply,
)
from fifo.machine.verbs.columns import Columns, parts, read
from fifo.words.settlement import Status, Verb
from tests.sim.world import Applied

LOCKS_MAX = 10_000
"""Locks of a queue that are looked at: all."""

Lock: TypeAlias = tuple[int, int]
"""The number of a consumer, and a token of it."""


class Stored(NamedTuple):
    """A message in the log, under its id."""

    id: str
    queue: str
    queue_number: int
    place: int
    """The messages that were stored before it."""


class Handed(NamedTuple):
    """A message that was handed out for the first time under this lock."""

    id: str
    queue: str
    session: int
    attempt: int
    failures: int
    lock_s: float
    at: float


class Settled(NamedTuple):
    """The outcome of a settlement for one lock, when it was applied."""

    verb: Verb
    status: Status
    late: bool
    took_effect: bool
    """The first of its lock that settled anything; all others are answered from its outcome."""
    at: float


@dataclass
class Life:
    """A queue of some name, from its declaration until it was deleted."""

    number: int
    born: float
    died: float | None = None


class Did(NamedTuple):
    """A command about a queue, and its reply."""

    command: commands.Command
    reply: Reply
    at: float


@dataclass
class Truth:
    """The record. `clock` is the world's."""

    clock: Callable[[], float]
    stored: dict[bytes, list[Stored]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    handed: dict[Lock, Handed] = field(default_factory=dict)
    settled: dict[Lock, list[Settled]] = field(default_factory=dict)
    locked: dict[Lock, str] = field(default_factory=dict)
    ended: dict[Lock, float] = field(default_factory=dict)
    queues: dict[str, list[Life]] = field(default_factory=dict)
    did: list[Did] = field(default_factory=list)
    incarnations: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Client objects that attached to a session, in this order."""
    sessions: dict[bytes, list[int]] = field(default_factory=dict)
    """The numbers that a session's id has had."""
    machine: Machine = field(default_factory=Machine)
    on_hand_out: Callable[[Lock, Handed], None] = lambda _lock, _handed: None

    def applied(self, applied: Applied, machine: Machine) -> None:
        """Take an entry, and the state behind it."""
        self.machine = machine
        for command, reply in zip(applied.commands, applied.outcome.replies, strict=True):
            self._replied(applied, command, reply)
        self._look_at_queues()
        self._look_at_locks()
        for effect in applied.outcome.effects:
            if isinstance(effect, Deliver) and not effect.repeat:
                self._handed_out(effect)

    def _replied(self, applied: Applied, command: commands.Command, reply: Reply) -> None:
        now = self.clock()
        match command, reply:
            case commands.Publish(), Published():
                area = applied.entry.area
                sizes, _, columns = read(area, command, command.number, command.numbers_at)
                self._published(area, command, sizes, columns, reply)
            case commands.PublishAcross(), PublishedAcross():
                area = applied.entry.area
                all_sizes, _, beside = read(area, command, 0, None)
                found = parts(area, command, all_sizes, beside)
                for (part, sizes, _, columns), one in zip(found, reply.parts, strict=True):
                    if isinstance(one, Published):
                        self._published(area, part, sizes, columns, one)
            case commands.Settle(), Receipt():
                for first, last, status, late in reply.ranges:
                    for token in range(first, last + 1):
                        lock = (command.consumer, token)
                        self._settled(lock, Verb(command.verb), Status(status), late=late)
            case commands.Attach(), Attached():
                objects = self.incarnations.setdefault(command.session_id, [])
                if command.incarnation not in objects:
                    objects.append(command.incarnation)
                numbers = self.sessions.setdefault(command.session_id, [])
                if reply.session not in numbers:
                    numbers.append(reply.session)
            case _, Declared() | Deleted() | Purged():
                self.did.append(Did(command, reply, now))
            case commands.Declare() | commands.DeleteQueue() | commands.Purge(), _:
                self.did.append(Did(command, reply, now))

    def _settled(self, lock: Lock, verb: Verb, status: Status, *, late: bool) -> None:
        before = self.settled.setdefault(lock, [])
        took = status == Status.OK or (status == Status.DEAD_LETTERED and lock in self.locked)
        took = took and not any(one.took_effect for one in before)
        before.append(Settled(verb, status, late, took, self.clock()))

    def _published(
        self,
        area: memoryview,
        command: commands.Publish,
        sizes: Sequence[int],
        columns: Columns,
        reply: Published,
    ) -> None:
        numbers = columns.numbers or range(command.number, command.number + command.count)
        known = {
            place for one in reply.repeats for place in range(one.place, one.place + one.count)
        }
        at = command.bodies_at
        for place in range(reply.duplicates + reply.stored):
            body = bytes(area[at : at + sizes[place]])
            at += sizes[place]
            if place >= reply.duplicates and place not in known:
                self._keep(command.queue, reply, numbers[place], body)

    def _keep(self, queue: str, reply: Published, number: int, body: bytes) -> None:
        name = f"{reply.queue}.{reply.producer}.{number}"
        one = Stored(name, queue, reply.queue, len(self.bodies))
        assert one.id not in self.bodies, f"{one.id} was stored twice"
        self.bodies[one.id] = body
        self.stored.setdefault(body, []).append(one)

    def _handed_out(self, effect: Deliver) -> None:
        token = effect.first_token
        for run in effect.runs:
            for place in range(run.count):
                lock = (effect.consumer, token)
                one = Handed(
                    f"{run.queue_number}.{run.producer}.{run.number + place}",
                    effect.queue,
                    effect.session,
                    1 if run.attempts is None else run.attempts[place],
                    0 if run.failures is None else run.failures[place],
                    effect.lock_ms / 1000,
                    self.clock(),
                )
                assert lock not in self.handed, f"the lock {lock} was given twice"
                self.handed[lock] = one
                if lock not in self.locked:
                    self.ended[lock] = self.clock()
                self.on_hand_out(lock, one)
                token += 1

    def _look_at_queues(self) -> None:
        names = self.machine.state.queue_names
        for name, lives in self.queues.items():
            if lives[-1].died is None and names.get(name) != lives[-1].number:
                lives[-1].died = self.clock()
        for name, number in names.items():
            lives = self.queues.setdefault(name, [])
            if not lives or lives[-1].number != number:
                lives.append(Life(number, self.clock()))

    def _look_at_locks(self) -> None:
        found: dict[Lock, str] = {}
        for name in self.machine.queues():
            for one in self.machine.locks_of(name, LOCKS_MAX):
                queue, producer, number = one["message"]
                found[one["consumer"], one["token"]] = f"{queue}.{producer}.{number}"
        for lock in self.locked:
            if lock not in found:
                self.ended[lock] = self.clock()
        self.locked = found

    # Questions.

    def life(self, name: str) -> Life | None:
        """The queue that has this name now."""
        lives = self.queues.get(name)
        return lives[-1] if lives and lives[-1].died is None else None

    def was_missing(self, name: str, since: float) -> bool:
        """Whether there was no queue of this name at some time since then."""
        lives = self.queues.get(name, [])
        if not any(one.born <= since and (one.died is None or one.died >= since) for one in lives):
            return True
        return any(one.died is not None and one.died >= since for one in lives)

    def settlements(self, lock: Lock) -> list[Settled]:
        """The settlements of this lock, in order."""
        return self.settled.get(lock, [])

    def carried_out(self, lock: Lock) -> Settled | None:
        """The settlement of this lock that took effect, if one did."""
        return next((one for one in self.settlements(lock) if one.took_effect), None)

    def is_taken(self, session: bytes) -> bool:
        """Whether a second client object has attached to this session."""
        return len(self.incarnations.get(session, ())) > 1

    def knows(self, session: bytes) -> bool:
        """Whether the session exists."""
        return self.machine.session_of(session) is not None

    def since(self, kind: type[commands.Command], name: str, began: float) -> Iterator[Did]:
        """The commands of this kind about a queue since then."""
        for one in self.did:
            if one.at >= began and isinstance(one.command, kind) and one.command.name == name:  # type: ignore[union-attr]  # kinds with a name
                yield one
