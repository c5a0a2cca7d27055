"""From commands to committed entries, and back from replies to whoever waits for them.

Owns the gatherer, the entries on their way, and the match of an applied entry with the requests in
it. Nothing is answered before its entry is committed and applied here; what is lost with the
leadership is not answered at all: the client asks again, by number. Must not know what a command
means or what an answer looks like.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fifo.machine.commands import Command, to_list
from fifo.machine.effects import Effect
from fifo.machine.replies import Reply
from fifo.wire import Buffer
from node.broker import limits
from node.broker.batcher import Batch, Batcher
from node.broker.clock import ClusterClock
from node.broker.counters import Counters
from node.raft import Outcome, RaftNode

logger = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Reply], None]
"""Told the reply of a committed command, in the turn in which its entry was applied."""


class Waiter:
    """Who waits for one command. `late`: answered only after the deliveries of the same entry.

    `lost` is told when the entry is certainly or possibly not applied.
    """

    __slots__ = ("answer", "late", "lost")

    def __init__(
        self, answer: Answer, *, lost: Callable[[Outcome], None] | None = None, late: bool = False
    ) -> None:
        self.answer = answer
        self.lost = lost
        self.late = late


Waiters: TypeAlias = list[Waiter | None]


@dataclass(slots=True)
class Applied:
    """One entry that was applied while this node leads, and what came of it."""

    index: int
    replies: Sequence[Reply]
    effects: Sequence[Effect]
    waiters: Waiters | None = None


class Proposals:
    """Gathers commands, hands entries to Raft, and pairs replies with waiters."""

    def __init__(
        self,
        clock: ClusterClock,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        wake: Callable[[], None],
        wake_within: Callable[[float], None],
        counters: Counters,
        weigh: Callable[[Sequence[Any]], int],
    ) -> None:
        """`wake` asks for a turn, `wake_within` for one within so many seconds; `weigh`:
        microseconds that a command in its plain form may take to be applied."""
        self._clock = clock
        self._weigh = weigh
        self._counters = counters
        self._now = now
        self._wall_ms = wall_ms
        self._wake = wake
        self._wake_within = wake_within
        self._raft: RaftNode | None = None
        self._batcher: Batcher[Waiter | None] = Batcher(now)
        self._in_flight: dict[int, tuple[int, float]] = {}
        self._next_ticket = 0
        self._in_flight_bytes = 0
        self._applied: list[Applied] = []
        self.submitted_at = now()
        self.entries_total = 0

    def attach(self, raft: RaftNode) -> None:
        """Where entries go; the node and its broker know each other."""
        self._raft = raft

    @property
    def in_flight(self) -> int:
        """Entries handed to Raft that have no outcome yet."""
        return len(self._in_flight)

    @property
    def crowded(self) -> bool:
        """True where so much waits that no request should be read."""
        return self._batcher.gathered_bytes > limits.GATHERED_BYTES_MAX

    @property
    def relaxed(self) -> bool:
        """True where requests can be read again."""
        return self._batcher.gathered_bytes <= limits.GATHERED_BYTES_MAX // 2

    # --- proposing --------------------------------------------------------------------------------

    def place(self, raw_bytes: int, weight: int) -> int:
        """Offset in the entry's area that a raw part of a command of this weight will have, if
        proposed next."""
        return self._batcher.place(raw_bytes, weight)

    def propose(self, command: Command, waiter: Waiter | None, raw: Buffer = b"") -> None:
        """Gather one command; with a raw part only right after `place` for it."""
        self.propose_plain(to_list(command), waiter, raw)

    def propose_plain(self, plain: list[Any], waiter: Waiter | None, raw: Buffer = b"") -> None:
        """The same for a command in its plain form, which has been checked."""
        if self._batcher.empty:
            if self._in_flight:
                # In company: it leaves when an entry commits; a turn before is for nothing.
                self._wake_within(limits.GATHER_SECONDS)
            else:
                self._wake()
        self._batcher.add(plain, waiter, raw, weight=self._weigh(plain))

    def flush(self, *, committed: bool = False) -> None:
        """Hand Raft what is due, as far as it takes more; `committed`: an entry just was."""
        if self._batcher.empty:
            return
        now = self._now()
        while (
            (committed and not self._batcher.empty)
            or self._batcher.due(now, in_flight=len(self._in_flight))
        ) and self._room:
            committed = False
            batch = self._batcher.take()
            assert batch is not None, "a batch is due"
            self._submit(batch)

    @property
    def _room(self) -> bool:
        return (
            len(self._in_flight) < limits.ENTRIES_IN_FLIGHT_MAX
            and self._in_flight_bytes < limits.IN_FLIGHT_BYTES_MAX
        )

    def submit_now(self, command: Command, waiter: Waiter) -> None:
        """One command as an entry of its own, before everything gathered: a term's first."""
        alone: Batcher[Waiter | None] = Batcher(self._now)
        alone.add(to_list(command), waiter)
        batch = alone.take()
        assert batch is not None, "one command is gathered"
        self._submit(batch)

    def _submit(self, batch: Batch[Waiter | None]) -> None:
        assert self._raft is not None, "attached before anything is proposed"
        self._next_ticket += 1
        ticket, size = self._next_ticket, batch.size_bytes
        self.submitted_at = self._now()
        self._in_flight[ticket] = size, self.submitted_at
        self._in_flight_bytes += size
        self.entries_total += 1
        waiters = batch.contexts

        def done(outcome: Outcome, index: int) -> None:
            self._done(ticket, waiters, outcome, index)

        parts = batch.parts(stamp_ms=self._clock.stamp_ms(), wall_ms=self._wall_ms())
        self._raft.submit(parts, done)

    def wait(self) -> float | None:
        """Seconds until something gathered is due; None where nothing waits for time alone."""
        if self._batcher.empty or not self._room:
            return None
        return self._batcher.wait(self._now())

    # --- outcomes ---------------------------------------------------------------------------------

    def applied(self, index: int, replies: Sequence[Reply], effects: Sequence[Effect]) -> None:
        """An entry was applied while this node leads; its waiters, if any, are told of it next."""
        self._applied.append(Applied(index, replies, effects))

    def _done(self, ticket: int, waiters: Waiters, outcome: Outcome, index: int) -> None:
        found = self._in_flight.pop(ticket, None)
        if found is None:
            return  # Leadership was lost meanwhile: nobody waits any more.
        size, submitted_at = found
        self._in_flight_bytes -= size
        if outcome is Outcome.COMMITTED:
            self._counters.commit.note(self._now() - submitted_at)
            if self._applied and self._applied[-1].index == index:
                self._applied[-1].waiters = waiters
            self.flush(committed=True)
            return
        logger.warning(
            "event=entry_lost outcome=%s index=%d commands=%d", outcome.value, index, len(waiters)
        )
        for waiter in waiters:
            if waiter is not None and waiter.lost is not None:
                waiter.lost(outcome)

    def take_applied(self) -> list[Applied]:
        """What was applied since the last call, oldest first."""
        applied, self._applied = self._applied, []
        return applied

    def clear(self) -> None:
        """Leadership is lost: what is gathered or on its way is answered by nobody."""
        self._batcher.clear()
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._applied.clear()
