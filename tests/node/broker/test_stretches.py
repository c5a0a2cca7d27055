"""The longest stretches of the loop: CPU time, read seldom, never too short."""

from __future__ import annotations

import pytest

from node.broker import limits
from node.broker.stretches import Stretches


class Clocks:
    """A stopwatch, and the CPU time of a thread that others keep from running."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu_seconds = 7.0
        self.readings = 0

    def cpu(self) -> float:
        self.readings += 1
        return self.cpu_seconds

    def work(self, seconds: float, *, away: float = 0.0) -> None:
        """Run for so many seconds, and wait for a core for others."""
        self.now += seconds + away
        self.cpu_seconds += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def stretches(clocks: Clocks) -> Stretches:
    return Stretches(clocks.cpu)


def stretch(stretches: Stretches, clocks: Clocks, seconds: float, *, away: float = 0.0) -> None:
    """Make a stretch of work of the kind `turn`."""
    began = clocks.now
    if began >= stretches.stale_at:
        stretches.read(began)
    clocks.work(seconds, away=away)
    stretches.note("turn", began, clocks.now)


def test_time_without_a_core_is_not_counted(stretches: Stretches, clocks: Clocks) -> None:
    stretch(stretches, clocks, 0.003, away=0.5)
    assert stretches.longest() == {"turn": pytest.approx(0.003)}
    assert stretches.over_aim == {}


def test_work_before_a_stretch_is_counted_for_the_age_of_a_reading_at_most(
    stretches: Stretches, clocks: Clocks
) -> None:
    stretches.read(clocks.now)
    clocks.work(limits.STRETCH_READING_SECONDS * 0.9)
    stretch(stretches, clocks, 0.003, away=0.5)
    longest = stretches.longest()["turn"]
    assert 0.003 <= longest <= 0.003 + limits.STRETCH_READING_SECONDS
    clocks.work(1.0)
    stretch(stretches, clocks, 0.01, away=0.5)
    assert stretches.longest() == {"turn": pytest.approx(0.01)}


def test_every_stretch_over_the_aim_is_counted(stretches: Stretches, clocks: Clocks) -> None:
    for seconds in (0.03, 0.025, 0.021, 0.019):
        stretch(stretches, clocks, seconds)
    assert stretches.over_aim == {"turn": 3}
    assert stretches.longest() == {"turn": pytest.approx(0.03)}


def test_stretches_that_cannot_be_the_longest_are_not_measured(
    stretches: Stretches, clocks: Clocks
) -> None:
    stretch(stretches, clocks, 0.005)
    before = clocks.readings
    for _ in range(1000):
        stretch(stretches, clocks, 0.0001)
    assert clocks.readings - before <= 0.1 / limits.STRETCH_READING_SECONDS + 1
