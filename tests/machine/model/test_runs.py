"""Runs of keys beside the model: seeded runs, Hypothesis, and every snapshot restored."""

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.model import driving
from tests.machine.model.generating import Generator
from tests.machine.model.profiles import is_thorough, present
from tests.machine.model.running import RunsGenerator
from tests.machine.model.test_seeds import goes_on_from_any_index
from tests.machine.model.test_stateful import QUICK, SideBySide

pytestmark = pytest.mark.slow

RUNS = 400 if is_thorough() else 40
STEPS = 80
SNAPSHOT_RUNS = 20 if is_thorough() else 2
SNAPSHOT_STEPS = 60


class RunsSideBySide(SideBySide):
    """The same rules, with other draws."""

    kind: ClassVar[type[Generator]] = RunsGenerator


def test_runs_of_keys_are_as_in_the_model() -> None:
    for seed in range(RUNS):
        pair, error = driving.run(seed, STEPS, kind=RunsGenerator)
        if error is not None:
            raise AssertionError(driving.report(seed, pair, error))


@pytest.mark.parametrize("seed", range(SNAPSHOT_RUNS))
def test_a_run_goes_on_from_any_snapshot(seed: int) -> None:
    pair, error = driving.run(seed, SNAPSHOT_STEPS, restore_percent=0, kind=RunsGenerator)
    assert error is None, error
    goes_on_from_any_index(pair)


def test_runs_agree_with_the_model_in_any_order_of_commands() -> None:
    found = present() if is_thorough() else QUICK
    examples = 400 if is_thorough() else 20
    run_state_machine_as_test(RunsSideBySide, settings=settings(found, max_examples=examples))
