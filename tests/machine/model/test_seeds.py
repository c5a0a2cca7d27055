"""Seeded runs beside the model, and every snapshot of them restored and continued.

Quicker per step than the Hypothesis test, which shrinks; the two share the generator.
"""

import pytest

from fifo.machine import Machine
from tests.machine.model import driving
from tests.machine.model.profiles import is_thorough

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
