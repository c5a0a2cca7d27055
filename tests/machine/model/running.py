"""Draws for runs of keys: key-ordered queues, few keys, durable consumers that ask for runs.

Owns the weights; what is drawn and compared is the same as for everything else. In the draws of
every kind of command runs are too rare to meet each way out of their order.
"""

from collections.abc import Callable
from dataclasses import replace

from fifo.machine import commands
from fifo.words.versions import KEY_RUNS
from tests.machine.model.comparing import Step
from tests.machine.model.generating import Generator, Spec
from tests.machine.model.verbs import Letter


class RunsGenerator(Generator):
    """As a generator, where most is about the order of keys."""

    def first_entries(self) -> list[list[Step]]:
        """In a cluster that has runs."""
        return [[commands.SetVersion(KEY_RUNS)], *super().first_entries()]

    def entry(self) -> list[Step]:
        """A single command: what a get passed over, as its releaser avoids it, a reserve of the
        same entry may take, which the model cannot tell apart."""
        return super().entry()[:1]

    def spec_of(self, name: str) -> Spec:
        """A spec that orders keys, where it is not for dead letters."""
        spec = super().spec_of(name)
        return spec if name.startswith("dead") else spec | {"ordering": "key"}

    def letter(self, number: int) -> Letter:
        """A message that mostly has one of two keys."""
        letter = super().letter(number)
        if self.choose.chance(80):
            letter.key = self.choose.one((b"k1", b"k2"))
        return letter

    def durable(self) -> Step:
        """As for everything else; most reserves ask for runs."""
        step = super().durable()
        if isinstance(step, commands.Reserve) and self.choose.chance(60):
            return replace(step, runs=True)
        return step

    def _weighted(self) -> list[Callable[[], Step]]:
        weights: tuple[tuple[Callable[[], Step], int], ...] = (
            (self.publish, 20),
            (self.durable, 30),
            (self.settle, 25),
            (self.tick, 12),
            (self.get, 4),
            (self.subscribe, 2),
            (self.act, 5),
            (self.update, 1),
            (self.purge, 1),
            (self.move, 2),
            (self.set_version, 1),
        )
        return [verb for verb, weight in weights for _ in range(weight)]
