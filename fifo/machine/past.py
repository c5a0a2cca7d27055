"""The state as a frozen view has it, for readers: its queues, their consumers, and their messages.

Owns what may be asked of the past. The answers are those of `queries.py`, given a state whose
records come out of the view. What is read in steps is kept by the view first, for the machine goes
on between two of them. Changes nothing; must not know who reads.
"""

from collections.abc import Generator
from typing import Any, cast

from fifo.machine import queries
from fifo.machine.limits import BLOCK_BITS, PAST_ROWS
from fifo.machine.past_queue import PastQueue
from fifo.machine.queries import Plain
from fifo.machine.state.records import KINDS, Frozen, Queue, State

_NAMES_PER_STEP = 512
"""Queues whose names one step looks at: a millisecond."""


class _Items:
    """The records of one kind, as a table of the state."""

    def __init__(self, view: Frozen, kind: str) -> None:
        self._view = view
        self._kind = kind

    def __getitem__(self, number: int) -> Any:
        return self._view.item(self._kind, number)

    def get(self, number: int) -> Any:
        """The record, or None: a session may be gone before its consumer is."""
        try:
            return self._view.item(self._kind, number)
        except KeyError:
            return None


class _State:
    """A view with the names of a state: as much of it as queries read."""

    def __init__(self, view: Frozen) -> None:
        self._scalars = view.scalars
        self.queue_names: dict[str, int] = {}
        for kind, table in KINDS.items():
            setattr(self, table, _Items(view, kind))

    def __getattr__(self, name: str) -> Any:
        try:
            return self._scalars[name]
        except KeyError:
            raise AttributeError(name) from None


class Past:
    """A frozen view, read by people. `opening` has to be exhausted before anything else."""

    def __init__(self, view: Frozen) -> None:
        self._view = view
        self._past = _State(view)
        self._state = cast("State", self._past)
        self._queues: dict[int, PastQueue] = {}

    def opening(self) -> Generator[None, None, None]:
        """Learn the names of all queues, in bounded steps."""
        names: dict[str, int] = {}
        for count, number in enumerate(self._view.numbers("queue")):
            queue: Queue = self._view.item("queue", number)
            if not queue.deleted:
                names[queue.name] = number
            if count % _NAMES_PER_STEP == _NAMES_PER_STEP - 1:
                yield
        self._past.queue_names = names

    @property
    def cluster_time_ms(self) -> int:
        """The replicated time then."""
        return self._state.cluster_time_ms

    def queues(self) -> list[str]:
        """The names of all queues, in the order of their creation."""
        return list(self._past.queue_names)

    def has_queue(self, name: str) -> bool:
        """Whether there was such a queue."""
        return name in self._past.queue_names

    def overview(self, name: str) -> Plain | None:
        """Counts, spec and counters of a queue; None without such a queue."""
        return queries.queue_overview(self._state, name)

    def consumers_of(self, name: str, after: int, most: int) -> list[Plain]:
        """Up to `most` consumers of a queue with numbers above `after`, by their numbers."""
        queue: Queue = self._state.queues[self._past.queue_names[name]]
        numbers = sorted(number for number in queue.consumers if number > after)[:most]
        return [queries.consumers_of(self._state, name, None, only)[0] for only in numbers]

    def session_id(self, number: int) -> bytes:
        """The id of a session; empty where there is none."""
        session = self._state.sessions.get(number)
        return b"" if session is None else session.session_id

    def reading(self, name: str) -> Generator[None, None, PastQueue]:
        """A queue whose pages can be read, in bounded steps; quick where it was read before."""
        number = self._past.queue_names[name]
        found = self._queues.get(number)
        if found is not None:
            return found
        view = self._view
        queue: Queue = view.keep(view.item("queue", number))
        holders = []
        for count, one in enumerate(queue.consumers):
            consumer = view.item("consumer", one)
            if consumer.held:
                holders.append(view.keep(consumer))
            if count % PAST_ROWS == PAST_ROWS - 1:
                yield
        found = PastQueue(self._state, queue, holders)
        yield from found.preparing()
        self._queues[number] = found
        return found

    @property
    def kept_messages(self) -> int:
        """Messages of the queues that the view had to copy, or that were read: what it costs."""
        return sum(queue.total for queue in self._view.kept("queue"))

    @property
    def unshared_messages(self) -> int:
        """Messages in blocks that the view has for itself alone: what it costs, unless it is read.
        Takes some 50 nanoseconds for each thousand messages."""
        return self._view.blocks_alone() << BLOCK_BITS

    def release(self) -> None:
        """End it: nothing may be asked any more."""
        self._view.release()
