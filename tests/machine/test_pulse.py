"""The pulse of a queue: while it is equal, so are the figures that it stands for."""

from __future__ import annotations

import pytest

from fifo.machine import commands
from fifo.machine.contract import QueueFigures
from tests.machine.test_fuzz import Fuzz
from tests.support.machine import Bench

pytestmark = pytest.mark.slow


class Watched(Fuzz):
    """A random log; after each entry every queue is looked at."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen: dict[int, tuple[tuple[object, ...] | None, QueueFigures | None]] = {}
        self.equal = self.other = 0

    def gather(self) -> None:
        """Compare with what was seen before."""
        super().gather()
        machine = self.bench.machine
        for number in machine.queue_numbers():
            pulse, figures = machine.queue_pulse(number), machine.queue_figures(number)
            if number in self.seen and self.seen[number][0] == pulse:
                assert self.seen[number][1] == figures
                self.equal += 1
            else:
                self.other += 1
            self.seen[number] = pulse, figures


@pytest.mark.parametrize("seed", range(3))
def test_equal_pulses_are_of_equal_figures(seed: int) -> None:
    log = Watched(seed)
    log.run(400)
    assert log.equal > 100
    assert log.other > 100
    assert log.bench.machine.queue_pulse(10**6) is None


def test_a_pause_changes_the_pulse() -> None:
    bench = Bench()
    bench.declare("q")
    before = bench.machine.queue_pulse(1)
    assert bench.machine.queue_pulse(1) == before
    bench.do(commands.PauseQueue("q"))
    assert bench.machine.queue_pulse(1) != before
