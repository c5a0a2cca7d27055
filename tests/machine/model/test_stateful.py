"""The machine beside the model, one entry at a time, with Hypothesis choosing what to do.

`--hypothesis-profile=thorough` makes it long; without it, it is quick, and derandomized in CI.
"""

import os
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from fifo.machine import Machine
from tests.machine.model.comparing import Pair
from tests.machine.model.generating import Chooser, Generator
from tests.machine.model.profiles import is_thorough, present

pytestmark = pytest.mark.slow


class DataDraw:
    """Choices that Hypothesis makes, and shrinks toward the first of each."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def below(self, limit: int) -> int:
        """An integer from 0 up to, not including, `limit`."""
        return self.data.draw(st.integers(0, limit - 1))


class SideBySide(RuleBasedStateMachine):
    """Every entry goes to both; `Pair.apply` compares replies, effects, places and invariants."""

    steps: ClassVar[int] = 0
    """Rules that were carried out in this process."""

    kind: ClassVar[type[Generator]] = Generator

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.generator: Generator | None = None

    def _draws_from(self, data: st.DataObject) -> Generator:
        """The generator, with the draws of this very rule."""
        if self.generator is None:
            self.generator = self.kind(self.pair, Chooser(DataDraw(data)))
        self.generator.choose = Chooser(DataDraw(data))
        return self.generator

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A few queues and the first consumer."""
        for steps in self._draws_from(data).first_entries():
            self.pair.apply(0, *steps)

    @rule(data=st.data())
    def entry(self, data: st.DataObject) -> None:
        """Apply an entry of one or a few commands."""
        SideBySide.steps += 1
        generator = self._draws_from(data)
        steps = generator.entry()
        self.pair.apply(generator.stamp(), *steps)

    @rule()
    def restart(self) -> None:
        """The machine goes on from its snapshot; the model does not notice."""
        self.pair.machine = Machine.restore(self.pair.machine.snapshot())


QUICK = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
)

PARTS = 10 if is_thorough() else 1
PART_STEPS = 10_000
PART_EXAMPLES = 200
"""Of one call of Hypothesis in a thorough run: few enough that a part does not go far beyond."""


@pytest.mark.parametrize("part", range(PARTS))
def test_the_machine_agrees_with_the_model_in_any_run(part: int) -> None:
    if not is_thorough():
        run_state_machine_as_test(SideBySide, settings=QUICK)
        return
    wanted = SideBySide.steps + PART_STEPS
    # More than half of Hypothesis's examples end after a step or two: what counts are steps.
    while SideBySide.steps < wanted:
        run_state_machine_as_test(
            SideBySide, settings=settings(present(), max_examples=PART_EXAMPLES)
        )
