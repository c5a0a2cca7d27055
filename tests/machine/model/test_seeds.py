"""Seeded runs beside the model, and every snapshot of them restored and continued.

Quicker per step than the Hypothesis test, which shrinks; the two share the generator.
"""

from random import Random

import pytest

from fifo.machine import Machine
from fifo.machine.spec import queue_spec
from fifo.words.queue_options import QUEUE_OPTIONS, QueueOption
from tests.machine.model import driving
from tests.machine.model.comparing import Pair
from tests.machine.model.generating import Chooser, Generator, samples
from tests.machine.model.profiles import is_thorough

pytestmark = pytest.mark.slow


RUNS = 1_000 if is_thorough() else 120
STEPS = 150 if is_thorough() else 80
GROUP = 20
SNAPSHOT_RUNS = 100 if is_thorough() else 10
SNAPSHOT_STEPS = 60


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, RUNS, GROUP))
def test_the_machine_does_what_the_model_does(first: int) -> None:
    for seed in range(first, first + GROUP):
        pair, error = driving.run(seed, STEPS)
        if error is not None:
            raise AssertionError(driving.report(seed, pair, error))


@pytest.mark.parametrize("seed", range(SNAPSHOT_RUNS))
def test_stopping_at_any_index_changes_nothing(seed: int) -> None:
    pair, error = driving.run(seed, SNAPSHOT_STEPS, restore_percent=0)
    assert error is None, error
    straight = Machine()
    snapshots, outcomes = [straight.snapshot()], []
    for meta, batch in pair.log:
        outcomes.append(straight.apply_batch(meta, batch))
        snapshots.append(straight.snapshot())
    for index, data in enumerate(snapshots):
        stopped = Machine.restore(data)
        assert stopped.snapshot() == data, f"restored at {index}: another snapshot"
        for later, (meta, batch) in enumerate(pair.log[index:], index):
            outcome = stopped.apply_batch(meta, batch)
            assert outcome == outcomes[later], f"stopped at {index}: entry {later + 1} differs"
        assert stopped.snapshot() == snapshots[-1], f"stopped at {index}: another end"


def test_every_option_of_a_queue_is_drawn() -> None:
    """A row of the table that no run ever gives is one that the comparison says nothing about."""
    generator = Generator(Pair(), Chooser(driving.SeededDraw(Random(1))))
    drawn = {option for _ in range(200) for option in generator.spec_of("q1")}
    assert drawn == {option.wire_name for option in QUEUE_OPTIONS}


@pytest.mark.parametrize("option", QUEUE_OPTIONS, ids=lambda option: option.wire_name)
def test_the_samples_of_an_option_are_valid(option: QueueOption) -> None:
    """Also for an option with weights of its own: the next one will have none."""
    assert samples(option)
    together = {"dead_letter": "dead", "lock_ms": 1_000, "max_lock_ms": 300_000}
    for value in samples(option):
        queue_spec({**together, option.wire_name: value})
