"""A million locks that end at one instant: few index entries, and steps that cost the same."""

import pytest

from fifo.machine import commands, limits
from node.broker.counters import Counters
from node.broker.lock_clock import LockClock
from tests.support.machine import Bench, counted

pytestmark = pytest.mark.slow

MILLION, FEW = 1_000_000, 100_000
HOLDERS = 16
LOCK_MS = 5_000
PIECE = 10_000
STEP = limits.STEP_MESSAGES // limits.RECORD_COST
"""Messages that one tick returns."""


class Ending:
    """Locks of HOLDERS consumers that all end at LOCK_MS, and the leader that looks for them."""

    def __init__(self, locks: int) -> None:
        self.bench = Bench(check=False)
        self.bench.declare("q", lock_ms=LOCK_MS)
        session = self.bench.attach()
        for place in range(HOLDERS):
            self.bench.subscribe(session, "q", f"t{place}", prefetch=locks // HOLDERS)
        for _ in range(locks // PIECE):
            self.bench.publish(session, "q", *[b""] * PIECE)
            self.bench.tick_all()
        assert self.bench.counts("q") == (0, locks, 0)
        self.bench.do(commands.PauseQueue("q"))  # What returns is not handed out again.
        self.clock = LockClock(self.bench.machine, Counters())
        self.clock.begin()

    @property
    def locked(self) -> int:
        return self.bench.counts("q")[1]

    def step(self) -> int:
        """Look once and apply the tick; return the number of locks that it ended."""
        before = self.locked
        expired = self.clock.look(self.bench.now)
        assert len(expired) <= HOLDERS, "ranges, however many tokens they name"
        self.bench.do(commands.Tick(expired))
        self.clock.decided(self.bench.now, expired)
        return before - self.locked


def test_a_million_locks_that_end_together_are_returned_in_steps_of_bounded_work() -> None:
    few, many = Ending(FEW), Ending(MILLION)
    for ending in (few, many):
        assert len(list(ending.bench.machine.lock_consumers())) == HOLDERS
        assert len(ending.clock) == HOLDERS
        assert ending.clock.look(LOCK_MS - 1) == ()
        ending.bench.advance(LOCK_MS)
    first = counted(many.step)
    assert first <= 2 * counted(few.step)
    steps = 1
    while many.locked > STEP:
        assert 0.9 * STEP < many.step() <= STEP, "each stretch of locks counts as one more"
        steps += 1
    assert counted(many.step) <= 2 * first, "the last step costs as the first"
    assert MILLION / STEP <= steps + 1 < 1.1 * MILLION / STEP
    assert many.bench.counts("q") == (MILLION, 0, 0)
    assert many.clock.look(many.bench.now) == ()
