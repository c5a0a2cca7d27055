"""The replicated machine of one node: entries of the log in, replies and effects out.

Owns the machine and the way from an entry to its commands; every node runs it, in log order. Also
the few looks at the state that requests need before the log. Must not know connections, sessions'
sockets or Raft's roles: whoever leads asks for the outcome, the others drop it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fifo.machine.commands import Command, Lead, Publish, Settle, code_of, from_list
from fifo.machine.machine import Machine, Meta, Outcome
from fifo.machine.queries import Held
from fifo.machine.snapshot import bodies, format
from fifo.machine.state.records import RUNNING, Consumer, Frozen, Queue, RedriveState
from fifo.machine.types import Range
from node.broker import entry

__all__ = ["MachineHost"]

_FREQUENT: dict[Any, Callable[..., Command]] = {
    code_of(Publish): Publish,
    code_of(Settle): Settle,
}
"""By code; their fields are plain values and tuples, which is how an entry is unpacked."""


class HostView:
    """A frozen state, as Raft asks for it (`node.raft.state_source.StateView`)."""

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen

    def live(self) -> Iterator[array[int]]:
        """The entries of the log that the state points to, ascending."""
        return bodies.live(self._frozen)

    def chunks(self) -> Iterator[bytes]:
        """The state's canonical bytes."""
        return format.chunks(self._frozen)

    def release(self) -> None:
        """It is not read any more."""
        self._frozen.release()


class MachineHost:
    """Applies entries; what it raises stops the node, for then the state may be half changed."""

    def __init__(
        self,
        machine: Machine,
        read: Callable[[int], memoryview],
        taken_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`read(index)`: the payload of an entry in this node's log; `taken_over`: the state is
        another one now, and nothing that was known of it holds any more."""
        self.machine = machine
        self._read = read
        self._taken_over = taken_over

    def apply(self, index: int, payload: memoryview) -> tuple[entry.Entry, list[Command], Outcome]:
        """Apply one entry of the log."""
        unpacked = entry.unpack(payload)
        batch = [_command(plain) for plain in unpacked.commands]
        meta = Meta(index, unpacked.stamp_ms, unpacked.wall_ms, unpacked.area)
        outcome = self.machine.apply_batch(meta, batch)
        assert len(outcome.replies) == len(batch), "every command has one reply"
        return unpacked, batch, outcome

    def read_area(self, index: int) -> memoryview:
        """The body area of an entry in this node's log."""
        return entry.area_of(self._read(index))

    # --- snapshots --------------------------------------------------------------------------------

    def freeze(self) -> HostView:
        """The state as it is now, for a snapshot."""
        return HostView(self.machine.freeze())

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """Take over the state of a snapshot, in steps; nothing changes before the last of them.

        Raises `SnapshotError` for what this program cannot read.
        """
        state = yield from format.restoring(chunks)
        self.machine.take_over(state)
        self._taken_over()

    # --- looks at the state, before the log -------------------------------------------------------

    def queues_of_producer(self, name: str) -> list[str]:
        """The queues that a named producer has published to."""
        return self.machine.queues_of_producer(name)

    def has_queue(self, name: str) -> bool:
        """Whether there is such a queue."""
        return name in self.machine.state.queue_names

    def queue_count(self) -> int:
        """How many queues there are."""
        return len(self.machine.state.queues)

    def ready(self, name: str) -> int:
        """Messages of a queue that could be handed out; 0 without such a queue."""
        state = self.machine.state
        number = state.queue_names.get(name)
        return 0 if number is None else state.queues[number].ready

    def for_a_get(self, name: str) -> int:
        """The same without what a get would not find: a paused queue's, and what waits for its key.
        Nobody may have the rest either, perhaps, but that depends on who asks."""
        queue = self.queue(name)
        return 0 if queue is None or queue.paused else queue.ready - queue.in_line.count

    def consumer_count(self) -> int:
        """How many consumers there are."""
        return len(self.machine.state.consumers)

    def max_lock_ms(self, consumer: int) -> int:
        """The bound of one lock with its renewals; 0 without such a consumer."""
        found = self.machine.state.consumers.get(consumer)
        return 0 if found is None else found.max_lock_ms

    def held(
        self, session: int, consumer: int, ranges: Sequence[Range], renewed_ms: int
    ) -> Held | None:
        """What this session's consumer holds of these tokens, for a renewal at that time; None
        where it is not this one's."""
        held = self.machine.held(consumer, ranges, renewed_ms)
        return held if held is not None and held.session == session else None

    def queue(self, name: str) -> Queue | None:
        """A queue of the state, to look at only."""
        state = self.machine.state
        number = state.queue_names.get(name)
        return None if number is None else state.queues[number]

    def redrive(self, name: str) -> RedriveState | None:
        """The queue's redrive while it goes on, paused or not."""
        queue = self.queue(name)
        if queue is None or queue.redrive is None or queue.redrive.status not in RUNNING:
            return None
        return queue.redrive

    def redrives(self) -> list[str]:
        """The queues with a redrive that goes on; looks at every queue, for the start of a term."""
        queues = self.machine.state.queues.values()
        return [one.name for one in queues if self.redrive(one.name) is not None]

    def durable(self, queue: str, name: str) -> Consumer | None:
        """A queue's durable consumer, to look at only."""
        found = self.queue(queue)
        number = None if found is None else found.durables.get(name)
        return None if number is None else self.machine.state.consumers.get(number)

    def session_count(self) -> int:
        """How many sessions there are, connected or not."""
        return len(self.machine.state.sessions)

    def knows_session(self, session_id: bytes) -> bool:
        """Whether this session has begun and not ended."""
        return self.machine.session_of(session_id) is not None

    def session_of(self, session_id: bytes) -> int:
        """A session's number, 0 where it is not known."""
        return self.machine.session_of(session_id) or 0

    def burden(self, session: int) -> tuple[int, int]:
        """How many consumers a session has, and how many messages they hold."""
        state = self.machine.state
        found = state.sessions.get(session)
        if found is None:
            return 0, 0
        held = [state.consumers[number].held for number in found.consumers]
        return len(held), sum(held)

    def drops_oldest(self, name: str) -> bool:
        """Whether a publish to this queue may drop others."""
        queue = self.queue(name)
        return queue is not None and queue.spec.overflow == "drop_oldest"

    def epochs_and_consumers(self, session: int) -> tuple[tuple[int, int], tuple[int, ...]] | None:
        """A session's epochs of its data and control roles, and its consumers."""
        found = self.machine.state.sessions.get(session)
        if found is None:
            return None
        return (found.epochs[0], found.epochs[1]), tuple(found.consumers)


def _command(plain: Sequence[Any]) -> Command:
    """A command of the log. It was checked before it came there: the frequent ones are not checked
    again, which is a third of what they cost a follower."""
    kind = _FREQUENT.get(plain[0])
    return from_list(list(plain)) if kind is None else kind(*plain[1:])


def term_of(batch: list[Command]) -> int | None:
    """The term that an entry opens, where its first command is a `Lead`."""
    first = batch[0] if batch else None
    return first.term if type(first) is Lead else None
