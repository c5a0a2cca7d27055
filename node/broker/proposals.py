"""Commands into committed entries, and replies back to their waiters.

Owns the batcher, the entries in flight, and the match of an applied entry with the requests in it.
A waiter is answered only after its entry is committed and applied here. Waiters that are lost with
the leadership get no answer: the client retries, by number. Must not know what a command means or
what an answer looks like.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from fifo.machine.contract import Command, Effect, Reply, to_list
from fifo.wire import Buffer
from node.broker import limits
from node.broker.batcher import Batch, Batcher
from node.broker.clock import Clocks
from node.broker.counters import Counters
from node.broker.turns import Turns
from node.broker.upgrade import Upgrade
from node.raft import Outcome, RaftNode

logger = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Reply], None]
"""Called with the reply of a committed command, in the turn in which its entry was applied."""


class Waiter:
    """The callbacks of one command. `late`: answer only after the deliveries of the same entry.

    `lost` is called instead of `answer` if the entry is, or may be, not applied.
    """

    __slots__ = ("answer", "late", "lost")

    def __init__(
        self, answer: Answer, *, lost: Callable[[Outcome], None] | None = None, late: bool = False
    ) -> None:
        self.answer = answer
        self.lost = lost
        self.late = late


Waiters: TypeAlias = list[Waiter | None]
Plain: TypeAlias = Sequence[Any]


@dataclass(slots=True)
class Applied:
    """The outcome of one entry that was applied while this node leads."""

    index: int
    replies: Sequence[Reply]
    effects: Sequence[Effect]
    waiters: Waiters | None = None


class Proposals:
    """Gathers commands, hands entries to Raft, and pairs replies with waiters."""

    def __init__(
        self,
        raft: RaftNode,
        clocks: Clocks,
        turns: Turns,
        counters: Counters,
        weigh: Callable[[Plain], int],
        upgrade: Upgrade,
    ) -> None:
        """`weigh`: microseconds that applying a command, in its plain form, may take; `upgrade`
        knows the version in use."""
        self._raft = raft
        self._upgrade = upgrade
        self._clocks = clocks
        self._now = clocks.now
        self._turns = turns
        self._counters = counters
        self.weigh = weigh
        self.batcher: Batcher[Waiter | None] = Batcher(clocks.now)
        """The gathered commands."""
        self._in_flight: dict[int, tuple[int, int, float]] = {}
        self._next_ticket = 0
        self._in_flight_bytes = 0
        self.outcomes: list[Applied] = []
        """Entries applied since `take_applied`, oldest first."""
        self._stopped = False
        self.submitted_at = clocks.now()
        self.entries_total = 0

    @property
    def in_flight(self) -> int:
        """Entries handed to Raft that have no outcome yet."""
        return len(self._in_flight)

    # --- proposing --------------------------------------------------------------------------------

    def propose(
        self,
        build: Callable[[int], Plain],
        waiter: Waiter | None,
        *,
        weight: int,
        raw: Buffer = b"",
        version: int = 0,
        patient: bool = False,
    ) -> None:
        """Gather one command with its raw part; see `Batcher.add`. `build` must be valid input."""
        batcher = self.batcher
        first, waits = not batcher.gathered_bytes, not batcher.in_company()
        batcher.add(build, waiter, raw, weight=weight, version=version, patient=patient)
        if self._in_flight or patient:
            # The batch leaves with the next one, or when that entry commits; an earlier turn would
            # do nothing.
            if first:
                self._turns.within(limits.GATHER_SECONDS)
        elif waits:
            wait_s = batcher.wait(self._now(), in_flight=0)
            if wait_s:
                self._turns.within(wait_s)
            else:
                self._turns.ask()

    def propose_command(self, command: Command, waiter: Waiter | None) -> None:
        """Gather one command without a raw part."""
        self.propose_plain(to_list(command), waiter)

    def propose_plain(self, plain: Plain, waiter: Waiter | None) -> None:
        """Gather one checked command, in its plain form, without a raw part."""
        self.propose(lambda _: plain, waiter, weight=self.weigh(plain))

    def flush(self, *, committed: bool = False) -> None:
        """Hand due batches to Raft, as far as it takes more; `committed`: an entry just was."""
        batcher, now = self.batcher, self._now()
        while (
            batcher.gathered_bytes
            and (
                (committed and batcher.may_leave(now))
                or batcher.due(now, in_flight=len(self._in_flight))
            )
            and self._room
        ):
            committed = False
            batch = batcher.take()
            assert batch is not None, "a batch is due"
            self._submit(batch)

    @property
    def _room(self) -> bool:
        return (
            len(self._in_flight) < limits.ENTRIES_IN_FLIGHT_MAX
            and self._in_flight_bytes < limits.IN_FLIGHT_BYTES_MAX
        )

    def submit_now(self, command: Command, waiter: Waiter) -> None:
        """Submit a term's first command: an entry of its own, ahead of all gathered ones."""
        alone: Batcher[Waiter | None] = Batcher(self._now)
        plain = to_list(command)
        alone.add(lambda _: plain, waiter, weight=0)
        batch = alone.take()
        assert batch is not None, "one command is gathered"
        self._submit(batch)

    def _submit(self, batch: Batch[Waiter | None]) -> None:
        self._next_ticket += 1
        ticket, size = self._next_ticket, batch.size_bytes
        self.submitted_at = self._now()
        self._in_flight[ticket] = size, batch.with_raw, self.submitted_at
        self._in_flight_bytes += size
        self.entries_total += 1
        clocks = self._clocks
        parts = batch.parts(
            version=self._upgrade.used,
            stamp_ms=clocks.cluster.stamp_ms(),
            wall_ms=clocks.wall_ms(),
        )
        self._raft.submit(parts, partial(self._done, ticket, batch.contexts))

    def wait(self) -> float | None:
        """Seconds until a gathered batch is due; None if none waits for time alone."""
        if not self._room:
            return None
        return self.batcher.wait(self._now(), in_flight=len(self._in_flight))

    # --- outcomes ---------------------------------------------------------------------------------

    def applied(self, index: int, replies: Sequence[Reply], effects: Sequence[Effect]) -> None:
        """Note an entry that was applied while this node leads; its waiters are paired next."""
        self.outcomes.append(Applied(index, replies, effects))

    def _done(self, ticket: int, waiters: Waiters, outcome: Outcome, index: int) -> None:
        if self._stopped:
            return  # The term ended meanwhile: no waiter is left.
        size, with_raw, submitted_at = self._in_flight.pop(ticket)
        self._in_flight_bytes -= size
        if outcome is Outcome.COMMITTED:
            now = self._now()
            took_s = now - submitted_at
            self._counters.commit.note(took_s)
            if self.outcomes and self.outcomes[-1].index == index:
                self.outcomes[-1].waiters = waiters
            part_s = min(took_s * limits.COMPANY_PART, limits.GATHER_SECONDS)
            until = max(submitted_at + limits.GATHER_SECONDS, now + part_s)
            self.batcher.committed(size, with_raw, until)
            if self.batcher.gathered_bytes:
                self.flush(committed=True)
            return
        logger.warning(
            "event=entry_lost outcome=%s index=%d commands=%d", outcome.value, index, len(waiters)
        )
        for waiter in waiters:
            if waiter is not None and waiter.lost is not None:
                waiter.lost(outcome)

    def take_applied(self) -> list[Applied]:
        """Return the entries applied since the last call, oldest first."""
        applied, self.outcomes = self.outcomes, []
        return applied

    def stop(self) -> None:
        """Ignore outcomes from now on: the term is over, and its clients retry elsewhere."""
        self._stopped = True
